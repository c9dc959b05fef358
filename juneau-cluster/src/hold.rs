//! A node's namespaces, and what is mounted in them: made by a process that then starts the node's first process and ends
//! with it.

use crate::cgroups::{Groups, links};
use crate::error::{ClusterError, Context, Result};
use crate::paths::{OWN, Paths};
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a node has of its own at `/var/lib`: images and containers, and what a kubelet keeps.
pub(crate) const LIBRARIES: [&str; 2] = ["containerd", "kubelet"];

/// Settings of the kernel that are the machine's, which a kubelet sets nevertheless, with the values that it wants. In a
/// node they are plain files.
const SETTINGS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

const NOTHING: Option<&str> = None;

/// Makes the namespaces of a node, starts `juneau-cluster init` as the first process in them, and waits until that has
/// ended. The process must have one thread.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn run(paths: &Paths, node: &str) -> Result<std::convert::Infallible> {
    prctl::set_pdeathsig(Signal::SIGKILL).context(|| "asking for the end together with the starter")?;
    let groups = Groups::of_cluster(&paths.name())?.child(node);
    groups.create()?;
    // The groups of the moment become the root of the new cgroup namespace.
    groups.join()?;
    let kinds = CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP
        // Of children only: this process stays outside.
        | CloneFlags::CLONE_NEWPID;
    unshare(kinds).context(|| format!("making the namespaces of node {node}"))?;
    groups.step_aside()?;
    let hostname = Path::new("/proc/sys/kernel/hostname");
    fs::write(hostname, node).on("writing", hostname)?;
    make_mounts(paths, node, &groups)?;
    let program = paths.lab().programs().join("juneau-cluster");
    let mut init = Command::new(&program);
    init.arg("--state-dir").arg(paths.dir()).args(["init", "--node", node]).current_dir("/");
    let status = init.status().on("running", &program)?;
    Err(ClusterError::Refused { node: node.to_owned(), message: format!("its first process ended ({status})") })
}

fn make_mounts(paths: &Paths, node: &str, groups: &Groups) -> Result<()> {
    // What is mounted outside later comes in, what is mounted here stays here, and Pods may have a share in it.
    for (propagation, what) in [(MsFlags::MS_SLAVE, "cutting off"), (MsFlags::MS_SHARED, "sharing")] {
        mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | propagation, NOTHING)
            .context(|| format!("{what} the mounts of node {node}"))?;
    }
    // A sysfs shows the devices of the network namespace in which it was mounted; what lies below the old one belongs to
    // the machine.
    let links = links()?;
    umount2("/sys", MntFlags::MNT_DETACH).context(|| format!("taking the machine's /sys away from node {node}"))?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), NOTHING).context(|| "mounting a node's /sys")?;
    groups.mount_again(&links)?;
    mount(Some("bpf"), "/sys/fs/bpf", Some("bpf"), MsFlags::empty(), NOTHING)
        .context(|| "mounting a node's /sys/fs/bpf")?;
    for directory in OWN {
        cover(paths, Path::new("/").join(directory), |at| {
            let (written, work) = (paths.written(node, directory), paths.work(node, directory));
            for dir in [&written, &work] {
                fs::create_dir_all(dir).on("creating", dir)?;
            }
            let options =
                format!("lowerdir={},upperdir={},workdir={}", at.display(), written.display(), work.display());
            mount(Some("overlay"), at, Some("overlay"), MsFlags::empty(), Some(options.as_str()))
                .on("mounting an overlay at", at)
        })?;
    }
    cover(paths, PathBuf::from("/run"), |at| {
        mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some("mode=755")).on("mounting a tmpfs at", at)
    })?;
    for library in LIBRARIES {
        let (from, to) = (paths.library(node, library), Path::new("/var/lib").join(library));
        for dir in [&from, &to] {
            fs::create_dir_all(dir).on("creating", dir)?;
        }
        mount(Some(&from), &to, NOTHING, MsFlags::MS_BIND, NOTHING).on("mounting", &to)?;
    }
    Ok(())
}

/// Mounts something over a directory, and makes the cluster's own one be seen nevertheless where that lies below.
fn cover(paths: &Paths, at: PathBuf, mounting: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let dir = paths.dir();
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let held = open(dir, flags, Mode::empty()).on("opening", dir)?;
    mounting(&at)?;
    if !dir.starts_with(&at) {
        return Ok(());
    }
    fs::create_dir_all(dir).on("creating", dir)?;
    // A file that is open leads to what it was opened as, whatever is in its place now.
    let source = format!("/proc/self/fd/{}", held.as_raw_fd());
    mount(Some(source.as_str()), dir, NOTHING, MsFlags::MS_BIND | MsFlags::MS_REC, NOTHING).on("mounting", dir)
}

/// The rest, from within the process namespace: processes as the node has them, and the machine's settings put away.
pub(crate) fn hide_settings(paths: &Paths, node: &str) -> Result<()> {
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), NOTHING).context(|| "mounting a node's /proc")?;
    let folder = paths.node(node).join("settings");
    fs::create_dir_all(&folder).on("creating", &folder)?;
    for (name, value) in SETTINGS {
        let (file, setting) = (folder.join(name.replace('/', ".")), Path::new("/proc/sys").join(name));
        fs::write(&file, format!("{value}\n")).on("writing", &file)?;
        mount(Some(&file), &setting, NOTHING, MsFlags::MS_BIND, NOTHING).on("mounting", &setting)?;
    }
    Ok(())
}
