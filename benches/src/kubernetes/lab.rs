//! From nothing to the lab on Kubernetes.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::error::{Context, Error, Result};
use crate::report::{Bound, Row, progress};
use crate::statistics::median;

/// A lab beside all others.
const STATE: &str = "/run/juneau-benches-lab";

/// How long `juneau-lab up --kubernetes` takes, its check of who reaches whom included.
pub(super) fn run(program: &Path, rounds: usize) -> Result<Row> {
    progress(format!("kubernetes: {rounds} labs"));
    let mut times = Vec::new();
    for _ in 0..rounds {
        let begun = Instant::now();
        let came_up = lab(program, &["up", "--kubernetes"]);
        times.push(begun.elapsed().as_secs_f64());
        lab(program, &["down"])?;
        came_up?;
    }
    Ok(Row {
        name: "from nothing to the lab on Kubernetes, warm".into(),
        value: median(times.iter().copied()).unwrap_or(f64::NAN),
        unit: "s",
        noise: None,
        goal: Some(Bound::AtMost(15.0)),
        detail: format!("{rounds} labs, the check of who reaches whom included"),
    })
}

fn lab(program: &Path, arguments: &[&str]) -> Result<()> {
    let what = || format!("{} {}", program.display(), arguments.join(" "));
    let mut command = Command::new(program);
    command.args(["--state-dir", STATE]).args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().context(what())?;
    if status.success() { Ok(()) } else { Err(Error::NotOurs(format!("{}: {status}", what()))) }
}
