//! Flow state in memory.

use super::{Committed, Expired, FlowRead, FlowTable, Opening, Replaced, Touch, is_idle};
use crate::layout::{FLOW_EMBRYONIC, FLOW_NAT, FLOW_REPLY, FLOW_SINGLE, Flow, FlowKey, Seeds, VpcState};
use crate::time::Now;
use core::convert::Infallible;
use std::collections::{BTreeMap, HashMap};

/// Flow state in memory: a dense list, which a sweep walks piece by piece, and an index by key.
#[derive(Debug, Clone)]
pub struct MemFlowTable {
    entries: Vec<(FlowKey, Flow)>,
    index: HashMap<FlowKey, usize>,
    states: BTreeMap<u16, VpcState>,
    capacity: usize,
    seeds: Seeds,
    births: u32,
    cursor: usize,
}

impl MemFlowTable {
    /// An empty table of so many entries.
    #[must_use]
    pub fn new(capacity: usize, seeds: Seeds) -> Self {
        Self {
            entries: Vec::new(),
            index: HashMap::new(),
            states: BTreeMap::new(),
            capacity,
            seeds,
            births: 0,
            cursor: 0,
        }
    }

    /// Every entry, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &(FlowKey, Flow)> {
        self.entries.iter()
    }

    /// What every VPC with a connection so far uses of its limits, by VPC index.
    #[must_use]
    pub const fn states(&self) -> &BTreeMap<u16, VpcState> {
        &self.states
    }

    fn get(&self, key: &FlowKey) -> Option<&Flow> {
        self.index.get(key).and_then(|position| self.entries.get(*position)).map(|(_, flow)| flow)
    }

    fn get_mut(&mut self, key: &FlowKey) -> Option<&mut Flow> {
        self.index.get(key).and_then(|position| self.entries.get_mut(*position)).map(|(_, flow)| flow)
    }

    /// Writes an entry with tags of its own; `false` when there is no room for a new one.
    fn put(&mut self, key: &FlowKey, flow: &Flow) -> bool {
        self.births = self.births.wrapping_add(1);
        let flow = flow.tagged(self.seeds, key, self.births);
        if let Some(held) = self.get_mut(key) {
            *held = flow;
            return true;
        }
        if self.entries.len() >= self.capacity {
            return false;
        }
        self.index.insert(*key, self.entries.len());
        self.entries.push((*key, flow));
        true
    }

    /// Removes an entry; the last of the list takes its place.
    fn remove(&mut self, key: &FlowKey) -> Option<Flow> {
        let position = self.index.remove(key)?;
        let (_, flow) = self.entries.swap_remove(position);
        if let Some((moved, _)) = self.entries.get(position) {
            self.index.insert(*moved, position);
        }
        Some(flow)
    }

    fn count(&mut self, vpc_index: u16, flows: i64, embryonic: i64) {
        let state = self.states.entry(vpc_index).or_default();
        state.flows += flows;
        state.embryonic += embryonic;
    }

    /// Removes an entry that is idle, and its peer if they are a pair.
    fn remove_pair(&mut self, key: &FlowKey) -> usize {
        let Some(flow) = self.remove(key) else { return 0 };
        let mut removed = vec![flow];
        if self.get(&flow.peer).is_some_and(|peer| peer.peer == *key) {
            removed.extend(self.remove(&flow.peer));
        }
        for flow in &removed {
            if !flow.has(FLOW_REPLY) {
                self.count(flow.vpc_index, -1, -i64::from(flow.has(FLOW_EMBRYONIC)));
            }
        }
        removed.len()
    }
}

impl FlowRead for MemFlowTable {
    type Error = Infallible;

    fn lookup(&self, key: &FlowKey) -> Result<Option<Flow>, Infallible> {
        Ok(self.get(key).copied())
    }

    fn vpc_state(&self, vpc_index: u16) -> Result<VpcState, Infallible> {
        Ok(self.states.get(&vpc_index).copied().unwrap_or_default())
    }

    fn len(&self) -> Result<usize, Infallible> {
        Ok(self.entries.len())
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn for_each(&self, visit: &mut dyn FnMut(&FlowKey, &Flow)) -> Result<(), Infallible> {
        self.entries.iter().for_each(|(key, flow)| visit(key, flow));
        Ok(())
    }
}

impl FlowTable for MemFlowTable {
    fn commit(&mut self, opening: &Opening) -> Result<Committed, Infallible> {
        let (key, mut forward) = opening.forward;
        let old = self.get(&key).copied();
        if old.is_some() && !opening.reused {
            return Ok(Committed::Held);
        }
        let state = self.states.entry(opening.vpc_index).or_default();
        let was_embryonic = i64::from(old.is_some_and(|old| old.has(FLOW_EMBRYONIC)));
        let embryonic = i64::from(forward.has(FLOW_EMBRYONIC));
        if old.is_none() && state.flows >= i64::from(opening.flow_limit) {
            return Ok(Committed::QuotaFlows);
        }
        if embryonic > was_embryonic && state.embryonic >= i64::from(opening.embryonic_limit) {
            return Ok(Committed::QuotaEmbryonic);
        }

        let held = opening.reverse.and_then(|(reverse, _)| self.get(&reverse).copied());
        let other = held.filter(|held| held.peer != key);
        if other.is_some_and(|other| other.has(FLOW_NAT) || forward.has(FLOW_NAT)) {
            return Ok(Committed::Taken);
        }
        let reverse = opening.reverse.filter(|_| other.is_none());
        if reverse.is_none() {
            forward.flags = (forward.flags | FLOW_SINGLE) & !FLOW_EMBRYONIC;
            forward.peer = key;
        }
        if let Some((reverse_key, flow)) = &reverse
            && !self.put(reverse_key, flow)
        {
            return Ok(Committed::Full);
        }
        if !self.put(&key, &forward) {
            match (reverse, held) {
                (Some((reverse_key, _)), None) => drop(self.remove(&reverse_key)),
                (Some((reverse_key, _)), Some(held)) => drop(self.put(&reverse_key, &held)),
                (None, _) => {}
            }
            return Ok(Committed::Full);
        }
        // A connection that takes the ports of one that ended, of its answers even, may be another translation.
        if let Some(old) = old.filter(|old| old.peer != forward.peer)
            && self.get(&old.peer).is_some_and(|held| held.peer == key)
        {
            self.remove(&old.peer);
        }
        let embryonic = i64::from(forward.has(FLOW_EMBRYONIC));
        self.count(opening.vpc_index, i64::from(old.is_none()), embryonic - was_embryonic);
        Ok(if reverse.is_some() { Committed::Both } else { Committed::Single })
    }

    fn replace(&mut self, key: &FlowKey, flow: &Flow) -> Result<bool, Infallible> {
        Ok(self.put(key, flow))
    }

    fn replace_pair(
        &mut self,
        key: &FlowKey,
        flow: &mut Flow,
        reverse: &Flow,
        old: &FlowKey,
    ) -> Result<Replaced, Infallible> {
        let other = self.get(&flow.peer).filter(|held| held.peer != *key);
        let (taken, translated) = (other.is_some(), flow.has(FLOW_NAT) || other.is_some_and(|held| held.has(FLOW_NAT)));
        if taken && translated {
            return Ok(Replaced::Taken);
        }
        let reverse_key = flow.peer;
        let moved = !taken && self.put(&reverse_key, reverse);
        if !moved {
            flow.peer = *old;
            let kept = !translated && self.put(key, flow);
            return Ok(if kept { Replaced::Yes } else { Replaced::Full });
        }
        if !self.put(key, flow) {
            self.remove(&reverse_key);
            return Ok(Replaced::Full);
        }
        if self.get(old).is_some_and(|held| held.peer == *key) {
            self.remove(old);
        }
        Ok(Replaced::Yes)
    }

    fn touch(&mut self, key: &FlowKey, touch: Touch) -> Result<(), Infallible> {
        if let Some(flow) = self.get_mut(key) {
            flow.stamp = touch.stamp.unwrap_or(flow.stamp);
            flow.epoch = touch.epoch.unwrap_or(flow.epoch);
            flow.flags |= touch.flags;
        }
        Ok(())
    }

    fn answered(&mut self, key: &FlowKey) -> Result<(), Infallible> {
        let Some(flow) = self.get_mut(key) else { return Ok(()) };
        if !flow.has(FLOW_EMBRYONIC) {
            return Ok(());
        }
        flow.flags &= !FLOW_EMBRYONIC;
        let (peer, vpc_index) = (flow.peer, flow.vpc_index);
        if let Some(peer) = self.get_mut(&peer) {
            peer.flags &= !FLOW_EMBRYONIC;
        }
        self.count(vpc_index, 0, -1);
        Ok(())
    }

    fn take_icmp(&mut self, vpc_index: u16, limit: u32, now: Now) -> Result<bool, Infallible> {
        let state = self.states.entry(vpc_index).or_default();
        if state.icmp_stamp != now.stamp {
            state.icmp_stamp = now.stamp;
            state.icmp_used = 0;
        }
        if state.icmp_used >= limit {
            return Ok(false);
        }
        state.icmp_used += 1;
        Ok(true)
    }

    fn expire(&mut self, now: Now, budget: usize) -> Result<Expired, Infallible> {
        let mut done = Expired::default();
        if self.entries.is_empty() {
            return Ok(done);
        }
        let start = self.cursor % self.entries.len();
        // The keys first: a removal moves the last entry to where this walk may have been already.
        let (before, from) = self.entries.split_at(start);
        let keys: Vec<_> = from.iter().chain(before).take(budget).map(|(key, _)| *key).collect();
        let mut kept = 0;
        for key in keys {
            done.examined += 1;
            let Some(flow) = self.get(&key).copied() else { continue };
            let peer = self.get(&flow.peer).filter(|peer| peer.peer == key);
            if is_idle(&key, &flow, peer, now) {
                done.removed += self.remove_pair(&key);
            } else {
                kept += 1;
            }
        }
        self.cursor = start + kept;
        Ok(done)
    }
}
