//! A data path with everything it needs, in memory.

use super::state::{DryState, MemState};
use super::{Config, Count, Outcome, Packet, Path, PathError};
use crate::flow::{FlowTable, MemFlowTable, ReadOnly};
use crate::layout::Traffic;
use crate::tables::{Capacities, Diff, MemTables, TableError, TablesMut};
use crate::time::Now;
use crate::verdict::{Hook, Reason};
use std::collections::BTreeMap;

/// Room of a [`Pipeline`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of each table.
    pub tables: Capacities,
    /// Entries of the flow table, two for most connections.
    pub flows: usize,
    /// First fragments.
    pub fragments: usize,
    /// Learned path MTUs.
    pub pmtus: usize,
    /// Clients that stay with a backend.
    pub affinities: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { tables: Capacities::UNLIMITED, flows: 1 << 20, fragments: 1 << 14, pmtus: 1 << 12, affinities: 1 << 16 }
    }
}

/// What packets counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// Delivered, by VPC index and direction.
    pub traffic: BTreeMap<(u16, u32), Traffic>,
    /// Every other exit, by hook, reason and whether an answer left.
    pub exits: BTreeMap<(Hook, Reason, bool), u64>,
    /// What left by the VXLAN device, by cause.
    pub devices: BTreeMap<u32, u64>,
}

impl Counters {
    /// Adds what one packet counts.
    pub fn add(&mut self, outcome: &Outcome) {
        match outcome.count {
            Count::None => {}
            Count::Traffic { vpc_index, direction, bytes } => {
                let traffic = self.traffic.entry((vpc_index, direction)).or_default();
                traffic.packets += 1;
                traffic.bytes += bytes;
            }
            Count::Exit { hook, reason, answered } => {
                *self.exits.entry((hook, reason, answered)).or_default() += 1;
            }
        }
        if let Some(cause) = outcome.device {
            *self.devices.entry(cause).or_default() += 1;
        }
    }

    /// Packets counted so far.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.traffic.values().map(|traffic| traffic.packets).chain(self.exits.values().copied()).sum()
    }
}

/// The reference data path over tables and state in memory, for embedders and for comparison.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// What was told once.
    pub config: Config,
    /// What was decided.
    pub tables: MemTables,
    /// Flow state.
    pub flows: MemFlowTable,
    /// Generations, fragments, path MTUs.
    pub state: MemState,
    /// What packets counted.
    pub counters: Counters,
}

impl Pipeline {
    /// An empty data path.
    #[must_use]
    pub fn new(config: Config, limits: &Limits) -> Self {
        Self {
            config,
            tables: MemTables::with_capacities(limits.tables),
            flows: MemFlowTable::new(limits.flows, config.seeds),
            state: MemState::new(limits.fragments, limits.pmtus, limits.affinities),
            counters: Counters::default(),
        }
    }

    /// Applies changes to the tables, then moves the generations of what they touch.
    ///
    /// # Errors
    /// The first change that a table refuses; those before it stand, and their generations have moved.
    pub fn apply(&mut self, diff: &Diff) -> Result<(), TableError> {
        use super::state::Generations;
        let applied = self.tables.apply_diff(diff);
        for slot in &diff.generations {
            // In memory this cannot fail.
            let Ok(()) = self.state.advance(*slot);
        }
        applied
    }

    /// Decides one packet, and counts it.
    ///
    /// # Errors
    /// None in memory; the type is that of [`Path::handle`].
    pub fn handle(&mut self, packet: &Packet<'_>, now: Now) -> Result<Outcome, PathError> {
        let outcome =
            Path { config: &self.config, tables: &self.tables, flows: &mut self.flows, state: &mut self.state, now }
                .handle(packet)?;
        self.counters.add(&outcome);
        Ok(outcome)
    }

    /// What would happen to a packet, and why: [`Outcome::trail`]. Nothing changes.
    ///
    /// # Errors
    /// None in memory; the type is that of [`Path::handle`].
    pub fn explain(&self, packet: &Packet<'_>, now: Now) -> Result<Outcome, PathError> {
        Path {
            config: &self.config,
            tables: &self.tables,
            flows: &mut ReadOnly(&self.flows),
            state: &mut DryState(&self.state),
            now,
        }
        .handle(packet)
    }

    /// Removes idle connections, of which it looks at up to `budget` entries, and whatever else has run out.
    pub fn expire(&mut self, now: Now, budget: usize) -> crate::flow::Expired {
        self.state.expire(now);
        let Ok(expired) = self.flows.expire(now, budget);
        expired
    }
}
