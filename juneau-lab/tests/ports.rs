//! Ports that are used again at once. The only test of its process: a process that another thread starts holds every open
//! socket until it executes its program, and a socket that is closed meanwhile keeps its ports.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::Lab;
use juneau_lab::namespace::within;
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

const RESPONDER: u16 = 7777;
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens a connection from a given port, asks the responder its name, and closes; `reset` closes by RST.
fn ask(lab: &Lab, from: &str, port: u16, to: SocketAddrV4, reset: bool) -> std::io::Result<String> {
    within(&lab.dir().join("netns").join(from.replace('/', "_")), || {
        let run = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
            socket.connect_timeout(&SocketAddr::from(to).into(), PATIENCE)?;
            if reset {
                socket.set_linger(Some(Duration::ZERO))?;
            }
            let mut stream = TcpStream::from(socket);
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(b"who\n")?;
            let mut answer = String::new();
            let mut buffer = [0; 64];
            // Until the answer is there; with `reset` the rest is not waited for.
            while !answer.ends_with('\n') {
                match stream.read(&mut buffer)? {
                    0 => break,
                    count => answer.push_str(&String::from_utf8_lossy(&buffer[..count])),
                }
            }
            if !reset {
                // The responder closes first, and keeps the ports for a while.
                stream.read_to_string(&mut answer)?;
            }
            Ok(answer.trim().to_owned())
        };
        Ok(run())
    })
    .unwrap()
}

#[test]
fn a_connection_reuses_its_ports_at_once() {
    let lab = Lab::two_tenants("reuse");
    for (to, owner, port) in [("10.0.2.10", "red/b1", 41_000), ("10.0.2.20", "red/b2", 41_001)] {
        let to = SocketAddrV4::new(to.parse().unwrap(), RESPONDER);
        for round in 0..40 {
            // After a reset, and after an orderly end, in turns.
            let answer = ask(&lab, "red/a1", port, to, round % 2 == 0);
            assert_eq!(answer.map_err(|error| error.to_string()).as_deref(), Ok(owner), "round {round}");
        }
    }
}
