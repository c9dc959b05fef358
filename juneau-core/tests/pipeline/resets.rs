//! TCP that is refused in the middle: its sender is told by RST.

use crate::common::{NOW, Net, assert_answer, assert_drop, assert_peer, frame};
use juneau_core::flow::{TCP_ACK, TCP_FIN, TCP_RST, TCP_SYN};
use juneau_core::layout::{EGRESS, IDENTITY_ANY, INGRESS, PolicyKey, be32, endpoint_generation};
use juneau_core::packet::{Ethernet, Ipv4, Tcp, view};
use juneau_core::pipeline::{Generations as _, Outcome, Packet};
use juneau_core::tables::{Diff, Tables};
use juneau_core::testkit::packets::{Frame, Layer4, addresses, assert_checksums, data, fin, syn, syn_ack, udp, vxlan};
use juneau_core::testkit::topology::{Pod, vtep};
use juneau_core::verdict::{Hook, Reason};
use std::net::Ipv4Addr;

const A: Pod = Pod::new(0, 1, 10);
const B: Pod = Pod::new(0, 1, 11);
/// On the other node, in another Subnet.
const C: Pod = Pod::new(0, 2, 20);

fn apply(net: &mut Net, node: usize, change: impl FnOnce(&mut Tables)) {
    let current = net.0[node].tables.content().clone();
    let mut wanted = current.clone();
    change(&mut wanted);
    net.0[node].apply(&Diff::between(&current, &wanted)).unwrap();
}

/// Takes the rule that allows everything in one direction from node 0.
fn close(net: &mut Net, direction: u8) {
    apply(net, 0, |tables| {
        let key =
            PolicyKey { identity: A.identity(), policy: 1, peer: IDENTITY_ANY, direction, ..PolicyKey::default() };
        tables.policies.remove(&key).unwrap();
    });
}

/// A segment of A to B that is neither of a flow nor the beginning of one.
fn stray() -> Frame {
    frame(A, B.address(), data(1000, 80, 5))
}

fn acknowledging(frame: &Frame, number: u32) -> Vec<u8> {
    let mut bytes = frame.build();
    bytes[42..46].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// The reset is what the other end would have sent, and comes from the gateway's MAC address.
#[track_caller]
fn assert_reset(outcome: &Outcome, reason: Reason, to: Pod, about: &[u8]) {
    assert_answer(outcome, reason, to);
    assert_eq!(outcome.frame.len(), 54);
    assert_checksums(&outcome.frame);
    let (ethernet, rest) = view::<Ethernet>(&outcome.frame).unwrap();
    assert_eq!((ethernet.destination, ethernet.source), (to.mac(), to.gateway_mac()));
    let (ip, rest) = view::<Ipv4>(rest).unwrap();
    assert_eq!((ip.tos, ip.ttl, ip.id.get(), ip.fragment.get()), (0, 64, 0, Ipv4::DF));
    let (source, destination) = addresses(about);
    assert_eq!(addresses(&outcome.frame), (destination, source));
    let (tcp, _) = view::<Tcp>(rest).unwrap();
    let (segment, _) = view::<Tcp>(&about[34..]).unwrap();
    assert_eq!((tcp.source_port, tcp.destination_port), (segment.destination_port, segment.source_port));
    assert_eq!((tcp.flags, tcp.sequence, tcp.acknowledgement.get()), (TCP_RST, segment.acknowledgement, 0));
    assert_eq!((tcp.offset, tcp.window.get(), tcp.urgent.get()), (0x50, 0, 0));
}

#[test]
fn what_goes_on_without_a_flow_is_reset_and_counts_once() {
    for (direction, reason) in [(EGRESS, Reason::PolicyEgress), (INGRESS, Reason::PolicyIngress)] {
        let mut net = Net::new();
        assert_peer(&net.send_frame(A, &stray()), B);
        let mut net_closed = Net::new();
        close(&mut net_closed, direction);
        for number in [0, 1, 0x1234_5678, u32::MAX] {
            let sent = acknowledging(&stray(), number);
            assert_reset(&net_closed.raw(A, &sent), reason, A, &sent);
        }
        let node = &net_closed.0[0];
        assert_eq!(
            node.counters.exits.iter().map(|(exit, count)| (*exit, *count)).collect::<Vec<_>>(),
            [((Hook::Pod, reason, true), 4)]
        );
        assert_eq!((node.counters.packets(), node.flows.iter().count()), (4, 0));
    }
}

#[test]
fn a_rule_that_is_taken_away_ends_a_connection_at_both_ends() {
    for peer in [B, C] {
        let mut net = Net::new();
        assert_peer(&net.send(A, peer.address(), syn(1000, 80)), peer);
        assert_peer(&net.send(peer, A.address(), syn_ack(80, 1000)), A);
        assert_peer(&net.send(A, peer.address(), data(1000, 80, 5)), peer);
        close(&mut net, EGRESS);
        for layer4 in [data(1000, 80, 5), fin(1000, 80)] {
            let sent = acknowledging(&frame(A, peer.address(), layer4), 77);
            assert_reset(&net.raw(A, &sent), Reason::PolicyEgress, A, &sent);
        }
        let answer = acknowledging(&frame(peer, A.address(), data(80, 1000, 5)), 78);
        if peer.node() == 0 {
            assert_reset(&net.raw(peer, &answer), Reason::PolicyEgress, peer, &answer);
        }
    }
}

#[test]
fn other_nodes_are_not_answered() {
    let mut net = Net::new();
    close(&mut net, INGRESS);
    let inner = frame(C, A.address(), data(80, 1000, 5)).macs(A.gateway_mac(), A.mac()).build();
    assert_drop(&net.underlay(0, &vxlan(vtep(1), vtep(0), A.vni(), 0, &inner)), Reason::PolicyIngress);
}

#[test]
fn what_begins_or_ends_is_not_reset() {
    let mut net = Net::new();
    close(&mut net, EGRESS);
    let tcp = |flags| Layer4::Tcp { source: 1000, destination: 80, flags, payload: 5 };
    for flags in [TCP_SYN, TCP_SYN | TCP_ACK, TCP_RST, TCP_RST | TCP_ACK] {
        assert_drop(&net.send(A, B.address(), tcp(flags)), Reason::PolicyEgress);
    }
    assert_drop(&net.send(A, B.address(), udp(1000, 80, 5)), Reason::PolicyEgress);
    let first = Frame { fragment: Ipv4::MF, ..stray() };
    assert_drop(&net.send_frame(A, &first), Reason::PolicyEgress);
    // The control.
    assert_answer(&net.send(A, B.address(), tcp(TCP_FIN | TCP_ACK)), Reason::PolicyEgress, A);
}

#[test]
fn nobody_is_reset_by_what_another_sends() {
    let mut net = Net::new();
    close(&mut net, EGRESS);
    assert_drop(&net.send_frame(A, &Frame { source: B.address(), ..stray() }), Reason::SourceAddress);
    assert_drop(&net.send_frame(A, &stray().macs(B.mac(), B.mac())), Reason::SourceMac);
    for group in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1]] {
        assert_drop(&net.send_frame(A, &stray().macs(A.mac(), group)), Reason::PolicyEgress);
    }
    assert_drop(&net.send_frame(A, &Frame { destination: Ipv4Addr::BROADCAST, ..stray() }), Reason::Destination);
    assert_answer(&net.send_frame(A, &stray()), Reason::PolicyEgress, A);
}

#[test]
fn a_router_is_told_about_what_it_forwards() {
    let router = Pod::router(0);
    let mut net = Net::new();
    close(&mut net, INGRESS);
    let outside = Ipv4Addr::new(10, 9, 0, 1);
    let sent = acknowledging(&Frame::new(outside, B.address(), data(1000, 80, 5)).macs(router.mac(), B.mac()), 9);
    assert_reset(&net.raw(router, &sent), Reason::PolicyIngress, router, &sent);
}

#[test]
fn resets_and_icmp_errors_share_a_limit() {
    let mut net = Net::new();
    close(&mut net, EGRESS);
    for _ in 0..5 {
        assert_answer(&net.send_frame(A, &stray()), Reason::PolicyEgress, A);
        assert_answer(&net.send(A, Ipv4Addr::new(198, 51, 100, 7), udp(1, 2, 3)), Reason::NoRoute, A);
    }
    assert_drop(&net.send_frame(A, &stray()), Reason::PolicyEgress);
    assert_answer(&net.raw_at(A, &stray().build(), NOW.later(1)), Reason::PolicyEgress, A);
}

/// While a change goes on, the next packet may be allowed again.
#[test]
fn nothing_is_reset_while_a_change_goes_on() {
    let mut net = Net::new();
    close(&mut net, EGRESS);
    let slot = endpoint_generation(A.vpc(), be32(A.address()));
    let number = net.0[0].state.generation(slot).unwrap();
    net.0[0].state.set_generation(slot, number + 1);
    assert_drop(&net.send_frame(A, &stray()), Reason::PolicyEgress);
    net.0[0].state.set_generation(slot, number + 2);
    assert_answer(&net.send_frame(A, &stray()), Reason::PolicyEgress, A);
}

#[test]
fn many_segments_are_answered_by_one_reset() {
    let mut net = Net::new();
    close(&mut net, EGRESS);
    let sent = acknowledging(&frame(A, B.address(), data(1000, 80, 20_000)), 5);
    let packet = Packet { gso_size: 1400, ..Packet::new(Hook::Pod, A.ifindex(), &sent) };
    assert_reset(&net.0[0].handle(&packet, NOW).unwrap(), Reason::PolicyEgress, A, &sent);
}
