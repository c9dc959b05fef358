//! Fragments, in both directions.

use juneau_core::layout::*;
use juneau_core::verdict::Reason;

use crate::lab::*;
use crate::packet::*;

const MF: u16 = 0x2000;

/// The fragments of a UDP datagram: 64 bytes of layer 4 each.
fn fragments(lab: &Lab, from: &str, to: &str, id: u16) -> [Packet; 3] {
    let l4 = udp(1000, 2000, 180);
    let part = |offset: usize, more: u16| Packet {
        id,
        fragment: (offset / 8) as u16 | more,
        l4: l4[offset..l4.len().min(offset + 64)].to_vec(),
        ..lab.packet(from, to, UDP, Vec::new())
    };
    [part(0, MF), part(64, MF), part(128, 0)]
}

#[test]
fn later_fragments_follow_the_first() {
    lab(|lab| {
        let (a, c) = (lab.pod("a"), lab.pod("c"));
        let [first, middle, last] = fragments(lab, "a", "c", 7);
        lab.send(a, &middle.bytes()).dropped(Reason::FragmentNoFirst);
        for slow in [true, false] {
            lab.send(a, &first.bytes()).delivered(c).slow(slow);
            for later in [&middle, &last] {
                let run = lab.send(a, &later.bytes());
                run.delivered(c).slow(false);
                let routed = Packet { ttl: 63, destination_mac: c.mac, source_mac: c.gateway_mac(), ..later.clone() };
                assert_eq!(run.bytes, routed.bytes());
            }
        }
        // One flow, whose ports are the first fragment's.
        assert_eq!(lab.flows(), 2);
        assert!(lab.flow(&lab.key(RED, "a", "c", UDP, (1000, 2000))).is_some());
        // Another datagram, protocol or pair of addresses is none of it.
        lab.send(a, &Packet { id: 8, ..middle.clone() }.bytes()).dropped(Reason::FragmentNoFirst);
        lab.send(a, &Packet { protocol: TCP, ..middle.clone() }.bytes()).dropped(Reason::FragmentNoFirst);
        let b = lab.pod("b");
        lab.send(a, &Packet { destination: b.address, ..middle.clone() }.bytes()).dropped(Reason::FragmentNoFirst);
        // Nor is the other tenant's with the same addresses.
        let blue = lab.pod("blue-a");
        let theirs = Packet { source_mac: blue.mac, ..middle };
        lab.send(blue, &theirs.bytes()).dropped(Reason::FragmentNoFirst);
    });
}

#[test]
fn a_slot_ends_after_fifteen_seconds() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        let [first, middle, _] = fragments(lab, "a", "b", 7);
        lab.set_hot(|hot| hot.clock = 1000);
        lab.send(a, &first.bytes()).delivered(b);
        // 15 s at 250 jiffies a second are 14 stamps and a rest.
        lab.set_hot(|hot| hot.clock = 1014);
        lab.send(a, &middle.bytes()).delivered(b);
        lab.set_hot(|hot| hot.clock = 1015);
        lab.send(a, &middle.bytes()).dropped(Reason::FragmentNoFirst);
    });
}

#[test]
fn later_fragments_open_nothing() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        let [first, middle, _] = fragments(lab, "a", "b", 7);
        lab.send(a, &first.bytes()).delivered(b);
        // A stale record is decided anew.
        lab.advance(GEN_NODE, 2);
        lab.send(a, &middle.bytes()).delivered(b).slow(true);
        lab.send(a, &middle.bytes()).delivered(b).slow(false);
        lab.remove("jn_flows", &lab.key(RED, "a", "b", UDP, (1000, 2000)));
        lab.send(a, &middle.bytes()).dropped(Reason::FragmentNoFirst);
    });
}

#[test]
fn layer_four_of_fragments() {
    lab(|lab| {
        let a = lab.pod("a");
        let part = |protocol, fragment, l4| Packet { fragment, ..lab.packet("a", "b", protocol, l4) }.bytes();
        // What a first fragment needs: all of TCP's fixed header.
        lab.send(a, &part(TCP, MF, tcp(1, 2, SYN, 0)[..16].to_vec())).dropped(Reason::Malformed);
        lab.send(a, &part(TCP, MF, tcp(1, 2, SYN | FIN, 0))).dropped(Reason::TcpFlags);
        lab.send(a, &part(UDP, MF, vec![0; 7])).dropped(Reason::Malformed);
        // Its options and its length may lie in later ones.
        let mut options = tcp(1, 2, SYN, 4);
        options[12] = 0xf0;
        lab.send(a, &part(TCP, MF, options)).delivered(lab.pod("b"));
        let mut long = udp(3, 4, 16);
        long[4] = 9;
        lab.send(a, &part(UDP, MF, long)).delivered(lab.pod("b"));
        lab.send(a, &part(ICMP, MF, echo(9))).delivered(lab.pod("b"));
        lab.send(a, &part(ICMP, MF, icmp(3, 1, [0; 4], &[0; 40]))).dropped(Reason::IcmpQuote);
        // A later fragment's bytes are no header, however short.
        lab.send(a, &part(ICMP, 0x00ff, vec![3])).delivered(lab.pod("b"));
    });
}

#[test]
fn refused_fragments_leave_no_slot() {
    lab(|lab| {
        let a = lab.pod("a");
        let [first, middle, _] = fragments(lab, "a", "b", 7);
        lab.rule(IDENTITY_ANY, 0, 0, 0, POLICY_DENY);
        lab.send(a, &first.bytes()).dropped(Reason::PolicyEgress);
        assert_eq!(libbpf_rs::MapCore::keys(lab.map("jn_fragments")).count(), 0);
        lab.send(a, &middle.bytes()).dropped(Reason::FragmentNoFirst);
    });
}

#[test]
fn a_full_map() {
    variant(Variant { fragments: 1, ..Variant::default() }, |lab| {
        let a = lab.pod("a");
        let mut ends = std::collections::BTreeSet::new();
        for id in 0..30 {
            let [first, ..] = fragments(lab, "a", "b", id);
            let run = lab.send(a, &first.bytes());
            ends.insert(run.reason);
            if run.reason == Reason::Ok {
                run.delivered(lab.pod("b"));
            } else {
                run.dropped(Reason::FragmentMapFull);
            }
        }
        assert_eq!(ends.into_iter().collect::<Vec<_>>(), [Reason::Ok, Reason::FragmentMapFull]);
    });
}

#[test]
fn to_and_from_another_node() {
    lab(|lab| {
        let a = lab.pod("a");
        for packet in fragments(lab, "a", "x", 7) {
            lab.send(a, &packet.bytes()).encapsulated(FIRST);
        }
        let receive = |packet: &Packet| {
            let inner = Packet { destination_mac: a.mac, ..packet.clone() };
            let run = lab.receive(&lab.outer(FIRST).bytes(&inner.bytes()));
            (run, inner.bytes())
        };
        let [first, middle, last] = fragments(lab, "x", "a", 9);
        receive(&middle).0.dropped(Reason::FragmentNoFirst);
        for packet in [first, middle.clone(), last] {
            let (run, inner) = receive(&packet);
            run.delivered(a);
            assert_eq!(run.bytes, inner);
        }
        let mut stranger = lab.outer(FIRST);
        stranger.source = [198, 51, 100, 7].into();
        let inner = Packet { destination_mac: a.mac, ..middle };
        lab.receive(&stranger.bytes(&inner.bytes())).dropped(Reason::VtepUnknown);
    });
}
