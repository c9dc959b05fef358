//! A cgroup for an agent, which lasts a little longer than whoever made it.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::error::{Context, Error, Result};

/// This program.
pub(crate) const SELF: &str = "/proc/self/exe";

/// A cgroup that a process removes when it notices our end, whatever that is.
pub(crate) struct Cgroup {
    path: PathBuf,
    sweeper: Option<Child>,
}

impl Cgroup {
    /// Makes one whose name ends with `name`.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let root = juneau_agent::cgroup::root().map_err(Error::Missing)?;
        let path = root.join(format!("juneau-benches-{}-{name}", std::process::id()));
        let sweeper = Command::new(SELF)
            .arg("sweep")
            .arg(&path)
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("starting the process that cleans up")?;
        let cgroup = Self { path, sweeper: Some(sweeper) };
        fs::create_dir(&cgroup.path).context("making a cgroup")?;
        Ok(cgroup)
    }

    /// Its directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Some(mut sweeper) = self.sweeper.take() {
            drop(sweeper.stdin.take());
            let _ = sweeper.wait();
        }
    }
}

/// Waits until whoever started this process is gone, then removes a cgroup.
///
/// # Errors
/// [`Error::Io`] when somebody still is in the cgroup.
pub fn sweep(cgroup: &Path) -> Result<()> {
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    match fs::remove_dir(cgroup) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).context("removing a cgroup"),
        _ => Ok(()),
    }
}
