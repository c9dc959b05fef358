//! Network namespaces: made, pinned as files, entered.

use crate::error::{Context, LabError, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::future::Future;
use std::path::Path;

/// A thread's result, with a panic in it passed on.
fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Makes a network namespace and pins it at `path`, where it stays until [`unpin`] whatever becomes of processes.
///
/// # Errors
/// When the kernel refuses; nothing is left then.
pub fn create(path: &Path) -> Result<()> {
    let made = std::thread::scope(|scope| {
        joined(scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).context(|| "making a network namespace")?;
            pin(Path::new("/proc/thread-self/ns/net"), path)
        }))
    });
    if made.is_err() {
        unpin(path)?;
    }
    made
}

/// Pins the namespace file `source` at `path`.
///
/// # Errors
/// When the kernel refuses.
pub fn pin(source: &Path, path: &Path) -> Result<()> {
    File::create(path).context(|| format!("creating {}", path.display()))?;
    mount(Some(source), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .context(|| format!("pinning {} at {}", source.display(), path.display()))
}

/// Takes a pin away; the namespace goes with its last process and device. No pin is no error.
///
/// # Errors
/// When the kernel refuses.
pub fn unpin(path: &Path) -> Result<()> {
    use nix::errno::Errno;
    match umount2(path, MntFlags::MNT_DETACH) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
        Err(error) => return Err(error).context(|| format!("unmounting {}", path.display())),
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Opens a namespace file.
///
/// # Errors
/// When it is not there.
pub fn open(path: &Path) -> Result<File> {
    File::open(path).context(|| format!("opening {}", path.display()))
}

/// Runs `work` with a netlink connection of the network namespace at `path`, on a thread that ends with it.
///
/// # Errors
/// When the namespace cannot be entered, and those of `work`.
pub fn with_netlink<T, F, W>(path: &Path, work: W) -> Result<T>
where
    T: Send,
    F: Future<Output = Result<T>>,
    W: FnOnce(rtnetlink::Handle) -> F + Send,
{
    within(path, move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context(|| "starting a runtime for netlink")?;
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection().context(|| "opening a netlink socket")?;
            let connection = tokio::spawn(connection);
            let result = work(handle).await;
            connection.abort();
            result
        })
    })
}

/// Runs `work` on a thread in the network namespace at `path`.
///
/// # Errors
/// When the namespace cannot be entered, and those of `work`.
pub fn within<T: Send>(path: &Path, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let namespace = open(path)?;
    std::thread::scope(|scope| {
        joined(scope.spawn(move || {
            setns(&namespace, CloneFlags::CLONE_NEWNET).context(|| format!("entering {}", path.display()))?;
            work()
        }))
    })
}

/// Puts this process, which must have one thread only, into namespaces.
///
/// # Errors
/// When the kernel refuses.
pub fn enter(path: &Path, kind: CloneFlags) -> Result<()> {
    setns(open(path)?, kind).context(|| format!("entering {}", path.display()))
}

/// Mount points below `dir` (and `dir` itself), deepest first, as unmounting needs them.
///
/// # Errors
/// When /proc is not there.
pub fn mounts_below(dir: &Path) -> Result<Vec<std::path::PathBuf>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").context(|| "reading /proc/self/mountinfo")?;
    Ok(parse_mounts_below(&text, dir))
}

fn parse_mounts_below(mountinfo: &str, dir: &Path) -> Vec<std::path::PathBuf> {
    // In the order in which they were mounted: what came later must go first.
    let mut found: Vec<_> = mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|path| std::path::PathBuf::from(path.replace("\\040", " ")))
        .filter(|path| path.starts_with(dir))
        .collect();
    found.reverse();
    found
}

/// Unmounts everything below `dir`, and `dir` itself where it is a mount.
///
/// # Errors
/// When the kernel refuses.
pub fn unmount_below(dir: &Path) -> Result<()> {
    for path in mounts_below(dir)? {
        match umount2(&path, MntFlags::MNT_DETACH) {
            // A mount whose parent was detached a moment ago is gone already.
            Ok(()) | Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOENT) => {}
            Err(source) => {
                return Err(LabError::Kernel { what: format!("unmounting {}", path.display()), source });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_mounts_are_unmounted_first() {
        let mountinfo = "\
21 1 0:20 / / rw - ext4 /dev/x rw
30 21 0:30 / /run/lab rw shared:1 - tmpfs tmpfs rw
31 30 0:4 net:[1] /run/lab/netns/a rw - nsfs nsfs rw
32 21 0:31 / /run/lab-2 rw - tmpfs tmpfs rw
33 30 0:4 net:[2] /run/lab/netns/b\\040c rw - nsfs nsfs rw
";
        let found = parse_mounts_below(mountinfo, Path::new("/run/lab"));
        let expected = ["/run/lab/netns/b c", "/run/lab/netns/a", "/run/lab"];
        assert_eq!(found, expected.map(std::path::PathBuf::from));
    }
}
