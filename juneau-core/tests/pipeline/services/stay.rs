//! Which connections stay where they are when Services and Pods change.

use super::common::{
    A, B, C, CLIENT, Connection, D, apply, assert_reset, backend_of, choose_among, delete, frontend, goes, inner,
    port_to, stops_serving, tuple,
};
use crate::common::{Net, assert_answer, assert_drop, assert_peer, frame};
use juneau_core::flow::{FlowRead as _, FlowTable as _, TCP_ACK, TCP_RST};
use juneau_core::layout::{
    Backend, Be16, EP_LOCAL, EndpointKey, FLOW_EMBRYONIC, Flow, FlowKey, FrontendKey, SCOPE_OVERLAY, be32,
};
use juneau_core::packet::{IP_TCP, IP_UDP};
use juneau_core::tables::Diff;
use juneau_core::testkit::packets::{Layer4, data, syn, syn_ack, udp, vxlan};
use juneau_core::testkit::services::WEB;
use juneau_core::testkit::topology::{Pod, vtep};
use juneau_core::verdict::Reason;

const TCP: FrontendKey = frontend(0, WEB, 80, IP_TCP);
const UDP: FrontendKey = frontend(0, WEB, 53, IP_UDP);
/// The backends of UDP port 53, of this node and of the other.
const RESOLVERS: [Pod; 2] = [CLIENT, Pod::new(0, 1, 21)];

/// Every route is written anew, so that every record of the VPC is stale.
fn unrelated(net: &mut Net) {
    apply(net, |tables| tables.routes.values_mut().for_each(|route| route.zero ^= 1));
}

#[test]
fn a_backend_that_comes_moves_nobody_and_re_decides_nothing() {
    let mut net = Net::new();
    apply(&mut net, |tables| {
        let ids = [B, C].map(|pod| backend_of(tables, &TCP, pod).0);
        choose_among(tables, &TCP, &ids);
        let (id, _) = backend_of(tables, &UDP, RESOLVERS[0]);
        choose_among(tables, &UDP, &[id]);
    });
    let mut connections: Vec<_> = (2000..2040).map(|from| Connection::open(&mut net, A, WEB, syn(from, 80))).collect();
    connections.extend((2000..2040).map(|from| Connection::open(&mut net, A, WEB, udp(from, 53, 10))));
    assert!(connections.iter().all(|connection| ![A, D, RESOLVERS[1]].contains(&connection.backend)));
    apply(&mut net, |tables| {
        let ids = [A, B, C, D].map(|pod| backend_of(tables, &TCP, pod).0);
        choose_among(tables, &TCP, &ids);
        let ids = RESOLVERS.map(|pod| backend_of(tables, &UDP, pod).0);
        choose_among(tables, &UDP, &ids);
    });
    for connection in &connections {
        assert!(!connection.assert_goes_on(&mut net).verdict.slow);
        assert!(!connection.replies(&mut net).verdict.slow);
        connection.assert_works(&mut net);
    }
    let new = (3000..3040).map(|from| Connection::open(&mut net, A, WEB, syn(from, 80)).backend);
    assert!(new.collect::<Vec<_>>().contains(&D), "the control: new connections reach it");
    // Not even when all is decided anew.
    unrelated(&mut net);
    for connection in &connections {
        assert!(connection.assert_goes_on(&mut net).verdict.slow);
        connection.assert_works(&mut net);
    }
}

#[test]
fn datagrams_leave_a_backend_that_stops_serving() {
    for [stops, other] in [RESOLVERS, [RESOLVERS[1], RESOLVERS[0]]] {
        let mut net = Net::new();
        let from = port_to(&net, A, WEB, stops, 2000, |from| udp(from, 53, 10));
        let staying = port_to(&net, A, WEB, other, 2000, |from| udp(from, 53, 10));
        let old = Connection::open(&mut net, A, WEB, udp(from, 53, 10));
        let stays = Connection::open(&mut net, A, WEB, udp(staying, 53, 10));
        let (forward, _) = old.records(&net);
        apply(&mut net, |tables| stops_serving(tables, &UDP, stops));
        assert!(!stays.assert_goes_on(&mut net).verdict.slow, "another's flow is not decided again");
        // What the old one says still is its answer, until the client speaks.
        let late = old.replies(&mut net);
        old.assert_answered(&late);
        let new = Connection::open(&mut net, A, WEB, udp(from, 53, 10));
        assert_eq!(new.backend, other);
        assert_eq!(net.0[0].flows.lookup(&forward.peer).unwrap(), None, "the old way of answers is gone");
        new.assert_works(&mut net);
        let late = old.replies(&mut net);
        if late.verdict.is_delivered() {
            assert_eq!(tuple(&late.frame).0, stops.address(), "its own datagram, not the Service's");
        }
        assert_eq!(net.0[0].flows.lookup(&new.key()).unwrap().unwrap().peer.source, be32(other.address()));
    }
}

#[test]
fn datagrams_leave_an_id_that_has_become_somebody_elses() {
    // Another Service's, another VPC's, another Pod's, another port's.
    let changes: [fn(&mut Backend); 4] = [
        |backend| backend.service = 99,
        |backend| backend.vpc += 1,
        |backend| backend.address = be32(A.address()),
        |backend| backend.port = Be16::new(5353),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let [first, other] = RESOLVERS;
        let mut net = Net::new();
        let from = port_to(&net, B, WEB, first, 2000, |from| udp(from, 53, 10));
        let old = Connection::open(&mut net, B, WEB, udp(from, 53, 10));
        assert_eq!(old.backend, first);
        apply(&mut net, |tables| {
            let (id, mut record) = backend_of(tables, &UDP, first);
            let (rest, _) = backend_of(tables, &UDP, other);
            change(&mut record);
            tables.backends.insert(id, record.tagged());
            choose_among(tables, &UDP, &[rest]);
        });
        assert_eq!(Connection::open(&mut net, B, WEB, udp(from, 53, 10)).backend, other, "{n}");
    }
}

#[test]
fn datagrams_of_a_service_whose_last_backend_stops_are_answered() {
    let mut net = Net::new();
    let old = Connection::open(&mut net, A, WEB, udp(2000, 53, 10));
    apply(&mut net, |tables| RESOLVERS.iter().for_each(|pod| stops_serving(tables, &UDP, *pod)));
    apply(&mut net, |tables| choose_among(tables, &UDP, &[]));
    assert_answer(&old.says(&mut net), Reason::ServiceEmpty, A);
}

#[test]
fn a_connection_stays_with_a_backend_that_serves_no_more() {
    for backend in [A, B, C, D] {
        let mut net = Net::new();
        let from = port_to(&net, CLIENT, WEB, backend, 2000, |from| syn(from, 80));
        let connection = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
        assert_eq!(connection.backend, backend);
        apply(&mut net, |tables| stops_serving(tables, &TCP, backend));
        let reply = connection.replies(&mut net);
        connection.assert_answered(&reply);
        let on = connection.assert_goes_on(&mut net);
        assert!(on.verdict.slow || backend.node() == 1);
        connection.assert_works(&mut net);
        for from in 3000..3030 {
            assert_ne!(Connection::begin(&mut net, CLIENT, WEB, syn(from, 80)).backend, backend);
        }
        // Even when its record is forgotten or becomes another Service's, as long as its Pod is there.
        apply(&mut net, |tables| {
            let (id, record) = backend_of(tables, &TCP, backend);
            let other = Backend { service: 99, ..record };
            tables.backends.insert(id, other.tagged());
        });
        connection.assert_works(&mut net);
    }
}

#[test]
fn an_opener_sent_again_leaves_a_backend_that_stops() {
    let mut net = Net::new();
    let from = port_to(&net, CLIENT, WEB, B, 2000, |from| syn(from, 80));
    let old = Connection::begin(&mut net, CLIENT, WEB, syn(from, 80));
    let (forward, _) = old.records(&net);
    apply(&mut net, |tables| stops_serving(tables, &TCP, B));
    let new = Connection::begin(&mut net, CLIENT, WEB, syn(from, 80));
    assert_ne!(new.backend, B);
    assert_eq!(net.0[0].flows.lookup(&forward.peer).unwrap(), None);
    let (forward, reverse) = new.records(&net);
    assert!(forward.has(FLOW_EMBRYONIC) && reverse.has(FLOW_EMBRYONIC));
    let state = net.0[0].flows.vpc_state(0).unwrap();
    assert_eq!((state.flows, state.embryonic), (1, 1));
    let answered = new.answers(&mut net, syn_ack(8080, from));
    new.assert_answered(&answered);
    assert_eq!(net.0[0].flows.vpc_state(0).unwrap().embryonic, 0);
    new.assert_works(&mut net);
}

#[test]
fn a_connection_whose_backend_is_gone_is_reset() {
    for backend in [B, C] {
        let mut net = Net::new();
        let from = port_to(&net, CLIENT, WEB, backend, 2000, |from| syn(from, 80));
        let connection = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
        apply(&mut net, |tables| goes(tables, &TCP, backend));
        let about = (CLIENT.address(), WEB, from, 80);
        let refused = net.send(CLIENT, WEB, data(from, 80, 10));
        assert_eq!(assert_reset(&refused, Reason::ServiceGone, CLIENT, about).0, TCP_RST);
        let end = Layer4::Tcp { source: from, destination: 80, flags: TCP_RST | TCP_ACK, payload: 0 };
        assert_drop(&net.send(CLIENT, WEB, end), Reason::ServiceGone);
        // An opener goes to another.
        assert_ne!(Connection::begin(&mut net, CLIENT, WEB, syn(from, 80)).backend, connection.backend);
    }
}

#[test]
fn a_connection_to_a_service_that_is_deleted_is_reset() {
    for backend in [B, C] {
        let mut net = Net::new();
        let from = port_to(&net, CLIENT, WEB, backend, 2000, |from| syn(from, 80));
        let connection = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
        apply(&mut net, |tables| delete(tables, &TCP));
        let refused = connection.says(&mut net);
        let about = (CLIENT.address(), WEB, from, 80);
        assert_eq!(assert_reset(&refused, Reason::ServiceGone, CLIENT, about).0, TCP_RST);
        assert_drop(&net.send(CLIENT, WEB, syn(from, 80)), Reason::ServiceUnknown);
        assert_peer(&net.send(CLIENT, backend.address(), syn(4000, 8080)), backend);
    }
}

#[test]
fn a_port_that_is_withdrawn_from_a_service_ends_its_connections() {
    let mut net = Net::new();
    let connection = Connection::open(&mut net, CLIENT, WEB, syn(2000, 80));
    let datagrams = Connection::open(&mut net, A, WEB, udp(2000, 53, 10));
    apply(&mut net, |tables| {
        tables.frontends.remove(&TCP);
        tables.frontends.remove(&UDP);
    });
    assert_answer(&connection.says(&mut net), Reason::ServiceGone, CLIENT);
    assert_answer(&datagrams.says(&mut net), Reason::ServicePort, A);
    assert_answer(&net.send(CLIENT, WEB, syn(2000, 80)), Reason::ServicePort, CLIENT);
}

#[test]
fn answers_never_choose() {
    for backend in [B, C] {
        let mut net = Net::new();
        let from = port_to(&net, CLIENT, WEB, backend, 2000, |from| syn(from, 80));
        let connection = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
        apply(&mut net, |tables| stops_serving(tables, &TCP, backend));
        for _ in 0..3 {
            unrelated(&mut net);
            let reply = connection.replies(&mut net);
            connection.assert_answered(&reply);
            assert!(reply.verdict.slow, "decided again");
        }
        let (forward, _) = connection.records(&net);
        assert_eq!(forward.peer.source, be32(backend.address()));
    }
}

#[test]
fn an_answer_whose_other_direction_is_gone_is_refused() {
    let mut net = Net::new();
    let from = port_to(&net, CLIENT, WEB, B, 2000, |from| syn(from, 80));
    let connection = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
    let (forward, _) = connection.records(&net);
    // Another connection has taken the client's place.
    let elsewhere = FlowKey { scope: FlowKey::scope(CLIENT.vni(), SCOPE_OVERLAY, 2), ..forward.peer };
    net.0[0].flows.replace(&connection.key(), &Flow { peer: elsewhere, ..forward }).unwrap();
    let reply = connection.replies(&mut net);
    connection.assert_answered(&reply);
    unrelated(&mut net);
    let reply = connection.replies(&mut net);
    let about = (B.address(), CLIENT.address(), 8080, from);
    assert_eq!(assert_reset(&reply, Reason::ServiceGone, B, about).0, TCP_RST);
}

#[test]
fn a_backend_that_moves_to_the_other_node_keeps_its_connections() {
    let mut net = Net::new();
    let from = port_to(&net, CLIENT, WEB, B, 2000, |from| syn(from, 80));
    let connection = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
    let (before, _) = connection.records(&net);
    let current = net.0[0].tables.content().clone();
    let mut wanted = current.clone();
    let record = wanted.endpoints.get_mut(&EndpointKey { vpc: B.vpc(), address: be32(B.address()) }).unwrap();
    (record.flags, record.ifindex, record.vtep) = (record.flags & !EP_LOCAL, 0, be32(vtep(1)));
    net.0[0].apply(&Diff::between(&current, &wanted)).unwrap();
    let sent = frame(CLIENT, WEB, data(from, 80, 10)).build();
    let outcome = net.raw(CLIENT, &sent);
    assert_eq!(outcome.verdict.vtep, vtep(1));
    assert_eq!(tuple(inner(&outcome)), connection.seen);
    assert_eq!(net.0[0].flows.lookup(&before.peer).unwrap(), None);
    let (forward, _) = connection.records(&net);
    assert_eq!(forward.peer, FlowKey { scope: FlowKey::scope(CLIENT.vni(), SCOPE_OVERLAY, 2), ..before.peer });
    let reply = frame(B, CLIENT.address(), data(8080, from, 10)).macs(CLIENT.gateway_mac(), CLIENT.mac());
    let arrived = net.underlay(0, &vxlan(vtep(1), vtep(0), CLIENT.vni(), 0, &reply.build()));
    connection.assert_answered(&arrived);
}
