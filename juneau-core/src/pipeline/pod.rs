//! Hooks POD and NODE PORT: everything that a Pod sends, or the node itself.

use super::context::{Found, Parsed, Part, PathResult, Refusal, Run, Sender, Stop, fault};
use super::decide::Original;
use super::deliver::here;
use super::flow::fits_pod;
use super::parse;
use super::policy::{Question, Side};
use super::reject::Answer;
use super::route::Target;
use super::service::Binding;
use super::{NodeState, Outcome, TableRead};
use crate::flow::FlowTable;
use crate::layout::{
    Be16, Be32, EGRESS_ENCAP, EP_LOCAL, EP_NODE, EP_POLICY_READY, EP_ROUTER, FLOW_REPLY, FLOW_SINGLE, Flow, FlowKey,
    Interface, SCOPE_OVERLAY, SCOPE_TRANSIT, STAGE_PARSE, ipv4, native,
};
use crate::packet::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_QINQ, ETHERTYPE_VLAN, Ethernet, is_forbidden, view,
};
use crate::verdict::{Hook, Reason};
use core::net::IpAddr;

/// Flags of an address of this node.
pub(super) const OWN_NODE: u32 = EP_NODE | EP_LOCAL;

impl<T: TableRead, F: FlowTable, S: NodeState> Run<'_, T, F, S> {
    pub(super) fn pod(&mut self) -> Result<Outcome, Stop> {
        let interface = self.tables.interface(self.packet.ifindex).map_err(fault("interface"))?;
        let interface = interface.filter(|found| self.packet.hook == Hook::Pod || found.flags & EP_NODE != 0);
        let interface = interface.ok_or(Stop::Drop(Reason::NoInterface))?;
        let ethertype = self.pod_ethernet(&interface)?;
        match ethertype {
            ETHERTYPE_IPV4 => {}
            ETHERTYPE_ARP => return self.arp(&interface),
            ETHERTYPE_IPV6 => return Err(Stop::Drop(Reason::Ipv6)),
            _ => return Err(Stop::Drop(Reason::Ethertype)),
        }
        let parsed = self.pod_ipv4(&interface)?;
        if parsed.icmp_error {
            return self.pod_icmp_error(&interface, &parsed);
        }
        let found = self.find(&parsed, |flow| fits_pod(&parsed, flow))?;
        let flow = if let Found::Hit(flow) = found {
            self.touch(&parsed, &flow)?;
            flow
        } else {
            self.slow = true;
            match self.pod_decide(&interface, &parsed, &found) {
                Ok(flow) => flow,
                Err(Refusal::Refused { reason, mtu, settled }) => {
                    return match Answer::to(&parsed, reason, mtu, settled) {
                        Some(answer) => self.reject(&interface, &parsed, reason, answer),
                        None => Err(Stop::Drop(reason)),
                    };
                }
                Err(Refusal::Fault(error)) => return Err(Stop::Fault(error)),
            }
        };
        self.remember_fragment(&parsed)?;
        Ok(self.emit_pod(&parsed, &flow))
    }

    /// Rules 2 to 4 but for the meaning of the EtherType.
    fn pod_ethernet(&self, interface: &Interface) -> Result<u16, Stop> {
        if self.packet.vlan_present {
            return Err(Stop::Drop(Reason::Vlan));
        }
        let (ethernet, _) = view::<Ethernet>(self.packet.frame).ok_or(Stop::Drop(Reason::Malformed))?;
        let ethertype = ethernet.ethertype.get();
        if matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_QINQ) {
            return Err(Stop::Drop(Reason::Vlan));
        }
        if ethernet.source != interface.mac {
            return Err(Stop::Drop(Reason::SourceMac));
        }
        Ok(ethertype)
    }

    /// Rules 5 to 10 but for the flow.
    fn pod_ipv4(&mut self, interface: &Interface) -> Result<Parsed, Stop> {
        let mut parsed = parse::ipv4(self.packet.frame, self.packet.gso_size)?;
        if parsed.key.source != interface.address {
            if self.packet.hook == Hook::NodePort {
                if !self.is_own_address(interface, parsed.key.source)? {
                    return Err(Stop::Drop(Reason::NodeSource));
                }
            } else if interface.flags & EP_ROUTER == 0 || is_forbidden(parsed.key.source) {
                return Err(Stop::Drop(Reason::SourceAddress));
            } else {
                parsed.transit = true;
            }
        }
        if is_forbidden(parsed.key.destination) {
            return Err(Stop::Drop(Reason::Destination));
        }
        if interface.flags & EP_POLICY_READY == 0 {
            return Err(Stop::Drop(Reason::PolicyNotReady));
        }
        if parsed.transit {
            parse::set_scope(&mut parsed, self.packet.ifindex, SCOPE_TRANSIT);
        } else {
            parse::set_scope(&mut parsed, interface.vpc, 0);
        }
        self.layer4(self.packet.frame, &mut parsed)?;
        Ok(parsed)
    }

    /// Ports, from the packet or from the slot of the datagram's first fragment.
    pub(super) fn layer4(&mut self, frame: &[u8], parsed: &mut Parsed) -> Result<(), Stop> {
        match parsed.part {
            Part::Later => self.recall_fragment(parsed)?,
            Part::Whole | Part::First => parse::ports(frame, parsed)?,
        }
        let FlowKey { scope, source, destination, source_port, destination_port } = parsed.key;
        let ports = u32::from(source_port.get()) << 16 | u32::from(destination_port.get());
        self.step(STAGE_PARSE, Reason::Ok.number(), [scope, native(source), native(destination), ports]);
        Ok(())
    }

    pub(super) const fn pod_sender(&self, interface: &Interface) -> Sender {
        Sender {
            vpc: interface.vpc,
            table: interface.table,
            vni: interface.vni,
            ifindex: self.packet.ifindex,
            gateway: interface.gateway,
            mac: interface.mac,
        }
    }

    /// Decide: service, route, deliver, policy, TTL, MTU, commit.
    fn pod_decide(&mut self, interface: &Interface, parsed: &Parsed, found: &Found) -> Result<Flow, Refusal> {
        let record = match found {
            Found::Again(record) => Some(record),
            _ => None,
        };
        let mut original = Original::of(parsed, record);
        let mut basis = self.basis(interface.vpc, &original, interface.table)?;
        let sender = self.pod_sender(interface);
        let asked = self.route_to(&sender, parsed.key.destination)?;
        let binding = self.bind(interface, parsed, record, asked.as_ref(), &mut basis)?;
        // What is translated is routed, even between neighbours: it was sent to the gateway.
        let routed = (binding.source, binding.destination) != (parsed.key.source, parsed.key.destination);
        let route = match routed {
            true if binding.destination != parsed.key.destination => self.route_to(&sender, binding.destination)?,
            _ => asked,
        };
        let target = self.target(&sender, binding.destination, route, routed)?;
        if binding.backend != 0 && !original.reply {
            original.port = binding.destination_port;
            // What a router brings back would not be known as an answer.
            if !target.connected {
                return Err(Refusal::new(Reason::RouteUnreachable));
            }
        }
        let way = Target { connected: target.connected && !routed, ..target };
        let mut flow = self.deliver(&sender, &way, Some(&mut basis))?;
        flow.vpc_index = interface.vpc_index;
        flow.backend = binding.backend;
        basis.put(&mut flow);
        if flow.kind == EGRESS_ENCAP {
            flow.outer_port = Be16::new(self.config.seeds.outer_port(&parsed.key));
        }

        // Nobody's policy stands between a Pod and itself.
        if !(routed && self.is_own(interface, &target.endpoint)) {
            let question = self.pod_question(interface, parsed, &original, binding.destination)?;
            self.policy(&question).map_err(|refusal| refusal.while_settled(basis.is_settled()))?;
        }
        if flow.ttl_decrement != 0 && parsed.ttl <= flow.ttl_decrement {
            return Err(Refusal::new(Reason::TtlExceeded));
        }
        if parsed.size > usize::from(flow.mtu) && (parsed.dont_fragment || flow.kind != EGRESS_ENCAP) {
            return Err(Refusal::Refused { reason: Reason::FragmentationNeeded, mtu: flow.mtu, settled: true });
        }

        let one_way = parsed.transit || record.is_some_and(|record| record.flags & (FLOW_REPLY | FLOW_SINGLE) != 0);
        if one_way {
            self.commit_one(parsed, found, &mut flow)?;
        } else {
            let reverse = self.pod_reverse(interface, &binding, &target, &flow)?;
            let key = FlowKey { scope: FlowKey::scope(0, 0, parsed.key.protocol()) | reverse.0.scope, ..reverse.0 };
            self.commit_pair(parsed, found, &mut flow, (key, reverse.1))?;
        }
        Ok(flow)
    }

    /// The two ends of what a Pod sends. Its own side is its interface's record, whatever the endpoints say.
    fn pod_question(
        &self,
        interface: &Interface,
        parsed: &Parsed,
        original: &Original,
        destination: Be32,
    ) -> PathResult<Question> {
        let own = Side::of_interface(interface);
        let other = self.side(interface.vpc, destination)?;
        let (sender, receiver) = if original.reply { (other, own) } else { (own, other) };
        let source = if parsed.transit { self.side(interface.vpc, parsed.key.source)? } else { sender };
        Ok(Question { sender, source, receiver, protocol: parsed.protocol, port: original.port })
    }

    /// Where the answers to a new flow will arrive, and the way to the Pod. The key lacks the protocol.
    fn pod_reverse(
        &self,
        interface: &Interface,
        binding: &Binding,
        target: &Target,
        flow: &Flow,
    ) -> PathResult<(FlowKey, Flow)> {
        let unresolved = Flow {
            vpc_index: flow.vpc_index,
            epoch: flow.epoch,
            generation: flow.generation,
            value: flow.value,
            backend: flow.backend,
            ..Flow::default()
        };
        let reverse = Flow {
            kind: here(interface.flags),
            ifindex: self.packet.ifindex,
            vni: interface.vni,
            mtu: interface.mtu,
            dmac: interface.mac,
            ..unresolved
        };
        let answer = FlowKey {
            scope: 0,
            source: binding.destination,
            destination: binding.source,
            source_port: binding.destination_port,
            destination_port: binding.source_port,
        };
        if !self.is_local(interface.vpc, binding.destination)? {
            let reverse = Flow { vtep: flow.vtep, ..reverse };
            return Ok((FlowKey { scope: FlowKey::scope(interface.vni, SCOPE_OVERLAY, 0), ..answer }, reverse));
        }
        let key = FlowKey { scope: FlowKey::scope(interface.vpc, 0, 0), ..answer };
        if !target.connected {
            // Behind a router: the answer goes by its sender's own routes, which may lead through the router, too.
            return Ok((key, unresolved));
        }
        let smac = if flow.ttl_decrement == 0 { target.endpoint.mac } else { interface.gateway_mac };
        Ok((key, Flow { ttl_decrement: flow.ttl_decrement, smac, ..reverse }))
    }

    /// Whether an address is one of this node's, which its stack may send from.
    pub(super) fn is_own_address(&self, interface: &Interface, address: Be32) -> PathResult<bool> {
        let endpoint = self.tables.endpoint(interface.vpc, IpAddr::V4(ipv4(address))).map_err(fault("endpoint"))?;
        Ok(endpoint.is_some_and(|endpoint| endpoint.flags & OWN_NODE == OWN_NODE))
    }

    fn is_local(&self, vpc: u32, address: Be32) -> PathResult<bool> {
        let endpoint = self.tables.endpoint(vpc, IpAddr::V4(ipv4(address))).map_err(fault("endpoint"))?;
        Ok(endpoint.is_some_and(|endpoint| endpoint.flags & EP_LOCAL != 0))
    }
}
