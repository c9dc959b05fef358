//! The way between nodes and Pods of their VPC.

use crate::common::{NOW, Net, assert_answer, assert_drop, assert_node, assert_peer, frame};
use juneau_core::flow::FlowRead;
use juneau_core::layout::{
    EGRESS, EGRESS_NODE, EP_LOCAL, EP_POLICY_READY, Endpoint, EndpointKey, FLOW_REPLY, FlowKey, INGRESS, POLICY_ALLOW,
    PROTO_UDP, Policy, PolicyKey, be32,
};
use juneau_core::pipeline::Packet;
use juneau_core::tables::{Diff, Tables};
use juneau_core::testkit::packets::{
    Frame, arp_request, assert_checksums, data, echo, echo_reply, icmp_error, syn, syn_ack, udp, vxlan,
};
use juneau_core::testkit::topology::{Pod, own_address, pods, vtep};
use juneau_core::verdict::{Hook, Reason};
use std::net::Ipv4Addr;

const HERE: Pod = Pod::new(0, 1, 10);
const BESIDE: Pod = Pod::new(0, 2, 10);
const THERE: Pod = Pod::new(0, 1, 20);
const STRANGER: Pod = Pod::new(1, 1, 10);

/// Changes the tables of node 0.
fn change(net: &mut Net, change: impl FnOnce(&mut Tables)) {
    let before = net.0[0].tables.content().clone();
    let mut wanted = before.clone();
    change(&mut wanted);
    net.0[0].apply(&Diff::between(&before, &wanted)).unwrap();
}

/// Removes every rule by which Pods of tenant 0 send, or receive, at node 0.
fn forbid(net: &mut Net, direction: u8) {
    let rule = |key: &PolicyKey| key.identity == HERE.identity() && key.direction == direction;
    change(net, |tables| tables.policies.retain(|key, _| !rule(key)));
}

/// Lets them send to nodes, or receive from them.
fn permit_nodes(net: &mut Net, direction: u8) {
    let peer = Pod::node_port(0).identity();
    let key = PolicyKey { identity: HERE.identity(), policy: 1, peer, direction, ..PolicyKey::default() };
    change(net, |tables| {
        tables.policies.insert(key, Policy { action: POLICY_ALLOW, rule: 3 });
    });
}

#[test]
fn a_node_reaches_every_pod_of_its_vpc_and_is_answered() {
    let mut net = Net::new();
    let mut port = 10_000;
    for node in 0..2 {
        for source in [Pod::node_port(node).address(), vtep(node)] {
            for pod in pods().into_iter().filter(|pod| pod.tenant == 0) {
                port += 1;
                let outcome = net.host_sends(node, source, pod.address(), syn(port, 80));
                assert_peer(&outcome, pod);
                assert!(outcome.verdict.slow);
                assert_checksums(&outcome.frame);
                let answer = net.send(pod, source, syn_ack(80, port));
                assert_node(&answer, node);
                assert_checksums(&answer.frame);
                assert_eq!(answer.frame[..6], Pod::node_port(node).mac());
                let again = net.host_sends(node, source, pod.address(), data(port, 80, 10));
                assert_peer(&again, pod);
                assert!(!again.verdict.slow, "the second packet is a hit");
            }
        }
    }
}

#[test]
fn a_pod_reaches_every_node_and_is_answered() {
    let mut net = Net::new();
    let mut port = 10_000;
    for node in 0..2 {
        for address in [Pod::node_port(node).address(), vtep(node)] {
            for pod in pods().into_iter().filter(|pod| pod.tenant == 0) {
                port += 1;
                let outcome = net.send(pod, address, syn(port, 6443));
                assert_node(&outcome, node);
                assert_eq!(outcome.frame[..6], Pod::node_port(node).mac());
                assert_checksums(&outcome.frame);
                assert_peer(&net.host_sends(node, address, pod.address(), syn_ack(6443, port)), pod);
                let again = net.send(pod, address, data(port, 6443, 10));
                assert_node(&again, node);
                assert!(!again.verdict.slow, "the second packet is a hit");
            }
        }
    }
}

#[test]
fn nodes_reach_each_other_by_their_node_ports() {
    let mut net = Net::new();
    let [one, two] = [0, 1].map(|node| Pod::node_port(node).address());
    assert_node(&net.host_sends(0, one, two, echo(7)), 1);
    assert_node(&net.host_sends(1, two, one, echo_reply(7)), 0);
    assert!(!net.host_sends(0, one, two, echo(7)).verdict.slow);
}

#[test]
fn an_address_that_other_nodes_do_not_know_serves_on_its_own_node() {
    let mut net = Net::new();
    assert_peer(&net.host_sends(0, own_address(0), HERE.address(), udp(1000, 53, 5)), HERE);
    assert_node(&net.send(HERE, own_address(0), udp(53, 1000, 5)), 0);
    assert_answer(&net.send(THERE, own_address(0), echo(1)), Reason::NoRoute, THERE);
}

#[test]
fn nobody_else_sends_through_a_node() {
    let mut net = Net::new();
    let outside = Ipv4Addr::new(203, 0, 113, 7);
    let others = [outside, HERE.address(), THERE.address(), own_address(1), vtep(1), Pod::node_port(1).address()];
    for source in others {
        assert_drop(&net.host_sends(0, source, BESIDE.address(), syn(1000, 80)), Reason::NodeSource);
    }
    // Even in the middle of a connection of the Pod whose address is taken.
    assert_peer(&net.send(HERE, BESIDE.address(), udp(1000, 53, 5)), BESIDE);
    assert_drop(&net.host_sends(0, HERE.address(), BESIDE.address(), udp(1000, 53, 5)), Reason::NodeSource);
    assert_peer(&net.host_sends(0, vtep(0), BESIDE.address(), udp(1000, 53, 5)), BESIDE);
}

#[test]
fn other_vpcs_and_nodes_do_not_meet() {
    let mut net = Net::new();
    for node in 0..2 {
        for address in [Pod::node_port(node).address(), vtep(node), own_address(0)] {
            let outcome = net.send(STRANGER, address, syn(1000, 6443));
            assert!(!outcome.verdict.is_delivered(), "{address}");
        }
    }
    // The Pod with that address in the node's own VPC answers, whoever has it in another.
    assert_peer(&net.host_sends(0, vtep(0), STRANGER.address(), syn(1000, 80)), HERE);
    // With the other VPC's VNI nobody is found.
    let port = Pod::node_port(0);
    let inner = Frame::new(THERE.address(), vtep(0), syn(1, 2)).macs(THERE.mac(), port.mac()).build();
    let outer = |vni| vxlan(vtep(1), vtep(0), vni, 0, &inner);
    assert_drop(&net.underlay(0, &outer(STRANGER.vni())), Reason::OverlayDestination);
    assert_node(&net.underlay(0, &outer(port.vni())), 0);
}

#[test]
fn from_another_node_only_addresses_of_this_one_are_delivered_to_it() {
    let mut net = Net::new();
    let port = Pod::node_port(0);
    let mut to = |address| {
        let inner = Frame::new(THERE.address(), address, syn(1, 2)).macs(THERE.mac(), port.mac()).build();
        net.underlay(0, &vxlan(vtep(1), vtep(0), port.vni(), 0, &inner))
    };
    for address in [vtep(1), HERE.address(), Pod::node_port(1).address(), Ipv4Addr::new(203, 0, 113, 7)] {
        assert_drop(&to(address), Reason::OverlayDestination);
    }
    assert_node(&to(vtep(0)), 0);
    assert_node(&to(own_address(0)), 0);
}

#[test]
fn the_own_node_is_always_let_in_and_others_are_judged() {
    let mut net = Net::new();
    forbid(&mut net, INGRESS);
    assert_drop(&net.send(BESIDE, HERE.address(), syn(1000, 80)), Reason::PolicyIngress);
    assert_peer(&net.host_sends(0, vtep(0), HERE.address(), syn(1000, 80)), HERE);
    assert_node(&net.send(HERE, vtep(0), syn_ack(80, 1000)), 0);
    let there = Pod::node_port(1).address();
    assert_drop(&net.host_sends(1, there, HERE.address(), syn(1000, 80)), Reason::PolicyIngress);
    // By its identity, as anybody.
    permit_nodes(&mut net, INGRESS);
    assert_peer(&net.host_sends(1, there, HERE.address(), syn(1001, 80)), HERE);
    assert_drop(&net.send(BESIDE, HERE.address(), syn(1001, 80)), Reason::PolicyIngress);
}

#[test]
fn who_only_claims_to_be_this_node_is_judged() {
    let mut net = Net::new();
    let router = Pod::router(0);
    let mut port = 1000;
    let mut forged = |net: &mut Net| {
        port += 1;
        let inner = |from: Pod| Frame::new(vtep(0), HERE.address(), syn(port, 80)).macs(from.mac(), HERE.mac()).build();
        let overlay = net.underlay(0, &vxlan(vtep(1), vtep(0), HERE.vni(), 0, &inner(THERE)));
        [overlay, net.raw(router, &inner(router))]
    };
    forged(&mut net).iter().for_each(|outcome| assert_peer(outcome, HERE));
    // What routers of this node send may be theirs to send; what they reach is not.
    forbid(&mut net, INGRESS);
    forged(&mut net).iter().for_each(|outcome| assert_drop(outcome, Reason::PolicyIngress));
    assert_peer(&net.host_sends(0, vtep(0), HERE.address(), syn(999, 80)), HERE);
}

#[test]
fn a_pods_own_policy_says_whether_it_may_ask_a_node() {
    let mut net = Net::new();
    forbid(&mut net, EGRESS);
    for node in 0..2 {
        assert_drop(&net.send(HERE, vtep(node), syn(1000, 6443)), Reason::PolicyEgress);
    }
    permit_nodes(&mut net, EGRESS);
    for node in 0..2 {
        assert_node(&net.send(HERE, vtep(node), syn(1001, 6443)), node);
    }
    // A node that is not ready is closed, as everybody.
    let key = EndpointKey { vpc: HERE.vpc(), address: be32(vtep(0)) };
    change(&mut net, |tables| tables.endpoints.get_mut(&key).unwrap().flags &= !EP_POLICY_READY);
    assert_drop(&net.send(HERE, vtep(0), syn(1002, 6443)), Reason::PolicyNotReady);
}

#[test]
fn the_way_back_is_remembered() {
    let mut net = Net::new();
    assert_peer(&net.host_sends(0, vtep(0), HERE.address(), udp(1000, 53, 5)), HERE);
    let key = FlowKey {
        scope: FlowKey::scope(HERE.vpc(), 0, PROTO_UDP),
        source: be32(HERE.address()),
        destination: be32(vtep(0)),
        source_port: 53.into(),
        destination_port: 1000.into(),
    };
    let answer = net.0[0].flows.lookup(&key).unwrap().unwrap();
    assert!(answer.has(FLOW_REPLY));
    assert_eq!((answer.kind, answer.ifindex), (EGRESS_NODE, Pod::node_port(0).ifindex()));
    assert_eq!((answer.dmac, answer.ttl_decrement), (Pod::node_port(0).mac(), 0));
    assert!(!net.send(HERE, vtep(0), udp(53, 1000, 5)).verdict.slow);
}

#[test]
fn a_node_asks_by_arp_in_the_name_of_its_addresses() {
    let mut net = Net::new();
    let port = Pod::node_port(0);
    for sender in [port.address(), vtep(0), own_address(0), Ipv4Addr::UNSPECIFIED] {
        let outcome = net.host(0, &arp_request(port.mac(), sender, HERE.address()));
        assert_answer(&outcome, Reason::ArpAnswered, port);
        assert_eq!(outcome.frame[22..28], HERE.mac());
        assert_answer(&net.host(0, &arp_request(port.mac(), sender, port.gateway())), Reason::ArpAnswered, port);
    }
    for sender in [HERE.address(), vtep(1), Ipv4Addr::new(203, 0, 113, 7)] {
        assert_drop(&net.host(0, &arp_request(port.mac(), sender, HERE.address())), Reason::ArpSender);
    }
    // A Pod does not.
    assert_drop(&net.raw(HERE, &arp_request(HERE.mac(), vtep(0), THERE.address())), Reason::ArpSender);
    // And whoever asks for a node is told its MAC address.
    let outcome = net.raw(HERE, &arp_request(HERE.mac(), HERE.address(), port.address()));
    assert_eq!(outcome.frame[22..28], port.mac());
}

#[test]
fn a_node_is_told_why_and_tells() {
    let mut net = Net::new();
    let port = Pod::node_port(0);
    let nobody = net.host_sends(0, vtep(0), Ipv4Addr::new(10, 0, 1, 99), echo(1));
    assert_answer(&nobody, Reason::NoEndpoint, port);
    let large = net.host_sends(0, vtep(0), HERE.address(), udp(1000, 53, 1460));
    assert_answer(&large, Reason::FragmentationNeeded, port);
    // The node's stack has no socket for what a Pod asks.
    let asked = frame(HERE, vtep(0), udp(1000, 53, 5));
    assert_node(&net.send_frame(HERE, &asked), 0);
    assert_peer(&net.host_sends(0, vtep(0), HERE.address(), icmp_error(3, 3, &asked.build())), HERE);
    let foreign = frame(BESIDE, vtep(0), udp(1000, 53, 5)).build();
    assert_drop(&net.host_sends(0, vtep(0), BESIDE.address(), icmp_error(3, 3, &foreign)), Reason::IcmpNoFlow);
    // And a Pod none for what the node asks.
    for pod in [HERE, THERE] {
        let asked = Frame::new(vtep(0), pod.address(), udp(1001, 53, 5)).macs(port.mac(), pod.mac()).build();
        assert_peer(&net.host_sends(0, vtep(0), pod.address(), udp(1001, 53, 5)), pod);
        assert_node(&net.send(pod, vtep(0), icmp_error(3, 3, &asked)), 0);
    }
}

#[test]
fn guards_are_those_of_a_pod() {
    let mut net = Net::new();
    let port = Pod::node_port(0);
    let sent = |to, (source, destination)| Frame::new(vtep(0), to, echo(1)).macs(source, destination).build();
    let own = (port.mac(), port.gateway_mac());
    assert_drop(&net.host(0, &sent(HERE.address(), (HERE.mac(), HERE.mac()))), Reason::SourceMac);
    for to in [Ipv4Addr::new(224, 0, 0, 1), Ipv4Addr::LOCALHOST, Ipv4Addr::new(169, 254, 1, 1), Ipv4Addr::BROADCAST] {
        assert_drop(&net.host(0, &sent(to, own)), Reason::Destination);
    }
    let mut tagged = sent(HERE.address(), own);
    tagged[12..14].copy_from_slice(&[0x81, 0]);
    assert_drop(&net.host(0, &tagged), Reason::Vlan);
    // Its own addresses are not behind it.
    assert_answer(&net.host(0, &sent(own_address(0), own)), Reason::RouteUnreachable, port);
    // A Pod's record does not make a node port.
    let packet = sent(BESIDE.address(), (HERE.mac(), HERE.gateway_mac()));
    let packet = Packet::new(Hook::NodePort, HERE.ifindex(), &packet);
    assert_drop(&net.0[0].handle(&packet, NOW).unwrap(), Reason::NoInterface);
    assert_peer(&net.host(0, &sent(HERE.address(), own)), HERE);
}

#[test]
fn without_its_records_a_node_is_not_there() {
    let mut net = Net::new();
    let port = Pod::node_port(0).ifindex();
    assert_node(&net.send(HERE, vtep(0), echo(1)), 0);
    change(&mut net, |tables| {
        for endpoint in tables.endpoints.values_mut().filter(|endpoint| endpoint.ifindex == port) {
            *endpoint = Endpoint { flags: endpoint.flags & !EP_LOCAL, ifindex: 0, ..*endpoint };
        }
    });
    assert_answer(&net.send(HERE, vtep(0), echo(1)), Reason::NoEndpoint, HERE);
    assert_drop(&net.host_sends(0, vtep(0), HERE.address(), echo(1)), Reason::NodeSource);
}
