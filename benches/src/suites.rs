//! Measures that take their figures by themselves, not by rounds over paths.

use crate::agent;
use crate::error::Result;
use crate::namespace::Fabric;
use crate::plan;
use crate::programs::{in_path, scale, services, timing, two_cpus};
use crate::report::Row;
use crate::rounds::Effort;
use crate::tables;

/// Measures with a function of their own, which answers a row for each.
pub struct Suite {
    /// Names of the rows.
    pub names: &'static [&'static str],
    /// What takes the figures.
    pub run: fn(&Fabric, Effort) -> Result<Vec<Row>>,
}

/// All of them.
pub const SUITES: &[Suite] = &[
    Suite { names: &timing::NAMES, run: timing::run },
    Suite { names: &services::NAMES, run: services::run },
    Suite { names: &in_path::NAMES, run: in_path::run },
    Suite { names: &two_cpus::NAMES, run: two_cpus::run },
    Suite { names: &scale::NAMES, run: scale::run },
    Suite { names: &tables::NAMES, run: tables::run },
    Suite { names: &agent::NAMES, run: agent::run },
    Suite { names: &plan::NAMES, run: plan::run },
];
