//! What the sender is told when no backend takes its packet.

use super::common::{A, CLIENT, assert_reset, counts, tuple};
use crate::common::{NOW, Net, assert_answer, assert_drop, frame};
use juneau_core::flow::{TCP_ACK, TCP_RST};
use juneau_core::layout::be32;
use juneau_core::packet::{Icmp, Ipv4, view};
use juneau_core::pipeline::Outcome;
use juneau_core::testkit::packets::{Frame, Layer4, assert_checksums, data, echo, sctp, syn, udp};
use juneau_core::testkit::services::{EMPTY, HOST, LOCAL, NOBODY, SCTP, WEB};
use juneau_core::testkit::topology::Pod;
use juneau_core::verdict::Reason;
use std::net::Ipv4Addr;

/// The frame with a sequence and an acknowledgement number.
fn numbered(to: Ipv4Addr, layer4: Layer4, sequence: u32, acknowledgement: u32) -> Vec<u8> {
    let mut bytes = frame(CLIENT, to, layer4).build();
    bytes[38..42].copy_from_slice(&sequence.to_be_bytes());
    bytes[42..46].copy_from_slice(&acknowledgement.to_be_bytes());
    bytes
}

/// "Port unreachable" of the gateway about the sender's own packet.
#[track_caller]
fn assert_port_unreachable(outcome: &Outcome, reason: Reason, about: &[u8]) {
    assert_answer(outcome, reason, CLIENT);
    assert_checksums(&outcome.frame);
    let (ip, rest) = view::<Ipv4>(&outcome.frame[14..]).unwrap();
    let (icmp, quote) = view::<Icmp>(rest).unwrap();
    assert_eq!((ip.source, ip.destination), (be32(CLIENT.gateway()), be32(CLIENT.address())));
    assert_eq!((icmp.kind, icmp.code), (3, 3));
    assert_eq!(quote[..28], about[14..42]);
}

#[test]
fn an_opener_is_reset_with_all_acknowledged() {
    for (service, port, reason) in [(WEB, 81, Reason::ServicePort), (EMPTY, 80, Reason::ServiceEmpty)] {
        let mut net = Net::new();
        let about = (CLIENT.address(), service, 2000, port);
        // RFC 9293, 3.5.2: without an ACK, sequence number 0 and SEG.SEQ + SEG.LEN, of which the SYN is one.
        for sequence in [0, 77_000, u32::MAX] {
            let refused = net.raw(CLIENT, &numbered(service, syn(2000, port), sequence, 0));
            let reset = assert_reset(&refused, reason, CLIENT, about);
            assert_eq!(reset, (TCP_RST | TCP_ACK, 0, sequence.wrapping_add(1)));
        }
        // With one, the sequence number that it names.
        let refused = net.raw(CLIENT, &numbered(service, data(2000, port, 5), 1, 88_000));
        let reset = assert_reset(&refused, if port == 81 { reason } else { Reason::ServiceGone }, CLIENT, about);
        assert_eq!(reset, (TCP_RST, 88_000, 0));
        for flags in [TCP_RST, TCP_RST | TCP_ACK] {
            let end = Layer4::Tcp { source: 2000, destination: port, flags, payload: 0 };
            assert!(!net.send(CLIENT, service, end).verdict.answered, "a reset is not answered");
        }
        assert_eq!(counts(&net), [0, 0]);
    }
}

#[test]
fn datagrams_are_told_that_the_port_is_unreachable() {
    for (service, layer4, reason) in [
        (WEB, udp(2000, 54, 40), Reason::ServicePort),
        (EMPTY, udp(2000, 53, 40), Reason::ServiceEmpty),
        (WEB, sctp(2000, 80), Reason::ServicePort),
        (SCTP, sctp(2000, 2906), Reason::ServicePort),
    ] {
        let mut net = Net::new();
        let sent = frame(CLIENT, service, layer4).build();
        assert_port_unreachable(&net.raw(CLIENT, &sent), reason, &sent);
        assert_eq!(counts(&net), [0, 0]);
    }
}

#[test]
fn nobody_is_told_of_what_is_not_there() {
    let mut net = Net::new();
    for layer4 in [syn(2000, 80), udp(2000, 53, 10), data(2000, 80, 10), echo(1), sctp(1, 2)] {
        assert_drop(&net.send(CLIENT, NOBODY, layer4), Reason::ServiceUnknown);
    }
    assert_drop(&net.send(CLIENT, LOCAL, syn(2000, 80)), Reason::ServiceNotLocal);
    assert_answer(&net.send(CLIENT, LOCAL, syn(2000, 81)), Reason::ServicePort, CLIENT);
    let other = Pod { tenant: 1, ..CLIENT };
    assert_drop(&net.send(other, HOST, syn(2000, 80)), Reason::ServiceUnknown);
    assert!(net.send(CLIENT, HOST, syn(2000, 80)).verdict.is_delivered(), "the control");
}

#[test]
fn what_services_do_not_speak_is_dropped() {
    let mut net = Net::new();
    assert_drop(&net.send(CLIENT, WEB, echo(1)), Reason::ServicePort);
    let gre = Layer4::Raw { protocol: 47, payload: vec![0; 8] };
    assert_drop(&net.send(CLIENT, WEB, gre), Reason::ServicePort);
    // Not a port that looks like it: an echo with the identifier 80, a protocol with the number of a port.
    assert_drop(&net.send(CLIENT, WEB, echo(80)), Reason::ServicePort);
    assert_eq!(counts(&net), [0, 0]);
}

#[test]
fn fragments_are_answered_as_far_as_they_tell() {
    let mut net = Net::new();
    let first = |layer4| Frame { fragment: Ipv4::MF, ..frame(CLIENT, WEB, layer4) };
    assert_answer(&net.send_frame(CLIENT, &first(udp(2000, 54, 64))), Reason::ServicePort, CLIENT);
    assert_drop(&net.send_frame(CLIENT, &first(syn(2000, 81))), Reason::ServicePort);
    let later = Frame { fragment: 9, ..frame(CLIENT, WEB, udp(2000, 54, 64)) };
    assert_drop(&net.send_frame(CLIENT, &later), Reason::FragmentNoFirst);
}

#[test]
fn answers_have_a_budget() {
    let mut net = Net::new();
    for _ in 0..10 {
        assert_answer(&net.send(CLIENT, EMPTY, syn(2000, 80)), Reason::ServiceEmpty, CLIENT);
    }
    assert_drop(&net.send(A, EMPTY, syn(2000, 80)), Reason::ServiceEmpty);
    let sent = frame(A, EMPTY, syn(2000, 80)).build();
    let later = net.raw_at(A, &sent, NOW.later(1));
    assert_eq!(tuple(&later.frame), (EMPTY, A.address(), 80, 2000));
}
