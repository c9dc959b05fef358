//! Services: where they are met, which slots they have, and where they lead.
//!
//! Numbers and ranges of slots are kept from the tables as they stood before ([`ServiceTables`]), so that they survive
//! whoever compiles: a Service port is known again by an address and port where it was met, a backend by its Service
//! port, address and port. What was not changed keeps its records byte for byte. A Service port whose slots change gets
//! a range that nobody used, and numbers that were in use before are not given to others in the same step: packets may
//! still find their way by the old tables.
//!
//! A [`Memory`] changes no result, only the time that it takes: what is told from the tables and the model alone, it
//! knows of the last time.

mod build;
mod memory;

pub(super) use memory::Memory;

use super::Compilation;
use crate::id::{VpcId, VpcIndex};
use crate::layout::{Backend, Frontend, FrontendKey, Slots};
use crate::tables::{SharedMap, Table, Tables};
use std::collections::BTreeMap;

/// The tables that Services are in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceTables {
    /// Where Services are met.
    pub frontends: SharedMap<FrontendKey, Frontend>,
    /// Their slots, by line.
    pub slots: SharedMap<u32, Slots>,
    /// Where they lead, by id.
    pub backends: SharedMap<u32, Backend>,
}

impl From<&Tables> for ServiceTables {
    fn from(tables: &Tables) -> Self {
        Self { frontends: tables.frontends.clone(), slots: tables.slots.clone(), backends: tables.backends.clone() }
    }
}

/// Numbers below these can be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limits {
    services: u32,
    backends: u32,
    lines: u32,
}

impl Limits {
    /// More Service ports, or elements of an array, than any node has. What corrupted tables claim above it is not kept.
    const MOST: u32 = 1 << 24;
}

impl Compilation<'_> {
    /// Services of the VPCs with a number.
    pub(super) fn services(&mut self, vpcs: &BTreeMap<VpcId, VpcIndex>) {
        let limit = |table| u32::try_from(self.node.capacities.get(table)).unwrap_or(u32::MAX).min(Limits::MOST);
        let limits = Limits { services: Limits::MOST, backends: limit(Table::Backends), lines: limit(Table::Slots) };
        let here = vpcs.keys().copied().collect();
        let tables = self.memory.update(&self.model.services, here, &self.node.services, limits);
        self.tables.frontends = tables.frontends.clone();
        self.tables.slots = tables.slots.clone();
        self.tables.backends = tables.backends.clone();
        self.problems.extend(self.memory.problems().cloned());
    }
}

#[cfg(test)]
mod tests;
