//! The listening half of a responder.

use super::protocol::{answer, parse_probe};
use super::{Order, PORT, Protocol, Shared, probe};
use crate::error::{Context, Result, optional};
use futures::future::join_all;
use std::io;
use std::path::Path;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream};
use tokio::time::{Duration, timeout};

/// How long a connection may take to say something.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a responder listens at.
pub(super) struct Servers {
    tcp: TcpListener,
    udp: UdpSocket,
    orders: UnixListener,
}

impl Servers {
    /// Opens them all.
    pub(super) async fn bind(socket: &Path) -> Result<Self> {
        optional(std::fs::remove_file(socket), socket)?;
        Ok(Self {
            tcp: TcpListener::bind(("0.0.0.0", PORT)).await.context(|| format!("listening at TCP port {PORT}"))?,
            udp: UdpSocket::bind(("0.0.0.0", PORT)).await.context(|| format!("listening at UDP port {PORT}"))?,
            orders: UnixListener::bind(socket).context(|| format!("listening at {}", socket.display()))?,
        })
    }

    /// Serves until one of them breaks.
    pub(super) async fn run(self, shared: Shared) -> Result<()> {
        let served = tokio::try_join!(
            tcp(&self.tcp, &shared),
            udp(&self.udp, &shared),
            echo_requests(&shared),
            orders(&self.orders, &shared)
        );
        served.map(|_| ()).context(|| "answering")
    }
}

async fn tcp(listener: &TcpListener, shared: &Shared) -> io::Result<()> {
    loop {
        // A connection that is gone before it is accepted is no reason to end.
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(timeout(PATIENCE, connection(stream, shared.clone())));
        }
    }
}

async fn connection(mut stream: TcpStream, shared: Shared) -> io::Result<()> {
    let mut buffer = [0; 512];
    let length = stream.read(&mut buffer).await?;
    if let Some(id) = parse_probe(&buffer[..length]) {
        shared.record(id, Protocol::Tcp);
    }
    stream.write_all(answer(&buffer[..length], &shared.name).as_bytes()).await?;
    stream.shutdown().await
}

async fn udp(socket: &UdpSocket, shared: &Shared) -> io::Result<()> {
    let mut buffer = [0; 2048];
    loop {
        // Errors here are ICMP errors about earlier answers.
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
        if let Some(id) = parse_probe(&buffer[..length]) {
            shared.record(id, Protocol::Udp);
        }
        socket.send_to(answer(&buffer[..length], &shared.name).as_bytes(), from).await.ok();
    }
}

async fn echo_requests(shared: &Shared) -> io::Result<()> {
    loop {
        let id = shared.icmp.receive().await?;
        shared.record(id, Protocol::Icmp);
    }
}

async fn orders(listener: &UnixListener, shared: &Shared) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(order(stream, shared.clone()));
    }
}

async fn order(stream: UnixStream, shared: Shared) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line).await?;
    let mut answer = match serde_json::from_slice(&line)? {
        Order::Probe(probes) => {
            let running = probes.into_iter().map(|order| tokio::spawn(probe::run(shared.clone(), order)));
            let reports: Vec<_> = join_all(running).await.into_iter().flatten().collect();
            serde_json::to_vec(&reports)?
        }
        Order::Seen(check) => serde_json::to_vec(&shared.sightings(check))?,
    };
    answer.push(b'\n');
    stream.write_all(&answer).await
}
