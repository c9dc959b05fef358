//! Connections to Services, and changes of Services.

use crate::common::{NOW, Net, assert_answer, assert_peer, frame};
pub(super) use crate::common::{Tuple, tuple};
use juneau_core::flow::TCP_ACK;
use juneau_core::layout::{BACKEND_SERVING, Backend, Be16, FLOW_NAT, Flow, FlowKey, FrontendKey, SLOTS, be32, proto};
use juneau_core::packet::{IP_TCP, IP_UDP, Tcp, view};
use juneau_core::pipeline::{Outcome, Packet};
use juneau_core::tables::{Diff, Tables};
use juneau_core::testkit::packets::{Frame, Layer4, assert_checksums, decapsulated, syn_ack, udp};
use juneau_core::testkit::topology::{self, Pod};
use juneau_core::verdict::{Action, Hook, Reason};
use std::net::Ipv4Addr;

/// A client, and a backend itself.
pub(super) const A: Pod = Pod::new(0, 1, 10);
/// On the same node.
pub(super) const B: Pod = Pod::new(0, 1, 11);
/// The other interface of A.
pub(super) const A2: Pod = Pod::new(0, 2, 10);
/// A client that is nobody's backend of TCP.
pub(super) const CLIENT: Pod = Pod::new(0, 2, 11);
/// On the other node.
pub(super) const C: Pod = Pod::new(0, 1, 20);
/// On the other node, in the client's Subnet.
pub(super) const D: Pod = Pod::new(0, 2, 20);

/// The same of an outcome, encapsulated or not.
pub(super) fn inner(outcome: &Outcome) -> &[u8] {
    if outcome.verdict.action == Action::Encap { decapsulated(&outcome.frame) } else { &outcome.frame }
}

/// Changes the tables of both nodes.
pub(super) fn apply(net: &mut Net, change: impl Fn(&mut Tables)) {
    for node in &mut net.0 {
        let current = node.tables.content().clone();
        let mut wanted = current.clone();
        change(&mut wanted);
        node.apply(&Diff::between(&current, &wanted)).unwrap();
    }
}

/// The key of a Service port of a tenant.
pub(super) const fn frontend(tenant: u8, service: Ipv4Addr, port: u16, protocol: u8) -> FrontendKey {
    FrontendKey::new(Pod::new(tenant, 1, 0).vpc(), be32(service), Be16::new(port), protocol)
}

/// The ids of a Service port's backends, in the order of its slots.
fn ids(tables: &Tables, key: &FrontendKey) -> Vec<u32> {
    let service = tables.frontends[key].service;
    tables.backends.iter().filter(|(_, backend)| backend.service == service).map(|(id, _)| *id).collect()
}

/// A Service port's backend at a Pod.
pub(super) fn backend_of(tables: &Tables, key: &FrontendKey, pod: Pod) -> (u32, Backend) {
    let found = ids(tables, key).into_iter().map(|id| (id, tables.backends[&id]));
    found.into_iter().find(|(_, backend)| backend.address == be32(pod.address())).unwrap()
}

/// Has the slots of a Service port hold these backends alone.
pub(super) fn choose_among(tables: &mut Tables, key: &FrontendKey, ids: &[u32]) {
    let mut front = tables.frontends[key];
    if ids.is_empty() {
        front.size = 0;
    } else {
        assert_eq!(front.size, SLOTS);
        let slots = tables.slots.get_mut(&(front.base / SLOTS)).unwrap();
        slots.backend.iter_mut().zip(ids.iter().cycle()).for_each(|(slot, id)| *slot = *id);
    }
    tables.frontends.insert(*key, front.tagged(key));
}

/// A backend stops serving, and is chosen no more.
pub(super) fn stops_serving(tables: &mut Tables, key: &FrontendKey, pod: Pod) {
    let (id, backend) = backend_of(tables, key, pod);
    let stopped = Backend { flags: backend.flags & !BACKEND_SERVING, ..backend }.tagged();
    tables.backends.insert(id, stopped);
    let others: Vec<_> = ids(tables, key).into_iter().filter(|other| *other != id).collect();
    choose_among(tables, key, &others);
}

/// A backend's Pod is gone, with all that was known of it.
pub(super) fn goes(tables: &mut Tables, key: &FrontendKey, pod: Pod) {
    let (id, _) = backend_of(tables, key, pod);
    let others: Vec<_> = ids(tables, key).into_iter().filter(|other| *other != id).collect();
    choose_among(tables, key, &others);
    tables.backends.remove(&id);
    tables.endpoints.retain(|key, _| (key.vpc, key.address) != (pod.vpc(), be32(pod.address())));
}

/// A Service is deleted, with its backends, but for its address' range.
pub(super) fn delete(tables: &mut Tables, key: &FrontendKey) {
    let service = tables.frontends[key].service;
    let own: Vec<u32> =
        tables.backends.iter().filter(|(_, backend)| backend.service == service).map(|(id, _)| *id).collect();
    for id in own {
        tables.backends.remove(&id);
    }
    tables.frontends.remove(key);
    tables.frontends.remove(&FrontendKey::of_address(key.scope, key.address));
}

/// The Pod of a tenant with an address.
pub(super) fn pod(tenant: u8, address: Ipv4Addr) -> Pod {
    topology::pods().into_iter().find(|pod| pod.tenant == tenant && pod.address() == address).unwrap()
}

/// What a Pod's packet would become at its own node, where nothing changes by it.
pub(super) fn explain(net: &Net, from: Pod, to: Ipv4Addr, layer4: Layer4) -> Outcome {
    let sent = frame(from, to, layer4).build();
    net.0[from.node()].explain(&Packet::new(Hook::Pod, from.ifindex(), &sent), NOW).unwrap()
}

/// A source port, beginning at `first`, from which a Service leads to a Pod.
pub(super) fn port_to(
    net: &Net,
    client: Pod,
    service: Ipv4Addr,
    backend: Pod,
    first: u16,
    packet: impl Fn(u16) -> Layer4,
) -> u16 {
    let leads = |from: &u16| {
        let outcome = explain(net, client, service, packet(*from));
        outcome.verdict.is_delivered() && tuple(inner(&outcome)).1 == backend.address()
    };
    (first..first + 1000).find(leads).unwrap()
}

/// A connection through a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Connection {
    pub(super) client: Pod,
    pub(super) service: Ipv4Addr,
    pub(super) port: u16,
    pub(super) from: u16,
    pub(super) protocol: u8,
    pub(super) backend: Pod,
    /// The tuple as the backend sees it.
    pub(super) seen: Tuple,
}

impl Connection {
    /// Opens one, and has it answered.
    #[track_caller]
    pub(super) fn open(net: &mut Net, client: Pod, service: Ipv4Addr, layer4: Layer4) -> Self {
        let connection = Self::begin(net, client, service, layer4);
        let answer = match connection.protocol {
            IP_TCP => syn_ack(connection.seen.3, connection.seen.2),
            _ => udp(connection.seen.3, connection.seen.2, 20),
        };
        connection.assert_answered(&connection.answers(net, answer));
        connection
    }

    /// Opens one.
    #[track_caller]
    pub(super) fn begin(net: &mut Net, client: Pod, service: Ipv4Addr, layer4: Layer4) -> Self {
        let (protocol, from, port) = match layer4 {
            Layer4::Tcp { source, destination, .. } => (IP_TCP, source, destination),
            Layer4::Udp { source, destination, .. } => (IP_UDP, source, destination),
            _ => unreachable!(),
        };
        let opened = net.send(client, service, layer4);
        assert!(opened.verdict.is_delivered(), "{:?}", opened.verdict);
        assert_checksums(&opened.frame);
        let seen = tuple(&opened.frame);
        let backend = pod(client.tenant, seen.1);
        assert_peer(&opened, backend);
        Self { client, service, port, from, protocol, backend, seen }
    }

    /// The record of what the client sends.
    pub(super) fn key(&self) -> FlowKey {
        FlowKey {
            scope: FlowKey::scope(self.client.vpc(), 0, proto(self.protocol)),
            source: be32(self.client.address()),
            destination: be32(self.service),
            source_port: Be16::new(self.from),
            destination_port: Be16::new(self.port),
        }
    }

    /// The records of both directions at the client's node.
    #[track_caller]
    pub(super) fn records(&self, net: &Net) -> (Flow, Flow) {
        use juneau_core::flow::FlowRead as _;
        let flows = &net.0[self.client.node()].flows;
        let forward = flows.lookup(&self.key()).unwrap().unwrap();
        let reverse = flows.lookup(&forward.peer).unwrap().unwrap();
        assert_eq!(reverse.peer, self.key());
        assert!(forward.has(FLOW_NAT) && reverse.has(FLOW_NAT));
        assert_eq!(forward.backend, reverse.backend);
        (forward, reverse)
    }

    /// A segment with data, or a datagram, of the client.
    pub(super) fn says(&self, net: &mut Net) -> Outcome {
        let layer4 = match self.protocol {
            IP_TCP => Layer4::Tcp { source: self.from, destination: self.port, flags: TCP_ACK, payload: 30 },
            _ => udp(self.from, self.port, 30),
        };
        net.send(self.client, self.service, layer4)
    }

    /// The same arrives at the backend as the first did.
    #[track_caller]
    pub(super) fn assert_goes_on(&self, net: &mut Net) -> Outcome {
        let outcome = self.says(net);
        assert_peer(&outcome, self.backend);
        assert_eq!(tuple(&outcome.frame), self.seen);
        assert_checksums(&outcome.frame);
        outcome
    }

    /// What the backend sends to whom it sees.
    pub(super) fn answer(&self, layer4: Layer4) -> Frame {
        Frame::new(self.backend.address(), self.seen.0, layer4)
            .macs(self.backend.mac(), frame(self.backend, self.seen.0, udp(0, 0, 0)).destination_mac)
    }

    /// The backend sends.
    pub(super) fn answers(&self, net: &mut Net, layer4: Layer4) -> Outcome {
        net.send_frame(self.backend, &self.answer(layer4))
    }

    /// A segment with data, or a datagram, of the backend.
    pub(super) fn replies(&self, net: &mut Net) -> Outcome {
        let layer4 = match self.protocol {
            IP_TCP => Layer4::Tcp { source: self.seen.3, destination: self.seen.2, flags: TCP_ACK, payload: 40 },
            _ => udp(self.seen.3, self.seen.2, 40),
        };
        self.answers(net, layer4)
    }

    /// The client takes it for the Service's.
    #[track_caller]
    pub(super) fn assert_answered(&self, outcome: &Outcome) {
        assert_peer(outcome, self.client);
        assert_eq!(tuple(&outcome.frame), (self.service, self.client.address(), self.port, self.from));
        assert_checksums(&outcome.frame);
    }

    /// Both directions work.
    #[track_caller]
    pub(super) fn assert_works(&self, net: &mut Net) {
        self.assert_goes_on(net);
        let reply = self.replies(net);
        self.assert_answered(&reply);
    }
}

/// A reset in the name of whom the packet was sent to: flags, sequence and acknowledgement number.
#[track_caller]
pub(super) fn assert_reset(outcome: &Outcome, reason: Reason, to: Pod, about: Tuple) -> (u8, u32, u32) {
    assert_answer(outcome, reason, to);
    assert_checksums(&outcome.frame);
    assert_eq!(outcome.frame.len(), 54);
    let (source, destination, source_port, destination_port) = about;
    assert_eq!(tuple(&outcome.frame), (destination, source, destination_port, source_port));
    let (tcp, _) = view::<Tcp>(&outcome.frame[34..]).unwrap();
    (tcp.flags, tcp.sequence.get(), tcp.acknowledgement.get())
}

/// Records of both nodes.
pub(super) fn counts(net: &Net) -> [usize; 2] {
    net.0.each_ref().map(|node| node.flows.iter().count())
}
