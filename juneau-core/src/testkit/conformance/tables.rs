//! What every set of tables must do.

use crate::layout::{
    Be16, Be32, EP_LOCAL, EP_POLICY_READY, Endpoint, EndpointKey, IDENTITY_ANY, INGRESS, Interface, KIND_POD, Mac,
    MacKey, POLICY_ALLOW, Policy, PolicyKey, ROUTE_CONNECTED, ROUTE_ENDPOINT, ROUTE_TARGET_GONE, Route, RouteKey,
    Segment, Vpc, Vtep, be32,
};
use crate::tables::{Change, Diff, Endpoints, Fib, Policies, Table, Tables, TablesMut};
use core::net::{IpAddr, Ipv4Addr};

/// Tables: longest match, scopes, replacing, removing, limits, snapshots.
///
/// `make(capacity)` gives empty tables that take `capacity` endpoints, MAC addresses, segments, routes, VTEPs and
/// policies, and at least 16 interfaces and VPCs.
pub fn tables<T>(mut make: impl FnMut(usize) -> T)
where
    T: Fib + Endpoints + Policies + TablesMut,
{
    longest_match(&mut make(64));
    scopes(&mut make(64));
    every_table(&mut make(64));
    full(&mut make(8));
    diffs(&mut make(64));
}

fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

fn route(n: u32) -> Route {
    Route { kind: ROUTE_CONNECTED, vni: n, ..Route::default() }
}

fn put<T: TablesMut>(tables: &mut T, change: Change) {
    tables.apply(&change).unwrap_or_else(|error| panic!("{change:?}: {error}"));
}

fn longest_match<T: Fib + TablesMut>(tables: &mut T) {
    let prefixes = [([0, 0, 0, 0], 0, 1), ([10, 0, 0, 0], 8, 2), ([10, 0, 1, 0], 24, 3), ([10, 0, 1, 7], 32, 4)];
    for (address, length, n) in prefixes {
        put(tables, Change::Route(RouteKey::new(9, Ipv4Addr::from(address), length), Some(route(n))));
    }
    let find = |tables: &T, table, address| tables.route(table, address).unwrap().map(|r| r.vni);
    assert_eq!(find(tables, 9, v4(10, 0, 1, 7)), Some(4));
    assert_eq!(find(tables, 9, v4(10, 0, 1, 8)), Some(3));
    assert_eq!(find(tables, 9, v4(10, 1, 0, 0)), Some(2));
    assert_eq!(find(tables, 9, v4(192, 0, 2, 1)), Some(1));
    assert_eq!(find(tables, 8, v4(10, 0, 1, 7)), None, "another table");
    put(tables, Change::Route(RouteKey::new(9, Ipv4Addr::new(10, 0, 1, 0), 24), None));
    assert_eq!(find(tables, 9, v4(10, 0, 1, 8)), Some(2), "the shorter prefix takes over");
    put(tables, Change::Route(RouteKey::new(9, Ipv4Addr::UNSPECIFIED, 0), None));
    assert_eq!(find(tables, 9, v4(192, 0, 2, 1)), None);
}

fn scopes<T: Fib + Endpoints + Policies + TablesMut>(tables: &mut T) {
    let address = Ipv4Addr::new(10, 0, 1, 2);
    for vpc in [5, 6] {
        let endpoint = Endpoint { ifindex: vpc * 10, kind: KIND_POD, ..Endpoint::default() };
        put(tables, Change::Endpoint(EndpointKey { vpc, address: be32(address) }, Some(endpoint)));
        let mac = Mac { address: be32(address), ifindex: vpc * 10 };
        put(tables, Change::Mac(MacKey::new(vpc * 100, [2, 0, 0, 0, 0, 1]), Some(mac)));
        let key =
            PolicyKey { identity: vpc, policy: 1, peer: IDENTITY_ANY, direction: INGRESS, ..PolicyKey::default() };
        put(tables, Change::Policy(key, Some(Policy { action: POLICY_ALLOW, rule: vpc })));
    }
    for vpc in [5, 6] {
        assert_eq!(tables.endpoint(vpc, IpAddr::V4(address)).unwrap().unwrap().ifindex, vpc * 10);
        assert_eq!(tables.mac(vpc * 100, [2, 0, 0, 0, 0, 1]).unwrap().unwrap().ifindex, vpc * 10);
    }
    assert_eq!(tables.endpoint(7, IpAddr::V4(address)).unwrap(), None);
    assert_eq!(tables.mac(700, [2, 0, 0, 0, 0, 1]).unwrap(), None);
    put(tables, Change::Endpoint(EndpointKey { vpc: 5, address: be32(address) }, None));
    assert_eq!(tables.endpoint(5, IpAddr::V4(address)).unwrap(), None);
    assert!(tables.endpoint(6, IpAddr::V4(address)).unwrap().is_some(), "the other tenant's stays");
}

fn sample() -> Tables {
    let address = be32(Ipv4Addr::new(10, 0, 1, 2));
    let vtep = be32(Ipv4Addr::new(192, 0, 2, 1));
    let mut tables = Tables::default();
    tables.vpcs.insert(3, Vpc { vpc: 5, flow_limit: 1, embryonic_limit: 2, icmp_limit: 3 });
    tables.vteps.insert(vtep, Vtep { next_hop: vtep, mtu: 1500, zero: 0 });
    tables.segments.insert(100, Segment { vpc: 5, vpc_index: 3, mtu: 1450, table: 9, ..Segment::default() });
    let endpoint = Endpoint { flags: EP_LOCAL | EP_POLICY_READY, ifindex: 7, kind: KIND_POD, ..Endpoint::default() };
    tables.endpoints.insert(EndpointKey { vpc: 5, address }, endpoint);
    tables.macs.insert(MacKey::new(100, [2, 0, 0, 0, 0, 1]), Mac { address, ifindex: 7 });
    let interface = Interface { vpc: 5, vni: 100, address, kind: KIND_POD, ..Interface::default() };
    tables.interfaces.insert(7, interface);
    tables.interfaces.insert(70_000, Interface { mtu: 1300, ..interface });
    tables.policies.insert(
        PolicyKey { identity: 1, policy: 4, peer: 2, direction: INGRESS, protocol: 6, port: Be16::new(80) },
        Policy { action: POLICY_ALLOW, rule: 12 },
    );
    tables.routes.insert(RouteKey::new(9, Ipv4Addr::new(10, 0, 1, 0), 24), route(100));
    tables.routes.insert(
        RouteKey::new(9, Ipv4Addr::new(10, 9, 0, 0), 16),
        Route { kind: ROUTE_ENDPOINT, next_hop: address, ..Route::default() },
    );
    tables
        .routes
        .insert(RouteKey::new(9, Ipv4Addr::UNSPECIFIED, 0), Route { kind: ROUTE_TARGET_GONE, ..Route::default() });
    tables
}

fn every_table<T: Fib + Endpoints + Policies + TablesMut>(tables: &mut T) {
    let wanted = sample();
    assert_eq!(tables.snapshot().unwrap(), Tables::default());
    tables.apply_diff(&Diff::between(&Tables::default(), &wanted)).unwrap();
    assert_eq!(tables.snapshot().unwrap(), wanted);
    for table in Table::ALL {
        assert_eq!(tables.len(table).unwrap(), wanted.len(table), "{table}");
        assert!(tables.capacity(table) >= wanted.len(table), "{table}");
    }
    assert_eq!(tables.interface(7).unwrap(), wanted.interfaces.get(&7).copied());
    assert_eq!(tables.interface(70_000).unwrap().map(|i| i.mtu), Some(1300), "an index behind the array");
    assert_eq!(tables.interface(8).unwrap(), None);
    assert_eq!(tables.segment(100).unwrap(), wanted.segments.get(&100).copied());
    assert_eq!(tables.segment(101).unwrap(), None);
    assert_eq!(tables.vtep(Ipv4Addr::new(192, 0, 2, 1)).unwrap().map(|v| v.mtu), Some(1500));
    assert_eq!(tables.vtep(Ipv4Addr::new(192, 0, 2, 2)).unwrap(), None);
    assert_eq!(tables.vpc(3).unwrap(), wanted.vpcs.get(&3).copied());
    assert_eq!(tables.vpc(4).unwrap(), None);
    let (key, rule) = wanted.policies.first_key_value().unwrap();
    assert_eq!(tables.policy(key).unwrap(), Some(*rule));
    assert_eq!(tables.policy(&PolicyKey { port: Be16::new(81), ..*key }).unwrap(), None);
    assert_eq!(tables.policy(&PolicyKey { policy: 5, ..*key }).unwrap(), None, "another generation");

    let mut changed = wanted.clone();
    changed.segments.get_mut(&100).unwrap().mtu = 1400;
    tables.apply_diff(&Diff::between(&wanted, &changed)).unwrap();
    assert_eq!(tables.segment(100).unwrap().unwrap().mtu, 1400, "replaced");
    tables.apply_diff(&Diff::between(&changed, &Tables::default())).unwrap();
    assert_eq!(tables.snapshot().unwrap(), Tables::default());
    assert_eq!(tables.interface(7).unwrap(), None, "removed");
    let absent = Change::Endpoint(EndpointKey { vpc: 5, address: Be32::new(1) }, None);
    assert!(tables.apply(&absent).is_err(), "nothing to remove");
}

fn full<T: Fib + Endpoints + Policies + TablesMut>(tables: &mut T) {
    let fill = |n: u32| {
        [
            Change::Endpoint(EndpointKey { vpc: 1, address: Be32::new(n) }, Some(Endpoint::default())),
            Change::Mac(MacKey::new(n + 2, [2, 0, 0, 0, 0, 1]), Some(Mac::default())),
            Change::Segment(n + 2, Some(Segment::default())),
            Change::Route(RouteKey::new(n + 1, Ipv4Addr::new(10, 0, 0, 0), 8), Some(route(n))),
            Change::Vtep(Be32::new(n), Some(Vtep::default())),
            Change::Policy(PolicyKey { identity: n, ..PolicyKey::default() }, Some(Policy::default())),
        ]
    };
    for (position, change) in fill(0).iter().enumerate() {
        let table = change.table();
        let limit = tables.capacity(table);
        assert_eq!(limit, 8, "{table}");
        for n in 0..8 {
            put(tables, fill(n)[position]);
        }
        assert!(tables.apply(&fill(8)[position]).is_err(), "{table} is full");
        assert_eq!(tables.len(table).unwrap(), limit, "{table} after the refusal");
        put(tables, fill(3)[position]);
    }
}

fn diffs<T: TablesMut>(tables: &mut T) {
    let mut wanted = sample();
    tables.apply_diff(&Diff::between(&Tables::default(), &wanted)).unwrap();
    wanted.routes.remove(&RouteKey::new(9, Ipv4Addr::UNSPECIFIED, 0));
    wanted.interfaces.remove(&70_000);
    wanted.vpcs.get_mut(&3).unwrap().icmp_limit = 9;
    wanted.endpoints.insert(EndpointKey { vpc: 5, address: Be32::new(77) }, Endpoint::default());
    let diff = Diff::between(&tables.snapshot().unwrap(), &wanted);
    assert_eq!(diff.len(), 4);
    tables.apply_diff(&diff).unwrap();
    assert_eq!(tables.snapshot().unwrap(), wanted);
    assert!(Diff::between(&tables.snapshot().unwrap(), &wanted).is_empty());
}
