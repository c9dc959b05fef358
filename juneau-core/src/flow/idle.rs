//! When a connection is idle: one table, used by the table in memory and by the sweep of the kernel's alike.

use super::{TCP_ACK, TCP_FIN, TCP_RST};
use crate::layout::{
    FLOW_EMBRYONIC, FLOW_REPLY, FLOW_SINGLE, Flow, FlowKey, PROTO_ICMP, PROTO_TCP, REWRITE_DESTINATION_PORT,
    REWRITE_SOURCE_PORT,
};
use crate::time::Now;

/// What a connection does, as far as its entry tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Activity {
    /// TCP without an answer.
    Opening,
    /// TCP that was answered.
    Established,
    /// TCP with FIN of one side.
    HalfClosed,
    /// TCP with FIN of both sides, or RST.
    Closing,
    /// The same of a connection whose port was translated: the other end remembers it (TIME-WAIT, RFC 9293, 3.6.1), so
    /// that no other connection may have the port soon.
    Resting,
    /// No answer yet, other protocols.
    Unanswered,
    /// Answered, other protocols.
    Answered,
    /// ICMP echo.
    Echo,
}

impl Activity {
    /// Seconds without a packet after which the connection is idle.
    #[must_use]
    pub const fn seconds(self) -> u32 {
        match self {
            Self::Established => 2 * 3600,
            Self::HalfClosed => 120,
            Self::Closing => 10,
            Self::Resting => 60,
            Self::Answered => 180,
            Self::Opening | Self::Unanswered | Self::Echo => 30,
        }
    }
}

/// Whether the port of the connection's opener was translated.
const fn took_port(flow: &Flow) -> bool {
    let own = if flow.has(FLOW_REPLY) { REWRITE_DESTINATION_PORT } else { REWRITE_SOURCE_PORT };
    flow.rewrite & own != 0
}

/// What the connection of an entry does. Both its entries tell the same, but for an answer that is just arriving.
#[must_use]
pub const fn activity(key: &FlowKey, flow: &Flow) -> Activity {
    let own = flow.flags as u8;
    let peer = (flow.flags >> 8) as u8;
    let unanswered = flow.has(FLOW_EMBRYONIC);
    match key.protocol() {
        PROTO_ICMP => Activity::Echo,
        PROTO_TCP => {
            if flow.saw(TCP_RST) || own & peer & TCP_FIN != 0 {
                if took_port(flow) { Activity::Resting } else { Activity::Closing }
            } else if flow.saw(TCP_FIN) {
                Activity::HalfClosed
            } else if unanswered || flow.has(FLOW_SINGLE) && own & TCP_ACK == 0 {
                Activity::Opening
            } else {
                Activity::Established
            }
        }
        // What passes through a router shows one direction; nobody can tell whether it was answered.
        _ if unanswered || flow.has(FLOW_SINGLE) => Activity::Unanswered,
        _ => Activity::Answered,
    }
}

/// Units of the stamp after which the connection of an entry is idle.
#[must_use]
pub const fn idle_limit(key: &FlowKey, flow: &Flow, now: Now) -> u32 {
    now.seconds(activity(key, flow).seconds())
}

/// Whether the connection of an entry is idle; `peer` is the entry of the other direction, whose later stamp counts.
#[must_use]
pub fn is_idle(key: &FlowKey, flow: &Flow, peer: Option<&Flow>, now: Now) -> bool {
    let quiet = peer.map_or(u32::MAX, |peer| now.since(peer.stamp)).min(now.since(flow.stamp));
    quiet > idle_limit(key, flow, now)
}

#[cfg(test)]
mod tests {
    use super::super::TCP_SYN;
    use super::*;
    use crate::layout::{PROTO_OTHER, PROTO_UDP, REWRITE_DESTINATION, REWRITE_SOURCE};

    const NOW: Now = Now { stamp: 100_000, hz: 256 };

    fn limit(protocol: u32, flags: u32) -> u32 {
        let key = FlowKey { scope: FlowKey::scope(5, 0, protocol), ..FlowKey::default() };
        idle_limit(&key, &Flow { flags, ..Flow::default() }, NOW)
    }

    #[test]
    fn each_state_has_its_limit() {
        let (fin, syn, rst, ack) = (u32::from(TCP_FIN), u32::from(TCP_SYN), u32::from(TCP_RST), u32::from(TCP_ACK));
        assert_eq!(limit(PROTO_TCP, syn | FLOW_EMBRYONIC), 30);
        assert_eq!(limit(PROTO_TCP, syn | ack | syn << 8), 7200);
        assert_eq!(limit(PROTO_TCP, ack | fin), 120);
        assert_eq!(limit(PROTO_TCP, ack | fin << 8), 120);
        assert_eq!(limit(PROTO_TCP, ack | fin | fin << 8), 10);
        assert_eq!(limit(PROTO_TCP, ack | rst << 8), 10);
        assert_eq!(limit(PROTO_TCP, rst | FLOW_EMBRYONIC), 10);
        assert_eq!(limit(PROTO_TCP, syn | FLOW_SINGLE), 30);
        assert_eq!(limit(PROTO_TCP, syn | ack | FLOW_SINGLE), 7200);
        assert_eq!(limit(PROTO_UDP, FLOW_EMBRYONIC), 30);
        assert_eq!(limit(PROTO_UDP, 0), 180);
        assert_eq!(limit(PROTO_UDP, FLOW_SINGLE), 30);
        assert_eq!(limit(PROTO_OTHER, 0), 180);
        assert_eq!(limit(PROTO_ICMP, 0), 30);
    }

    #[test]
    fn a_port_that_was_given_rests() {
        let key = FlowKey { scope: FlowKey::scope(5, 0, PROTO_TCP), ..FlowKey::default() };
        let limit = |flags, rewrite| idle_limit(&key, &Flow { flags, rewrite, ..Flow::default() }, NOW);
        let closed = u32::from(TCP_RST | TCP_ACK);
        let service = REWRITE_SOURCE | REWRITE_DESTINATION;
        for (flags, port, target) in [
            (closed, REWRITE_SOURCE_PORT, REWRITE_DESTINATION_PORT),
            (closed | FLOW_REPLY, REWRITE_DESTINATION_PORT, REWRITE_SOURCE_PORT),
        ] {
            assert_eq!(limit(flags, service | port), 60);
            assert_eq!(limit(flags, service | port | target), 60);
            assert_eq!(limit(flags, service | target), 10, "the Service's port is nobody's to give");
            assert_eq!(limit(flags & !u32::from(TCP_RST), service | port), 7200);
        }
    }

    #[test]
    fn the_later_stamp_of_the_pair_counts() {
        let key = FlowKey { scope: FlowKey::scope(5, 0, PROTO_UDP), ..FlowKey::default() };
        let at = |stamp| Flow { stamp, ..Flow::default() };
        let old = NOW.stamp - 181;
        assert!(!is_idle(&key, &at(NOW.stamp - 180), None, NOW));
        assert!(is_idle(&key, &at(old), None, NOW));
        assert!(!is_idle(&key, &at(old), Some(&at(NOW.stamp - 1)), NOW));
        assert!(is_idle(&key, &at(old), Some(&at(old)), NOW));
    }
}
