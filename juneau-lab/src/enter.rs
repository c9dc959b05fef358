//! Becoming a program inside a node or Pod.

use crate::cgroup::Cgroup;
use crate::error::{LabError, Result};
use crate::namespace;
use crate::paths::Paths;
use crate::state::{Node, Pod};
use nix::sched::CloneFlags;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// What a process enters before it becomes a program. Whatever is not given stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
#[group(id = "namespaces")]
pub struct Enter {
    /// Control group to join first
    #[arg(long)]
    pub cgroup: Option<PathBuf>,
    /// Network namespace
    #[arg(long)]
    pub net: Option<PathBuf>,
    /// Cgroup namespace
    #[arg(long)]
    pub cgroup_namespace: Option<PathBuf>,
    /// Mount namespace
    #[arg(long)]
    pub mount: Option<PathBuf>,
    /// The socket at which the node's agent answers, for its debug commands
    #[arg(long)]
    pub agent_socket: Option<PathBuf>,
}

/// The variable by which `juneau-agent` finds the agent that it should ask.
const AGENT_SOCKET: &str = "JUNEAU_AGENT_SOCKET";

impl Enter {
    /// A node's namespaces.
    #[must_use]
    pub fn node(node: &Node) -> Self {
        Self {
            cgroup: node.cgroup.clone(),
            net: Some(node.netns.clone()),
            cgroup_namespace: node.cgroup.is_some().then(|| node.holder.namespace("cgroup")),
            mount: Some(node.holder.namespace("mnt")),
            agent_socket: Some(node.socket.clone()),
        }
    }

    /// A Pod's network namespace.
    #[must_use]
    pub fn pod(pod: &Pod) -> Self {
        Self { cgroup: pod.cgroup.clone(), net: Some(pod.netns.clone()), ..Self::default() }
    }

    /// The arguments with which `juneau-lab enter` does this.
    #[must_use]
    pub fn arguments(&self) -> Vec<OsString> {
        let parts = [
            ("--cgroup", &self.cgroup),
            ("--net", &self.net),
            ("--cgroup-namespace", &self.cgroup_namespace),
            ("--mount", &self.mount),
            ("--agent-socket", &self.agent_socket),
        ];
        let given = parts.into_iter().filter_map(|(name, path)| Some((name, path.as_ref()?)));
        given.flat_map(|(name, path)| [OsString::from(name), path.clone().into()]).collect()
    }

    /// Enters, and becomes `command`. Returns only if that fails. The process must have one thread.
    ///
    /// # Errors
    /// When anything of it cannot be entered, or there is no such program.
    pub fn exec(&self, paths: &Paths, command: &[OsString]) -> Result<std::convert::Infallible> {
        let [program, arguments @ ..] = command else {
            return Err(LabError::Usage("there is no command to run: put it behind --".to_owned()));
        };
        let directory = std::env::current_dir().ok();
        if let Some(cgroup) = &self.cgroup {
            Cgroup::at(cgroup).join()?;
        }
        // The files of all namespaces are found by paths of the mount namespace that comes last.
        for (path, kind) in [
            (&self.net, CloneFlags::CLONE_NEWNET),
            (&self.cgroup_namespace, CloneFlags::CLONE_NEWCGROUP),
            (&self.mount, CloneFlags::CLONE_NEWNS),
        ] {
            if let Some(path) = path {
                namespace::enter(path, kind)?;
            }
        }
        if let Some(directory) = directory {
            // Entering a mount namespace leads to its root; a directory that is not there is no loss.
            std::env::set_current_dir(directory).ok();
        }
        let mut child = Command::new(program);
        child.args(arguments).env("PATH", search_path(paths));
        if let Some(socket) = &self.agent_socket {
            child.env(AGENT_SOCKET, socket);
        }
        let source = child.exec();
        Err(LabError::Io { what: format!("running {}", program.display()), source })
    }
}

/// Where programs are looked for: first the lab's own, so that `juneau-agent` is the one that runs on the nodes.
#[must_use]
pub fn search_path(paths: &Paths) -> OsString {
    let mut path: OsString = paths.programs().into();
    if let Some(inherited) = std::env::var_os("PATH").filter(|path| !path.is_empty()) {
        path.push(OsStr::new(":"));
        path.push(inherited);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_given_is_entered() {
        let enter = Enter { net: Some("/run/x".into()), ..Enter::default() };
        assert_eq!(enter.arguments(), ["--net", "/run/x"].map(OsString::from));
        assert!(Enter::default().arguments().is_empty());
    }
}
