//! What holds for every packet: one exit and one counter, tenants that never meet, counts that agree with records.

use crate::common::{NOW, Net, Tuple, frame, tuple};
use juneau_core::flow::FlowRead;
use juneau_core::layout::{
    BACKEND_SERVING, FLOW_EMBRYONIC, FLOW_REPLY, FROM_OVERLAY, FROM_POD, be32, endpoint_generation,
};
use juneau_core::packet::{IP_TCP, IP_UDP, checksum};
use juneau_core::pipeline::{Count, Generations, Outcome, Packet, Tunnel};
use juneau_core::tables::Diff;
use juneau_core::testkit::packets::{Frame, Layer4, addresses, arp_request, assert_checksums, icmp_error, vxlan};
use juneau_core::testkit::services::{EMPTY, HOST, LOCAL, NOBODY, SAME, SELF, WEB};
use juneau_core::testkit::topology::{Pod, own_address, pods, vtep};
use juneau_core::time::Now;
use juneau_core::verdict::{Action, Hook, Reason};
use proptest::prelude::*;
use std::net::Ipv4Addr;

/// One thing that happens.
#[derive(Debug, Clone)]
enum Event {
    /// A Pod sends.
    Send { from: Pod, frame: Vec<u8> },
    /// A node itself sends.
    Host { node: usize, source: Ipv4Addr, frame: Vec<u8> },
    /// A node of ours, or a stranger, sends VXLAN to a node.
    Arrive { node: usize, frame: Vec<u8>, vni: u32, known: bool },
    /// Time passes.
    Wait(u32),
    /// Whoever got the last packet that arrived answers it, with these TCP flags, if it has any.
    Answer { flags: u8 },
    /// Whoever got it sends an ICMP error about it.
    Complain,
    /// A Pod serves, or stops to.
    Serve(Pod, bool),
    /// An endpoint's decisions are void.
    Bump(Pod),
    /// Idle connections go.
    Expire,
}

fn pod() -> BoxedStrategy<Pod> {
    proptest::sample::select(pods()).boxed()
}

/// Every address of both nodes.
fn node_destinations() -> Vec<Ipv4Addr> {
    let own = (0..2).flat_map(|node| [Pod::node_port(node).address(), vtep(node), own_address(node)]);
    own.collect()
}

fn destination() -> BoxedStrategy<Ipv4Addr> {
    prop_oneof![
        6 => pod().prop_map(Pod::address),
        2 => proptest::sample::select(node_destinations()),
        1 => Just(Ipv4Addr::new(10, 9, 0, 1)),
        1 => Just(Ipv4Addr::new(10, 8, 0, 1)),
        1 => Just(Ipv4Addr::new(10, 0, 1, 1)),
        6 => proptest::sample::select(vec![WEB, SELF, SAME, HOST, EMPTY, LOCAL, NOBODY]),
        1 => any::<u32>().prop_map(Ipv4Addr::from),
    ]
    .boxed()
}

fn layer4() -> BoxedStrategy<Layer4> {
    let port = || prop_oneof![2 => Just(1u16), 1 => Just(2), 2 => Just(80), 1 => Just(53), 2 => Just(8080)];
    let flags = prop_oneof![4 => Just(0x02u8), 4 => Just(0x12), 4 => Just(0x10), 3 => Just(0x11), 1 => any::<u8>()];
    prop_oneof![
        4 => (port(), port(), flags, 0usize..40)
            .prop_map(|(source, destination, flags, payload)| Layer4::Tcp { source, destination, flags, payload }),
        3 => (port(), port(), 0usize..1600)
            .prop_map(|(source, destination, payload)| Layer4::Udp { source, destination, payload }),
        2 => (proptest::sample::select(vec![0u8, 8, 3, 11, 5]), 0u8..5, port(), proptest::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(kind, code, id, payload)| Layer4::Icmp { kind, code, id, sequence: 1, payload }),
        1 => (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(protocol, payload)| Layer4::Raw { protocol, payload }),
    ].boxed()
}

/// A frame from a Pod, with at most one byte that is wrong.
fn sent(from: Pod) -> BoxedStrategy<Vec<u8>> {
    let fragment = prop_oneof![6 => Just(0x4000u16), 2 => Just(0), 2 => Just(0x2000), 2 => Just(9), 1 => any::<u16>()];
    let about = (destination(), layer4()).prop_map(move |(source, layer4)| {
        let quoted = Frame::new(source, from.address(), layer4).build();
        icmp_error(3, 3, &quoted)
    });
    let carried = prop_oneof![8 => layer4(), 1 => about];
    let whole = (destination(), carried, prop_oneof![3 => Just(64u8), 1 => 0u8..3], any::<u8>(), fragment, 0u16..3)
        .prop_map(move |(to, layer4, ttl, tos, fragment, id)| {
            let mut packet = frame(from, to, layer4);
            (packet.ttl, packet.tos, packet.fragment, packet.id) = (ttl, tos, fragment, id);
            packet.build()
        });
    let arp = destination().prop_map(move |asked| arp_request(from.mac(), from.address(), asked));
    let mutation = proptest::option::weighted(0.2, (0usize..60, any::<u8>()));
    (prop_oneof![9 => whole, 1 => arp], mutation)
        .prop_map(|(mut frame, mutation)| {
            if let Some((offset, byte)) = mutation
                && let Some(target) = frame.get_mut(offset)
            {
                *target = byte;
            }
            frame
        })
        .boxed()
}

fn event() -> BoxedStrategy<Event> {
    let send =
        pod().prop_flat_map(|from| (Just(from), sent(from))).prop_map(|(from, frame)| Event::Send { from, frame });
    let vni = prop_oneof![Just(101u32), Just(102), Just(201), Just(202), Just(999)];
    let arrive = (pod(), pod(), vni, any::<u8>(), proptest::bool::weighted(0.9), 0usize..2)
        .prop_flat_map(|(from, to, vni, tos, known, node)| (Just((to, vni, tos, known, node)), sent(from)))
        .prop_map(|((to, vni, tos, known, node), mut inner)| {
            inner[..6].copy_from_slice(&to.mac());
            let source = if known { vtep(1 - node) } else { Ipv4Addr::new(192, 0, 2, 99) };
            Event::Arrive { node, frame: vxlan(source, vtep(node), vni, tos, &inner), vni, known }
        });
    let source = prop_oneof![4 => proptest::sample::select(node_destinations()), 1 => destination()];
    let host = (0usize..2, source)
        .prop_flat_map(|(node, source)| (Just(node), Just(source), sent(Pod::node_port(node))))
        .prop_map(|(node, source, mut frame)| {
            if frame.len() > 33 && frame[12..14] == [8, 0] {
                frame[26..30].copy_from_slice(&source.octets());
            }
            Event::Host { node, source, frame }
        });
    prop_oneof![
        8 => host,
        20 => send,
        8 => arrive,
        1 => (1u32..200).prop_map(Event::Wait),
        10 => proptest::sample::select(vec![0x12u8, 0x10, 0x11, 0x14]).prop_map(|flags| Event::Answer { flags }),
        3 => Just(Event::Complain),
        1 => (pod(), any::<bool>()).prop_map(|(pod, serves)| Event::Serve(pod, serves)),
        1 => pod().prop_map(Event::Bump),
        1 => Just(Event::Expire),
    ]
    .boxed()
}

fn tenant_of_interface(ifindex: u32) -> u8 {
    pods().iter().find(|pod| pod.ifindex() == ifindex).expect("an interface of ours").tenant
}

fn tenant_of_vni(vni: u32) -> Option<u8> {
    pods().iter().find(|pod| pod.vni() == vni).map(|pod| pod.tenant)
}

/// The exit is one of those that there are, and its counter is the exit's.
fn check_exit(packet: &Packet<'_>, outcome: &Outcome, tenant: Option<u8>) {
    let verdict = &outcome.verdict;
    match outcome.count {
        Count::None => assert_eq!((verdict.action, verdict.reason), (Action::Pass, Reason::Ok)),
        Count::Traffic { vpc_index, direction, .. } => {
            assert!(verdict.is_delivered() && verdict.reason == Reason::Ok);
            let expected = if matches!(packet.hook, Hook::Pod | Hook::NodePort) { FROM_POD } else { FROM_OVERLAY };
            assert_eq!(direction, expected);
            assert_eq!(Some(vpc_index), tenant.map(u16::from), "counted for the tenant that sent");
        }
        Count::Exit { hook, reason, answered } => {
            assert!(!verdict.is_delivered());
            assert_eq!((hook, reason, answered), (packet.hook, verdict.reason, verdict.answered));
            assert_ne!(reason, Reason::Ok);
        }
        other => panic!("{other:?}"),
    }
    match verdict.action {
        Action::Peer => assert_eq!(Some(tenant_of_interface(verdict.ifindex)), tenant, "tenants never meet"),
        Action::Node => {
            assert_eq!(tenant, Some(0), "a node is in the VPC of tenant 0 alone");
            assert!((0..2).any(|node| Pod::node_port(node).ifindex() == verdict.ifindex));
        }
        Action::Answer => assert_eq!(verdict.ifindex, packet.ifindex, "an answer goes to who sent"),
        Action::Encap | Action::Device => {
            assert_eq!(tenant_of_vni(verdict.vni), tenant, "tenants never meet");
            assert_eq!(verdict.ifindex, 0);
        }
        Action::Drop | Action::Pass => assert_eq!(outcome.frame, packet.frame, "left as it came"),
        other => panic!("{other:?}"),
    }
    assert_eq!(verdict.answered, verdict.action == Action::Answer);
}

/// Quotas count what the records say, and no scope holds another tenant's record.
fn check_flows(net: &Net) {
    for node in &net.0 {
        for index in 0..2u16 {
            let own = |flow: &&(_, juneau_core::layout::Flow)| flow.1.vpc_index == index && !flow.1.has(FLOW_REPLY);
            let flows = node.flows.iter().filter(own).count() as i64;
            let embryonic = node.flows.iter().filter(own).filter(|flow| flow.1.has(FLOW_EMBRYONIC)).count() as i64;
            let state = node.flows.vpc_state(index).unwrap();
            assert_eq!((state.flows, state.embryonic), (flows, embryonic), "VPC index {index}");
        }
        for (key, flow) in node.flows.iter() {
            let tenant = if key.is_transit() {
                Some(tenant_of_interface(key.id()))
            } else if key.is_overlay() {
                tenant_of_vni(key.id())
            } else {
                Some((key.id() - 5) as u8)
            };
            assert_eq!(tenant.map(u16::from), Some(flow.vpc_index));
        }
    }
}

/// A whole TCP segment or UDP datagram that a Pod sent, and as what it came to whom it was for.
struct Arrived {
    from: Pod,
    sent: Tuple,
    to: Pod,
    frame: Vec<u8>,
}

impl Arrived {
    fn new(from: Pod, sent: &[u8], outcome: &Outcome) -> Option<Self> {
        let whole = sent.len() >= 42 && sent[12..15] == [8, 0, 0x45] && sent[20] & 0x3f == 0 && sent[21] == 0;
        let good = whole && matches!(sent[23], IP_TCP | IP_UDP) && checksum(&sent[14..34]) == 0;
        if outcome.verdict.action != Action::Peer || !good {
            return None;
        }
        let to = pods().into_iter().find(|pod| pod.ifindex() == outcome.verdict.ifindex)?;
        let own = tuple(sent).0 == from.address() && tuple(&outcome.frame).1 == to.address();
        own.then(|| Self { from, sent: tuple(sent), to, frame: outcome.frame.clone() })
    }

    /// What the receiver answers with.
    fn answer(&self, flags: u8) -> Frame {
        let (source, _, source_port, port) = tuple(&self.frame);
        let layer4 = match self.frame[23] {
            IP_TCP => Layer4::Tcp { source: port, destination: source_port, flags, payload: 3 },
            _ => Layer4::Udp { source: port, destination: source_port, payload: 3 },
        };
        frame(self.to, source, layer4)
    }

    /// It comes from whom the sender sent to.
    fn assert_answers(&self, outcome: &Outcome) {
        assert_eq!((outcome.verdict.reason, outcome.verdict.ifindex), (Reason::Ok, self.from.ifindex()));
        assert_checksums(&outcome.frame);
        let (source, destination, source_port, port) = self.sent;
        assert_eq!(tuple(&outcome.frame), (destination, source, port, source_port));
    }

    /// So does an error, which quotes what it sent.
    fn assert_complains(&self, outcome: &Outcome) {
        assert_eq!((outcome.verdict.reason, outcome.verdict.ifindex), (Reason::Ok, self.from.ifindex()));
        assert_checksums(&outcome.frame);
        let (source, destination, ..) = self.sent;
        assert_eq!(addresses(&outcome.frame), (destination, source));
        // The quote begins where an IPv4 header would, were the headers in front of it an Ethernet header.
        assert_eq!(tuple(&outcome.frame[28..]), self.sent);
        assert_eq!(checksum(&outcome.frame[42..62]), 0);
    }
}

fn serve(net: &mut Net, pod: Pod, serves: bool) {
    for node in &mut net.0 {
        let current = node.tables.content().clone();
        let mut wanted = current.clone();
        for backend in wanted.backends.values_mut() {
            if (backend.vpc, backend.address) == (pod.vpc(), be32(pod.address())) {
                backend.flags = if serves { BACKEND_SERVING } else { 0 };
                *backend = backend.tagged();
            }
        }
        node.apply(&Diff::between(&current, &wanted)).unwrap();
    }
}

fn play(events: Vec<Event>) {
    let mut net = Net::new();
    let mut arrived: Option<Arrived> = None;
    let mut now: Now = NOW;
    let mut packets = [0u64; 2];
    for event in events {
        match event {
            Event::Send { from, frame } => {
                let packet = Packet::new(Hook::Pod, from.ifindex(), &frame);
                let explained = net.node(from).explain(&packet, now).unwrap();
                let outcome = net.node(from).handle(&packet, now).unwrap();
                assert_eq!(explained.verdict, outcome.verdict, "an explanation foretells");
                assert_eq!(explained.frame, outcome.frame);
                check_exit(&packet, &outcome, Some(from.tenant));
                packets[from.node()] += u64::from(outcome.count != Count::None);
                let mut last = outcome;
                if last.verdict.action == Action::Encap {
                    let other = 1 - from.node();
                    let packet = Packet::new(Hook::Overlay, 2, &last.frame);
                    let outcome = net.0[other].handle(&packet, now).unwrap();
                    check_exit(&packet, &outcome, Some(from.tenant));
                    packets[other] += u64::from(outcome.count != Count::None);
                    last = outcome;
                }
                arrived = Arrived::new(from, &frame, &last);
            }
            Event::Answer { .. } | Event::Complain => {
                let Some(arrived) = &arrived else { continue };
                let sent = match event {
                    Event::Answer { flags } => arrived.answer(flags),
                    _ => frame(arrived.to, tuple(&arrived.frame).0, icmp_error(3, 3, &arrived.frame)),
                };
                let outcome = net.raw_at(arrived.to, &sent.build(), now);
                packets[arrived.to.node()] += u64::from(outcome.count != Count::None);
                let mut last = outcome;
                if last.verdict.action == Action::Encap {
                    let other = 1 - arrived.to.node();
                    last = net.0[other].handle(&Packet::new(Hook::Overlay, 2, &last.frame), now).unwrap();
                    packets[other] += u64::from(last.count != Count::None);
                }
                match event {
                    Event::Answer { .. } => arrived.assert_answers(&last),
                    _ => arrived.assert_complains(&last),
                }
            }
            Event::Serve(pod, serves) => {
                serve(&mut net, pod, serves);
            }
            Event::Host { node, source, frame } => {
                arrived = None;
                let packet = Packet::new(Hook::NodePort, Pod::node_port(node).ifindex(), &frame);
                let explained = net.0[node].explain(&packet, now).unwrap();
                let outcome = net.0[node].handle(&packet, now).unwrap();
                assert_eq!((&explained.verdict, &explained.frame), (&outcome.verdict, &outcome.frame));
                check_exit(&packet, &outcome, Some(0));
                packets[node] += u64::from(outcome.count != Count::None);
                let own = [Pod::node_port(node).address(), vtep(node), own_address(node)];
                let is_foreign = frame[12..14] == [8, 0] && !own.contains(&source);
                let answers = outcome.verdict.action == Action::Answer;
                assert!(!is_foreign || !outcome.verdict.is_delivered() && !answers, "what it forwards has no way in");
                if outcome.verdict.action == Action::Encap {
                    let packet = Packet::new(Hook::Overlay, 2, &outcome.frame);
                    let outcome = net.0[1 - node].handle(&packet, now).unwrap();
                    check_exit(&packet, &outcome, Some(0));
                    packets[1 - node] += u64::from(outcome.count != Count::None);
                }
            }
            Event::Arrive { node, frame, vni, known } => {
                arrived = None;
                let packet = Packet::new(Hook::Overlay, 2, &frame);
                let outcome = net.0[node].handle(&packet, now).unwrap();
                check_exit(&packet, &outcome, tenant_of_vni(vni));
                packets[node] += u64::from(outcome.count != Count::None);
                assert!(known || !outcome.verdict.is_delivered(), "no stranger is let in");
            }
            Event::Wait(units) => now = now.later(units),
            Event::Bump(pod) => {
                let slot = endpoint_generation(pod.vpc(), be32(pod.address()));
                net.0.iter_mut().for_each(|node| node.state.advance(slot).unwrap());
            }
            Event::Expire => {
                arrived = None;
                net.0.iter_mut().for_each(|node| {
                    node.expire(now, 1000);
                });
            }
        }
        check_flows(&net);
    }
    for (node, packets) in net.0.iter().zip(packets) {
        assert_eq!(node.counters.packets(), packets, "packets in = delivered + dropped + answered");
    }
    for node in &mut net.0 {
        node.expire(now.later(100_000_000), usize::MAX);
        assert!(node.flows.is_empty().unwrap());
    }
    check_flows(&net);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_has_one_exit_and_tenants_never_meet(events in proptest::collection::vec(event(), 1..60)) {
        play(events);
    }

    #[test]
    fn no_bytes_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
        hook in proptest::sample::select(vec![Hook::Pod, Hook::Overlay, Hook::Vxlan, Hook::Cgroup, Hook::NodePort]),
        vlan_present in proptest::bool::weighted(0.1),
        gso_size in prop_oneof![Just(0u32), any::<u32>()],
        aimed in any::<bool>(),
    ) {
        let mut net = Net::new();
        let from = Pod::router(0);
        let mut frame = bytes;
        if aimed {
            // Far enough to reach the later stages.
            let head = Frame::new(from.address(), Pod::new(0, 1, 20).address(), Layer4::Raw { protocol: 0, payload: Vec::new() })
                .macs(from.mac(), from.gateway_mac())
                .build();
            for (offset, byte) in head.iter().enumerate().filter(|(offset, _)| *offset < 16 || *offset >= 26) {
                if let Some(target) = frame.get_mut(offset) {
                    *target = *byte;
                }
            }
        }
        let tunnel = Some(Tunnel { vni: from.vni(), source: vtep(1) });
        let packet = Packet { vlan_present, gso_size, tunnel, ..Packet::new(hook, from.ifindex(), &frame) };
        let outcome = net.0[0].handle(&packet, NOW).unwrap();
        let tenant = if hook == Hook::Overlay { None } else { Some(0) };
        check_exit(&packet, &outcome, tenant);
    }
}
