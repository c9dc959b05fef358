//! Policy: which rule decides.

use crate::common::{Net, assert_drop, assert_peer};
use juneau_core::layout::{
    Be16, EGRESS, EndpointKey, IDENTITY_ANY, INGRESS, POLICY_ALLOW, POLICY_DENY, Policy, PolicyKey, be32,
};
use juneau_core::packet::{IP_ICMP, IP_TCP, IP_UDP};
use juneau_core::tables::{Diff, Tables};
use juneau_core::testkit::packets::{Frame, echo, syn, udp, vxlan};
use juneau_core::testkit::topology::{Pod, vtep};
use juneau_core::verdict::Reason;
use std::net::Ipv4Addr;

const A: Pod = Pod::new(0, 1, 10);
const B: Pod = Pod::new(0, 1, 11);
/// Identity of B in these tests.
const SERVER: u32 = 70;

/// A and B on one node; B has an identity of its own, and these rules for what it takes.
fn net(rules: &[(u32, u8, u16, u32)]) -> Net {
    let mut net = Net::new();
    apply(&mut net, |tables| {
        tables.interfaces.get_mut(&B.ifindex()).unwrap().identity = SERVER;
        tables.endpoints.get_mut(&EndpointKey { vpc: B.vpc(), address: be32(B.address()) }).unwrap().identity = SERVER;
        for (peer, protocol, port, action) in rules {
            let key = rule(SERVER, *peer, INGRESS, *protocol, *port);
            tables.policies.insert(key, Policy { action: *action, rule: 1 });
        }
    });
    net
}

fn rule(identity: u32, peer: u32, direction: u8, protocol: u8, port: u16) -> PolicyKey {
    PolicyKey { identity, policy: 1, peer, direction, protocol, port: Be16::new(port) }
}

fn apply(net: &mut Net, change: impl FnOnce(&mut Tables)) {
    let current = net.0[0].tables.content().clone();
    let mut wanted = current.clone();
    change(&mut wanted);
    net.0[0].apply(&Diff::between(&current, &wanted)).unwrap();
}

#[test]
fn a_rule_is_of_a_peer_a_protocol_and_a_port() {
    let mut net = net(&[(A.identity(), IP_TCP, 80, POLICY_ALLOW), (A.identity(), IP_ICMP, 0, POLICY_ALLOW)]);
    assert_peer(&net.send(A, B.address(), syn(1000, 80)), B);
    assert_peer(&net.send(A, B.address(), echo(1)), B);
    assert_drop(&net.send(A, B.address(), syn(80, 81)), Reason::PolicyIngress);
    assert_drop(&net.send(A, B.address(), udp(1000, 80, 0)), Reason::PolicyIngress);
}

#[test]
fn the_more_special_rule_decides() {
    let any = IDENTITY_ANY;
    let own = A.identity();
    // In the order in which they are asked; each closes what the next one opens.
    let rules = [(own, IP_UDP, 53), (own, 0, 0), (any, IP_UDP, 53), (any, 0, 0)];
    for (position, (peer, protocol, port)) in rules.into_iter().enumerate() {
        let mut set = vec![(peer, protocol, port, POLICY_DENY)];
        set.extend(rules[position + 1..].iter().map(|(peer, protocol, port)| (*peer, *protocol, *port, POLICY_ALLOW)));
        assert_drop(&net(&set).send(A, B.address(), udp(1000, 53, 0)), Reason::PolicyIngress);
        set[0].3 = POLICY_ALLOW;
        set[1..].iter_mut().for_each(|rule| rule.3 = POLICY_DENY);
        assert_peer(&net(&set).send(A, B.address(), udp(1000, 53, 0)), B);
    }
    // A protocol without its port is no rule for it.
    for peer in [own, any] {
        assert_drop(
            &net(&[(peer, IP_UDP, 0, POLICY_ALLOW)]).send(A, B.address(), udp(1, 53, 0)),
            Reason::PolicyIngress,
        );
    }
    assert_drop(&net(&[]).send(A, B.address(), udp(1000, 53, 0)), Reason::PolicyIngress);
}

#[test]
fn a_stranger_matches_rules_for_everybody_alone() {
    let stranger = Ipv4Addr::new(10, 9, 0, 1);
    let inner = Frame::new(stranger, B.address(), udp(1000, 53, 0)).macs(B.gateway_mac(), B.mac()).build();
    let arriving = vxlan(vtep(1), vtep(0), B.vni(), 0, &inner);
    // Identity 0 is nobody's, whatever the rules say.
    assert_drop(
        &net(&[(0, 0, 0, POLICY_ALLOW), (0, IP_UDP, 53, POLICY_ALLOW)]).underlay(0, &arriving),
        Reason::PolicyIngress,
    );
    assert_peer(&net(&[(IDENTITY_ANY, 0, 0, POLICY_ALLOW)]).underlay(0, &arriving), B);
}

#[test]
fn behind_a_router_the_receiver_sees_the_source() {
    let router = Pod::router(0);
    let through = |net: &mut Net, source| {
        let forwarded = Frame::new(source, B.address(), udp(1000, 53, 0)).macs(router.mac(), B.mac());
        net.send_frame(router, &forwarded)
    };
    let mut net = net(&[(A.identity(), 0, 0, POLICY_ALLOW)]);
    assert_peer(&through(&mut net, A.address()), B);
    assert_drop(&through(&mut net, Ipv4Addr::new(10, 9, 0, 1)), Reason::PolicyIngress);
    // The router's own egress is asked, about the receiver; its own identity is nothing to the receiver.
    apply(&mut net, |tables| {
        tables.interfaces.get_mut(&router.ifindex()).unwrap().identity = 99;
    });
    assert_drop(&through(&mut net, A.address()), Reason::PolicyEgress);
    apply(&mut net, |tables| {
        tables.policies.insert(rule(99, SERVER, EGRESS, 0, 0), Policy { action: POLICY_ALLOW, rule: 1 });
    });
    assert_peer(&through(&mut net, A.address()), B);
}

#[test]
fn the_sender_is_asked_first() {
    let mut net = net(&[]);
    apply(&mut net, |tables| {
        tables.policies.remove(&rule(A.identity(), IDENTITY_ANY, EGRESS, 0, 0)).unwrap();
    });
    assert_drop(&net.send(A, B.address(), udp(1000, 53, 0)), Reason::PolicyEgress);
}

#[test]
fn the_generation_of_the_rules_is_part_of_their_name() {
    let mut net = net(&[(IDENTITY_ANY, 0, 0, POLICY_ALLOW)]);
    assert_peer(&net.send(A, B.address(), udp(1000, 53, 0)), B);
    apply(&mut net, |tables| {
        tables.endpoints.get_mut(&EndpointKey { vpc: B.vpc(), address: be32(B.address()) }).unwrap().policy = 2;
    });
    assert_drop(&net.send(A, B.address(), udp(1000, 53, 0)), Reason::PolicyIngress);
}
