//! Flow state that stays as it is: what a packet would do, without doing it.

use super::{Committed, Expired, FlowRead, FlowTable, Opening, Replaced, Touch};
use crate::layout::{FLOW_EMBRYONIC, FLOW_NAT, Flow, FlowKey, VpcState};
use crate::time::Now;

/// A flow table whose writes lead nowhere. Limits, conflicts and room are looked at as they are.
#[derive(Debug, Clone, Copy)]
pub struct ReadOnly<F>(
    /// What is read.
    pub F,
);

impl<F: FlowRead> FlowRead for ReadOnly<F> {
    type Error = F::Error;

    fn lookup(&self, key: &FlowKey) -> Result<Option<Flow>, F::Error> {
        self.0.lookup(key)
    }

    fn vpc_state(&self, vpc_index: u16) -> Result<VpcState, F::Error> {
        self.0.vpc_state(vpc_index)
    }

    fn len(&self) -> Result<usize, F::Error> {
        self.0.len()
    }

    fn capacity(&self) -> usize {
        self.0.capacity()
    }

    fn for_each(&self, visit: &mut dyn FnMut(&FlowKey, &Flow)) -> Result<(), F::Error> {
        self.0.for_each(visit)
    }
}

impl<F: FlowRead> FlowTable for ReadOnly<F> {
    fn commit(&mut self, opening: &Opening) -> Result<Committed, F::Error> {
        let (key, forward) = opening.forward;
        let old = self.0.lookup(&key)?;
        if old.is_some() && !opening.reused {
            return Ok(Committed::Held);
        }
        let state = self.0.vpc_state(opening.vpc_index)?;
        let embryonic = forward.has(FLOW_EMBRYONIC) && !old.is_some_and(|old| old.has(FLOW_EMBRYONIC));
        if old.is_none() && state.flows >= i64::from(opening.flow_limit) {
            return Ok(Committed::QuotaFlows);
        }
        if embryonic && state.embryonic >= i64::from(opening.embryonic_limit) {
            return Ok(Committed::QuotaEmbryonic);
        }
        let mut wanted = usize::from(old.is_none());
        let mut outcome = Committed::Single;
        if let Some((reverse, _)) = &opening.reverse {
            match self.0.lookup(reverse)? {
                None => {
                    wanted += 1;
                    outcome = Committed::Both;
                }
                Some(held) if held.peer == key => outcome = Committed::Both,
                Some(held) if held.has(FLOW_NAT) || forward.has(FLOW_NAT) => return Ok(Committed::Taken),
                Some(_) => {}
            }
        }
        let room = self.0.capacity().saturating_sub(self.0.len()?);
        Ok(if wanted > room { Committed::Full } else { outcome })
    }

    fn replace(&mut self, _key: &FlowKey, _flow: &Flow) -> Result<bool, F::Error> {
        Ok(true)
    }

    fn replace_pair(
        &mut self,
        key: &FlowKey,
        flow: &mut Flow,
        _reverse: &Flow,
        old: &FlowKey,
    ) -> Result<Replaced, F::Error> {
        let other = self.0.lookup(&flow.peer)?.filter(|held| held.peer != *key);
        if other.is_some_and(|held| flow.has(FLOW_NAT) || held.has(FLOW_NAT)) {
            return Ok(Replaced::Taken);
        }
        if other.is_some() {
            flow.peer = *old;
        }
        Ok(Replaced::Yes)
    }

    fn touch(&mut self, _key: &FlowKey, _touch: Touch) -> Result<(), F::Error> {
        Ok(())
    }

    fn answered(&mut self, _key: &FlowKey) -> Result<(), F::Error> {
        Ok(())
    }

    fn take_icmp(&mut self, vpc_index: u16, limit: u32, now: Now) -> Result<bool, F::Error> {
        let state = self.0.vpc_state(vpc_index)?;
        let used = if state.icmp_stamp == now.stamp { state.icmp_used } else { 0 };
        Ok(used < limit)
    }

    fn expire(&mut self, _now: Now, _budget: usize) -> Result<Expired, F::Error> {
        Ok(Expired::default())
    }
}
