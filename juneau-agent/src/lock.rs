//! One agent a node: a lock that the kernel drops with the process.

use nix::fcntl::{Flock, FlockArg};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The lock's file in an agent's directory.
pub(crate) const FILE: &str = "agent.lock";

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another agent holds it.
    #[error("another agent (pid {pid}) runs with {}: stop it first, or give this one a --state-dir of its own", path.display())]
    Held {
        /// The lock file.
        path: PathBuf,
        /// Process id that the holder wrote.
        pid: String,
    },
    /// The file cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// The lock file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The lock, held as long as the value lives.
#[derive(Debug)]
pub struct Lock {
    _file: Flock<File>,
}

impl Lock {
    /// Takes the lock in this directory, which is made if need be.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn take(directory: &Path) -> Result<Self, LockError> {
        let error = |source| LockError::File { path: directory.to_owned(), source };
        std::fs::create_dir_all(directory).map_err(error)?;
        Self::take_file(directory.join(FILE))
    }

    /// Takes the lock if an agent has been here: nothing is made.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn take_if_there(directory: &Path) -> Result<Option<Self>, LockError> {
        let path = directory.join(FILE);
        if path.exists() { Self::take_file(path).map(Some) } else { Ok(None) }
    }

    fn take_file(path: PathBuf) -> Result<Self, LockError> {
        let error = |source| LockError::File { path: path.clone(), source };
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(error)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut file) => {
                let mut write = || {
                    file.set_len(0)?;
                    file.rewind()?;
                    writeln!(file, "{}", std::process::id())
                };
                write().map_err(error)?;
                Ok(Self { _file: file })
            }
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                file.read_to_string(&mut pid).map_err(error)?;
                Err(LockError::Held { path, pid: pid.trim().to_owned() })
            }
            Err((_, errno)) => Err(error(io::Error::from_raw_os_error(errno as i32))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_one_is_told_who_is_first() {
        let directory = std::env::temp_dir().join(format!("juneau-lock-{}", std::process::id()));
        let first = Lock::take(&directory).unwrap();
        let message = Lock::take(&directory).unwrap_err().to_string();
        assert!(message.contains(&format!("pid {}", std::process::id())), "{message}");
        drop(first);
        Lock::take(&directory).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
