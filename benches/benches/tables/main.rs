//! The traits of `juneau-core` over memory and over the kernel's maps, at three sizes, and what Services cost before
//! they are in maps. Those over maps need root.

mod services;
mod suite;

use std::error::Error;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use juneau_benches::content;
use juneau_benches::ours::{PIN_ROOT, mount_pins};
use juneau_benches::report::progress;
use juneau_bpf::{Dataplane, NodeConfig, Options, PrivateFlowTable};
use juneau_core::flow::MemFlowTable;
use juneau_core::layout::Seeds;
use juneau_core::tables::{Diff, MemTables, Tables, TablesMut};
use suite::SIZES;

const SEEDS: Seeds = Seeds { first: 0x9e37_79b9_7f4a_7c15, second: 0xc2b2_ae3d_27d4_eb4f };

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = Criterion::default().configure_from_args();
    for size in SIZES {
        suite::tables(&mut criterion, "tables in memory", size, &mut MemTables::new())?;
        let mut flows = MemFlowTable::new(size as usize, SEEDS);
        suite::flows(&mut criterion, "flows in memory", size, &mut flows)?;
    }
    services::run(&mut criterion)?;
    if let Err(error) = mount_pins() {
        progress(format!("left out what lies in the kernel: {error}"));
        return Ok(());
    }
    for size in SIZES {
        let mut flows = PrivateFlowTable::create(size, 16, SEEDS)?;
        suite::flows(&mut criterion, "flows in maps", size, &mut flows)?;
        let dataplane = Dataplane::open(options(size))?;
        suite::tables(&mut criterion, "tables in maps", size, &mut dataplane.tables()?)?;
        dataplane.remove()?;
        adopt(&mut criterion, size)?;
    }
    criterion.final_summary();
    Ok(())
}

fn options(size: u32) -> Options {
    let node = NodeConfig {
        vtep: std::net::Ipv4Addr::new(192, 168, 9, 1),
        underlay_ifindex: 1,
        vxlan_ifindex: 1,
        vxlan_port: 4789,
    };
    let mut options = Options::new(PathBuf::from(PIN_ROOT).join("tables"), node);
    options.sizes.endpoints = Some(size.max(1024));
    options.sizes.routes = Some(size.max(1024));
    options
}

/// What a restart does before it changes anything: take over the maps, load the programs, read all tables, compare.
fn adopt(criterion: &mut Criterion, size: u32) -> Result<(), Box<dyn Error>> {
    let wanted = content::endpoints(size);
    let first = Dataplane::open(options(size))?;
    first.tables()?.apply_diff(&Diff::between(&Tables::default(), &wanted))?;
    drop(first);
    let once = || -> Result<Duration, Box<dyn Error>> {
        let start = Instant::now();
        let dataplane = Dataplane::open(options(size))?;
        let current = dataplane.tables()?.snapshot()?;
        black_box(Diff::between(&current, &wanted));
        let elapsed = start.elapsed();
        dataplane.retire_old_generations()?;
        Ok(elapsed)
    };
    let mut failed = None;
    let mut group = criterion.benchmark_group("maps");
    group.sample_size(10);
    group.bench_function(BenchmarkId::new("adopt", size), |bencher| {
        bencher.iter_custom(|rounds| {
            let total = (0..rounds).try_fold(Duration::ZERO, |total, _| Ok(total + once()?));
            total.unwrap_or_else(|error| {
                failed = Some(error);
                Duration::from_secs(1)
            })
        });
    });
    group.finish();
    Dataplane::open(options(size))?.remove()?;
    failed.map_or(Ok(()), Err)
}
