//! Operator and agents as processes, started from this very program.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::agent::SELF;
use crate::cpu;
use crate::error::{Context, Result};

/// A process that ends with this value, or when this process does.
pub(super) struct Daemon {
    child: Child,
}

impl Daemon {
    /// The operator under its ServiceAccount; its webhook is where the configuration in `deploy/` has it.
    pub(super) fn operator(kubeconfig: &Path) -> Result<Self> {
        let mut command = Command::new(SELF);
        command.args(["operator", "run", "--log", "warn", "--health-probe-bind-address=127.0.0.1:9081"]);
        // As the Deployment has it.
        command.env("POD_NAMESPACE", "juneau-system").env("MALLOC_ARENA_MAX", "1");
        command.arg("--kubeconfig").arg(kubeconfig);
        Self::start(command, "the operator")
    }

    /// The agent of a node, under a token that is bound to it; in the node's network namespace.
    pub(super) fn agent(node: &str, kubeconfig: &Path, cgroup: &Path) -> Result<Self> {
        let mut command = Command::new(SELF);
        command.args(["agent", "run", "--log", "error", "--underlay", "underlay", "--node", node]);
        command.arg("--kubeconfig").arg(kubeconfig).arg("--cgroup").arg(cgroup);
        command.arg("--socket").arg(socket(node)).arg("--metrics-socket").arg(metrics_socket(node));
        command.arg("--state-dir").arg(state(node)).arg("--pin-dir").arg(pins(node));
        Self::start(command, "an agent")
    }

    fn start(mut command: Command, what: &str) -> Result<Self> {
        let child = command.stdin(Stdio::piped()).spawn().context(format!("starting {what}"))?;
        Ok(Self { child })
    }

    /// Ends it without a word.
    pub(super) fn kill(&mut self) {
        // Both fail only for what is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Bytes of memory in use.
    pub(super) fn resident(&self) -> Result<u64> {
        cpu::resident(self.child.id())
    }

    /// Processor time so far.
    pub(super) fn time(&self) -> Result<Duration> {
        cpu::process_time(self.child.id())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where a node's agent has its files.
pub(super) fn state(node: &str) -> PathBuf {
    Path::new("/run").join(node)
}

/// Where a node's agent pins what it loads.
pub(super) fn pins(node: &str) -> PathBuf {
    Path::new("/sys/fs/bpf").join(node)
}

/// Where a node's agent tells its metrics.
pub(super) fn metrics_socket(node: &str) -> PathBuf {
    state(node).join("metrics.sock")
}

/// Where a node's agent is asked.
pub(super) fn socket(node: &str) -> PathBuf {
    state(node).join("agent.sock")
}
