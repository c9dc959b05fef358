//! Flow: the record of a packet's direction, and whether it still says where the packet goes.

use super::context::{Found, Parsed, Part, PathResult, Run, Stop, fault};
use super::{NodeState, TableRead};
use crate::flow::{FlowTable, TCP_ACK, TCP_FIN, TCP_RST, TCP_SHARED, TCP_SYN, Touch};
use crate::layout::{
    EGRESS_ENCAP, EGRESS_UNRESOLVED, FLOW_EMBRYONIC, FLOW_REPLY, FLOW_SINGLE, Flow, GEN_NODE, STAGE_FLOW,
};
use crate::verdict::Reason;

impl<T: TableRead, F: FlowTable, S: NodeState> Run<'_, T, F, S> {
    /// Looks the packet's record up. `fits` says whether a record that holds suits the packet.
    pub(super) fn find(&mut self, parsed: &Parsed, fits: impl Fn(&Flow) -> bool) -> Result<Found, Stop> {
        let Some(mut flow) = self.flows.lookup(&parsed.key).map_err(fault("flow"))? else {
            self.step(STAGE_FLOW, 0, [parsed.key.scope, 0, 0, 0]);
            return match parsed.part {
                Part::Later => Err(Stop::Drop(Reason::FragmentNoFirst)),
                _ => Ok(Found::Nothing),
            };
        };
        let opens = parsed.tcp_flags & (TCP_SYN | TCP_ACK) == TCP_SYN;
        let seen = flow.flags;
        let found = if opens && flow.saw(TCP_FIN | TCP_RST) {
            Found::Reused
        } else if self.holds(parsed, &mut flow)? {
            self.answered(parsed, &mut flow)?;
            if flow.kind != EGRESS_UNRESOLVED && fits(&flow) { Found::Hit(flow) } else { Found::Again(flow) }
        } else {
            Found::Again(flow)
        };
        let code = match found {
            Found::Nothing => 0,
            Found::Again(_) => 1,
            Found::Hit(_) => 2,
            Found::Reused => 3,
        };
        self.step(STAGE_FLOW, code, [seen, flow.stamp, flow.epoch, u32::from(flow.vpc_index)]);
        Ok(found)
    }

    /// Takes in the first answer, if this is it.
    fn answered(&mut self, parsed: &Parsed, flow: &mut Flow) -> PathResult<()> {
        if flow.has(FLOW_REPLY | FLOW_EMBRYONIC) {
            self.flows.answered(&parsed.key).map_err(fault("flow"))?;
            flow.flags &= !FLOW_EMBRYONIC;
        }
        Ok(())
    }

    /// A hit on a record that holds as it is. Nothing else will do for this packet: its sender is no node of ours, unless
    /// the record says otherwise.
    pub(super) fn find_as_it_is(&mut self, parsed: &Parsed, fits: impl Fn(&Flow) -> bool) -> Result<Found, Stop> {
        let epoch = self.state.epoch().map_err(fault("epoch"))?;
        let opens = parsed.tcp_flags & (TCP_SYN | TCP_ACK) == TCP_SYN;
        match self.flows.lookup(&parsed.key).map_err(fault("flow"))? {
            Some(mut flow) if flow.epoch == epoch && !(opens && flow.saw(TCP_FIN | TCP_RST)) && fits(&flow) => {
                self.step(STAGE_FLOW, 2, [flow.flags, flow.stamp, flow.epoch, u32::from(flow.vpc_index)]);
                self.answered(parsed, &mut flow)?;
                Ok(Found::Hit(flow))
            }
            _ => Err(Stop::Drop(Reason::VtepUnknown)),
        }
    }

    /// Whether what a record was decided by still holds. One that does is told the epoch.
    fn holds(&mut self, parsed: &Parsed, flow: &mut Flow) -> PathResult<bool> {
        let epoch = self.state.epoch().map_err(fault("epoch"))?;
        if flow.epoch == epoch {
            return Ok(true);
        }
        let slots = flow.generation.iter().copied().chain([GEN_NODE]);
        for (slot, value) in slots.zip(flow.value) {
            let current = self.state.generation(slot).map_err(fault("generation"))?;
            if value & 1 != 0 || current != value {
                return Ok(false);
            }
        }
        flow.epoch = epoch;
        let touch = Touch { epoch: Some(epoch), ..Touch::default() };
        self.flows.touch(&parsed.key, touch).map_err(fault("flow"))?;
        Ok(true)
    }

    /// What a hit leaves: the stamp, TCP flags, and those of them that the peer is told.
    pub(super) fn touch(&mut self, parsed: &Parsed, flow: &Flow) -> PathResult<()> {
        let tcp = u32::from(parsed.tcp_flags);
        let touch = Touch {
            stamp: (flow.stamp != self.now.stamp).then_some(self.now.stamp),
            epoch: None,
            flags: tcp & !flow.flags,
        };
        if touch != Touch::default() {
            self.flows.touch(&parsed.key, touch).map_err(fault("flow"))?;
        }
        self.tell_peer(parsed, flow)
    }

    /// SYN, FIN and RST are noted at the other direction, too.
    pub(super) fn tell_peer(&mut self, parsed: &Parsed, flow: &Flow) -> PathResult<()> {
        let told = parsed.tcp_flags & TCP_SHARED;
        if told != 0 && !flow.has(FLOW_SINGLE) {
            let touch = Touch { flags: u32::from(told) << 8, ..Touch::default() };
            self.flows.touch(&flow.peer, touch).map_err(fault("flow"))?;
        }
        Ok(())
    }
}

/// Whether a record suits what a Pod sends.
pub(super) const fn fits_pod(parsed: &Parsed, flow: &Flow) -> bool {
    let expires = flow.ttl_decrement != 0 && parsed.ttl <= flow.ttl_decrement;
    let large = parsed.size > flow.mtu as usize && (parsed.dont_fragment || flow.kind != EGRESS_ENCAP);
    !expires && !large
}
