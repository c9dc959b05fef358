//! The agents, by `kubectl exec` into their Pods: they answer on a socket of their node and nowhere else, and whoever may
//! run programs in their Pods may ask them.

use crate::cli::Global;
use crate::error::CliError;
use std::collections::BTreeMap;
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::process::Command;

/// So many bytes of an answer at most.
const MOST: usize = 64 << 20;

/// A way to the agents.
#[derive(Debug, Clone)]
pub struct Agents {
    /// What `kubectl` is told before anything else.
    words: Vec<String>,
    system_namespace: String,
    timeout: Option<Duration>,
    /// The agents' Pods by their nodes.
    pods: BTreeMap<String, String>,
}

impl Agents {
    /// With the same kubeconfig and context as everything else.
    pub(crate) fn new(global: &Global, pods: BTreeMap<String, String>) -> Self {
        let mut words = Vec::new();
        if let Some(path) = &global.kubeconfig {
            words.push(format!("--kubeconfig={}", path.display()));
        }
        if let Some(context) = &global.context {
            words.push(format!("--context={context}"));
        }
        let timeout = Some(global.request_timeout).filter(|timeout| !timeout.is_zero());
        Self { words, system_namespace: global.system_namespace.clone(), timeout, pods }
    }

    /// Nodes that have an agent.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.pods.keys().map(String::as_str)
    }

    /// What `juneau-agent` says to these words on a node.
    ///
    /// # Errors
    /// [`CliError::NoAgent`], [`CliError::MayNotExec`], [`CliError::Agent`] when it refuses, and others that say what
    /// helps.
    pub async fn ask(&self, node: &str, words: &[&str]) -> Result<Vec<u8>, CliError> {
        let namespace = self.system_namespace.as_str();
        let Some(pod) = self.pods.get(node) else {
            return Err(CliError::NoAgent { node: node.to_owned(), namespace: namespace.to_owned() });
        };
        let mut command = Command::new("kubectl");
        command.args(&self.words).args(["-n", namespace, "exec", pod, "-c", "agent", "--", "juneau-agent"]).args(words);
        command.stdin(Stdio::null()).kill_on_drop(true);
        let Output { status, stdout, stderr } = self.within(node, command).await?;
        if status.success() && stdout.len() <= MOST {
            return Ok(stdout);
        }
        let text = String::from_utf8_lossy(&stderr);
        // The last line but what kubectl says about the exit status.
        let mut said = text.lines().rev().map(str::trim).filter(|line| !line.is_empty());
        let last = said.find(|line| !line.starts_with("command terminated with exit code"));
        let last = last.unwrap_or("(nothing)").to_owned();
        if text.contains("Forbidden") || text.contains("is forbidden") {
            return Err(CliError::MayNotExec { namespace: namespace.to_owned(), why: last });
        }
        let why = last.strip_prefix("juneau-agent: ").unwrap_or(&last).to_owned();
        Err(CliError::Agent { node: node.to_owned(), why })
    }

    async fn within(&self, node: &str, mut command: Command) -> Result<Output, CliError> {
        let failed = |why: String| CliError::Agent { node: node.to_owned(), why };
        let answer = command.output();
        let answer = match self.timeout {
            None => answer.await,
            Some(limit) => {
                let late = || failed(format!("no answer within {} s; see --request-timeout", limit.as_secs()));
                tokio::time::timeout(limit, answer).await.map_err(|_| late())?
            }
        };
        answer.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => CliError::NoKubectl,
            _ => failed(error.to_string()),
        })
    }
}
