//! Emit: the only place that changes packets that are delivered.

use super::context::{Parsed, Run};
use super::translate::rewrite;
use super::{NodeState, Outcome, TableRead};
use crate::flow::FlowTable;
use crate::layout::{
    Be16, DEVICE_LENGTH, DEVICE_MTU, EGRESS_NODE, EGRESS_PEER, ENCAP_OVERHEAD, FLOW_NAT, FROM_OVERLAY, FROM_POD, Flow,
    STAGE_EMIT, native,
};
use crate::packet::{ETHERTYPE_IPV4, Ethernet, IP_UDP, Ipv4, Udp, Vxlan, view_mut};
use crate::verdict::{Action, Hook};
use zerocopy::IntoBytes;

/// What is done with a packet that stays on this node.
const fn into(flow: &Flow) -> Option<Action> {
    match flow.kind {
        EGRESS_PEER => Some(Action::Peer),
        EGRESS_NODE => Some(Action::Node),
        _ => None,
    }
}

impl<T: TableRead, F: FlowTable, S: NodeState> Run<'_, T, F, S> {
    fn emit_step(&mut self, flow: &Flow, last: u32) {
        let trail = [flow.ifindex, native(flow.vtep), flow.vni, last];
        self.step(STAGE_EMIT, u32::from(flow.kind), trail);
    }

    /// What a Pod sends, or the node.
    pub(super) fn emit_pod(&mut self, parsed: &Parsed, flow: &Flow) -> Outcome {
        self.emit_step(flow, u32::from(flow.ttl_decrement));
        let mut frame = self.packet.frame.to_vec();
        if let Some((ethernet, rest)) = view_mut::<Ethernet>(&mut frame) {
            ethernet.destination = flow.dmac;
            ethernet.source = flow.smac;
            if let Some((ip, _)) = view_mut::<Ipv4>(rest)
                && flow.ttl_decrement != 0
            {
                ip.decrease_ttl(flow.ttl_decrement);
            }
        }
        if flow.has(FLOW_NAT) {
            rewrite(&mut frame, parsed, flow);
        }
        if let Some(action) = into(flow) {
            return self.delivered(action, flow, FROM_POD, frame, parsed.frame);
        }
        let outer_length = frame.len() + ENCAP_OVERHEAD as usize - Ethernet::LENGTH;
        let device = match u16::try_from(outer_length) {
            _ if !parsed.dont_fragment && parsed.size > usize::from(flow.mtu) => DEVICE_MTU,
            Err(_) => DEVICE_LENGTH,
            Ok(length) => {
                let frame = self.encapsulate(parsed, flow, length, &frame);
                return self.delivered(Action::Encap, flow, FROM_POD, frame, parsed.frame);
            }
        };
        let mut outcome = self.delivered(Action::Device, flow, FROM_POD, frame, parsed.frame);
        outcome.device = Some(device);
        outcome
    }

    /// Puts the outer headers in front. The outer MAC addresses are the neighbour's business.
    fn encapsulate(&self, parsed: &Parsed, flow: &Flow, length: u16, inner: &[u8]) -> Vec<u8> {
        let ethernet = Ethernet { ethertype: Be16::new(ETHERTYPE_IPV4), ..Ethernet::default() };
        let mut ip = Ipv4 {
            version_length: 0x45,
            tos: parsed.tos,
            total_length: Be16::new(length),
            fragment: Be16::new(Ipv4::DF),
            ttl: 64,
            protocol: IP_UDP,
            source: self.config.vtep,
            destination: flow.vtep,
            ..Ipv4::default()
        };
        ip.set_checksum();
        let udp = Udp {
            source_port: flow.outer_port,
            destination_port: self.config.vxlan_port,
            length: Be16::new(length - Ipv4::LENGTH as u16),
            checksum: Be16::ZERO,
        };
        [ethernet.as_bytes(), ip.as_bytes(), udp.as_bytes(), Vxlan::new(flow.vni).as_bytes(), inner].concat()
    }

    /// A packet from another node, into the Pod or this node. MAC addresses stay as sent.
    pub(super) fn emit_overlay(&mut self, inner: &[u8], parsed: &Parsed, flow: &Flow, mark: bool) -> Outcome {
        self.emit_step(flow, self.packet.hook.number());
        let mut frame = inner.to_vec();
        if mark
            && self.packet.hook == Hook::Overlay
            && let Some((_, rest)) = view_mut::<Ethernet>(&mut frame)
            && let Some((ip, _)) = view_mut::<Ipv4>(rest)
            && ip.ecn() != Ipv4::CE
        {
            ip.mark_congestion();
        }
        if flow.has(FLOW_NAT) {
            rewrite(&mut frame, parsed, flow);
        }
        self.delivered(into(flow).unwrap_or(Action::Peer), flow, FROM_OVERLAY, frame, inner.len())
    }
}
