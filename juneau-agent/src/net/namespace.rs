//! Network namespaces: named by a path, entered by a thread of their own.

use super::NetError;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// An open network namespace.
#[derive(Debug)]
pub struct Namespace {
    path: String,
    file: File,
}

impl Namespace {
    /// Opens the namespace at this path.
    ///
    /// # Errors
    /// [`NetError::Namespace`].
    pub fn open(path: &Path) -> Result<Self, NetError> {
        let text = path.display().to_string();
        match File::open(path) {
            Ok(file) => Ok(Self { path: text, file }),
            Err(source) => Err(NetError::Namespace { path: text, source }),
        }
    }

    /// The calling thread's namespace.
    ///
    /// # Errors
    /// [`NetError::Namespace`].
    pub fn current() -> Result<Self, NetError> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Whether both are the same namespace.
    ///
    /// # Errors
    /// [`NetError::Namespace`].
    pub fn is(&self, other: &Self) -> Result<bool, NetError> {
        let identity = |this: &Self| match this.file.metadata() {
            Ok(metadata) => Ok((metadata.dev(), metadata.ino())),
            Err(source) => Err(NetError::Namespace { path: this.path.clone(), source }),
        };
        Ok(identity(self)? == identity(other)?)
    }

    /// Runs `work` on a thread inside the namespace and waits for it: the calling thread, and with it every thread of
    /// the runtime, stays where it is.
    ///
    /// # Errors
    /// [`NetError::Namespace`] when it cannot be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetError> {
        let outcome = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    setns(&self.file, CloneFlags::CLONE_NEWNET)?;
                    Ok::<T, nix::errno::Errno>(work())
                })
                .join()
        });
        let error = |source| NetError::Namespace { path: self.path.clone(), source };
        match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(errno)) => Err(error(io::Error::from_raw_os_error(errno as i32))),
            Err(_) => Err(error(io::Error::other("the thread inside the namespace panicked"))),
        }
    }

    /// A TCP socket in the namespace, not connected, for a tokio runtime. Whoever uses it stays where they are.
    ///
    /// # Errors
    /// [`NetError::Namespace`] when the namespace cannot be entered, [`NetError::Kernel`] when it yields no socket.
    pub fn tcp_socket(&self) -> Result<std::net::TcpStream, NetError> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let made = self.run(|| socket(AddressFamily::Inet, SockType::Stream, flags, None))?;
        let failed = |errno: nix::errno::Errno| NetError::Kernel {
            action: format!("open a TCP socket in {}", self.path),
            source: io::Error::from_raw_os_error(errno as i32),
        };
        made.map(Into::into).map_err(failed)
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
