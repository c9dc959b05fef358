//! Commit: both records of a flow, or neither; or one record anew.

use super::context::{Found, Parsed, Refusal, Run, fault};
use super::translate::tries;
use super::{NodeState, TableRead};
use crate::flow::{Committed, FlowTable, Opening, Replaced, TCP_SHARED, TCP_SYN};
use crate::layout::{FLOW_EMBRYONIC, FLOW_NAT, FLOW_REPLY, FLOW_SINGLE, Flow, FlowKey, PROTO_TCP, STAGE_COMMIT};
use crate::verdict::Reason;

/// What became of a try to commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Try {
    Done,
    /// Another connection has the answers' key.
    Taken,
}

impl<T: TableRead, F: FlowTable, S: NodeState> Run<'_, T, F, S> {
    /// Both directions of a decision, under the first port of `way`'s key that no other translation has for its answers.
    pub(super) fn commit_pair(
        &mut self,
        parsed: &Parsed,
        found: &Found,
        flow: &mut Flow,
        way: (FlowKey, Flow),
    ) -> Result<(), Refusal> {
        let (first, reverse) = way;
        for n in 0..tries(parsed.protocol) {
            let key = FlowKey { destination_port: self.port_to_try(&first, n), ..first };
            let way = Some((key, reverse));
            let done = match found {
                Found::Again(record) => self.try_again(parsed, record, flow, way)?,
                _ => self.try_new(parsed, flow, way, matches!(found, Found::Reused))?,
            };
            if done == Try::Done {
                return Ok(());
            }
        }
        Err(Refusal::new(Reason::NatPorts))
    }

    /// One direction of a decision alone.
    pub(super) fn commit_one(&mut self, parsed: &Parsed, found: &Found, flow: &mut Flow) -> Result<(), Refusal> {
        match found {
            Found::Again(record) => self.try_again(parsed, record, flow, None)?,
            _ => self.try_new(parsed, flow, None, matches!(found, Found::Reused))?,
        };
        Ok(())
    }

    /// A record that was found is decided anew: it keeps flags, peer and what it counts for. `reverse` is the way of the
    /// answers, which may have moved.
    fn try_again(
        &mut self,
        parsed: &Parsed,
        record: &Flow,
        flow: &mut Flow,
        reverse: Option<(FlowKey, Flow)>,
    ) -> Result<Try, Refusal> {
        flow.peer = reverse.as_ref().map_or(record.peer, |(key, _)| *key);
        flow.flags = (record.flags & !FLOW_NAT) | u32::from(parsed.tcp_flags);
        flow.stamp = self.now.stamp;
        *flow = flow.translated(&parsed.key);
        let replaced = match reverse.filter(|(key, _)| *key != record.peer) {
            Some((key, way)) => {
                let shared = u32::from(TCP_SHARED);
                let tcp = (flow.flags & shared) << 8 | flow.flags >> 8 & shared;
                let flags = FLOW_REPLY | flow.flags & FLOW_EMBRYONIC | tcp;
                let reverse = Flow { stamp: flow.stamp, flags, peer: parsed.key, ..way }.translated(&key);
                self.flows.replace_pair(&parsed.key, flow, &reverse, &record.peer).map_err(fault("flow"))?
            }
            None if self.flows.replace(&parsed.key, flow).map_err(fault("flow"))? => Replaced::Yes,
            None => Replaced::Full,
        };
        let (done, reason) = match replaced {
            Replaced::Yes => (Try::Done, Reason::Ok),
            Replaced::Taken => (Try::Taken, Reason::NatPorts),
            Replaced::Full => (Try::Done, Reason::FlowMapFull),
        };
        self.step(STAGE_COMMIT, reason.number(), [flow.flags, 0, 0, 0]);
        match reason {
            Reason::FlowMapFull => return Err(Refusal::new(reason)),
            Reason::Ok => self.tell_peer(parsed, flow)?,
            _ => {}
        }
        Ok(done)
    }

    /// A new flow. `flow` and `reverse` hold the ways; flags, stamps, peers and translations are set here.
    fn try_new(
        &mut self,
        parsed: &Parsed,
        flow: &mut Flow,
        reverse: Option<(FlowKey, Flow)>,
        reused: bool,
    ) -> Result<Try, Refusal> {
        let starts = parsed.key.protocol() != PROTO_TCP || parsed.tcp_flags & TCP_SYN != 0;
        let embryonic = if reverse.is_some() && starts { FLOW_EMBRYONIC } else { 0 };
        flow.stamp = self.now.stamp;
        flow.flags = u32::from(parsed.tcp_flags) | embryonic;
        flow.peer = parsed.key;
        let reverse = match reverse {
            Some((key, way)) => {
                flow.peer = key;
                *flow = flow.translated(&parsed.key);
                let told = u32::from(parsed.tcp_flags & TCP_SHARED) << 8;
                let flags = FLOW_REPLY | told | embryonic;
                let reverse = Flow { stamp: self.now.stamp, flags, peer: parsed.key, ..way };
                Some((key, reverse.translated(&key)))
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
        let (done, reason) = match self.flows.commit(&opening).map_err(fault("flow"))? {
            Committed::Both | Committed::Single => (Try::Done, Reason::Ok),
            // Whoever was first decided alike, and has a port of his own.
            Committed::Held => (Try::Done, Reason::Ok),
            Committed::Taken => (Try::Taken, Reason::NatPorts),
            Committed::QuotaFlows => (Try::Done, Reason::QuotaFlows),
            Committed::QuotaEmbryonic => (Try::Done, Reason::QuotaEmbryonic),
            Committed::Full => (Try::Done, Reason::FlowMapFull),
        };
        let trail =
            [u32::from(reverse.is_some()), u32::from(embryonic != 0), u32::from(reused), u32::from(flow.vpc_index)];
        self.step(STAGE_COMMIT, reason.number(), trail);
        if done == Try::Done && reason != Reason::Ok {
            return Err(Refusal::new(reason));
        }
        Ok(done)
    }
}
