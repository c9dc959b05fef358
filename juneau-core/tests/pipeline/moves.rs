//! Endpoints that move to another node: flows towards them stay what they are.

use crate::common::{Net, assert_drop, assert_peer, frame};
use juneau_core::flow::{FlowRead, TCP_FIN, TCP_SYN};
use juneau_core::layout::{
    Be16, EGRESS_ENCAP, EGRESS_PEER, EP_LOCAL, EndpointKey, FLOW_EMBRYONIC, FLOW_REPLY, FlowKey, IDENTITY_ANY, INGRESS,
    POLICY_ALLOW, Policy, PolicyKey, SCOPE_OVERLAY, be32, proto,
};
use juneau_core::packet::IP_TCP;
use juneau_core::pipeline::{Limits, Outcome};
use juneau_core::tables::{Diff, Tables};
use juneau_core::testkit::packets::{Layer4, data, fin, syn, syn_ack, vxlan};
use juneau_core::testkit::topology::{self, Pod, vtep};
use juneau_core::verdict::{Action, Reason};

const A: Pod = Pod::new(0, 1, 10);
/// Begins on A's node.
const B: Pod = Pod::new(0, 1, 11);

fn apply(net: &mut Net, change: impl FnOnce(&mut Tables)) {
    let current = net.0[0].tables.content().clone();
    let mut wanted = current.clone();
    change(&mut wanted);
    net.0[0].apply(&Diff::between(&current, &wanted)).unwrap();
}

/// What node 0 hears of B's move to the other node, or of its return.
fn moves(net: &mut Net, away: bool) {
    apply(net, |tables| {
        let endpoint = tables.endpoints.get_mut(&EndpointKey { vpc: B.vpc(), address: be32(B.address()) }).unwrap();
        *endpoint = B.endpoint(0);
        if away {
            endpoint.flags &= !EP_LOCAL;
            endpoint.ifindex = 0;
            endpoint.vtep = be32(vtep(1));
        }
    });
}

/// Nobody may open anything but port 80.
fn web_only(net: &mut Net) {
    apply(net, |tables| {
        let any = PolicyKey {
            identity: A.identity(),
            policy: 1,
            peer: IDENTITY_ANY,
            direction: INGRESS,
            ..PolicyKey::default()
        };
        tables.policies.remove(&any).unwrap();
        let web = PolicyKey { protocol: IP_TCP, port: Be16::new(80), ..any };
        tables.policies.insert(web, Policy { action: POLICY_ALLOW, rule: 9 });
    });
}

fn net() -> Net {
    let mut net = Net::new();
    web_only(&mut net);
    net
}

/// B's answer as it arrives from the other node.
fn by_the_overlay(net: &mut Net, layer4: Layer4) -> Outcome {
    let inner = frame(B, A.address(), layer4).build();
    net.underlay(0, &vxlan(vtep(1), vtep(0), A.vni(), 0, &inner))
}

fn key(id: u32, bits: u32, from: Pod, to: Pod, ports: (u16, u16)) -> FlowKey {
    FlowKey {
        scope: FlowKey::scope(id, bits, proto(IP_TCP)),
        source: be32(from.address()),
        destination: be32(to.address()),
        source_port: Be16::new(ports.0),
        destination_port: Be16::new(ports.1),
    }
}

fn forward() -> FlowKey {
    key(A.vpc(), 0, A, B, (1000, 80))
}

fn far_answers() -> FlowKey {
    key(A.vni(), SCOPE_OVERLAY, B, A, (80, 1000))
}

/// The flow has these two records, and its peers are each other's.
#[track_caller]
fn assert_pair(net: &Net, answers: &FlowKey, embryonic: i64) {
    let flows = &net.0[0].flows;
    let (there, back) = (flows.lookup(&forward()).unwrap().unwrap(), flows.lookup(answers).unwrap().unwrap());
    assert_eq!((there.peer, back.peer), (*answers, forward()));
    assert!(back.has(FLOW_REPLY) && !there.has(FLOW_REPLY));
    assert_eq!((back.has(FLOW_EMBRYONIC), there.has(FLOW_EMBRYONIC)), (embryonic == 1, embryonic == 1));
    assert_eq!(flows.iter().count(), 2);
    let state = flows.vpc_state(A.vpc_index()).unwrap();
    assert_eq!((state.flows, state.embryonic), (1, embryonic));
}

#[test]
fn an_open_connection_goes_on_there_and_back() {
    let mut net = net();
    assert_peer(&net.send(A, B.address(), syn(1000, 80)), B);
    assert_peer(&net.send(B, A.address(), syn_ack(80, 1000)), A);
    for _ in 0..2 {
        moves(&mut net, true);
        // The control: until A's word, an answer from there is no answer.
        assert_drop(&by_the_overlay(&mut net, data(80, 1000, 5)), Reason::PolicyIngress);
        let sent = net.raw(A, &frame(A, B.address(), data(1000, 80, 5)).build());
        assert_eq!(sent.verdict.action, Action::Encap);
        assert_pair(&net, &far_answers(), 0);
        for _ in 0..2 {
            let answer = by_the_overlay(&mut net, data(80, 1000, 5));
            assert_peer(&answer, A);
            assert!(!answer.verdict.slow);
        }

        moves(&mut net, false);
        assert_peer(&net.send(A, B.address(), data(1000, 80, 5)), B);
        assert_pair(&net, &forward().reversed(), 0);
        let answer = net.send(B, A.address(), data(80, 1000, 5));
        assert_peer(&answer, A);
        assert!(!answer.verdict.slow);
    }
}

#[test]
fn the_first_answer_may_come_from_the_new_place() {
    let mut net = net();
    assert_peer(&net.send(A, B.address(), syn(1000, 80)), B);
    moves(&mut net, true);
    assert_eq!(net.raw(A, &frame(A, B.address(), syn(1000, 80)).build()).verdict.action, Action::Encap);
    assert_pair(&net, &far_answers(), 1);
    assert_peer(&by_the_overlay(&mut net, syn_ack(80, 1000)), A);
    assert_pair(&net, &far_answers(), 0);
}

#[test]
fn what_ends_is_known_at_the_new_place() {
    let mut net = net();
    assert_peer(&net.send(A, B.address(), syn(1000, 80)), B);
    assert_peer(&net.send(B, A.address(), syn_ack(80, 1000)), A);
    assert_peer(&net.send(B, A.address(), fin(80, 1000)), A);
    moves(&mut net, true);
    net.raw(A, &frame(A, B.address(), fin(1000, 80)).build());
    let tcp = u32::from(TCP_SYN | TCP_FIN);
    let back = net.0[0].flows.lookup(&far_answers()).unwrap().unwrap();
    assert!(back.has(tcp | tcp << 8), "{:x}", back.flags);
    // The ports are free for another connection at once.
    net.raw(A, &frame(A, B.address(), syn(1000, 80)).build());
    assert_pair(&net, &far_answers(), 1);
}

#[test]
fn a_full_table_or_another_flow_leaves_it_where_it_is() {
    let limits = Limits { flows: 2, ..Limits::default() };
    let mut net = Net([topology::node_with(0, &limits), topology::node(1)]);
    assert_peer(&net.send(A, B.address(), syn(1000, 80)), B);
    moves(&mut net, true);
    let sent = net.raw(A, &frame(A, B.address(), syn(1000, 80)).build());
    assert_eq!(sent.verdict.action, Action::Encap);
    assert_pair(&net, &forward().reversed(), 1);

    let mut net = Net::new();
    assert_peer(&net.send(A, B.address(), syn(1000, 80)), B);
    moves(&mut net, true);
    // Where everything is allowed, B's word from there opens a flow of its own.
    assert_peer(&by_the_overlay(&mut net, data(80, 1000, 5)), A);
    let held = net.0[0].flows.lookup(&far_answers()).unwrap().unwrap();
    let sent = net.raw(A, &frame(A, B.address(), data(1000, 80, 5)).build());
    assert_eq!(sent.verdict.action, Action::Encap);
    assert_eq!(net.0[0].flows.lookup(&far_answers()).unwrap().unwrap(), held);
    let there = net.0[0].flows.lookup(&forward()).unwrap().unwrap();
    assert_eq!((there.peer, there.kind), (forward().reversed(), EGRESS_ENCAP));
    assert_eq!(net.0[0].flows.lookup(&forward().reversed()).unwrap().unwrap().kind, EGRESS_PEER);
}
