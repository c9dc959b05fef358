//! Policy: what the sender may send and the receiver may take, about the tuple that opened the flow.

use super::context::{PathResult, Refusal, Run, fault};
use super::{NodeState, TableRead};
use crate::flow::FlowTable;
use crate::layout::{
    Be16, Be32, EGRESS, EP_EGRESS_ANY, EP_INGRESS_ANY, EP_LOCAL, EP_NODE, EP_POLICY_READY, Endpoint, IDENTITY_ANY,
    IDENTITY_UNKNOWN, INGRESS, Interface, POLICY_ALLOW, POLICY_NONE, PolicyKey, STAGE_POLICY, ipv4,
};
use crate::verdict::Reason;
use core::net::IpAddr;

/// The flags of an end that say how wide its rules are.
const ANY: u32 = EP_EGRESS_ANY | EP_INGRESS_ANY;

/// One end of a flow as policy sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side {
    identity: u32,
    policy: u32,
    local: bool,
    ready: bool,
    /// A node: it has no policy.
    node: bool,
    /// `EP_EGRESS_ANY`, `EP_INGRESS_ANY`.
    any: u32,
}

impl Side {
    /// An endpoint that nobody knows: without rules of its own, and matched by rules for every peer alone.
    const UNKNOWN: Self =
        Self { identity: IDENTITY_UNKNOWN, policy: 0, local: false, ready: false, node: false, any: 0 };

    /// The Pod behind an interface of this node.
    pub(super) const fn of_interface(interface: &Interface) -> Self {
        Self {
            identity: interface.identity,
            policy: interface.policy,
            local: true,
            ready: interface.flags & EP_POLICY_READY != 0,
            node: interface.flags & EP_NODE != 0,
            any: interface.flags & ANY,
        }
    }

    /// The endpoint of this node that the overlay delivers to.
    pub(super) const fn of_receiver(endpoint: &Endpoint) -> Self {
        Self { local: true, ..Self::of_endpoint(endpoint) }
    }

    /// The sender of what comes from another node, and so none of this node's own addresses: those speak by the node
    /// port alone.
    pub(super) const fn elsewhere(self) -> Self {
        Self { local: self.local && !self.node, ..self }
    }

    /// An endpoint anywhere.
    pub(super) const fn of_endpoint(endpoint: &Endpoint) -> Self {
        Self {
            identity: endpoint.identity,
            policy: endpoint.policy,
            local: endpoint.flags & EP_LOCAL != 0,
            ready: endpoint.flags & EP_POLICY_READY != 0,
            node: endpoint.flags & EP_NODE != 0,
            any: endpoint.flags & ANY,
        }
    }
}

/// What a flow's two ends are asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    /// Whose egress policy.
    pub(super) sender: Side,
    /// What the receiver's ingress policy sees; in transit not the sender.
    pub(super) source: Side,
    /// Whose ingress policy.
    pub(super) receiver: Side,
    /// IP protocol.
    pub(super) protocol: u8,
    /// Destination port of the opening direction; 0 where there is none.
    pub(super) port: Be16,
}

impl<T: TableRead, F: FlowTable, S: NodeState> Run<'_, T, F, S> {
    /// One end by its address.
    pub(super) fn side(&self, vpc: u32, address: Be32) -> PathResult<Side> {
        let endpoint = self.tables.endpoint(vpc, IpAddr::V4(ipv4(address))).map_err(fault("endpoint"))?;
        Ok(endpoint.as_ref().map_or(Side::UNKNOWN, Side::of_endpoint))
    }

    /// Asks both ends that are on this node.
    pub(super) fn policy(&mut self, question: &Question) -> Result<(), Refusal> {
        let Question { sender, source, receiver, .. } = question;
        if [sender, receiver].iter().any(|side| side.local && !side.ready) {
            return Err(Refusal::new(Reason::PolicyNotReady));
        }
        if sender.local && !sender.node && !self.allows(sender, EGRESS, receiver.identity, question)? {
            return Err(Refusal::new(Reason::PolicyEgress));
        }
        // The kubelet reaches every Pod of its own node.
        let judged = receiver.local && !receiver.node && !(sender.local && sender.node);
        if judged && !self.allows(receiver, INGRESS, source.identity, question)? {
            return Err(Refusal::new(Reason::PolicyIngress));
        }
        Ok(())
    }

    /// The first rule that exists decides; none refuses.
    fn allows(&mut self, own: &Side, direction: u8, peer: u32, question: &Question) -> PathResult<bool> {
        let (protocol, port) = (question.protocol, question.port);
        let any = if direction == EGRESS { EP_EGRESS_ANY } else { EP_INGRESS_ANY };
        let narrow = own.any & any == 0;
        let probes = [(peer, protocol, port), (peer, 0, Be16::ZERO), (IDENTITY_ANY, protocol, port)]
            .into_iter()
            .filter(|(whom, ..)| narrow && *whom != IDENTITY_UNKNOWN)
            .chain([(IDENTITY_ANY, 0, Be16::ZERO)]);
        for (peer, protocol, port) in probes {
            let key = PolicyKey { identity: own.identity, policy: own.policy, peer, direction, protocol, port };
            if let Some(rule) = self.tables.policy(&key).map_err(fault("policy"))? {
                self.step(STAGE_POLICY, rule.action, [own.identity, peer, rule.rule, u32::from(direction)]);
                return Ok(rule.action == POLICY_ALLOW);
            }
        }
        self.step(STAGE_POLICY, POLICY_NONE, [own.identity, peer, 0, u32::from(direction)]);
        Ok(false)
    }
}
