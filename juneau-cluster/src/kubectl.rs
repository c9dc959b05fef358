//! kubectl, as the cluster's administrator.

use crate::error::{ClusterError, Context, Result};
use crate::paths::Paths;
use crate::state::State;
use juneau_controlplane::{Program, Programs};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// kubectl and what it is to speak to.
#[derive(Debug, Clone)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

impl Kubectl {
    /// For the cluster at `paths`.
    ///
    /// # Errors
    /// When kubectl is not there and cannot be built.
    pub fn new(paths: &Paths, state: &State) -> Result<Self> {
        let program = Programs::find_or_build(&mut |_| {})?.path(Program::Kubectl);
        Ok(Self { program, kubeconfig: state.kubeconfig.clone(), cache: paths.control_plane().join("kubectl-cache") })
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// It, with these words.
    pub fn command<I: AsRef<std::ffi::OsStr>>(&self, words: impl IntoIterator<Item = I>) -> Command {
        let mut command = Command::new(&self.program);
        // Its cache goes with the cluster.
        command.env("KUBECONFIG", &self.kubeconfig).env("KUBECACHEDIR", &self.cache).args(words);
        command
    }

    /// Runs it, which must succeed; returns its standard output.
    ///
    /// # Errors
    /// With the last that it said.
    pub fn succeed(&self, words: &[&str]) -> Result<Vec<u8>> {
        self.feed(words, &[])
    }

    /// The same, with something on its standard input.
    ///
    /// # Errors
    /// With the last that it said.
    pub fn feed(&self, words: &[&str], input: &[u8]) -> Result<Vec<u8>> {
        let told = format!("kubectl {}", words.join(" "));
        let what = || format!("running {told}");
        let mut command = self.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context(what)?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that has heard enough says why below.
            stdin.write_all(input).ok();
        }
        let output = child.wait_with_output().context(what)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("(nothing)").to_owned();
        Err(ClusterError::Program { command: told, status: output.status.to_string(), last })
    }
}
