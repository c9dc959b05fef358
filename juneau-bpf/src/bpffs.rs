//! The pin directory and what lies where in it.
//!
//! ```text
//! <root>/abi-M/            maps that every load of ABI number M shares
//! <root>/abi-M/gen-N/      what one load owns: programs, program array, context
//! <root>/links/            one pin for each attachment
//! ```
//! bpffs refuses dots in names; they are written as `%2e`.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::failpoint::{Failpoints, Operation};
use crate::sys;

/// A name as it may stand in a bpffs.
pub(crate) fn escape(name: &str) -> String {
    name.replace('%', "%25").replace('.', "%2e").replace('/', "%2f")
}

/// The name that [`escape`] made this of.
pub(crate) fn unescape(name: &str) -> String {
    name.replace("%2f", "/").replace("%2e", ".").replace("%25", "%")
}

/// A pin directory.
#[derive(Debug, Clone)]
pub(crate) struct PinRoot {
    path: PathBuf,
    failpoints: Failpoints,
}

/// The right to change what lies in a pin directory; ends with the process at the latest.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "held for its lock")] File);

impl PinRoot {
    /// Creates the directory if it is missing.
    pub(crate) fn create(path: &Path, failpoints: Failpoints) -> Result<Self> {
        let root = Self { path: path.to_owned(), failpoints };
        root.directory(path)?;
        root.checked()
    }

    /// Opens an existing directory.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self { path: path.to_owned(), failpoints: Failpoints::default() }.checked()
    }

    fn checked(self) -> Result<Self> {
        let is_bpffs = sys::file::is_bpffs(&self.path).map_err(self.error(Operation::PinRead, &self.path))?;
        if is_bpffs { Ok(self) } else { Err(Error::NotBpffs { path: self.path }) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn failpoints(&self) -> &Failpoints {
        &self.failpoints
    }

    pub(crate) fn lock(&self) -> Result<Lock> {
        let directory = File::open(&self.path).map_err(self.error(Operation::PinRead, &self.path))?;
        match directory.try_lock() {
            Ok(()) => Ok(Lock(directory)),
            Err(fs::TryLockError::WouldBlock) => Err(Error::InUse { path: self.path.clone() }),
            Err(fs::TryLockError::Error(source)) => Err(self.error(Operation::PinRead, &self.path)(source)),
        }
    }

    pub(crate) fn abi(&self, abi: u32) -> PathBuf {
        self.path.join(format!("abi-{abi}"))
    }

    pub(crate) fn generation(&self, abi: u32, generation: u32) -> PathBuf {
        self.abi(abi).join(format!("gen-{generation}"))
    }

    pub(crate) fn links(&self) -> PathBuf {
        self.path.join("links")
    }

    /// ABI numbers that have a directory, ascending.
    pub(crate) fn abis(&self) -> Result<Vec<u32>> {
        self.numbered(&self.path, "abi-")
    }

    /// Generations of an ABI that have a directory, ascending.
    pub(crate) fn generations(&self, abi: u32) -> Result<Vec<u32>> {
        self.numbered(&self.abi(abi), "gen-")
    }

    fn numbered(&self, directory: &Path, prefix: &str) -> Result<Vec<u32>> {
        let names = self.list(directory)?;
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Names in a directory; none if it does not exist.
    pub(crate) fn list(&self, directory: &Path) -> Result<Vec<String>> {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(self.error(Operation::PinRead, directory))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(self.error(Operation::PinRead, directory))?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Creates a directory and its parents.
    pub(crate) fn directory(&self, path: &Path) -> Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        self.before(Operation::DirectoryCreate, path)?;
        fs::create_dir_all(path).map_err(self.error(Operation::DirectoryCreate, path))
    }

    pub(crate) fn pin(&self, fd: BorrowedFd<'_>, path: &Path) -> Result<()> {
        self.before(Operation::Pin, path)?;
        sys::pin(fd, path).map_err(self.error(Operation::Pin, path))
    }

    /// Pins `fd` at a path where something else may be pinned: what was there is let go of in the same step.
    pub(crate) fn replace(&self, fd: BorrowedFd<'_>, path: &Path) -> Result<()> {
        if !path.exists() {
            return self.pin(fd, path);
        }
        let mut new = path.as_os_str().to_owned();
        new.push("~");
        let new = PathBuf::from(new);
        self.unpin(&new)?;
        self.pin(fd, &new)?;
        self.before(Operation::Pin, path)?;
        fs::rename(&new, path).map_err(self.error(Operation::Pin, path))
    }

    /// Opens a pin; none if it does not exist.
    pub(crate) fn get(&self, path: &Path) -> Result<Option<OwnedFd>> {
        match sys::open_pin(path) {
            Ok(fd) => Ok(Some(fd)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.error(Operation::PinRead, path)(error)),
        }
    }

    /// Removes a pin; it may be gone already.
    pub(crate) fn unpin(&self, path: &Path) -> Result<()> {
        if !path.exists() {
            return Ok(());
        }
        self.before(Operation::Unpin, path)?;
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.error(Operation::Unpin, path)(error)),
            _ => Ok(()),
        }
    }

    /// Removes a directory, the pins in it, and directories of pins below it.
    pub(crate) fn remove(&self, directory: &Path) -> Result<()> {
        for name in self.list(directory)? {
            let path = directory.join(name);
            if path.is_dir() { self.remove(&path)? } else { self.unpin(&path)? }
        }
        if !directory.exists() {
            return Ok(());
        }
        self.before(Operation::DirectoryRemove, directory)?;
        fs::remove_dir(directory).map_err(self.error(Operation::DirectoryRemove, directory))
    }

    fn before(&self, operation: Operation, path: &Path) -> Result<()> {
        self.failpoints.before(operation, &path.to_string_lossy()).map_err(self.error(operation, path))
    }

    fn error(&self, operation: Operation, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
        Error::kernel(operation, path.to_string_lossy().into_owned())
    }
}

/// Maps and programs that are pinned by a caller who holds them as descriptors.
pub(crate) fn pin_all<'a>(
    root: &PinRoot,
    directory: &Path,
    objects: impl IntoIterator<Item = (&'a str, BorrowedFd<'a>)>,
) -> Result<()> {
    root.directory(directory)?;
    for (name, fd) in objects {
        root.pin(fd.as_fd(), &directory.join(escape(name)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_escaping() {
        for name in ["eth0", "eth0.100", "a%2eb", "a/b", "%", "100%.%25"] {
            let escaped = escape(name);
            assert!(!escaped.contains(['.', '/']), "{escaped}");
            assert_eq!(unescape(&escaped), name);
        }
    }
}
