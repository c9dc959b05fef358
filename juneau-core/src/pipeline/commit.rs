//! Commit: both records of a flow, or neither; or one record anew.

use super::context::{Parsed, Refusal, Run, fault};
use super::{NodeState, TableRead};
use crate::flow::{Committed, FlowTable, Opening, TCP_SHARED, TCP_SYN};
use crate::layout::{FLOW_EMBRYONIC, FLOW_REPLY, FLOW_SINGLE, Flow, FlowKey, PROTO_TCP, STAGE_COMMIT};
use crate::verdict::Reason;

impl<T: TableRead, F: FlowTable, S: NodeState> Run<'_, T, F, S> {
    /// A record that was found is decided anew: it keeps flags, peer and what it counts for. `reverse` is the way of the
    /// answers, which may have moved.
    pub(super) fn commit_again(
        &mut self,
        parsed: &Parsed,
        record: &Flow,
        flow: &mut Flow,
        reverse: Option<(FlowKey, Flow)>,
    ) -> Result<(), Refusal> {
        flow.flags = record.flags | u32::from(parsed.tcp_flags);
        flow.peer = record.peer;
        flow.stamp = self.now.stamp;
        self.step(STAGE_COMMIT, Reason::Ok.number(), [flow.flags, 0, 0, 0]);
        let replaced = match reverse.filter(|(key, _)| *key != flow.peer) {
            Some((key, way)) => {
                let shared = u32::from(TCP_SHARED);
                let tcp = (flow.flags & shared) << 8 | flow.flags >> 8 & shared;
                let flags = FLOW_REPLY | flow.flags & FLOW_EMBRYONIC | tcp;
                let reverse = Flow { stamp: flow.stamp, flags, peer: parsed.key, ..way };
                self.flows.replace_pair(&parsed.key, flow, &(key, reverse))
            }
            None => self.flows.replace(&parsed.key, flow),
        };
        if !replaced.map_err(fault("flow"))? {
            return Err(Refusal::new(Reason::FlowMapFull));
        }
        self.tell_peer(parsed, flow)?;
        Ok(())
    }

    /// A new flow. `flow` and `reverse` hold the ways; flags, stamps and peers are set here.
    pub(super) fn commit_new(
        &mut self,
        parsed: &Parsed,
        flow: &mut Flow,
        reverse: Option<(FlowKey, Flow)>,
        reused: bool,
    ) -> Result<(), Refusal> {
        let starts = parsed.key.protocol() != PROTO_TCP || parsed.tcp_flags & TCP_SYN != 0;
        let embryonic = if reverse.is_some() && starts { FLOW_EMBRYONIC } else { 0 };
        flow.stamp = self.now.stamp;
        flow.flags = u32::from(parsed.tcp_flags) | embryonic;
        flow.peer = parsed.key;
        let reverse = match reverse {
            Some((key, way)) => {
                flow.peer = key;
                let told = u32::from(parsed.tcp_flags & TCP_SHARED) << 8;
                let flags = FLOW_REPLY | told | embryonic;
                Some((key, Flow { stamp: self.now.stamp, flags, peer: parsed.key, ..way }))
            }
            None => {
                flow.flags |= FLOW_SINGLE;
                None
            }
        };
        let limits = self.tables.vpc(flow.vpc_index).map_err(fault("VPC"))?.unwrap_or_default();
        let opening = Opening {
            vpc_index: flow.vpc_index,
            flow_limit: limits.flow_limit,
            embryonic_limit: limits.embryonic_limit,
            forward: (parsed.key, *flow),
            reverse,
            reused,
        };
        let reason = match self.flows.commit(&opening).map_err(fault("flow"))? {
            Committed::Both | Committed::Single | Committed::Held => Reason::Ok,
            Committed::QuotaFlows => Reason::QuotaFlows,
            Committed::QuotaEmbryonic => Reason::QuotaEmbryonic,
            Committed::Full => Reason::FlowMapFull,
        };
        let trail =
            [u32::from(reverse.is_some()), u32::from(embryonic != 0), u32::from(reused), u32::from(flow.vpc_index)];
        self.step(STAGE_COMMIT, reason.number(), trail);
        if reason == Reason::Ok { Ok(()) } else { Err(Refusal::new(reason)) }
    }
}
