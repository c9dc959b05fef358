//! Where a cluster keeps its things: one directory, which is a tmpfs of its own while the cluster runs, so that removing
//! a cluster is unmounting it. It is laid out like a lab's, with more in it.

use juneau_lab::paths::Paths as LabPaths;
use std::path::{Path, PathBuf};

/// The directory of a cluster when none is named.
pub const DEFAULT_DIR: &str = "/run/juneau-cluster";

/// Directories of which each node has its own: what it writes there, the machine does not see. `/run` is empty at first,
/// as on a machine that starts; the others show what the machine has.
pub(crate) const OWN: [&str; 3] = ["etc", "opt", "var"];

/// The paths of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    lab: LabPaths,
}

impl Paths {
    /// The cluster in `dir`, which should be absolute: other processes are told these paths.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { lab: LabPaths::new(dir) }
    }

    /// What it has in common with a lab: namespaces, logs, programs, the lock.
    #[must_use]
    pub fn lab(&self) -> &LabPaths {
        &self.lab
    }

    /// The cluster's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.lab.dir()
    }

    /// The cluster's name, also that of its control groups: the last part of the directory.
    #[must_use]
    pub fn name(&self) -> String {
        self.dir().file_name().map_or_else(|| "juneau-cluster".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// What belongs to the control plane: keys, kubeconfigs, logs, the store.
    #[must_use]
    pub fn control_plane(&self) -> PathBuf {
        self.lab.control_plane()
    }

    /// What the keeper knows, for the other commands.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.lab.state()
    }

    /// A node's network namespace, pinned.
    #[must_use]
    pub fn namespace(&self, node: &str) -> PathBuf {
        self.lab.namespace(node)
    }

    /// The log of a node's namespaces, or, with a name, of one of its programs.
    #[must_use]
    pub fn log(&self, node: &str, program: Option<&str>) -> PathBuf {
        match program {
            Some(program) => self.lab.logs().join(format!("{node}.{program}.log")),
            None => self.lab.log(node),
        }
    }

    /// What belongs to one node.
    #[must_use]
    pub fn node(&self, node: &str) -> PathBuf {
        self.lab.node(node)
    }

    /// Where a node's first process takes orders.
    #[must_use]
    pub fn init_socket(&self, node: &str) -> PathBuf {
        self.node(node).join("init.sock")
    }

    /// What a node has written into one of the directories that are its own.
    #[must_use]
    pub fn written(&self, node: &str, directory: &str) -> PathBuf {
        self.node(node).join("own").join(directory).join("written")
    }

    /// What overlayfs needs beside that.
    pub(crate) fn work(&self, node: &str, directory: &str) -> PathBuf {
        self.node(node).join("own").join(directory).join("work")
    }

    /// What a node has at `/var/lib/NAME`: no overlay, since one cannot have its changes in another.
    #[must_use]
    pub fn library(&self, node: &str, name: &str) -> PathBuf {
        self.node(node).join(name)
    }

    /// The directories that must exist before anything starts.
    #[must_use]
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        vec![self.lab.namespaces(), self.lab.programs(), self.lab.logs(), self.dir().join("nodes")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_clusters_share_nothing() {
        let (one, other) = (Paths::new("/run/juneau-cluster"), Paths::new("/run/juneau-cluster-2"));
        assert_ne!(one.name(), other.name());
        assert_eq!(one.init_socket("node-1"), Path::new("/run/juneau-cluster/nodes/node-1/init.sock"));
        assert_ne!(one.written("node-1", "etc"), one.written("node-2", "etc"));
        assert_eq!(one.log("node-1", Some("kubelet")), Path::new("/run/juneau-cluster/logs/node-1.kubelet.log"));
        assert_eq!(one.log("node-1", None), Path::new("/run/juneau-cluster/logs/node-1.log"));
    }
}
