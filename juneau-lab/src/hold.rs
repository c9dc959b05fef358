//! A node's holder: a process that does nothing but keep the node's namespaces, whatever becomes of its agent.

use crate::cgroup::Cgroup;
use crate::error::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use std::io::Write;
use std::path::PathBuf;

/// Makes a node's namespaces and holds them until it is killed. Writes a line to standard output when they are there.
/// The process must have one thread.
///
/// # Errors
/// When the kernel refuses.
pub fn run(cgroup: Option<PathBuf>) -> Result<std::convert::Infallible> {
    let mut kinds = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
    if let Some(cgroup) = &cgroup {
        // Joined first: the group of the moment becomes the root of the new cgroup namespace.
        Cgroup::at(cgroup).join()?;
        kinds |= CloneFlags::CLONE_NEWCGROUP;
    }
    unshare(kinds).context(|| "making a node's namespaces")?;
    // What is mounted outside later (Pods' namespaces) comes in, what is mounted here stays here.
    let nothing = None::<&str>;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_SLAVE, nothing)
        .context(|| "cutting a node's mounts off")?;
    // A sysfs shows the devices of the network namespace in which it was mounted; what lies below the old one (bpffs,
    // cgroups) belongs to the machine.
    umount2("/sys", MntFlags::MNT_DETACH).context(|| "taking the machine's /sys away from a node")?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), nothing).context(|| "mounting a node's /sys")?;
    mount(Some("bpf"), "/sys/fs/bpf", Some("bpf"), MsFlags::empty(), nothing)
        .context(|| "mounting a node's bpffs at /sys/fs/bpf")?;
    if cgroup.is_some() {
        mount(Some("cgroup2"), "/sys/fs/cgroup", Some("cgroup2"), MsFlags::empty(), nothing)
            .context(|| "mounting a node's control groups at /sys/fs/cgroup")?;
    }
    let mut out = std::io::stdout();
    writeln!(out, "ready").and_then(|()| out.flush()).context(|| "saying that the node is there")?;
    loop {
        nix::unistd::pause();
    }
}
