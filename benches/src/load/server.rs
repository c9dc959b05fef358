//! The server's half of all loads: one process with one thread that waits for everything at once.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use socket2::{Domain, Socket, Type};

use super::{ECHO_PORT, FULL_PORT, SINK_PORT};
use crate::error::{Context, Result};

const BACKLOG: i32 = 4096;
const READ: usize = 128 << 10;

#[derive(Clone, Copy)]
enum Role {
    Echo,
    Sink,
}

/// Serves all loads until its standard input ends. Writes one line to its standard output when it is ready.
///
/// # Errors
/// [`crate::error::Error::Io`] when a socket cannot be opened or the parent is gone.
pub fn serve() -> Result<()> {
    let full = full_socket().context("the full UDP socket")?;
    let listeners = [
        (listen(ECHO_PORT).context("the echo port")?, Role::Echo),
        (listen(SINK_PORT).context("the sink port")?, Role::Sink),
    ];
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll")?;
    let watch = |fd: &dyn AsFd, token: u64| {
        epoll.add(fd.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, token)).context("watching a socket")
    };
    let input = io::stdin();
    watch(&input, token(&input))?;
    for (listener, _) in &listeners {
        watch(listener, token(listener))?;
    }
    writeln!(io::stdout(), "ready").context("saying that the server is ready")?;

    let mut connections: HashMap<u64, (TcpStream, Role)> = HashMap::new();
    let mut buffer = vec![0; READ];
    let mut events = [EpollEvent::empty(); 128];
    loop {
        let ready = epoll.wait(&mut events, EpollTimeout::NONE).context("waiting for packets")?;
        for event in events.iter().take(ready) {
            let source = event.data();
            if source == token(&input) {
                drop(full);
                return Ok(());
            }
            if let Some((listener, role)) = listeners.iter().find(|(l, _)| token(l) == source) {
                while let Ok((connection, _)) = listener.accept() {
                    if prepare(&connection, *role).is_ok() {
                        watch(&connection, token(&connection))?;
                        connections.insert(token(&connection), (connection, *role));
                    }
                }
            } else if let Some((connection, role)) = connections.get_mut(&source)
                && !turn(connection, *role, &mut buffer)
            {
                connections.remove(&source);
            }
        }
    }
}

fn token(fd: &impl AsRawFd) -> u64 {
    u64::from(fd.as_raw_fd().unsigned_abs())
}

fn prepare(connection: &TcpStream, role: Role) -> io::Result<()> {
    connection.set_nonblocking(true)?;
    match role {
        Role::Echo => connection.set_nodelay(true),
        Role::Sink => Ok(()),
    }
}

/// Reads once, and answers where that is the role; false when the connection is over.
fn turn(connection: &mut TcpStream, role: Role, buffer: &mut [u8]) -> bool {
    match connection.read(buffer) {
        Ok(0) => false,
        Ok(length) => match role {
            Role::Sink => true,
            Role::Echo => buffer.get(..length).is_some_and(|data| connection.write_all(data).is_ok()),
        },
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

fn any(port: u16) -> socket2::SockAddr {
    SocketAddr::from(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)).into()
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&any(port))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// The smallest buffer there is, and nobody reads it.
fn full_socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.set_recv_buffer_size(1)?;
    socket.bind(&any(FULL_PORT))?;
    Ok(socket)
}
