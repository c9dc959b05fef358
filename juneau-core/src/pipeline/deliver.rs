//! Deliver: what a record holds about the way to an endpoint.

use super::context::{PathResult, Refusal, Run, Sender, fault};
use super::decide::Basis;
use super::route::Target;
use super::{NodeState, TableRead};
use crate::flow::FlowTable;
use crate::layout::{
    Be32, EGRESS_ENCAP, EGRESS_NODE, EGRESS_PEER, ENCAP_OVERHEAD, EP_LOCAL, EP_NODE, Flow, STAGE_DELIVER, Vtep, ipv4,
    native, vtep_generation,
};
use crate::verdict::Reason;

/// How an endpoint of this node with these flags is reached.
pub(super) const fn here(flags: u32) -> u8 {
    if flags & EP_NODE == 0 { EGRESS_PEER } else { EGRESS_NODE }
}

impl<T: TableRead, F: FlowTable, S: NodeState> Run<'_, T, F, S> {
    /// The way from a sender to the target of its route. The generation of a VTEP is noted in `basis`, if one is kept.
    pub(super) fn deliver(
        &mut self,
        sender: &Sender,
        target: &Target,
        basis: Option<&mut Basis>,
    ) -> Result<Flow, Refusal> {
        let Target { endpoint, connected } = target;
        let neighbours = *connected && endpoint.vni == sender.vni;
        let mut flow = Flow {
            vni: endpoint.vni,
            mtu: endpoint.mtu,
            dmac: endpoint.mac,
            smac: if neighbours { sender.mac } else { endpoint.gateway_mac },
            ttl_decrement: u8::from(!neighbours),
            ..Flow::default()
        };
        if endpoint.flags & EP_LOCAL != 0 {
            flow.kind = here(endpoint.flags);
            flow.ifindex = endpoint.ifindex;
        } else {
            if let Some(basis) = basis {
                self.note_vtep(basis, vtep_generation(endpoint.vtep))?;
            }
            let vtep = self.tables.vtep(ipv4(endpoint.vtep)).map_err(fault("VTEP"))?;
            let vtep = vtep.ok_or(Refusal::new(Reason::NoEndpoint))?;
            let mtu = self.underlay_mtu(endpoint.vtep, &vtep)?.saturating_sub(ENCAP_OVERHEAD);
            flow.kind = EGRESS_ENCAP;
            flow.vtep = endpoint.vtep;
            flow.ifindex = native(vtep.next_hop);
            flow.mtu = flow.mtu.min(u16::try_from(mtu).unwrap_or(u16::MAX));
        }
        let trail = [flow.ifindex, native(flow.vtep), flow.vni, u32::from(flow.mtu)];
        self.step(STAGE_DELIVER, u32::from(flow.kind), trail);
        Ok(flow)
    }

    /// Outer bytes that reach a VTEP: those of its record, or fewer where the underlay told so.
    pub(super) fn underlay_mtu(&self, address: Be32, vtep: &Vtep) -> PathResult<u32> {
        let learned = self.state.pmtu(ipv4(address)).map_err(fault("path MTU"))?;
        let learned = learned.filter(|pmtu| self.now.is_before(pmtu.expires)).map(|pmtu| pmtu.mtu);
        Ok(learned.unwrap_or(u32::MAX).min(u32::from(vtep.mtu)))
    }
}
