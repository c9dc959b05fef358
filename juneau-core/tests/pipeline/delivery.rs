//! Who reaches whom, and what the packet looks like there.

use crate::common::{Net, assert_answer, assert_drop, assert_peer, frame};
use juneau_core::packet::{Ethernet, Ipv4, Udp, Vxlan, view};
use juneau_core::testkit::packets::{assert_checksums, data, decapsulated, echo, echo_reply, syn, syn_ack, udp};
use juneau_core::testkit::topology::{Pod, pods, vtep};
use juneau_core::verdict::{Action, Reason};

fn headers(bytes: &[u8]) -> (Ethernet, Ipv4) {
    let (ethernet, rest) = view::<Ethernet>(bytes).unwrap();
    let (ip, _) = view::<Ipv4>(rest).unwrap();
    (*ethernet, *ip)
}

#[test]
fn every_pod_reaches_every_pod_of_its_tenant_and_is_answered() {
    for protocol in 0..3 {
        let mut net = Net::new();
        let mut port = 10_000;
        for from in pods() {
            for to in pods().into_iter().filter(|to| to.tenant == from.tenant && *to != from) {
                port += 1;
                let (ask, answer) = match protocol {
                    0 => (echo(port), echo_reply(port)),
                    1 => (syn(port, 80), syn_ack(80, port)),
                    _ => (udp(port, 53, 10), udp(53, port, 10)),
                };
                let outcome = net.send(from, to.address(), ask.clone());
                assert_peer(&outcome, to);
                assert!(outcome.verdict.slow);
                assert_checksums(&outcome.frame);
                let outcome = net.send(to, from.address(), answer);
                assert_peer(&outcome, from);
                assert_checksums(&outcome.frame);
                let again = net.send(from, to.address(), ask);
                assert_peer(&again, to);
                assert!(!again.verdict.slow, "{from:?} to {to:?}: the second packet is a hit");
            }
        }
    }
}

#[test]
fn same_subnet_keeps_ttl_and_macs() {
    let mut net = Net::new();
    let (from, to) = (Pod::new(0, 1, 10), Pod::new(0, 1, 11));
    let sent = frame(from, to.address(), data(1000, 80, 5)).build();
    let outcome = net.raw(from, &sent);
    assert_peer(&outcome, to);
    assert_eq!(outcome.frame, sent);
}

#[test]
fn routing_lowers_the_ttl_and_comes_from_the_gateway() {
    for to in [Pod::new(0, 2, 10), Pod::new(0, 2, 20)] {
        let mut net = Net::new();
        let from = Pod::new(0, 1, 10);
        for _ in ["miss", "hit"] {
            let outcome = net.send(from, to.address(), udp(1000, 53, 5));
            assert_peer(&outcome, to);
            let (ethernet, ip) = headers(&outcome.frame);
            assert_eq!((ethernet.source, ethernet.destination), (to.gateway_mac(), to.mac()));
            assert_eq!(ip.ttl, 63);
            assert_checksums(&outcome.frame);
        }
    }
}

#[test]
fn between_nodes_the_packet_is_vxlan() {
    let mut net = Net::new();
    let (from, to) = (Pod::new(1, 1, 10), Pod::new(1, 2, 21));
    let mut sent = frame(from, to.address(), udp(1000, 53, 5));
    sent.tos = 0xb9;
    let outcome = net.raw(from, &sent.build());
    assert_eq!((outcome.verdict.action, outcome.verdict.reason), (Action::Encap, Reason::Ok));
    assert_eq!((outcome.verdict.vtep, outcome.verdict.vni, outcome.verdict.ifindex), (vtep(1), to.vni(), 0));
    assert_checksums(&outcome.frame);
    let (_, outer) = headers(&outcome.frame);
    assert_eq!((outer.ttl, outer.tos, outer.dont_fragment(), outer.id.get()), (64, 0xb9, true, 0));
    let (udp_header, rest) = view::<Udp>(&outcome.frame[34..]).unwrap();
    assert_eq!((udp_header.destination_port.get(), udp_header.checksum.get()), (4789, 0));
    assert!(udp_header.source_port.get() >= 0x8000);
    let (vxlan, inner) = view::<Vxlan>(rest).unwrap();
    assert_eq!((vxlan.flags, vxlan.vni()), (8, to.vni()));
    assert_eq!(inner, decapsulated(&outcome.frame));
    assert_checksums(inner);
    let received = net.underlay(1, &outcome.frame);
    assert_peer(&received, to);
    assert_eq!(received.frame, inner, "delivered as it was sent");
}

#[test]
fn flows_of_a_node_spread_over_outer_ports() {
    let mut net = Net::new();
    let (from, to) = (Pod::new(0, 1, 10), Pod::new(0, 1, 20));
    let mut ports = std::collections::BTreeSet::new();
    for port in 0..200 {
        let outcome = net.raw(from, &frame(from, to.address(), udp(port, 53, 0)).build());
        ports.insert(view::<Udp>(&outcome.frame[34..]).unwrap().0.source_port.get());
    }
    assert!(ports.len() > 150, "{}", ports.len());
}

#[test]
fn the_gateway_and_strangers_are_no_destinations() {
    let mut net = Net::new();
    let from = Pod::new(0, 1, 10);
    assert_drop(&net.send(from, from.gateway(), echo(1)), Reason::Gateway);
    assert_answer(&net.send(from, from.address(), echo(1)), Reason::RouteUnreachable, from);
    let stranger = std::net::Ipv4Addr::new(10, 0, 1, 99);
    assert_answer(&net.send(from, stranger, echo(1)), Reason::NoEndpoint, from);
}

#[test]
fn all_24_bits_of_a_vni_travel() {
    use juneau_core::layout::{EndpointKey, MacKey, be32};
    use juneau_core::tables::Diff;
    let mut net = Net::new();
    let (from, to) = (Pod::new(0, 1, 10), Pod::new(0, 2, 20));
    for vni in [0x00ff_ffff, 0x0080_0001] {
        for node in 0..2 {
            let current = net.0[node].tables.content().clone();
            let mut wanted = current.clone();
            wanted.endpoints.get_mut(&EndpointKey { vpc: to.vpc(), address: be32(to.address()) }).unwrap().vni = vni;
            wanted.segments.insert(vni, current.segments[&to.vni()]);
            if let Some(mac) = current.macs.get(&MacKey::new(to.vni(), to.mac())) {
                wanted.macs.insert(MacKey::new(vni, to.mac()), *mac);
            }
            net.0[node].apply(&Diff::between(&current, &wanted)).unwrap();
        }
        let outcome = net.raw(from, &frame(from, to.address(), udp(1000, 53, 5)).build());
        assert_eq!(outcome.verdict.vni, vni);
        assert_peer(&net.underlay(1, &outcome.frame), to);
    }
}
