//! Endpoint routes: a Pod as next hop, and what it forwards.

use juneau_core::layout::*;
use juneau_core::verdict::Reason;

use crate::lab::*;
use crate::packet::*;

const OUTSIDE: [u8; 4] = [10, 9, 0, 5];

#[test]
fn through_a_router_of_this_node() {
    lab(|lab| {
        let (a, c, router) = (lab.pod("a"), lab.pod("c"), lab.pod("router"));
        // 10.9/16 lies behind the router; the sender's own gateway stands in the frame.
        let packet = Packet {
            destination: OUTSIDE.into(),
            destination_mac: a.gateway_mac(),
            ..lab.packet("a", "c", UDP, udp(1, 2, 3))
        };
        let run = lab.send(a, &packet.bytes());
        run.delivered(router).slow(true);
        let routed =
            Packet { ttl: 63, destination_mac: router.mac, source_mac: router.gateway_mac(), ..packet.clone() };
        assert_eq!(run.bytes, routed.bytes());
        lab.send(a, &packet.bytes()).delivered(router).slow(false);

        // The router forwards for others: a record by its interface, without a peer.
        let transit = Packet { source_mac: router.mac, ..lab.packet("a", "c", UDP, udp(1, 2, 3)) };
        lab.send(router, &transit.bytes()).delivered(c).slow(true);
        lab.send(router, &transit.bytes()).delivered(c).slow(false);
        let key = lab.key(router.ifindex | SCOPE_TRANSIT, "a", "c", UDP, (1, 2));
        let record = lab.flow(&key).unwrap();
        assert_eq!((record.flags, record.peer), (FLOW_SINGLE, key));
        // The same tuple from the sender itself is another flow: no loop.
        assert!(lab.flow(&lab.key(RED, "a", "c", UDP, (1, 2))).is_none());
        // Back to the router itself there is no way.
        let loops = Packet { source: OUTSIDE.into(), destination: [10, 9, 0, 6].into(), ..transit };
        lab.send(router, &loops.bytes()).answered(Reason::RouteUnreachable);
    });
}

#[test]
fn quota_of_transit() {
    lab(|lab| {
        let router = lab.pod("router");
        let transit = Packet { source_mac: router.mac, ..lab.packet("a", "c", UDP, udp(1, 2, 3)) };
        lab.send(router, &transit.bytes()).delivered(lab.pod("c"));
        assert_eq!(lab.quota(RED_INDEX), (1, 0));
    });
}

#[test]
fn from_another_node_to_a_router() {
    lab(|lab| {
        let router = lab.pod("router");
        let inner = Packet {
            destination: OUTSIDE.into(),
            destination_mac: router.mac,
            ..lab.packet("x", "router", UDP, udp(1, 2, 3))
        };
        let packet = lab.outer(FIRST).bytes(&inner.bytes());
        lab.receive(&packet).delivered(router).slow(true);
        lab.receive(&packet).delivered(router).slow(false);
        let key =
            FlowKey { destination: be32(OUTSIDE.into()), ..lab.key(FIRST | SCOPE_OVERLAY, "x", "a", UDP, (1, 2)) };
        assert_eq!(lab.flow(&key).unwrap().flags, FLOW_SINGLE);
        // Without being a router it takes what is for its own address only.
        let mut endpoint = lab.endpoint(router);
        endpoint.flags &= !EP_ROUTER;
        lab.put_endpoint(router, &endpoint);
        lab.advance(table_generation(TABLE), 2);
        lab.receive(&packet).dropped(Reason::OverlayDestination);
        let own = Packet { destination_mac: router.mac, ..lab.packet("x", "router", UDP, udp(1, 2, 3)) };
        lab.receive(&lab.outer(FIRST).bytes(&own.bytes())).delivered(router);
    });
}

#[test]
fn transit_and_policy() {
    lab(|lab| {
        let (router, c) = (lab.pod("router"), lab.pod("c"));
        let packet = |source: std::net::Ipv4Addr, port| Packet {
            source_mac: router.mac,
            source,
            ..lab.packet("a", "c", UDP, udp(port, 2, 3))
        };
        // The receiver asks about the source address, known or not; the router's own egress counts, too.
        lab.remove("jn_policies", &lab.rule_key(IDENTITY_ANY, 1, 0, 0));
        lab.rule(IDENTITY, 1, 0, 0, POLICY_ALLOW);
        lab.send(router, &packet(lab.pod("a").address, 1).bytes()).delivered(c);
        lab.send(router, &packet(OUTSIDE.into(), 1).bytes()).dropped(Reason::PolicyIngress);
        lab.rule(IDENTITY_ANY, 1, UDP, 2, POLICY_ALLOW);
        lab.send(router, &packet(OUTSIDE.into(), 1).bytes()).delivered(c);
        lab.rule(IDENTITY_ANY, 0, 0, 0, POLICY_DENY);
        lab.send(router, &packet(lab.pod("a").address, 3).bytes()).dropped(Reason::PolicyEgress);
    });
}

#[test]
fn a_routers_errors() {
    lab(|lab| {
        let (a, router) = (lab.pod("a"), lab.pod("router"));
        let error = |quoted: &Packet| {
            let mut quote = quoted.ip();
            quote.extend(&quoted.l4[..8]);
            Packet { destination: quoted.source, ..lab.packet("router", "a", ICMP, icmp(11, 0, [0; 4], &quote)) }
        };
        // About what a Pod of this node sent through it.
        let local = Packet { destination: OUTSIDE.into(), ..lab.packet("a", "c", UDP, udp(1, 2, 3)) };
        lab.send(router, &error(&local).bytes()).dropped(Reason::IcmpNoFlow);
        lab.send(a, &local.bytes()).delivered(router);
        lab.send(router, &error(&local).bytes()).delivered(a);
        // About what came from another node.
        let remote = Packet {
            destination: OUTSIDE.into(),
            destination_mac: router.mac,
            ..lab.packet("x", "router", UDP, udp(1, 2, 3))
        };
        lab.send(router, &error(&remote).bytes()).dropped(Reason::IcmpNoFlow);
        lab.receive(&lab.outer(FIRST).bytes(&remote.bytes())).delivered(router);
        lab.send(router, &error(&remote).bytes()).encapsulated(FIRST);
        // A flow that does not lead through it is none of its business.
        let other = lab.packet("a", "b", UDP, udp(1, 2, 3));
        lab.send(a, &other.bytes()).delivered(lab.pod("b"));
        lab.send(router, &error(&other).bytes()).dropped(Reason::IcmpNoFlow);
    });
}
