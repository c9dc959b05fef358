//! ICMP errors: ours, and those that Pods send about flows.

use std::net::Ipv4Addr;

use juneau_core::layout::*;
use juneau_core::verdict::Reason;

use crate::lab::*;
use crate::packet::*;
use crate::topology::Pod;

/// The answer to `packet`, as it shall be.
fn answer(pod: Pod, packet: &Packet, kind: u8, code: u8, mtu: u16) -> Vec<u8> {
    let mut quote = packet.ip();
    quote.extend(&packet.l4[..packet.l4.len().min(28)]);
    let [high, low] = mtu.to_be_bytes();
    let error = icmp(kind, code, [0, 0, high, low], &quote);
    let mut answer = Packet::new(ICMP, (pod.gateway_mac(), pod.gateway()), pod.at(), error);
    answer.destination = packet.source;
    answer.tos = 0xc0;
    answer.id = 0;
    answer.fragment = 0;
    answer.bytes()
}

fn to(lab: &Lab, destination: Ipv4Addr, l4: Vec<u8>) -> Packet {
    Packet { destination, ..lab.packet("a", "c", UDP, l4) }
}

#[test]
fn every_answer_byte_by_byte() {
    lab(|lab| {
        let a = lab.pod("a");
        for payload in [0, 1, 7, 19, 20, 21, 200] {
            lab.set_hot(|hot| hot.clock += 1);
            for (destination, reason, code) in [
                (Ipv4Addr::new(8, 8, 8, 8), Reason::NoRoute, 0),
                (Ipv4Addr::new(10, 8, 0, 1), Reason::RouteUnreachable, 1),
                (Ipv4Addr::new(10, 7, 0, 1), Reason::RouteUnreachable, 1),
                (Ipv4Addr::new(10, 0, 2, 99), Reason::NoEndpoint, 1),
            ] {
                let packet = to(lab, destination, udp(1, 2, payload));
                let run = lab.send(a, &packet.bytes());
                run.answered(reason);
                assert_eq!(run.verdict.ifindex, a.ifindex);
                assert_eq!(run.bytes, answer(a, &packet, 3, code, 0));
            }
            let packet = Packet { ttl: 1, ..lab.packet("a", "c", UDP, udp(1, 2, payload)) };
            let run = lab.send(a, &packet.bytes());
            run.answered(Reason::TtlExceeded);
            assert_eq!(run.bytes, answer(a, &packet, 11, 0, 0));
        }
        assert_eq!((lab.flows(), lab.quota(RED_INDEX)), (0, (0, 0)));
    });
}

#[test]
fn fragmentation_needed_tells_the_mtu() {
    lab(|lab| {
        let a = lab.pod("a");
        lab.put("jn_vteps", &be32(OTHER_VTEP), &Vtep { next_hop: be32(NEXT_HOP), mtu: 1300, zero: 0 });
        for (destination, mtu) in [("c", POD_MTU), ("x", 1250)] {
            // On a miss, and when the record says so.
            for _ in 0..2 {
                let packet = lab.packet("a", destination, UDP, udp(1, 2, 1400));
                let run = lab.send(a, &packet.bytes());
                run.answered(Reason::FragmentationNeeded);
                assert_eq!(run.bytes, answer(a, &packet, 3, 4, mtu));
                assert_eq!(lab.send(a, &lab.packet("a", destination, UDP, udp(1, 2, 5)).bytes()).reason, Reason::Ok);
            }
        }
    });
}

#[test]
fn the_ttl_counts_where_we_route() {
    lab(|lab| {
        let a = lab.pod("a");
        for ttl in [0, 1] {
            let near = Packet { ttl, ..lab.packet("a", "b", UDP, udp(1, 2, 3)) };
            lab.send(a, &near.bytes()).delivered(lab.pod("b"));
            let far = Packet { ttl, ..lab.packet("a", "x", UDP, udp(1, 2, 3)) };
            lab.send(a, &far.bytes()).encapsulated(FIRST);
            lab.send(a, &Packet { ttl: 64, ..lab.packet("a", "c", UDP, udp(1, 2, 3)) }.bytes()).delivered(lab.pod("c"));
            for destination in ["c", "y"] {
                let routed = Packet { ttl, ..lab.packet("a", destination, UDP, udp(1, 2, 3)) };
                lab.send(a, &routed.bytes()).answered(Reason::TtlExceeded);
            }
        }
    });
}

#[test]
fn gateways_are_no_endpoints() {
    lab(|lab| {
        let a = lab.pod("a");
        let packet = Packet { destination: a.gateway(), ..lab.packet("a", "b", ICMP, echo(1)) };
        lab.send(a, &packet.bytes()).dropped(Reason::Gateway);
        lab.send(a, &to(lab, [10, 0, 2, 1].into(), udp(1, 2, 3)).bytes()).answered(Reason::NoEndpoint);
        // To oneself there is no way either.
        let own = Packet { destination: a.address, ..lab.packet("a", "b", UDP, udp(5, 5, 3)) };
        lab.send(a, &own.bytes()).answered(Reason::RouteUnreachable);
    });
}

#[test]
fn answers_are_limited_per_vpc_and_stamp() {
    lab(|lab| {
        let a = lab.pod("a");
        let packet = to(lab, [8, 8, 8, 8].into(), udp(1, 2, 3)).bytes();
        for clock in [10, 11, 500] {
            lab.set_hot(|hot| hot.clock = clock);
            for _ in 0..5 {
                lab.send(a, &packet).answered(Reason::NoRoute);
            }
            for _ in 0..3 {
                lab.send(a, &packet).dropped(Reason::NoRoute);
            }
            let blue = lab.pod("blue-a");
            let theirs =
                Packet { destination: [8, 8, 8, 8].into(), ..lab.packet("blue-a", "blue-x", UDP, udp(1, 2, 3)) };
            lab.send(blue, &theirs.bytes()).answered(Reason::NoRoute);
        }
    });
}

#[test]
fn nothing_is_said_about_errors_and_later_fragments() {
    lab(|lab| {
        let (a, b) = (lab.pod("a"), lab.pod("b"));
        // A flow, so that the error is about something; its destination then vanishes.
        lab.send(b, &lab.packet("b", "a", UDP, udp(7, 8, 3)).bytes()).delivered(a);
        let mut quote = lab.packet("b", "a", UDP, udp(7, 8, 3)).ip();
        quote.extend(&udp(7, 8, 3)[..8]);
        let error = lab.packet("a", "b", ICMP, icmp(3, 3, [0; 4], &quote)).bytes();
        lab.send(a, &error).delivered(b);
        lab.remove("jn_endpoints", &EndpointKey { vpc: RED, address: be32(b.address) });
        lab.send(a, &error).dropped(Reason::NoEndpoint);

        let first = Packet { fragment: 0x2000, ..lab.packet("a", "c", UDP, udp(1, 2, 16)) };
        let later = Packet { fragment: 3, l4: vec![0; 8], ..first.clone() };
        lab.send(a, &first.bytes()).delivered(lab.pod("c"));
        lab.send(a, &Packet { ttl: 1, ..first }.bytes()).answered(Reason::TtlExceeded);
        lab.send(a, &Packet { ttl: 1, ..later }.bytes()).dropped(Reason::TtlExceeded);
    });
}

fn error(lab: &Lab, from: &str, to: &str, quoted: &Packet) -> Packet {
    let mut quote = quoted.ip();
    quote.extend(&quoted.l4[..8]);
    lab.packet(from, to, ICMP, icmp(3, 3, [0; 4], &quote))
}

#[test]
fn errors_about_flows() {
    lab(|lab| {
        let (a, c) = (lab.pod("a"), lab.pod("c"));
        for (protocol, l4) in [(UDP, udp(7, 8, 9)), (TCP, tcp(7, 8, SYN, 9)), (ICMP, echo(5)), (50, vec![3; 30])] {
            let flow = lab.packet("c", "a", protocol, l4);
            let packet = error(lab, "a", "c", &flow);
            lab.send(a, &packet.bytes()).dropped(Reason::IcmpNoFlow);
            lab.send(c, &flow.bytes()).delivered(a);
            let run = lab.send(a, &packet.bytes());
            run.delivered(c);
            let routed = Packet { ttl: 63, destination_mac: c.mac, source_mac: c.gateway_mac(), ..packet.clone() };
            assert_eq!(run.bytes, routed.bytes());
            // A stale record is a flow all the same.
            lab.advance(GEN_NODE, 2);
            lab.send(a, &packet.bytes()).delivered(c);
            // Not to anybody else.
            let stray = Packet { destination: lab.pod("b").address, ..packet };
            lab.send(a, &stray.bytes()).dropped(Reason::IcmpQuote);
        }
        assert_eq!(lab.flows(), 8, "errors have no records");
    });
}

#[test]
fn quotes_that_are_refused() {
    lab(|lab| {
        let (a, c) = (lab.pod("a"), lab.pod("c"));
        let flow = lab.packet("c", "a", UDP, udp(7, 8, 9));
        lab.send(c, &flow.bytes()).delivered(a);
        let good = error(lab, "a", "c", &flow);
        lab.send(a, &good.bytes()).delivered(c);
        let refuse = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bad = good.clone();
            change(&mut bad.l4);
            lab.send(a, &bad.bytes()).dropped(Reason::IcmpQuote);
        };
        refuse(&|l4| l4.truncate(35));
        refuse(&|l4| l4.truncate(8));
        refuse(&|l4| l4[8] = 0x46);
        refuse(&|l4| l4[8] = 0x65);
        // A later fragment.
        refuse(&|l4| l4[15] = 1);
        // ICMP that is not echo.
        refuse(&|l4| (l4[17], l4[28]) = (1, 3));
        refuse(&|l4| (l4[17], l4[28]) = (1, 13));
        // Echo is, but there is no such flow.
        let mut echo = good.clone();
        (echo.l4[17], echo.l4[28]) = (1, 8);
        lab.send(a, &echo.bytes()).dropped(Reason::IcmpNoFlow);
    });
}

#[test]
fn errors_across_nodes() {
    lab(|lab| {
        let a = lab.pod("a");
        // About what arrived from there.
        let inner = Packet { destination_mac: a.mac, ..lab.packet("x", "a", UDP, udp(7, 8, 9)) };
        lab.receive(&lab.outer(FIRST).bytes(&inner.bytes())).delivered(a);
        lab.send(a, &error(lab, "a", "x", &inner).bytes()).encapsulated(FIRST);
        // And from there about what we sent.
        let ours = lab.packet("a", "x", UDP, udp(70, 80, 9));
        let theirs = Packet { destination_mac: a.mac, ..error(lab, "x", "a", &ours) };
        let packet = lab.outer(FIRST).bytes(&theirs.bytes());
        lab.receive(&packet).dropped(Reason::IcmpNoFlow);
        lab.send(a, &ours.bytes()).encapsulated(FIRST);
        let run = lab.receive(&packet);
        run.delivered(a);
        assert_eq!(run.bytes, theirs.bytes());
        let mut stranger = lab.outer(FIRST);
        stranger.source = [198, 51, 100, 7].into();
        lab.receive(&stranger.bytes(&theirs.bytes())).dropped(Reason::VtepUnknown);
        lab.receive(&lab.outer(999).bytes(&theirs.bytes())).dropped(Reason::VniUnknown);
        let astray = Packet { destination_mac: lab.pod("b").mac, ..theirs.clone() };
        lab.receive(&lab.outer(FIRST).bytes(&astray.bytes())).dropped(Reason::OverlayDestination);
        let mut cut = theirs;
        cut.l4.truncate(30);
        lab.receive(&lab.outer(FIRST).bytes(&cut.bytes())).dropped(Reason::IcmpQuote);
    });
}
