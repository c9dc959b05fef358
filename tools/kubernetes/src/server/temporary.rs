//! Directories for control planes that nobody wants to look at afterwards.

use crate::error::{Context, Result};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

const PREFIX: &str = "juneau-controlplane-";

/// A directory for a control plane of this process, in memory where there is one: etcd waits until each write is on
/// the disk. What processes that were killed left there is removed.
pub(super) fn dir(address: Ipv4Addr) -> Result<PathBuf> {
    use nix::sys::statfs::{TMPFS_MAGIC, statfs};
    let memory = Path::new("/dev/shm");
    let parent = match statfs(memory) {
        Ok(found) if found.filesystem_type() == TMPFS_MAGIC => memory.to_owned(),
        _ => std::env::temp_dir(),
    };
    sweep(&parent)?;
    Ok(parent.join(format!("{PREFIX}{}-{address}", std::process::id())))
}

fn sweep(parent: &Path) -> Result<()> {
    for entry in std::fs::read_dir(parent).on("reading", parent)?.flatten() {
        if owner(&entry.file_name().to_string_lossy()).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            super::remove(&entry.path())?;
        }
    }
    Ok(())
}

/// The process that made a directory of this name.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_dead_left_is_removed_and_what_the_living_have_stays() {
        let parent = std::env::temp_dir().join(format!("juneau-temporary-{}", std::process::id()));
        let mine = parent.join(format!("{PREFIX}{}-127.0.0.1", std::process::id()));
        // No process has a number above the kernel's limit.
        let dead = parent.join(format!("{PREFIX}4294967295-127.0.0.1"));
        let strange = parent.join("juneau-controlplane");
        for dir in [&mine, &dead, &strange] {
            std::fs::create_dir_all(dir).unwrap();
        }
        sweep(&parent).unwrap();
        assert!(mine.exists() && strange.exists() && !dead.exists());
        std::fs::remove_dir_all(parent).unwrap();
    }
}
