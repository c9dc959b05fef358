//! Packets, byte by byte.

use std::net::Ipv4Addr;

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMP: u8 = 1;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

pub type Mac = [u8; 6];

/// The Internet checksum.
pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An IPv4 packet in Ethernet. The defaults are a valid one.
#[derive(Debug, Clone)]
pub struct Packet {
    pub destination_mac: Mac,
    pub source_mac: Mac,
    pub ethertype: u16,
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    pub protocol: u8,
    pub tos: u8,
    pub ttl: u8,
    pub id: u16,
    /// DF 0x4000, MF 0x2000, offset in units of 8 bytes.
    pub fragment: u16,
    pub l4: Vec<u8>,
    /// Bytes behind the datagram.
    pub trailer: usize,
}

impl Packet {
    pub fn new(protocol: u8, source: (Mac, Ipv4Addr), destination: (Mac, Ipv4Addr), l4: Vec<u8>) -> Self {
        Self {
            destination_mac: destination.0,
            source_mac: source.0,
            ethertype: 0x0800,
            source: source.1,
            destination: destination.1,
            protocol,
            tos: 0,
            ttl: 64,
            id: 0x1234,
            fragment: 0x4000,
            l4,
            trailer: 0,
        }
    }

    pub fn ip(&self) -> Vec<u8> {
        let mut ip = vec![0x45, self.tos];
        ip.extend(((20 + self.l4.len()) as u16).to_be_bytes());
        ip.extend(self.id.to_be_bytes());
        ip.extend(self.fragment.to_be_bytes());
        ip.extend([self.ttl, self.protocol, 0, 0]);
        ip.extend(self.source.octets());
        ip.extend(self.destination.octets());
        let check = checksum(&ip).to_be_bytes();
        ip[10..12].copy_from_slice(&check);
        ip
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = ethernet(self.destination_mac, self.source_mac, self.ethertype);
        bytes.extend(self.ip());
        bytes.extend(&self.l4);
        bytes.resize(bytes.len() + self.trailer, 0);
        bytes
    }
}

pub fn ethernet(destination: Mac, source: Mac, ethertype: u16) -> Vec<u8> {
    let mut bytes = destination.to_vec();
    bytes.extend(source);
    bytes.extend(ethertype.to_be_bytes());
    bytes
}

pub fn udp(source: u16, destination: u16, payload: usize) -> Vec<u8> {
    let mut bytes = source.to_be_bytes().to_vec();
    bytes.extend(destination.to_be_bytes());
    bytes.extend(((8 + payload) as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend((0..payload).map(|i| i as u8));
    bytes
}

pub fn tcp(source: u16, destination: u16, flags: u8, payload: usize) -> Vec<u8> {
    let mut bytes = source.to_be_bytes().to_vec();
    bytes.extend(destination.to_be_bytes());
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend((0..payload).map(|i| i as u8));
    bytes
}

/// `rest`: bytes 4 to 7 of the header.
pub fn icmp(kind: u8, code: u8, rest: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, code, 0, 0];
    bytes.extend(rest);
    bytes.extend(payload);
    let check = checksum(&bytes).to_be_bytes();
    bytes[2..4].copy_from_slice(&check);
    bytes
}

pub fn echo(id: u16) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    icmp(8, 0, [high, low, 0, 1], &[0x55; 16])
}

/// An ARP request.
pub fn arp(sender: (Mac, Ipv4Addr), target: Ipv4Addr) -> Vec<u8> {
    let mut bytes = ethernet([0xff; 6], sender.0, 0x0806);
    bytes.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    bytes.extend(sender.0);
    bytes.extend(sender.1.octets());
    bytes.extend([0; 6]);
    bytes.extend(target.octets());
    bytes
}

/// A VXLAN packet of another node.
#[derive(Debug, Clone)]
pub struct Outer {
    pub mac: Mac,
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    pub vni: u32,
    pub tos: u8,
    pub fragment: u16,
    pub port: u16,
    pub flags: u8,
}

impl Outer {
    pub fn bytes(&self, inner: &[u8]) -> Vec<u8> {
        let mut l4 = udp(40000, self.port, 8 + inner.len());
        l4.truncate(8);
        l4.extend([self.flags, 0, 0, 0]);
        l4.extend((self.vni << 8).to_be_bytes());
        l4.extend(inner);
        let mut packet = Packet::new(UDP, ([2, 0, 0, 0, 9, 9], self.source), (self.mac, self.destination), l4);
        packet.tos = self.tos;
        packet.fragment = self.fragment;
        packet.bytes()
    }
}

/// Whether an IPv4 header's checksum is right.
pub fn header_valid(ip: &[u8]) -> bool {
    checksum(&ip[..20]) == 0
}
