//! Endpoint routes: a Pod as next hop.

use crate::common::{Net, assert_answer, assert_drop, assert_peer, frame};
use juneau_core::layout::{Route, RouteKey, SCOPE_TRANSIT, be32};
use juneau_core::packet::{ICMP_TIME_EXCEEDED, ICMP_UNREACHABLE};
use juneau_core::pipeline::Outcome;
use juneau_core::tables::{Change, Diff, TablesMut};
use juneau_core::testkit::packets::{Frame, Layer4, icmp_error, udp};
use juneau_core::testkit::topology::{Pod, vtep};
use juneau_core::verdict::{Action, Reason};
use std::net::Ipv4Addr;

const A: Pod = Pod::new(0, 1, 10);
const R: Pod = Pod::router(0);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

/// What the router does with what it got: the next hop's MAC address, one TTL less.
fn forwarded(received: &[u8], to_mac: [u8; 6]) -> Vec<u8> {
    let mut frame = received.to_vec();
    frame[..6].copy_from_slice(&to_mac);
    frame[6..12].copy_from_slice(&R.mac());
    frame
}

#[test]
fn what_leads_to_a_router_arrives_there_with_its_own_addresses() {
    for from in [A, Pod::new(0, 2, 11), Pod::new(0, 1, 20), Pod::new(0, 2, 21)] {
        let mut net = Net::new();
        for _ in ["miss", "hit"] {
            let outcome = net.send(from, FAR, udp(1000, 53, 5));
            assert_peer(&outcome, R);
            assert_eq!((&outcome.frame[..6], outcome.frame[22]), (&R.mac()[..], 63));
        }
    }
}

#[test]
fn a_router_sends_for_others() {
    for to in [A, Pod::new(0, 2, 10), Pod::new(0, 1, 21), Pod::new(0, 2, 20)] {
        let mut net = Net::new();
        let answer = Frame::new(FAR, to.address(), udp(53, 1000, 5)).macs(R.mac(), R.gateway_mac());
        for _ in ["miss", "hit"] {
            assert_peer(&net.send_frame(R, &answer), to);
        }
        let transit = net.0[0].flows.iter().find(|(key, _)| key.is_transit()).unwrap();
        assert_eq!((transit.0.scope & SCOPE_TRANSIT, transit.0.id()), (SCOPE_TRANSIT, R.ifindex()));
        // Others may not.
        let forged = Frame::new(FAR, to.address(), udp(53, 1000, 5)).macs(A.mac(), A.gateway_mac());
        assert_drop(&net.send_frame(A, &forged), Reason::SourceAddress);
        let martian = Frame { source: Ipv4Addr::LOCALHOST, ..answer };
        assert_drop(&net.send_frame(R, &martian), Reason::SourceAddress);
    }
}

/// Both ends on the other node, the router here: there and back.
#[test]
fn a_router_between_two_pods_of_another_node() {
    let mut net = Net::new();
    let (a, b) = (Pod::new(0, 1, 20), Pod::new(0, 2, 21));
    // Node 1's Subnets reach each other through the router alone.
    for (from, to) in [(a, b), (b, a)] {
        let key = RouteKey::new(from.table(), to.address(), 32);
        let route = Route { kind: 2, next_hop: be32(R.address()), ..Route::default() };
        let current = net.0[1].tables.content().clone();
        let mut wanted = current.clone();
        wanted.routes.insert(key, route);
        net.0[1].apply(&Diff::between(&current, &wanted)).unwrap();
    }
    for _ in 0..2 {
        for (from, to, ports) in [(a, b, (1000, 53)), (b, a, (53, 1000))] {
            let at_router = net.send(from, to.address(), udp(ports.0, ports.1, 5));
            assert_peer(&at_router, R);
            let onward = forwarded(&at_router.frame, R.gateway_mac());
            let leaving: Outcome = net.raw(R, &onward);
            assert_eq!((leaving.verdict.action, leaving.verdict.vtep), (Action::Encap, vtep(1)));
            let arrived = net.underlay(1, &leaving.frame);
            assert_peer(&arrived, to);
            let hops = if to.subnet == R.subnet { 63 } else { 62 };
            assert_eq!(arrived.frame[22], hops, "one for the way to the router, one where we route behind it");
        }
    }
}

#[test]
fn a_router_that_is_gone_is_unreachable() {
    let mut net = Net::new();
    let key = juneau_core::layout::EndpointKey { vpc: R.vpc(), address: be32(R.address()) };
    net.0[0].tables.apply(&Change::Endpoint(key, None)).unwrap();
    assert_answer(&net.send(A, FAR, udp(1, 2, 0)), Reason::RouteUnreachable, A);
    // The router itself has no way through itself.
    let mut net = Net::new();
    assert_answer(&net.send(R, FAR, udp(1, 2, 0)), Reason::RouteUnreachable, R);
}

#[test]
fn answers_about_transit_go_to_the_router() {
    let mut net = Net::new();
    let lost = Frame::new(FAR, Ipv4Addr::new(10, 0, 1, 99), udp(1, 2, 0)).macs(R.mac(), R.gateway_mac());
    let outcome = net.send_frame(R, &lost);
    assert_answer(&outcome, Reason::NoEndpoint, R);
    assert_eq!(juneau_core::testkit::packets::addresses(&outcome.frame), (R.gateway(), FAR));
}

#[test]
fn a_routers_errors_reach_the_sender() {
    // The packet came to the router by the overlay, or from a Pod of its node; or it was forwarded already.
    for from in [A, Pod::new(0, 2, 21)] {
        let mut net = Net::new();
        let received = net.send(from, FAR, udp(1000, 53, 5)).frame;
        let error = frame(R, from.address(), icmp_error(ICMP_TIME_EXCEEDED, 0, &received));
        assert_peer(&net.send_frame(R, &error), from);
        // Behind the router a stranger tells the sender; the router passes it on.
        let onward = Frame { source: FAR, ..error.clone() };
        assert_peer(&net.send_frame(R, &onward), from);
        let other = Frame::new(from.address(), FAR, udp(1001, 53, 5)).build();
        let wrong = frame(R, from.address(), icmp_error(ICMP_UNREACHABLE, 1, &other));
        assert_drop(&net.send_frame(R, &wrong), Reason::IcmpNoFlow);
    }
    let mut net = Net::new();
    let forward = Frame::new(FAR, A.address(), udp(53, 1000, 5)).macs(R.mac(), R.gateway_mac());
    assert_peer(&net.send_frame(R, &forward), A);
    let error = frame(A, FAR, icmp_error(ICMP_UNREACHABLE, 3, &forward.build()));
    // A has no flow of its own about it: it never opened one, and the router's record is the router's.
    assert_drop(&net.send_frame(A, &error), Reason::IcmpNoFlow);
}

#[test]
fn a_router_speaks_for_what_leads_through_it_alone() {
    let mut net = Net::new();
    // Flows of A with a Pod of the other node and one of this node: the router has no part in either.
    for from in [Pod::new(0, 1, 20), Pod::new(0, 1, 11)] {
        let received = net.send(from, A.address(), udp(1000, 53, 5)).frame;
        let error = frame(R, from.address(), icmp_error(ICMP_UNREACHABLE, 1, &received));
        assert_drop(&net.send_frame(R, &error), Reason::IcmpNoFlow);
    }
}

#[test]
fn no_router_no_transit() {
    let mut net = Net::new();
    let inner = Frame::new(A.address(), FAR, Layer4::Raw { protocol: 47, payload: vec![0; 8] })
        .macs(A.gateway_mac(), Pod::new(0, 1, 11).mac());
    let wrapped = juneau_core::testkit::packets::vxlan(vtep(1), vtep(0), A.vni(), 0, &inner.build());
    assert_drop(&net.underlay(0, &wrapped), Reason::OverlayDestination);
    let inner = inner.macs(A.gateway_mac(), R.mac());
    let wrapped = juneau_core::testkit::packets::vxlan(vtep(1), vtep(0), A.vni(), 0, &inner.build());
    assert_peer(&net.underlay(0, &wrapped), R);
}
