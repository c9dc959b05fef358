//! Runs measures in interleaved rounds and makes rows of the figures.
//!
//! Within a round every load runs over all paths in turn before the next load starts, so that the figures of one ratio
//! lie seconds apart; every other round runs in reverse, so that no path always comes after the same one.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::Result;
use crate::load::Load;
use crate::measure::{Figure, Measure, Variant};
use crate::namespace::Fabric;
use crate::ours::{Headroom, ours_local, ours_nodes};
use crate::path::Path;
use crate::peers;
use crate::report::{Row, progress};
use crate::statistics::{Series, mean, median, median_ratio};

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Rounds.
    pub rounds: usize,
    /// Time of one load on one path in a round.
    pub time: Duration,
    /// The processor of both ends.
    pub cpu: usize,
}

/// A path and which variant it is an instance of.
type Instance = (Variant, Path);

/// Builds what `measures` need, runs the rounds, and answers a row for each measure that has figures. A figure that
/// fails is reported and left out.
///
/// # Errors
/// When a path cannot be built.
pub fn run(fabric: &Fabric, measures: &[Measure], effort: Effort) -> Result<Vec<Row>> {
    if measures.is_empty() {
        return Ok(Vec::new());
    }
    let mut paths: Vec<Instance> = Vec::new();
    for variant in variants(measures) {
        for _ in 0..if variant.is_base() { 2 } else { 1 } {
            paths.push((variant, build(fabric, variant, effort.cpu)?));
        }
    }
    let mut figures: BTreeMap<(Load, usize), Series> = BTreeMap::new();
    for round in 0..effort.rounds {
        for load in Load::ALL {
            let mut order: Vec<usize> = (0..paths.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let Some((variant, path)) = paths.get(index) else {
                    continue;
                };
                if !needs(measures, *variant, load) {
                    continue;
                }
                match path.measure(load, effort.time) {
                    Ok(cost) => {
                        figures.entry((load, index)).or_default().insert(round, cost);
                    }
                    Err(error) => progress(format!("left out: {error}")),
                }
            }
        }
        progress(format!("round {} of {}", round + 1, effort.rounds));
    }
    Ok(measures.iter().filter_map(|measure| row(measure, &paths, &figures)).collect())
}

fn variants(measures: &[Measure]) -> Vec<Variant> {
    let mut all: Vec<Variant> = measures.iter().flat_map(|m| [m.base, m.path]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn needs(measures: &[Measure], variant: Variant, load: Load) -> bool {
    measures.iter().any(|m| m.load == load && (m.path == variant || m.base == variant))
}

fn build(fabric: &Fabric, variant: Variant, cpu: usize) -> Result<Path> {
    match variant {
        Variant::Direct => peers::direct(fabric, cpu),
        Variant::LeanLocal => peers::lean_local(fabric, cpu),
        Variant::WireLocal => peers::wire_local(fabric, cpu),
        Variant::Wire => peers::wire(fabric, cpu),
        Variant::Flannel => peers::flannel(fabric, cpu),
        Variant::OursLocal => ours_local(fabric, cpu),
        Variant::OursNodes => ours_nodes(fabric, cpu, Headroom::Default),
        Variant::OursHeadroom => ours_nodes(fabric, cpu, Headroom::Reserved),
        Variant::LeanNodes => peers::lean_nodes(fabric, cpu),
    }
}

fn row(measure: &Measure, paths: &[Instance], figures: &BTreeMap<(Load, usize), Series>) -> Option<Row> {
    let series_of = |variant: Variant| -> Vec<&Series> {
        paths
            .iter()
            .enumerate()
            .filter(|(_, (v, _))| *v == variant)
            .filter_map(|(index, _)| figures.get(&(measure.load, index)))
            .collect()
    };
    let bases = series_of(measure.base);
    let ours = mean(&series_of(measure.path));
    let base = mean(&bases);
    let ratio = median_ratio(&ours, &base)?;
    let noise = match bases.as_slice() {
        [first, second] => (median_ratio(second, first)? - 1.0).abs(),
        _ => 0.0,
    };
    let describe =
        |series: &Series| median(series.values().copied()).map_or_else(String::new, |m| measure.load.describe(m));
    Some(Row {
        name: measure.name.into(),
        value: match measure.figure {
            Figure::Cost => ratio,
            Figure::Rate => 1.0 / ratio,
        },
        unit: "",
        noise: Some(noise),
        goal: measure.goal,
        detail: format!("{} / {}", describe(&ours), describe(&base)),
    })
}
