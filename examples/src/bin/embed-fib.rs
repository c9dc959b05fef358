//! Embeds the FIB: routes and endpoints of two tenants whose addresses are equal, in memory, without a kernel.
//!
//! ```text
//! cargo run -p juneau-examples --bin embed-fib
//! ```
#![allow(clippy::print_stdout)]

use juneau_core::layout::{
    Endpoint, EndpointKey, KIND_POD, ROUTE_CONNECTED, ROUTE_ENDPOINT, Route, RouteKey, be32, ipv4,
};
use juneau_core::tables::{Diff, Endpoints, Fib, MemTables, Tables, TablesMut};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};

/// A tenant: its scope, its route table, and the host veth of its one Pod.
struct Tenant {
    name: &'static str,
    vpc: u32,
    table: u32,
    ifindex: u32,
}

const TENANTS: [Tenant; 2] =
    [Tenant { name: "red", vpc: 5, table: 50, ifindex: 7 }, Tenant { name: "blue", vpc: 6, table: 60, ifindex: 8 }];

fn main() -> Result<(), Box<dyn Error>> {
    let mut tables = MemTables::new();

    // What the tables should hold is a value; what must change for it is another.
    let wanted = wanted();
    let diff = Diff::between(&tables.snapshot()?, &wanted);
    println!("{} changes", diff.len());
    tables.apply_diff(&diff)?;

    for tenant in &TENANTS {
        for destination in ["10.0.1.10", "10.9.8.7", "192.0.2.1"] {
            println!("{} {destination}: {}", tenant.name, lookup(&tables, tenant, destination.parse()?)?);
        }
    }

    // A route goes; the diff names it, and whose decisions are void.
    let mut without = wanted.clone();
    without.routes.remove(&RouteKey::new(60, Ipv4Addr::new(10, 9, 0, 0), 16));
    let diff = Diff::between(&wanted, &without);
    tables.apply_diff(&diff)?;
    println!("{} change, {} generation", diff.len(), diff.generations.len());
    println!("blue 10.9.8.7: {}", lookup(&tables, &TENANTS[1], "10.9.8.7".parse()?)?);
    Ok(())
}

/// Both tenants have 10.0.1.0/24 with a Pod at .10, which is the next hop to 10.9.0.0/16.
fn wanted() -> Tables {
    let pod = be32(Ipv4Addr::new(10, 0, 1, 10));
    let mut tables = Tables::default();
    for tenant in &TENANTS {
        let endpoint = Endpoint { kind: KIND_POD, ifindex: tenant.ifindex, ..Endpoint::default() };
        tables.endpoints.insert(EndpointKey { vpc: tenant.vpc, address: pod }, endpoint);
        tables.routes.insert(
            RouteKey::new(tenant.table, Ipv4Addr::new(10, 0, 1, 0), 24),
            Route { kind: ROUTE_CONNECTED, ..Route::default() },
        );
        tables.routes.insert(
            RouteKey::new(tenant.table, Ipv4Addr::new(10, 9, 0, 0), 16),
            Route { kind: ROUTE_ENDPOINT, next_hop: pod, ..Route::default() },
        );
    }
    tables
}

/// Where an address leads, over any tables that implement the two traits.
fn lookup<T, E>(tables: &T, tenant: &Tenant, destination: IpAddr) -> Result<String, E>
where
    T: Fib<Error = E> + Endpoints<Error = E>,
{
    let Some(route) = tables.route(tenant.table, destination)? else { return Ok("no route".to_owned()) };
    let hop = if route.kind == ROUTE_ENDPOINT { IpAddr::V4(ipv4(route.next_hop)) } else { destination };
    Ok(match tables.endpoint(tenant.vpc, hop)? {
        Some(endpoint) => format!("by {hop} at interface {}", endpoint.ifindex),
        None => format!("{hop} does not exist"),
    })
}
