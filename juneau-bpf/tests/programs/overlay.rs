//! Hook OVERLAY: what arrives from other nodes.

use juneau_core::layout::*;
use juneau_core::verdict::Reason;

use crate::lab::*;
use crate::packet::*;

/// What the other node sends for a packet of these Pods, and what the receiving Pod shall get.
fn incoming(lab: &Lab, from: &str, to: &str, protocol: u8, l4: Vec<u8>) -> (Vec<u8>, Packet) {
    let receiver = lab.pod(to);
    let mut inner = lab.packet(from, to, protocol, l4);
    // The sending node routed already.
    inner.destination_mac = receiver.mac;
    (lab.outer(receiver.vni).bytes(&inner.bytes()), inner)
}

#[test]
fn a_flow_from_another_node() {
    lab(|lab| {
        let (a, x) = (lab.pod("a"), lab.pod("x"));
        let (packet, inner) = incoming(lab, "x", "a", UDP, udp(2000, 1000, 20));
        for slow in [true, false] {
            let run = lab.receive(&packet);
            run.delivered(a).slow(slow);
            assert_eq!(run.bytes, inner.bytes());
        }
        let key = lab.key(FIRST | SCOPE_OVERLAY, "x", "a", UDP, (2000, 1000));
        let back = lab.key(RED, "a", "x", UDP, (1000, 2000));
        let (forward, reverse) = (lab.flow(&key).unwrap(), lab.flow(&back).unwrap());
        assert_eq!((forward.kind, forward.ifindex, ipv4(forward.vtep)), (1, a.ifindex, OTHER_VTEP));
        assert_eq!((forward.dmac, forward.smac, forward.ttl_decrement), (a.mac, [0; 6], 0));
        assert_eq!((forward.vni, forward.mtu, forward.flags), (FIRST, POD_MTU, FLOW_EMBRYONIC));
        assert_eq!((reverse.kind, ipv4(reverse.vtep), reverse.vni), (2, OTHER_VTEP, FIRST));
        assert_eq!((reverse.dmac, reverse.smac, reverse.ttl_decrement), (x.mac, a.mac, 0));
        assert_eq!(reverse.outer_port.get(), lab.seeds.outer_port(&back));
        assert_eq!((forward.peer, reverse.peer), (back, key));
        assert_eq!(lab.quota(RED_INDEX), (1, 1));
        // The answer needs no decision.
        let answer = lab.packet("a", "x", UDP, udp(1000, 2000, 9)).bytes();
        lab.send(a, &answer).encapsulated(FIRST).slow(false);
        assert_eq!((lab.quota(RED_INDEX), lab.flows()), ((1, 0), 2));
    });
}

#[test]
fn the_answer_to_our_flow() {
    lab(|lab| {
        let a = lab.pod("a");
        lab.send(a, &lab.packet("a", "y", TCP, tcp(1000, 80, SYN, 0)).bytes()).encapsulated(SECOND);
        let (packet, inner) = incoming(lab, "y", "a", TCP, tcp(80, 1000, SYN | ACK, 0));
        let run = lab.receive(&packet);
        run.delivered(a).slow(false);
        assert_eq!(run.bytes, inner.bytes());
        assert_eq!(lab.quota(RED_INDEX), (1, 0));
        let keys = [lab.key(RED, "a", "y", TCP, (1000, 80)), lab.key(FIRST | SCOPE_OVERLAY, "y", "a", TCP, (80, 1000))];
        assert_eq!(keys.map(|key| lab.flow(&key).unwrap().flags), [2 | 2 << 8, 0x12 | 2 << 8 | FLOW_REPLY]);

        // The other Pod moves to another node: the next answer comes from there.
        let mut moved = lab.outer(FIRST);
        moved.source = THIRD_VTEP;
        lab.receive(&moved.bytes(&inner.bytes())).delivered(a).slow(true);
        let record = lab.flow(&keys[1]).unwrap();
        assert_eq!((ipv4(record.vtep), record.flags & FLOW_REPLY), (THIRD_VTEP, FLOW_REPLY));
        lab.receive(&moved.bytes(&inner.bytes())).delivered(a).slow(false);
        assert_eq!((lab.quota(RED_INDEX), lab.flows()), ((1, 0), 2));
    });
}

#[test]
fn an_answer_without_a_way_back_finds_it_later() {
    lab(|lab| {
        let a = lab.pod("a");
        let x = EndpointKey { vpc: RED, address: be32(lab.pod("x").address) };
        let record: Endpoint = lab.get("jn_endpoints", &x).unwrap();
        lab.remove("jn_endpoints", &x);
        let (packet, _) = incoming(lab, "x", "a", UDP, udp(2000, 1000, 20));
        lab.receive(&packet).delivered(a).slow(true);
        let back = lab.key(RED, "a", "x", UDP, (1000, 2000));
        let unresolved = lab.flow(&back).unwrap();
        assert_eq!((unresolved.kind, unresolved.mtu, unresolved.dmac), (0, 0, [0; 6]));
        let answer = lab.packet("a", "x", UDP, udp(1000, 2000, 9)).bytes();
        lab.send(a, &answer).answered(Reason::NoEndpoint);
        lab.put("jn_endpoints", &x, &record);
        lab.send(a, &answer).encapsulated(FIRST).slow(true);
        lab.send(a, &answer).encapsulated(FIRST).slow(false);
        let resolved = lab.flow(&back).unwrap();
        assert_eq!((resolved.kind, resolved.flags, resolved.peer), (2, FLOW_REPLY, unresolved.peer));
        assert_eq!((lab.quota(RED_INDEX), lab.flows()), ((1, 0), 2));
    });
}

#[test]
fn what_is_not_ours_passes() {
    lab(|lab| {
        let (good, inner) = incoming(lab, "x", "a", UDP, udp(2000, 1000, 20));
        let inner = inner.bytes();
        let outer = lab.outer(FIRST);
        lab.receive(&Outer { port: 4790, ..outer.clone() }.bytes(&inner)).passed();
        lab.receive(&Outer { destination: OTHER_VTEP, ..outer.clone() }.bytes(&inner)).passed();
        // The stack reassembles, and takes care of options.
        lab.receive(&Outer { fragment: 0x2000, ..outer.clone() }.bytes(&inner)).passed();
        lab.receive(&Outer { fragment: 7, ..outer.clone() }.bytes(&inner)).passed();
        for (offset, value) in [(12, 0x86), (13, 0x06), (14, 0x46), (14, 0x65), (23, 6), (23, 1)] {
            let mut bytes = good.clone();
            bytes[offset] = value;
            lab.receive(&bytes).passed();
        }
        lab.receive(&good[..41]).passed();
        lab.receive(&good).delivered(lab.pod("a"));
    });
}

#[test]
fn outer_headers() {
    lab(|lab| {
        let (good, inner) = incoming(lab, "x", "a", UDP, udp(2000, 1000, 20));
        let inner = inner.bytes();
        let outer = lab.outer(FIRST);
        let header = Reason::VxlanHeader;
        for flags in [0, 0x88, 0x0c, 0x09, 0x18] {
            lab.receive(&Outer { flags, ..outer.clone() }.bytes(&inner)).dropped(header);
        }
        lab.receive(&Outer { mac: [2, 0, 0, 0, 0, 0x12], ..outer.clone() }.bytes(&inner)).dropped(header);
        for length in 42..64 {
            lab.receive(&good[..length]).dropped(header);
        }
        // Lengths that do not belong together.
        for (offset, change) in [(17, 1), (17, 0xff), (39, 1), (39, 0xff)] {
            let mut bytes = good.clone();
            bytes[offset] = bytes[offset].wrapping_add(change);
            lab.receive(&bytes).dropped(header);
        }
        lab.receive(&outer.bytes(&inner[..13])).dropped(header);
        let mut stranger = outer.clone();
        stranger.source = [198, 51, 100, 7].into();
        lab.receive(&stranger.bytes(&inner)).dropped(Reason::VtepUnknown);
        assert_eq!((lab.flows(), lab.quota(RED_INDEX)), (0, (0, 0)));
        lab.receive(&good).delivered(lab.pod("a"));
        // On a hit the record knows the source.
        lab.receive(&stranger.bytes(&inner)).dropped(Reason::VtepUnknown);
        lab.receive(&Outer { vni: 999, ..outer.clone() }.bytes(&inner)).dropped(Reason::VniUnknown);
    });
}

#[test]
fn inner_frames() {
    lab(|lab| {
        let (good, inner) = incoming(lab, "x", "a", UDP, udp(2000, 1000, 20));
        let outer = lab.outer(FIRST);
        let mut stranger = outer.clone();
        stranger.source = [198, 51, 100, 7].into();
        let cases = [
            (Packet { ethertype: 0x8100, ..inner.clone() }.bytes(), Reason::Vlan),
            (Packet { ethertype: 0x88a8, ..inner.clone() }.bytes(), Reason::Vlan),
            (Packet { ethertype: 0x86dd, ..inner.clone() }.bytes(), Reason::Ipv6),
            (arp(lab.pod("x").at(), lab.pod("a").address), Reason::Ethertype),
            (Packet { destination: [224, 0, 0, 1].into(), ..inner.clone() }.bytes(), Reason::Destination),
            (Packet { protocol: TCP, l4: tcp(1, 2, SYN | FIN, 0), ..inner.clone() }.bytes(), Reason::TcpFlags),
            (Packet { protocol: ICMP, l4: icmp(13, 0, [0; 4], &[0; 8]), ..inner.clone() }.bytes(), Reason::IcmpType),
            (inner.bytes()[..40].to_vec(), Reason::Malformed),
            (inner.bytes()[..14].to_vec(), Reason::Malformed),
        ];
        for (bytes, reason) in cases {
            lab.receive(&outer.bytes(&bytes)).dropped(reason);
            lab.receive(&stranger.bytes(&bytes)).dropped(Reason::VtepUnknown);
        }
        lab.receive(&good).delivered(lab.pod("a"));
    });
}

#[test]
fn delivery_is_by_vni_and_mac() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        let (good, inner) = incoming(lab, "x", "a", UDP, udp(2000, 1000, 20));
        let refuse = |vni, packet: &Packet| {
            lab.receive(&lab.outer(vni).bytes(&packet.bytes())).dropped(Reason::OverlayDestination);
        };
        refuse(FIRST, &Packet { destination_mac: [2, 0, 0, 0, 0, 0x77], ..inner.clone() });
        refuse(FIRST, &Packet { destination_mac: b.mac, ..inner.clone() });
        refuse(FIRST, &Packet { destination: b.address, ..inner.clone() });
        refuse(SECOND, &inner);
        refuse(BLUE_FIRST, &inner);
        assert_eq!(lab.flows(), 0);
        lab.receive(&good).delivered(a).slow(true);
        // A record does not lead a frame to another MAC than the one it is for.
        refuse(FIRST, &Packet { destination_mac: b.mac, ..inner.clone() });
        lab.receive(&good).delivered(a).slow(false);
        // The other tenant's Pod with that address is reached by its own VNI only.
        let blue = lab.pod("blue-a");
        let packet = Packet { destination_mac: blue.mac, ..inner };
        lab.receive(&lab.outer(BLUE_FIRST).bytes(&packet.bytes())).delivered(blue);
    });
}

#[test]
fn congestion_marks() {
    lab(|lab| {
        let a = lab.pod("a");
        for (outer, inner, expected) in [
            (0, 0, Some(0)),
            (1, 0, Some(0)),
            (2, 1, Some(1)),
            (3, 0, None),
            (3, 1, Some(3)),
            (3, 2, Some(3)),
            (3, 3, Some(3)),
            (0xfc | 2, 0x10, Some(0x10)),
            (0xfc | 3, 0xb8 | 2, Some(0xb8 | 3)),
        ] {
            for slow in [true, false] {
                let (_, packet) = incoming(lab, "x", "a", UDP, udp(2000 + outer as u16, 1000 + inner as u16, 20));
                let packet = Packet { tos: inner, ..packet };
                let run = lab.receive(&Outer { tos: outer, ..lab.outer(FIRST) }.bytes(&packet.bytes()));
                match expected {
                    Some(tos) => {
                        run.delivered(a).slow(slow);
                        assert_eq!(run.bytes[15], tos);
                        assert!(header_valid(&run.bytes[14..]));
                    }
                    None => run.dropped(Reason::Ecn),
                }
            }
        }
    });
}

#[test]
fn policy_of_the_receiver() {
    lab(|lab| {
        let a = lab.pod("a");
        let (packet, _) = incoming(lab, "x", "a", TCP, tcp(2000, 80, SYN, 0));
        lab.rule(IDENTITY, 1, TCP, 80, POLICY_DENY);
        lab.receive(&packet).dropped(Reason::PolicyIngress);
        // The sender's policy is the sender's node's affair.
        lab.remove("jn_policies", &lab.rule_key(IDENTITY_ANY, 0, 0, 0));
        lab.remove("jn_policies", &lab.rule_key(IDENTITY, 1, TCP, 80));
        lab.receive(&packet).delivered(a);
        // Answers are part of what was allowed.
        lab.send(a, &lab.packet("a", "x", TCP, tcp(80, 2000, SYN | ACK, 0)).bytes()).encapsulated(FIRST);
        lab.send(a, &lab.packet("a", "x", TCP, tcp(81, 2000, SYN, 0)).bytes()).dropped(Reason::PolicyEgress);
        let mut endpoint = lab.endpoint(a);
        endpoint.flags &= !EP_POLICY_READY;
        lab.put_endpoint(a, &endpoint);
        let (other, _) = incoming(lab, "x", "a", TCP, tcp(2001, 80, SYN, 0));
        lab.receive(&other).dropped(Reason::PolicyNotReady);
    });
}

#[test]
fn the_underlays_path_mtu() {
    lab(|lab| {
        let a = lab.pod("a");
        lab.set_hot(|hot| hot.clock = 100);
        let packet = |payload| lab.packet("a", "x", UDP, udp(1, 2, payload));
        let fits = packet(1372).bytes();
        lab.send(a, &fits).encapsulated(FIRST);
        let slot = vtep_generation(be32(OTHER_VTEP));
        let told = |mtu: u16, destination: std::net::Ipv4Addr, port: u16| {
            let mut quoted = Packet::new(UDP, ([0; 6], VTEP), ([0; 6], destination), udp(40000, port, 0));
            quoted.ttl = 60;
            let mut quote = quoted.ip();
            quote.extend(&quoted.l4);
            let [high, low] = mtu.to_be_bytes();
            let error = icmp(3, 4, [0, 0, high, low], &quote);
            Packet::new(ICMP, ([2; 6], NEXT_HOP), (UNDERLAY_MAC, VTEP), error).bytes()
        };
        // Not about us, not lower: passed, nothing learned.
        lab.receive(&told(1400, [198, 51, 100, 7].into(), 4789)).passed();
        lab.receive(&told(1400, OTHER_VTEP, 53)).passed();
        lab.receive(&told(1500, OTHER_VTEP, 4789)).passed();
        lab.receive(&told(9000, OTHER_VTEP, 4789)).passed();
        let learned = || lab.get::<_, Pmtu>("jn_pmtu", &be32(OTHER_VTEP));
        assert_eq!((learned(), lab.generation(slot)), (None, 0));

        let run = lab.receive(&told(1400, OTHER_VTEP, 4789));
        assert_eq!((run.code, run.reason), (UNSPEC, Reason::PmtuUpdate));
        assert_eq!(learned(), Some(Pmtu { mtu: 1400, expires: 100 + 585 }));
        assert_eq!((lab.generation(slot), lab.hot().epoch), (2, 1));
        lab.send(a, &fits).answered(Reason::FragmentationNeeded);
        lab.send(a, &packet(1322).bytes()).encapsulated(FIRST).slow(true);
        lab.send(a, &packet(1323).bytes()).answered(Reason::FragmentationNeeded);
        // The same again moves its end only.
        lab.set_hot(|hot| hot.clock = 150);
        lab.receive(&told(1400, OTHER_VTEP, 4789)).passed();
        assert_eq!((learned().unwrap().expires, lab.generation(slot)), (150 + 585, 2));
        // Below the floor.
        let run = lab.receive(&told(68, OTHER_VTEP, 4789));
        assert_eq!((run.reason, learned().unwrap().mtu), (Reason::PmtuUpdate, 626));
        // It ends; a decision finds the old way.
        lab.set_hot(|hot| hot.clock = 150 + 585);
        lab.advance(slot, 2);
        lab.send(a, &fits).encapsulated(FIRST).slow(true);
    });
}
