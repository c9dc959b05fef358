//! Translation: a packet of a translated flow leaves as the flow's peer key turned round.

use super::context::{Parsed, Part, Run};
use crate::layout::{Be16, Flow, FlowKey, NAT_PORT_FIRST, NAT_TRIES, REWRITE_DESTINATION_PORT, REWRITE_SOURCE_PORT};
use crate::packet::{Ethernet, IP_TCP, IP_UDP, Icmp, Ipv4, Tcp, Udp, adjusted, view_mut};

/// Ports that may be tried for the answers of a flow. Other protocols keep the port that they have: a checksum of SCTP
/// covers the whole packet, and an echo is known by its identifier.
pub(super) const fn tries(protocol: u8) -> u32 {
    match protocol {
        IP_TCP | IP_UDP => NAT_TRIES,
        _ => 1,
    }
}

impl<T, F, S> Run<'_, T, F, S> {
    /// The port to try next for the answers under `first`: its own, then others by a stride of its hash, since close
    /// ports are taken together.
    pub(super) fn port_to_try(&self, first: &FlowKey, n: u32) -> Be16 {
        if n == 0 {
            return first.destination_port;
        }
        let hash = self.config.seeds.tag_hash(first);
        let offset = (hash & 0xffff).wrapping_add(n.wrapping_mul(hash >> 16 | 1));
        Be16::new((NAT_PORT_FIRST + offset % (0x1_0000 - NAT_PORT_FIRST)) as u16)
    }
}

/// A checksum field after a difference; UDP's may be absent, and is never written as absent.
fn adjust(checksum: &mut Be16, difference: u16, optional: bool) {
    let before = u16::from_ne_bytes(checksum.to_bytes());
    if difference == 0 || (optional && before == 0) {
        return;
    }
    let after = match adjusted(before, difference) {
        0 if optional => 0xffff,
        after => after,
    };
    *checksum = Be16::from_bytes(after.to_ne_bytes());
}

/// Rewrites an ICMP error about a translated flow: it leaves as the flow's answers do, and quotes what its receiver
/// sent. A router between the two ends keeps its own address. A quoted checksum of layer 4 stays as it is: what is cut short
/// has none that could be checked.
fn rewrite_error(frame: &mut [u8], flow: &Flow) {
    let out = flow.peer.reversed();
    let Some((_, rest)) = view_mut::<Ethernet>(frame) else { return };
    let Some((ip, rest)) = view_mut::<Ipv4>(rest) else { return };
    let Some((icmp, rest)) = view_mut::<Icmp>(rest) else { return };
    let Some((quoted, rest)) = view_mut::<Ipv4>(rest) else { return };
    if ip.source == quoted.destination {
        ip.source = out.source;
    }
    ip.destination = out.destination;
    ip.set_checksum();
    // The quoted header's sum stays what it was, and with it the sum of the whole but for the ports.
    (quoted.source, quoted.destination) = (out.destination, out.source);
    adjust(&mut quoted.checksum, flow.address_difference, false);
    if flow.rewrite & (REWRITE_SOURCE_PORT | REWRITE_DESTINATION_PORT) != 0
        && let Some((ports, _)) = view_mut::<Udp>(rest)
    {
        (ports.source_port, ports.destination_port) = (out.destination_port, out.source_port);
        adjust(&mut icmp.checksum, flow.port_difference, false);
    }
}

/// Rewrites a frame of a translated flow, or an ICMP error about one. TTL and MTU were judged before.
pub(super) fn rewrite(frame: &mut [u8], parsed: &Parsed, flow: &Flow) {
    if parsed.icmp_error {
        return rewrite_error(frame, flow);
    }
    let out = flow.peer.reversed();
    let Some((_, rest)) = view_mut::<Ethernet>(frame) else { return };
    let Some((ip, rest)) = view_mut::<Ipv4>(rest) else { return };
    (ip.source, ip.destination) = (out.source, out.destination);
    adjust(&mut ip.checksum, flow.address_difference, false);
    if parsed.part == Part::Later {
        return;
    }
    let optional = parsed.protocol == IP_UDP;
    let checksum = match parsed.protocol {
        IP_TCP => view_mut::<Tcp>(rest).map(|(tcp, _)| &mut tcp.checksum),
        IP_UDP => view_mut::<Udp>(rest).map(|(udp, _)| &mut udp.checksum),
        _ => None,
    };
    if let Some(checksum) = checksum {
        adjust(checksum, flow.address_difference, optional);
        adjust(checksum, flow.port_difference, optional);
    }
    if flow.rewrite & (REWRITE_SOURCE_PORT | REWRITE_DESTINATION_PORT) != 0
        && let Some((udp, _)) = view_mut::<Udp>(rest)
    {
        (udp.source_port, udp.destination_port) = (out.source_port, out.destination_port);
    }
}
