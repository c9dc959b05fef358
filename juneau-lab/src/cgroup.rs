//! Control groups: one for the lab, below it one a node, below that one for the node's Pods.
//!
//! They are what makes a node's cgroup namespace its own, and they know every process that the lab started, whatever
//! became of the lab's own records.

use crate::error::{Context, LabError, Result};
use crate::process::{Process, wait_until};
use nix::mount::{MsFlags, mount};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A control group of the v2 hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// The group of a lab in the machine's v2 hierarchy, which is mounted at `fallback` when it is mounted nowhere.
    ///
    /// # Errors
    /// [`LabError::NoCgroup`] when the kernel has no such hierarchy.
    pub fn of_lab(name: &str, fallback: &Path) -> Result<Self> {
        if let Some(mounted) = find_mount()? {
            return Ok(Self { path: mounted.join(name) });
        }
        std::fs::create_dir_all(fallback).context(|| format!("creating {}", fallback.display()))?;
        mount(Some("cgroup2"), fallback, Some("cgroup2"), MsFlags::empty(), None::<&str>)
            .map_err(|source| LabError::NoCgroup { source })?;
        Ok(Self { path: fallback.join(name) })
    }

    /// The group of a lab as it may have been left; `None` when there is no v2 hierarchy.
    ///
    /// # Errors
    /// When /proc is not there.
    pub fn left_by(name: &str) -> Result<Option<Self>> {
        Ok(find_mount()?.map(|mounted| Self { path: mounted.join(name) }))
    }

    /// The group at this path.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// A group below this one.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self { path: self.path.join(name) }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn create(&self) -> Result<()> {
        std::fs::create_dir_all(&self.path).context(|| format!("making the control group {}", self.path.display()))
    }

    /// Puts this process into it.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn join(&self) -> Result<()> {
        let file = self.path.join("cgroup.procs");
        std::fs::write(&file, "0").context(|| format!("writing {}", file.display()))
    }

    /// Kills everything in it and below, and removes it. No such group is no error.
    ///
    /// # Errors
    /// When something in it does not end within some seconds.
    pub fn destroy(&self) -> Result<()> {
        if !self.path.exists() {
            return Ok(());
        }
        self.kill();
        let removed = wait_until(Duration::from_secs(10), || {
            remove_tree(&self.path);
            !self.path.exists()
        });
        removed.then_some(()).ok_or_else(|| LabError::Io {
            what: format!("removing the control group {}", self.path.display()),
            source: std::io::ErrorKind::ResourceBusy.into(),
        })
    }

    /// Every process in it and below.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        let mut found = Vec::new();
        collect(&self.path, &mut found);
        found
    }

    fn kill(&self) {
        // Atomic, since 5.14: nothing forks away from it.
        if std::fs::write(self.path.join("cgroup.kill"), "1").is_err() {
            for process in self.processes() {
                // One that cannot be signalled shows when the group cannot be removed.
                process.signal(nix::sys::signal::Signal::SIGKILL).ok();
            }
        }
    }
}

/// Where the machine's v2 hierarchy is mounted.
fn find_mount() -> Result<Option<PathBuf>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").context(|| "reading /proc/self/mountinfo")?;
    Ok(parse_mount(&text))
}

/// The first mount of a whole v2 hierarchy in the text of proc(5) `mountinfo`.
fn parse_mount(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (place, device) = line.split_once(" - ")?;
        let mut fields = place.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (device.starts_with("cgroup2 ") && root == "/").then(|| PathBuf::from(point))
    })
}

fn children(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()).collect()
}

fn collect(path: &Path, found: &mut Vec<Process>) {
    let procs = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    found.extend(procs.lines().filter_map(|line| line.parse().ok()).filter_map(Process::find));
    for child in children(path) {
        collect(&child, found);
    }
}

/// Removes a group and those below it, as far as they are empty.
fn remove_tree(path: &Path) {
    for child in children(path) {
        remove_tree(&child);
    }
    // Busy is normal while processes end; the caller asks again.
    std::fs::remove_dir(path).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_v2_hierarchy_is_found_on_mixed_machines() {
        let mixed = "\
24 1 0:21 / /sys/fs/cgroup rw - tmpfs tmpfs rw
25 24 0:22 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
26 24 0:30 /../.. /elsewhere rw - cgroup2 cgroup2 rw
27 24 0:30 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
";
        assert_eq!(parse_mount(mixed), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(parse_mount("24 1 0:21 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"), None);
    }
}
