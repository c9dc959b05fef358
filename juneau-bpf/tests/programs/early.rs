//! Hook POD, rules 1 to 9: what ends before a flow is looked up. Every refusal stands beside a packet that passes.

use std::net::Ipv4Addr;

use juneau_core::layout::*;
use juneau_core::verdict::Reason;

use crate::lab::{Lab, RED_INDEX, lab};
use crate::packet::*;

fn udp_packet(lab: &Lab) -> Packet {
    lab.packet("a", "b", UDP, udp(1000, 2000, 20))
}

#[test]
fn interfaces_without_a_record() {
    lab(|lab| {
        let (a, packet) = (lab.pod("a"), udp_packet(lab).bytes());
        lab.run("jn_pod", lab.underlay, 0, &packet).dropped(Reason::NoInterface);
        lab.send(a, &packet).delivered(lab.pod("b"));
        lab.put("jn_interfaces", &a.ifindex, &Interface::default());
        lab.send(a, &packet).dropped(Reason::NoInterface);
    });
}

#[test]
fn ethernet_headers() {
    lab(|lab| {
        let a = lab.pod("a");
        let good = udp_packet(lab);
        for (ethertype, reason) in [
            (0x8100, Reason::Vlan),
            (0x88a8, Reason::Vlan),
            (0x86dd, Reason::Ipv6),
            (0x0801, Reason::Ethertype),
            (0x8847, Reason::Ethertype),
        ] {
            lab.send(a, &Packet { ethertype, ..good.clone() }.bytes()).dropped(reason);
        }
        for byte in 0..6 {
            let mut source_mac = a.mac;
            source_mac[byte] ^= 1;
            let spoofed = Packet { source_mac, ..good.clone() };
            lab.send(a, &spoofed.bytes()).dropped(Reason::SourceMac);
            // A tag is a tag whoever sends it.
            lab.send(a, &Packet { ethertype: 0x8100, ..spoofed }.bytes()).dropped(Reason::Vlan);
        }
        lab.send(a, &good.bytes()).delivered(lab.pod("b"));
    });
}

#[test]
fn ipv4_headers() {
    lab(|lab| {
        let a = lab.pod("a");
        let good = udp_packet(lab).bytes();
        let with = |offset: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[14 + offset] = value;
            bytes
        };
        for first in [0x44, 0x35, 0x65, 0x55, 0x05, 0x40] {
            lab.send(a, &with(0, first)).dropped(Reason::Malformed);
        }
        lab.send(a, &with(0, 0x46)).dropped(Reason::IpOptions);
        // A header that is longer than the packet.
        lab.send(a, &with(0, 0x4f)).dropped(Reason::Malformed);
        // Total lengths of 0, 19, 20 (no layer 4), one more than there is, 65535.
        for length in [0_u16, 19, 20, 49, 65535] {
            let mut bytes = good.clone();
            bytes[16..18].copy_from_slice(&length.to_be_bytes());
            lab.send(a, &bytes).dropped(Reason::Malformed);
        }
        for length in 14..42 {
            // The kernel runs nothing on less than an Ethernet header, some kernels on less than an IPv4 one.
            if length >= 34 {
                lab.send(a, &good[..length]).dropped(Reason::Malformed);
            }
        }
        lab.send(a, &good).delivered(lab.pod("b"));
        let trailing = Packet { trailer: 30, ..udp_packet(lab) };
        lab.send(a, &trailing.bytes()).delivered(lab.pod("b"));
    });
}

#[test]
fn addresses() {
    lab(|lab| {
        let (a, router) = (lab.pod("a"), lab.pod("router"));
        let good = udp_packet(lab);
        for source in [[10, 0, 1, 11], [10, 0, 1, 9], [0, 0, 0, 0], [11, 0, 1, 10], [10, 0, 0, 10]] {
            let spoofed = Packet { source: source.into(), ..good.clone() };
            lab.send(a, &spoofed.bytes()).dropped(Reason::SourceAddress);
        }
        let forbidden: [Ipv4Addr; 9] = [
            [0, 0, 0, 0].into(),
            [0, 9, 9, 9].into(),
            [127, 0, 0, 1].into(),
            [169, 254, 169, 254].into(),
            [224, 0, 0, 1].into(),
            [239, 255, 255, 250].into(),
            [240, 0, 0, 1].into(),
            [255, 255, 255, 255].into(),
            [127, 255, 255, 255].into(),
        ];
        // Everything is routed: only the class decides.
        lab.route(crate::lab::TABLE, [0, 0, 0, 0].into(), 0, ROUTE_CONNECTED, None);
        for destination in forbidden {
            lab.send(a, &Packet { destination, ..good.clone() }.bytes()).dropped(Reason::Destination);
            // Nor may a router send from such a source.
            let transit = Packet { source: destination, source_mac: router.mac, ..good.clone() };
            lab.send(router, &transit.bytes()).dropped(Reason::SourceAddress);
        }
        for destination in [[1, 0, 0, 0], [126, 1, 1, 1], [128, 0, 0, 1], [169, 253, 1, 1], [223, 255, 255, 255]] {
            let packet = Packet { destination: destination.into(), ..good.clone() };
            lab.set_hot(|hot| hot.clock += 1);
            lab.send(a, &packet.bytes()).answered(Reason::NoEndpoint);
        }
    });
}

#[test]
fn policy_that_is_not_programmed() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        let packet = udp_packet(lab).bytes();
        let mut interface = lab.interface(a);
        interface.flags = 0;
        lab.put("jn_interfaces", &a.ifindex, &interface);
        lab.send(a, &packet).dropped(Reason::PolicyNotReady);
        lab.put("jn_interfaces", &a.ifindex, &lab.interface(a));
        let mut endpoint = lab.endpoint(b);
        endpoint.flags &= !EP_POLICY_READY;
        lab.put_endpoint(b, &endpoint);
        lab.send(a, &packet).dropped(Reason::PolicyNotReady);
        assert_eq!(lab.quota(RED_INDEX), (0, 0));
        endpoint.flags |= EP_POLICY_READY;
        lab.put_endpoint(b, &endpoint);
        lab.send(a, &packet).delivered(b);
        // On another node it is that node's affair.
        let mut endpoint = lab.endpoint(lab.pod("x"));
        endpoint.flags &= !EP_POLICY_READY;
        lab.put_endpoint(lab.pod("x"), &endpoint);
        lab.send(a, &lab.packet("a", "x", UDP, udp(1, 2, 3)).bytes()).encapsulated(crate::lab::FIRST);
    });
}

#[test]
fn tcp_headers() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        let packet = |l4: Vec<u8>| lab.packet("a", "b", TCP, l4).bytes();
        for flags in 0..=255_u8 {
            let (syn, fin, rst, ack) = (flags & SYN != 0, flags & FIN != 0, flags & RST != 0, flags & ACK != 0);
            let one = u8::from(syn) + u8::from(fin) + u8::from(rst);
            let valid = one <= 1 && (one == 1 || ack) && (!fin || ack);
            let run = lab.send(a, &packet(tcp(1, 2, flags, 4)));
            if valid {
                run.delivered(b);
            } else {
                run.dropped(Reason::TcpFlags);
            }
        }
        for length in 0..20 {
            let mut l4 = tcp(1, 2, SYN, 0);
            l4.truncate(length);
            lab.send(a, &packet(l4)).dropped(Reason::Malformed);
        }
        for (offset, valid) in [(0x00, false), (0x40, false), (0x50, true), (0x60, true), (0x70, false), (0xf0, false)]
        {
            let mut l4 = tcp(1, 2, ACK, 4);
            l4[12] = offset;
            let run = lab.send(a, &packet(l4));
            if valid {
                run.delivered(b);
            } else {
                run.dropped(Reason::Malformed);
            }
        }
    });
}

#[test]
fn udp_headers() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        for length in [0_u16, 7, 29, 65535] {
            let mut l4 = udp(1, 2, 20);
            l4[4..6].copy_from_slice(&length.to_be_bytes());
            lab.send(a, &lab.packet("a", "b", UDP, l4).bytes()).dropped(Reason::Malformed);
        }
        for length in [8_u16, 27, 28] {
            let mut l4 = udp(1, 2, 20);
            l4[4..6].copy_from_slice(&length.to_be_bytes());
            lab.send(a, &lab.packet("a", "b", UDP, l4).bytes()).delivered(b);
        }
        // A length that only the trailer could fill.
        let mut l4 = udp(1, 2, 20);
        l4[5] = 30;
        let trailing = Packet { trailer: 10, ..lab.packet("a", "b", UDP, l4) };
        lab.send(a, &trailing.bytes()).dropped(Reason::Malformed);
    });
}

#[test]
fn icmp_types_and_other_protocols() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        for kind in 0..=255 {
            let run = lab.send(a, &lab.packet("a", "b", ICMP, icmp(kind, 0, [0, 9, 0, 1], &[0; 8])).bytes());
            match kind {
                0 | 8 => _ = run.delivered(b),
                3 | 11 | 12 => run.dropped(Reason::IcmpQuote),
                _ => run.dropped(Reason::IcmpType),
            }
        }
        for length in 0..8 {
            let mut l4 = echo(1);
            l4.truncate(length);
            lab.send(a, &lab.packet("a", "b", ICMP, l4).bytes()).dropped(Reason::Malformed);
        }
        // The key of a protocol without ports has the protocol in their place.
        for (protocol, length) in [(50, 3), (133, 12), (4, 0), (0, 40)] {
            lab.send(a, &lab.packet("a", "b", protocol, vec![7; length]).bytes()).delivered(b);
            let key = lab.key(crate::lab::RED, "a", "b", protocol, (protocol.into(), protocol.into()));
            assert_eq!(key.scope >> 26, 63);
            assert!(lab.flow(&key).is_some());
        }
    });
}

#[test]
fn two_tenants_with_the_same_addresses() {
    lab(|lab| {
        // Both have 10.0.1.10 and both have 10.0.1.50; only red has 10.0.1.11.
        let (red, blue) = (lab.pod("a"), lab.pod("blue-a"));
        let l4 = udp(1, 2, 3);
        lab.send(red, &lab.packet("a", "b", UDP, l4.clone()).bytes()).delivered(lab.pod("b"));
        let stray = Packet { destination: lab.pod("b").address, ..lab.packet("blue-a", "blue-x", UDP, l4.clone()) };
        lab.send(blue, &stray.bytes()).answered(Reason::NoEndpoint);
        lab.send(red, &lab.packet("a", "x", UDP, l4.clone()).bytes()).encapsulated(crate::lab::FIRST);
        lab.send(blue, &lab.packet("blue-a", "blue-x", UDP, l4).bytes()).encapsulated(crate::lab::BLUE_FIRST);
        assert_eq!((lab.quota(RED_INDEX).0, lab.quota(crate::lab::BLUE_INDEX).0), (2, 1));
    });
}

#[test]
fn arp_is_answered() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        let ask = |target: Ipv4Addr| crate::packet::arp(a.at(), target);
        for (target, mac) in [
            (a.gateway(), a.gateway_mac()),
            ([10, 0, 1, 2].into(), a.gateway_mac()),
            (b.address, b.mac),
            (lab.pod("x").address, lab.pod("x").mac),
        ] {
            let run = lab.send(a, &ask(target));
            run.answered(Reason::ArpAnswered);
            assert_eq!(run.verdict.ifindex, a.ifindex);
            let mut expected = ethernet(a.mac, mac, 0x0806);
            expected.extend([0, 1, 8, 0, 6, 4, 0, 2]);
            expected.extend(mac);
            expected.extend(target.octets());
            expected.extend(a.mac);
            expected.extend(a.address.octets());
            assert_eq!(run.bytes, expected);
        }
        // A probe for an address (RFC 5227) is answered to 0.0.0.0.
        let probe = crate::packet::arp((a.mac, Ipv4Addr::UNSPECIFIED), b.address);
        let run = lab.send(a, &probe);
        run.answered(Reason::ArpAnswered);
        assert_eq!(run.bytes[38..42], [0, 0, 0, 0]);

        for unknown in [[10, 0, 1, 99], [10, 0, 2, 12], [10, 0, 1, 0], [10, 0, 1, 255], [8, 8, 8, 8]] {
            lab.send(a, &ask(unknown.into())).dropped(Reason::ArpUnknown);
        }
        lab.send(a, &ask(a.address)).dropped(Reason::ArpIgnored);
        let mut reply = ask(b.address);
        reply[21] = 2;
        lab.send(a, &reply).dropped(Reason::ArpIgnored);
        lab.send(a, &crate::packet::arp((a.mac, b.address), b.address)).dropped(Reason::ArpSender);
        let mut spoofed = ask(b.address);
        spoofed[22..28].copy_from_slice(&b.mac);
        lab.send(a, &spoofed).dropped(Reason::ArpSender);
        for (offset, value) in [(15, 6), (17, 6), (18, 8), (19, 16)] {
            let mut bytes = ask(b.address);
            bytes[offset] = value;
            lab.send(a, &bytes).dropped(Reason::Malformed);
        }
        lab.send(a, &ask(b.address)[..41]).dropped(Reason::Malformed);
    });
}
