//! Pods that reach themselves through a Service.

use super::common::{A, A2, B, Connection, apply, tuple};
use crate::common::{Net, assert_drop, assert_peer, frame};
use juneau_core::layout::{FLOW_NAT, be32, endpoint_generation};
use juneau_core::pipeline::Generations as _;
use juneau_core::testkit::packets::{data, echo, syn, udp};
use juneau_core::testkit::services::SELF;
use juneau_core::testkit::topology::Pod;
use juneau_core::verdict::Reason;

fn unrelated(net: &mut Net) {
    apply(net, |tables| tables.routes.values_mut().for_each(|route| route.zero ^= 1));
}

#[test]
fn a_pod_reaches_itself_as_the_gateway() {
    // By the interface that it sends from, and by its other one.
    for client in [A, A2] {
        for layer4 in [syn(2000, 80), udp(2000, 53, 10)] {
            let mut net = Net::new();
            let connection = Connection::open(&mut net, client, SELF, layer4);
            assert_eq!(connection.backend, A);
            assert_eq!(connection.seen, (A.gateway(), A.address(), 2000, 8080));
            for _ in 0..2 {
                let on = connection.assert_goes_on(&mut net);
                assert_eq!((&on.frame[..6], &on.frame[6..12]), (&A.mac()[..], &A.gateway_mac()[..]));
                assert_eq!(on.frame[22], 63);
                let reply = connection.replies(&mut net);
                connection.assert_answered(&reply);
                assert_eq!((&reply.frame[..6], &reply.frame[6..12]), (&client.mac()[..], &client.gateway_mac()[..]));
                assert_eq!(reply.frame[22], 63);
                unrelated(&mut net);
            }
            let (forward, reverse) = connection.records(&net);
            assert!(forward.has(FLOW_NAT) && reverse.has(FLOW_NAT));
        }
    }
}

#[test]
fn others_reach_it_with_their_own_address() {
    for client in [B, Pod::new(0, 2, 11)] {
        let mut net = Net::new();
        let connection = Connection::open(&mut net, client, SELF, syn(2000, 80));
        assert_eq!(connection.seen, (client.address(), A.address(), 2000, 8080));
        connection.assert_works(&mut net);
    }
}

#[test]
fn two_interfaces_that_would_speak_alike_have_ports_of_their_own() {
    let mut net = Net::new();
    let first = Connection::open(&mut net, A, SELF, syn(2000, 80));
    let second = Connection::open(&mut net, A2, SELF, syn(2000, 80));
    assert_eq!(first.seen.0, second.seen.0);
    assert_ne!(first.seen.2, second.seen.2);
    first.assert_works(&mut net);
    second.assert_works(&mut net);
}

#[test]
fn nobodys_policy_stands_between_a_pod_and_itself() {
    let mut net = Net::new();
    apply(&mut net, |tables| tables.policies.clear());
    for client in [A, A2] {
        let connection = Connection::open(&mut net, client, SELF, syn(2000, 80));
        connection.assert_works(&mut net);
        unrelated(&mut net);
        let reply = connection.replies(&mut net);
        connection.assert_answered(&reply);
        connection.assert_works(&mut net);
    }
    assert_drop(&net.send(B, SELF, syn(2000, 80)), Reason::PolicyEgress);
    assert_drop(&net.send(A, A2.address(), syn(2000, 80)), Reason::PolicyEgress);
}

#[test]
fn an_interface_without_a_number_knows_itself_alone() {
    let mut net = Net::new();
    apply(&mut net, |tables| {
        tables.interfaces.values_mut().for_each(|interface| interface.pod = 0);
        tables.endpoints.values_mut().for_each(|endpoint| endpoint.pod = 0);
    });
    let own = Connection::open(&mut net, A, SELF, syn(2000, 80));
    assert_eq!(own.seen.0, A.gateway());
    own.assert_works(&mut net);
    let other = Connection::open(&mut net, A2, SELF, syn(3000, 80));
    assert_eq!(other.seen.0, A2.address());
    other.assert_works(&mut net);
}

#[test]
fn the_gateway_itself_stays_nobody() {
    let mut net = Net::new();
    assert_drop(&net.send(A, A.gateway(), data(8080, 2000, 10)), Reason::Gateway);
    Connection::open(&mut net, A, SELF, syn(2000, 80));
    assert_peer(&net.send(A, A.gateway(), data(8080, 2000, 10)), A);
    assert_drop(&net.send(A, A.gateway(), data(8080, 2001, 10)), Reason::Gateway);
    assert_drop(&net.send(A, A.gateway(), echo(1)), Reason::Gateway);
    // Not for another Pod of the Subnet.
    let forged = frame(B, A.gateway(), data(8080, 2000, 10));
    assert_drop(&net.send_frame(B, &forged), Reason::Gateway);
    assert_eq!(tuple(&forged.build()).0, B.address());
}

#[test]
fn answers_are_decided_again_when_their_receiver_changes() {
    let mut net = Net::new();
    let connection = Connection::open(&mut net, A2, SELF, syn(2000, 80));
    for _ in 0..2 {
        assert!(!connection.replies(&mut net).verdict.slow);
        let slot = endpoint_generation(A2.vpc(), be32(A2.address()));
        net.0[0].state.advance(slot).unwrap();
        let reply = connection.replies(&mut net);
        assert!(reply.verdict.slow);
        connection.assert_answered(&reply);
    }
}
