//! Sends probes and waits for what comes back.

use super::icmp::Back;
use super::protocol::{parse_answer, probe_line};
use super::{Outcome, PORT, ProbeOrder, ProbeReport, Protocol, Shared};
use std::io;
use std::net::SocketAddrV4;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout};

/// How often a datagram is sent at most: a lost one is no proof of anything, and a blocked one should be tried hard.
const SENDS: u32 = 3;

/// Carries one order out.
pub(super) async fn run(shared: Shared, order: ProbeOrder) -> ProbeReport {
    let patience = Duration::from_millis(order.patience);
    let start = Instant::now();
    let attempt = async {
        match order.protocol {
            Protocol::Icmp => icmp(&shared, &order, patience / SENDS).await.map(|()| None),
            Protocol::Tcp => tcp(&shared, &order).await.map(Some),
            Protocol::Udp => udp(&shared, &order, patience / SENDS).await.map(Some),
        }
    };
    let outcome = match timeout(patience, attempt).await {
        Err(_) => Outcome::Silent,
        Ok(Err(error)) if error.kind() == io::ErrorKind::TimedOut => Outcome::Silent,
        Ok(Err(error)) => Outcome::Refused(error.to_string()),
        Ok(Ok(by)) => {
            let microseconds = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
            Outcome::Answered { by, microseconds }
        }
    };
    ProbeReport { id: order.id, outcome }
}

async fn icmp(shared: &Shared, order: &ProbeOrder, pause: Duration) -> io::Result<()> {
    let mut back = shared.icmp.expect(order.id);
    for _ in 0..SENDS {
        shared.icmp.send(order.id, &shared.name, order.address).await?;
        if let Ok(Ok(back)) = timeout(pause, &mut back).await {
            return match back {
                Back::Reply => Ok(()),
                Back::Error(kind, code) => Err(io::Error::other(format!("ICMP error {kind}/{code}"))),
            };
        }
    }
    shared.icmp.forget(order.id);
    Err(io::ErrorKind::TimedOut.into())
}

async fn tcp(shared: &Shared, order: &ProbeOrder) -> io::Result<String> {
    let mut stream = TcpStream::connect(SocketAddrV4::new(order.address, PORT)).await?;
    stream.write_all(probe_line(order.id, &shared.name).as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    parse_answer(&answer, order.id).ok_or_else(|| io::Error::other("an answer to something else"))
}

async fn udp(shared: &Shared, order: &ProbeOrder, pause: Duration) -> io::Result<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").await?;
    socket.connect(SocketAddrV4::new(order.address, PORT)).await?;
    let line = probe_line(order.id, &shared.name);
    let mut buffer = [0; 512];
    for _ in 0..SENDS {
        socket.send(line.as_bytes()).await?;
        if let Ok(received) = timeout(pause, socket.recv(&mut buffer)).await {
            let length = received?;
            return parse_answer(&buffer[..length], order.id)
                .ok_or_else(|| io::Error::other("an answer to something else"));
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}
