//! What encapsulation and decapsulation cost in a real path, by the kernel's own count of programs' run time.

use std::collections::HashMap;
use std::time::Duration;

use libbpf_rs::query::ProgInfoIter;

use crate::error::{Error, Result};
use crate::kernel::count_run_time;
use crate::load::Load;
use crate::namespace::Fabric;
use crate::ours::{Headroom, ours_nodes};
use crate::path::Path;
use crate::peers::wire;
use crate::report::{Bound, Row};
use crate::rounds::Effort;
use crate::statistics::median;

const ENCAP: &str = "program: encapsulation, over a constant redirect";
const ENCAP_HEADROOM: &str = "program: encapsulation with headroom, over a constant redirect";
const DECAP: &str = "program: decapsulation, over a constant redirect";
/// Names of the rows.
pub const NAMES: [&str; 3] = [ENCAP, ENCAP_HEADROOM, DECAP];

const ROUNDS: usize = 9;
const TIME: Duration = Duration::from_millis(100);
/// A program that ran less often during a load had no part in it.
const RUNS_AT_LEAST: u64 = 200;

/// Takes the figures.
///
/// # Errors
/// When the programs cannot be loaded, or do not do what is measured.
pub fn run(fabric: &Fabric, effort: Effort) -> Result<Vec<Row>> {
    let wire = wire(fabric, effort.cpu)?;
    let ours = ours_nodes(fabric, effort.cpu, Headroom::Default)?;
    let roomy = ours_nodes(fabric, effort.cpu, Headroom::Reserved)?;
    let counting = count_run_time()?;
    let mut figures = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let out = time_of(&wire, "wire_out")?;
        let into = time_of(&wire, "wire_in")?;
        let found =
            [time_of(&ours, "jn_pod")? - out, time_of(&roomy, "jn_pod")? - out, time_of(&ours, "jn_overlay")? - into];
        for (list, figure) in figures.iter_mut().zip(found) {
            list.push(figure);
        }
    }
    drop(counting);
    ours.check()?;
    roomy.check()?;
    let goals = [330.0, 170.0, 160.0];
    Ok(NAMES
        .iter()
        .zip(figures)
        .zip(goals)
        .filter_map(|((name, figures), goal)| {
            Some(Row {
                name: (*name).into(),
                value: median(figures)?,
                unit: "ns",
                noise: None,
                goal: Some(Bound::AtMost(goal)),
                detail: String::new(),
            })
        })
        .collect())
}

/// Mean time of a run of a path's program under a load of UDP packets, in nanoseconds.
fn time_of(path: &Path, program: &str) -> Result<f64> {
    let before = counts(path);
    path.measure(Load::Packet, TIME)?;
    counts(path)
        .into_iter()
        .filter(|(_, after)| after.name == program)
        .find_map(|(id, after)| {
            let (runs, time) = before.get(&id).map_or((0, 0), |b| (b.runs, b.time));
            let runs = after.runs - runs;
            (runs >= RUNS_AT_LEAST).then(|| (after.time - time) as f64 / runs as f64)
        })
        .ok_or_else(|| Error::NotOurs(format!("{program} did not run on the path {}", path.name())))
}

struct Count {
    name: String,
    runs: u64,
    time: u64,
}

fn counts(path: &Path) -> HashMap<u32, Count> {
    ProgInfoIter::default()
        .filter(|info| path.programs().contains(&info.id))
        .map(|info| {
            let name = info.name.to_string_lossy().into_owned();
            (info.id, Count { name, runs: info.run_cnt, time: info.run_time_ns })
        })
        .collect()
}
