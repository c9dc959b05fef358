//! Nodes: as clients by their node port, and as backends.

use super::common::{A, CLIENT, apply, frontend, inner, pod, tuple};
use crate::common::{Net, assert_answer, assert_drop, assert_node, assert_peer};
use juneau_core::packet::{IP_TCP, IP_UDP};
use juneau_core::pipeline::Outcome;
use juneau_core::testkit::packets::{assert_checksums, data, syn, syn_ack, udp};
use juneau_core::testkit::services::{EMPTY, HOST, NOBODY, WEB};
use juneau_core::testkit::topology::{Pod, own_address, vtep};
use juneau_core::verdict::{Action, Reason};
use std::collections::BTreeSet;

#[test]
fn a_node_reaches_services_by_its_node_port() {
    for source in [Pod::node_port(0).address(), vtep(0)] {
        let mut net = Net::new();
        let mut reached = BTreeSet::new();
        for from in 2000..2030 {
            let opened = net.host_sends(0, source, WEB, syn(from, 80));
            assert_checksums(&opened.frame);
            let seen = tuple(&opened.frame);
            let backend = pod(0, seen.1);
            assert_peer(&opened, backend);
            assert_eq!(seen, (source, backend.address(), from, 8080));
            reached.insert(backend);
            let answer = net.send(backend, source, syn_ack(8080, from));
            assert_node(&answer, 0);
            assert_checksums(&answer.frame);
            assert_eq!(tuple(&answer.frame), (WEB, source, 80, from));
            let on = net.host_sends(0, source, WEB, data(from, 80, 10));
            assert!(!on.verdict.slow);
            assert_eq!(tuple(&on.frame), seen);
        }
        assert_eq!(reached.len(), 4);
    }
}

#[test]
fn a_node_is_answered_as_a_pod_is() {
    let mut net = Net::new();
    let (source, port) = (vtep(0), Pod::node_port(0));
    let refused = net.host_sends(0, source, EMPTY, syn(2000, 80));
    assert_eq!((refused.verdict.reason, refused.verdict.action), (Reason::ServiceEmpty, Action::Answer));
    assert_eq!(refused.verdict.ifindex, port.ifindex());
    assert_eq!(tuple(&refused.frame), (EMPTY, source, 80, 2000));
    assert_drop(&net.host_sends(0, source, NOBODY, syn(2000, 80)), Reason::ServiceUnknown);
}

/// What HOST leads to from a client's port: the node.
fn node_of(outcome: &Outcome) -> usize {
    let destination = tuple(inner(outcome)).1;
    usize::from(destination == vtep(1))
}

#[test]
fn nodes_are_backends() {
    let mut net = Net::new();
    let mut reached = BTreeSet::new();
    for from in 2000..2020 {
        for (layer4, port, target, protocol) in [(syn(from, 80), 80, 8080, IP_TCP), (udp(from, 53, 10), 53, 53, IP_UDP)]
        {
            let opened = net.send(A, HOST, layer4);
            let node = node_of(&opened);
            reached.insert(node);
            assert_node(&opened, node);
            assert_checksums(&opened.frame);
            assert_eq!(tuple(&opened.frame), (A.address(), vtep(node), from, target));
            let answer = if protocol == IP_TCP { syn_ack(target, from) } else { udp(target, from, 10) };
            let answered = net.host_sends(node, vtep(node), A.address(), answer);
            assert_peer(&answered, A);
            assert_checksums(&answered.frame);
            assert_eq!(tuple(&answered.frame), (HOST, A.address(), port, from));
            // What the node says as somebody else is no answer.
            let other = net.host_sends(node, Pod::node_port(node).address(), A.address(), udp(target, from, 10));
            assert_eq!(tuple(&other.frame).0, Pod::node_port(node).address());
        }
    }
    assert_eq!(reached.len(), 2);
}

#[test]
fn a_node_reaches_itself_as_the_gateway() {
    let mut net = Net::new();
    let (port, source) = (Pod::node_port(0), own_address(0));
    let mut reached = BTreeSet::new();
    for from in 2000..2020 {
        let opened = net.host_sends(0, source, HOST, syn(from, 80));
        let node = node_of(&opened);
        reached.insert(node);
        assert_checksums(&opened.frame);
        assert_node(&opened, node);
        if node == 1 {
            assert_eq!(tuple(&opened.frame), (source, vtep(1), from, 8080));
            continue;
        }
        assert_eq!(tuple(&opened.frame), (port.gateway(), vtep(0), from, 8080));
        for _ in 0..2 {
            let answer = net.host_sends(0, vtep(0), port.gateway(), syn_ack(8080, from));
            assert_node(&answer, 0);
            assert_checksums(&answer.frame);
            assert_eq!(tuple(&answer.frame), (HOST, source, 80, from));
            apply(&mut net, |tables| tables.routes.values_mut().for_each(|route| route.zero ^= 1));
        }
    }
    assert_eq!(reached.len(), 2);
    assert_drop(&net.host_sends(0, vtep(0), port.gateway(), data(8080, 1, 5)), Reason::Gateway);
}

#[test]
fn the_nodes_services_are_of_its_vpc_alone() {
    let mut net = Net::new();
    apply(&mut net, |tables| {
        tables.frontends.remove(&frontend(0, WEB, 80, IP_TCP));
    });
    let refused = net.host_sends(0, vtep(0), WEB, syn(2000, 80));
    assert_eq!(refused.verdict.reason, Reason::ServicePort, "tenant 1 has it still");
    let tenant = Pod { tenant: 1, ..CLIENT };
    assert!(net.send(tenant, WEB, syn(2000, 80)).verdict.is_delivered());
    assert_answer(&net.send(CLIENT, WEB, syn(2000, 80)), Reason::ServicePort, CLIENT);
}
