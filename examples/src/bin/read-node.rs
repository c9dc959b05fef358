//! Reads the tables of a live node through their pins, by the same traits that the tables in memory have, and shows
//! where addresses lead. Needs root; disturbs nobody.
//!
//! ```text
//! cargo run -p juneau-examples --bin read-node [PIN-ROOT [TABLE ADDRESS]]
//! ```
#![allow(clippy::print_stdout)]

use juneau_bpf::KernelTables;
use juneau_core::layout::{ROUTE_CONNECTED, ROUTE_ENDPOINT, ROUTE_TARGET_GONE, Route, RouteKey, ipv4};
use juneau_core::tables::{Fib, Table, TablesMut};
use std::error::Error;
use std::net::IpAddr;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let root = arguments.next().map_or_else(|| PathBuf::from("/sys/fs/bpf/juneau"), PathBuf::from);
    let tables = KernelTables::open(&root)?;

    if let (Some(table), Some(address)) = (arguments.next(), arguments.next()) {
        let table: u32 = table.to_string_lossy().parse()?;
        let address: IpAddr = address.to_string_lossy().parse()?;
        match tables.route(table, address)? {
            Some(route) => println!("{address} {}", leads(&route)),
            None => println!("{address} has no route in table {table}"),
        }
        return Ok(());
    }

    for table in Table::ALL {
        println!("{table}: {} of {}", tables.len(table)?, tables.capacity(table));
    }
    for (key, route) in tables.snapshot()?.routes {
        let length = key.prefix_length.saturating_sub(RouteKey::TABLE_BITS);
        println!("table {} {}/{length} {}", key.table, ipv4(key.address), leads(&route));
    }
    Ok(())
}

fn leads(route: &Route) -> String {
    match route.kind {
        ROUTE_CONNECTED => format!("is in VNI {}", route.vni),
        ROUTE_ENDPOINT => format!("goes by {}", ipv4(route.next_hop)),
        ROUTE_TARGET_GONE => "leads to nothing that exists".to_owned(),
        kind => format!("is of kind {kind}"),
    }
}
