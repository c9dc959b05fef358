//! The traits of `juneau-core` over memory: look up, insert, dump, compare, at three sizes; and
//! flow state: look up, commit, dump, expire.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use juneau_benches::content::{self, Random};
use juneau_core::flow::{FlowRead, FlowTable, MemFlowTable};
use juneau_core::layout::Seeds;
use juneau_core::tables::{Diff, Endpoints, Fib, MemTables, Tables, TablesMut};
use juneau_core::time::Now;

const SIZES: [u32; 3] = [1_000, 100_000, 1_000_000];

fn tables(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("memory");
    group.sample_size(10).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    for size in SIZES {
        let wanted = content::endpoints(size);
        let diff = Diff::between(&Tables::default(), &wanted);
        let mut filled = MemTables::new();
        if filled.apply_diff(&diff).is_err() {
            continue;
        }
        group.throughput(Throughput::Elements(1));
        let mut random = Random::new(1);
        group.bench_function(BenchmarkId::new("look up an endpoint", size), |bencher| {
            bencher.iter(|| {
                let (vpc, address) = content::endpoint_key(random.below(size));
                black_box(filled.endpoint(vpc, IpAddr::V4(address)))
            });
        });
        group.bench_function(BenchmarkId::new("look up a route", size), |bencher| {
            bencher.iter(|| {
                let (table, address) = content::routed_address(random.below(size));
                black_box(filled.route(table, IpAddr::V4(address)))
            });
        });
        group.throughput(Throughput::Elements(diff.len() as u64));
        group.bench_function(BenchmarkId::new("insert everything", size), |bencher| {
            bencher.iter_batched(MemTables::new, |mut empty| empty.apply_diff(&diff), BatchSize::PerIteration);
        });
        group.bench_function(BenchmarkId::new("dump", size), |bencher| {
            bencher.iter(|| black_box(filled.snapshot()));
        });
        group.bench_function(BenchmarkId::new("compare", size), |bencher| {
            bencher.iter(|| black_box(Diff::between(filled.content(), &wanted)));
        });
    }
    group.finish();
}

fn flows(criterion: &mut Criterion) {
    const START: Now = Now { stamp: 1, hz: 250 };
    let mut group = criterion.benchmark_group("memory, flows");
    group.sample_size(10).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    for size in SIZES {
        let connections = size / 2;
        let fill = || {
            let mut table = MemFlowTable::new(size as usize, Seeds { first: 0x9e37_79b9, second: 0x85eb_ca77 });
            for n in 0..connections {
                let _ = black_box(table.commit(&content::opening(n, START.stamp)));
            }
            table
        };
        let filled = fill();
        let mut random = Random::new(2);
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("look up", size), |bencher| {
            bencher.iter(|| black_box(filled.lookup(&content::flow_key(random.below(connections)))));
        });
        group.throughput(Throughput::Elements(u64::from(size)));
        group.bench_function(BenchmarkId::new("commit everything", size), |bencher| {
            bencher.iter(fill);
        });
        group.bench_function(BenchmarkId::new("dump", size), |bencher| {
            bencher.iter(|| {
                let mut stamps = 0_u64;
                let _ = filled.for_each(&mut |_, flow| stamps += u64::from(flow.stamp));
                stamps
            });
        });
        for (name, now) in [("expire nothing", START), ("expire everything", START.later(START.seconds(3600)))] {
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter_batched_ref(
                    || filled.clone(),
                    |table| table.expire(now, size as usize),
                    BatchSize::PerIteration,
                );
            });
        }
    }
    group.finish();
}

criterion_group!(benches, tables, flows);
criterion_main!(benches);
