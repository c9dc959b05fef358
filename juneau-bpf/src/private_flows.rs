//! A flow table in maps of its own, which no program uses.

use juneau_core::flow::{Committed, Expired, FlowRead, FlowTable, Opening, Replaced, Touch, is_idle};
use juneau_core::layout::{FLOW_EMBRYONIC, FLOW_NAT, FLOW_REPLY, FLOW_SINGLE, Flow, FlowKey, Seeds, VpcState};
use juneau_core::time::Now;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::failpoint::{Failpoints, Operation};
use crate::map::{Map, Mode};
use crate::sys::map::RawMap;

/// The whole of [`FlowTable`] over maps that belong to nobody else: for suites, benchmarks and replays.
///
/// A commit from user space is several system calls. Beside programs that would be a race, so this is never a live
/// node's table: that one is [`crate::Flows`], which reads.
#[derive(Debug)]
pub struct PrivateFlowTable {
    entries: Map<FlowKey, Flow>,
    states: Map<u32, VpcState>,
    seeds: Seeds,
    births: u32,
    /// The last key that the sweep looked at.
    cursor: Option<FlowKey>,
}

impl PrivateFlowTable {
    /// An empty table of so many entries, for VPC indices below `vpcs`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn create(capacity: u32, vpcs: u32, seeds: Seeds) -> Result<Self> {
        let size = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        let create = |kind, name: &'static str, key, value, limit| {
            let raw = RawMap::create(kind, name, size(key), size(value), limit, 0);
            raw.map(Arc::new).map_err(Error::kernel(Operation::MapCreate, name))
        };
        let (key, flow, state) = (size_of::<FlowKey>(), size_of::<Flow>(), size_of::<VpcState>());
        let entries = create(libbpf_sys::BPF_MAP_TYPE_HASH, "jn_own_flows", key, flow, capacity)?;
        let states = create(libbpf_sys::BPF_MAP_TYPE_ARRAY, "jn_own_states", 4, state, vpcs)?;
        Ok(Self {
            entries: Map::new(entries, Failpoints::default())?,
            states: Map::new(states, Failpoints::default())?,
            seeds,
            births: 0,
            cursor: None,
        })
    }

    fn get(&self, key: &FlowKey) -> Result<Option<Flow>> {
        Ok(self.entries.get(key)?.filter(|flow| flow.is_of(self.seeds, key)))
    }

    /// Writes an entry with tags of its own; false when there is no room.
    fn put(&mut self, key: &FlowKey, flow: &Flow) -> Result<bool> {
        self.births = self.births.wrapping_add(1);
        match self.entries.put(key, &flow.tagged(self.seeds, key, self.births), Mode::Any) {
            Ok(()) => Ok(true),
            Err(Error::Full { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn state(&self, vpc_index: u16) -> Result<VpcState> {
        Ok(self.states.get(&vpc_index.into())?.unwrap_or_default())
    }

    fn count(&mut self, vpc_index: u16, flows: i64, embryonic: i64) -> Result<()> {
        let state = self.state(vpc_index)?;
        let state = VpcState { flows: state.flows + flows, embryonic: state.embryonic + embryonic, ..state };
        self.states.put(&vpc_index.into(), &state, Mode::Any)
    }

    /// Changes an entry as it stands.
    fn edit(&mut self, key: &FlowKey, change: impl FnOnce(&mut Flow)) -> Result<()> {
        let Some(mut flow) = self.get(key)? else { return Ok(()) };
        change(&mut flow);
        self.entries.put(key, &flow, Mode::Existing)
    }

    /// Removes an idle entry, and its peer if they are a pair.
    fn remove_pair(&mut self, key: &FlowKey, flow: &Flow) -> Result<usize> {
        let peer = self.get(&flow.peer)?.filter(|peer| peer.peer == *key && flow.peer != *key);
        let mut removed = 0;
        for (key, flow) in std::iter::once((*key, *flow)).chain(peer.map(|peer| (flow.peer, peer))) {
            removed += usize::from(self.entries.remove(&key)?);
            if !flow.has(FLOW_REPLY) {
                self.count(flow.vpc_index, -1, -i64::from(flow.has(FLOW_EMBRYONIC)))?;
            }
        }
        Ok(removed)
    }
}

impl FlowRead for PrivateFlowTable {
    type Error = Error;

    fn lookup(&self, key: &FlowKey) -> Result<Option<Flow>> {
        self.get(key)
    }

    fn vpc_state(&self, vpc_index: u16) -> Result<VpcState> {
        self.state(vpc_index)
    }

    fn len(&self) -> Result<usize> {
        self.entries.count()
    }

    fn capacity(&self) -> usize {
        self.entries.capacity() as usize
    }

    fn for_each(&self, visit: &mut dyn FnMut(&FlowKey, &Flow)) -> Result<()> {
        self.entries.for_each(|key, flow| visit(&key, &flow))
    }
}

impl FlowTable for PrivateFlowTable {
    fn commit(&mut self, opening: &Opening) -> Result<Committed> {
        let (key, mut forward) = opening.forward;
        let old = self.get(&key)?;
        if old.is_some() && !opening.reused {
            return Ok(Committed::Held);
        }
        let state = self.state(opening.vpc_index)?;
        let was_embryonic = i64::from(old.is_some_and(|old| old.has(FLOW_EMBRYONIC)));
        if old.is_none() && state.flows >= i64::from(opening.flow_limit) {
            return Ok(Committed::QuotaFlows);
        }
        let embryonic = i64::from(forward.has(FLOW_EMBRYONIC));
        if embryonic > was_embryonic && state.embryonic >= i64::from(opening.embryonic_limit) {
            return Ok(Committed::QuotaEmbryonic);
        }
        let held = match &opening.reverse {
            Some((reverse, _)) => self.get(reverse)?,
            None => None,
        };
        let other = held.filter(|held| held.peer != key);
        if other.is_some_and(|other| other.has(FLOW_NAT) || forward.has(FLOW_NAT)) {
            return Ok(Committed::Taken);
        }
        let reverse = opening.reverse.filter(|_| other.is_none());
        if reverse.is_none() {
            forward.flags = (forward.flags | FLOW_SINGLE) & !FLOW_EMBRYONIC;
            forward.peer = key;
        }
        if let Some((reverse, flow)) = &reverse
            && !self.put(reverse, flow)?
        {
            return Ok(Committed::Full);
        }
        if !self.put(&key, &forward)? {
            match (reverse, held) {
                (Some((reverse, _)), Some(held)) => drop(self.put(&reverse, &held)?),
                (Some((reverse, _)), None) => drop(self.entries.remove(&reverse)?),
                (None, _) => {}
            }
            return Ok(Committed::Full);
        }
        if let Some(old) = old.filter(|old| old.peer != forward.peer)
            && self.get(&old.peer)?.is_some_and(|held| held.peer == key)
        {
            self.entries.remove(&old.peer)?;
        }
        let embryonic = i64::from(forward.has(FLOW_EMBRYONIC));
        self.count(opening.vpc_index, i64::from(old.is_none()), embryonic - was_embryonic)?;
        Ok(if reverse.is_some() { Committed::Both } else { Committed::Single })
    }

    fn replace(&mut self, key: &FlowKey, flow: &Flow) -> Result<bool> {
        self.put(key, flow)
    }

    fn replace_pair(&mut self, key: &FlowKey, flow: &mut Flow, reverse: &Flow, old: &FlowKey) -> Result<Replaced> {
        let reverse_key = flow.peer;
        let other = self.get(&reverse_key)?.filter(|held| held.peer != *key);
        let (taken, translated) = (other.is_some(), flow.has(FLOW_NAT) || other.is_some_and(|held| held.has(FLOW_NAT)));
        if taken && translated {
            return Ok(Replaced::Taken);
        }
        if taken || !self.put(&reverse_key, reverse)? {
            flow.peer = *old;
            let kept = !translated && self.put(key, flow)?;
            return Ok(if kept { Replaced::Yes } else { Replaced::Full });
        }
        if !self.put(key, flow)? {
            self.entries.remove(&reverse_key)?;
            return Ok(Replaced::Full);
        }
        if self.get(old)?.is_some_and(|held| held.peer == *key) {
            self.entries.remove(old)?;
        }
        Ok(Replaced::Yes)
    }

    fn touch(&mut self, key: &FlowKey, touch: Touch) -> Result<()> {
        self.edit(key, |flow| {
            flow.stamp = touch.stamp.unwrap_or(flow.stamp);
            flow.epoch = touch.epoch.unwrap_or(flow.epoch);
            flow.flags |= touch.flags;
        })
    }

    fn answered(&mut self, key: &FlowKey) -> Result<()> {
        let Some(flow) = self.get(key)?.filter(|flow| flow.has(FLOW_EMBRYONIC)) else { return Ok(()) };
        self.edit(key, |flow| flow.flags &= !FLOW_EMBRYONIC)?;
        self.edit(&flow.peer, |peer| peer.flags &= !FLOW_EMBRYONIC)?;
        self.count(flow.vpc_index, 0, -1)
    }

    fn take_icmp(&mut self, vpc_index: u16, limit: u32, now: Now) -> Result<bool> {
        let mut state = self.state(vpc_index)?;
        if state.icmp_stamp != now.stamp {
            state.icmp_stamp = now.stamp;
            state.icmp_used = 0;
        }
        let taken = state.icmp_used < limit;
        state.icmp_used += u32::from(taken);
        self.states.put(&vpc_index.into(), &state, Mode::Any)?;
        Ok(taken)
    }

    fn expire(&mut self, now: Now, budget: usize) -> Result<Expired> {
        let mut entries = self.entries.dump()?;
        entries.sort_unstable_by_key(|(key, _)| *key);
        let after = self.cursor.map_or(0, |cursor| entries.partition_point(|(key, _)| *key <= cursor));
        let after = after.min(entries.len());
        entries.rotate_left(after);
        let mut done = Expired::default();
        for (key, _) in entries.into_iter().take(budget) {
            done.examined += 1;
            self.cursor = Some(key);
            // Removed with its peer, perhaps.
            let Some(flow) = self.get(&key)? else { continue };
            let peer = if flow.has(FLOW_SINGLE) { None } else { self.get(&flow.peer)? };
            let peer = peer.filter(|peer| peer.peer == key);
            if is_idle(&key, &flow, peer.as_ref(), now) {
                done.removed += self.remove_pair(&key, &flow)?;
            }
        }
        Ok(done)
    }
}
