//! The same measures for every implementation of a trait.

use std::error::Error;
use std::hint::black_box;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use juneau_benches::content::{self, Random};
use juneau_core::flow::FlowTable;
use juneau_core::tables::{Diff, Endpoints, Fib, Tables, TablesMut};
use juneau_core::time::Now;

pub(crate) const SIZES: [u32; 3] = [1_000, 100_000, 1_000_000];

const START: Now = Now { stamp: 1, hz: 250 };

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(300));
    group
}

/// Times `work` alone; `prepare` runs before each.
fn timed<T, E>(
    rounds: u64,
    target: &mut T,
    mut prepare: impl FnMut(&mut T) -> Result<(), E>,
    mut work: impl FnMut(&mut T) -> Result<(), E>,
) -> Result<Duration, E> {
    let mut total = Duration::ZERO;
    for _ in 0..rounds {
        prepare(target)?;
        let start = Instant::now();
        work(target)?;
        total += start.elapsed();
    }
    Ok(total)
}

/// Tables of `size` endpoints: look up, fill, dump, compare.
pub(crate) fn tables<T>(criterion: &mut Criterion, name: &str, size: u32, tables: &mut T) -> Result<(), Box<dyn Error>>
where
    T: Fib + Endpoints + TablesMut,
    <T as TablesMut>::Error: 'static,
{
    let wanted = content::endpoints(size);
    let fill = Diff::between(&Tables::default(), &wanted);
    let empty = Diff::between(&wanted, &Tables::default());
    let mut group = group(criterion, name);

    let mut failed = None;
    tables.apply_diff(&fill)?;
    group.throughput(Throughput::Elements(fill.len() as u64));
    group.bench_function(BenchmarkId::new("fill", size), |bencher| {
        bencher.iter_custom(|rounds| {
            timed(rounds, tables, |t| t.apply_diff(&empty), |t| t.apply_diff(&fill)).unwrap_or_else(|error| {
                failed = Some(error);
                Duration::from_secs(1)
            })
        });
    });
    if let Some(error) = failed {
        return Err(error.into());
    }
    group.bench_function(BenchmarkId::new("dump", size), |bencher| bencher.iter(|| black_box(tables.snapshot())));
    let current = tables.snapshot()?;
    group.bench_function(BenchmarkId::new("compare", size), |bencher| {
        bencher.iter(|| black_box(Diff::between(&current, &wanted)));
    });
    group.throughput(Throughput::Elements(1));
    let mut random = Random::new(1);
    group.bench_function(BenchmarkId::new("look up an endpoint", size), |bencher| {
        bencher.iter(|| {
            let (vpc, address) = content::endpoint_key(random.below(size));
            black_box(tables.endpoint(vpc, IpAddr::V4(address)))
        });
    });
    group.bench_function(BenchmarkId::new("look up a route", size), |bencher| {
        bencher.iter(|| {
            let (table, address) = content::routed_address(random.below(size));
            black_box(tables.route(table, IpAddr::V4(address)))
        });
    });
    group.finish();
    Ok(())
}

/// Flow state of `size` entries, two for each connection: open, look up, dump, expire.
pub(crate) fn flows<T: FlowTable>(
    criterion: &mut Criterion,
    name: &str,
    size: u32,
    table: &mut T,
) -> Result<(), Box<dyn Error>> {
    let connections = size / 2;
    let fill = |table: &mut T| -> Result<(), T::Error> {
        for n in 0..connections {
            black_box(table.commit(&content::opening(n, START.stamp))?);
        }
        Ok(())
    };
    let later = START.later(START.seconds(3600));
    let sweep = |table: &mut T, now: Now| -> Result<(), T::Error> {
        black_box(table.expire(now, size as usize)?);
        Ok(())
    };
    let mut group = group(criterion, name);
    let mut failed = None;
    group.throughput(Throughput::Elements(u64::from(size)));
    group.bench_function(BenchmarkId::new("open", size), |bencher| {
        bencher.iter_custom(|rounds| {
            timed(rounds, table, |t| sweep(t, later), fill).unwrap_or_else(|error| {
                failed = Some(error);
                Duration::from_secs(1)
            })
        });
    });
    group.bench_function(BenchmarkId::new("expire everything", size), |bencher| {
        bencher.iter_custom(|rounds| {
            timed(rounds, table, fill, |t| sweep(t, later)).unwrap_or_else(|error| {
                failed = Some(error);
                Duration::from_secs(1)
            })
        });
    });
    if let Some(error) = failed {
        return Err(error.into());
    }
    fill(table)?;
    group.bench_function(BenchmarkId::new("expire nothing", size), |bencher| bencher.iter(|| sweep(table, START)));
    group.bench_function(BenchmarkId::new("dump", size), |bencher| {
        bencher.iter(|| {
            let mut stamps = 0_u64;
            let shown = table.for_each(&mut |_, flow| stamps += u64::from(flow.stamp));
            black_box((stamps, shown.is_ok()))
        });
    });
    group.throughput(Throughput::Elements(1));
    let mut random = Random::new(2);
    group.bench_function(BenchmarkId::new("look up", size), |bencher| {
        bencher.iter(|| black_box(table.lookup(&content::flow_key(random.below(connections)))));
    });
    group.finish();
    Ok(())
}
