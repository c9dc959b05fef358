//! A place for pins that nobody else sees and that vanishes with the process.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::error::{Context, Result};

/// Where the bpffs is mounted, in this process alone.
pub const PIN_ROOT: &str = "/sys/fs/bpf";

/// Gives the process a mount namespace of its own with an empty bpffs. Threads that exist already do not follow.
///
/// # Errors
/// [`crate::error::Error::Io`] without the right to do so.
pub fn mount_pins() -> Result<()> {
    const NONE: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS).context("a mount namespace cannot be made (the benchmarks need root)")?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).context("keeping mounts private")?;
    mount(Some("bpf"), PIN_ROOT, Some("bpf"), MsFlags::empty(), NONE).context("mounting a bpffs")
}

/// A directory that no other data path of this process uses.
pub(super) fn next() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    PathBuf::from(format!("{PIN_ROOT}/juneau-{}", NUMBER.fetch_add(1, Ordering::Relaxed)))
}
