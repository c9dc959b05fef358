//! The traits of `juneau-core` over memory: look up, insert, dump, compare, at three sizes.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use juneau_benches::content::{self, Random};
use juneau_core::tables::{Diff, Endpoints, Fib, MemTables, TablesMut};

const SIZES: [u32; 3] = [1_000, 100_000, 1_000_000];

fn tables(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("memory");
    group.sample_size(10).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    for size in SIZES {
        let wanted = content::endpoints(size);
        let diff = Diff::between(&MemTables::new().content().clone(), &wanted);
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

criterion_group!(benches, tables);
criterion_main!(benches);
