//! The public suites on the implementations in memory.

use juneau_core::flow::MemFlowTable;
use juneau_core::layout::Seeds;
use juneau_core::tables::{Capacities, MemTables, Table};
use juneau_core::testkit::conformance;

#[test]
fn tables_in_memory_conform() {
    conformance::tables(|capacity| {
        MemTables::with_capacities(Capacities::every(capacity).with(Table::Interfaces, 16).with(Table::Vpcs, 16))
    });
}

#[test]
fn flows_in_memory_conform() {
    conformance::flow_table(|capacity| MemFlowTable::new(capacity, Seeds { first: 11, second: 13 }));
}
