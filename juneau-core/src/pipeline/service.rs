//! Service: who answers what is sent to a Service's address, and which binding a flow keeps.

use super::context::{Parsed, PathResult, Refusal, Run, fault};
use super::decide::Basis;
use super::{NodeState, TableRead};
use crate::flow::{FlowTable, TCP_ACK, TCP_SYN};
use crate::layout::{
    Affinity, AffinityKey, BACKEND_CHOSEN, BACKEND_SERVING, Backend, Be16, Be32, EP_LOCAL, Endpoint, FLOW_NAT,
    FLOW_REPLY, FRONTEND_LOCAL_ONLY, Flow, FlowKey, Frontend, FrontendKey, Interface, ROUTE_SERVICE, Route,
    STAGE_SERVICE, endpoint_generation, ipv4, native,
};
use crate::packet::IP_TCP;
use crate::verdict::Reason;
use core::net::IpAddr;

/// What a packet's flow is translated to, in the direction of the packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Binding {
    /// Where the packet goes.
    pub(super) destination: Be32,
    pub(super) destination_port: Be16,
    /// Whom it comes from.
    pub(super) source: Be32,
    /// The port that it comes from, or the first that is tried.
    pub(super) source_port: Be16,
    /// The backend's id; 0 is none.
    pub(super) backend: u32,
}

impl Binding {
    /// No translation.
    pub(super) const fn none(key: &FlowKey) -> Self {
        Self {
            destination: key.destination,
            destination_port: key.destination_port,
            source: key.source,
            source_port: key.source_port,
            backend: 0,
        }
    }

    /// What a record that is translated leaves as.
    const fn of(record: &Flow) -> Self {
        let out = record.peer.reversed();
        Self { backend: record.backend, ..Self::none(&out) }
    }
}

/// The middle of a connection: a segment that neither opens nor accepts one.
const fn goes_on(parsed: &Parsed) -> bool {
    parsed.protocol == IP_TCP && parsed.tcp_flags & TCP_SYN == 0
}

impl<T: TableRead, F: FlowTable, S: NodeState> Run<'_, T, F, S> {
    /// The binding of a packet whose record is missing or stale. Only the direction that opened a flow chooses; an
    /// answer keeps its binding while its peer points back.
    pub(super) fn bind(
        &mut self,
        interface: &Interface,
        parsed: &Parsed,
        record: Option<&Flow>,
        route: Option<&Route>,
        basis: &mut Basis,
    ) -> Result<Binding, Refusal> {
        let translated = record.filter(|record| record.has(FLOW_NAT));
        if let Some(record) = translated.filter(|record| record.has(FLOW_REPLY)) {
            let forward = self.flows.lookup(&record.peer).map_err(fault("flow"))?;
            if forward.is_none_or(|forward| forward.peer != parsed.key) {
                return Err(Refusal::new(Reason::ServiceGone));
            }
            return Ok(Binding::of(record));
        }
        if route.is_none_or(|route| route.kind != ROUTE_SERVICE) {
            // A direct connection whose port another one has keeps the one that it was given.
            let kept = translated.filter(|record| record.backend == 0);
            let port = kept.map_or(parsed.key.source_port, |record| record.peer.destination_port);
            return Ok(Binding { source_port: port, ..Binding::none(&parsed.key) });
        }
        if parsed.transit {
            return Err(Refusal::new(Reason::RouteUnreachable));
        }
        let bound = translated.filter(|record| record.backend != 0);
        let (id, address, port) = self.backend(interface.vpc, parsed, bound)?;
        self.note_destination(basis, endpoint_generation(interface.vpc, address))?;
        let endpoint = self.tables.endpoint(interface.vpc, IpAddr::V4(ipv4(address))).map_err(fault("endpoint"))?;
        let missing = if bound.is_some() && goes_on(parsed) { Reason::ServiceGone } else { Reason::NoEndpoint };
        let endpoint = endpoint.ok_or(Refusal::new(missing))?;
        let source = if self.is_own(interface, &endpoint) { self.gateway_of(&endpoint)? } else { parsed.key.source };
        let kept = bound.filter(|record| record.backend == id && record.peer.destination == source);
        Ok(Binding {
            destination: address,
            destination_port: port,
            source,
            source_port: kept.map_or(parsed.key.source_port, |record| record.peer.destination_port),
            backend: id,
        })
    }

    /// The backend of a packet to a Service's address: the one that its flow is bound to, where that may stay, or one that
    /// is chosen. Its id, address and port.
    fn backend(&mut self, scope: u32, parsed: &Parsed, bound: Option<&Flow>) -> Result<(u32, Be32, Be16), Refusal> {
        let FlowKey { destination, destination_port, .. } = parsed.key;
        let key = FrontendKey::new(scope, destination, destination_port, parsed.protocol);
        let Some(frontend) = self.frontend(&key)? else {
            self.step(STAGE_SERVICE, 0, [scope, native(destination), u32::from(destination_port.get()), 0]);
            return Err(Refusal::new(match bound {
                Some(_) if goes_on(parsed) => Reason::ServiceGone,
                _ if self.frontend(&FrontendKey::of_address(scope, destination))?.is_some() => Reason::ServicePort,
                _ => Reason::ServiceUnknown,
            }));
        };
        self.step(STAGE_SERVICE, 1, [frontend.service, frontend.size, frontend.flags, frontend.owner]);
        if let Some(record) = bound {
            let (address, port) = (record.peer.source, record.peer.source_port);
            let backend = self.tables.backend(record.backend).map_err(fault("backend"))?;
            let same = |found: &Backend| {
                found.service == frontend.service
                    && (found.vpc, found.address, found.port) == (frontend.owner, address, port)
            };
            let serves = backend.as_ref().is_some_and(|found| same(found) && found.flags & BACKEND_SERVING != 0);
            if serves || goes_on(parsed) {
                return Ok((record.backend, address, port));
            }
        } else if parsed.protocol == IP_TCP && parsed.tcp_flags & (TCP_SYN | TCP_ACK) != TCP_SYN {
            return Err(Refusal::new(Reason::ServiceGone));
        }
        self.choose(scope, parsed, &frontend)
    }

    /// A backend for a new connection: by the hash of its key, or where its client was before.
    fn choose(&mut self, scope: u32, parsed: &Parsed, frontend: &Frontend) -> Result<(u32, Be32, Be16), Refusal> {
        if frontend.size == 0 {
            let local = frontend.flags & FRONTEND_LOCAL_ONLY != 0;
            return Err(Refusal::new(if local { Reason::ServiceNotLocal } else { Reason::ServiceEmpty }));
        }
        let by_connection = self.config.seeds.tag_hash(&parsed.key);
        if frontend.affinity == 0 {
            return self.by_hash(frontend, by_connection);
        }
        let client = AffinityKey { service: frontend.service, scope, client: parsed.key.source };
        let chosen = match self.remembered(&client, frontend)? {
            Some((id, backend)) => {
                self.step(STAGE_SERVICE, 3, [0, id, native(backend.address), u32::from(backend.port.get())]);
                (id, backend.address, backend.port)
            }
            None => self.by_hash(frontend, by_connection)?,
        };
        // At least that long: the stamp is coarse.
        let expires = self.now.stamp.wrapping_add(self.now.seconds(frontend.affinity)).wrapping_add(1);
        let affinity = Affinity { backend: chosen.0, expires };
        if self.state.put_affinity(&client, &affinity).map_err(fault("affinity"))? {
            return Ok(chosen);
        }
        // Who cannot be remembered stays where its address leads, as long as the backends stay.
        let key = FlowKey {
            scope: client.service,
            source: client.client,
            destination: Be32::from_bytes(scope.to_ne_bytes()),
            ..FlowKey::default()
        };
        self.by_hash(frontend, self.config.seeds.tag_hash(&key))
    }

    /// The backend that a client was sent to, as long as new connections go there.
    fn remembered(&self, client: &AffinityKey, frontend: &Frontend) -> PathResult<Option<(u32, Backend)>> {
        let affinity = self.state.affinity(client).map_err(fault("affinity"))?;
        let Some(affinity) = affinity.filter(|affinity| self.now.is_before(affinity.expires)) else { return Ok(None) };
        let takes = BACKEND_SERVING | BACKEND_CHOSEN;
        let found = self.tables.backend(affinity.backend).map_err(fault("backend"))?;
        let usable = |backend: &Backend| {
            backend.service == frontend.service && backend.vpc == frontend.owner && backend.flags & takes == takes
        };
        Ok(found.filter(usable).map(|backend| (affinity.backend, backend)))
    }

    /// The backend in the slot that a hash leads to.
    fn by_hash(&mut self, frontend: &Frontend, hash: u32) -> Result<(u32, Be32, Be16), Refusal> {
        let slot = frontend.base + ((u64::from(hash) * u64::from(frontend.size)) >> 32) as u32;
        let id = self.tables.slot(slot).map_err(fault("slot"))?;
        let backend = self.tables.backend(id).map_err(fault("backend"))?;
        let backend = backend.filter(|backend| backend.service == frontend.service && backend.vpc == frontend.owner);
        let Some(backend) = backend else {
            return Err(Refusal::new(Reason::ServiceChanging));
        };
        self.step(STAGE_SERVICE, 2, [slot, id, native(backend.address), u32::from(backend.port.get())]);
        Ok((id, backend.address, backend.port))
    }

    fn frontend(&self, key: &FrontendKey) -> PathResult<Option<Frontend>> {
        self.tables.frontend(key).map_err(fault("front end"))
    }

    /// Whether an endpoint is an interface of the sender itself.
    pub(super) fn is_own(&self, interface: &Interface, endpoint: &Endpoint) -> bool {
        let same_pod = interface.pod != 0 && interface.pod == endpoint.pod;
        same_pod || (endpoint.flags & EP_LOCAL != 0 && endpoint.ifindex == self.packet.ifindex)
    }

    /// The gateway of an endpoint's Subnet, which a sender that reaches itself speaks as: its own address would be a
    /// martian to it.
    fn gateway_of(&self, endpoint: &Endpoint) -> Result<Be32, Refusal> {
        let segment = self.tables.segment(endpoint.vni).map_err(fault("segment"))?;
        segment.map(|segment| segment.gateway).ok_or(Refusal::new(Reason::NoEndpoint))
    }
}
