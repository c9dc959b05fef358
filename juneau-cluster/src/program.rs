//! Programs that are run to their end.

use crate::error::{ClusterError, Context, Result};
use std::process::{Command, Stdio};

/// Runs a program that must succeed; returns its standard output.
pub(crate) fn succeed(command: &mut Command) -> Result<Vec<u8>> {
    let told = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().context(|| format!("running {told}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("(nothing)").to_owned();
    Err(ClusterError::Program { command: told, status: output.status.to_string(), last })
}
