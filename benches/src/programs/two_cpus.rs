//! Whether two processors do twice the work of one: no word that both write may lie in one cache line.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::stage::{Devices, Direction, Packet, Stage};
use crate::cpu;
use crate::error::{Context, Error, Result};
use crate::namespace::Fabric;
use crate::report::{Bound, Row, progress};
use crate::rounds::Effort;
use crate::statistics::median;

const TENANTS: &str = "two CPUs: two tenants / one CPU";
const DIRECTIONS: &str = "two CPUs: one flow's directions / one CPU";
/// Names of the rows.
pub const NAMES: [&str; 2] = [TENANTS, DIRECTIONS];

const ROUNDS: usize = 15;
const REPEAT: u32 = 50_000;
const TIME: Duration = Duration::from_millis(60);

/// Takes the figures.
///
/// # Errors
/// When the programs cannot be loaded, or do not do what is measured.
pub fn run(fabric: &Fabric, effort: Effort) -> Result<Vec<Row>> {
    let others = thread::available_parallelism().context("counting processors")?.get();
    if others < 2 {
        progress("left out: there is one processor only");
        return Ok(Vec::new());
    }
    let cpus = [effort.cpu, usize::from(effort.cpu == 0)];
    let devices = Devices::new(fabric, 2)?;
    let stage = devices.stage(2)?;
    let own = stage.packet(0, 60_000, Direction::Forth)?;
    let tenant = stage.packet(1, 60_000, Direction::Forth)?;
    let answer = stage.packet(0, 60_000, Direction::Back)?;
    devices.run(|| {
        for packet in [&own, &tenant, &answer] {
            stage.run(packet, 3)?;
            stage.expect_hit(packet)?;
        }
        let row = |name: &str, other: &Packet| -> Result<Row> {
            let mut speedups = Vec::new();
            for _ in 0..ROUNDS {
                let alone = rates(&stage, &[(cpus[0], &own)])?;
                let both = rates(&stage, &[(cpus[0], &own), (cpus[1], other)])?;
                speedups.push(both / alone);
            }
            Ok(Row {
                name: name.into(),
                value: median(speedups.iter().copied()).unwrap_or(f64::NAN),
                unit: "",
                noise: None,
                goal: Some(Bound::AtLeast(1.9)),
                detail: span(&speedups),
            })
        };
        Ok(vec![row(TENANTS, &tenant)?, row(DIRECTIONS, &answer)?])
    })
}

/// Runs in a nanosecond of all processors together, each with a packet of its own.
fn rates(stage: &Stage, work: &[(usize, &Packet)]) -> Result<f64> {
    let start = Barrier::new(work.len());
    let one = |(cpu, packet): &(usize, &Packet)| -> Result<f64> {
        let pinned = cpu::pin(*cpu);
        start.wait();
        pinned?;
        let end = Instant::now() + TIME;
        let mut times = Vec::new();
        while Instant::now() < end {
            times.push(stage.run(packet, REPEAT)?.as_nanos() as f64);
        }
        // The first and the last may have run without the other processor.
        let inner = times.get(1..times.len().saturating_sub(1)).filter(|inner| !inner.is_empty()).unwrap_or(&times);
        Ok(1.0 / median(inner.iter().copied()).unwrap_or(f64::NAN))
    };
    thread::scope(|scope| {
        let running: Vec<_> = work.iter().map(|item| scope.spawn(|| one(item))).collect();
        running
            .into_iter()
            .map(|thread| thread.join().map_err(|_| Error::Thread("running programs".into())).flatten())
            .sum()
    })
}

fn span(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{least:.2} to {most:.2}")
}
