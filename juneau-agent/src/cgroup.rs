//! Where the cgroup2 hierarchy is mounted.

use std::path::PathBuf;

/// The root of the cgroup2 mount, as the agent's own namespaces show it.
///
/// # Errors
/// The message says what is missing.
pub fn root() -> Result<PathBuf, String> {
    let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo")
        .map_err(|error| format!("/proc/thread-self/mountinfo: {error}"))?;
    find(&mounts).ok_or_else(|| "no cgroup2 file system is mounted".to_owned())
}

/// The mount point of a cgroup2 hierarchy's root (proc_pid_mountinfo(5)): of the last mount that shows `/`, else of
/// the last that shows anything. A mount from outside the cgroup namespace shows a root above it (`/../..`).
fn find(mountinfo: &str) -> Option<PathBuf> {
    let mut best: Option<(bool, PathBuf)> = None;
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        if right.split(' ').next() != Some("cgroup2") {
            continue;
        }
        let mut fields = left.split(' ').skip(3);
        let (Some(root), Some(point)) = (fields.next(), fields.next()) else { continue };
        let own = root == "/";
        if best.as_ref().is_none_or(|(best_own, _)| own >= *best_own) {
            best = Some((own, PathBuf::from(unescape(point))));
        }
    }
    best.map(|(_, point)| point)
}

/// Space, tab, newline and backslash are written as three octal digits.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_root_is_preferred() {
        let host = "41 31 0:38 /../.. /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
        let own = "42 31 0:38 / /run/cg\\040roup rw - cgroup2 none rw\n";
        let other = "43 31 0:38 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        assert_eq!(find(other), None);
        assert_eq!(find(host), Some("/sys/fs/cgroup/unified".into()));
        for text in [format!("{host}{own}{other}"), format!("{own}{host}")] {
            assert_eq!(find(&text), Some("/run/cg roup".into()));
        }
    }
}
