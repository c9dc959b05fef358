//! Packets to send: every header field within reach, lengths and checksums right unless told otherwise.

use crate::flow::{TCP_ACK, TCP_FIN, TCP_SYN};
use crate::layout::{Be16, Be32, be32};
use crate::packet::{
    Arp, Checksum, ETHERTYPE_ARP, ETHERTYPE_IPV4, Ethernet, ICMP_ECHO, ICMP_ECHO_REPLY, IP_ICMP, IP_SCTP, IP_TCP,
    IP_UDP, Icmp, Ipv4, Tcp, Udp, Vxlan, checksum, view_mut,
};
use core::net::Ipv4Addr;
use zerocopy::IntoBytes;

/// What an IPv4 packet carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layer4 {
    /// TCP with a payload of zeros.
    Tcp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
        /// Flags.
        flags: u8,
        /// Bytes of payload.
        payload: usize,
    },
    /// UDP with a payload of zeros.
    Udp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
        /// Bytes of payload.
        payload: usize,
    },
    /// ICMP.
    Icmp {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// An echo's identifier.
        id: u16,
        /// An echo's sequence number, or an MTU.
        sequence: u16,
        /// What follows, such as a quote.
        payload: Vec<u8>,
    },
    /// Any protocol, as bytes.
    Raw {
        /// IP protocol.
        protocol: u8,
        /// The bytes.
        payload: Vec<u8>,
    },
}

/// An IPv4 packet in an Ethernet frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Source MAC address.
    pub source_mac: [u8; 6],
    /// Destination MAC address.
    pub destination_mac: [u8; 6],
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// DSCP and ECN.
    pub tos: u8,
    /// TTL.
    pub ttl: u8,
    /// Identification.
    pub id: u16,
    /// DF, MF and offset.
    pub fragment: u16,
    /// What it carries.
    pub layer4: Layer4,
}

impl Frame {
    /// A packet with TTL 64 and DF.
    #[must_use]
    pub const fn new(source: Ipv4Addr, destination: Ipv4Addr, layer4: Layer4) -> Self {
        Self {
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            source,
            destination,
            tos: 0,
            ttl: 64,
            id: 1,
            fragment: Ipv4::DF,
            layer4,
        }
    }

    /// The same with other MAC addresses.
    #[must_use]
    pub const fn macs(mut self, source: [u8; 6], destination: [u8; 6]) -> Self {
        self.source_mac = source;
        self.destination_mac = destination;
        self
    }

    /// The packet's bytes.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let ethernet = Ethernet {
            destination: self.destination_mac,
            source: self.source_mac,
            ethertype: Be16::new(ETHERTYPE_IPV4),
        };
        let mut ip = Ipv4 {
            version_length: 0x45,
            tos: self.tos,
            id: Be16::new(self.id),
            fragment: Be16::new(self.fragment),
            ttl: self.ttl,
            source: be32(self.source),
            destination: be32(self.destination),
            ..Ipv4::default()
        };
        let layer4 = match &self.layer4 {
            Layer4::Tcp { source, destination, flags, payload } => {
                ip.protocol = IP_TCP;
                let tcp = Tcp {
                    source_port: Be16::new(*source),
                    destination_port: Be16::new(*destination),
                    offset: 5 << 4,
                    flags: *flags,
                    window: Be16::new(1024),
                    ..Tcp::default()
                };
                let mut bytes = [tcp.as_bytes(), &vec![0; *payload]].concat();
                let sum = self.pseudo_checksum(IP_TCP, &bytes);
                if let Some((tcp, _)) = view_mut::<Tcp>(&mut bytes) {
                    tcp.checksum = Be16::new(sum);
                }
                bytes
            }
            Layer4::Udp { source, destination, payload } => {
                ip.protocol = IP_UDP;
                let udp = Udp {
                    source_port: Be16::new(*source),
                    destination_port: Be16::new(*destination),
                    length: Be16::new((Udp::LENGTH + payload) as u16),
                    ..Udp::default()
                };
                let mut bytes = [udp.as_bytes(), &vec![0; *payload]].concat();
                let sum = self.pseudo_checksum(IP_UDP, &bytes);
                if let Some((udp, _)) = view_mut::<Udp>(&mut bytes) {
                    udp.checksum = Be16::new(if sum == 0 { 0xffff } else { sum });
                }
                bytes
            }
            Layer4::Icmp { kind, code, id, sequence, payload } => {
                ip.protocol = IP_ICMP;
                let mut icmp = Icmp {
                    kind: *kind,
                    code: *code,
                    id: Be16::new(*id),
                    sequence: Be16::new(*sequence),
                    checksum: Be16::ZERO,
                };
                icmp.checksum = Be16::new(Checksum::new().with(icmp.as_bytes()).with(payload).finish());
                [icmp.as_bytes(), payload].concat()
            }
            Layer4::Raw { protocol, payload } => {
                ip.protocol = *protocol;
                payload.clone()
            }
        };
        ip.total_length = Be16::new((Ipv4::LENGTH + layer4.len()) as u16);
        ip.set_checksum();
        [ethernet.as_bytes(), ip.as_bytes(), &layer4].concat()
    }

    fn pseudo_checksum(&self, protocol: u8, layer4: &[u8]) -> u16 {
        Checksum::new()
            .with(&self.source.octets())
            .with(&self.destination.octets())
            .with(&[0, protocol])
            .with(&(layer4.len() as u16).to_be_bytes())
            .with(layer4)
            .finish()
    }
}

/// A TCP segment that opens a connection.
#[must_use]
pub const fn syn(source: u16, destination: u16) -> Layer4 {
    Layer4::Tcp { source, destination, flags: TCP_SYN, payload: 0 }
}

/// The segment that answers it.
#[must_use]
pub const fn syn_ack(source: u16, destination: u16) -> Layer4 {
    Layer4::Tcp { source, destination, flags: TCP_SYN | TCP_ACK, payload: 0 }
}

/// A segment with data.
#[must_use]
pub const fn data(source: u16, destination: u16, payload: usize) -> Layer4 {
    Layer4::Tcp { source, destination, flags: TCP_ACK, payload }
}

/// A segment that ends its direction.
#[must_use]
pub const fn fin(source: u16, destination: u16) -> Layer4 {
    Layer4::Tcp { source, destination, flags: TCP_FIN | TCP_ACK, payload: 0 }
}

/// A UDP datagram.
#[must_use]
pub const fn udp(source: u16, destination: u16, payload: usize) -> Layer4 {
    Layer4::Udp { source, destination, payload }
}

/// An SCTP packet: its common header (RFC 9260, 3.1) alone, without a checksum.
#[must_use]
pub fn sctp(source: u16, destination: u16) -> Layer4 {
    let ports = [source.to_be_bytes(), destination.to_be_bytes()];
    Layer4::Raw { protocol: IP_SCTP, payload: [ports.as_flattened(), &[0; 8]].concat() }
}

/// An echo request.
#[must_use]
pub const fn echo(id: u16) -> Layer4 {
    Layer4::Icmp { kind: ICMP_ECHO, code: 0, id, sequence: 1, payload: Vec::new() }
}

/// An echo reply.
#[must_use]
pub const fn echo_reply(id: u16) -> Layer4 {
    Layer4::Icmp { kind: ICMP_ECHO_REPLY, code: 0, id, sequence: 1, payload: Vec::new() }
}

/// An ICMP error about a frame: its IPv4 header and 8 bytes.
#[must_use]
pub fn icmp_error(kind: u8, code: u8, about: &[u8]) -> Layer4 {
    let start = about.len().min(Ethernet::LENGTH);
    let end = about.len().min(Ethernet::LENGTH + Ipv4::LENGTH + 8);
    Layer4::Icmp { kind, code, id: 0, sequence: 0, payload: about[start..end].to_vec() }
}

/// An ARP request for `target` in an Ethernet broadcast.
#[must_use]
pub fn arp_request(mac: [u8; 6], sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let ethernet = Ethernet { destination: [0xff; 6], source: mac, ethertype: Be16::new(ETHERTYPE_ARP) };
    let arp = Arp {
        hardware: Be16::new(1),
        protocol: Be16::new(ETHERTYPE_IPV4),
        hardware_length: 6,
        protocol_length: 4,
        operation: Be16::new(1),
        sender_mac: mac,
        sender: be32(sender),
        target_mac: [0; 6],
        target: be32(target),
    };
    [ethernet.as_bytes(), arp.as_bytes()].concat()
}

/// A frame in VXLAN on UDP port 4789, as another node sends it.
#[must_use]
pub fn vxlan(source: Ipv4Addr, destination: Ipv4Addr, vni: u32, tos: u8, inner: &[u8]) -> Vec<u8> {
    let ethernet = Ethernet { ethertype: Be16::new(ETHERTYPE_IPV4), ..Ethernet::default() };
    let length = Ipv4::LENGTH + Udp::LENGTH + Vxlan::LENGTH + inner.len();
    let mut ip = Ipv4 {
        version_length: 0x45,
        tos,
        total_length: Be16::new(length as u16),
        fragment: Be16::new(Ipv4::DF),
        ttl: 64,
        protocol: IP_UDP,
        source: be32(source),
        destination: be32(destination),
        ..Ipv4::default()
    };
    ip.set_checksum();
    let udp = Udp {
        source_port: Be16::new(50_000),
        destination_port: Be16::new(4789),
        length: Be16::new((length - Ipv4::LENGTH) as u16),
        checksum: Be16::ZERO,
    };
    [ethernet.as_bytes(), ip.as_bytes(), udp.as_bytes(), Vxlan::new(vni).as_bytes(), inner].concat()
}

/// Asserts that the frame is IPv4 with good checksums of IPv4, TCP, UDP (where it has one) and ICMP.
pub fn assert_checksums(frame: &[u8]) {
    let (ip, layer4) = frame[Ethernet::LENGTH..].split_at(Ipv4::LENGTH);
    assert_eq!(checksum(ip), 0, "IPv4 checksum of {frame:02x?}");
    let length = usize::from(u16::from_be_bytes([ip[2], ip[3]])) - Ipv4::LENGTH;
    let layer4 = &layer4[..length];
    let pseudo = Checksum::new().with(&ip[12..20]).with(&[0, ip[9]]).with(&(length as u16).to_be_bytes());
    match ip[9] {
        IP_TCP => assert_eq!(pseudo.with(layer4).finish(), 0, "TCP checksum"),
        IP_UDP if layer4[6..8] != [0, 0] => assert_eq!(pseudo.with(layer4).finish(), 0, "UDP checksum"),
        IP_ICMP => assert_eq!(checksum(layer4), 0, "ICMP checksum"),
        _ => {}
    }
}

/// The inner frame of one that was encapsulated.
#[must_use]
pub fn decapsulated(frame: &[u8]) -> &[u8] {
    &frame[Ethernet::LENGTH + Ipv4::LENGTH + Udp::LENGTH + Vxlan::LENGTH..]
}

/// The source and destination of a frame's IPv4 header.
#[must_use]
pub fn addresses(frame: &[u8]) -> (Ipv4Addr, Ipv4Addr) {
    let (ip, _) = crate::packet::view::<Ipv4>(&frame[Ethernet::LENGTH..]).expect("an IPv4 header");
    let address = |be: Be32| Ipv4Addr::from(be.to_bytes());
    (address(ip.source), address(ip.destination))
}
