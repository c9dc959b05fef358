//! From what the tables hold to what they should hold.

use juneau_core::model::Problem;
use juneau_core::tables::{Change, Diff, Table, Tables, TablesMut};
use std::collections::BTreeMap;

/// What came of an application.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// Writes that the kernel took.
    pub(super) written: usize,
    /// Changes that it refused, with the reason.
    pub(super) refused: Vec<(Change, String)>,
    /// Removals that were put off.
    pub(super) held: usize,
}

/// Applies a difference, change by change, in its order; `mirror` follows what was written. What is refused costs that
/// element, nothing else: a full table of routes must not keep other tenants' Pods from being attached. Once removals
/// have made room, refused changes are tried again.
///
/// Elements in `keep` are not removed.
pub(super) fn apply<T: TablesMut>(tables: &mut T, mirror: &mut Tables, diff: &Diff, keep: Option<&Tables>) -> Applied {
    let mut applied = Applied::default();
    let mut again = Vec::new();
    for change in &diff.changes {
        if change.is_removal() && keep.is_some_and(|keep| holds(keep, change)) {
            applied.held += 1;
            continue;
        }
        match tables.apply(change) {
            Ok(()) => {
                mirror.apply(change);
                applied.written += 1;
            }
            Err(_) => again.push(*change),
        }
    }
    for change in again {
        match tables.apply(&change) {
            Ok(()) => {
                mirror.apply(&change);
                applied.written += 1;
            }
            Err(error) => applied.refused.push((change, error.to_string())),
        }
    }
    applied
}

/// One problem a table, with the first element that it costs: a full table would otherwise fill the log.
pub(super) fn problems(applied: &Applied) -> Vec<Problem> {
    let mut by_table: BTreeMap<Table, (usize, &Change, &str)> = BTreeMap::new();
    for (change, reason) in &applied.refused {
        by_table.entry(change.table()).or_insert((0, change, reason)).0 += 1;
    }
    by_table
        .into_iter()
        .map(|(table, (count, change, reason))| {
            let first = change.key_text();
            let cost = match count {
                1 => format!("{first} is not in force"),
                more => format!("{first} and {} more elements are not in force", more - 1),
            };
            Problem::new(
                format!("map {table}"),
                format!("{reason}: {cost}"),
                "have fewer objects on this node, or remove its pin directory and start the agent with larger maps",
            )
        })
        .collect()
}

fn holds(tables: &Tables, change: &Change) -> bool {
    match change {
        Change::Vpc(key, _) => tables.vpcs.contains_key(key),
        Change::Policy(key, _) => tables.policies.contains_key(key),
        Change::Vtep(key, _) => tables.vteps.contains_key(key),
        Change::Segment(key, _) => tables.segments.contains_key(key),
        Change::Endpoint(key, _) => tables.endpoints.contains_key(key),
        Change::Mac(key, _) => tables.macs.contains_key(key),
        Change::Backend(key, _) => tables.backends.contains_key(key),
        Change::Slots(key, _) => tables.slots.contains_key(key),
        Change::Frontend(key, _) => tables.frontends.contains_key(key),
        Change::Route(key, _) => tables.routes.contains_key(key),
        Change::Interface(key, _) => tables.interfaces.contains_key(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use juneau_core::layout::{Route, RouteKey, Segment};
    use juneau_core::tables::{Capacities, MemTables};
    use std::net::Ipv4Addr;

    fn routes(count: u8) -> Tables {
        let mut tables = Tables::default();
        for third in 0..count {
            let key = RouteKey::new(3, Ipv4Addr::new(10, 0, third, 0), 24);
            tables.routes.insert(key, Route { kind: 1, vni: 100, ..Route::default() });
        }
        tables.segments.insert(100, Segment::default());
        tables
    }

    #[test]
    fn a_full_table_costs_its_own_elements_only() {
        let mut memory = MemTables::with_capacities(Capacities::UNLIMITED.with(Table::Routes, 2));
        let mut mirror = Tables::default();
        let wanted = routes(4);
        let applied = apply(&mut memory, &mut mirror, &Diff::between(&Tables::default(), &wanted), None);
        assert_eq!((applied.written, applied.refused.len()), (3, 2));
        assert_eq!(mirror, memory.snapshot().unwrap());
        assert_eq!((mirror.routes.len(), mirror.segments.len()), (2, 1));
        let problems = problems(&applied);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].object, "map jn_routes");
        assert!(problems[0].message.contains("1 more"), "{}", problems[0]);
    }

    #[test]
    fn room_made_by_removals_is_used() {
        let mut memory = MemTables::with_capacities(Capacities::UNLIMITED.with(Table::Routes, 2));
        let mut mirror = Tables::default();
        let before = routes(2);
        apply(&mut memory, &mut mirror, &Diff::between(&Tables::default(), &before), None);
        let mut wanted = routes(0);
        wanted.routes.insert(RouteKey::new(4, Ipv4Addr::new(10, 9, 0, 0), 16), Route::default());
        let applied = apply(&mut memory, &mut mirror, &Diff::between(&before, &wanted), None);
        assert!(applied.refused.is_empty());
        assert_eq!(mirror, wanted);
    }

    #[test]
    fn what_is_kept_is_not_removed() {
        let (mut memory, mut mirror) = (MemTables::new(), Tables::default());
        let adopted = routes(2);
        apply(&mut memory, &mut mirror, &Diff::between(&Tables::default(), &adopted), None);
        let diff = Diff::between(&mirror, &Tables::default());
        let applied = apply(&mut memory, &mut mirror, &diff, Some(&adopted));
        assert_eq!((applied.held, &mirror), (3, &adopted));
        apply(&mut memory, &mut mirror, &diff, None);
        assert!(mirror.is_empty());
    }
}
