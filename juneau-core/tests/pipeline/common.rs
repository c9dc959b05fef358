//! Sending packets through the two nodes.

use juneau_core::packet::{Ethernet, Ipv4, Udp, view};
use juneau_core::pipeline::{Outcome, Packet, Pipeline};
use juneau_core::testkit::packets::{Frame, Layer4, addresses};

use juneau_core::testkit::topology::{self, Pod};
use juneau_core::time::Now;
use juneau_core::verdict::{Action, Hook, Reason};

pub(crate) const NOW: Now = Now { stamp: 1000, hz: 256 };

/// What a Pod sends to an address, as its own stack would.
pub(crate) fn frame(from: Pod, to: std::net::Ipv4Addr, layer4: Layer4) -> Frame {
    let pods = topology::pods();
    let neighbour = pods.iter().find(|p| p.tenant == from.tenant && p.subnet == from.subnet && p.address() == to);
    let destination = neighbour.map_or(from.gateway_mac(), |p| p.mac());
    Frame::new(from.address(), to, layer4).macs(from.mac(), destination)
}

/// Both nodes.
pub(crate) struct Net(pub(crate) [Pipeline; 2]);

impl Net {
    pub(crate) fn new() -> Self {
        Self([topology::node(0), topology::node(1)])
    }

    pub(crate) fn node(&mut self, pod: Pod) -> &mut Pipeline {
        &mut self.0[pod.node()]
    }

    /// One frame at the node port of a node.
    pub(crate) fn host(&mut self, node: usize, frame: &[u8]) -> Outcome {
        self.0[node].handle(&Packet::new(Hook::NodePort, Pod::node_port(node).ifindex(), frame), NOW).unwrap()
    }

    /// What a node sends from one of its addresses, through both nodes, if need be: the last outcome.
    pub(crate) fn host_sends(
        &mut self,
        node: usize,
        source: std::net::Ipv4Addr,
        to: std::net::Ipv4Addr,
        layer4: Layer4,
    ) -> Outcome {
        let port = Pod::node_port(node);
        let sent = Frame::new(source, to, layer4).macs(port.mac(), port.gateway_mac()).build();
        let outcome = self.host(node, &sent);
        if outcome.verdict.action == Action::Encap { self.underlay(1 - node, &outcome.frame) } else { outcome }
    }

    /// One frame at a Pod's host veth.
    pub(crate) fn raw(&mut self, from: Pod, frame: &[u8]) -> Outcome {
        self.raw_at(from, frame, NOW)
    }

    pub(crate) fn raw_at(&mut self, from: Pod, frame: &[u8], now: Now) -> Outcome {
        self.node(from).handle(&Packet::new(Hook::Pod, from.ifindex(), frame), now).unwrap()
    }

    /// One frame at a node's underlay device.
    pub(crate) fn underlay(&mut self, node: usize, frame: &[u8]) -> Outcome {
        self.0[node].handle(&Packet::new(Hook::Overlay, 2, frame), NOW).unwrap()
    }

    /// A Pod's packet through both nodes, if need be: the last outcome.
    pub(crate) fn send(&mut self, from: Pod, to: std::net::Ipv4Addr, layer4: Layer4) -> Outcome {
        self.send_frame(from, &frame(from, to, layer4))
    }

    pub(crate) fn send_frame(&mut self, from: Pod, frame: &Frame) -> Outcome {
        let outcome = self.raw(from, &frame.build());
        if outcome.verdict.action == Action::Encap {
            assert_eq!(outcome.verdict.vtep, topology::vtep(1 - from.node()));
            return self.underlay(1 - from.node(), &outcome.frame);
        }
        outcome
    }
}

/// Source, destination and ports.
pub(crate) type Tuple = (std::net::Ipv4Addr, std::net::Ipv4Addr, u16, u16);

/// The tuple of a packet that is not encapsulated.
pub(crate) fn tuple(frame: &[u8]) -> Tuple {
    let (source, destination) = addresses(frame);
    let (_, rest) = view::<Ethernet>(frame).unwrap();
    let (_, rest) = view::<Ipv4>(rest).unwrap();
    let (ports, _) = view::<Udp>(rest).unwrap();
    (source, destination, ports.source_port.get(), ports.destination_port.get())
}

#[track_caller]
pub(crate) fn assert_peer(outcome: &Outcome, to: Pod) {
    assert_eq!((outcome.verdict.reason, outcome.verdict.action), (Reason::Ok, Action::Peer));
    assert_eq!(outcome.verdict.ifindex, to.ifindex());
}

#[track_caller]
pub(crate) fn assert_node(outcome: &Outcome, node: usize) {
    assert_eq!((outcome.verdict.reason, outcome.verdict.action), (Reason::Ok, Action::Node));
    assert_eq!(outcome.verdict.ifindex, Pod::node_port(node).ifindex());
}

#[track_caller]
pub(crate) fn assert_drop(outcome: &Outcome, reason: Reason) {
    assert_eq!((outcome.verdict.reason, outcome.verdict.action), (reason, Action::Drop));
    assert!(!outcome.verdict.answered);
}

#[track_caller]
pub(crate) fn assert_answer(outcome: &Outcome, reason: Reason, to: Pod) {
    assert_eq!((outcome.verdict.reason, outcome.verdict.action), (reason, Action::Answer));
    assert!(outcome.verdict.answered);
    assert_eq!(outcome.verdict.ifindex, to.ifindex());
}
