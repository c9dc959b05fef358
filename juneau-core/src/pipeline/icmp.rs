//! ICMP errors that others send about flows.

use super::context::{Parsed, PathResult, Run, Stop, fault};
use super::deliver::here;
use super::overlay::Arrival;
use super::route::Target;
use super::{NodeState, Outcome, TableRead, parse};
use crate::flow::FlowTable;
use crate::layout::{
    Be16, EGRESS_ENCAP, EGRESS_PEER, EP_ROUTER, FLOW_NAT, Flow, FlowKey, Interface, SCOPE_MASK, SCOPE_OVERLAY,
    SCOPE_TRANSIT, proto,
};
use crate::packet::{ICMP_ECHO, ICMP_ECHO_REPLY, IP_ICMP, IP_SCTP, IP_TCP, IP_UDP, Icmp, Ipv4, Udp, view};
use crate::verdict::Reason;

impl<T: TableRead, F: FlowTable, S: NodeState> Run<'_, T, F, S> {
    /// An error that a Pod sends: routed to its destination without a record of its own. About a translated flow it is
    /// translated as the flow's answers are, and so routed to where they go.
    pub(super) fn pod_icmp_error(&mut self, interface: &Interface, parsed: &Parsed) -> Result<Outcome, Stop> {
        let quoted = quote(self.packet.frame, parsed)?;
        // A Pod speaks for itself alone; else every Pod of a VPC could end the others' connections.
        let for_itself = parsed.transit || quoted.destination == parsed.key.source;
        let answers = if for_itself { self.quoted_flow(&turned(&quoted, parsed))? } else { None };
        if answers.is_none() && !self.is_routed_here(interface, &quoted)? {
            return Err(Stop::Drop(Reason::IcmpNoFlow));
        }
        self.slow = true;
        let sender = self.pod_sender(interface);
        let answers = answers.filter(|record| record.has(FLOW_NAT));
        let destination = answers.map_or(parsed.key.destination, |record| record.peer.source);
        let route = self.route_to(&sender, destination)?;
        let target = self.target(&sender, destination, route, answers.is_some())?;
        let target = Target { connected: target.connected && answers.is_none(), ..target };
        let mut flow = self.deliver(&sender, &target, None)?;
        if flow.ttl_decrement != 0 && parsed.ttl <= flow.ttl_decrement {
            return Err(Stop::Drop(Reason::TtlExceeded));
        }
        flow.vpc_index = interface.vpc_index;
        if flow.kind == EGRESS_ENCAP {
            flow.outer_port = Be16::new(self.config.seeds.outer_port(&parsed.key));
        }
        Ok(self.emit_pod(parsed, &as_answers(flow, answers)))
    }

    /// An error from another node: to the Pod whose flow it is about.
    pub(super) fn overlay_icmp_error(
        &mut self,
        arrival: &Arrival,
        frame: &[u8],
        parsed: &Parsed,
        mac: [u8; 6],
    ) -> Result<Flow, Stop> {
        let quoted = quote(frame, parsed)?;
        let receiver = self.receiver(arrival, parsed, mac)?;
        let answers = self.quoted_flow(&turned(&quoted, parsed))?;
        if answers.is_none() {
            let router = receiver.endpoint.flags & EP_ROUTER != 0;
            let through = quoted.in_scope(arrival.vni, SCOPE_OVERLAY);
            if !router || self.quoted_flow(&through)?.is_none() {
                return Err(Stop::Drop(Reason::IcmpNoFlow));
            }
        }
        self.slow = true;
        let flow = Flow {
            kind: here(receiver.endpoint.flags),
            ifindex: receiver.ifindex,
            vpc_index: receiver.segment.vpc_index,
            ..Flow::default()
        };
        Ok(as_answers(flow, answers))
    }

    fn quoted_flow(&self, key: &FlowKey) -> PathResult<Option<Flow>> {
        self.flows.lookup(key).map_err(fault("flow"))
    }

    /// Whether the quoted packet is of a flow that leads through this router.
    fn is_routed_here(&self, interface: &Interface, quoted: &FlowKey) -> PathResult<bool> {
        if interface.flags & EP_ROUTER == 0 {
            return Ok(false);
        }
        let ifindex = self.packet.ifindex;
        if self.quoted_flow(&quoted.in_scope(ifindex, SCOPE_TRANSIT))?.is_some() {
            return Ok(true);
        }
        let leads_here = |flow: Option<Flow>| flow.is_some_and(|f| f.kind == EGRESS_PEER && f.ifindex == ifindex);
        Ok(leads_here(self.quoted_flow(&quoted.in_scope(interface.vni, SCOPE_OVERLAY))?)
            || leads_here(self.quoted_flow(&quoted.in_scope(interface.vpc, 0))?))
    }
}

/// The way of an error with the translation of the answers of the flow that it is about.
fn as_answers(flow: Flow, answers: Option<Flow>) -> Flow {
    answers.filter(|record| record.has(FLOW_NAT)).map_or(flow, |record| Flow {
        flags: FLOW_NAT,
        peer: record.peer,
        rewrite: record.rewrite,
        address_difference: record.address_difference,
        port_difference: record.port_difference,
        ..flow
    })
}

/// The tuple that an error quotes, as it stands there. Its scope holds the protocol alone.
fn quote(frame: &[u8], parsed: &Parsed) -> Result<FlowKey, Stop> {
    let bad = || Stop::Drop(Reason::IcmpQuote);
    let (_, rest) = view::<Icmp>(parse::layer4(frame, parsed)).ok_or_else(bad)?;
    let (ip, rest) = view::<Ipv4>(rest).ok_or_else(bad)?;
    // The first eight bytes of a TCP header are read as if they were UDP's: the ports lie in the same place.
    let (l4, _) = view::<Udp>(rest).ok_or_else(bad)?;
    if ip.version() != 4
        || ip.header_length() != Ipv4::LENGTH
        || ip.fragment.get() & Ipv4::OFFSET != 0
        || ip.source != parsed.key.destination
    {
        return Err(bad());
    }
    let (source_port, destination_port) = match ip.protocol {
        IP_TCP | IP_UDP | IP_SCTP => (l4.source_port, l4.destination_port),
        IP_ICMP => {
            let (icmp, _) = view::<Icmp>(rest).ok_or_else(bad)?;
            if !matches!(icmp.kind, ICMP_ECHO | ICMP_ECHO_REPLY) {
                return Err(bad());
            }
            (icmp.id, icmp.id)
        }
        other => (Be16::new(u16::from(other)), Be16::new(u16::from(other))),
    };
    let scope = FlowKey::scope(0, 0, proto(ip.protocol));
    Ok(FlowKey { scope, source: ip.source, destination: ip.destination, source_port, destination_port })
}

/// The answering direction of the quoted tuple, in the scope of the packet that quotes it.
const fn turned(quoted: &FlowKey, parsed: &Parsed) -> FlowKey {
    let bits = parsed.key.scope & (SCOPE_OVERLAY | SCOPE_TRANSIT);
    quoted.reversed().in_scope(parsed.key.scope & SCOPE_MASK, bits)
}
