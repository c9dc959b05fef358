//! Whether a packet costs more when a node has many VPCs, at the same number of active flows and of endpoints.

use std::os::fd::{AsFd, BorrowedFd};

use super::stage::{Devices, Direction, Packet, Stage, run_empty};
use crate::content::Random;
use crate::cpu;
use crate::error::Result;
use crate::namespace::Fabric;
use crate::peers::{Config, PeerObject};
use crate::report::{Bound, Row, progress};
use crate::rounds::Effort;
use crate::statistics::{Series, mean, median, median_ratio};

const ONE: &str = "1 000 VPCs / 2, 1 flow";
const THOUSAND: &str = "1 000 VPCs / 2, 1 000 flows";
const MANY: &str = "1 000 VPCs / 2, 100 000 flows";
/// Names of the rows.
pub const NAMES: [&str; 3] = [ONE, THOUSAND, MANY];

const CASES: [(&str, u32); 3] = [(ONE, 1), (THOUSAND, 1_000), (MANY, 100_000)];
const FEW_VPCS: u32 = 2;
const MANY_VPCS: u32 = 1_000;
const ROUNDS: usize = 9;
/// Pairs of endpoints, of few VPCs or of many.
const PAIRS: u32 = 1_000;
/// Packets in a round, each of a flow that is drawn anew.
const PACKETS: u32 = 20_000;

/// Takes the figures.
///
/// # Errors
/// When the programs cannot be loaded, or do not do what is measured.
pub fn run(fabric: &Fabric, effort: Effort) -> Result<Vec<Row>> {
    let devices = Devices::new(fabric, PAIRS)?;
    // Few VPCs come twice, as every base does.
    let stages = [devices.stage(FEW_VPCS)?, devices.stage(MANY_VPCS)?, devices.stage(FEW_VPCS)?];
    let empty = PeerObject::load(&Config::default(), &["empty"])?;
    let empty = empty.program("empty")?;
    let empty = empty.as_fd();
    let mut rows = Vec::new();
    for (name, flows) in CASES {
        let packets = packets(&stages[0], &stages[1], flows)?;
        let mut figures: [Series; 3] = Default::default();
        devices.run(|| {
            cpu::pin(effort.cpu)?;
            for (stage, packets) in stages.iter().zip(&packets) {
                for packet in packets {
                    stage.run(packet, 1)?;
                }
            }
            for round in 0..ROUNDS {
                let order = if round % 2 == 0 { [0, 1, 2] } else { [2, 1, 0] };
                for which in order {
                    let time = over_empty(&stages[which], &packets[which], empty, round as u64)?;
                    figures[which].insert(round, time);
                }
            }
            Ok(())
        })?;
        let [first, many, second] = &figures;
        let few = mean(&[first, second]);
        let time = |series: &Series| median(series.values().copied()).unwrap_or(f64::NAN);
        rows.push(Row {
            name: name.into(),
            value: median_ratio(many, &few).unwrap_or(f64::NAN),
            unit: "",
            noise: median_ratio(second, first).map(|ratio| (ratio - 1.0).abs()),
            goal: Some(Bound::AtMost(1.05)),
            detail: format!("{:.0} / {:.0} ns over an empty program", time(many), time(&few)),
        });
        progress(name);
    }
    Ok(rows)
}

/// One packet for each flow, for few VPCs, many, and few again; flows are spread evenly over the endpoints, and so over
/// the VPCs.
fn packets(few: &Stage, many: &Stage, flows: u32) -> Result<[Vec<Packet>; 3]> {
    let of = |stage: &Stage| -> Result<Vec<Packet>> {
        (0..flows)
            .map(|flow| {
                let port = u16::try_from(1 + flow / PAIRS).unwrap_or(u16::MAX);
                stage.packet(flow % PAIRS, port, Direction::Forth)
            })
            .collect()
    };
    Ok([of(few)?, of(many)?, of(few)?])
}

/// Mean time of a run over that of an empty program, both with packets drawn alike.
fn over_empty(stage: &Stage, packets: &[Packet], empty: BorrowedFd<'_>, seed: u64) -> Result<f64> {
    let count = u32::try_from(packets.len()).unwrap_or(u32::MAX);
    let mut random = Random::new(seed);
    let (mut ours, mut nothing) = (Vec::new(), Vec::new());
    for _ in 0..PACKETS {
        let drawn = usize::try_from(random.below(count)).ok().and_then(|n| packets.get(n));
        let Some(packet) = drawn else { continue };
        ours.push(stage.run(packet, 1)?.as_nanos() as f64);
        nothing.push(run_empty(empty, packet, 1)?.as_nanos() as f64);
    }
    Ok(trimmed_mean(ours) - trimmed_mean(nothing))
}

/// The mean without the slowest hundredth: runs that were interrupted.
fn trimmed_mean(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.truncate(values.len() - values.len() / 100);
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interruptions_do_not_count() {
        let mut values = vec![2.0; 99];
        values.push(1e6);
        assert!((trimmed_mean(values) - 2.0).abs() < 1e-9);
        assert!((trimmed_mean(vec![1.0, 3.0]) - 2.0).abs() < 1e-9);
    }
}
