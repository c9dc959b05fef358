//! The way from one content of the tables to another.

use super::{Change, SharedMap, Tables};
use crate::layout::{
    Be32, EP_ROUTER, EndpointKey, Frontend, ROUTE_ENDPOINT, endpoint_generation, table_generation, vtep_generation,
};
use std::collections::{BTreeMap, BTreeSet};

/// The changes that lead from one content to another, in an order that is safe while packets pass: everything is added
/// or replaced before anything is removed; leaves are added before what points at them and removed after it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Diff {
    /// In the order in which to apply them.
    pub changes: Vec<Change>,
    /// Slots whose generation must move once all changes stand, and the epoch after them.
    pub generations: BTreeSet<u32>,
}

impl Diff {
    /// The changes that make `wanted` of `current`.
    #[must_use]
    pub fn between(current: &Tables, wanted: &Tables) -> Self {
        let mut removed = Vec::new();
        let mut changes = Vec::new();
        compare(&current.vpcs, &wanted.vpcs, Change::Vpc, &mut changes, &mut removed);
        compare(&current.policies, &wanted.policies, Change::Policy, &mut changes, &mut removed);
        compare(&current.vteps, &wanted.vteps, Change::Vtep, &mut changes, &mut removed);
        compare(&current.segments, &wanted.segments, Change::Segment, &mut changes, &mut removed);
        compare(&current.endpoints, &wanted.endpoints, Change::Endpoint, &mut changes, &mut removed);
        compare(&current.macs, &wanted.macs, Change::Mac, &mut changes, &mut removed);
        compare_shared(&current.backends, &wanted.backends, Change::Backend, &mut changes, &mut removed);
        compare_shared(&current.slots, &wanted.slots, Change::Slots, &mut changes, &mut removed);
        compare_shared(&current.frontends, &wanted.frontends, Change::Frontend, &mut changes, &mut removed);
        compare(&current.routes, &wanted.routes, Change::Route, &mut changes, &mut removed);
        compare(&current.interfaces, &wanted.interfaces, Change::Interface, &mut changes, &mut removed);
        changes.extend(removed.into_iter().rev());
        let generations = generations(&changes, current, wanted);
        Self { changes, generations }
    }

    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changes.len()
    }
}

/// Walks two sorted maps side by side.
fn compare<K: Ord + Copy, V: PartialEq + Copy>(
    current: &BTreeMap<K, V>,
    wanted: &BTreeMap<K, V>,
    change: impl Fn(K, Option<V>) -> Change,
    put: &mut Vec<Change>,
    removed: &mut Vec<Change>,
) {
    let mut have = current.iter().peekable();
    for (key, value) in wanted {
        while let Some((old, _)) = have.next_if(|(old, _)| *old < key) {
            removed.push(change(*old, None));
        }
        let same = have.next_if(|(old, _)| *old == key).is_some_and(|(_, old)| old == value);
        if !same {
            put.push(change(*key, Some(*value)));
        }
    }
    removed.extend(have.map(|(old, _)| change(*old, None)));
}

/// The same of maps that share what did not change.
fn compare_shared<K: Ord + Copy, V: PartialEq + Copy>(
    current: &SharedMap<K, V>,
    wanted: &SharedMap<K, V>,
    change: impl Fn(K, Option<V>) -> Change,
    put: &mut Vec<Change>,
    removed: &mut Vec<Change>,
) {
    for (key, _, wanted) in current.differences(wanted) {
        let list = if wanted.is_some() { &mut *put } else { &mut *removed };
        list.push(change(*key, wanted.copied()));
    }
}

/// Which cached decisions a set of changes touches.
fn generations(changes: &[Change], current: &Tables, wanted: &Tables) -> BTreeSet<u32> {
    let mut slots = BTreeSet::new();
    let mut rules = BTreeSet::new();
    let mut withdrawn = BTreeSet::new();
    // Tables that route to an endpoint. Tables do not tell their VPC: an equal address elsewhere costs a decision.
    let mut next_hops: BTreeMap<Be32, BTreeSet<u32>> = BTreeMap::new();
    for (key, route) in current.routes.iter().chain(&wanted.routes) {
        if route.kind == ROUTE_ENDPOINT {
            next_hops.entry(route.next_hop).or_default().insert(table_generation(key.table));
        }
    }
    // A flow through a router has the slots of its two ends; the router stands for itself by its table.
    let router_tables = |key: &EndpointKey| {
        let records = [current.endpoints.get(key), wanted.endpoints.get(key)];
        let routers = records.into_iter().flatten().filter(|endpoint| endpoint.flags & EP_ROUTER != 0);
        routers.map(|router| table_generation(router.table)).collect::<Vec<_>>()
    };
    for change in changes {
        match change {
            // Limits are read when a flow opens; no decision holds them.
            Change::Vpc(..) => {}
            Change::Policy(key, _) => {
                rules.insert((key.identity, key.policy));
            }
            Change::Vtep(address, _) => {
                slots.insert(vtep_generation(*address));
            }
            // A segment says in which table and VPC the overlay's packets are decided.
            Change::Segment(vni, _) => {
                let tables = [current.segments.get(vni), wanted.segments.get(vni)];
                slots.extend(tables.iter().flatten().map(|segment| table_generation(segment.table)));
            }
            Change::Endpoint(key, _) => {
                slots.insert(endpoint_generation(key.vpc, key.address));
                slots.extend(router_tables(key));
                slots.extend(next_hops.get(&key.address).into_iter().flatten());
            }
            Change::Mac(key, _) => {
                for tables in [current, wanted] {
                    if let (Some(segment), Some(mac)) = (tables.segments.get(&key.vni), tables.macs.get(key)) {
                        slots.insert(endpoint_generation(segment.vpc, mac.address));
                        slots.extend(router_tables(&EndpointKey { vpc: segment.vpc, address: mac.address }));
                    }
                }
            }
            // A flow stands by the endpoint behind its Service; one that is new to a Service re-decides nothing.
            Change::Backend(id, _) => {
                let records = [current.backends.get(id), wanted.backends.get(id)].into_iter().flatten();
                slots.extend(records.map(|backend| endpoint_generation(backend.vpc, backend.address)));
            }
            Change::Slots(..) => {}
            Change::Frontend(key, value) => {
                let service = |record: Option<&Frontend>| record.map_or(0, |frontend| frontend.service);
                let had = service(current.frontends.get(key));
                if had != service(value.as_ref()) {
                    withdrawn.insert(had);
                }
            }
            Change::Route(key, _) => {
                slots.insert(table_generation(key.table));
            }
            Change::Interface(ifindex, _) => {
                let records = [current.interfaces.get(ifindex), wanted.interfaces.get(ifindex)];
                for interface in records.into_iter().flatten() {
                    slots.insert(endpoint_generation(interface.vpc, interface.address));
                    if interface.flags & EP_ROUTER != 0 {
                        slots.insert(table_generation(interface.table));
                    }
                }
            }
        }
    }
    if !withdrawn.is_empty() {
        // Who may no longer meet a Service is told at its next packet to any of the backends.
        let backends = current.backends.values().filter(|backend| withdrawn.contains(&backend.service));
        slots.extend(backends.map(|backend| endpoint_generation(backend.vpc, backend.address)));
    }
    if !rules.is_empty() {
        // Rules are asked of endpoints of this node alone; what becomes of an endpoint itself is handled above.
        for (key, endpoint) in &wanted.endpoints {
            if endpoint.vtep == Be32::ZERO && rules.contains(&(endpoint.identity, endpoint.policy)) {
                slots.insert(endpoint_generation(key.vpc, key.address));
                slots.extend(router_tables(key));
            }
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{
        Backend, Be16, EP_LOCAL, Endpoint, FrontendKey, Interface, Policy, PolicyKey, Route, RouteKey, Segment, Slots,
        Vpc, Vtep, be32,
    };
    use crate::tables::Table;
    use core::net::Ipv4Addr;

    const POD: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 2);
    const FRONTEND: FrontendKey = FrontendKey::new(5, be32(Ipv4Addr::new(10, 96, 0, 1)), Be16::new(80), 6);

    fn tables() -> Tables {
        let mut tables = Tables::default();
        tables.vpcs.insert(0, Vpc { vpc: 5, flow_limit: 10, ..Vpc::default() });
        tables.policies.insert(PolicyKey { identity: 1, policy: 1, ..PolicyKey::default() }, Policy::default());
        tables.vteps.insert(be32(Ipv4Addr::new(192, 0, 2, 1)), Vtep::default());
        tables.segments.insert(100, Segment { vpc: 5, table: 3, ..Segment::default() });
        tables.endpoints.insert(
            EndpointKey { vpc: 5, address: be32(POD) },
            Endpoint { flags: EP_LOCAL, identity: 1, policy: 1, ..Endpoint::default() },
        );
        tables.macs.insert(
            crate::layout::MacKey::new(100, [2, 0, 0, 0, 0, 1]),
            crate::layout::Mac { address: be32(POD), ifindex: 7 },
        );
        let backend = Backend { service: 4, address: be32(POD), vpc: 5, ..Backend::default() }.tagged();
        tables.backends.insert(1, backend);
        tables.slots.insert(0, Slots { backend: [1; 16] });
        tables.frontends.insert(FRONTEND, Frontend { size: 16, service: 4, ..Frontend::default() }.tagged(&FRONTEND));
        tables.routes.insert(RouteKey::new(3, POD, 24), Route { kind: 1, vni: 100, ..Route::default() });
        tables.interfaces.insert(7, Interface { vpc: 5, address: be32(POD), kind: 1, ..Interface::default() });
        tables
    }

    #[test]
    fn leaves_come_first_and_go_last() {
        let coming = Diff::between(&Tables::default(), &tables());
        let order: Vec<_> = coming.changes.iter().map(Change::table).collect();
        assert_eq!(order, Table::ALL);
        let going = Diff::between(&tables(), &Tables::default());
        let order: Vec<_> = going.changes.iter().map(Change::table).rev().collect();
        assert_eq!(order, Table::ALL);
        assert!(going.changes.iter().all(Change::is_removal));
    }

    #[test]
    fn additions_come_before_removals() {
        let mut wanted = tables();
        wanted.routes.clear();
        wanted.routes.insert(RouteKey::new(3, POD, 16), Route { kind: 1, vni: 100, ..Route::default() });
        wanted.vpcs.clear();
        let diff = Diff::between(&tables(), &wanted);
        let kinds: Vec<_> = diff.changes.iter().map(|c| (c.table(), c.is_removal())).collect();
        assert_eq!(kinds, [(Table::Routes, false), (Table::Routes, true), (Table::Vpcs, true)]);
        assert_eq!(diff.generations, [table_generation(3)].into());
    }

    #[test]
    fn a_router_moves_its_own_table_and_those_that_lead_to_it() {
        let key = EndpointKey { vpc: 5, address: be32(POD) };
        let mut before = tables();
        before.endpoints.insert(key, Endpoint { flags: EP_ROUTER, table: 4, ..Endpoint::default() });
        before.routes.insert(
            RouteKey::new(6, Ipv4Addr::UNSPECIFIED, 0),
            Route { kind: ROUTE_ENDPOINT, next_hop: be32(POD), ..Route::default() },
        );
        let mut after = before.clone();
        after.endpoints.insert(key, Endpoint { flags: EP_ROUTER, table: 4, ifindex: 9, ..Endpoint::default() });
        assert_eq!(
            Diff::between(&before, &after).generations,
            [endpoint_generation(5, be32(POD)), table_generation(4), table_generation(6)].into()
        );
        let of_its_own = [endpoint_generation(5, be32(POD)), table_generation(4)].into();
        let mut rules = before.clone();
        rules.policies.insert(PolicyKey { peer: 9, ..PolicyKey::default() }, Policy::default());
        assert_eq!(Diff::between(&before, &rules).generations, of_its_own, "its rules");
        let router = |identity| Interface { flags: EP_ROUTER, table: 4, identity, ..before.interfaces[&7] };
        let with = |identity| {
            let mut tables = before.clone();
            tables.interfaces.insert(7, router(identity));
            tables
        };
        assert_eq!(Diff::between(&with(1), &with(2)).generations, of_its_own, "what it is");
    }

    #[test]
    fn each_change_moves_the_decisions_that_rest_on_it() {
        let slot = endpoint_generation(5, be32(POD));
        let moved = |change: fn(&mut Tables)| {
            let mut wanted = tables();
            change(&mut wanted);
            Diff::between(&tables(), &wanted).generations
        };
        assert_eq!(moved(|_| ()), [].into());
        assert_eq!(moved(|t| t.vpcs.clear()), [].into());
        assert_eq!(moved(|t| t.policies.clear()), [slot].into());
        assert_eq!(moved(|t| t.macs.clear()), [slot].into());
        assert_eq!(moved(|t| t.backends.clear()), [slot].into());
        assert_eq!(moved(|t| t.slots.clear()), [].into());
        assert_eq!(moved(|t| t.frontends.clear()), [slot].into(), "access is withdrawn");
        assert_eq!(moved(|t| t.frontends.values_mut().for_each(|f| f.base = 16)), [].into(), "others share the work");
        assert_eq!(moved(|t| t.endpoints.clear()), [slot].into());
        assert_eq!(moved(|t| t.interfaces.clear()), [slot].into());
        assert_eq!(moved(|t| t.routes.clear()), [table_generation(3)].into());
        assert_eq!(moved(|t| t.segments.clear()), [table_generation(3)].into());
        assert_eq!(moved(|t| t.vteps.clear()), [vtep_generation(be32(Ipv4Addr::new(192, 0, 2, 1)))].into());
    }
}
