//! What a hit costs over a program that does nothing, and what a flow's first packet costs over a hit.

use std::os::fd::AsFd;

use super::stage::{Devices, Direction, run_empty};
use crate::cpu;
use crate::error::Result;
use crate::namespace::Fabric;
use crate::peers::{Config, PeerObject};
use crate::report::{Bound, Row};
use crate::rounds::Effort;
use crate::statistics::median;

const HIT: &str = "program: hit on a Pod's hook, over an empty program";
const FIRST: &str = "program: first packet of a UDP flow, above a hit";
/// Names of the rows.
pub const NAMES: [&str; 2] = [HIT, FIRST];

const ROUNDS: usize = 15;
const REPEAT: u32 = 200_000;
/// New flows in a round.
const FLOWS: u16 = 2_000;

/// Takes the figures.
///
/// # Errors
/// When the programs cannot be loaded, or do not do what is measured.
pub fn run(fabric: &Fabric, effort: Effort) -> Result<Vec<Row>> {
    let devices = Devices::new(fabric, 2)?;
    let stage = devices.stage(2)?;
    let empty = PeerObject::load(&Config::default(), &["empty"])?;
    let empty = empty.program("empty")?;
    let empty = empty.as_fd();
    let (mut hits, mut empties, mut extras) = (Vec::new(), Vec::new(), Vec::new());
    devices.run(|| {
        cpu::pin(effort.cpu)?;
        let packet = stage.packet(0, 60_000, Direction::Forth)?;
        stage.run(&packet, 3)?;
        stage.expect_hit(&packet)?;
        for round in 0..ROUNDS {
            let mut once = |first: bool| -> Result<()> {
                if first {
                    empties.push(run_empty(empty, &packet, REPEAT)?.as_nanos() as f64);
                } else {
                    hits.push(stage.run(&packet, REPEAT)?.as_nanos() as f64);
                }
                Ok(())
            };
            once(round % 2 == 0)?;
            once(round % 2 == 1)?;
        }
        for flow in 1..=FLOWS * 15 {
            let packet = stage.packet(1, flow, Direction::Forth)?;
            let first = stage.run(&packet, 1)?;
            let hit = stage.run(&packet, 1)?;
            extras.push((first.as_nanos() as f64, hit.as_nanos() as f64));
        }
        Ok(())
    })?;
    let above = hits.iter().zip(&empties).map(|(hit, empty)| hit - empty);
    let hit = median(above).unwrap_or(f64::NAN);
    let first = median(extras.iter().map(|(first, hit)| first - hit)).unwrap_or(f64::NAN);
    let whole = |values: &[f64]| median(values.iter().copied()).unwrap_or(f64::NAN);
    let row = |name: &str, value, goal, detail| Row {
        name: name.into(),
        value,
        unit: "ns",
        noise: None,
        goal: Some(Bound::AtMost(goal)),
        detail,
    };
    Ok(vec![
        row(HIT, hit, 60.0, format!("{:.0} − {:.0} ns", whole(&hits), whole(&empties))),
        row(FIRST, first, 1000.0, format!("{} flows", extras.len())),
    ])
}
