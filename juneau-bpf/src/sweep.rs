//! The sweep: idle flows, half flows, counts that drifted, old fragments, path MTUs that ran out.
//!
//! User space cannot set a flag in a record without writing the whole of it over what programs write at the same time.
//! So the mark of the first pass is kept here: {key, tag, stamp}. A record whose tag and stamp are still the same one
//! sweep later was neither used nor replaced, and goes. Everything is read and removed by batches.

use std::collections::{HashMap, HashSet};

use juneau_core::flow::is_idle;
use juneau_core::layout::{FLOW_EMBRYONIC, FLOW_REPLY, FLOW_SINGLE, FRAGMENT_SECONDS, Flow, FlowKey, vtep_generation};
use juneau_core::time::Now;

use crate::error::Result;
use crate::flows::Flows;
use crate::generation::Generations;

/// What one sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Swept {
    /// Entries looked at.
    pub examined: usize,
    /// Entries that the next sweep removes if nothing uses them.
    pub marked: usize,
    /// Entries removed for being idle.
    pub removed: usize,
    /// Entries removed for having lost their other direction.
    pub halves: usize,
    /// VPCs whose counts were corrected.
    pub corrected: usize,
    /// Fragment slots removed.
    pub fragments: usize,
    /// Path MTUs that ran out.
    pub path_mtus: usize,
    /// Clients whose time with their backend was over.
    pub affinities: usize,
}

/// What a record was when it was marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    tag: u64,
    stamp: u32,
}

/// Removes what is idle, in two passes that are one sweep apart.
#[derive(Debug)]
pub struct Sweeper {
    flows: Flows,
    generations: Generations,
    marks: HashMap<FlowKey, Mark>,
    /// Hashes of keys that had no other direction at the last sweep.
    suspects: HashSet<u64>,
    /// By VPC index: by how much the counts were too high at the last sweep, flows and embryonic.
    drift: HashMap<u32, [i64; 2]>,
}

/// What a pass over all records collects.
#[derive(Default)]
struct Pass {
    examined: usize,
    /// Records that are idle by their own stamp.
    idle: HashMap<FlowKey, Flow>,
    /// Of every record with two directions: hash of its key, and of its peer's.
    pairs: Vec<(u64, u64)>,
    /// Suspects, as they are now.
    suspects: HashMap<u64, (FlowKey, Flow)>,
    /// By VPC index: flows and embryonic flows.
    counts: HashMap<u32, [i64; 2]>,
}

impl Swept {
    /// Whether so little was found that the next sweep may wait: a pass reads all buckets of the table, whatever is in them.
    #[must_use]
    pub const fn is_calm(&self, capacity: u32) -> bool {
        self.halves == 0 && self.corrected == 0 && self.examined < capacity as usize / 64
    }
}

impl Sweeper {
    pub(crate) fn new(flows: Flows, generations: Generations) -> Self {
        Self { flows, generations, marks: HashMap::new(), suspects: HashSet::new(), drift: HashMap::new() }
    }

    /// How many records the flow table can hold.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.flows.entries.capacity()
    }

    /// One sweep: once in some seconds. What is idle at two sweeps in a row goes at the second.
    ///
    /// # Errors
    /// The kernel's; what was removed before stays removed.
    pub fn sweep(&mut self, now: Now) -> Result<Swept> {
        let before = self.counted();
        let pass = self.pass(now)?;
        let mut swept = Swept { examined: pass.examined, ..Swept::default() };
        swept.corrected = self.correct(&before, &pass.counts);
        swept.halves = self.remove_halves(&pass)?;
        (swept.marked, swept.removed) = self.remove_idle(&pass, now)?;
        swept.fragments = self.sweep_fragments(now)?;
        swept.path_mtus = self.sweep_path_mtus(now)?;
        swept.affinities = self.sweep_affinities(now)?;
        Ok(swept)
    }

    fn counted(&self) -> Vec<(i64, i64)> {
        self.flows.vpc_indices().map_while(|index| self.flows.counted(index)).collect()
    }

    fn pass(&self, now: Now) -> Result<Pass> {
        let mut pass = Pass::default();
        let seeds = self.flows.seeds;
        self.flows.visit(|key, flow| {
            pass.examined += 1;
            if is_idle(key, flow, None, now) {
                pass.idle.insert(*key, *flow);
            }
            if !flow.has(FLOW_REPLY) {
                let counts = pass.counts.entry(flow.vpc_index.into()).or_default();
                counts[0] += 1;
                counts[1] += i64::from(flow.has(FLOW_EMBRYONIC));
            }
            if !flow.has(FLOW_SINGLE) {
                let hash = seeds.fold(key);
                pass.pairs.push((hash, seeds.fold(&flow.peer)));
                if self.suspects.contains(&hash) {
                    pass.suspects.insert(hash, (*key, *flow));
                }
            }
        })?;
        pass.pairs.sort_unstable();
        Ok(pass)
    }

    /// Counts drift when a process dies between a removal and its count. Packets move them while records are read, so
    /// a difference counts only when two sweeps in a row find it on the same side, and then its smallest extent.
    fn correct(&mut self, before: &[(i64, i64)], counts: &HashMap<u32, [i64; 2]>) -> usize {
        let mut drift = HashMap::new();
        let mut corrected = 0;
        for (index, before) in self.flows.vpc_indices().zip(before) {
            let Some(after) = self.flows.counted(index) else { continue };
            let real = counts.get(&index).copied().unwrap_or_default();
            let excess = [extent(before.0, after.0, real[0]), extent(before.1, after.1, real[1])];
            if excess == [0, 0] {
                continue;
            }
            let last = self.drift.get(&index).copied().unwrap_or_default();
            let by = [extent(last[0], excess[0], 0), extent(last[1], excess[1], 0)];
            if by == [0, 0] {
                drift.insert(index, excess);
            } else {
                self.flows.count(index, -by[0], -by[1]);
                corrected += 1;
            }
        }
        self.drift = drift;
        corrected
    }

    /// A record whose other direction is gone would let one direction pass and judge the other anew.
    fn remove_halves(&mut self, pass: &Pass) -> Result<usize> {
        let alone = |(hash, peer): &&(u64, u64)| {
            let at = pass.pairs.partition_point(|(other, _)| other < peer);
            !pass.pairs.iter().skip(at).take_while(|(other, _)| other == peer).any(|(_, back)| back == hash)
        };
        let suspects: HashSet<u64> = pass.pairs.iter().filter(alone).map(|(hash, _)| *hash).collect();
        let mut halves = Vec::new();
        for (hash, (key, flow)) in &pass.suspects {
            // A flow that was just opened has its second record by now.
            let opened = suspects.contains(hash)
                && self.flows.entries.get(&flow.peer)?.is_none_or(|peer| peer.peer != *key)
                && self.flows.entries.get(key)?.is_some_and(|present| present.tag == flow.tag);
            if opened {
                halves.push((*key, *flow));
            }
        }
        self.suspects = suspects;
        self.remove(&halves)
    }

    fn remove_idle(&mut self, pass: &Pass, now: Now) -> Result<(usize, usize)> {
        let mut gone = Vec::new();
        let mut marks = HashMap::new();
        for (key, flow) in &pass.idle {
            // The pair is idle as one: a peer that is not idle by itself is not in here.
            let pair = !flow.has(FLOW_SINGLE);
            let peer = pass.idle.get(&flow.peer).filter(|peer| peer.peer == *key);
            if pair && peer.is_none_or(|peer| !is_idle(key, flow, Some(peer), now)) {
                continue;
            }
            let mark = Mark { tag: flow.tag, stamp: flow.stamp };
            if self.marks.get(key) == Some(&mark) {
                gone.push((*key, *flow));
            } else {
                marks.insert(*key, mark);
            }
        }
        self.marks = marks;
        // Both directions were marked at the same sweep, but for one that was replaced: it stays until its peer may go.
        let keys: HashSet<FlowKey> = gone.iter().map(|(key, _)| *key).collect();
        gone.retain(|(key, flow)| {
            let whole = flow.has(FLOW_SINGLE) || keys.contains(&flow.peer);
            if !whole {
                self.marks.insert(*key, Mark { tag: flow.tag, stamp: flow.stamp });
            }
            whole
        });
        let removed = self.remove(&gone)?;
        Ok((self.marks.len(), removed))
    }

    /// Removes records, the opening direction first: what is left of a flow can then be told from a new one. Only
    /// this removes records that count, so each is counted once.
    fn remove(&self, records: &[(FlowKey, Flow)]) -> Result<usize> {
        let (answering, opening): (Vec<_>, Vec<_>) = records.iter().partition(|(_, flow)| flow.has(FLOW_REPLY));
        let keys = |records: &[&(FlowKey, Flow)]| records.iter().map(|(key, _)| *key).collect::<Vec<_>>();
        let mut removed = 0;
        for chunk in opening.chunks(1024) {
            removed += self.flows.entries.remove_all(&keys(chunk))?;
            for (_, flow) in chunk {
                self.flows.count(flow.vpc_index.into(), -1, -i64::from(flow.has(FLOW_EMBRYONIC)));
            }
        }
        removed += self.flows.entries.remove_all(&keys(&answering))?;
        Ok(removed)
    }

    fn sweep_fragments(&self, now: Now) -> Result<usize> {
        let mut old = Vec::new();
        // Twice the time: a slot that is just written over is not removed.
        let limit = now.seconds(2 * FRAGMENT_SECONDS);
        self.flows.fragments.for_each(|key, fragment| {
            if now.since(fragment.stamp) > limit {
                old.push(key);
            }
        })?;
        self.flows.fragments.remove_all(&old)
    }

    fn sweep_affinities(&self, now: Now) -> Result<usize> {
        let mut old = Vec::new();
        self.flows.affinities.for_each(|client, affinity| {
            if !now.is_before(affinity.expires) {
                old.push(client);
            }
        })?;
        self.flows.affinities.remove_all(&old)
    }

    fn sweep_path_mtus(&self, now: Now) -> Result<usize> {
        let mut old = Vec::new();
        self.flows.path_mtus.for_each(|vtep, learned| {
            if !now.is_before(learned.expires) {
                old.push(vtep);
            }
        })?;
        let removed = self.flows.path_mtus.remove_all(&old)?;
        // Flows hold the smaller MTU until they are decided again.
        self.generations.advance(old.iter().map(|vtep| vtep_generation(*vtep)))?;
        Ok(removed)
    }
}

/// By how much two numbers are both above, or both below, a third; 0 when they are not.
fn extent(a: i64, b: i64, real: i64) -> i64 {
    let (low, high) = (a.min(b) - real, a.max(b) - real);
    if low > 0 {
        low
    } else if high < 0 {
        high
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::{Swept, extent};

    #[test]
    fn a_table_with_next_to_nothing_is_calm_unless_something_was_wrong() {
        let calm =
            |examined, halves, corrected| Swept { examined, halves, corrected, ..Swept::default() }.is_calm(64_000);
        assert!(calm(0, 0, 0) && calm(999, 0, 0));
        assert!(!calm(1_000, 0, 0) && !calm(0, 1, 0) && !calm(0, 0, 1));
    }

    #[test]
    fn a_difference_has_a_smallest_extent() {
        assert_eq!(extent(100, 105, 50), 50);
        assert_eq!(extent(40, 45, 50), -5);
        assert_eq!(extent(45, 55, 50), 0);
        assert_eq!(extent(50, 55, 50), 0);
    }
}
