//! The client's half of each load.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use nix::unistd::alarm;
use socket2::{Domain, SockRef, Socket, Type};

use super::{ECHO_PORT, FULL_PORT, Load, Outcome, SINK_PORT};
use crate::cpu;
use crate::error::{Context, Result};

/// Longest that a run may hang before the kernel ends the process.
const PATIENCE_SECONDS: u32 = 10;
/// Units between two looks at the clock.
const BATCH: u64 = 32;
/// As much as fills a 60-byte frame.
const DATAGRAM: [u8; 18] = [0; 18];
const WRITE: usize = 128 << 10;

/// Runs `load` against the server at `host` for about `time`.
///
/// # Errors
/// [`crate::error::Error::Io`] when the server cannot be reached or a connection breaks.
pub fn run(load: Load, host: Ipv4Addr, time: Duration) -> Result<Outcome> {
    let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    alarm::set(seconds.saturating_add(PATIENCE_SECONDS));
    match load {
        Load::Packet => packets(host, time),
        Load::Transaction => transactions(host, time),
        Load::Connection => connections(host, time),
        Load::Stream => stream(host, time),
    }
}

/// Counts units and the processor time from its start.
struct Count {
    started: Instant,
    cpu: Duration,
    time: Duration,
    count: u64,
    failed: u64,
}

impl Count {
    fn start(time: Duration) -> Result<Self> {
        Ok(Self { started: Instant::now(), cpu: cpu::own_time()?, time, count: 0, failed: 0 })
    }

    fn goes_on(&self) -> bool {
        self.started.elapsed() < self.time
    }

    fn end(self) -> Result<Outcome> {
        Ok(Outcome { count: self.count, failed: self.failed, cpu: cpu::own_time()?.saturating_sub(self.cpu) })
    }
}

fn packets(host: Ipv4Addr, time: Duration) -> Result<Outcome> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("a UDP socket")?;
    socket.connect((host, FULL_PORT)).context("connecting the UDP socket")?;
    let mut count = Count::start(time)?;
    while count.goes_on() {
        for _ in 0..BATCH {
            match socket.send(&DATAGRAM) {
                Ok(_) => count.count += 1,
                Err(_) => count.failed += 1,
            }
        }
    }
    count.end()
}

fn transactions(host: Ipv4Addr, time: Duration) -> Result<Outcome> {
    let mut connection = TcpStream::connect((host, ECHO_PORT)).context("connecting")?;
    connection.set_nodelay(true).context("TCP_NODELAY")?;
    let mut byte = [1];
    let mut count = Count::start(time)?;
    while count.goes_on() {
        for _ in 0..BATCH {
            connection.write_all(&byte).context("asking")?;
            connection.read_exact(&mut byte).context("reading the answer")?;
            count.count += 1;
        }
    }
    count.end()
}

fn connections(host: Ipv4Addr, time: Duration) -> Result<Outcome> {
    let server = SocketAddr::from(SocketAddrV4::new(host, ECHO_PORT)).into();
    let once = || -> std::io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_linger(Some(Duration::ZERO))?;
        socket.connect(&server)?;
        let mut stream = TcpStream::from(socket);
        stream.write_all(&[1])?;
        stream.read_exact(&mut [0])
    };
    once().context("the first connection")?;
    let mut count = Count::start(time)?;
    while count.goes_on() {
        for _ in 0..BATCH {
            match once() {
                Ok(()) => count.count += 1,
                Err(_) => count.failed += 1,
            }
        }
    }
    count.end()
}

fn stream(host: Ipv4Addr, time: Duration) -> Result<Outcome> {
    let mut connection = TcpStream::connect((host, SINK_PORT)).context("connecting")?;
    SockRef::from(&connection).set_linger(None).context("SO_LINGER")?;
    let chunk = vec![0; WRITE];
    let mut count = Count::start(time)?;
    while count.goes_on() {
        connection.write_all(&chunk).context("writing")?;
        count.count += WRITE as u64;
    }
    // The server closes when it has read everything; what was sent has then arrived.
    connection.shutdown(Shutdown::Write).context("ending the stream")?;
    connection.read_to_end(&mut Vec::new()).context("waiting for the stream's end")?;
    count.end()
}
