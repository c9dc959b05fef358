//! Every reason is reachable, and each exit moves exactly one counter by one.

use crate::common::{NOW, Net, frame};
use juneau_core::layout::{Be32, EP_POLICY_READY, IDENTITY_ANY, INGRESS, PolicyKey, RouteKey, be32};
use juneau_core::packet::{ICMP_TIME_EXCEEDED, ICMP_UNREACHABLE, Ipv4};
use juneau_core::pipeline::{Limits, Outcome, Packet, Tunnel};
use juneau_core::tables::{Change, TablesMut};
use juneau_core::testkit::packets::{Frame, Layer4, arp_request, data, echo, icmp_error, sctp, syn, udp, vxlan};
use juneau_core::testkit::services::{EMPTY, LOCAL, NOBODY, SCTP, WEB};
use juneau_core::testkit::topology::{self, Pod, vtep};
use juneau_core::verdict::{Action, Hook, Reason};
use std::net::Ipv4Addr;

const A: Pod = Pod::new(0, 1, 10);
const B: Pod = Pod::new(0, 1, 11);
/// On the other node.
const C: Pod = Pod::new(0, 1, 20);

fn to_b(layer4: Layer4) -> Frame {
    frame(A, B.address(), layer4)
}

fn patched(layer4: Layer4, offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = to_b(layer4).build();
    frame[offset..offset + bytes.len()].copy_from_slice(bytes);
    frame
}

fn change(net: &mut Net, change: Change) {
    net.0[0].tables.apply(&change).unwrap();
}

fn set_interface(net: &mut Net, flags: u32) {
    let mut record = A.interface();
    record.flags = flags;
    change(net, Change::Interface(A.ifindex(), Some(record)));
}

fn limited(limits: Limits) -> Net {
    Net([topology::node_with(0, &limits), topology::node(1)])
}

/// What C sends to A in the overlay, as it arrives at node 0.
fn from_c(layer4: Layer4, tos: u8) -> Vec<u8> {
    vxlan(vtep(1), vtep(0), A.vni(), tos, &frame(C, A.address(), layer4).build())
}

type Case = (Reason, fn(&mut Net) -> Outcome);

const CASES: &[Case] = &[
    (Reason::Ok, |net| net.send_frame(A, &to_b(echo(1)))),
    (Reason::NoInterface, |net| {
        let sent = to_b(echo(1)).build();
        net.0[0].handle(&Packet::new(Hook::Pod, 9999, &sent), NOW).unwrap()
    }),
    (Reason::Malformed, |net| net.raw(A, &to_b(echo(1)).build()[..33])),
    (Reason::Vlan, |net| net.raw(A, &patched(echo(1), 12, &[0x81, 0x00]))),
    (Reason::Ethertype, |net| net.raw(A, &patched(echo(1), 12, &[0x88, 0xcc]))),
    (Reason::Ipv6, |net| net.raw(A, &patched(echo(1), 12, &[0x86, 0xdd]))),
    (Reason::SourceMac, |net| net.raw(A, &patched(echo(1), 6, &B.mac()))),
    (Reason::SourceAddress, |net| net.send_frame(A, &Frame { source: C.address(), ..to_b(echo(1)) })),
    (Reason::ArpSender, |net| net.raw(A, &arp_request(A.mac(), B.address(), C.address()))),
    (Reason::ArpIgnored, |net| net.raw(A, &arp_request(A.mac(), A.address(), A.address()))),
    (Reason::ArpUnknown, |net| net.raw(A, &arp_request(A.mac(), A.address(), Ipv4Addr::new(10, 0, 1, 99)))),
    (Reason::ArpAnswered, |net| net.raw(A, &arp_request(A.mac(), A.address(), B.address()))),
    (Reason::Destination, |net| net.send(A, Ipv4Addr::new(169, 254, 169, 254), echo(1))),
    (Reason::IpOptions, |net| {
        let mut sent = to_b(Layer4::Raw { protocol: 1, payload: vec![0; 12] }).build();
        sent[14] = 0x46;
        net.raw(A, &sent)
    }),
    (Reason::PolicyNotReady, |net| {
        set_interface(net, 0);
        net.send_frame(A, &to_b(echo(1)))
    }),
    (Reason::PolicyEgress, |net| {
        let key = PolicyKey { identity: A.identity(), policy: 1, peer: IDENTITY_ANY, ..PolicyKey::default() };
        change(net, Change::Policy(key, None));
        net.send_frame(A, &to_b(echo(1)))
    }),
    (Reason::PolicyIngress, |net| {
        let key = PolicyKey {
            identity: A.identity(),
            policy: 1,
            peer: IDENTITY_ANY,
            direction: INGRESS,
            ..PolicyKey::default()
        };
        change(net, Change::Policy(key, None));
        net.send_frame(A, &to_b(echo(1)))
    }),
    (Reason::NoRoute, |net| net.send(A, Ipv4Addr::new(198, 51, 100, 7), echo(1))),
    (Reason::RouteUnreachable, |net| net.send(A, Ipv4Addr::new(10, 8, 1, 1), echo(1))),
    (Reason::NoEndpoint, |net| net.send(A, Ipv4Addr::new(10, 0, 2, 99), echo(1))),
    (Reason::Gateway, |net| net.send(A, A.gateway(), echo(1))),
    (Reason::TtlExceeded, |net| {
        net.send_frame(A, &Frame { ttl: 1, ..frame(A, Pod::new(0, 2, 10).address(), echo(1)) })
    }),
    (Reason::FragmentationNeeded, |net| net.send_frame(A, &to_b(udp(1, 2, 1500)))),
    (Reason::FragmentNoFirst, |net| net.send_frame(A, &Frame { fragment: 5, ..to_b(udp(1, 2, 100)) })),
    (Reason::FragmentMapFull, |net| {
        *net = limited(Limits { fragments: 0, ..Limits::default() });
        net.send_frame(A, &Frame { fragment: Ipv4::MF, ..to_b(udp(1, 2, 100)) })
    }),
    (Reason::TcpFlags, |net| {
        let flags = Layer4::Tcp { source: 1, destination: 2, flags: 0x03, payload: 0 };
        net.send_frame(A, &to_b(flags))
    }),
    (Reason::IcmpType, |net| {
        let redirect = Layer4::Icmp { kind: 5, code: 0, id: 0, sequence: 0, payload: vec![0; 28] };
        net.send_frame(A, &to_b(redirect))
    }),
    (Reason::IcmpQuote, |net| {
        let short = Layer4::Icmp { kind: ICMP_UNREACHABLE, code: 3, id: 0, sequence: 0, payload: vec![0; 20] };
        net.send_frame(A, &to_b(short))
    }),
    (Reason::IcmpNoFlow, |net| {
        let about = frame(B, A.address(), udp(1, 2, 0)).build();
        net.send_frame(A, &to_b(icmp_error(ICMP_UNREACHABLE, 3, &about)))
    }),
    (Reason::QuotaFlows, |net| {
        let mut vpc = net.0[0].tables.content().vpcs[&0];
        vpc.flow_limit = 0;
        change(net, Change::Vpc(0, Some(vpc)));
        net.send_frame(A, &to_b(udp(1, 2, 0)))
    }),
    (Reason::QuotaEmbryonic, |net| {
        let mut vpc = net.0[0].tables.content().vpcs[&0];
        vpc.embryonic_limit = 0;
        change(net, Change::Vpc(0, Some(vpc)));
        net.send_frame(A, &to_b(syn(1, 2)))
    }),
    (Reason::FlowMapFull, |net| {
        *net = limited(Limits { flows: 1, ..Limits::default() });
        net.send_frame(A, &to_b(udp(1, 2, 0)))
    }),
    (Reason::VtepUnknown, |net| {
        let inner = frame(C, A.address(), echo(1)).build();
        net.underlay(0, &vxlan(Ipv4Addr::new(192, 0, 2, 77), vtep(0), A.vni(), 0, &inner))
    }),
    (Reason::VniUnknown, |net| {
        let inner = frame(C, A.address(), echo(1)).build();
        net.underlay(0, &vxlan(vtep(1), vtep(0), 999, 0, &inner))
    }),
    (Reason::VxlanHeader, |net| {
        let mut sent = from_c(echo(1), 0);
        sent[42] = 0x0c;
        net.underlay(0, &sent)
    }),
    (Reason::OverlayDestination, |net| {
        let inner = frame(C, B.address(), echo(1)).macs(C.mac(), A.mac()).build();
        net.underlay(0, &vxlan(vtep(1), vtep(0), A.vni(), 0, &inner))
    }),
    (Reason::Ecn, |net| net.underlay(0, &from_c(echo(1), 3))),
    (Reason::NodeSource, |net| net.host_sends(0, C.address(), A.address(), echo(1))),
    (Reason::PmtuUpdate, |net| {
        let about = net.raw(A, &frame(A, C.address(), data(1, 2, 1400)).build()).frame;
        net.0[0].counters = Default::default();
        let router = Ipv4Addr::new(192, 0, 2, 254);
        let mut told = icmp_error(ICMP_UNREACHABLE, 4, &about);
        if let Layer4::Icmp { sequence, .. } = &mut told {
            *sequence = 1400;
        }
        net.underlay(0, &Frame::new(router, vtep(0), told).build())
    }),
    (Reason::ServiceUnknown, |net| net.send(A, NOBODY, syn(1, 80))),
    (Reason::ServicePort, |net| net.send(A, WEB, syn(1, 81))),
    (Reason::ServiceEmpty, |net| net.send(A, EMPTY, syn(1, 80))),
    (Reason::ServiceNotLocal, |net| net.send(A, LOCAL, syn(1, 80))),
    (Reason::ServiceGone, |net| net.send(A, WEB, data(1, 80, 1))),
    (Reason::NatPorts, |net| {
        // SCTP has no other port to take than the one that a connection to the backend itself has.
        net.send(C, B.address(), sctp(2000, 2905));
        net.send(C, Pod::new(0, 2, 21).address(), sctp(2000, 2905));
        net.0.iter_mut().for_each(|node| node.counters = Default::default());
        net.send(C, SCTP, sctp(2000, 2905))
    }),
    (Reason::ServiceChanging, |net| {
        net.0[0].tables.apply(&Change::Backend(1, None)).unwrap();
        let mut lines = net.0[0].tables.content().slots.clone();
        lines.values_mut().for_each(|slots| slots.backend = [1; 16]);
        for (line, slots) in lines {
            net.0[0].tables.apply(&Change::Slots(line, Some(slots))).unwrap();
        }
        net.send(A, WEB, syn(1, 80))
    }),
];

/// What only the kernel can end in.
const KERNEL: &[Reason] =
    &[Reason::Encapsulation, Reason::Decapsulation, Reason::MissedTailCall, Reason::NoContext, Reason::VxlanInjection];

#[test]
fn every_reason_is_reached_and_counts_once() {
    for (reason, case) in CASES {
        let mut net = Net::new();
        let outcome = case(&mut net);
        assert_eq!(outcome.verdict.reason, *reason);
        let counted: u64 = net.0.iter().map(|node| node.counters.packets()).sum();
        assert_eq!(counted, 1, "{reason:?}");
        let action = outcome.verdict.action;
        let expected = match reason {
            Reason::Ok => Action::Peer,
            Reason::PmtuUpdate => Action::Pass,
            _ if outcome.verdict.answered => Action::Answer,
            _ => Action::Drop,
        };
        assert_eq!(action, expected, "{reason:?}");
        if action == Action::Drop {
            assert_eq!(net.0.iter().map(|node| node.counters.traffic.len()).sum::<usize>(), 0, "{reason:?}");
        }
    }
    for reason in Reason::ALL {
        let reached = CASES.iter().filter(|(case, _)| case == reason).count();
        assert_eq!(reached, usize::from(!KERNEL.contains(reason)), "{reason:?}");
    }
}

#[test]
fn what_is_not_ours_passes_uncounted() {
    let mut net = Net::new();
    let good = from_c(echo(1), 0);
    let mut cases = vec![
        ("another protocol", frame(A, B.address(), syn(1, 4789)).build()),
        ("another address", vxlan(vtep(1), Ipv4Addr::new(192, 0, 2, 9), A.vni(), 0, &[0; 60])),
        ("cut short", good[..41].to_vec()),
    ];
    for (name, offset, bytes) in [
        ("another port", 36, [0x12, 0xb6]),
        ("a first fragment", 20, [0x20, 0x00]),
        ("a later fragment", 20, [0x00, 0x05]),
        ("options", 14, [0x46, 0x00]),
        ("another EtherType", 12, [0x86, 0xdd]),
    ] {
        let mut sent = good.clone();
        sent[offset..offset + 2].copy_from_slice(&bytes);
        cases.push((name, sent));
    }
    for (name, sent) in cases {
        let outcome = net.underlay(0, &sent);
        assert_eq!((outcome.verdict.action, outcome.verdict.reason), (Action::Pass, Reason::Ok), "{name}");
        assert_eq!(outcome.frame, sent);
    }
    assert_eq!(net.0[0].counters.packets(), 0);
    assert_eq!(net.underlay(0, &good).verdict.action, Action::Peer, "the control");
}

#[test]
fn outer_headers_must_be_consistent() {
    let mut net = Net::new();
    let good = from_c(udp(1, 2, 20), 0);
    let ours = |frame: &[u8]| Packet::new(Hook::Overlay, 2, frame).frame.len();
    assert!(ours(&good) > 64);
    let handle = |net: &mut Net, packet: Packet<'_>| net.0[0].handle(&packet, NOW).unwrap().verdict.reason;
    let packet = Packet::new(Hook::Overlay, 2, &good);
    assert_eq!(handle(&mut net, Packet { to_host: false, ..packet }), Reason::VxlanHeader);
    assert_eq!(handle(&mut net, Packet { vlan_present: true, ..packet }), Reason::VxlanHeader);
    for (offset, bytes) in [(16, [0xff, 0xff]), (38, [0, 40]), (38, [0, 0]), (42, [0, 0])] {
        let mut bad = good.clone();
        bad[offset..offset + 2].copy_from_slice(&bytes);
        assert_eq!(handle(&mut net, Packet::new(Hook::Overlay, 2, &bad)), Reason::VxlanHeader, "{offset}");
    }
    for length in 42..64 {
        let bad = Packet::new(Hook::Overlay, 2, &good[..length]);
        assert_eq!(handle(&mut net, bad), Reason::VxlanHeader, "{length}");
    }
    assert_eq!(handle(&mut net, packet), Reason::Ok);
    let mut long = good.clone();
    long[38..40].copy_from_slice(&[0, 0]);
    let gso = Packet { gso_size: 20, ..Packet::new(Hook::Overlay, 2, &long) };
    assert_eq!(handle(&mut net, gso), Reason::Ok, "lengths of a GSO packet are not looked at");
}

#[test]
fn the_vxlan_device_leaves_a_tunnel_key() {
    let mut net = Net::new();
    let sent = frame(C, A.address(), udp(1, 2, 20)).build();
    let mut handle = |packet: Packet<'_>| {
        let outcome = net.0[0].handle(&packet, NOW).unwrap();
        (outcome.verdict.reason, outcome.frame)
    };
    let bare = Packet::new(Hook::Vxlan, 3, &sent);
    assert_eq!(handle(bare).0, Reason::VxlanHeader);
    let packet = Packet { tunnel: Some(Tunnel { vni: A.vni(), source: vtep(1) }), ..bare };
    assert_eq!(handle(packet), (Reason::Ok, sent.clone()));
    let stranger = Some(Tunnel { vni: A.vni(), source: Ipv4Addr::new(192, 0, 2, 9) });
    assert_eq!(handle(Packet { tunnel: stranger, ..packet }).0, Reason::VtepUnknown);
    assert_eq!(handle(Packet { vlan_present: true, ..packet }).0, Reason::Vlan);
    assert_eq!(handle(Packet { frame: &sent[..10], ..packet }).0, Reason::Malformed);
}

#[test]
fn a_strange_vtep_is_told_before_what_it_sends() {
    let mut net = Net::new();
    let stranger = Ipv4Addr::new(192, 0, 2, 77);
    let mut inner = frame(C, A.address(), echo(1)).build();
    inner[12..14].copy_from_slice(&[0x81, 0x00]);
    let reason = |net: &mut Net, source| net.underlay(0, &vxlan(source, vtep(0), A.vni(), 0, &inner)).verdict.reason;
    assert_eq!(reason(&mut net, stranger), Reason::VtepUnknown);
    assert_eq!(reason(&mut net, vtep(1)), Reason::Vlan);
}

#[test]
fn malformed_headers() {
    let mut net = Net::new();
    let cases: &[(&str, Vec<u8>)] = &[
        ("no Ethernet header", to_b(echo(1)).build()[..13].to_vec()),
        ("version 6", patched(echo(1), 14, &[0x65])),
        ("header length 16", patched(echo(1), 14, &[0x44])),
        ("header longer than the packet", patched(echo(1), 14, &[0x4f])),
        ("total length below the header", patched(echo(1), 16, &[0, 19])),
        ("total length beyond the packet", patched(echo(1), 16, &[0, 29])),
        ("TCP cut short", to_b(Layer4::Raw { protocol: 6, payload: vec![0; 19] }).build()),
        ("TCP header of 16 bytes", patched(syn(1, 2), 46, &[0x40])),
        ("TCP header beyond the packet", patched(syn(1, 2), 46, &[0x60])),
        ("UDP cut short", to_b(Layer4::Raw { protocol: 17, payload: vec![0; 7] }).build()),
        ("UDP length 7", patched(udp(1, 2, 0), 38, &[0, 7])),
        ("UDP length beyond the packet", patched(udp(1, 2, 0), 38, &[0, 9])),
        ("ICMP cut short", to_b(Layer4::Raw { protocol: 1, payload: vec![8; 7] }).build()),
        ("ARP cut short", arp_request(A.mac(), A.address(), B.address())[..41].to_vec()),
        ("ARP of another kind", {
            let mut arp = arp_request(A.mac(), A.address(), B.address());
            arp[15] = 6;
            arp
        }),
    ];
    for (name, sent) in cases {
        assert_eq!(net.raw(A, sent).verdict.reason, Reason::Malformed, "{name}");
    }
    // Padding behind the datagram is fine.
    let padded = [to_b(udp(1, 2, 0)).build(), vec![0; 18]].concat();
    assert_eq!(net.raw(A, &padded).verdict.reason, Reason::Ok);
}

#[test]
fn a_vlan_tag_in_the_metadata_is_dropped() {
    let mut net = Net::new();
    let sent = to_b(echo(1)).build();
    let tagged = Packet { vlan_present: true, ..Packet::new(Hook::Pod, A.ifindex(), &sent) };
    assert_eq!(net.0[0].handle(&tagged, NOW).unwrap().verdict.reason, Reason::Vlan);
    assert_eq!(net.raw(A, &patched(echo(1), 12, &[0x88, 0xa8])).verdict.reason, Reason::Vlan);
    assert_eq!(net.raw(A, &sent).verdict.reason, Reason::Ok, "the control");
}

#[test]
fn forbidden_destinations() {
    let mut net = Net::new();
    let all = RouteKey::new(A.table(), Ipv4Addr::UNSPECIFIED, 0);
    let route = juneau_core::layout::Route { kind: 1, vni: A.vni(), ..Default::default() };
    change(&mut net, Change::Route(all, Some(route)));
    for address in ["0.0.0.1", "127.0.0.1", "169.254.169.254", "224.0.0.1", "240.0.0.1", "255.255.255.255"] {
        let outcome = net.send(A, address.parse().unwrap(), echo(1));
        assert_eq!(outcome.verdict.reason, Reason::Destination, "{address}");
        assert!(!outcome.verdict.answered);
    }
    assert_eq!(net.send(A, Ipv4Addr::new(9, 9, 9, 9), echo(1)).verdict.reason, Reason::NoEndpoint, "the control");
}

#[test]
fn the_receiver_may_not_be_ready() {
    let mut net = Net::new();
    let key = juneau_core::layout::EndpointKey { vpc: B.vpc(), address: be32(B.address()) };
    let mut record = B.endpoint(0);
    record.flags &= !EP_POLICY_READY;
    change(&mut net, Change::Endpoint(key, Some(record)));
    assert_eq!(net.send_frame(A, &to_b(echo(1))).verdict.reason, Reason::PolicyNotReady);
    let from_c = vxlan(vtep(1), vtep(0), B.vni(), 0, &frame(C, B.address(), echo(1)).build());
    assert_eq!(net.underlay(0, &from_c).verdict.reason, Reason::PolicyNotReady);
    record.flags |= EP_POLICY_READY;
    change(&mut net, Change::Endpoint(key, Some(record)));
    assert_eq!(net.send_frame(A, &to_b(echo(1))).verdict.reason, Reason::Ok);
    assert_eq!(net.underlay(0, &from_c).verdict.reason, Reason::Ok);
}

#[test]
fn a_target_without_a_known_node_is_no_endpoint() {
    let mut net = Net::new();
    change(&mut net, Change::Vtep(be32(vtep(1)), None));
    assert_eq!(net.send(A, C.address(), echo(1)).verdict.reason, Reason::NoEndpoint);
    assert_eq!(net.0[0].tables.content().vteps.get(&Be32::ZERO), None);
}

#[test]
fn time_exceeded_is_not_what_a_neighbour_meets() {
    let mut net = Net::new();
    assert_eq!(net.send_frame(A, &Frame { ttl: 1, ..to_b(echo(1)) }).verdict.reason, Reason::Ok);
    let routed = Frame { ttl: 2, ..frame(A, Pod::new(0, 2, 10).address(), echo(1)) };
    assert_eq!(net.send_frame(A, &routed).verdict.reason, Reason::Ok);
    let outcome = net.send_frame(A, &Frame { ttl: 1, ..routed });
    assert_eq!(outcome.verdict.reason, Reason::TtlExceeded, "on a current record, too");
    assert_eq!(outcome.frame[34], ICMP_TIME_EXCEEDED);
}
