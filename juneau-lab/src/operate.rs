//! The operator of a lab, on its directory of manifests.

use crate::error::{LabError, Result};
use crate::paths::Paths;
use juneau_operator::plan::Config;
use juneau_operator::sink::directory;
use std::convert::Infallible;
use std::io::Write;

/// Serves the lab's manifests until the process ends. Writes a line to standard output when the first plan is carried out.
///
/// # Errors
/// When another operator serves them, or they cannot be read or written.
pub fn run(paths: &Paths, mtu: u32) -> Result<Infallible> {
    let config = Config { underlay_mtu: mtu, ..Config::default() };
    let ready = || {
        let mut out = std::io::stdout();
        // Nobody may listen any more.
        writeln!(out, "ready").and_then(|()| out.flush()).ok();
    };
    directory::run(&paths.manifests(), config, ready).map_err(|error| LabError::Manifests(error.to_string()))
}
