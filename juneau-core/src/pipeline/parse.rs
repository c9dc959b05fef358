//! Parse: what is well formed, and the key.

use super::context::{Parsed, Part, Stop};
use crate::flow::{TCP_ACK, TCP_FIN, TCP_RST, TCP_SYN};
use crate::layout::{Be16, FlowKey, proto};
use crate::packet::{
    Ethernet, ICMP_ECHO, ICMP_ECHO_REPLY, ICMP_PARAMETER_PROBLEM, ICMP_TIME_EXCEEDED, ICMP_UNREACHABLE, IP_ICMP,
    IP_SCTP, IP_TCP, IP_UDP, Icmp, Ipv4, Tcp, Udp, view,
};
use crate::verdict::Reason;

/// The IPv4 header of a frame: addresses and what else does not depend on layer 4. The key's scope is not known yet.
pub(super) fn ipv4(frame: &[u8], gso_size: u32) -> Result<Parsed, Stop> {
    let malformed = Stop::Drop(Reason::Malformed);
    let bytes = frame.get(Ethernet::LENGTH..).unwrap_or_default();
    let Some((ip, _)) = view::<Ipv4>(bytes) else { return Err(malformed) };
    let gso = gso_size != 0;
    let (header, total) = (ip.header_length(), usize::from(ip.total_length.get()));
    if ip.version() != 4 || header < Ipv4::LENGTH || header > bytes.len() {
        return Err(malformed);
    }
    if !gso && (total < header || total > bytes.len()) {
        return Err(malformed);
    }
    if header > Ipv4::LENGTH {
        return Err(Stop::Drop(Reason::IpOptions));
    }
    let fragment = ip.fragment.get();
    let part = if fragment & Ipv4::OFFSET != 0 {
        Part::Later
    } else if fragment & Ipv4::MF != 0 {
        Part::First
    } else {
        Part::Whole
    };
    Ok(Parsed {
        key: FlowKey { source: ip.source, destination: ip.destination, ..FlowKey::default() },
        frame: frame.len(),
        size: if gso { gso_size as usize + Ipv4::LENGTH } else { bytes.len() },
        l4_length: if gso { bytes.len() } else { total } - Ipv4::LENGTH,
        gso,
        part,
        dont_fragment: ip.dont_fragment(),
        id: ip.id,
        protocol: ip.protocol,
        tos: ip.tos,
        ttl: ip.ttl,
        tcp_flags: 0,
        transit: false,
        icmp_error: false,
    })
}

/// The bytes of layer 4, as far as the IP header says that they are.
pub(super) fn layer4<'a>(frame: &'a [u8], parsed: &Parsed) -> &'a [u8] {
    let start = Ethernet::LENGTH + Ipv4::LENGTH;
    let end = frame.len().min(start + parsed.l4_length);
    frame.get(start..end).unwrap_or_default()
}

/// Bytes of SCTP's common header (RFC 9260, 3.1).
const SCTP_LENGTH: usize = 12;

/// Layer 4 of a packet that is no later fragment: its ports, its TCP flags, its part in the size of a segment.
pub(super) fn ports(frame: &[u8], parsed: &mut Parsed) -> Result<(), Stop> {
    let bytes = layer4(frame, parsed);
    let malformed = || Stop::Drop(Reason::Malformed);
    match parsed.protocol {
        IP_TCP => {
            let (tcp, _) = view::<Tcp>(bytes).ok_or_else(malformed)?;
            let header = tcp.header_length();
            if header < Tcp::LENGTH || (parsed.part == Part::Whole && header > parsed.l4_length) {
                return Err(malformed());
            }
            if !tcp_flags_are_sent(tcp.flags) {
                return Err(Stop::Drop(Reason::TcpFlags));
            }
            parsed.tcp_flags = tcp.flags;
            if parsed.gso {
                parsed.size += header;
            }
            set_ports(parsed, tcp.source_port, tcp.destination_port);
        }
        IP_UDP => {
            let (udp, _) = view::<Udp>(bytes).ok_or_else(malformed)?;
            let length = usize::from(udp.length.get());
            if length < Udp::LENGTH || (parsed.part == Part::Whole && !parsed.gso && length > parsed.l4_length) {
                return Err(malformed());
            }
            if parsed.gso {
                parsed.size += Udp::LENGTH;
            }
            set_ports(parsed, udp.source_port, udp.destination_port);
        }
        IP_ICMP => {
            let (icmp, _) = view::<Icmp>(bytes).ok_or_else(malformed)?;
            set_ports(parsed, icmp.id, icmp.id);
            match icmp.kind {
                ICMP_ECHO | ICMP_ECHO_REPLY => {}
                ICMP_UNREACHABLE | ICMP_TIME_EXCEEDED | ICMP_PARAMETER_PROBLEM => {
                    if parsed.part == Part::First {
                        return Err(Stop::Drop(Reason::IcmpQuote));
                    }
                    parsed.icmp_error = true;
                }
                _ => return Err(Stop::Drop(Reason::IcmpType)),
            }
        }
        IP_SCTP => {
            // The common header; its ports lie where UDP's do.
            if bytes.len() < SCTP_LENGTH {
                return Err(malformed());
            }
            let (ports, _) = view::<Udp>(bytes).ok_or_else(malformed)?;
            set_ports(parsed, ports.source_port, ports.destination_port);
        }
        other => set_ports(parsed, Be16::new(u16::from(other)), Be16::new(u16::from(other))),
    }
    Ok(())
}

/// Completes the key: the scope with its bits, and the protocol.
pub(super) const fn set_scope(parsed: &mut Parsed, id: u32, bits: u32) {
    parsed.key.scope = FlowKey::scope(id, bits, proto(parsed.protocol));
}

const fn set_ports(parsed: &mut Parsed, source: Be16, destination: Be16) {
    parsed.key.source_port = source;
    parsed.key.destination_port = destination;
}

/// Whether stacks send such flags: of SYN, FIN, RST at most one, one of these or ACK, and FIN only with ACK.
const fn tcp_flags_are_sent(flags: u8) -> bool {
    let openers = flags & (TCP_SYN | TCP_FIN | TCP_RST);
    let ack = flags & TCP_ACK != 0;
    match openers {
        0 | TCP_FIN => ack,
        TCP_SYN | TCP_RST => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_flags_of_stacks() {
        for flags in 0..=255u8 {
            let core = flags & (TCP_SYN | TCP_FIN | TCP_RST | TCP_ACK);
            let sent = [0x02, 0x12, 0x10, 0x11, 0x04, 0x14].contains(&core);
            assert_eq!(tcp_flags_are_sent(flags), sent, "{flags:#04x}");
        }
    }
}
