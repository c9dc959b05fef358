//! Where a lab keeps its things. Everything lies in one directory, which is a tmpfs of its own while the lab runs, so
//! that removing a lab is unmounting it.

use juneau_api::names::bounded;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The directory of a lab when none is named.
pub const DEFAULT_DIR: &str = "/run/juneau-lab";

/// Longest name of a file, in bytes (`NAME_MAX` of limits.h).
const FILE_MAX: usize = 255;
/// Longest path of a socket, in bytes (`sun_path` of unix(7) less the terminating zero).
const SOCKET_MAX: usize = 107;

/// The name of a file for a node or Pod: `red/a` becomes `red_a`, for names of Kubernetes objects have no underscore. A
/// name that is too long is cut, and has a hash.
#[must_use]
pub fn file_name(name: &str) -> String {
    bounded(name.replace('/', "_"), FILE_MAX)
}

/// The file of a node or Pod in `dir`, whose name ends like this and has at most `max` bytes.
fn in_file_name(dir: &Path, name: &str, end: &str, max: usize) -> PathBuf {
    let stem = bounded(name.replace('/', "_"), max.saturating_sub(end.len()));
    dir.join(stem + end)
}

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

    /// The network namespace of a node or Pod.
    #[must_use]
    pub fn namespace(&self, name: &str) -> PathBuf {
        self.namespaces().join(file_name(name))
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
        in_file_name(&self.logs(), name, ".log", FILE_MAX)
    }

    /// What belongs to a node's agent.
    #[must_use]
    pub fn node(&self, node: &str) -> PathBuf {
        // Sockets lie in it.
        let nodes = self.dir.join("nodes");
        let left = SOCKET_MAX.saturating_sub(nodes.as_os_str().as_bytes().len() + "//metrics.sock".len());
        nodes.join(bounded(node.to_owned(), left.min(FILE_MAX)))
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
        let pods = self.dir.join("pods");
        let left = SOCKET_MAX.saturating_sub(pods.as_os_str().as_bytes().len() + "/".len());
        in_file_name(&pods, pod, ".sock", left.min(FILE_MAX))
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
    fn names_near_the_limit_have_files_and_sockets_of_their_own() {
        let (namespace, node) = ("n".repeat(63), "o".repeat(253));
        let pod = |last: &str| format!("{namespace}/{}{last}", "p".repeat(252));
        for dir in ["/l", DEFAULT_DIR, "/tmp/a-directory-as-tests-have-it/with-more/of-it"] {
            let paths = Paths::new(dir);
            let of_pod = |pod: &str| [paths.namespace(pod), paths.log(pod), paths.responder_socket(pod)];
            for (one, other) in of_pod(&pod("a")).iter().zip(of_pod(&pod("b"))) {
                assert_ne!(*one, other);
                let name = one.file_name().unwrap();
                assert!(name.len() <= 255, "{}", one.display());
            }
            assert!(paths.log(&pod("a")).extension().is_some_and(|end| end == "log"));
            for socket in [paths.responder_socket(&pod("a")), paths.agent_socket(&node), paths.metrics_socket(&node)] {
                std::os::unix::net::SocketAddr::from_pathname(&socket).unwrap();
            }
            assert_ne!(paths.node(&node), paths.node(&format!("{}p", "o".repeat(252))));
        }
    }

    #[test]
    fn labs_beside_each_other_share_nothing() {
        let (one, other) = (Paths::new("/run/juneau-lab"), Paths::new("/run/juneau-lab-2"));
        assert_eq!(one.lock(), Path::new("/run/juneau-lab.lock"));
        assert_eq!(other.lock(), Path::new("/run/juneau-lab-2.lock"));
        assert_ne!(one.name(), other.name());
    }
}
