//! Flows between Pods of this node and to other nodes: records, hits, generations, quotas, bytes.

use juneau_core::layout::*;
use juneau_core::verdict::Reason;

use crate::lab::*;
use crate::packet::*;

const EMBRYONIC: u32 = FLOW_EMBRYONIC;

#[test]
fn same_subnet() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        lab.set_hot(|hot| hot.clock = 1234);
        let packet = lab.packet("a", "b", UDP, udp(1000, 2000, 20)).bytes();
        let run = lab.send(a, &packet);
        run.delivered(b).slow(true);
        assert_eq!(run.bytes, packet, "nothing is routed");

        let keys = [lab.key(RED, "a", "b", UDP, (1000, 2000)), lab.key(RED, "b", "a", UDP, (2000, 1000))];
        let [forward, reverse] = keys.map(|key| lab.flow(&key).unwrap());
        assert_eq!((forward.peer, reverse.peer), (keys[1], keys[0]));
        assert_eq!((forward.flags, reverse.flags), (EMBRYONIC, FLOW_REPLY | EMBRYONIC));
        for (flow, key, to, from) in [(forward, keys[0], b, a), (reverse, keys[1], a, b)] {
            assert_eq!((flow.kind, flow.ifindex, flow.vtep.get()), (EGRESS_PEER, to.ifindex, 0));
            assert_eq!((flow.dmac, flow.smac, flow.ttl_decrement), (to.mac, from.mac, 0));
            assert_eq!((flow.vni, flow.mtu, flow.outer_port.get()), (FIRST, POD_MTU, 0));
            assert_eq!((flow.stamp, u32::from(flow.vpc_index)), (1234, RED_INDEX));
            assert_eq!(flow.tag >> 32, u64::from(lab.seeds.tag_hash(&key)));
            assert_eq!((flow.tag, flow.tag as u32), (flow.tag_last, flow.tag_low));
            let slots = [
                endpoint_generation(RED, be32(a.address)),
                endpoint_generation(RED, be32(b.address)),
                table_generation(TABLE),
                GEN_NO_VTEP,
            ];
            assert_eq!(flow.generation, slots);
        }
        assert_eq!(lab.quota(RED_INDEX), (1, 1));

        lab.send(a, &packet).delivered(b).slow(false);
        let answer = lab.packet("b", "a", UDP, udp(2000, 1000, 20)).bytes();
        lab.send(b, &answer).delivered(a).slow(false);
        assert_eq!(lab.quota(RED_INDEX), (1, 0), "answered");
        let [forward, reverse] = keys.map(|key| lab.flow(&key).unwrap());
        assert_eq!((forward.flags, reverse.flags), (0, FLOW_REPLY));
        lab.send(b, &answer).delivered(a).slow(false);
        assert_eq!((lab.quota(RED_INDEX), lab.flows()), ((1, 0), 2));

        lab.set_hot(|hot| hot.clock = 1240);
        lab.send(a, &packet).delivered(b);
        let [forward, reverse] = keys.map(|key| lab.flow(&key).unwrap());
        assert_eq!((forward.stamp, reverse.stamp), (1240, 1234));
    });
}

#[test]
fn between_subnets_the_packet_is_routed() {
    lab(|lab| {
        let (a, c) = (lab.pod("a"), lab.pod("c"));
        for ttl in [2, 64, 255] {
            let packet = Packet { ttl, ..lab.packet("a", "c", TCP, tcp(1000, 80, SYN, 0)) };
            let run = lab.send(a, &packet.bytes());
            run.delivered(c);
            let routed = Packet { ttl: ttl - 1, destination_mac: c.mac, source_mac: c.gateway_mac(), ..packet.clone() };
            assert_eq!(run.bytes, routed.bytes());
        }
        let reverse = lab.flow(&lab.key(RED, "c", "a", TCP, (80, 1000))).unwrap();
        assert_eq!((reverse.dmac, reverse.smac, reverse.ttl_decrement), (a.mac, a.gateway_mac(), 1));
        let answer = lab.packet("c", "a", TCP, tcp(80, 1000, SYN | ACK, 0));
        let run = lab.send(c, &answer.bytes());
        run.delivered(a);
        let routed = Packet { ttl: 63, destination_mac: a.mac, source_mac: a.gateway_mac(), ..answer };
        assert_eq!(run.bytes, routed.bytes());
        assert!(header_valid(&run.bytes[14..]));
    });
}

#[test]
fn every_header_checksum_survives_routing() {
    lab(|lab| {
        let (a, c) = (lab.pod("a"), lab.pod("c"));
        for id in 0..400_u16 {
            let packet = Packet { id: id.wrapping_mul(977), tos: id as u8, ..lab.packet("a", "c", UDP, udp(1, 2, 9)) };
            let run = lab.send(a, &packet.bytes());
            run.delivered(c);
            assert!(header_valid(&run.bytes[14..]), "{packet:?}");
        }
    });
}

/// What `Outer` looks like when we send it.
#[track_caller]
fn assert_outer(lab: &Lab, bytes: &[u8], inner: &Packet, vni: u32, key: &FlowKey) {
    let inner = inner.bytes();
    assert_eq!(bytes.len(), inner.len() + 50);
    let ip = &bytes[14..34];
    assert!(header_valid(ip));
    assert_eq!(bytes[12..14], [8, 0]);
    assert_eq!((ip[0], ip[1], ip[8], ip[9]), (0x45, inner[15], 64, 17));
    assert_eq!(ip[2..4], ((inner.len() + 36) as u16).to_be_bytes());
    assert_eq!(ip[4..8], [0, 0, 0x40, 0]);
    assert_eq!((&ip[12..16], &ip[16..20]), (&VTEP.octets()[..], &OTHER_VTEP.octets()[..]));
    let udp = &bytes[34..42];
    assert_eq!(udp[..2], lab.seeds.outer_port(key).to_be_bytes());
    assert!(udp[0] >= 0x80);
    assert_eq!((&udp[2..4], &udp[6..8]), (&4789_u16.to_be_bytes()[..], &[0, 0][..]));
    assert_eq!(udp[4..6], ((inner.len() + 16) as u16).to_be_bytes());
    assert_eq!(bytes[42..50], [8, 0, 0, 0, 0, 0, vni as u8, 0]);
    assert_eq!(bytes[50..], inner);
}

#[test]
fn another_node_same_subnet() {
    lab(|lab| {
        let (a, x) = (lab.pod("a"), lab.pod("x"));
        let packet = Packet { tos: 0xb9, ..lab.packet("a", "x", UDP, udp(1000, 2000, 20)) };
        let key = lab.key(RED, "a", "x", UDP, (1000, 2000));
        for slow in [true, false] {
            let run = lab.send(a, &packet.bytes());
            run.encapsulated(FIRST).slow(slow);
            assert_outer(lab, &run.bytes, &packet, FIRST, &key);
        }
        let back = lab.key(FIRST | SCOPE_OVERLAY, "x", "a", UDP, (2000, 1000));
        let (forward, reverse) = (lab.flow(&key).unwrap(), lab.flow(&back).unwrap());
        assert_eq!((forward.kind, ipv4(Be32::from_bytes(forward.ifindex.to_ne_bytes()))), (2, NEXT_HOP));
        assert_eq!((ipv4(forward.vtep), forward.vni, forward.mtu), (OTHER_VTEP, FIRST, POD_MTU));
        assert_eq!((forward.dmac, forward.smac, forward.ttl_decrement), (x.mac, a.mac, 0));
        assert_eq!(forward.outer_port.get(), lab.seeds.outer_port(&key));
        assert_eq!(forward.generation[3], vtep_generation(be32(OTHER_VTEP)));
        assert_eq!((reverse.kind, reverse.ifindex, ipv4(reverse.vtep)), (1, a.ifindex, OTHER_VTEP));
        assert_eq!((reverse.dmac, reverse.smac, reverse.vni), (a.mac, [0; 6], FIRST));
        assert_eq!((forward.peer, reverse.peer), (back, key));
    });
}

#[test]
fn another_node_other_subnet() {
    lab(|lab| {
        let (a, y) = (lab.pod("a"), lab.pod("y"));
        let packet = lab.packet("a", "y", TCP, tcp(1000, 80, SYN, 0));
        let run = lab.send(a, &packet.bytes());
        run.encapsulated(SECOND);
        let routed = Packet { ttl: 63, destination_mac: y.mac, source_mac: y.gateway_mac(), ..packet };
        assert_outer(lab, &run.bytes, &routed, SECOND, &lab.key(RED, "a", "y", TCP, (1000, 80)));
        // The answer arrives with the VNI of the sender's Subnet.
        assert!(lab.flow(&lab.key(FIRST | SCOPE_OVERLAY, "y", "a", TCP, (80, 1000))).is_some());
    });
}

#[test]
fn the_vxlan_device_takes_what_may_be_cut() {
    lab(|lab| {
        let a = lab.pod("a");
        let long = |fragment| Packet { fragment, ..lab.packet("a", "x", UDP, udp(1, 2, 1380)) };
        lab.send(a, &long(0).bytes()).by_device(FIRST).slow(true);
        assert_eq!(lab.devices(DEVICE_MTU), 1);
        lab.send(a, &long(0).bytes()).by_device(FIRST).slow(false);
        assert_eq!(lab.devices(DEVICE_MTU), 2);
        lab.send(a, &long(0x4000).bytes()).answered(Reason::FragmentationNeeded);
        let fits = lab.packet("a", "x", UDP, udp(1, 2, 1372)).bytes();
        assert_eq!(fits.len() - 14, usize::from(POD_MTU));
        lab.send(a, &fits).encapsulated(FIRST);
        // In the Pod of this node nobody cuts.
        let near = |fragment| Packet { fragment, ..lab.packet("a", "b", UDP, udp(1, 2, 1380)) };
        lab.send(a, &near(0).bytes()).answered(Reason::FragmentationNeeded);
        assert_eq!((lab.devices(DEVICE_MTU), lab.devices(DEVICE_REFUSED)), (2, 0));
    });
}

#[test]
fn segments_count_not_the_packet() {
    lab(|lab| {
        let a = lab.pod("a");
        let packet = lab.packet("a", "b", TCP, tcp(1, 2, ACK, 3000)).bytes();
        lab.run("jn_pod", a.ifindex, 1360, &packet).delivered(lab.pod("b"));
        lab.run("jn_pod", a.ifindex, 1361, &packet).answered(Reason::FragmentationNeeded);
        // The length field of such a packet is not believed.
        let mut large = packet.clone();
        large[16..18].copy_from_slice(&[0, 1]);
        lab.run("jn_pod", a.ifindex, 1360, &large).delivered(lab.pod("b"));
        lab.send(a, &large).dropped(Reason::Malformed);
    });
}

#[test]
fn tcp_flags_reach_both_records() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        let keys = [lab.key(RED, "a", "b", TCP, (1000, 80)), lab.key(RED, "b", "a", TCP, (80, 1000))];
        let flags = || keys.map(|key| lab.flow(&key).unwrap().flags);
        let from_a = |flags| lab.send(a, &lab.packet("a", "b", TCP, tcp(1000, 80, flags, 0)).bytes());
        let from_b = |flags| lab.send(b, &lab.packet("b", "a", TCP, tcp(80, 1000, flags, 0)).bytes());
        from_a(SYN).delivered(b);
        assert_eq!(flags(), [2 | EMBRYONIC, 2 << 8 | FLOW_REPLY | EMBRYONIC]);
        from_b(SYN | ACK).delivered(a);
        assert_eq!(flags(), [2 | 2 << 8, 0x12 | 2 << 8 | FLOW_REPLY]);
        from_a(ACK | PSH).delivered(b);
        assert_eq!(flags(), [0x1a | 2 << 8, 0x12 | 2 << 8 | FLOW_REPLY]);
        from_a(FIN | ACK).delivered(b);
        assert_eq!(flags(), [0x1b | 2 << 8, 0x12 | 3 << 8 | FLOW_REPLY]);
        from_b(RST).delivered(a);
        assert_eq!(flags(), [0x1b | 6 << 8, 0x16 | 3 << 8 | FLOW_REPLY]);
        assert_eq!(lab.quota(RED_INDEX), (1, 0));

        // The ports are used again: a new flow in the old one's place.
        from_a(SYN).delivered(b).slow(true);
        assert_eq!(flags(), [2 | EMBRYONIC, 2 << 8 | FLOW_REPLY | EMBRYONIC]);
        assert_eq!(lab.quota(RED_INDEX), (1, 1));
        // From the other side, too, before anything was answered: it is the opener then.
        from_b(RST | ACK).delivered(a);
        assert_eq!(lab.quota(RED_INDEX), (1, 0));
        from_b(SYN).delivered(a).slow(true);
        assert_eq!(flags(), [2 << 8 | FLOW_REPLY | EMBRYONIC, 2 | EMBRYONIC]);
        assert_eq!((lab.quota(RED_INDEX), lab.flows()), ((1, 1), 2));
        // A SYN again, with nothing closed, is a hit.
        from_b(SYN).delivered(a).slow(false);
    });
}

#[test]
fn tcp_in_the_middle_is_not_embryonic() {
    lab(|lab| {
        lab.send(lab.pod("a"), &lab.packet("a", "b", TCP, tcp(1, 2, ACK, 5)).bytes()).delivered(lab.pod("b"));
        assert_eq!(lab.quota(RED_INDEX), (1, 0));
        assert_eq!(lab.flow(&lab.key(RED, "a", "b", TCP, (1, 2))).unwrap().flags, 0x10);
    });
}

#[test]
fn generations() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        let packet = lab.packet("a", "b", UDP, udp(1, 2, 3)).bytes();
        let key = lab.key(RED, "a", "b", UDP, (1, 2));
        lab.send(a, &packet).delivered(b).slow(true);
        let slots = [
            endpoint_generation(RED, be32(a.address)),
            endpoint_generation(RED, be32(b.address)),
            table_generation(TABLE),
            GEN_NO_VTEP,
            GEN_NODE,
        ];
        for slot in slots {
            lab.send(a, &packet).delivered(b).slow(false);
            lab.advance(slot, 2);
            lab.send(a, &packet).delivered(b).slow(true);
            lab.send(a, &packet).delivered(b).slow(false);
            // In the midst of a change nothing is kept.
            lab.advance(slot, 1);
            lab.send(a, &packet).delivered(b).slow(true);
            lab.send(a, &packet).delivered(b).slow(true);
            lab.advance(slot, 1);
            lab.send(a, &packet).delivered(b).slow(true);
            lab.send(a, &packet).delivered(b).slow(false);
        }
        // Another's generation: the record is stamped and stays.
        let before = lab.flow(&key).unwrap();
        lab.advance(endpoint_generation(RED, be32(lab.pod("c").address)), 2);
        lab.send(a, &packet).delivered(b).slow(false);
        let after = lab.flow(&key).unwrap();
        assert_eq!((after.epoch, after.tag), (lab.hot().epoch, before.tag));
        assert_eq!(after.epoch, before.epoch + 1);
        assert_eq!((lab.quota(RED_INDEX), lab.flows()), ((1, 1), 2), "nothing was counted twice");

        // What was decided holds until its generation moves, and no longer.
        lab.rule(IDENTITY_ANY, 0, 0, 0, POLICY_DENY);
        lab.send(a, &packet).delivered(b).slow(false);
        lab.advance(slots[0], 2);
        lab.send(a, &packet).dropped(Reason::PolicyEgress);
        lab.rule(IDENTITY_ANY, 0, 0, 0, POLICY_ALLOW);
        lab.advance(slots[0], 2);
        lab.send(a, &packet).delivered(b).slow(true);
    });
}

#[test]
fn a_record_of_another_key_is_a_miss() {
    lab(|lab| {
        let (a, b, c) = (lab.pod("a"), lab.pod("b"), lab.pod("c"));
        let packet = lab.packet("a", "b", UDP, udp(1, 2, 3)).bytes();
        lab.send(a, &packet).delivered(b);
        lab.send(a, &lab.packet("a", "c", UDP, udp(1, 2, 3)).bytes()).delivered(c);
        let key = lab.key(RED, "a", "b", UDP, (1, 2));
        let own = lab.flow(&key).unwrap();
        let foreign = lab.flow(&lab.key(RED, "a", "c", UDP, (1, 2))).unwrap();
        // As a reader sees an element that is being filled for another key: from the front, and whole.
        for mixed in [
            foreign,
            Flow { tag: foreign.tag, ..own },
            Flow { tag_last: own.tag_last, ..foreign },
            Flow { tag: own.tag, ..foreign },
            Flow { tag: own.tag + 1, ..own },
        ] {
            lab.put("jn_flows", &key, &mixed);
            lab.send(a, &packet).delivered(b).slow(true);
            lab.put("jn_flows", &key, &own);
            lab.send(a, &packet).delivered(b).slow(false);
        }
    });
}

#[test]
fn quotas() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        let limits = |flow_limit, embryonic_limit| {
            lab.put("jn_vpcs", &RED_INDEX, &Vpc { vpc: RED, flow_limit, embryonic_limit, icmp_limit: 5 });
        };
        let open = |port| lab.send(a, &lab.packet("a", "b", UDP, udp(port, 2, 3)).bytes());
        limits(3, 2);
        open(1).delivered(b);
        open(2).delivered(b);
        open(3).dropped(Reason::QuotaEmbryonic);
        assert_eq!((lab.quota(RED_INDEX), lab.flows()), ((2, 2), 4));
        open(2).delivered(b).slow(false);
        lab.send(b, &lab.packet("b", "a", UDP, udp(2, 1, 3)).bytes()).delivered(a);
        open(3).delivered(b);
        lab.send(b, &lab.packet("b", "a", UDP, udp(2, 2, 3)).bytes()).delivered(a);
        open(4).dropped(Reason::QuotaFlows);
        assert_eq!((lab.quota(RED_INDEX), lab.flows()), ((3, 1), 6));
        // TCP in the middle takes no embryonic place.
        limits(4, 0);
        lab.send(a, &lab.packet("a", "b", TCP, tcp(9, 2, SYN, 0)).bytes()).dropped(Reason::QuotaEmbryonic);
        lab.send(a, &lab.packet("a", "b", TCP, tcp(9, 2, ACK, 0)).bytes()).delivered(b);
        // The other tenant notices nothing.
        let blue = lab.packet("blue-a", "blue-x", UDP, udp(1, 2, 3));
        lab.send(lab.pod("blue-a"), &blue.bytes()).encapsulated(BLUE_FIRST);
    });
}

#[test]
fn a_full_table_refuses_and_keeps_nothing() {
    variant(Variant { flows: 8, ..Variant::default() }, |lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        let mut delivered = 0;
        let mut refused = 0;
        for port in 0..40 {
            let run = lab.send(a, &lab.packet("a", "b", UDP, udp(port, 2, 3)).bytes());
            if run.reason == Reason::Ok {
                run.delivered(b);
                delivered += 1;
            } else {
                run.dropped(Reason::FlowMapFull);
                refused += 1;
            }
            assert_eq!((lab.quota(RED_INDEX), lab.flows()), ((delivered, delivered), 2 * delivered as usize));
        }
        assert!(delivered >= 4 && refused >= 1, "{delivered} delivered");
    });
}

#[test]
fn a_reverse_key_of_another_flow_is_left_alone() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        let (forward, reverse) = (lab.key(RED, "a", "b", UDP, (1, 2)), lab.key(RED, "b", "a", UDP, (2, 1)));
        let packet = lab.packet("a", "b", UDP, udp(1, 2, 3)).bytes();
        lab.send(a, &packet).delivered(b);
        // Half a pair of ours is completed again.
        lab.remove("jn_flows", &forward);
        lab.send(a, &packet).delivered(b).slow(true);
        assert_eq!(lab.flow(&forward).unwrap().peer, reverse);
        // One whose peer is another is not touched.
        let mut other = lab.flow(&reverse).unwrap();
        other.peer.source_port = 999.into();
        lab.put("jn_flows", &reverse, &other);
        lab.remove("jn_flows", &forward);
        let before = lab.quota(RED_INDEX);
        lab.send(a, &packet).delivered(b).slow(true);
        let single = lab.flow(&forward).unwrap();
        assert_eq!((single.flags, single.peer), (FLOW_SINGLE, forward));
        assert_eq!(lab.flow(&reverse).unwrap(), other);
        assert_eq!(lab.quota(RED_INDEX), (before.0 + 1, before.1));
    });
}

#[test]
fn policy() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        let mut port = 0;
        let mut open = |protocol| {
            port += 1;
            let l4 = if protocol == TCP { tcp(port, 80, SYN, 0) } else { udp(port, 80, 3) };
            lab.send(a, &lab.packet("a", "b", protocol, l4).bytes())
        };
        let any = |direction| lab.rule_key(IDENTITY_ANY, direction, 0, 0);
        open(TCP).delivered(b);
        for (direction, reason) in [(0, Reason::PolicyEgress), (1, Reason::PolicyIngress)] {
            lab.remove("jn_policies", &any(direction));
            open(TCP).dropped(reason);
            // Each probe, and that the more exact one decides.
            lab.rule(IDENTITY_ANY, direction, TCP, 80, POLICY_ALLOW);
            open(TCP).delivered(b);
            open(UDP).dropped(reason);
            lab.rule(IDENTITY, direction, 0, 0, POLICY_DENY);
            open(TCP).dropped(reason);
            lab.rule(IDENTITY, direction, TCP, 80, POLICY_ALLOW);
            open(TCP).delivered(b);
            open(UDP).dropped(reason);
            for rule in [(IDENTITY_ANY, TCP, 80), (IDENTITY, 0, 0), (IDENTITY, TCP, 80)] {
                lab.remove("jn_policies", &lab.rule_key(rule.0, direction, rule.1, rule.2));
            }
            lab.rule(IDENTITY_ANY, direction, 0, 0, POLICY_ALLOW);
        }
        // The other way needs no rule of its own: policy is about who opened.
        lab.rule(IDENTITY, 0, TCP, 7777, POLICY_DENY);
        lab.send(a, &lab.packet("a", "b", TCP, tcp(7777, 80, SYN, 0)).bytes()).delivered(b);
        lab.advance(GEN_NODE, 2);
        lab.send(b, &lab.packet("b", "a", TCP, tcp(80, 7777, SYN | ACK, 0)).bytes()).delivered(a).slow(true);
        lab.send(b, &lab.packet("b", "a", TCP, tcp(81, 7777, SYN, 0)).bytes()).dropped(Reason::PolicyEgress);
    });
}

#[test]
fn what_policy_refuses_leaves_no_record() {
    lab(|lab| {
        lab.remove("jn_policies", &lab.rule_key(IDENTITY_ANY, 1, 0, 0));
        let packet = lab.packet("a", "b", UDP, udp(1, 2, 3)).bytes();
        lab.send(lab.pod("a"), &packet).dropped(Reason::PolicyIngress);
        assert_eq!((lab.flows(), lab.quota(RED_INDEX)), (0, (0, 0)));
    });
}
