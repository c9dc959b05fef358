//! The agent as a process on a node, and what lasts a little longer than it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use juneau_agent::protocol::{Attached, CallError, Method, Sandbox, Status, call};
use nix::mount::{MsFlags, mount};

use super::cgroup::{Cgroup, SELF};
use super::manifests;
use crate::cpu;
use crate::error::{Context, Error, Result};
use crate::namespace::Namespace;
use crate::ours::{HERE, Member, PIN_ROOT};

/// Where the directory of the agent lies: in memory, in this process's mount namespace alone.
const DIRECTORY: &str = "/run";
/// Between two questions whether the agent is ready.
const POLL: Duration = Duration::from_millis(20);

/// An agent that is told where everything is, and is not started yet.
pub(super) struct Agent {
    manifests: PathBuf,
    cgroup: Cgroup,
}

impl Agent {
    /// Makes its directory and its cgroup.
    pub(super) fn new() -> Result<Self> {
        const NONE: Option<&str> = None;
        mount(Some("tmpfs"), DIRECTORY, Some("tmpfs"), MsFlags::empty(), NONE).context("mounting a tmpfs")?;
        let manifests = Path::new(DIRECTORY).join("manifests");
        fs::create_dir(&manifests).context("making the manifests' directory")?;
        Ok(Self { manifests, cgroup: Cgroup::new("agent")? })
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
                .arg(self.cgroup.path())
                .stdin(Stdio::piped())
                .spawn()
                .context("starting an agent")
        })?;
        Ok(Running { child, agent: self })
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
        cpu::resident(self.child.id())
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
