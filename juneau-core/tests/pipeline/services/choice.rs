//! Who is chosen, and for whom.

use super::common::{
    A, B, C, CLIENT, Connection, D, apply, backend_of, choose_among, counts, explain, frontend, tuple,
};
use crate::common::{Net, assert_answer, assert_drop, assert_peer, frame};
use juneau_core::layout::{
    Be16, FrontendKey, IDENTITY_ANY, INGRESS, POLICY_ALLOW, Policy, PolicyKey, ROUTE_CONNECTED, ROUTE_ENDPOINT, be32,
};
use juneau_core::packet::IP_TCP;
use juneau_core::testkit::packets::{Frame, data, syn, syn_ack, udp};
use juneau_core::testkit::services::{EMPTY, SAME, WEB};
use juneau_core::testkit::topology::Pod;
use juneau_core::verdict::Reason;
use std::collections::BTreeMap;

#[test]
fn a_service_leads_to_all_its_backends_and_back() {
    let mut net = Net::new();
    let connections: Vec<_> = (2000..2100).map(|from| Connection::open(&mut net, CLIENT, WEB, syn(from, 80))).collect();
    for expected in [A, B, C, D] {
        let count = connections.iter().filter(|connection| connection.backend == expected).count();
        assert!((10..=40).contains(&count), "{expected:?} {count}");
    }
    for connection in connections {
        assert_eq!(connection.seen, (CLIENT.address(), connection.backend.address(), connection.from, 8080));
        let on = connection.assert_goes_on(&mut net);
        assert!(!on.verdict.slow, "the second segment is a hit");
        let reply = connection.replies(&mut net);
        assert!(!reply.verdict.slow);
        connection.assert_answered(&reply);
    }
}

#[test]
fn ports_of_one_address_are_services_of_their_own() {
    let mut net = Net::new();
    let (local, remote) = (CLIENT, Pod::new(0, 1, 21));
    let reached: BTreeMap<_, _> = (2000..2040)
        .map(|from| Connection::open(&mut net, A, WEB, udp(from, 53, 10)))
        .map(|connection| (connection.backend, connection.seen.3))
        .collect();
    assert_eq!(reached, [(local, 53), (remote, 53)].into());
    // TCP port 53 and UDP port 80 are nobody's.
    assert_answer(&net.send(A, WEB, syn(2000, 53)), Reason::ServicePort, A);
    assert_answer(&net.send(A, WEB, udp(2000, 80, 10)), Reason::ServicePort, A);
}

#[test]
fn equal_addresses_of_tenants_never_meet() {
    let mut net = Net::new();
    let other = Pod { tenant: 1, ..CLIENT };
    // Tenant 1 has one backend alone, so that what it reaches differs.
    apply(&mut net, |tables| {
        let key = frontend(1, WEB, 80, IP_TCP);
        let (id, _) = backend_of(tables, &key, Pod { tenant: 1, ..C });
        choose_among(tables, &key, &[id]);
        // And a port that tenant 0 does not have.
        let http = frontend(1, WEB, 81, IP_TCP);
        let front = tables.frontends[&key];
        tables.frontends.insert(http, front.tagged(&http));
    });
    let mut pairs = Vec::new();
    for from in 2000..2040 {
        let first = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
        let second = Connection::open(&mut net, other, WEB, syn(from, 80));
        assert_eq!(first.backend.tenant, 0);
        assert_eq!(second.backend, Pod { tenant: 1, ..C });
        pairs.push((first, second));
    }
    for (first, second) in pairs {
        first.assert_works(&mut net);
        second.assert_works(&mut net);
    }
    assert_answer(&net.send(CLIENT, WEB, syn(3000, 81)), Reason::ServicePort, CLIENT);
    assert_eq!(Connection::open(&mut net, other, WEB, syn(3000, 81)).backend.tenant, 1, "the control");
}

#[test]
fn the_middle_of_a_connection_opens_none() {
    let mut net = Net::new();
    let stray = net.send(CLIENT, WEB, data(2000, 80, 10));
    assert_answer(&stray, Reason::ServiceGone, CLIENT);
    assert_eq!(counts(&net), [0, 0]);
    assert_answer(&net.send(CLIENT, WEB, syn_ack(2000, 80)), Reason::ServiceGone, CLIENT);
    Connection::open(&mut net, CLIENT, WEB, syn(2000, 80)).assert_works(&mut net);
}

#[test]
fn a_segment_that_is_sent_again_changes_nothing() {
    let mut net = Net::new();
    let first = Connection::begin(&mut net, CLIENT, WEB, syn(2000, 80));
    let records = first.records(&net);
    let again = Connection::open(&mut net, CLIENT, WEB, syn(2000, 80));
    assert_eq!(first, again);
    assert_eq!(first.records(&net).0.peer, records.0.peer);
    // Nor while it is decided again.
    apply(&mut net, |tables| {
        let key = frontend(0, WEB, 80, IP_TCP);
        let (id, mut backend) = backend_of(tables, &key, first.backend);
        backend.zero[0] ^= 1;
        tables.backends.insert(id, backend.tagged());
    });
    let again = net.send(CLIENT, WEB, syn(2000, 80));
    assert!(again.verdict.slow);
    assert_eq!(tuple(&again.frame), first.seen);
}

#[test]
fn a_slot_without_its_backend_is_a_change_that_goes_on() {
    let mut net = Net::new();
    apply(&mut net, |tables| tables.backends.clear());
    assert_drop(&net.send(CLIENT, WEB, syn(2000, 80)), Reason::ServiceChanging);
    // So is a backend of another Service, or of another VPC.
    for (service, vpc) in [(1, 0), (0, 1)] {
        let mut net = Net::new();
        assert!(explain(&net, CLIENT, WEB, syn(2001, 80)).verdict.is_delivered(), "the control");
        apply(&mut net, |tables| {
            let front = tables.frontends[&frontend(0, WEB, 80, IP_TCP)].service;
            for backend in tables.backends.values_mut().filter(|backend| backend.service == front) {
                (backend.service, backend.vpc) = (backend.service + service, backend.vpc + vpc);
                *backend = backend.tagged();
            }
        });
        assert_drop(&net.send(CLIENT, WEB, syn(2001, 80)), Reason::ServiceChanging);
    }
}

#[test]
fn a_backend_without_an_endpoint_is_unreachable() {
    let mut net = Net::new();
    apply(&mut net, |tables| {
        let key = frontend(0, WEB, 80, IP_TCP);
        let (id, _) = backend_of(tables, &key, B);
        choose_among(tables, &key, &[id]);
        tables.endpoints.retain(|key, _| (key.vpc, key.address) != (B.vpc(), be32(B.address())));
    });
    assert_answer(&net.send(CLIENT, WEB, syn(2000, 80)), Reason::NoEndpoint, CLIENT);
    // A Service at a neighbour's address is none of ours: the route tells what is a Service.
    let key = FrontendKey::new(A.vpc(), be32(C.address()), Be16::new(80), IP_TCP);
    apply(&mut net, |tables| {
        let front = tables.frontends[&frontend(0, SAME, 8080, IP_TCP)];
        tables.frontends.insert(key, front.tagged(&key));
    });
    assert_peer(&net.send(A, C.address(), syn(2000, 80)), C);
}

#[test]
fn a_backend_behind_a_router_is_unreachable() {
    let mut net = Net::new();
    apply(&mut net, |tables| {
        for route in tables.routes.values_mut().filter(|route| route.kind == ROUTE_CONNECTED) {
            (route.kind, route.next_hop) = (ROUTE_ENDPOINT, be32(Pod::router(0).address()));
        }
    });
    let direct = net.send(CLIENT, B.address(), syn(2000, 80));
    assert_peer(&direct, Pod::router(0));
    assert_answer(&net.send(CLIENT, WEB, syn(2000, 80)), Reason::RouteUnreachable, CLIENT);
}

#[test]
fn a_router_reaches_services_for_itself_alone() {
    let mut net = Net::new();
    let router = Pod::router(0);
    assert!(net.send(router, WEB, syn(2000, 80)).verdict.is_delivered(), "for itself");
    let transit = Frame { source: CLIENT.address(), ..frame(router, WEB, syn(2000, 80)) };
    assert_answer(&net.send_frame(router, &transit), Reason::RouteUnreachable, router);
}

#[test]
fn policy_is_asked_about_the_backend() {
    let mut net = Net::new();
    // The backends take port 8080 of TCP alone, and that not under the Service's own port.
    apply(&mut net, |tables| {
        let any = PolicyKey {
            identity: A.identity(),
            policy: 1,
            peer: IDENTITY_ANY,
            direction: INGRESS,
            ..PolicyKey::default()
        };
        tables.policies.remove(&any).unwrap();
        let target = PolicyKey { protocol: IP_TCP, port: Be16::new(8080), ..any };
        tables.policies.insert(target, Policy { action: POLICY_ALLOW, rule: 9 });
    });
    let open = Connection::open(&mut net, CLIENT, WEB, syn(2000, 80));
    open.assert_works(&mut net);
    // Decided again, both directions are what they were.
    apply(&mut net, |tables| tables.routes.values_mut().for_each(|route| route.zero ^= 1));
    let on = open.assert_goes_on(&mut net);
    assert!(on.verdict.slow);
    let reply = open.replies(&mut net);
    assert!(reply.verdict.slow);
    open.assert_answered(&reply);
    apply(&mut net, |tables| {
        for (key, rule) in std::mem::take(&mut tables.policies) {
            let port = if key.port == Be16::new(8080) { Be16::new(80) } else { key.port };
            tables.policies.insert(PolicyKey { port, ..key }, rule);
        }
    });
    for from in 2001..2020 {
        assert_drop(&net.send(CLIENT, WEB, syn(from, 80)), Reason::PolicyIngress);
    }
    assert_eq!(explain(&net, CLIENT, EMPTY, syn(1, 80)).verdict.reason, Reason::ServiceEmpty);
}
