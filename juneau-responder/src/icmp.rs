//! ICMP by a raw socket: sends echo requests, sees those that the kernel answers, and what comes back.

use super::protocol::{parse_probe, probe_line};
use socket2::{Domain, Socket, Type};
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::net::UdpSocket;
use tokio::sync::oneshot;

const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const HEADER: usize = 8;

/// What came back of an echo request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Back {
    /// The reply.
    Reply,
    /// An error with this type and code.
    Error(u8, u8),
}

/// What a packet means to a responder.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    Request { id: u64 },
    Back { key: u32, back: Back },
}

/// A raw ICMP socket and who waits at it.
#[derive(Debug)]
pub(super) struct Icmp {
    /// A raw socket behind the interface of a UDP socket, which sends and receives datagrams just the same.
    socket: UdpSocket,
    waiting: Mutex<HashMap<u32, oneshot::Sender<Back>>>,
}

impl Icmp {
    /// Opens the socket. Needs a runtime and CAP_NET_RAW.
    pub(super) fn open() -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(socket2::Protocol::ICMPV4))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: UdpSocket::from_std(socket.into())?, waiting: Mutex::default() })
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u32, oneshot::Sender<Back>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that what comes back of probe `id` is awaited.
    pub(super) fn expect(&self, id: u64) -> oneshot::Receiver<Back> {
        let (sender, receiver) = oneshot::channel();
        self.waiting().insert(key(id), sender);
        receiver
    }

    /// Says that it is awaited no longer.
    pub(super) fn forget(&self, id: u64) {
        self.waiting().remove(&key(id));
    }

    /// Sends the echo request of probe `id`.
    pub(super) async fn send(&self, id: u64, from: &str, to: Ipv4Addr) -> io::Result<()> {
        self.socket.send_to(&echo_request(id, from), SocketAddrV4::new(to, 0)).await?;
        Ok(())
    }

    /// Takes in packets; returns the number of each echo request that reached this Pod.
    pub(super) async fn receive(&self) -> io::Result<u64> {
        let mut buffer = [0; 2048];
        loop {
            let length = self.socket.recv(&mut buffer).await?;
            match parse(&buffer[..length]) {
                Some(Meaning::Request { id }) => return Ok(id),
                Some(Meaning::Back { key, back }) => {
                    if let Some(waiter) = self.waiting().remove(&key) {
                        // Nobody waits any more: late.
                        waiter.send(back).ok();
                    }
                }
                None => {}
            }
        }
    }
}

/// Identifier and sequence number of a probe: the lower half of its number.
fn key(id: u64) -> u32 {
    (id & 0xffff_ffff) as u32
}

fn echo_request(id: u64, from: &str) -> Vec<u8> {
    let mut packet = vec![ECHO_REQUEST, 0, 0, 0];
    // Probes of one check differ in the lower bits: let those be the identifier, so that each is a flow of its own.
    packet.extend_from_slice(&key(id).rotate_left(16).to_be_bytes());
    packet.extend_from_slice(probe_line(id, from).as_bytes());
    let sum = checksum(&packet);
    packet[2..4].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Reads a packet as raw sockets give it, with its IPv4 header.
fn parse(packet: &[u8]) -> Option<Meaning> {
    let icmp = after_header(packet)?;
    let quoted_key = |header: &[u8]| {
        let bytes = header.get(4..HEADER)?.try_into().ok()?;
        Some(u32::from_be_bytes(bytes).rotate_right(16))
    };
    match *icmp.first()? {
        ECHO_REQUEST => Some(Meaning::Request { id: parse_probe(icmp.get(HEADER..)?)? }),
        // The number in the payload, too: another program in this Pod may ping.
        ECHO_REPLY => Some(Meaning::Back { key: key(parse_probe(icmp.get(HEADER..)?)?), back: Back::Reply }),
        kind @ (UNREACHABLE | TIME_EXCEEDED) => {
            let quoted = after_header(icmp.get(HEADER..)?)?;
            if *quoted.first()? != ECHO_REQUEST {
                return None;
            }
            Some(Meaning::Back { key: quoted_key(quoted)?, back: Back::Error(kind, *icmp.get(1)?) })
        }
        _ => None,
    }
}

/// What follows an IPv4 header.
fn after_header(packet: &[u8]) -> Option<&[u8]> {
    let words = packet.first()? & 0x0f;
    packet.get(usize::from(words) * 4..)
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or_default()])))
        .sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_header(payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 20];
        packet[0] = 0x45;
        packet.extend_from_slice(payload);
        packet
    }

    #[test]
    fn requests_replies_and_errors_are_told_apart() {
        let id = 0x0000_0001_0002_0003;
        let request = echo_request(id, "red/a");
        assert_eq!(checksum(&request), 0, "the checksum of a packet with its checksum");
        assert_eq!(&request[4..8], [0, 3, 0, 2], "identifier, sequence number");
        assert_eq!(parse(&with_header(&request)), Some(Meaning::Request { id }));

        let mut reply = request.clone();
        reply[0] = ECHO_REPLY;
        assert_eq!(parse(&with_header(&reply)), Some(Meaning::Back { key: key(id), back: Back::Reply }));

        let mut error = vec![UNREACHABLE, 1, 0, 0, 0, 0, 0, 0];
        error.extend_from_slice(&with_header(&request[..8]));
        assert_eq!(parse(&with_header(&error)), Some(Meaning::Back { key: key(id), back: Back::Error(3, 1) }));
    }

    #[test]
    fn short_and_foreign_packets_mean_nothing() {
        for packet in [&[][..], &[0x45], &with_header(&[]), &with_header(&[8, 0, 0, 0, 0, 0, 0, 0, 1, 2])] {
            assert_eq!(parse(packet), None);
        }
    }
}
