//! A packet to ask about: what a Pod would send.

use juneau_core::id::MacAddr;
use std::net::Ipv4Addr;

/// The head of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    pub(super) source_mac: MacAddr,
    pub(super) destination_mac: MacAddr,
    pub(super) source: Ipv4Addr,
    pub(super) destination: Ipv4Addr,
    pub(super) protocol: Protocol,
    pub(super) source_port: u16,
    pub(super) port: u16,
}

/// What is above IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Icmp,
    Tcp,
    Udp,
}

impl Protocol {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "icmp" => Some(Self::Icmp),
            "tcp" => Some(Self::Tcp),
            "udp" => Some(Self::Udp),
            _ => None,
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::Icmp => 1,
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

impl Probe {
    /// The frame: an echo request, a TCP SYN or an empty datagram, with right checksums (RFC 791, 792, 768, 9293).
    pub(super) fn frame(&self) -> Vec<u8> {
        let mut l4 = match self.protocol {
            Protocol::Icmp => {
                let [high, low] = self.port.to_be_bytes();
                vec![8, 0, 0, 0, high, low, 0, 1]
            }
            Protocol::Tcp => {
                let mut tcp = self.ports();
                // Sequence 1, acknowledgment 0, five words of header, SYN, the largest window.
                tcp.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]);
                tcp
            }
            Protocol::Udp => {
                let mut udp = self.ports();
                udp.extend([0, 8, 0, 0]);
                udp
            }
        };
        let sum = match self.protocol {
            Protocol::Icmp => checksum(&[&l4]),
            _ => {
                let length = u16::try_from(l4.len()).unwrap_or(u16::MAX).to_be_bytes();
                let pseudo =
                    [&self.source.octets()[..], &self.destination.octets(), &[0, self.protocol.number()], &length, &l4];
                checksum(&pseudo)
            }
        };
        let at = match self.protocol {
            Protocol::Icmp => 2,
            Protocol::Tcp => 16,
            Protocol::Udp => 6,
        };
        l4[at..at + 2].copy_from_slice(&sum.to_be_bytes());

        let mut frame = Vec::with_capacity(34 + l4.len());
        frame.extend(self.destination_mac.octets());
        frame.extend(self.source_mac.octets());
        frame.extend([0x08, 0x00]);
        frame.extend(ipv4(self.source, self.destination, self.protocol.number(), l4.len()));
        frame.extend(l4);
        frame
    }

    fn ports(&self) -> Vec<u8> {
        let (source, destination) = (self.source_port.to_be_bytes(), self.port.to_be_bytes());
        vec![source[0], source[1], destination[0], destination[1]]
    }
}

/// The way from another node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tunnel {
    /// MAC address of the underlay device: what is for another one does not count as the node's.
    pub(super) device: [u8; 6],
    pub(super) from: Ipv4Addr,
    pub(super) to: Ipv4Addr,
    pub(super) port: u16,
    pub(super) vni: u32,
}

impl Tunnel {
    /// The frame as it arrives on the underlay device, VXLAN (RFC 7348) with the inner one in it.
    pub(super) fn frame(&self, inner: &[u8]) -> Vec<u8> {
        let length = u16::try_from(16 + inner.len()).unwrap_or(u16::MAX).to_be_bytes();
        let [_, high, middle, low] = self.vni.to_be_bytes();
        let mut frame = self.device.to_vec();
        frame.extend([0x02, 0, 0, 0, 0, 1, 0x08, 0x00]);
        frame.extend(ipv4(self.from, self.to, Protocol::Udp.number(), 16 + inner.len()));
        frame.extend(40_000_u16.to_be_bytes());
        frame.extend(self.port.to_be_bytes());
        frame.extend([length[0], length[1], 0, 0, 0x08, 0, 0, 0, high, middle, low, 0]);
        frame.extend(inner);
        frame
    }
}

/// A header for so many bytes of layer 4.
fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, length: usize) -> Vec<u8> {
    let total = u16::try_from(20 + length).unwrap_or(u16::MAX).to_be_bytes();
    let mut ip = vec![0x45, 0, total[0], total[1], 0, 1, 0x40, 0, 64, protocol, 0, 0];
    ip.extend(source.octets());
    ip.extend(destination.octets());
    let sum = checksum(&[&ip]).to_be_bytes();
    ip[10..12].copy_from_slice(&sum);
    ip
}

/// The internet checksum (RFC 1071) over parts of even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum: u32 = 0;
    for pair in parts.iter().flat_map(|part| part.chunks(2)) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    #[test]
    fn frames_are_what_a_stack_sends() {
        for protocol in [Protocol::Icmp, Protocol::Tcp, Protocol::Udp] {
            let probe = Probe {
                source_mac: "02:00:00:00:00:01".parse().unwrap(),
                destination_mac: "02:00:00:00:00:02".parse().unwrap(),
                source: Ipv4Addr::new(10, 0, 1, 10),
                destination: Ipv4Addr::new(10, 0, 2, 20),
                protocol,
                source_port: 40000,
                port: 8080,
            };
            let frame = probe.frame();
            let packet = SlicedPacket::from_ethernet(&frame).unwrap();
            let Some(NetSlice::Ipv4(ip)) = &packet.net else { panic!("{packet:?}") };
            let header = ip.header().to_header();
            assert_eq!(header.calc_header_checksum(), header.header_checksum);
            match packet.transport.unwrap() {
                TransportSlice::Icmpv4(icmp) => {
                    let header = icmp.header();
                    assert_eq!(header.icmp_type.calc_checksum(icmp.payload()), header.checksum);
                }
                TransportSlice::Tcp(tcp) => {
                    assert!(tcp.syn() && !tcp.ack());
                    assert_eq!((tcp.source_port(), tcp.destination_port()), (40000, 8080));
                    assert_eq!(tcp.calc_checksum_ipv4(header.source, header.destination).unwrap(), tcp.checksum());
                }
                TransportSlice::Udp(udp) => {
                    let computed = udp.to_header().calc_checksum_ipv4(&header, &[]).unwrap();
                    assert_eq!((udp.destination_port(), computed), (8080, udp.checksum()));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
