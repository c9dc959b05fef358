//! The public suites on the implementations in memory.

use juneau_core::tables::{Capacities, MemTables, Table};
use juneau_core::testkit::conformance;

#[test]
fn tables_in_memory_conform() {
    conformance::tables(|capacity| {
        MemTables::with_capacities(Capacities::every(capacity).with(Table::Interfaces, 16).with(Table::Vpcs, 16))
    });
}
