//! Answers that would arrive alike: the later connection is given another port.

use super::common::{
    A, B, C, CLIENT, Connection, apply, assert_reset, backend_of, choose_among, counts, explain, frontend, inner, pod,
    port_to, tuple,
};
use crate::common::{NOW, Net, assert_answer, assert_drop, assert_peer};
use juneau_core::flow::{FlowRead as _, FlowTable as _, TCP_ACK, TCP_RST};
use juneau_core::layout::{
    Be16, FLOW_NAT, FLOW_REPLY, Flow, FlowKey, NAT_PORT_FIRST, PROTO_TCP, REWRITE_DESTINATION_PORT,
    REWRITE_SOURCE_PORT, SCOPE_OVERLAY, be32,
};
use juneau_core::packet::{IP_TCP, Icmp, Ipv4, view};
use juneau_core::pipeline::Limits;
use juneau_core::testkit::packets::{Layer4, assert_checksums, data, fin, sctp, syn, syn_ack};
use juneau_core::testkit::services::{SAME, SCTP, WEB};
use juneau_core::testkit::topology::{self, Pod};
use juneau_core::verdict::Reason;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// A direct connection of the client to a Pod's port 8080.
struct Direct {
    to: Pod,
    from: u16,
    seen: u16,
}

impl Direct {
    #[track_caller]
    fn open(net: &mut Net, to: Pod, from: u16) -> Self {
        let opened = net.send(CLIENT, to.address(), syn(from, 8080));
        assert_peer(&opened, to);
        assert_checksums(&opened.frame);
        let (source, destination, seen, port) = tuple(&opened.frame);
        assert_eq!((source, destination, port), (CLIENT.address(), to.address(), 8080));
        let direct = Self { to, from, seen };
        direct.replies(net, syn_ack(8080, seen));
        direct
    }

    #[track_caller]
    fn replies(&self, net: &mut Net, layer4: Layer4) {
        let reply = net.send(self.to, CLIENT.address(), layer4);
        assert_peer(&reply, CLIENT);
        assert_checksums(&reply.frame);
        assert_eq!(tuple(&reply.frame), (self.to.address(), CLIENT.address(), 8080, self.from));
    }

    #[track_caller]
    fn assert_works(&self, net: &mut Net) {
        let on = net.send(CLIENT, self.to.address(), data(self.from, 8080, 10));
        assert_peer(&on, self.to);
        assert_checksums(&on.frame);
        assert_eq!(tuple(&on.frame), (CLIENT.address(), self.to.address(), self.seen, 8080));
        self.replies(net, data(8080, self.seen, 10));
    }
}

/// What a Service leads to from a port, a Pod with the client's other connections.
fn common_port(net: &Net, backend: Pod) -> u16 {
    let leads = |service, port, from| {
        let outcome = explain(net, CLIENT, service, syn(from, port));
        tuple(inner(&outcome)).1 == backend.address()
    };
    (2000..3000).find(|from| leads(WEB, 80, *from) && leads(SAME, 8080, *from)).unwrap()
}

#[test]
fn two_services_and_a_direct_connection_with_one_port_and_one_backend() {
    for backend in [A, B] {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut net = Net::new();
            let from = common_port(&net, backend);
            let (mut connections, mut directs, mut seen) = (Vec::new(), Vec::new(), Vec::new());
            for which in order {
                if which == 2 {
                    let direct = Direct::open(&mut net, backend, from);
                    seen.push(direct.seen);
                    directs.push(direct);
                } else {
                    let (service, port) = [(WEB, 80), (SAME, 8080)][which];
                    let connection = Connection::open(&mut net, CLIENT, service, syn(from, port));
                    assert_eq!(connection.backend, backend);
                    seen.push(connection.seen.2);
                    connections.push(connection);
                }
            }
            assert_eq!(seen[0], from, "the first keeps its port");
            assert!(seen[1] != from && seen[2] != from && seen[1] != seen[2], "{seen:?}");
            assert!(seen[1..].iter().all(|port| u32::from(*port) >= NAT_PORT_FIRST));
            for _ in 0..2 {
                connections.iter().for_each(|connection| connection.assert_works(&mut net));
                directs.iter().for_each(|direct| direct.assert_works(&mut net));
                // Decided again, each keeps its port.
                apply(&mut net, |tables| tables.routes.values_mut().for_each(|route| route.zero ^= 1));
            }
            assert_eq!(counts(&net)[0], 6, "three connections");
            assert_eq!(net.0[0].flows.vpc_state(0).unwrap().flows, 3);
        }
    }
}

#[test]
fn the_same_with_a_backend_of_another_node() {
    let mut net = Net::new();
    let from = port_to(&net, CLIENT, WEB, C, 2000, |from| syn(from, 80));
    let direct = Direct::open(&mut net, C, from);
    let service = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
    assert_eq!(service.backend, C);
    assert_ne!(service.seen.2, from);
    let (forward, reverse) = service.records(&net);
    assert_eq!(forward.peer.scope, FlowKey::scope(CLIENT.vni(), SCOPE_OVERLAY, PROTO_TCP));
    assert_eq!(forward.rewrite & REWRITE_SOURCE_PORT, REWRITE_SOURCE_PORT);
    assert_eq!(reverse.rewrite & REWRITE_DESTINATION_PORT, REWRITE_DESTINATION_PORT);
    for _ in 0..2 {
        direct.assert_works(&mut net);
        service.assert_works(&mut net);
        apply(&mut net, |tables| tables.routes.values_mut().for_each(|route| route.zero ^= 1));
    }
}

#[test]
fn a_port_that_was_given_is_kept_when_the_own_one_is_free_again() {
    for backend in [B, C] {
        let mut net = Net::new();
        let from = port_to(&net, CLIENT, WEB, backend, 2000, |from| syn(from, 80));
        let ends = |net: &mut Net, to: Ipv4Addr, port: u16, seen: u16| {
            assert_peer(&net.send(CLIENT, to, fin(from, port)), backend);
            assert_peer(&net.send(backend, CLIENT.address(), fin(8080, seen)), CLIENT);
            for node in &mut net.0 {
                node.expire(NOW.later(11), usize::MAX);
            }
            apply(net, |tables| tables.routes.values_mut().for_each(|route| route.zero ^= 1));
        };
        Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
        let direct = Direct::open(&mut net, backend, from);
        assert_ne!(direct.seen, from);
        ends(&mut net, WEB, 80, from);
        assert_eq!(counts(&net)[0], 2);
        direct.assert_works(&mut net);

        let mut net = Net::new();
        Direct::open(&mut net, backend, from);
        let connection = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
        assert_ne!(connection.seen.2, from);
        ends(&mut net, backend.address(), 8080, from);
        assert_eq!(counts(&net)[0], 2);
        connection.assert_works(&mut net);
    }
}

/// Has somebody hold every port that answers could arrive at.
fn hold(net: &mut Net, backend: Pod, ports: impl Iterator<Item = u16>) {
    for port in ports {
        let key = FlowKey {
            scope: FlowKey::scope(CLIENT.vpc(), 0, PROTO_TCP),
            source: be32(backend.address()),
            destination: be32(CLIENT.address()),
            source_port: Be16::new(8080),
            destination_port: Be16::new(port),
        };
        assert!(net.0[0].flows.replace(&key, &Flow { flags: FLOW_REPLY, ..Flow::default() }).unwrap());
    }
}

#[test]
fn when_every_port_that_is_tried_is_taken() {
    let limits = Limits { flows: 200_000, ..Limits::default() };
    let make = || Net([topology::node_with(0, &limits), topology::node(1)]);
    let mut net = make();
    let from = port_to(&net, CLIENT, WEB, B, 2000, |from| syn(from, 80));
    let all = || (NAT_PORT_FIRST as u16)..=u16::MAX;
    hold(&mut net, B, all());
    let before = net.0[0].flows.clone();
    let refused = net.send(CLIENT, WEB, syn(from, 80));
    assert_reset(&refused, Reason::NatPorts, CLIENT, (CLIENT.address(), WEB, from, 80));
    assert_eq!(before.iter().count(), counts(&net)[0], "nothing is half made");
    assert_eq!(net.0[0].flows.vpc_state(0).unwrap().flows, 0);

    // The ports that are tried are 64, of which the last one will do.
    let mut tried = BTreeSet::new();
    loop {
        let mut net = make();
        let taken: Vec<_> = std::iter::once(from).chain(tried.iter().copied()).collect();
        hold(&mut net, B, taken.into_iter());
        let outcome = net.send(CLIENT, WEB, syn(from, 80));
        if !outcome.verdict.is_delivered() {
            assert_eq!(outcome.verdict.reason, Reason::NatPorts);
            break;
        }
        assert!(tried.insert(tuple(&outcome.frame).2));
    }
    assert_eq!(tried.len(), 63);
    let low = tried.iter().filter(|port| u32::from(**port) < 0x8000).count();
    assert!((10..=50).contains(&low), "from the whole range: {tried:?}");
}

#[test]
fn other_connections_try_other_ports() {
    let mut net = Net::new();
    let mut seen = BTreeSet::new();
    let mut from = 2000;
    for _ in 0..20 {
        from = port_to(&net, CLIENT, WEB, B, from + 1, |from| syn(from, 80));
        hold(&mut net, B, std::iter::once(from));
        seen.insert(Connection::begin(&mut net, CLIENT, WEB, syn(from, 80)).seen.2);
    }
    assert_eq!(seen.len(), 20);
}

#[test]
fn a_direct_connection_is_translated_only_where_it_must_be() {
    let mut net = Net::new();
    let direct = Direct::open(&mut net, B, 2000);
    assert_eq!(direct.seen, 2000);
    direct.assert_works(&mut net);
    assert!(net.0.iter().all(|node| node.flows.iter().all(|(_, flow)| !flow.has(FLOW_NAT))));
}

#[test]
fn ports_that_are_used_again_leave_nothing_of_the_old_choice() {
    for end in [TCP_RST | TCP_ACK, TCP_RST] {
        let mut net = Net::new();
        let from = port_to(&net, CLIENT, WEB, B, 2000, |from| syn(from, 80));
        let old = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
        let (forward, _) = old.records(&net);
        let closing = Layer4::Tcp { source: from, destination: 80, flags: end, payload: 0 };
        assert_peer(&net.send(CLIENT, WEB, closing), B);
        apply(&mut net, |tables| {
            let key = frontend(0, WEB, 80, IP_TCP);
            let (id, _) = backend_of(tables, &key, A);
            choose_among(tables, &key, &[id]);
        });
        let new = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
        assert_eq!(new.backend, A);
        new.assert_works(&mut net);
        assert_eq!(net.0[0].flows.lookup(&forward.peer).unwrap(), None);
        assert_eq!((counts(&net)[0], net.0[0].flows.vpc_state(0).unwrap().flows), (2, 1));
        let late = net.send(B, CLIENT.address(), data(8080, from, 5));
        assert_peer(&late, CLIENT);
        assert_eq!(tuple(&late.frame).0, B.address(), "for itself, not for the Service");
    }
}

#[test]
fn a_backend_that_opens_a_connection_from_its_port_after_the_end_is_counted_once() {
    let mut net = Net::new();
    let from = port_to(&net, CLIENT, WEB, B, 2000, |from| syn(from, 80));
    let old = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
    assert_peer(&net.send(CLIENT, WEB, fin(from, 80)), B);
    old.assert_answered(&old.answers(&mut net, fin(8080, from)));
    let opened = net.send(B, CLIENT.address(), syn(8080, from));
    assert_peer(&opened, CLIENT);
    assert_eq!(tuple(&opened.frame), (B.address(), CLIENT.address(), 8080, from), "untranslated");
    let answer = net.send(CLIENT, B.address(), syn_ack(from, 8080));
    assert_peer(&answer, B);
    let node = &mut net.0[0];
    let forward = node.flows.iter().filter(|(_, flow)| !flow.has(FLOW_REPLY)).count();
    assert_eq!(node.flows.vpc_state(0).unwrap().flows, forward as i64);
    node.expire(NOW.later(10_000), usize::MAX);
    assert_eq!((node.flows.iter().count(), node.flows.vpc_state(0).unwrap().flows), (0, 0));
}

#[test]
fn a_given_port_rests_after_the_end_but_for_its_own_client() {
    let mut net = Net::new();
    let from = common_port(&net, B);
    let first = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
    let second = Connection::open(&mut net, CLIENT, SAME, syn(from, 8080));
    assert_ne!(second.seen.2, from);
    for connection in [first, second] {
        assert_peer(&net.send(CLIENT, connection.service, fin(from, connection.port)), B);
        connection.assert_answered(&connection.answers(&mut net, fin(8080, connection.seen.2)));
    }
    let left = |net: &Net, connection: &Connection| net.0[0].flows.lookup(&connection.key()).unwrap().is_some();
    net.0[0].expire(NOW.later(11), usize::MAX);
    assert!(!left(&net, &first), "an own port does not rest");
    net.0[0].expire(NOW.later(60), usize::MAX);
    assert!(left(&net, &second));
    // Its own client has it again at once.
    let mut again = Net(net.0.clone());
    assert_eq!(Connection::open(&mut again, CLIENT, SAME, syn(from, 8080)).backend, B);
    net.0[0].expire(NOW.later(61), usize::MAX);
    assert!(!left(&net, &second));
    assert_eq!(counts(&net)[0], 0);
}

#[test]
fn sctp_keeps_its_port_and_is_given_no_other() {
    let mut net = Net::new();
    let opened = net.send(CLIENT, SCTP, sctp(2000, 2905));
    let to = pod(0, tuple(&opened.frame).1);
    assert_peer(&opened, to);
    assert_eq!(tuple(&opened.frame), (CLIENT.address(), to.address(), 2000, 2905));
    assert_eq!(&opened.frame[38..], &[0; 8], "its checksum does not cover addresses");
    let answer = net.send(to, CLIENT.address(), sctp(2905, 2000));
    assert_peer(&answer, CLIENT);
    assert_eq!(tuple(&answer.frame), (SCTP, CLIENT.address(), 2905, 2000));

    // A connection to the backend itself has the port.
    let mut net = Net::new();
    assert_peer(&net.send(CLIENT, to.address(), sctp(2000, 2905)), to);
    let refused = net.send(CLIENT, SCTP, sctp(2000, 2905));
    assert_answer(&refused, Reason::NatPorts, CLIENT);
    let (ip, rest) = view::<Ipv4>(&refused.frame[14..]).unwrap();
    let (icmp, _) = view::<Icmp>(rest).unwrap();
    assert_eq!((ip.source, icmp.kind, icmp.code), (be32(CLIENT.gateway()), 3, 13));
    assert_eq!(counts(&net)[0], 2);
    // And the other way round: who comes second is refused.
    let mut net = Net::new();
    assert!(net.send(CLIENT, SCTP, sctp(2000, 2905)).verdict.is_delivered());
    assert_answer(&net.send(CLIENT, to.address(), sctp(2000, 2905)), Reason::NatPorts, CLIENT);
}

#[test]
fn connections_count_once_and_nothing_is_half_made() {
    let limits = |flows| Limits { flows, ..Limits::default() };
    for room in 0..4 {
        let mut net = Net([topology::node_with(0, &limits(room)), topology::node(1)]);
        let outcome = net.send(CLIENT, WEB, syn(2000, 80));
        let expected = if room < 2 { Reason::FlowMapFull } else { Reason::Ok };
        assert_eq!(outcome.verdict.reason, expected);
        let made = if room < 2 { 0 } else { 2 };
        assert_eq!(net.0[0].flows.iter().count(), made, "{room}");
        let state = net.0[0].flows.vpc_state(0).unwrap();
        assert_eq!((state.flows, state.embryonic), (made as i64 / 2, made as i64 / 2));
    }
    let mut net = Net::new();
    apply(&mut net, |tables| tables.vpcs.get_mut(&0).unwrap().flow_limit = 2);
    Connection::open(&mut net, CLIENT, WEB, syn(2000, 80));
    Connection::open(&mut net, CLIENT, WEB, syn(2001, 80));
    let refused = net.send(CLIENT, WEB, syn(2002, 80));
    assert_drop(&refused, Reason::QuotaFlows);
    assert_eq!((counts(&net)[0], net.0[0].flows.vpc_state(0).unwrap().embryonic), (4, 0));
}
