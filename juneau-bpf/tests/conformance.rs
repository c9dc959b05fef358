//! The public suites of `juneau-core`, over the kernel's maps.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::sandbox;
use juneau_bpf::{Dataplane, KernelTables, PrivateFlowTable};
use juneau_core::layout::Seeds;
use juneau_core::testkit::conformance;

#[test]
fn tables() {
    sandbox(|sandbox| {
        let mut dataplanes = Vec::new();
        conformance::tables(|capacity| {
            let mut options = sandbox.options();
            options.pin_root = sandbox.bpffs.join(format!("juneau-{}", dataplanes.len()));
            let size = u32::try_from(capacity).unwrap();
            options.sizes.endpoints = Some(size);
            options.sizes.macs = Some(size);
            options.sizes.segments = Some(size);
            options.sizes.routes = Some(size);
            options.sizes.vteps = Some(size);
            options.sizes.policies = Some(size);
            let dataplane = Dataplane::open(options).unwrap();
            let tables = dataplane.tables().unwrap();
            dataplanes.push(dataplane);
            tables
        });
        assert!(dataplanes.len() >= 5);
    });
}

#[test]
fn tables_of_a_live_node_are_read_by_their_pins() {
    sandbox(|sandbox| {
        let dataplane = Dataplane::open(sandbox.options()).unwrap();
        let mut tables = dataplane.tables().unwrap();
        let change = juneau_core::tables::Change::Segment(7, Some(juneau_core::layout::Segment::default()));
        juneau_core::tables::TablesMut::apply(&mut tables, &change).unwrap();
        let reader = KernelTables::open(&sandbox.root()).unwrap();
        let found = juneau_core::tables::Endpoints::segment(&reader, 7).unwrap();
        assert_eq!(found, Some(juneau_core::layout::Segment::default()));
    });
}

#[test]
fn flow_tables() {
    sandbox(|_| {
        conformance::flow_table(|capacity| {
            let seeds = Seeds { first: 0x9E37_79B9_7F4A_7C15, second: 0xC2B2_AE3D_27D4_EB4F };
            PrivateFlowTable::create(u32::try_from(capacity).unwrap(), 8, seeds).unwrap()
        });
    });
}
