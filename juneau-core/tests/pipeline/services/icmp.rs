//! ICMP errors about translated flows: they come from whom the sender spoke to, and quote what it sent.

use super::common::{A, A2, B, C, CLIENT, Connection, apply, counts, port_to, tuple};
use crate::common::{Net, assert_drop, assert_node, assert_peer, frame};
use juneau_core::flow::FlowRead as _;
use juneau_core::packet::{ICMP_UNREACHABLE, Icmp, Ipv4, Udp, checksum, view};
use juneau_core::pipeline::Outcome;
use juneau_core::testkit::packets::{
    Frame, Layer4, assert_checksums, data, decapsulated, icmp_error, sctp, syn, udp, vxlan,
};
use juneau_core::testkit::services::{HOST, SAME, SCTP, SELF, WEB};
use juneau_core::testkit::topology::{Pod, vtep};
use juneau_core::verdict::{Action, Reason};
use std::net::Ipv4Addr;

const RESOLVERS: [Pod; 2] = [CLIENT, Pod::new(0, 1, 21)];
const PORT: u8 = 3;
const TOO_LARGE: u8 = 4;

/// An error of a Pod about a frame as it met it, to whom that frame names as its sender.
fn error(from: Pod, code: u8, about: &[u8]) -> Frame {
    let mut layer4 = icmp_error(ICMP_UNREACHABLE, code, about);
    if let Layer4::Icmp { sequence, .. } = &mut layer4 {
        *sequence = if code == TOO_LARGE { 1300 } else { 0 };
    }
    frame(from, tuple(about).0, layer4)
}

/// An error that comes from `source` and quotes the packet that `to` sent, in every byte of its header but the TTL.
#[track_caller]
fn assert_error(outcome: &Outcome, to: Pod, source: Ipv4Addr, code: u8, sent: &[u8]) {
    assert_peer(outcome, to);
    assert_told(&outcome.frame, source, code, sent);
}

#[track_caller]
fn assert_told(frame: &[u8], source: Ipv4Addr, code: u8, sent: &[u8]) {
    assert_checksums(frame);
    let (ip, rest) = view::<Ipv4>(&frame[14..]).unwrap();
    let (icmp, quote) = view::<Icmp>(rest).unwrap();
    assert_eq!((Ipv4Addr::from(ip.source.to_bytes()), icmp.kind, icmp.code), (source, 3, code));
    assert_eq!(Ipv4Addr::from(ip.destination.to_bytes()), tuple(sent).0);
    assert_eq!(icmp.sequence.get(), if code == TOO_LARGE { 1300 } else { 0 });
    assert_eq!(checksum(&quote[..20]), 0, "the quoted header's checksum");
    let (quoted, rest) = view::<Ipv4>(quote).unwrap();
    let (original, layer4) = view::<Ipv4>(&sent[14..]).unwrap();
    let plain = |ip: &Ipv4| Ipv4 { ttl: 0, checksum: Default::default(), ..*ip };
    assert_eq!(plain(quoted), plain(original));
    let (ports, _) = view::<Udp>(rest).unwrap();
    let (own, _) = view::<Udp>(layer4).unwrap();
    assert_eq!((ports.source_port, ports.destination_port), (own.source_port, own.destination_port));
    assert_eq!(rest[4..6], layer4[4..6]);
}

/// What the client sends, and as what it arrives.
fn both(net: &mut Net, connection: &Connection, layer4: Layer4) -> (Vec<u8>, Vec<u8>) {
    let sent = frame(connection.client, connection.service, layer4).build();
    let arrived = net.send(connection.client, connection.service, frame_of(&sent, connection));
    assert_peer(&arrived, connection.backend);
    (sent, arrived.frame)
}

/// The layer 4 of a datagram or a segment of the connection's client.
fn frame_of(sent: &[u8], connection: &Connection) -> Layer4 {
    match connection.protocol {
        6 => data(connection.from, connection.port, sent.len() - 54),
        _ => udp(connection.from, connection.port, sent.len() - 42),
    }
}

#[test]
fn a_backends_errors_come_from_the_service() {
    for backend in RESOLVERS {
        let mut net = Net::new();
        let from = port_to(&net, A, WEB, backend, 2000, |from| udp(from, 53, 20));
        let connection = Connection::begin(&mut net, A, WEB, udp(from, 53, 20));
        let (sent, met) = both(&mut net, &connection, udp(from, 53, 20));
        let before = counts(&net);
        for code in [PORT, TOO_LARGE] {
            let outcome = net.send_frame(backend, &error(backend, code, &met));
            assert_error(&outcome, A, WEB, code, &sent);
        }
        assert_eq!(counts(&net), before, "no record of its own");
        let embryonic = net.0[0].flows.vpc_state(0).unwrap().embryonic;
        assert_eq!(embryonic, 1, "an error is no answer");
    }
}

#[test]
fn a_clients_errors_about_answers_go_to_the_backend() {
    for backend in [B, C] {
        let mut net = Net::new();
        let from = port_to(&net, CLIENT, WEB, backend, 2000, |from| syn(from, 80));
        let connection = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
        let sent = connection.answer(data(8080, from, 100)).build();
        let met = net.send_frame(backend, &connection.answer(data(8080, from, 100))).frame;
        for code in [PORT, TOO_LARGE] {
            let outcome = net.send_frame(CLIENT, &error(CLIENT, code, &met));
            assert_error(&outcome, backend, CLIENT.address(), code, &sent);
            assert_eq!((&outcome.frame[..6], outcome.frame[22]), (&backend.mac()[..], 63), "routed");
        }
        connection.assert_works(&mut net);
    }
}

#[test]
fn ports_that_were_given_are_turned_back() {
    for backend in [B, C] {
        let mut net = Net::new();
        let from = port_to(&net, CLIENT, WEB, backend, 2000, |from| syn(from, 80));
        // The direct connection has the port.
        assert_peer(&net.send(CLIENT, backend.address(), syn(from, 8080)), backend);
        let connection = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
        assert_ne!(connection.seen.2, from);
        let (sent, met) = both(&mut net, &connection, data(from, 80, 20));
        assert_error(&net.send_frame(backend, &error(backend, PORT, &met)), CLIENT, WEB, PORT, &sent);
        let sent = connection.answer(data(8080, connection.seen.2, 100));
        let met = net.send_frame(backend, &sent).frame;
        let outcome = net.send_frame(CLIENT, &error(CLIENT, TOO_LARGE, &met));
        assert_error(&outcome, backend, CLIENT.address(), TOO_LARGE, &sent.build());
    }
    // So are those of a direct connection that came second.
    for (backend, service, port) in [(B, SAME, 8080), (C, WEB, 80)] {
        let mut net = Net::new();
        let from = port_to(&net, CLIENT, service, backend, 2000, |from| syn(from, port));
        Connection::open(&mut net, CLIENT, service, syn(from, port));
        let sent = frame(CLIENT, backend.address(), syn(from, 8080)).build();
        let met = net.send(CLIENT, backend.address(), syn(from, 8080)).frame;
        let given = tuple(&met).2;
        assert_ne!(given, from);
        let outcome = net.send_frame(backend, &error(backend, PORT, &met));
        assert_error(&outcome, CLIENT, backend.address(), PORT, &sent);
    }
}

#[test]
fn a_pod_hears_errors_about_itself() {
    for client in [A, A2] {
        let mut net = Net::new();
        let connection = Connection::open(&mut net, client, SELF, udp(2000, 53, 20));
        let (sent, met) = both(&mut net, &connection, udp(2000, 53, 20));
        assert_eq!(tuple(&met).0, A.gateway());
        assert_error(&net.send_frame(A, &error(A, PORT, &met)), client, SELF, PORT, &sent);
        let reply = connection.answer(udp(8080, 2000, 30));
        let met = net.send_frame(A, &reply).frame;
        let outcome = net.send_frame(client, &error(client, PORT, &met));
        assert_error(&outcome, A, A.gateway(), PORT, &reply.build());
    }
}

#[test]
fn a_nodes_errors_come_from_the_service() {
    let mut net = Net::new();
    for from in 2000..2010 {
        let sent = frame(A, HOST, udp(from, 53, 20)).build();
        let met = net.send(A, HOST, udp(from, 53, 20));
        let node = usize::from(tuple(&met.frame).1 == vtep(1));
        assert_node(&met, node);
        let about = icmp_error(ICMP_UNREACHABLE, PORT, &met.frame);
        let outcome = net.host_sends(node, vtep(node), A.address(), about.clone());
        assert_error(&outcome, A, HOST, PORT, &sent);
        assert_drop(&net.host_sends(node, Pod::node_port(node).address(), A.address(), about), Reason::IcmpNoFlow);
    }
}

#[test]
fn sctp_and_segments_are_quoted_alike() {
    let mut net = Net::new();
    let sent = frame(CLIENT, SCTP, sctp(2000, 2905)).build();
    let met = net.send(CLIENT, SCTP, sctp(2000, 2905)).frame;
    let backend = super::common::pod(0, tuple(&met).1);
    assert_error(&net.send_frame(backend, &error(backend, PORT, &met)), CLIENT, SCTP, PORT, &sent);
    for backend in [B, C] {
        let from = port_to(&net, CLIENT, WEB, backend, 3000, |from| syn(from, 80));
        let connection = Connection::begin(&mut net, CLIENT, WEB, syn(from, 80));
        let (sent, met) = both(&mut net, &connection, data(from, 80, 20));
        assert_error(&net.send_frame(backend, &error(backend, PORT, &met)), CLIENT, WEB, PORT, &sent);
    }
}

#[test]
fn nobody_speaks_for_another() {
    for backend in [B, C] {
        let mut net = Net::new();
        let from = port_to(&net, CLIENT, WEB, backend, 2000, |from| syn(from, 80));
        let connection = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
        let (sent, met) = both(&mut net, &connection, data(from, 80, 20));
        // Neither as the backend nor as the Service, nor about a flow that is not.
        for meddler in [A, Pod::new(0, 1, 21), Pod::router(0)] {
            assert_drop(&net.send_frame(meddler, &error(meddler, PORT, &met)), Reason::IcmpNoFlow);
            assert_drop(&net.send_frame(meddler, &error(meddler, PORT, &sent)), Reason::IcmpNoFlow);
        }
        assert_drop(&net.send_frame(backend, &error(backend, PORT, &sent)), Reason::IcmpNoFlow);
        let strange = frame(CLIENT, backend.address(), data(from + 1, 8080, 20)).build();
        assert_drop(&net.send_frame(backend, &error(backend, PORT, &strange)), Reason::IcmpNoFlow);
        // Nor a tenant about the other's, where all addresses are the same.
        let other = Pod { tenant: 1, ..backend };
        assert_drop(&net.send_frame(other, &error(other, PORT, &met)), Reason::IcmpNoFlow);
        assert_error(&net.send_frame(backend, &error(backend, PORT, &met)), CLIENT, WEB, PORT, &sent);
        // The client to the Service, about what is no answer of it.
        let reply = frame(backend, CLIENT.address(), data(8080, from, 5)).build();
        assert_drop(&net.send_frame(CLIENT, &error(CLIENT, PORT, &reply)), Reason::IcmpNoFlow);
    }
}

#[test]
fn a_router_on_the_way_keeps_its_own_address() {
    let mut net = Net::new();
    let from = port_to(&net, CLIENT, WEB, C, 2000, |from| syn(from, 80));
    let connection = Connection::begin(&mut net, CLIENT, WEB, syn(from, 80));
    let (sent, met) = both(&mut net, &connection, data(from, 80, 20));
    let router = Ipv4Addr::new(10, 0, 1, 77);
    let told = Frame { source: router, ..error(C, TOO_LARGE, &met) }.macs(CLIENT.gateway_mac(), CLIENT.mac());
    let outcome = net.underlay(0, &vxlan(vtep(1), vtep(0), CLIENT.vni(), 0, &told.build()));
    assert_error(&outcome, CLIENT, router, TOO_LARGE, &sent);
}

#[test]
fn an_error_loses_ttl_where_it_is_routed_and_needs_some() {
    let mut net = Net::new();
    let from = port_to(&net, A, WEB, B, 2000, |from| syn(from, 80));
    let connection = Connection::begin(&mut net, A, WEB, syn(from, 80));
    let (sent, met) = both(&mut net, &connection, data(from, 80, 20));
    // They share a Subnet, but the error goes by the Service.
    let last = Frame { ttl: 1, ..error(B, PORT, &met) };
    assert_drop(&net.send_frame(B, &last), Reason::TtlExceeded);
    let outcome = net.send_frame(B, &Frame { ttl: 2, ..last });
    assert_error(&outcome, A, WEB, PORT, &sent);
    assert_eq!((outcome.frame[22], &outcome.frame[6..12]), (1, &A.gateway_mac()[..]));
}

#[test]
fn errors_are_translated_while_the_flow_is_stale() {
    let mut net = Net::new();
    let from = port_to(&net, CLIENT, WEB, C, 2000, |from| syn(from, 80));
    let connection = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
    let (sent, met) = both(&mut net, &connection, data(from, 80, 20));
    apply(&mut net, |tables| tables.routes.values_mut().for_each(|route| route.zero ^= 1));
    let outcome = net.raw(C, &error(C, PORT, &met).build());
    assert_eq!(outcome.verdict.action, Action::Encap);
    assert_eq!(tuple(decapsulated(&outcome.frame)).0, C.address(), "the backend's node knows of no Service");
    assert_error(&net.underlay(0, &outcome.frame), CLIENT, WEB, PORT, &sent);
}
