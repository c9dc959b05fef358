//! What translation does to packets, and what is judged before it.

use super::common::{A, B, C, CLIENT, Connection, inner, pod, port_to, tuple};
use crate::common::{Net, assert_answer, assert_drop, assert_peer, frame};
use juneau_core::packet::{Icmp, Ipv4, checksum, view};
use juneau_core::testkit::packets::{Frame, Layer4, assert_checksums, data, syn, udp, vxlan};
use juneau_core::testkit::services::WEB;
use juneau_core::testkit::topology::{Pod, vtep};
use juneau_core::verdict::{Action, Reason};

const RESOLVERS: [Pod; 2] = [CLIENT, Pod::new(0, 1, 21)];

#[test]
fn what_is_translated_is_routed_even_between_neighbours() {
    for backend in [B, C] {
        let mut net = Net::new();
        let from = port_to(&net, A, WEB, backend, 2000, |from| syn(from, 80));
        let connection = Connection::open(&mut net, A, WEB, syn(from, 80));
        let sent = net.raw(A, &frame(A, WEB, data(from, 80, 10)).build());
        let out = inner(&sent);
        assert_eq!((&out[..6], &out[6..12]), (&backend.mac()[..], &backend.gateway_mac()[..]));
        assert_eq!(out[22], 63, "TTL");
        let before = frame(A, WEB, data(from, 80, 10)).build();
        assert_eq!((out[15], &out[18..22], &out[38..50]), (before[15], &before[18..22], &before[38..50]));
        connection.assert_works(&mut net);
    }
}

#[test]
fn later_fragments_are_translated_without_their_ports() {
    for backend in RESOLVERS {
        let mut net = Net::new();
        let from = port_to(&net, A, WEB, backend, 2000, |from| udp(from, 53, 64));
        let first = Frame { fragment: Ipv4::MF, id: 7, ..frame(A, WEB, udp(from, 53, 64)) };
        let later = |payload: u8| Frame {
            fragment: 9,
            id: 7,
            ..frame(A, WEB, Layer4::Raw { protocol: 17, payload: vec![payload; 32] })
        };
        assert_drop(&net.send_frame(A, &later(0)), Reason::FragmentNoFirst);
        let outcome = net.send_frame(A, &first);
        assert_peer(&outcome, backend);
        assert_eq!(tuple(&outcome.frame), (A.address(), backend.address(), from, 53));
        for payload in [0, 0xee] {
            let outcome = net.send_frame(A, &later(payload));
            assert_peer(&outcome, backend);
            assert!(!outcome.verdict.slow);
            let (source, destination, ..) = tuple(&outcome.frame);
            assert_eq!((source, destination), (A.address(), backend.address()));
            assert_eq!(checksum(&outcome.frame[14..34]), 0);
            assert_eq!(outcome.frame[34..], [payload; 32], "layer 4 is the datagram's, not ports");
        }
        // Answers in pieces, too.
        let connection = Connection::begin(&mut net, A, WEB, udp(from, 53, 64));
        let first = Frame { fragment: Ipv4::MF, id: 8, ..connection.answer(udp(53, from, 64)) };
        let outcome = net.send_frame(backend, &first);
        assert_peer(&outcome, A);
        assert_eq!(tuple(&outcome.frame), (WEB, A.address(), 53, from));
        let rest = Frame { fragment: 9, layer4: Layer4::Raw { protocol: 17, payload: vec![0xdd; 32] }, ..first };
        let outcome = net.send_frame(backend, &rest);
        assert_peer(&outcome, A);
        assert_eq!(tuple(&outcome.frame).0, WEB);
        assert_eq!(checksum(&outcome.frame[14..34]), 0);
        assert_eq!(outcome.frame[34..], [0xdd; 32]);
    }
}

/// Offset of UDP's checksum.
const SUM: std::ops::Range<usize> = 40..42;

#[test]
fn a_datagram_without_a_checksum_stays_without() {
    for client in [A, B] {
        let mut net = Net::new();
        let connection = Connection::open(&mut net, client, WEB, udp(2000, 53, 10));
        let mut sent = frame(client, WEB, udp(2000, 53, 10)).build();
        sent[SUM].fill(0);
        let outcome = net.raw(client, &sent);
        assert_eq!(inner(&outcome)[SUM], [0, 0]);
        assert_eq!(tuple(inner(&outcome)), connection.seen);
    }
}

#[test]
fn a_checksum_that_becomes_0_is_written_as_all_ones() {
    for backend in RESOLVERS {
        let mut net = Net::new();
        let from = port_to(&net, A, WEB, backend, 2000, |from| udp(from, 53, 2));
        Connection::open(&mut net, A, WEB, udp(from, 53, 2));
        let plain = frame(A, WEB, udp(from, 53, 2)).build();
        let outcome = net.raw(A, &plain);
        // With the checksum itself as the payload, the sum of the translated datagram is that of no datagram.
        let word = <[u8; 2]>::try_from(&inner(&outcome)[SUM]).unwrap();
        let mut sent = plain.clone();
        sent[42..44].copy_from_slice(&word);
        let sum = u32::from(!u16::from_be_bytes([plain[40], plain[41]])) + u32::from(u16::from_be_bytes(word));
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        sent[SUM].copy_from_slice(&sum.to_be_bytes());
        assert_checksums(&sent);
        let outcome = net.raw(A, &sent);
        assert_eq!(inner(&outcome)[SUM], [0xff, 0xff]);
        assert_checksums(inner(&outcome));
    }
}

/// The frame that an answer by ICMP quotes begins like this one, and the answer has this type and code.
#[track_caller]
fn assert_quotes(frame: &[u8], kind: u8, code: u8, about: &[u8]) {
    assert_checksums(frame);
    let (_, rest) = view::<Ipv4>(&frame[14..]).unwrap();
    let (icmp, quote) = view::<Icmp>(rest).unwrap();
    assert_eq!((icmp.kind, icmp.code), (kind, code));
    assert_eq!(quote[..28], about[14..42]);
}

#[test]
fn ttl_and_mtu_are_judged_before_and_quote_the_senders_own_packet() {
    for backend in [B, C] {
        for opened in [false, true] {
            let mut net = Net::new();
            let from = port_to(&net, CLIENT, WEB, backend, 2000, |from| syn(from, 80));
            let connection = opened.then(|| Connection::open(&mut net, CLIENT, WEB, syn(from, 80)));
            let layer4 = if opened { data(from, 80, 10) } else { syn(from, 80) };
            let last = Frame { ttl: 1, ..frame(CLIENT, WEB, layer4) }.build();
            let outcome = net.raw(CLIENT, &last);
            assert_answer(&outcome, Reason::TtlExceeded, CLIENT);
            assert_quotes(&outcome.frame, 11, 0, &last);
            if let Some(connection) = connection {
                let large = frame(CLIENT, WEB, data(from, 80, 1500)).build();
                let outcome = net.raw(CLIENT, &large);
                assert_answer(&outcome, Reason::FragmentationNeeded, CLIENT);
                assert_quotes(&outcome.frame, 3, 4, &large);
                // And of an answer.
                let large = connection.answer(data(8080, from, 1500));
                let outcome = net.send_frame(backend, &large);
                assert_answer(&outcome, Reason::FragmentationNeeded, backend);
                assert_quotes(&outcome.frame, 3, 4, &large.build());
                connection.assert_works(&mut net);
            }
        }
    }
}

#[test]
fn large_datagrams_for_another_node_are_translated_by_the_device_too() {
    let mut net = Net::new();
    let backend = RESOLVERS[1];
    let from = port_to(&net, A, WEB, backend, 2000, |from| udp(from, 53, 10));
    let large = Frame { fragment: 0, ..frame(A, WEB, udp(from, 53, 1470)) };
    let outcome = net.raw(A, &large.build());
    assert_eq!(outcome.verdict.action, Action::Device);
    assert_eq!(tuple(&outcome.frame), (A.address(), backend.address(), from, 53));
    assert_checksums(&outcome.frame);
}

#[test]
fn a_congestion_mark_and_a_translation_meet_in_one_packet() {
    let mut net = Net::new();
    let from = port_to(&net, CLIENT, WEB, C, 2000, |from| syn(from, 80));
    let connection = Connection::open(&mut net, CLIENT, WEB, syn(from, 80));
    let reply = Frame { tos: 2, ..connection.answer(data(8080, from, 20)) };
    let reply = Frame { source_mac: CLIENT.gateway_mac(), destination_mac: CLIENT.mac(), ..reply };
    let arrived = net.underlay(0, &vxlan(vtep(1), vtep(0), CLIENT.vni(), 3, &reply.build()));
    connection.assert_answered(&arrived);
    assert_eq!(arrived.frame[15], 3);
    assert_eq!(pod(0, tuple(&arrived.frame).1), CLIENT);
}
