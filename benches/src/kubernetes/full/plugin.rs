//! The CNI plugin, started as a container runtime starts it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::error::{Context, Error, Result};
use crate::kubernetes::pods::Pod;
use crate::namespace::Namespace;

/// The plugin, and what it is told.
pub(super) struct Plugin {
    program: PathBuf,
    config: Vec<u8>,
}

impl Plugin {
    /// The plugin that asks the agent at a socket.
    pub(super) fn new(program: &Path, socket: &Path) -> Self {
        // The version that has STATUS.
        let config = json!({"cniVersion": "1.1.0", "name": "juneau", "type": "juneau", "socket": socket});
        Self { program: program.to_owned(), config: config.to_string().into_bytes() }
    }

    /// Attaches a Pod; how long the process took, from its start to its end.
    pub(super) fn add(&self, pod: &Pod, namespace: &Namespace) -> Result<Duration> {
        let mut command = self.command("ADD");
        command.env("CNI_CONTAINERID", &pod.name).env("CNI_NETNS", namespace.path()).env("CNI_IFNAME", "eth0");
        let arguments = format!("K8S_POD_NAMESPACE={};K8S_POD_NAME={}", pod.namespace, pod.name);
        self.run(command.env("CNI_ARGS", arguments))
    }

    /// Asks whether Pods can be attached; how long the process took.
    pub(super) fn status(&self) -> Result<Duration> {
        self.run(&mut self.command("STATUS"))
    }

    fn command(&self, order: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().env("CNI_COMMAND", order).env("CNI_PATH", "/opt/cni/bin");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    fn run(&self, command: &mut Command) -> Result<Duration> {
        let what = || format!("running {}", self.program.display());
        let begun = Instant::now();
        let mut child = command.spawn().context(what())?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&self.config).context(what())?;
        }
        let output = child.wait_with_output().context(what())?;
        let took = begun.elapsed();
        let said = || String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() { Ok(took) } else { Err(Error::NotOurs(format!("the CNI plugin: {}", said()))) }
    }
}
