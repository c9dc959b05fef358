//! The user's cache, where programs stay that were built or unpacked once.

use crate::error::{Context, Error, Result};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A variable of the environment that says something.
pub(crate) fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Our folder of this name in the user's cache.
///
/// # Errors
/// [`Error::NoHome`].
pub(crate) fn folder(name: &str) -> Result<PathBuf> {
    let caches = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    Ok(caches.ok_or(Error::NoHome)?.join("juneau").join(name))
}

/// Makes `folder`, and waits until no other process works in it. The kernel lets the lock go when the process ends.
pub(crate) fn lock(folder: &Path, what: &str, progress: &mut dyn FnMut(&str)) -> Result<File> {
    std::fs::create_dir_all(folder).on("creating", folder)?;
    let path = folder.join("lock");
    let lock = File::create(&path).on("making", &path)?;
    if lock.try_lock().is_err() {
        progress(&format!("another process gets {what}: waiting for it"));
        lock.lock().on("locking", &path)?;
    }
    Ok(lock)
}

/// Removes a folder. No such folder is no error.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).on("removing", folder),
        _ => Ok(()),
    }
}

/// The file of a program that is in the search path.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|path| path.is_file())
}
