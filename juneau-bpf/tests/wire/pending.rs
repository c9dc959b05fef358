//! Answers to packets whose checksums are pending, or that are many segments in one.

use std::net::Ipv4Addr;
use std::time::Duration;

use juneau_core::packet::checksum;
use juneau_core::verdict::Reason;

use crate::common::sandbox;
use crate::frames::{Frame, Frames, Offloads, Sum};
use crate::world::{Pod, World, world};

/// Ethernet and IPv4.
const HEADERS: usize = 14 + 20;
/// Nobody has this address, and it leads nowhere.
const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 99);
const NOWHERE: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);

/// A packet of the first Pod, its checksum as far as senders go that leave the rest to the device.
fn packet(pod: &Pod, destination: Ipv4Addr, ttl: u8, payload: usize, tcp: bool) -> (Vec<u8>, Offloads) {
    let mut frame = Vec::new();
    let step = etherparse::PacketBuilder::ethernet2(pod.mac, pod.gateway_mac());
    let step = step.ipv4(pod.address.octets(), destination.octets(), ttl);
    let payload = vec![0x5a; payload];
    if tcp {
        step.tcp(1000, 80, 7, 1024).ack(9).write(&mut frame, &payload).unwrap();
    } else {
        step.udp(1000, 80).write(&mut frame, &payload).unwrap();
    }
    let (protocol, field) = if tcp { (6, 16) } else { (17, 6) };
    let length = (frame.len() - HEADERS) as u16;
    let pseudo = [&frame[26..34], &[0, protocol], &length.to_be_bytes()].concat();
    let sum = !checksum(&pseudo);
    frame[HEADERS + field..][..2].copy_from_slice(&sum.to_be_bytes());
    (frame, Offloads { pending: Some((HEADERS, field)), segment: None })
}

fn is_answer(pod: &Pod, frame: &Frame) -> bool {
    let bytes = &frame.bytes;
    bytes.len() >= HEADERS && bytes[12..14] == [8, 0] && bytes[26..30] == pod.gateway().octets()
}

/// One error of the Pod's gateway, small, with good checksums and nothing left to be done: whoever passed it on would
/// write a pending checksum into the middle of what it quotes.
#[track_caller]
fn assert_answer(frames: &Frames, pod: &Pod, kind: u8, code: u8, about: &[u8]) {
    let answer = std::iter::from_fn(|| frames.next()).find(|frame| is_answer(pod, frame)).expect("an answer");
    let bytes = &answer.bytes;
    // RFC 1812, section 4.3.2.3.
    assert!(bytes.len() <= 14 + 576, "{} bytes", bytes.len());
    assert_eq!(usize::from(u16::from_be_bytes([bytes[16], bytes[17]])), bytes.len() - 14);
    assert_eq!((bytes[23], &bytes[30..34]), (1, &pod.address.octets()[..]));
    assert_eq!((checksum(&bytes[14..HEADERS]), checksum(&bytes[HEADERS..])), (0, 0), "{bytes:02x?}");
    assert_eq!((bytes[HEADERS], bytes[HEADERS + 1]), (kind, code));
    let quote = &bytes[HEADERS + 8..];
    assert!(quote.len() >= 28 && about[14..].starts_with(quote), "{quote:02x?}");
    assert!(!answer.segments && answer.sum != Sum::Pending, "{:?}", answer.sum);
}

fn answers_to_all_sizes(world: &World, frames: &Frames) {
    let pod = &world.pods[0];
    // The Pod in the other Subnet is there, but not within one hop.
    let far = world.pods[3].address;
    for (destination, ttl, reason, kind, code) in [
        (NOBODY, 64, Reason::NoEndpoint, 3, 1),
        (NOWHERE, 64, Reason::NoRoute, 3, 0),
        (far, 1, Reason::TtlExceeded, 11, 0),
    ] {
        let before = world.exits(reason);
        let sizes = [
            (60_000, true, Some(1400)),
            (3_000, true, Some(536)),
            (1_400, true, None),
            (1, true, None),
            (0, true, None),
            (1_400, false, None),
            (9, false, None),
            (0, false, None),
        ];
        for (payload, tcp, segment) in sizes {
            let (frame, offloads) = packet(pod, destination, ttl, payload, tcp);
            frames.send(&frame, Offloads { segment, ..offloads });
            assert_answer(frames, pod, kind, code, &frame);
        }
        assert_eq!(world.exits(reason) - before, sizes.len() as u64);
    }
}

/// The Pod's own tunnel: what is pending lies far behind the headers that we look at.
fn answer_to_a_tunnel(world: &World, frames: &Frames) {
    let pod = &world.pods[0];
    let (inner, offloads) = packet(pod, Ipv4Addr::new(172, 30, 0, 2), 64, 1000, true);
    let mut frame = Vec::new();
    let payload = [&[8, 0, 0, 0, 0, 0, 7, 0], &inner[..]].concat();
    let step = etherparse::PacketBuilder::ethernet2(pod.mac, pod.gateway_mac());
    let step = step.ipv4(pod.address.octets(), NOBODY.octets(), 64).udp(50_000, 4789);
    step.write(&mut frame, &payload).unwrap();
    // In IPv4 a tunnel needs no checksum of its own.
    frame[HEADERS + 6..HEADERS + 8].fill(0);
    let pending = offloads.pending.map(|(start, field)| (HEADERS + 16 + start, field));
    frames.send(&frame, Offloads { pending, ..offloads });
    assert_answer(frames, pod, 3, 1, &frame);
}

#[test]
fn an_answer_to_many_segments_is_one_whole_packet() {
    sandbox(|sandbox| {
        let world = world(&sandbox);
        let frames = Frames::open(&world.pods[0].net, "eth0");
        answers_to_all_sizes(&world, &frames);
        answer_to_a_tunnel(&world, &frames);
        // One to each.
        frames.patience(Duration::from_millis(200));
        let more = std::iter::from_fn(|| frames.next()).filter(|frame| is_answer(&world.pods[0], frame)).count();
        assert_eq!(more, 0);
    });
}

/// One reset in the peer's name, of the sender's connection, whole.
#[track_caller]
fn assert_reset(frames: &Frames, pod: &Pod, about: &[u8]) {
    let from_peer = |frame: &Frame| frame.bytes.starts_with(&pod.mac) && frame.bytes[23] == 6;
    let reset = std::iter::from_fn(|| frames.next()).find(from_peer).expect("a reset");
    let bytes = &reset.bytes;
    assert_eq!(bytes.len(), HEADERS + 20);
    assert_eq!((&bytes[26..30], &bytes[30..34]), (&about[30..34], &about[26..30]));
    assert_eq!(
        (&bytes[HEADERS..][..2], &bytes[HEADERS + 2..][..2]),
        (&about[HEADERS + 2..][..2], &about[HEADERS..][..2])
    );
    assert_eq!((&bytes[HEADERS + 4..][..4], bytes[HEADERS + 13]), (&about[HEADERS + 8..][..4], 4));
    let pseudo = [&bytes[26..34], &[0, 6, 0, 20], &bytes[HEADERS..]].concat();
    assert_eq!((checksum(&bytes[14..HEADERS]), checksum(&pseudo)), (0, 0), "{bytes:02x?}");
    assert!(!reset.segments && reset.sum != Sum::Pending, "{:?}", reset.sum);
}

#[test]
fn a_reset_to_many_segments_is_one_whole_packet() {
    sandbox(|sandbox| {
        let mut world = world(&sandbox);
        world.closed_port = Some(80);
        world.program();
        let pod = &world.pods[0];
        let frames = Frames::open(&pod.net, "eth0");
        let sizes = [(60_000, Some(1400)), (3_000, Some(536)), (1_400, None), (1, None), (0, None)];
        for (payload, segment) in sizes {
            let (frame, offloads) = packet(pod, world.pods[1].address, 64, payload, true);
            frames.send(&frame, Offloads { segment, ..offloads });
            assert_reset(&frames, pod, &frame);
        }
        assert_eq!(world.exits(Reason::PolicyEgress), sizes.len() as u64);
    });
}
