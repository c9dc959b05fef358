//! What belongs to the Pods' own stacks: the data path changes no byte of it and judges by none.

use juneau_core::layout::{FLOW_REPLY, be32};

use crate::lab::*;
use crate::packet::*;

/// Delivered bytes behind Ethernet, IPv4 and, from node to node, what was put in front of them.
fn transport(bytes: &[u8], encapsulated: bool) -> &[u8] {
    &bytes[34 + if encapsulated { 50 } else { 0 }..]
}

/// In IPv4 a UDP checksum of 0 says that there is none (RFC 768), and a sum of 0 is sent as 0xffff.
#[test]
fn a_udp_checksum_stays_as_it_is() {
    lab(|lab| {
        let a = lab.pod("a");
        for (port, checksum) in [(1, 0_u16), (2, 0xffff), (3, 0x1234)] {
            let mut datagram = udp(port, 80, 9);
            datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
            // Same Subnet, routed, another node, both; each decided, and then by the record.
            for (to, encapsulated) in [("b", false), ("c", false), ("x", true), ("y", true)] {
                for slow in [true, false] {
                    let run = lab.send(a, &lab.packet("a", to, UDP, datagram.clone()).bytes());
                    assert_eq!(
                        (run.verdict.slow != 0, transport(&run.bytes, encapsulated)),
                        (slow, &datagram[..]),
                        "{to}"
                    );
                }
            }
            let mut answer = udp(80, port, 9);
            answer[6..8].copy_from_slice(&checksum.to_be_bytes());
            for (from, scope) in [("x", FIRST), ("y", FIRST)] {
                let inner = lab.packet(from, "a", UDP, answer.clone());
                let inner = Packet { destination_mac: a.mac, ..inner };
                let run = lab.receive(&lab.outer(scope).bytes(&inner.bytes()));
                run.delivered(a);
                assert_eq!(transport(&run.bytes, false), answer);
            }
        }
    });
}

/// A segment far behind the window is the business of the stack that gets it (RFC 9293, section 3.10.7.4).
#[test]
fn a_segment_outside_the_window_is_treated_like_its_neighbours() {
    lab(|lab| {
        let (a, c) = (lab.pod("a"), lab.pod("c"));
        let numbered = |source, destination, sequence: u32, acknowledged: u32, payload| {
            let mut segment = tcp(source, destination, ACK, payload);
            segment[4..8].copy_from_slice(&sequence.to_be_bytes());
            segment[8..12].copy_from_slice(&acknowledged.to_be_bytes());
            segment
        };
        for (name, encapsulated) in [("c", false), ("y", true)] {
            lab.send(a, &lab.packet("a", name, TCP, tcp(1000, 80, SYN, 0)).bytes()).slow(true);
            let records = || {
                let key = lab.key(RED, "a", name, TCP, (1000, 80));
                (lab.flow(&key).unwrap(), lab.flow(&lab.flow(&key).unwrap().peer).unwrap())
            };
            let established = |lab: &Lab| lab.send(a, &lab.packet("a", name, TCP, numbered(1000, 80, 5, 7, 3)).bytes());
            if name == "c" {
                lab.send(c, &lab.packet("c", "a", TCP, tcp(80, 1000, SYN | ACK, 0)).bytes()).delivered(a);
            }
            established(lab).slow(false);
            let before = records();
            for sequence in [5_u32.wrapping_sub(1 << 31), 5 + (1 << 31), 0, u32::MAX] {
                let segment = numbered(1000, 80, sequence, sequence, 3);
                let run = lab.send(a, &lab.packet("a", name, TCP, segment.clone()).bytes());
                run.slow(false);
                let neighbour = established(lab);
                // All but the numbers: addresses, TTL, MACs, tunnel.
                let front = neighbour.bytes.len() - 23;
                assert_eq!(run.bytes[..front], neighbour.bytes[..front]);
                assert_eq!(transport(&run.bytes, encapsulated), segment);
            }
            assert_eq!(records(), before);
        }
        // From the server, as its peer's connection saw it reported.
        let stale = lab.packet("c", "a", TCP, numbered(80, 1000, 1_u32.wrapping_sub(1 << 31), 2, 3));
        let run = lab.send(c, &stale.bytes());
        run.delivered(a).slow(false);
        assert_eq!(run.bytes[26..30], c.address.octets(), "{:?}", be32(c.address));
        assert_eq!(lab.flow(&lab.key(RED, "c", "a", TCP, (80, 1000))).unwrap().flags & FLOW_REPLY, FLOW_REPLY);
    });
}
