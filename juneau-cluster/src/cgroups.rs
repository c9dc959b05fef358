//! Control groups, of version 1, of version 2, or of both: a cluster has a group in each hierarchy of the machine, and a
//! node one below it, which is the root of all that the node sees.

use crate::error::{ClusterError, Context, Result};
use juneau_lab::process::{Process, wait_until};
use nix::mount::{MsFlags, mount};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where hierarchies are mounted.
const ROOT: &str = "/sys/fs/cgroup";

/// Where a node's own processes are, in a hierarchy of version 2: there, a group that hands controllers on to groups
/// below it has no processes of its own (cgroup-v2.rst, "No Internal Process Constraint").
const SYSTEM: &str = "system";

/// How long processes may take to end, and their groups to become empty.
const PATIENCE: Duration = Duration::from_secs(10);

/// One hierarchy, as the machine has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    mounted: PathBuf,
    version_2: bool,
    /// What a further mount of it is asked for with.
    options: String,
}

/// A group of one name in every hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    hierarchies: Vec<Hierarchy>,
    /// From the roots of the hierarchies.
    path: PathBuf,
}

impl Groups {
    /// The groups of a cluster.
    ///
    /// # Errors
    /// [`ClusterError::NoCgroups`].
    pub fn of_cluster(name: &str) -> Result<Self> {
        let text = fs::read_to_string("/proc/self/mountinfo").context(|| "reading /proc/self/mountinfo")?;
        let hierarchies = parse(&text);
        if hierarchies.is_empty() {
            return Err(ClusterError::NoCgroups);
        }
        Ok(Self { hierarchies, path: PathBuf::from(name) })
    }

    /// The groups of a node of it.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self { hierarchies: self.hierarchies.clone(), path: self.path.join(name) }
    }

    fn directories(&self) -> impl Iterator<Item = PathBuf> {
        self.hierarchies.iter().map(|hierarchy| hierarchy.mounted.join(&self.path))
    }

    /// Makes them, with all that those above them can hand on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn create(&self) -> Result<()> {
        for hierarchy in &self.hierarchies {
            let mut at = hierarchy.mounted.clone();
            for part in &self.path {
                if self.hands_on(hierarchy) {
                    hand_on(&at)?;
                }
                let above = at.clone();
                at.push(part);
                fs::create_dir_all(&at).on("making the control group", &at)?;
                inherit_processors(&above, &at)?;
            }
            if self.hands_on(hierarchy) {
                let system = at.join(SYSTEM);
                fs::create_dir_all(&system).on("making the control group", &system)?;
            }
        }
        Ok(())
    }

    /// Whether the controllers are those of version 2. Beside hierarchies of version 1 it has none that a kubelet uses.
    fn hands_on(&self, hierarchy: &Hierarchy) -> bool {
        hierarchy.version_2 && self.hierarchies.iter().all(|hierarchy| hierarchy.version_2)
    }

    /// Puts this process into them.
    ///
    /// # Errors
    /// When they do not exist.
    pub fn join(&self) -> Result<()> {
        self.directories().try_for_each(|directory| enter(&directory))
    }

    /// From the groups, into the place for a node's own processes: after a cgroup namespace was made, whose root the
    /// groups are then.
    ///
    /// # Errors
    /// When they do not exist.
    pub fn step_aside(&self) -> Result<()> {
        let aside = self.hierarchies.iter().filter(|hierarchy| self.hands_on(hierarchy));
        aside.map(|hierarchy| hierarchy.mounted.join(&self.path).join(SYSTEM)).try_for_each(|place| enter(&place))
    }

    /// Every process in them and below.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        let mut found = BTreeSet::new();
        for directory in self.directories() {
            collect(&directory, &mut found);
        }
        found.into_iter().filter_map(Process::find).collect()
    }

    /// Kills everything in them and below, and removes them. No such groups are no error.
    ///
    /// # Errors
    /// When something in them does not end within some seconds.
    pub fn destroy(&self) -> Result<()> {
        let removed = wait_until(PATIENCE, || {
            for process in self.processes() {
                // One that cannot be signalled shows when its group cannot be removed.
                process.signal(Signal::SIGKILL).ok();
            }
            self.directories().for_each(|directory| remove(&directory));
            !self.directories().any(|directory| directory.exists())
        });
        removed.then_some(()).ok_or_else(|| ClusterError::Io {
            what: format!("removing the control groups {}", self.path.display()),
            source: std::io::ErrorKind::ResourceBusy.into(),
        })
    }

    /// Mounts all hierarchies again, as they are seen from the cgroup namespace of this process, on a /sys that has none.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn mount_again(&self, links: &[(PathBuf, PathBuf)]) -> Result<()> {
        let nothing = None::<&str>;
        if !self.hierarchies.iter().any(|hierarchy| hierarchy.mounted == Path::new(ROOT)) {
            mount(Some("tmpfs"), ROOT, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
                .context(|| format!("mounting a tmpfs at {ROOT}"))?;
        }
        for hierarchy in &self.hierarchies {
            let (kind, at) = (if hierarchy.version_2 { "cgroup2" } else { "cgroup" }, &hierarchy.mounted);
            if at != Path::new(ROOT) {
                fs::create_dir_all(at).on("creating", at)?;
            }
            let options = (!hierarchy.options.is_empty()).then_some(hierarchy.options.as_str());
            mount(Some(kind), at, Some(kind), MsFlags::empty(), options.or(nothing))
                .on("mounting control groups at", at)?;
        }
        for (link, target) in links {
            std::os::unix::fs::symlink(target, link).on("linking", link)?;
        }
        Ok(())
    }
}

/// Where a node sees the hierarchy of version 2.
///
/// # Errors
/// [`ClusterError::NoCgroups`].
pub fn version_2() -> Result<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").context(|| "reading /proc/self/mountinfo")?;
    let found = parse(&text).into_iter().find(|hierarchy| hierarchy.version_2);
    found.map(|hierarchy| hierarchy.mounted).ok_or(ClusterError::NoCgroups)
}

/// The links between hierarchies: one controller's name for that of several.
///
/// # Errors
/// When there is no such directory.
pub fn links() -> Result<Vec<(PathBuf, PathBuf)>> {
    let root = Path::new(ROOT);
    let entries = fs::read_dir(root).on("reading", root)?;
    Ok(entries.flatten().filter_map(|entry| Some((entry.path(), fs::read_link(entry.path()).ok()?))).collect())
}

/// Puts this process into a group.
fn enter(directory: &Path) -> Result<()> {
    let file = directory.join("cgroup.procs");
    fs::write(&file, "0").on("writing", &file)
}

/// Has a group hand on to those below it whatever it can.
fn hand_on(group: &Path) -> Result<()> {
    let controllers = group.join("cgroup.controllers");
    let text = fs::read_to_string(&controllers).on("reading", &controllers)?;
    let file = group.join("cgroup.subtree_control");
    for controller in text.split_whitespace() {
        fs::write(&file, format!("+{controller}")).on("writing", &file)?;
    }
    Ok(())
}

/// A new group of the controller `cpuset` of version 1 has no processors, and takes no process.
fn inherit_processors(above: &Path, group: &Path) -> Result<()> {
    for name in ["cpuset.cpus", "cpuset.mems"] {
        let (from, to) = (above.join(name), group.join(name));
        let is_empty = fs::read_to_string(&to).is_ok_and(|text| text.trim().is_empty());
        if is_empty
            && let Ok(text) = fs::read(&from)
            && !text.trim_ascii().is_empty()
        {
            fs::write(&to, text).on("writing", &to)?;
        }
    }
    Ok(())
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()).collect()
}

fn collect(directory: &Path, found: &mut BTreeSet<i32>) {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    for child in children(directory) {
        collect(&child, found);
    }
}

/// Removes a group and those below it, as far as they are empty.
fn remove(directory: &Path) {
    for child in children(directory) {
        remove(&child);
    }
    // Busy is normal while processes end; the caller asks again.
    fs::remove_dir(directory).ok();
}

/// The hierarchies that are mounted whole below [`ROOT`], from the text of proc_pid_mountinfo(5).
fn parse(mountinfo: &str) -> Vec<Hierarchy> {
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let ([_, _, device, "/", at, ..], [kind @ ("cgroup" | "cgroup2"), _, options]) = (&left[..], &right[..]) else {
            continue;
        };
        if Path::new(at).starts_with(ROOT) && known.insert((*device).to_owned()) {
            let version_2 = *kind == "cgroup2";
            let options = if version_2 { String::new() } else { options_again(options) };
            found.push(Hierarchy { mounted: PathBuf::from(at), version_2, options });
        }
    }
    found
}

/// What names a hierarchy of version 1, of the options that its mounts show.
fn options_again(shown: &str) -> String {
    let flags = ["rw", "ro", "xattr", "noprefix", "clone_children", "cpuset_v2_mode", "favordynmods"];
    let names = shown.split(',').filter(|option| !flags.contains(option) && !option.starts_with("release_agent="));
    let mut names: Vec<&str> = names.collect();
    if names.iter().all(|name| name.starts_with("name=")) {
        // Without controllers, which has to be said.
        names.insert(0, "none");
    }
    names.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found_once() {
        let mixed = "\
24 1 0:21 / /sys/fs/cgroup rw - tmpfs tmpfs rw
25 24 0:22 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
26 24 0:23 / /sys/fs/cgroup/systemd rw shared:3 - cgroup cgroup rw,xattr,release_agent=/x,name=systemd
27 24 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
28 1 0:30 / /elsewhere rw - cgroup2 cgroup2 rw
29 24 0:31 /../.. /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
";
        let found = parse(mixed);
        let told: Vec<(&str, bool, &str)> =
            found.iter().map(|h| (h.mounted.to_str().unwrap(), h.version_2, &*h.options)).collect();
        assert_eq!(
            told,
            [
                ("/sys/fs/cgroup/cpu,cpuacct", false, "cpu,cpuacct"),
                ("/sys/fs/cgroup/systemd", false, "none,name=systemd"),
                ("/sys/fs/cgroup/unified", true, ""),
            ]
        );
    }

    #[test]
    fn controllers_are_handed_on_where_they_are_all_of_version_2() {
        let unified = "24 1 0:21 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let groups = |text| Groups { hierarchies: parse(text), path: "x".into() };
        let only = groups(unified);
        assert!(only.hands_on(&only.hierarchies[0]));
        let mixed = groups(
            "24 1 0:21 / /sys/fs/cgroup/u rw - cgroup2 c rw\n25 1 0:22 / /sys/fs/cgroup/cpu rw - cgroup c rw,cpu\n",
        );
        assert_eq!(mixed.hierarchies.len(), 2);
        assert!(!mixed.hands_on(&mixed.hierarchies[0]));
    }
}
