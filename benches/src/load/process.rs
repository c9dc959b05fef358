//! Client and server as processes inside a path's namespaces.

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{Load, Outcome};
use crate::cpu::ProcessId;
use crate::error::{Context, Error, Result};
use crate::namespace::Namespace;

/// This program, whatever its file is called by now.
const SELF: &str = "/proc/self/exe";

/// A server process; it ends with this value, or with this process.
pub struct Server {
    child: Child,
    /// For reading its processor time.
    pub pid: ProcessId,
}

impl Server {
    /// Starts a server on `cpu` inside a namespace and waits until it is ready.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be started, [`Error::Missing`] when it ends at once.
    pub fn start(namespace: &Namespace, cpu: usize) -> Result<Self> {
        let mut child = namespace.run(|| {
            Command::new(SELF)
                .args(["serve", "--cpu", &cpu.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .context("starting a server")
        })?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line).context("waiting for a server")?;
        }
        let pid = i32::try_from(child.id()).ok().and_then(ProcessId::new);
        match pid {
            Some(pid) if line == "ready\n" => Ok(Self { child, pid }),
            _ => {
                let _ = child.wait();
                Err(Error::Missing("server that is ready".into()))
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Runs a client on `cpu` inside a namespace to its end.
///
/// # Errors
/// [`Error::Load`] when it fails or says no result.
pub fn run_in(
    namespace: &Namespace,
    path: &str,
    load: Load,
    host: Ipv4Addr,
    time: Duration,
    cpu: usize,
) -> Result<Outcome> {
    let output = namespace.run(|| {
        Command::new(SELF)
            .args(["load", &format!("{load:?}").to_lowercase()])
            .args(["--host", &host.to_string(), "--cpu", &cpu.to_string()])
            .args(["--milliseconds", &time.as_millis().to_string()])
            .stdin(Stdio::null())
            .output()
            .context("starting a client")
    })?;
    let failure = |what: String| Error::Load { load: load.name().into(), path: path.into(), what };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failure(format!("{}: {}", output.status, said.trim())));
    }
    let outcome: Outcome = serde_json::from_slice(&output.stdout).map_err(|error| failure(error.to_string()))?;
    if outcome.count == 0 || outcome.failed * 100 > outcome.count {
        return Err(failure(format!("{} done, {} failed", outcome.count, outcome.failed)));
    }
    Ok(outcome)
}
