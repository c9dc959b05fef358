//! Where a lab keeps its things. Everything lies in one directory, which is a tmpfs of its own while the lab runs, so
//! that removing a lab is unmounting it.

use std::path::{Path, PathBuf};

/// The directory of a lab when none is named.
pub const DEFAULT_DIR: &str = "/run/juneau-lab";

/// The paths of one lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    dir: PathBuf,
}

impl Paths {
    /// The lab in `dir`, which should be absolute: other processes are told these paths.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The lab's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The lab's name, also that of its control group: the last part of the directory.
    #[must_use]
    pub fn name(&self) -> String {
        self.dir.file_name().map_or_else(|| "juneau-lab".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// The lock that `up` and `down` hold. It lies beside the directory, because the directory comes and goes.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.dir.with_file_name(format!("{}.lock", self.name()))
    }

    /// What the supervisor knows, for the other commands.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.dir.join("state.json")
    }

    /// The manifests that agents and supervisor follow.
    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        self.dir.join("manifests")
    }

    /// Pinned network namespaces.
    #[must_use]
    pub fn namespaces(&self) -> PathBuf {
        self.dir.join("netns")
    }

    /// The network namespace of the underlay, of a node, or of a Pod (`red/a` becomes `red_a`: names of Kubernetes
    /// objects have no underscore).
    #[must_use]
    pub fn namespace(&self, name: &str) -> PathBuf {
        self.namespaces().join(name.replace('/', "_"))
    }

    /// The underlay's network namespace. The leading dot is in no node's name.
    #[must_use]
    pub fn underlay(&self) -> PathBuf {
        self.namespaces().join(".underlay")
    }

    /// Links to this program by the names under which it is run.
    #[must_use]
    pub fn programs(&self) -> PathBuf {
        self.dir.join("bin")
    }

    /// Logs, one file a process.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    /// The log of one process.
    #[must_use]
    pub fn log(&self, name: &str) -> PathBuf {
        self.logs().join(format!("{}.log", name.replace('/', "_")))
    }

    /// What belongs to a node's agent.
    #[must_use]
    pub fn node(&self, node: &str) -> PathBuf {
        self.dir.join("nodes").join(node)
    }

    /// The agent's socket.
    #[must_use]
    pub fn agent_socket(&self, node: &str) -> PathBuf {
        self.node(node).join("agent.sock")
    }

    /// The agent's metrics socket.
    #[must_use]
    pub fn metrics_socket(&self, node: &str) -> PathBuf {
        self.node(node).join("metrics.sock")
    }

    /// What the agent keeps over restarts.
    #[must_use]
    pub fn agent_state(&self, node: &str) -> PathBuf {
        self.node(node).join("state")
    }

    /// The supervisor's socket.
    #[must_use]
    pub fn supervisor_socket(&self) -> PathBuf {
        self.dir.join("supervisor.sock")
    }

    /// The socket at which a Pod's responder takes orders.
    #[must_use]
    pub fn responder_socket(&self, pod: &str) -> PathBuf {
        self.dir.join("pods").join(format!("{}.sock", pod.replace('/', "_")))
    }

    /// What belongs to the control plane: keys, kubeconfigs, logs, the store.
    #[must_use]
    pub fn control_plane(&self) -> PathBuf {
        self.dir.join("kubernetes")
    }

    /// What is applied to an API server before anything else.
    #[must_use]
    pub fn deploy(&self) -> PathBuf {
        self.control_plane().join("deploy.json")
    }

    /// Where a cgroup v2 hierarchy is mounted when the machine has none.
    #[must_use]
    pub fn cgroup_mount(&self) -> PathBuf {
        self.dir.join("cgroup")
    }

    /// The directories that must exist before anything starts.
    #[must_use]
    pub fn directories(&self) -> Vec<PathBuf> {
        vec![
            self.manifests(),
            self.namespaces(),
            self.programs(),
            self.logs(),
            self.dir.join("nodes"),
            self.dir.join("pods"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_files_are_one_level_deep() {
        let paths = Paths::new(DEFAULT_DIR);
        assert_eq!(paths.namespace("red/a"), Path::new("/run/juneau-lab/netns/red_a"));
        assert_eq!(paths.responder_socket("red/a"), Path::new("/run/juneau-lab/pods/red_a.sock"));
        assert_eq!(paths.log("red/a"), Path::new("/run/juneau-lab/logs/red_a.log"));
    }

    #[test]
    fn labs_beside_each_other_share_nothing() {
        let (one, other) = (Paths::new("/run/juneau-lab"), Paths::new("/run/juneau-lab-2"));
        assert_eq!(one.lock(), Path::new("/run/juneau-lab.lock"));
        assert_eq!(other.lock(), Path::new("/run/juneau-lab-2.lock"));
        assert_ne!(one.name(), other.name());
    }
}
