//! Processes that the lab started, told from strangers that were given the same number later.

use crate::error::{Context, LabError, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A process: its number, and when it started, which together name it as long as the machine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Start time, in clock ticks since the machine started (field 22 of proc(5) `stat`).
    pub start: u64,
}

impl Process {
    /// The process with this id, if it runs. A zombie does not run.
    #[must_use]
    pub fn find(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (state, start) = parse_stat(&stat)?;
        (state != 'Z' && state != 'X').then_some(Self { pid, start })
    }

    /// This process itself.
    ///
    /// # Errors
    /// When /proc is not there.
    pub fn this() -> Result<Self> {
        let pid = Pid::this().as_raw();
        Self::find(pid).ok_or_else(|| LabError::Io {
            what: format!("reading /proc/{pid}/stat"),
            source: std::io::ErrorKind::NotFound.into(),
        })
    }

    /// Whether it still runs.
    #[must_use]
    pub fn runs(&self) -> bool {
        Self::find(self.pid) == Some(*self)
    }

    /// Sends a signal, if it still runs.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        if !self.runs() {
            return Ok(());
        }
        match kill(Pid::from_raw(self.pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error).context(|| format!("sending {signal} to process {}", self.pid)),
        }
    }

    /// Its namespace of this kind: `net`, `mnt` or `cgroup`.
    #[must_use]
    pub fn namespace(&self, kind: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/{kind}", self.pid))
    }
}

/// State and start time from the text of proc(5) `stat`. The name, in parentheses, may hold anything.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    // The state is field 3, the start time field 22.
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

/// Kills processes and waits until they are gone.
///
/// # Errors
/// When one cannot be signalled, or is still there after `timeout`.
pub fn kill_all(processes: &[Process], timeout: Duration) -> Result<()> {
    for process in processes {
        process.signal(Signal::SIGKILL)?;
    }
    wait_until(timeout, || !processes.iter().any(Process::runs)).then_some(()).ok_or_else(|| LabError::Io {
        what: format!("waiting for the end of processes {:?}", processes.iter().map(|p| p.pid).collect::<Vec<_>>()),
        source: std::io::ErrorKind::TimedOut.into(),
    })
}

/// Asks again every few milliseconds until `condition` holds; for what the kernel does not announce. Returns whether
/// it came to hold.
pub fn wait_until(timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + timeout;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All processes whose command line has an argument for which `mine` is true. The way to find what an earlier lab left
/// when there is neither a state file nor a control group.
#[must_use]
pub fn find_by_arguments(mine: impl Fn(&[String]) -> bool) -> Vec<Process> {
    let this = Pid::this().as_raw();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != this)
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let arguments: Vec<String> =
                line.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
            mine(&arguments)
        })
        .filter_map(Process::find)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn names_with_parentheses_and_spaces() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 0 0 0 0 1 2 0 0 20 0 1 0 4711 0 0";
        assert_eq!(parse_stat(stat), Some(('S', 4711)));
        assert_eq!(parse_stat("7 (cut"), None);
    }

    #[test]
    fn a_stranger_with_the_same_number_is_left_alone() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::find(child.id() as i32).unwrap();
        let stranger = Process { start: process.start + 1, ..process };
        assert!(!stranger.runs());
        stranger.signal(Signal::SIGKILL).unwrap();
        assert!(process.runs());
        process.signal(Signal::SIGKILL).unwrap();
        assert!(wait_until(Duration::from_secs(5), || !process.runs()), "a zombie does not run");
        child.wait().unwrap();
        kill_all(&[process, stranger], Duration::from_secs(1)).unwrap();
    }
}
