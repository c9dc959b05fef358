//! Answers: a Pod is told why its packet ends here, by ICMP, or that its TCP connection is gone, by RST.

use super::context::{Parsed, Part, Run, Stop, fault};
use super::{NodeState, Outcome, TableRead, parse};
use crate::flow::{FlowTable, TCP_ACK, TCP_RST, TCP_SYN};
use crate::layout::{Be16, Be32, Interface, QUOTE_L4_MAX};
use crate::packet::{
    Checksum, ETHERTYPE_IPV4, Ethernet, ICMP_TIME_EXCEEDED, ICMP_UNREACHABLE, IP_ICMP, IP_SCTP, IP_TCP, IP_UDP, Icmp,
    Ipv4, Tcp, view,
};
use crate::verdict::Reason;
use zerocopy::IntoBytes;

/// CS6 (RFC 2474): what routers say about the network.
const NETWORK_CONTROL: u8 = 0xc0;

/// Codes of "destination unreachable" (RFC 792, RFC 1812).
const PORT: u8 = 3;
const ADMINISTRATIVELY_PROHIBITED: u8 = 13;

/// What a Pod is told.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    /// An ICMP error about its packet.
    Icmp { kind: u8, code: u8, mtu: u16 },
    /// The end of its TCP connection.
    Reset,
}

impl Answer {
    /// The answer to a packet that is refused; `None` when the sender is not told.
    pub(super) const fn to(parsed: &Parsed, reason: Reason, mtu: u16, settled: bool) -> Option<Self> {
        let (kind, code) = match reason {
            Reason::NoRoute => (ICMP_UNREACHABLE, 0),
            Reason::RouteUnreachable | Reason::NoEndpoint => (ICMP_UNREACHABLE, 1),
            Reason::FragmentationNeeded => (ICMP_UNREACHABLE, 4),
            Reason::TtlExceeded => (ICMP_TIME_EXCEEDED, 0),
            Reason::PolicyEgress | Reason::PolicyIngress => {
                // A connection that is over is worth an answer, one that may not begin is not; and nothing ends a
                // connection while it is not settled what is allowed.
                let goes_on = parsed.protocol == IP_TCP && parsed.tcp_flags & (TCP_SYN | TCP_RST) == 0;
                let whole = matches!(parsed.part, Part::Whole);
                return if goes_on && whole && settled { Some(Self::Reset) } else { None };
            }
            Reason::ServicePort | Reason::ServiceEmpty | Reason::ServiceGone | Reason::NatPorts => {
                let code = if matches!(reason, Reason::NatPorts) { ADMINISTRATIVELY_PROHIBITED } else { PORT };
                return match parsed.protocol {
                    // What answers a reset with a reset never ends.
                    IP_TCP if parsed.tcp_flags & TCP_RST != 0 => None,
                    IP_TCP if matches!(parsed.part, Part::Whole) => Some(Self::Reset),
                    IP_UDP | IP_SCTP => Some(Self::Icmp { kind: ICMP_UNREACHABLE, code, mtu: 0 }),
                    _ => None,
                };
            }
            _ => return None,
        };
        Some(Self::Icmp { kind, code, mtu })
    }
}

impl<T: TableRead, F: FlowTable, S: NodeState> Run<'_, T, F, S> {
    /// Answers, if an answer may leave (RFC 1812, 4.3.2.7), or drops.
    pub(super) fn reject(
        &mut self,
        interface: &Interface,
        parsed: &Parsed,
        reason: Reason,
        answer: Answer,
    ) -> Result<Outcome, Stop> {
        let drop = Stop::Drop(reason);
        let to_group = self.packet.frame.first().is_none_or(|first| first & 1 != 0);
        if parsed.part == Part::Later || to_group {
            return Err(drop);
        }
        let limits = self.tables.vpc(interface.vpc_index).map_err(fault("VPC"))?.unwrap_or_default();
        let allowed = self.flows.take_icmp(interface.vpc_index, limits.icmp_limit, self.now);
        if !allowed.map_err(fault("budget of answers"))? {
            return Err(drop);
        }
        let frame = match answer {
            Answer::Icmp { kind, code, mtu } => {
                let icmp = Icmp { kind, code, sequence: Be16::new(mtu), ..Icmp::default() };
                self.icmp_error(interface, parsed, icmp)
            }
            Answer::Reset => self.reset(interface, parsed),
        };
        Ok(self.answer(reason, frame.ok_or(drop)?))
    }

    fn icmp_error(&self, interface: &Interface, parsed: &Parsed, mut icmp: Icmp) -> Option<Vec<u8>> {
        let (_, rest) = view::<Ethernet>(self.packet.frame)?;
        let header = rest.get(..Ipv4::LENGTH)?;
        let l4 = parse::layer4(self.packet.frame, parsed);
        let l4 = l4.get(..l4.len().min(QUOTE_L4_MAX as usize))?;
        let ip = Ipv4 { tos: NETWORK_CONTROL, protocol: IP_ICMP, source: interface.gateway, ..Ipv4::default() };
        let sum = Checksum::new().with(icmp.as_bytes()).with(header).with(l4).finish();
        icmp.checksum = Be16::new(sum);
        Some(answer(interface, parsed, ip, &[icmp.as_bytes(), header, l4].concat()))
    }

    /// In the receiver's name (RFC 9293, 3.5.2): what has an ACK says by it where its sender waits; of what has none all is
    /// acknowledged.
    fn reset(&self, interface: &Interface, parsed: &Parsed) -> Option<Vec<u8>> {
        let (segment, _) = view::<Tcp>(parse::layer4(self.packet.frame, parsed))?;
        let mut tcp = Tcp {
            source_port: parsed.key.destination_port,
            destination_port: parsed.key.source_port,
            offset: 5 << 4,
            ..Tcp::default()
        };
        if parsed.tcp_flags & TCP_ACK != 0 {
            tcp.sequence = segment.acknowledgement;
            tcp.flags = TCP_RST;
        } else {
            // A SYN and what it carries: data beside a SYN is not looked at, as by a host that does not listen.
            tcp.acknowledgement = Be32::new(segment.sequence.get().wrapping_add(1));
            tcp.flags = TCP_RST | TCP_ACK;
        }
        let source = parsed.key.destination;
        let ip = Ipv4 { fragment: Be16::new(Ipv4::DF), protocol: IP_TCP, source, ..Ipv4::default() };
        let pseudo = [Be16::new(u16::from(IP_TCP)), Be16::new(Tcp::LENGTH as u16)];
        let ends: [Be32; 2] = [source, parsed.key.source];
        let sum = Checksum::new().with(ends.as_bytes()).with(pseudo.as_bytes()).with(tcp.as_bytes()).finish();
        tcp.checksum = Be16::new(sum);
        Some(answer(interface, parsed, ip, tcp.as_bytes()))
    }
}

/// A frame from the gateway's MAC address to the sender.
fn answer(interface: &Interface, parsed: &Parsed, mut ip: Ipv4, content: &[u8]) -> Vec<u8> {
    let ethernet =
        Ethernet { destination: interface.mac, source: interface.gateway_mac, ethertype: Be16::new(ETHERTYPE_IPV4) };
    ip.version_length = 0x45;
    ip.total_length = Be16::new((Ipv4::LENGTH + content.len()) as u16);
    ip.ttl = 64;
    ip.destination = parsed.key.source;
    ip.set_checksum();
    [ethernet.as_bytes(), ip.as_bytes(), content].concat()
}
