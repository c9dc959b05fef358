//! Flow state: what a connection leaves, and when a record is decided again.

use crate::common::{NOW, Net, assert_answer, assert_drop, assert_peer, frame};
use juneau_core::flow::{FlowRead, TCP_ACK, TCP_FIN, TCP_RST, TCP_SYN};
use juneau_core::layout::{
    Be16, EGRESS_ENCAP, EGRESS_PEER, EGRESS_UNRESOLVED, EndpointKey, FLOW_EMBRYONIC, FLOW_REPLY, FLOW_SINGLE, Flow,
    FlowKey, GEN_NO_VTEP, IDENTITY_ANY, INGRESS, POLICY_ALLOW, Policy, PolicyKey, RouteKey, SCOPE_OVERLAY, be32,
    endpoint_generation, proto, table_generation, vtep_generation,
};
use juneau_core::packet::IP_TCP;
use juneau_core::pipeline::Generations;
use juneau_core::tables::{Diff, Tables};
use juneau_core::testkit::packets::{Layer4, data, fin, syn, syn_ack, udp};
use juneau_core::testkit::topology::{self, Pod, vtep};
use juneau_core::verdict::Reason;
use std::net::Ipv4Addr;

const A: Pod = Pod::new(0, 1, 10);
const B: Pod = Pod::new(0, 1, 11);
const C: Pod = Pod::new(0, 2, 20);

fn key(id: u32, bits: u32, from: Pod, to: Pod, ports: (u16, u16)) -> FlowKey {
    FlowKey {
        scope: FlowKey::scope(id, bits, proto(IP_TCP)),
        source: be32(from.address()),
        destination: be32(to.address()),
        source_port: Be16::new(ports.0),
        destination_port: Be16::new(ports.1),
    }
}

fn get(net: &Net, node: usize, key: &FlowKey) -> Flow {
    net.0[node].flows.lookup(key).unwrap().expect("a record")
}

fn counts(net: &Net, node: usize) -> (i64, i64) {
    let state = net.0[node].flows.vpc_state(0).unwrap();
    (state.flows, state.embryonic)
}

fn apply(net: &mut Net, node: usize, change: impl FnOnce(&mut Tables)) {
    let current = net.0[node].tables.content().clone();
    let mut wanted = current.clone();
    change(&mut wanted);
    net.0[node].apply(&Diff::between(&current, &wanted)).unwrap();
}

fn deny_ingress(tables: &mut Tables) {
    let key =
        PolicyKey { identity: A.identity(), policy: 1, peer: IDENTITY_ANY, direction: INGRESS, ..PolicyKey::default() };
    tables.policies.remove(&key);
}

#[test]
fn records_of_a_connection_on_one_node() {
    let mut net = Net::new();
    assert_peer(&net.send(A, B.address(), syn(1000, 80)), B);
    let forward_key = key(A.vpc(), 0, A, B, (1000, 80));
    let forward = get(&net, 0, &forward_key);
    let reverse = get(&net, 0, &forward_key.reversed());
    assert_eq!(counts(&net, 0), (1, 1));
    assert_eq!(forward.flags, u32::from(TCP_SYN) | FLOW_EMBRYONIC);
    assert_eq!(reverse.flags, u32::from(TCP_SYN) << 8 | FLOW_REPLY | FLOW_EMBRYONIC);
    assert_eq!((forward.peer, reverse.peer), (forward_key.reversed(), forward_key));
    assert_eq!((forward.kind, forward.ifindex, forward.mtu), (EGRESS_PEER, B.ifindex(), topology::MTU));
    assert_eq!((reverse.kind, reverse.ifindex, reverse.vni), (EGRESS_PEER, A.ifindex(), A.vni()));
    assert_eq!((forward.dmac, forward.smac), (B.mac(), A.mac()));
    assert_eq!((reverse.dmac, reverse.smac), (A.mac(), B.mac()));
    assert_eq!((forward.stamp, forward.vpc_index, forward.ttl_decrement), (NOW.stamp, 0, 0));
    let slots = [
        endpoint_generation(A.vpc(), be32(A.address())),
        endpoint_generation(A.vpc(), be32(B.address())),
        table_generation(A.table()),
        GEN_NO_VTEP,
    ];
    assert_eq!((forward.generation, reverse.generation), (slots, slots));

    assert_peer(&net.send(B, A.address(), syn_ack(80, 1000)), A);
    assert_eq!(counts(&net, 0), (1, 0), "the answer ends the embryonic state");
    assert!(!get(&net, 0, &forward_key).has(FLOW_EMBRYONIC));
    let reverse = get(&net, 0, &forward_key.reversed());
    assert_eq!(reverse.flags, u32::from(TCP_SYN) << 8 | u32::from(TCP_SYN | TCP_ACK) | FLOW_REPLY);
    assert!(get(&net, 0, &forward_key).has(u32::from(TCP_SYN) << 8), "the peer is told");
}

#[test]
fn records_of_a_connection_between_nodes() {
    let mut net = Net::new();
    assert_peer(&net.send(A, C.address(), syn(1000, 80)), C);

    let forward = get(&net, 0, &key(A.vpc(), 0, A, C, (1000, 80)));
    assert_eq!((forward.kind, forward.vtep, forward.vni), (EGRESS_ENCAP, be32(vtep(1)), C.vni()));
    assert_eq!(forward.ifindex, u32::from_ne_bytes(vtep(1).octets()), "the next hop");
    assert_eq!((forward.ttl_decrement, forward.smac), (1, C.gateway_mac()));
    assert_eq!(forward.generation[3], vtep_generation(be32(vtep(1))));
    let answer_key = key(A.vni(), SCOPE_OVERLAY, C, A, (80, 1000));
    assert_eq!(forward.peer, answer_key);
    let reverse = get(&net, 0, &answer_key);
    assert_eq!((reverse.kind, reverse.ifindex, reverse.vtep), (EGRESS_PEER, A.ifindex(), be32(vtep(1))));
    assert_eq!((reverse.dmac, reverse.smac, reverse.ttl_decrement), (A.mac(), [0; 6], 0));

    let receiver = get(&net, 1, &key(C.vni(), SCOPE_OVERLAY, A, C, (1000, 80)));
    assert_eq!((receiver.kind, receiver.ifindex, receiver.vtep), (EGRESS_PEER, C.ifindex(), be32(vtep(0))));
    let way_back = get(&net, 1, &key(C.vpc(), 0, C, A, (80, 1000)));
    assert_eq!((way_back.kind, way_back.vtep, way_back.vni), (EGRESS_ENCAP, be32(vtep(0)), A.vni()));
    assert_eq!((way_back.dmac, way_back.smac), (A.mac(), A.gateway_mac()));
    assert!(way_back.outer_port.get() >= 0x8000);

    assert_eq!((counts(&net, 0), counts(&net, 1)), ((1, 1), (1, 1)));
    assert_peer(&net.send(C, A.address(), syn_ack(80, 1000)), A);
    assert_eq!((counts(&net, 0), counts(&net, 1)), ((1, 0), (1, 0)));
    let hit = net.send(A, C.address(), data(1000, 80, 10));
    assert!(!hit.verdict.slow);
}

#[test]
fn an_answer_needs_no_rule_of_its_own() {
    for peer in [B, C] {
        let mut net = Net::new();
        // Nobody may send to A.
        let own = Pod { host: A.host, ..A };
        for node in 0..2 {
            apply(&mut net, node, |tables| {
                let endpoint = tables.endpoints.get_mut(&EndpointKey { vpc: own.vpc(), address: be32(own.address()) });
                endpoint.unwrap().identity = 77;
                if let Some(interface) = tables.interfaces.get_mut(&own.ifindex()) {
                    interface.identity = 77;
                }
                let egress = PolicyKey { identity: 77, policy: 1, peer: IDENTITY_ANY, ..PolicyKey::default() };
                tables.policies.insert(egress, Policy { action: POLICY_ALLOW, rule: 9 });
            });
        }
        assert_drop(&net.send(peer, A.address(), syn(1, 2)), Reason::PolicyIngress);
        assert_peer(&net.send(A, peer.address(), syn(1000, 80)), peer);
        assert_peer(&net.send(peer, A.address(), syn_ack(80, 1000)), A);
        assert_drop(&net.send(peer, A.address(), syn(80, 1001)), Reason::PolicyIngress);
        // Decided again, it still is an answer.
        for node in 0..2 {
            net.0[node].state.advance(endpoint_generation(A.vpc(), be32(A.address()))).unwrap();
        }
        let again = net.send(peer, A.address(), data(80, 1000, 5));
        assert_peer(&again, A);
        assert!(again.verdict.slow);
    }
}

#[test]
fn a_change_of_policy_ends_a_connection() {
    for (from, node) in [(B, 0), (C, 0)] {
        let mut net = Net::new();
        assert_peer(&net.send(from, A.address(), syn(1000, 80)), A);
        assert_peer(&net.send(A, from.address(), syn_ack(80, 1000)), from);
        assert_peer(&net.send(from, A.address(), data(1000, 80, 5)), A);
        apply(&mut net, node, deny_ingress);
        // Each end learns it from its own node, and from no other.
        let outcome = net.send(from, A.address(), data(1000, 80, 5));
        if from.node() == 0 {
            assert_answer(&outcome, Reason::PolicyIngress, from);
        } else {
            assert_drop(&outcome, Reason::PolicyIngress);
        }
        assert_answer(&net.send(A, from.address(), data(80, 1000, 5)), Reason::PolicyIngress, A);
    }
}

#[test]
fn changes_elsewhere_leave_a_record_current() {
    let mut net = Net::new();
    assert_peer(&net.send(A, B.address(), syn(1000, 80)), B);
    let record = key(A.vpc(), 0, A, B, (1000, 80));
    let before = get(&net, 0, &record);
    apply(&mut net, 0, |tables| {
        let other = Pod::new(1, 1, 10);
        tables.endpoints.remove(&EndpointKey { vpc: other.vpc(), address: be32(other.address()) });
    });
    let outcome = net.send(A, B.address(), data(1000, 80, 5));
    assert_peer(&outcome, B);
    assert!(!outcome.verdict.slow);
    let after = get(&net, 0, &record);
    assert_ne!(before.epoch, after.epoch, "stamped with the epoch that it was found current at");
    assert_eq!(before.value, after.value);
}

#[test]
fn an_odd_generation_is_never_current() {
    let mut net = Net::new();
    let slot = table_generation(A.table());
    net.0[0].state.set_generation(slot, 7);
    for _ in 0..3 {
        assert!(net.send(A, B.address(), data(1000, 80, 5)).verdict.slow);
    }
    net.0[0].state.set_generation(slot, 8);
    assert!(net.send(A, B.address(), data(1000, 80, 5)).verdict.slow);
    assert!(!net.send(A, B.address(), data(1000, 80, 5)).verdict.slow);
}

#[test]
fn a_record_follows_a_moved_endpoint() {
    let mut net = Net::new();
    assert_peer(&net.send(A, B.address(), udp(1, 2, 0)), B);
    let moved = Pod::new(0, 1, 11);
    apply(&mut net, 0, |tables| {
        let endpoint =
            tables.endpoints.get_mut(&EndpointKey { vpc: moved.vpc(), address: be32(moved.address()) }).unwrap();
        endpoint.ifindex = 4242;
    });
    let outcome = net.send(A, B.address(), udp(1, 2, 0));
    assert_eq!((outcome.verdict.ifindex, outcome.verdict.slow), (4242, true));
    assert!(!net.send(A, B.address(), udp(1, 2, 0)).verdict.slow);
    assert_eq!(counts(&net, 0), (1, 1), "decided again, counted once");
    let mut record = key(A.vpc(), 0, A, B, (1, 2));
    record.scope = FlowKey::scope(A.vpc(), 0, proto(17));
    assert_eq!(get(&net, 0, &record).peer, record.reversed(), "its peer stays");
    assert!(get(&net, 0, &record).has(FLOW_EMBRYONIC), "and its flags");
}

#[test]
fn a_removed_route_is_told_to_the_sender() {
    let mut net = Net::new();
    assert_peer(&net.send(A, C.address(), udp(1, 2, 0)), C);
    apply(&mut net, 0, |tables| {
        tables.routes.remove(&RouteKey::new(A.table(), Ipv4Addr::new(10, 0, 2, 0), 24)).unwrap();
    });
    assert_answer(&net.send(A, C.address(), udp(1, 2, 0)), Reason::NoRoute, A);
}

#[test]
fn without_a_way_back_the_record_is_unresolved() {
    let mut net = Net::new();
    apply(&mut net, 1, |tables| {
        tables.routes.remove(&RouteKey::new(C.table(), Ipv4Addr::new(10, 0, 1, 0), 24)).unwrap();
    });
    assert_peer(&net.send(A, C.address(), syn(1000, 80)), C);
    let way_back = key(C.vpc(), 0, C, A, (80, 1000));
    assert_eq!(get(&net, 1, &way_back).kind, EGRESS_UNRESOLVED);
    assert_answer(&net.send(C, A.address(), syn_ack(80, 1000)), Reason::NoRoute, C);
    assert_eq!(counts(&net, 1), (1, 0), "an answer all the same");
    apply(&mut net, 1, |tables| *tables = topology::tables(1));
    assert_peer(&net.send(C, A.address(), data(80, 1000, 0)), A);
    let resolved = get(&net, 1, &way_back);
    assert_eq!((resolved.kind, resolved.vtep), (EGRESS_ENCAP, be32(vtep(0))));
    assert!(resolved.has(FLOW_REPLY));
}

#[test]
fn a_new_connection_takes_the_ports_of_an_old_one() {
    for closing in [fin(1000, 80), Layer4::Tcp { source: 1000, destination: 80, flags: TCP_RST, payload: 0 }] {
        let mut net = Net::new();
        assert_peer(&net.send(A, B.address(), syn(1000, 80)), B);
        assert_peer(&net.send(B, A.address(), syn_ack(80, 1000)), A);
        assert!(!net.send(A, B.address(), syn(1000, 80)).verdict.slow, "a repeated SYN is nothing new");
        assert_peer(&net.send(A, B.address(), closing), B);
        let record = key(A.vpc(), 0, A, B, (1000, 80));
        assert!(get(&net, 0, &record).saw(TCP_FIN | TCP_RST));
        assert!(get(&net, 0, &record.reversed()).saw(TCP_FIN | TCP_RST), "the peer is told");
        let again = net.send(A, B.address(), syn(1000, 80));
        assert_peer(&again, B);
        assert!(again.verdict.slow);
        assert_eq!(get(&net, 0, &record).flags, u32::from(TCP_SYN) | FLOW_EMBRYONIC);
        assert_eq!(counts(&net, 0), (1, 1));
    }
}

#[test]
fn ports_are_reused_from_the_other_side_too() {
    let mut net = Net::new();
    assert_peer(&net.send(A, B.address(), syn(1000, 80)), B);
    assert_peer(&net.send(B, A.address(), syn_ack(80, 1000)), A);
    assert_peer(&net.send(A, B.address(), fin(1000, 80)), B);
    assert_peer(&net.send(B, A.address(), syn(80, 1000)), A);
    let record = key(A.vpc(), 0, B, A, (80, 1000));
    assert!(!get(&net, 0, &record).has(FLOW_REPLY), "the direction that opens is another");
    assert!(get(&net, 0, &record.reversed()).has(FLOW_REPLY));
    assert_eq!(counts(&net, 0), (1, 1));
}

#[test]
fn tcp_in_the_middle_of_a_connection_is_not_embryonic() {
    let mut net = Net::new();
    assert_peer(&net.send(A, B.address(), data(1000, 80, 5)), B);
    assert_eq!(counts(&net, 0), (1, 0));
}

#[test]
fn limits_are_each_tenants_own() {
    let mut net = Net::new();
    apply(&mut net, 0, |tables| tables.vpcs.get_mut(&0).unwrap().embryonic_limit = 3);
    for port in 0..3 {
        assert_peer(&net.send(A, B.address(), syn(port, 80)), B);
    }
    assert_drop(&net.send(A, B.address(), syn(3, 80)), Reason::QuotaEmbryonic);
    let (other, peer) = (Pod { tenant: 1, ..A }, Pod { tenant: 1, ..B });
    assert_peer(&net.send(other, peer.address(), syn(3, 80)), peer);
    assert_peer(&net.send(B, A.address(), syn_ack(80, 0)), A);
    assert_peer(&net.send(A, B.address(), syn(3, 80)), B);
    net.0[0].expire(NOW.later(31), usize::MAX);
    assert_eq!(counts(&net, 0), (1, 0), "what was not answered is gone");
}

#[test]
fn what_opens_from_both_ends_at_once_stays_two_flows() {
    let mut net = Net::new();
    // A opens to C while C opens to A with the same ports: each node has a forward and an overlay record already.
    let from_a = net.raw(A, &frame(A, C.address(), syn(7, 7)).build());
    let from_c = net.raw(C, &frame(C, A.address(), syn(7, 7)).build());
    assert_peer(&net.underlay(1, &from_a.frame), C);
    assert_peer(&net.underlay(0, &from_c.frame), A);
    for node in 0..2 {
        assert_eq!(net.0[node].flows.len().unwrap(), 2);
        assert_eq!(counts(&net, node), (1, 0), "each took the other's for the answer");
    }
}

#[test]
fn a_held_answer_key_makes_a_single_record() {
    let mut net = Net::new();
    let router = Pod::router(0);
    // A neighbour sends through the router for A's address, so that A's later answer key is taken.
    let stranger = Ipv4Addr::new(10, 9, 0, 1);
    let inner = juneau_core::testkit::packets::Frame::new(stranger, A.address(), udp(53, 1000, 0))
        .macs(A.gateway_mac(), router.mac());
    let arriving = juneau_core::testkit::packets::vxlan(vtep(1), vtep(0), A.vni(), 0, &inner.build());
    assert_peer(&net.underlay(0, &arriving), router);
    let before = counts(&net, 0);
    assert_peer(&net.send(A, stranger, udp(1000, 53, 0)), router);
    let mut held = key(A.vpc(), 0, A, A, (1000, 53));
    held.scope = FlowKey::scope(A.vpc(), 0, proto(17));
    held.destination = be32(stranger);
    let record = get(&net, 0, &held);
    assert!(record.has(FLOW_SINGLE) && !record.has(FLOW_EMBRYONIC));
    assert_eq!(record.peer, held);
    assert_eq!(counts(&net, 0), (before.0 + 1, before.1));
}

#[test]
fn a_hit_stamps_when_time_has_moved() {
    let mut net = Net::new();
    let sent = frame(A, B.address(), udp(1, 2, 0)).build();
    net.raw(A, &sent);
    let mut record = key(A.vpc(), 0, A, B, (1, 2));
    record.scope = FlowKey::scope(A.vpc(), 0, proto(17));
    net.raw_at(A, &sent, NOW.later(5));
    assert_eq!(get(&net, 0, &record).stamp, NOW.stamp + 5);
}

#[test]
fn explaining_changes_nothing() {
    use juneau_core::pipeline::Packet;
    use juneau_core::verdict::Hook;
    let mut net = Net::new();
    let sent = frame(A, C.address(), syn(1, 2)).build();
    let packet = Packet::new(Hook::Pod, A.ifindex(), &sent);
    let before = net.0[0].clone();
    let explained = net.0[0].explain(&packet, NOW).unwrap();
    let stages: Vec<_> = explained.trail.iter().map(|step| step.stage).collect();
    assert_eq!(stages, [1, 2, 4, 5, 3, 6, 7]);
    assert!(net.0[0].flows.is_empty().unwrap());
    assert_eq!((&net.0[0].state, &net.0[0].counters), (&before.state, &before.counters));
    let really = net.0[0].handle(&packet, NOW).unwrap();
    assert_eq!((really.verdict, &really.frame, really.count), (explained.verdict, &explained.frame, explained.count));
    assert_eq!(net.0[0].explain(&packet, NOW).unwrap().trail.len(), 3, "a hit: parse, flow, emit");
}

#[test]
fn a_stray_segment_harms_no_later_connection() {
    let reset = Layer4::Tcp { source: 1000, destination: 80, flags: TCP_RST, payload: 0 };
    let strays = [data(1000, 80, 9), syn_ack(1000, 80), fin(1000, 80), reset];
    for stray in strays {
        for to in [B, C] {
            let mut net = Net::new();
            assert_peer(&net.send(A, to.address(), stray.clone()), to);
            assert_peer(&net.send(A, to.address(), syn(1000, 80)), to);
            assert_peer(&net.send(to, A.address(), syn_ack(80, 1000)), A);
            assert_peer(&net.send(A, to.address(), data(1000, 80, 9)), to);
            assert_eq!(counts(&net, 0), (1, 0), "{stray:?}");
        }
    }
    // From the other side, too.
    let mut net = Net::new();
    assert_peer(&net.send(B, A.address(), data(80, 1000, 9)), A);
    assert_peer(&net.send(A, B.address(), syn(1000, 80)), B);
    assert_peer(&net.send(B, A.address(), syn_ack(80, 1000)), A);
    assert_peer(&net.send(A, B.address(), data(1000, 80, 9)), B);
}

#[test]
fn what_is_refused_leaves_no_flow() {
    use juneau_core::testkit::packets::{echo, echo_reply};
    let mut net = Net::new();
    apply(&mut net, 0, deny_ingress);
    for refused in [echo(7), echo_reply(7), udp(1, 2, 3), syn(1, 2), syn_ack(1, 2)] {
        assert_drop(&net.send(A, B.address(), refused), Reason::PolicyIngress);
    }
    assert!(net.0[0].flows.is_empty().unwrap());
    assert_eq!(counts(&net, 0), (0, 0));
}
