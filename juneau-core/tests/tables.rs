//! Properties of tables: a difference leads where it should, and the FIB finds the longest prefix.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use juneau_core::layout::{
    Backend, Be16, Be32, Endpoint, EndpointKey, Frontend, FrontendKey, Interface, KIND_POD, Mac, MacKey, Policy,
    PolicyKey, ROUTE_CONNECTED, Route, RouteKey, Segment, Slots, Vpc, Vtep,
};
use juneau_core::tables::{Change, Diff, Fib, MemTables, Table, Tables, TablesMut};
use proptest::collection::btree_map;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};

fn be() -> impl Strategy<Value = Be32> {
    (0u32..6).prop_map(Be32::new)
}

fn tables() -> impl Strategy<Value = Tables> {
    let small = || 0u32..6;
    let interfaces = btree_map(
        small(),
        (small(), be(), small()).prop_map(|(vpc, address, table)| Interface {
            vpc,
            address,
            table,
            kind: KIND_POD,
            ..Interface::default()
        }),
        0..6,
    );
    let endpoints = btree_map(
        (small(), be()).prop_map(|(vpc, address)| EndpointKey { vpc, address }),
        (small(), small()).prop_map(|(flags, ifindex)| Endpoint { flags, ifindex, ..Endpoint::default() }),
        0..8,
    );
    let macs = btree_map(
        (small(), any::<bool>()).prop_map(|(vni, other)| MacKey::new(vni, [2, 0, 0, 0, 0, u8::from(other)])),
        (be(), small()).prop_map(|(address, ifindex)| Mac { address, ifindex }),
        0..6,
    );
    let segments = btree_map(small(), small().prop_map(|table| Segment { table, ..Segment::default() }), 0..6);
    let routes = btree_map(
        (small(), any::<u32>(), 0u8..=32)
            .prop_map(|(table, address, length)| RouteKey::new(table, Ipv4Addr::from(address), length)),
        (1u32..4, be()).prop_map(|(kind, next_hop)| Route { kind, next_hop, ..Route::default() }),
        0..8,
    );
    let vteps = btree_map(be(), any::<u16>().prop_map(|mtu| Vtep { mtu, ..Vtep::default() }), 0..4);
    let policies = btree_map(
        (small(), small(), any::<bool>()).prop_map(|(identity, peer, port)| PolicyKey {
            identity,
            peer,
            port: Be16::new(u16::from(port)),
            ..PolicyKey::default()
        }),
        small().prop_map(|rule| Policy { action: 1, rule }),
        0..8,
    );
    let vpcs = btree_map(small(), (1u32..6).prop_map(|vpc| Vpc { vpc, ..Vpc::default() }), 0..4);
    let backends = btree_map(
        small(),
        (small(), be()).prop_map(|(service, address)| Backend { service, address, ..Backend::default() }.tagged()),
        0..6,
    );
    let slots = btree_map(small(), small().prop_map(|id| Slots { backend: [id; 16] }), 0..4);
    let frontends = btree_map(
        (small(), be()).prop_map(|(scope, address)| FrontendKey::of_address(scope, address)),
        (small(), small()).prop_map(|(base, service)| Frontend { base, service, ..Frontend::default() }),
        0..6,
    );
    let services = (backends, slots, frontends);
    (interfaces, endpoints, macs, services, segments, routes, vteps, policies, vpcs).prop_map(
        |(interfaces, endpoints, macs, services, segments, routes, vteps, policies, vpcs)| Tables {
            interfaces,
            endpoints,
            macs,
            backends: services.0.into_iter().collect(),
            slots: services.1.into_iter().collect(),
            frontends: services.2.into_iter().collect(),
            segments,
            routes,
            vteps,
            policies,
            vpcs,
        },
    )
}

fn position(table: Table) -> usize {
    Table::ALL.iter().position(|other| *other == table).unwrap()
}

proptest! {
    #[test]
    fn a_difference_leads_from_one_to_the_other(current in tables(), wanted in tables()) {
        let mut tables = MemTables::new();
        tables.apply_diff(&Diff::between(&Tables::default(), &current)).unwrap();
        prop_assert_eq!(tables.content(), &current);
        let diff = Diff::between(&current, &wanted);
        tables.apply_diff(&diff).unwrap();
        prop_assert_eq!(tables.content(), &wanted);
        prop_assert!(Diff::between(tables.content(), &wanted).is_empty());
        prop_assert_eq!(diff.is_empty(), current == wanted);

        let removals = diff.changes.iter().position(Change::is_removal).unwrap_or(diff.len());
        let (put, removed) = diff.changes.split_at(removals);
        prop_assert!(removed.iter().all(Change::is_removal), "additions come first");
        let order = |changes: &[Change]| changes.iter().map(|c| position(c.table())).collect::<Vec<_>>();
        prop_assert!(order(put).is_sorted());
        prop_assert!(order(removed).iter().rev().is_sorted());
    }

    #[test]
    fn the_fib_finds_the_longest_prefix(
        prefixes in btree_map((0u32..3, any::<u32>(), 0u8..=32), any::<u32>(), 0..40),
        removed in proptest::collection::vec(any::<bool>(), 40),
        table in 0u32..3,
        near in any::<proptest::sample::Index>(),
        flip in 0u32..33,
    ) {
        let mut tables = MemTables::new();
        let mut naive = Tables::default();
        for ((table, address, length), vni) in &prefixes {
            let key = RouteKey::new(*table, Ipv4Addr::from(*address), *length);
            let change = Change::Route(key, Some(Route { kind: ROUTE_CONNECTED, vni: *vni, ..Route::default() }));
            tables.apply(&change).unwrap();
            naive.apply(&change);
        }
        let keys: Vec<_> = naive.routes.keys().copied().collect();
        for (key, _) in keys.iter().zip(&removed).filter(|(_, gone)| **gone) {
            tables.apply(&Change::Route(*key, None)).unwrap();
            naive.apply(&Change::Route(*key, None));
        }
        // An address inside one of the prefixes, or one bit beside it.
        let base = if keys.is_empty() { 0 } else { keys[near.index(keys.len())].address.get() };
        let address = if flip == 32 { base } else { base ^ (1 << flip) };
        let covers = |key: &RouteKey| RouteKey::new(key.table, Ipv4Addr::from(address), (key.prefix_length - 32) as u8) == *key;
        let expected = naive
            .routes
            .iter()
            .filter(|(key, _)| key.table == table && covers(key))
            .max_by_key(|(key, _)| key.prefix_length)
            .map(|(_, route)| *route);
        prop_assert_eq!(tables.route(table, IpAddr::V4(Ipv4Addr::from(address))).unwrap(), expected);
    }
}
