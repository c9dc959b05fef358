//! Removing a lab, in whatever state it is: from what it recorded, and from what is there.

use crate::cgroup::Cgroup;
use crate::error::{Context, LabError, Result};
use crate::namespace::unmount_below;
use crate::paths::Paths;
use crate::process::{find_by_arguments, kill_all};
use crate::state::State;
use std::path::Path;
use std::time::Duration;

/// How long processes may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The lab's commands that run in the background.
const BACKGROUND: [&str; 5] = ["supervise", "hold", "enter", "responder", "run"];

/// Removes everything of the lab at `paths`: processes, control groups, mounts with all that hangs on them (network
/// namespaces, their devices, bpffs, its pins and programs), and the directory. Nothing there is no error.
///
/// # Errors
/// When the kernel refuses, or the directory holds what is not the lab's.
pub fn teardown(paths: &Paths) -> Result<()> {
    // A state that cannot be read is no obstacle: the rest finds everything, too.
    let recorded = State::read(paths).ok().flatten().map(|state| state.processes()).unwrap_or_default();
    if let Some(supervisor) = recorded.first() {
        // First and alone, since it starts again what ends.
        kill_all(&[*supervisor], PATIENCE)?;
    }
    kill_all(&recorded, PATIENCE)?;
    kill_all(&find_by_arguments(|arguments| is_ours(arguments, paths.dir())), PATIENCE)?;
    let left = [Cgroup::left_by(&paths.name())?, Some(Cgroup::at(paths.cgroup_mount().join(paths.name())))];
    for cgroup in left.into_iter().flatten() {
        cgroup.destroy()?;
    }
    unmount_below(paths.dir())?;
    match std::fs::remove_dir(paths.dir()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => Err(LabError::Usage(format!(
            "{} holds files that are not the lab's; name another directory with --state-dir, or remove them",
            paths.dir().display()
        ))),
        removed => removed.context(|| format!("removing {}", paths.dir().display())),
    }
}

/// Whether a command line is that of a background process of the lab in `dir`.
fn is_ours(arguments: &[String], dir: &Path) -> bool {
    let program = arguments.first().and_then(|program| Path::new(program).file_name()).unwrap_or_default();
    ["juneau-lab", "juneau-agent", "juneau-operator"].iter().any(|ours| program == *ours)
        && arguments.iter().any(|argument| Path::new(argument).starts_with(dir))
        && arguments.iter().any(|argument| BACKGROUND.contains(&argument.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(line: &str) -> bool {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        is_ours(&arguments, Path::new("/run/juneau-lab"))
    }

    #[test]
    fn only_background_processes_of_this_lab_are_found() {
        assert!(ours("/run/juneau-lab/bin/juneau-lab --state-dir /run/juneau-lab hold --cgroup /sys/fs/cgroup/x"));
        assert!(ours("juneau-agent run --node n --manifests /run/juneau-lab/manifests"));
        assert!(ours("juneau-operator run --directory /run/juneau-lab/manifests --underlay-mtu 1500"));
        assert!(!ours("juneau-agent run --node n --manifests /run/juneau-lab-2/manifests"), "another lab's");
        assert!(!ours("juneau-operator run --directory /run/juneau-lab-2/manifests"), "another lab's");
        assert!(!ours("juneau-lab --state-dir /run/juneau-lab status"), "a command of somebody's");
        assert!(!ours("vi /run/juneau-lab/manifests/run"));
    }
}
