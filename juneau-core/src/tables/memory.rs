//! Tables in memory.

use super::{Change, Endpoints, Fib, Policies, Services, Table, TableError, Tables, TablesMut};
use crate::layout::{
    Backend, Endpoint, EndpointKey, Frontend, FrontendKey, Interface, KIND_NONE, Mac, MacKey, Policy, PolicyKey, Route,
    RouteKey, SLOTS, Segment, Vpc, Vtep, be32, ipv4,
};
use core::convert::Infallible;
use core::net::{IpAddr, Ipv4Addr};
use ipnet::Ipv4Net;
use prefix_trie::PrefixMap;
use std::collections::BTreeMap;

/// Most elements of each table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacities([usize; Table::ALL.len()]);

impl Capacities {
    /// As much as memory holds.
    pub const UNLIMITED: Self = Self([usize::MAX; Table::ALL.len()]);

    /// The same for every table.
    #[must_use]
    pub const fn every(limit: usize) -> Self {
        Self([limit; Table::ALL.len()])
    }

    /// The same but for one table.
    #[must_use]
    pub const fn with(mut self, table: Table, limit: usize) -> Self {
        self.0[table as usize] = limit;
        self
    }

    /// Most elements of one table.
    #[must_use]
    pub const fn get(&self, table: Table) -> usize {
        self.0[table as usize]
    }
}

impl Default for Capacities {
    fn default() -> Self {
        Self::UNLIMITED
    }
}

/// Tables in memory: a prefix trie for each route table, sorted maps for the rest.
#[derive(Debug, Clone, Default)]
pub struct MemTables {
    content: Tables,
    fib: BTreeMap<u32, PrefixMap<Ipv4Net, Route>>,
    capacities: Capacities,
}

impl MemTables {
    /// Empty tables of any size.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Empty tables of limited size.
    #[must_use]
    pub fn with_capacities(capacities: Capacities) -> Self {
        Self { capacities, ..Self::default() }
    }

    /// What they hold.
    #[must_use]
    pub const fn content(&self) -> &Tables {
        &self.content
    }

    /// Writes or removes a route in the trie.
    fn apply_route(&mut self, key: &RouteKey, value: Option<Route>) -> Result<(), TableError> {
        let prefix = prefix(key)
            .ok_or_else(|| TableError::Key { table: Table::Routes, key: Change::Route(*key, None).key_text() })?;
        match value {
            Some(route) => {
                self.fib.entry(key.table).or_default().insert(prefix, route);
            }
            None => {
                if let Some(trie) = self.fib.get_mut(&key.table) {
                    trie.remove(&prefix);
                    if trie.is_empty() {
                        self.fib.remove(&key.table);
                    }
                }
            }
        }
        Ok(())
    }

    fn holds(&self, change: &Change) -> bool {
        match change {
            Change::Vpc(key, _) => self.content.vpcs.contains_key(key),
            Change::Policy(key, _) => self.content.policies.contains_key(key),
            Change::Vtep(key, _) => self.content.vteps.contains_key(key),
            Change::Segment(key, _) => self.content.segments.contains_key(key),
            Change::Endpoint(key, _) => self.content.endpoints.contains_key(key),
            Change::Mac(key, _) => self.content.macs.contains_key(key),
            Change::Backend(key, _) => self.content.backends.contains_key(key),
            Change::Slots(key, _) => self.content.slots.contains_key(key),
            Change::Frontend(key, _) => self.content.frontends.contains_key(key),
            Change::Route(key, _) => self.content.routes.contains_key(key),
            Change::Interface(key, _) => self.content.interfaces.contains_key(key),
        }
    }
}

/// The prefix of a key whose length is one, and that has no bits behind it.
fn prefix(key: &RouteKey) -> Option<Ipv4Net> {
    let length = u8::try_from(key.prefix_length.checked_sub(RouteKey::TABLE_BITS)?).ok()?;
    let net = Ipv4Net::new(ipv4(key.address), length).ok()?;
    (net.trunc() == net).then_some(net)
}

impl Fib for MemTables {
    type Error = Infallible;

    fn route(&self, table: u32, destination: IpAddr) -> Result<Option<Route>, Infallible> {
        let IpAddr::V4(destination) = destination else { return Ok(None) };
        let found = self.fib.get(&table).and_then(|trie| trie.get_lpm(&Ipv4Net::from(destination)));
        Ok(found.map(|(_, route)| *route))
    }
}

impl Endpoints for MemTables {
    type Error = Infallible;

    fn interface(&self, ifindex: u32) -> Result<Option<Interface>, Infallible> {
        Ok(self.content.interfaces.get(&ifindex).filter(|interface| interface.kind != KIND_NONE).copied())
    }

    fn endpoint(&self, vpc: u32, address: IpAddr) -> Result<Option<Endpoint>, Infallible> {
        let IpAddr::V4(address) = address else { return Ok(None) };
        Ok(self.content.endpoints.get(&EndpointKey { vpc, address: be32(address) }).copied())
    }

    fn mac(&self, vni: u32, mac: [u8; 6]) -> Result<Option<Mac>, Infallible> {
        Ok(self.content.macs.get(&MacKey::new(vni, mac)).copied())
    }

    fn segment(&self, vni: u32) -> Result<Option<Segment>, Infallible> {
        Ok(self.content.segments.get(&vni).copied())
    }

    fn vtep(&self, address: Ipv4Addr) -> Result<Option<Vtep>, Infallible> {
        Ok(self.content.vteps.get(&be32(address)).copied())
    }

    fn vpc(&self, index: u16) -> Result<Option<Vpc>, Infallible> {
        Ok(self.content.vpcs.get(&u32::from(index)).filter(|vpc| vpc.vpc != 0).copied())
    }
}

impl Policies for MemTables {
    type Error = Infallible;

    fn policy(&self, key: &PolicyKey) -> Result<Option<Policy>, Infallible> {
        Ok(self.content.policies.get(key).copied())
    }
}

impl Services for MemTables {
    type Error = Infallible;

    fn frontend(&self, key: &FrontendKey) -> Result<Option<Frontend>, Infallible> {
        Ok(self.content.frontends.get(key).copied())
    }

    fn slot(&self, slot: u32) -> Result<u32, Infallible> {
        let line = self.content.slots.get(&(slot / SLOTS));
        Ok(line.and_then(|line| line.backend.get((slot % SLOTS) as usize)).copied().unwrap_or_default())
    }

    fn backend(&self, id: u32) -> Result<Option<Backend>, Infallible> {
        Ok(self.content.backends.get(&id).filter(|backend| backend.is_whole()).copied())
    }
}

impl TablesMut for MemTables {
    type Error = TableError;

    fn apply(&mut self, change: &Change) -> Result<(), TableError> {
        let table = change.table();
        match (change.is_removal(), self.holds(change)) {
            (true, false) => return Err(TableError::NotFound { table, key: change.key_text() }),
            (false, false) if self.content.len(table) >= self.capacities.get(table) => {
                return Err(TableError::Full { table, limit: self.capacities.get(table) });
            }
            _ => {}
        }
        if let Change::Route(key, value) = change {
            self.apply_route(key, *value)?;
        }
        self.content.apply(change);
        Ok(())
    }

    fn len(&self, table: Table) -> Result<usize, TableError> {
        Ok(self.content.len(table))
    }

    fn capacity(&self, table: Table) -> usize {
        self.capacities.get(table)
    }

    fn snapshot(&self) -> Result<Tables, TableError> {
        Ok(self.content.clone())
    }
}
