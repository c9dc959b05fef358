//! Removing a cluster, in whatever state it is.

use crate::cgroups::Groups;
use crate::error::{ClusterError, Context, Result};
use crate::paths::Paths;
use juneau_lab::namespace::unmount_below;
use juneau_lab::process::{find_by_arguments, kill_all};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// How long processes may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The commands that run in the background. The keeper comes first: what it started ends with it.
const BACKGROUND: [&str; 3] = ["keep", "hold", "init"];

/// Removes everything of the cluster at `paths`: processes, control groups, mounts with all that hangs on them, and the
/// directory. Nothing there is no error.
///
/// # Errors
/// When the kernel refuses, or the directory holds what is not the cluster's.
pub fn teardown(paths: &Paths) -> Result<()> {
    for command in BACKGROUND {
        kill_all(&find_by_arguments(|arguments| is_ours(arguments, command, paths.dir())), PATIENCE)?;
    }
    // It ends with its keeper, but not in the same moment.
    kill_all(&find_by_arguments(|arguments| is_control_plane(arguments, &paths.control_plane())), PATIENCE)?;
    match Groups::of_cluster(&paths.name()) {
        Ok(groups) => groups.destroy()?,
        Err(ClusterError::NoCgroups) => {}
        Err(error) => return Err(error),
    }
    unmount_below(paths.dir())?;
    match std::fs::remove_dir(paths.dir()) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Err(ClusterError::Usage(format!(
            "{} holds files that are not the cluster's; name another directory with --state-dir, or remove them",
            paths.dir().display()
        ))),
        removed => removed.on("removing", paths.dir()),
    }
}

/// Whether a command line is that of this background process of the cluster in `dir`.
fn is_ours(arguments: &[String], command: &str, dir: &Path) -> bool {
    let program = arguments.first().and_then(|program| Path::new(program).file_name()).unwrap_or_default();
    program == "juneau-cluster"
        && arguments.iter().any(|argument| Path::new(argument) == dir)
        && arguments.iter().any(|argument| argument == command)
}

/// Whether a command line is that of a program of the control plane whose things are in `dir`.
fn is_control_plane(arguments: &[String], dir: &Path) -> bool {
    let program = arguments.first().and_then(|program| Path::new(program).file_name()).unwrap_or_default();
    let known = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];
    let names = |argument: &String| argument.split_once('=').is_some_and(|(_, path)| Path::new(path).starts_with(dir));
    known.iter().any(|known| program == *known) && arguments.iter().any(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_background_processes_of_this_cluster_are_found() {
        let ours = |line: &str, command: &str| {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            is_ours(&arguments, command, Path::new("/run/juneau-cluster"))
        };
        let line = "/run/juneau-cluster/bin/juneau-cluster --state-dir /run/juneau-cluster hold --node node-1";
        assert!(ours(line, "hold"));
        assert!(!ours(line, "init"));
        assert!(!ours("juneau-cluster --state-dir /run/juneau-cluster-2 hold --node node-1", "hold"), "another's");
        assert!(!ours("juneau-cluster --state-dir /run/juneau-cluster down", "hold"), "a command of somebody's");
        assert!(!ours("vi /run/juneau-cluster hold", "hold"));
    }

    #[test]
    fn only_this_clusters_control_plane_is_found() {
        let ours = |line: &str| {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            is_control_plane(&arguments, Path::new("/run/juneau-cluster/kubernetes"))
        };
        assert!(ours(
            "/usr/bin/etcd --data-dir=/run/juneau-cluster/kubernetes/etcd --listen-client-urls=http://127.0.0.1:2379"
        ));
        assert!(!ours("/usr/bin/etcd --data-dir=/run/juneau-cluster-2/kubernetes/etcd"));
        assert!(!ours("vi --file=/run/juneau-cluster/kubernetes/etcd.log"));
    }
}
