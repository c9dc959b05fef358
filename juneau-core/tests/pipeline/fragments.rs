//! Fragments find their flow by their first.

use crate::common::{NOW, Net, assert_drop, assert_peer, frame};
use juneau_core::packet::Ipv4;
use juneau_core::testkit::packets::{Frame, Layer4, echo, udp};
use juneau_core::testkit::topology::Pod;
use juneau_core::verdict::Reason;

const A: Pod = Pod::new(0, 1, 10);
const B: Pod = Pod::new(0, 1, 11);
const C: Pod = Pod::new(0, 2, 20);

fn first(from: Pod, to: Pod, id: u16) -> Frame {
    Frame { fragment: Ipv4::MF, id, ..frame(from, to.address(), udp(1000, 53, 64)) }
}

fn later(from: Pod, to: Pod, id: u16) -> Frame {
    let rest = Layer4::Raw { protocol: 17, payload: vec![0xee; 32] };
    Frame { fragment: 9, id, ..frame(from, to.address(), rest) }
}

#[test]
fn later_fragments_follow_their_first_on_every_path() {
    for to in [B, C, Pod::new(0, 1, 21), Pod::router(0)] {
        let mut net = Net::new();
        assert_drop(&net.send_frame(A, &later(A, to, 7)), Reason::FragmentNoFirst);
        assert_peer(&net.send_frame(A, &first(A, to, 7)), to);
        let outcome = net.send_frame(A, &later(A, to, 7));
        assert_peer(&outcome, to);
        assert!(!outcome.verdict.slow);
        assert_drop(&net.send_frame(A, &later(A, to, 8)), Reason::FragmentNoFirst);
    }
}

#[test]
fn the_slot_must_be_of_the_same_datagram() {
    let mut net = Net::new();
    assert_peer(&net.send_frame(A, &first(A, B, 7)), B);
    assert_drop(&net.send_frame(A, &later(A, C, 7)), Reason::FragmentNoFirst);
    let mut tcp = later(A, B, 7);
    tcp.layer4 = Layer4::Raw { protocol: 6, payload: vec![0; 32] };
    assert_drop(&net.send_frame(A, &tcp), Reason::FragmentNoFirst);
    let (other, peer) = (Pod { tenant: 1, ..A }, Pod { tenant: 1, ..B });
    assert_drop(&net.send_frame(other, &later(other, peer, 7)), Reason::FragmentNoFirst);
    assert_peer(&net.send_frame(A, &later(A, B, 7)), B);
}

#[test]
fn datagrams_that_share_a_slot_are_told_apart() {
    use juneau_core::layout::{Be16, be32};
    let mut net = Net::new();
    let seeds = net.0[0].config.seeds;
    let slot = |id| seeds.fragment_slot(be32(A.address()), be32(B.address()), Be16::new(id), 17);
    let other = (8..=u16::MAX).find(|id| slot(*id) == slot(7)).unwrap();
    assert_peer(&net.send_frame(A, &first(A, B, 7)), B);
    assert_drop(&net.send_frame(A, &later(A, B, other)), Reason::FragmentNoFirst);
    assert_peer(&net.send_frame(A, &first(A, B, other)), B);
    assert_peer(&net.send_frame(A, &later(A, B, other)), B);
    assert_drop(&net.send_frame(A, &later(A, B, 7)), Reason::FragmentNoFirst);
}

#[test]
fn a_first_fragment_is_forgotten_after_a_while() {
    let mut net = Net::new();
    net.send_frame(A, &first(A, B, 7));
    let rest = later(A, B, 7).build();
    assert_peer(&net.raw_at(A, &rest, NOW.later(15)), B);
    assert_drop(&net.raw_at(A, &rest, NOW.later(16)), Reason::FragmentNoFirst);
}

#[test]
fn a_later_fragment_opens_nothing() {
    let mut net = Net::new();
    net.send_frame(A, &first(A, B, 7));
    net.0[0].expire(NOW.later(100_000), usize::MAX);
    assert_drop(&net.send_frame(A, &later(A, B, 7)), Reason::FragmentNoFirst);
    assert_eq!(net.0[0].flows.iter().count(), 0);
}

#[test]
fn what_is_refused_is_not_remembered() {
    let mut net = Net::new();
    let mut refused = first(A, C, 7);
    refused.ttl = 1;
    assert_eq!(net.send_frame(A, &refused).verdict.reason, Reason::TtlExceeded);
    assert_eq!(net.0[0].state.fragments().len(), 0);
    net.send_frame(A, &first(A, C, 7));
    assert_eq!(net.0[0].state.fragments().len(), 1, "the control");
}

#[test]
fn fragmented_echoes_pass() {
    let mut net = Net::new();
    let whole = Frame { fragment: Ipv4::MF, ..frame(A, B.address(), echo(9)) };
    assert_peer(&net.send_frame(A, &whole), B);
    let rest = Layer4::Raw { protocol: 1, payload: vec![3; 32] };
    let rest = Frame { fragment: 1, ..frame(A, B.address(), rest) };
    assert_peer(&net.send_frame(A, &rest), B);
}
