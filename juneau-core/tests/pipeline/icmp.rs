//! ICMP errors: those that are sent about flows, and those with which Pods are answered.

use crate::common::{NOW, Net, assert_answer, assert_drop, assert_peer, frame};
use juneau_core::layout::Be16;
use juneau_core::packet::{Ethernet, ICMP_TIME_EXCEEDED, ICMP_UNREACHABLE, Icmp, Ipv4, view};
use juneau_core::pipeline::{Outcome, Packet};
use juneau_core::testkit::packets::{
    Frame, Layer4, addresses, assert_checksums, data, echo, icmp_error, syn, udp, vxlan,
};
use juneau_core::testkit::topology::{Pod, vtep};
use juneau_core::verdict::{Hook, Reason};
use std::net::Ipv4Addr;

const A: Pod = Pod::new(0, 1, 10);
const B: Pod = Pod::new(0, 1, 11);
const C: Pod = Pod::new(0, 2, 20);

/// An ICMP error of a Pod about a frame, to the frame's source.
fn about(from: Pod, frame_about: &[u8]) -> Frame {
    frame(from, addresses(frame_about).0, icmp_error(ICMP_UNREACHABLE, 3, frame_about))
}

#[track_caller]
fn assert_told(outcome: &Outcome, to: Pod, reason: Reason, kind: u8, code: u8, about: &[u8]) -> Be16 {
    assert_answer(outcome, reason, to);
    assert_checksums(&outcome.frame);
    let (ethernet, rest) = view::<Ethernet>(&outcome.frame).unwrap();
    assert_eq!((ethernet.destination, ethernet.source), (to.mac(), to.gateway_mac()));
    let (ip, rest) = view::<Ipv4>(rest).unwrap();
    assert_eq!((ip.tos, ip.ttl, ip.id.get(), ip.fragment.get()), (0xc0, 64, 0, 0));
    assert_eq!(addresses(&outcome.frame), (to.gateway(), addresses(about).0));
    let (icmp, quote) = view::<Icmp>(rest).unwrap();
    assert_eq!((icmp.kind, icmp.code, icmp.id.get()), (kind, code, 0));
    let quoted = (about.len() - 14).min(48);
    assert_eq!(quote, &about[14..14 + quoted], "the packet as it arrived");
    icmp.sequence
}

#[test]
fn each_reason_has_its_answer() {
    let mut net = Net::new();
    let routed = Pod::new(0, 2, 10);
    let cases = [
        (frame(A, Ipv4Addr::new(198, 51, 100, 7), udp(1, 2, 100)), Reason::NoRoute, ICMP_UNREACHABLE, 0),
        (frame(A, Ipv4Addr::new(10, 8, 0, 1), udp(1, 2, 3)), Reason::RouteUnreachable, ICMP_UNREACHABLE, 1),
        (frame(A, Ipv4Addr::new(10, 0, 2, 99), syn(1, 2)), Reason::NoEndpoint, ICMP_UNREACHABLE, 1),
        (Frame { ttl: 1, ..frame(A, routed.address(), echo(1)) }, Reason::TtlExceeded, ICMP_TIME_EXCEEDED, 0),
        (Frame { ttl: 0, ..frame(A, routed.address(), echo(1)) }, Reason::TtlExceeded, ICMP_TIME_EXCEEDED, 0),
    ];
    for (sent, reason, kind, code) in cases {
        let sent = sent.build();
        let outcome = net.raw(A, &sent);
        assert_eq!(assert_told(&outcome, A, reason, kind, code, &sent).get(), 0);
    }
}

#[test]
fn a_large_packet_is_told_the_mtu() {
    let mut net = Net::new();
    for (to, code) in [(B, 4), (C, 4)] {
        let largest = frame(A, to.address(), udp(1, 2, 1450 - 28));
        assert_peer(&net.send_frame(A, &largest), to);
        let sent = frame(A, to.address(), udp(1, 2, 1451 - 28)).build();
        for _ in ["on a current record", "again"] {
            let outcome = net.raw(A, &sent);
            let mtu = assert_told(&outcome, A, Reason::FragmentationNeeded, ICMP_UNREACHABLE, code, &sent);
            assert_eq!(mtu.get(), 1450);
        }
    }
}

#[test]
fn without_df_large_packets_leave_by_the_device() {
    let mut net = Net::new();
    let mut large = frame(A, C.address(), udp(1, 2, 1500));
    large.fragment = 0;
    let outcome = net.raw(A, &large.build());
    assert_eq!(outcome.verdict.action, juneau_core::verdict::Action::Device);
    assert_eq!((outcome.verdict.vtep, outcome.verdict.vni), (vtep(1), C.vni()));
    assert_eq!(outcome.device, Some(juneau_core::layout::DEVICE_MTU));
    assert_checksums(&outcome.frame);
    assert_eq!(outcome.frame.len(), large.build().len(), "not encapsulated here");
    let mut local = frame(A, B.address(), udp(1, 2, 1500));
    local.fragment = 0;
    assert_answer(&net.raw(A, &local.build()), Reason::FragmentationNeeded, A);
}

#[test]
fn a_segment_of_a_gso_packet_is_what_must_fit() {
    let mut net = Net::new();
    let large = frame(A, C.address(), data(1, 2, 20_000)).build();
    let packet = Packet::new(Hook::Pod, A.ifindex(), &large);
    let outcome = net.0[0].handle(&Packet { gso_size: 1410, ..packet }, NOW).unwrap();
    assert_eq!(outcome.verdict.reason, Reason::Ok, "1410 + 40 is 1450");
    let outcome = net.0[0].handle(&Packet { gso_size: 1411, ..packet }, NOW).unwrap();
    assert_eq!(outcome.verdict.reason, Reason::FragmentationNeeded);
    let mut options = large.clone();
    options[46] = 8 << 4;
    let packet = Packet { gso_size: 1399, ..Packet::new(Hook::Pod, A.ifindex(), &options) };
    assert_eq!(
        net.0[0].handle(&packet, NOW).unwrap().verdict.reason,
        Reason::FragmentationNeeded,
        "12 bytes of options"
    );
    let outcome = net.0[0].handle(&Packet { gso_size: 1398, ..packet }, NOW).unwrap();
    assert_eq!(outcome.verdict.reason, Reason::Ok);
    let datagrams = frame(A, C.address(), udp(1, 2, 20_000)).build();
    let packet = Packet { gso_size: 1423, ..Packet::new(Hook::Pod, A.ifindex(), &datagrams) };
    assert_eq!(net.0[0].handle(&packet, NOW).unwrap().verdict.reason, Reason::FragmentationNeeded, "1423 + 28");
    let outcome = net.0[0].handle(&Packet { gso_size: 1422, ..packet }, NOW).unwrap();
    assert_eq!(outcome.verdict.reason, Reason::Ok);
    // 65535 bytes of IP fit, but not with headers in front.
    let mut huge = frame(A, C.address(), data(1, 2, 60_000)).build();
    huge.resize(14 + 65_500, 0);
    let packet = Packet { gso_size: 1410, ..Packet::new(Hook::Pod, A.ifindex(), &huge) };
    let outcome = net.0[0].handle(&packet, NOW).unwrap();
    assert_eq!(outcome.device, Some(juneau_core::layout::DEVICE_LENGTH));
}

#[test]
fn answers_are_limited_for_each_tenant_and_moment() {
    let mut net = Net::new();
    let nowhere = Ipv4Addr::new(198, 51, 100, 7);
    for _ in 0..10 {
        assert_answer(&net.send(A, nowhere, echo(1)), Reason::NoRoute, A);
    }
    assert_drop(&net.send(A, nowhere, echo(1)), Reason::NoRoute);
    let other = Pod { tenant: 1, ..A };
    assert_answer(&net.send(other, nowhere, echo(1)), Reason::NoRoute, other);
    let sent = frame(A, nowhere, echo(1)).build();
    assert_answer(&net.raw_at(A, &sent, NOW.later(1)), Reason::NoRoute, A);
}

#[test]
fn no_answer_about_later_fragments_and_refusals() {
    let mut net = Net::new();
    let routed = Pod::new(0, 2, 10);
    let first = Frame { fragment: Ipv4::MF, ..frame(A, routed.address(), udp(1, 2, 64)) };
    assert_peer(&net.send_frame(A, &first), routed);
    let later = Frame { fragment: 9, ttl: 1, ..first };
    assert_drop(&net.send_frame(A, &later), Reason::TtlExceeded);
    assert_drop(&net.send(A, A.gateway(), echo(1)), Reason::Gateway);
}

#[test]
fn errors_about_a_flow_go_back_to_its_sender() {
    for to in [B, C, Pod::new(0, 1, 20), Pod::new(0, 2, 11)] {
        let mut net = Net::new();
        let asked = net.send(A, to.address(), udp(1000, 53, 20));
        assert_peer(&asked, to);
        let error = about(to, &asked.frame);
        let outcome = net.send_frame(to, &error);
        assert_peer(&outcome, A);
        assert_checksums(&outcome.frame);
        let before = net.0.each_ref().map(|node| node.flows.iter().count());
        assert_eq!(before, if to.node() == 0 { [2, 0] } else { [2, 2] }, "no record of its own");
        // Nobody speaks for others.
        let meddler = Pod::new(0, to.subnet, if to.host == 10 { 11 } else { 10 });
        if meddler != A && meddler != to {
            assert_drop(&net.send_frame(meddler, &about(meddler, &asked.frame)), Reason::IcmpNoFlow);
        }
        // About another port there is no flow.
        let other = frame(A, to.address(), udp(1001, 53, 20)).build();
        assert_drop(&net.send_frame(to, &about(to, &other)), Reason::IcmpNoFlow);
    }
}

#[test]
fn errors_of_another_node_need_a_flow_there() {
    let mut net = Net::new();
    let asked = net.send(A, C.address(), udp(1000, 53, 20));
    let error = about(C, &asked.frame).macs(A.gateway_mac(), A.mac());
    let wrap = |inner: &Frame| vxlan(vtep(1), vtep(0), A.vni(), 0, &inner.build());
    assert_peer(&net.underlay(0, &wrap(&error)), A);
    assert_drop(&net.underlay(0, &wrap(&error.clone().macs(A.gateway_mac(), B.mac()))), Reason::OverlayDestination);
    let strange = frame(A, C.address(), udp(1001, 53, 20)).build();
    let error = about(C, &strange).macs(A.gateway_mac(), A.mac());
    assert_drop(&net.underlay(0, &wrap(&error)), Reason::IcmpNoFlow);
}

#[test]
fn quotes_that_cannot_be_used() {
    let mut net = Net::new();
    let asked = net.send(A, B.address(), udp(1000, 53, 20)).frame;
    let error = about(B, &asked);
    assert_peer(&net.send_frame(B, &error), A);
    let quoting = |change: fn(&mut Vec<u8>)| {
        let mut frame = error.clone();
        if let Layer4::Icmp { payload, .. } = &mut frame.layer4 {
            change(payload);
        }
        frame
    };
    for (name, bad) in [
        ("cut short", quoting(|quote| quote.truncate(27))),
        ("version", quoting(|quote| quote[0] = 0x65)),
        ("options", quoting(|quote| quote[0] = 0x46)),
        ("a later fragment", quoting(|quote| quote[7] = 1)),
        ("another source", quoting(|quote| quote[15] = 99)),
        ("an ICMP error", quoting(|quote| (quote[9], quote[20]) = (1, 3))),
        ("a fragmented error", Frame { fragment: Ipv4::MF, ..error.clone() }),
    ] {
        assert_drop(&net.send_frame(B, &bad), Reason::IcmpQuote);
        assert_eq!(net.0[0].counters.exits.len(), 1, "{name}");
    }
}

#[test]
fn errors_lose_ttl_where_we_route_and_are_not_answered() {
    let mut net = Net::new();
    let asked = net.send(A, C.address(), udp(1000, 53, 20));
    let error = Frame { ttl: 1, ..about(C, &asked.frame) };
    assert_drop(&net.send_frame(C, &error), Reason::TtlExceeded);
    let outcome = net.send_frame(C, &Frame { ttl: 9, ..error });
    assert_peer(&outcome, A);
    assert_eq!(outcome.frame[22], 8);
}

#[test]
fn echoes_are_quoted_by_their_identifier() {
    let mut net = Net::new();
    let asked = net.send(A, B.address(), echo(77)).frame;
    assert_peer(&net.send_frame(B, &about(B, &asked)), A);
    let other = frame(A, B.address(), echo(78)).build();
    assert_drop(&net.send_frame(B, &about(B, &other)), Reason::IcmpNoFlow);
}

#[test]
fn the_underlay_tells_its_mtu() {
    let mut net = Net::new();
    let sent = frame(A, C.address(), udp(1, 2, 1300)).build();
    let tunnelled = net.raw(A, &sent).frame;
    let tell = |net: &mut Net, mtu: u16, about: &[u8]| {
        let mut error = icmp_error(ICMP_UNREACHABLE, 4, about);
        if let Layer4::Icmp { sequence, .. } = &mut error {
            *sequence = mtu;
        }
        let router = Ipv4Addr::new(192, 0, 2, 254);
        net.underlay(0, &Frame::new(router, vtep(0), error).build()).verdict.reason
    };
    assert_eq!(tell(&mut net, 1500, &tunnelled), Reason::Ok, "nothing new");
    assert_eq!(tell(&mut net, 1300, &tunnelled), Reason::PmtuUpdate);
    assert_eq!(tell(&mut net, 1300, &tunnelled), Reason::Ok, "nothing new");
    assert_eq!(tell(&mut net, 1400, &tunnelled), Reason::Ok, "it never grows");
    let outcome = net.raw(A, &sent);
    assert_eq!(assert_told(&outcome, A, Reason::FragmentationNeeded, 3, 4, &sent).get(), 1250);
    assert_eq!(tell(&mut net, 100, &tunnelled), Reason::PmtuUpdate, "as low as the floor");
    let outcome = net.raw(A, &sent);
    assert_eq!(assert_told(&outcome, A, Reason::FragmentationNeeded, 3, 4, &sent).get(), 576);
    // Told again, it holds for another ten minutes; then the record counts again, once something makes the path look.
    let expires = |net: &Net| net.0[0].state.pmtus()[&vtep(1)].expires;
    assert_eq!(expires(&net), NOW.stamp + 600);
    let mut error = icmp_error(ICMP_UNREACHABLE, 4, &tunnelled);
    if let Layer4::Icmp { sequence, .. } = &mut error {
        *sequence = 100;
    }
    let again = Frame::new(Ipv4Addr::new(192, 0, 2, 254), vtep(0), error).build();
    let outcome = net.0[0].handle(&Packet::new(Hook::Overlay, 2, &again), NOW.later(5)).unwrap();
    assert_eq!(outcome.verdict.reason, Reason::Ok, "nothing new");
    assert_eq!(expires(&net), NOW.stamp + 605);
    let later = NOW.later(606);
    net.0[0].expire(later, usize::MAX);
    assert_eq!(net.raw_at(A, &sent, later).verdict.reason, Reason::Ok);

    // A strange tunnel, another port, a stranger's quote.
    for (offset, byte) in [(33, 99), (36, 0), (29, 99)] {
        let mut forged = tunnelled.clone();
        forged[offset] = byte;
        assert_eq!(tell(&mut net, 1200, &forged), Reason::Ok, "{offset}");
    }
}
