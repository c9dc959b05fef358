//! One command at a time makes or removes a lab.

use crate::error::{Context, LabError, Result};
use crate::paths::Paths;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;

/// The lock of a lab, held as long as this lives. The kernel lets it go when the process dies.
#[derive(Debug)]
pub struct Lock {
    file: Flock<File>,
    paths: Paths,
}

impl Lock {
    /// Takes the lock.
    ///
    /// # Errors
    /// [`LabError::Locked`] when another command holds it.
    pub fn take(paths: &Paths) -> Result<Self> {
        let path = paths.lock();
        let what = || format!("locking {}", path.display());
        loop {
            let file =
                OpenOptions::new().create(true).read(true).write(true).truncate(false).open(&path).context(what)?;
            let mut file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => file,
                Err((_, Errno::EWOULDBLOCK)) => {
                    let pid = std::fs::read_to_string(&path).unwrap_or_default().trim().to_owned();
                    return Err(LabError::Locked { dir: paths.dir().to_owned(), pid });
                }
                Err((_, error)) => return Err(error).context(what),
            };
            // The holder before us may have removed the file after we opened it: then we hold the lock of nothing.
            let ours = file.metadata().context(what)?.ino();
            if std::fs::metadata(&path).is_ok_and(|metadata| metadata.ino() == ours) {
                file.set_len(0).context(what)?;
                writeln!(file, "{}", std::process::id()).context(what)?;
                return Ok(Self { file, paths: paths.clone() });
            }
        }
    }

    /// Removes the lock's file, and lets it go. For when nothing of the lab should stay.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn remove(self) -> Result<()> {
        let path = self.paths.lock();
        let removed = std::fs::remove_file(&path).context(|| format!("removing {}", path.display()));
        drop(self.file);
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_command_is_told_who_holds_it() {
        let paths = Paths::new(std::env::temp_dir().join(format!("juneau-lock-{}", std::process::id())));
        let lock = Lock::take(&paths).unwrap();
        let Err(LabError::Locked { pid, .. }) = Lock::take(&paths) else { panic!("locked twice") };
        assert_eq!(pid, std::process::id().to_string());
        lock.remove().unwrap();
        assert!(!paths.lock().exists());
        Lock::take(&paths).unwrap().remove().unwrap();
    }
}
