//! The agent as a process on a node, and what lasts a little longer than it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use juneau_agent::protocol::{Attached, CallError, Method, Sandbox, Status, call};
use nix::mount::{MsFlags, mount};

use super::manifests;
use crate::error::{Context, Error, Result};
use crate::namespace::Namespace;
use crate::ours::{HERE, Member, PIN_ROOT};

/// Where the directory of the agent lies: in memory, in this process's mount namespace alone.
const DIRECTORY: &str = "/run";
const SELF: &str = "/proc/self/exe";
/// Between two questions whether the agent is ready.
const POLL: Duration = Duration::from_millis(20);

/// An agent that is told where everything is, and is not started yet.
pub(super) struct Agent {
    manifests: PathBuf,
    cgroup: PathBuf,
    sweeper: Option<Child>,
}

impl Agent {
    /// Makes its directory and its cgroup. The cgroup is removed by a process that notices our end, whatever that is.
    pub(super) fn new() -> Result<Self> {
        const NONE: Option<&str> = None;
        mount(Some("tmpfs"), DIRECTORY, Some("tmpfs"), MsFlags::empty(), NONE).context("mounting a tmpfs")?;
        let manifests = Path::new(DIRECTORY).join("manifests");
        fs::create_dir(&manifests).context("making the manifests' directory")?;
        let root = juneau_agent::cgroup::root().map_err(Error::Missing)?;
        let cgroup = root.join(format!("juneau-benches-{}", std::process::id()));
        let sweeper = Command::new(SELF)
            .arg("sweep")
            .arg(&cgroup)
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("starting the process that cleans up")?;
        let agent = Self { manifests, cgroup, sweeper: Some(sweeper) };
        fs::create_dir(&agent.cgroup).context("making a cgroup")?;
        Ok(agent)
    }

    /// Where its manifests are.
    pub(super) fn manifests(&self) -> &Path {
        &self.manifests
    }

    /// Starts it on a node.
    pub(super) fn start(self, node: &Namespace) -> Result<Running> {
        let child = node.run(|| {
            Command::new(SELF)
                .args(["agent", "run", "--node", HERE, "--log", "error", "--underlay", "underlay"])
                .arg("--manifests")
                .arg(&self.manifests)
                .arg("--cgroup")
                .arg(&self.cgroup)
                .stdin(Stdio::piped())
                .spawn()
                .context("starting an agent")
        })?;
        Ok(Running { child, agent: self })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(mut sweeper) = self.sweeper.take() {
            drop(sweeper.stdin.take());
            let _ = sweeper.wait();
        }
    }
}

/// An agent that runs.
pub(super) struct Running {
    child: Child,
    agent: Agent,
}

impl Running {
    /// Where its manifests are.
    pub(super) fn manifests(&self) -> &Path {
        self.agent.manifests()
    }

    /// Where its maps are pinned.
    pub(super) fn pins(&self) -> &'static Path {
        const DIRECTORY: &str = "/sys/fs/bpf/juneau";
        debug_assert!(DIRECTORY.starts_with(PIN_ROOT));
        Path::new(DIRECTORY)
    }

    /// Waits until all objects are programmed.
    pub(super) fn await_ready(&self, patience: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            let status: std::result::Result<Status, CallError> = self.ask(&Method::Status);
            match status {
                Ok(status) if status.ready && status.settled => return Ok(()),
                // Somebody must ask: the socket is not there yet, or the agent does not tell when it is ready.
                _ if start.elapsed() < patience => thread::sleep(POLL),
                Ok(status) => return Err(Error::NotOurs(format!("the agent is not ready: {:?}", status.problems))),
                Err(error) => return Err(Error::NotOurs(error.to_string())),
            }
        }
    }

    /// Attaches a Pod.
    pub(super) fn attach(&self, pod: &Namespace, member: &Member) -> Result<()> {
        let (namespace, name) = manifests::pod(member);
        let sandbox =
            Sandbox { namespace, name, netns: pod.path(), container_id: "benchmark".into(), ..Sandbox::default() };
        let attached: std::result::Result<Attached, CallError> = self.ask(&Method::Attach(sandbox));
        attached.map(drop).map_err(|error| Error::NotOurs(error.to_string()))
    }

    /// Bytes of memory that the agent has in use.
    pub(super) fn resident(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(&path).context(format!("reading {path}"))?;
        parse_resident(&status).ok_or_else(|| Error::Missing(format!("VmRSS in {path}")))
    }

    fn ask<T: serde::de::DeserializeOwned>(&self, method: &Method) -> std::result::Result<T, CallError> {
        call(Path::new(juneau_agent::options::SOCKET), method, Duration::from_secs(20))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `VmRSS` of `/proc/PID/status`, in kibibytes there.
fn parse_resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Waits until whoever started this process is gone, then removes a cgroup.
///
/// # Errors
/// [`Error::Io`] when somebody still is in the cgroup.
pub fn sweep(cgroup: &Path) -> Result<()> {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    match fs::remove_dir(cgroup) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).context("removing a cgroup"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory() {
        assert_eq!(parse_resident("Name:\tx\nVmHWM:\t  9 kB\nVmRSS:\t  2048 kB\n"), Some(2 << 20));
        assert_eq!(parse_resident("Name:\tx\n"), None);
    }
}
