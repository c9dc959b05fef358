//! What can go wrong in the lab, each with its remedy where there is one.

use nix::errno::Errno;
use std::path::{Path, PathBuf};

/// Why a command of the lab failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A file, directory or process could not be worked with.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, naming the object.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A system call about namespaces, mounts or processes failed.
    #[error("{what}: {}", source.desc())]
    Kernel {
        /// What was tried, naming the object.
        what: String,
        /// What the kernel said.
        source: Errno,
    },
    /// A link, address or route could not be made.
    #[error("{what}: {source}")]
    Netlink {
        /// What was tried, naming the object.
        what: String,
        /// What the kernel said.
        source: rtnetlink::Error,
    },
    /// No lab runs in this directory.
    #[error("no lab runs in {} (start one: juneau-lab up)", dir.display())]
    NotRunning {
        /// The lab's directory.
        dir: PathBuf,
    },
    /// The lab's supervisor is gone, so nothing follows the manifests any more.
    #[error("the lab's supervisor does not run any more (start the lab anew: juneau-lab up); its log: {}", log.display())]
    SupervisorGone {
        /// Where it wrote why.
        log: PathBuf,
    },
    /// Another command changes this lab.
    #[error("another juneau-lab command (process {pid}) works on {}; wait for it to end", dir.display())]
    Locked {
        /// The lab's directory.
        dir: PathBuf,
        /// The process that holds the lock.
        pid: String,
    },
    /// A name that is neither a node nor a Pod.
    #[error("there is no node or Pod {name}; there are {known} (Pods are NAMESPACE/NAME)")]
    NoSuchTarget {
        /// What was asked for.
        name: String,
        /// What exists.
        known: String,
    },
    /// A Pod or node exists but cannot be entered.
    #[error("{name} is not up: {reason} (see juneau-lab status)")]
    NotUp {
        /// Its name.
        name: String,
        /// What it lacks.
        reason: String,
    },
    /// The lab did not come to rest in time.
    #[error("not settled after {seconds} s: {waiting} (see juneau-lab status and juneau-lab logs)")]
    NotSettled {
        /// How long was waited.
        seconds: u64,
        /// What is missing.
        waiting: String,
    },
    /// A child ended before it was ready.
    #[error("{what} ended before it was ready ({status}); its log: {}", log.display())]
    EndedEarly {
        /// Which.
        what: String,
        /// How it ended.
        status: String,
        /// Where it wrote why.
        log: PathBuf,
    },
    /// No control group hierarchy of version 2 can be had.
    #[error("no cgroup v2 hierarchy can be mounted: {source}")]
    NoCgroup {
        /// What the kernel said.
        source: Errno,
    },
    /// A document that should be ours cannot be read.
    #[error("{}: {source}", path.display())]
    Document {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The agent refused or did not answer.
    #[error(transparent)]
    Agent(#[from] juneau_agent::protocol::CallError),
    /// A responder did not answer.
    #[error(transparent)]
    Responder(#[from] juneau_responder::ResponderError),
    /// The control plane did not start, or ended.
    #[error(transparent)]
    ControlPlane(#[from] juneau_controlplane::Error),
    /// A request to the API server failed.
    #[error("{0}")]
    Kubernetes(String),
    /// Something about the manifests.
    #[error("{0}")]
    Manifests(String),
    /// A program that the lab calls is missing.
    #[error("{program} cannot be run: {source} (install the Debian package {package})")]
    Program {
        /// Its name.
        program: String,
        /// Debian's package.
        package: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A command-line argument that makes no sense here.
    #[error("{0}")]
    Usage(String),
}

/// Shorthand of this crate.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

/// Adds what was tried to an error.
pub(crate) trait Context<T> {
    /// `what` says what was tried and names the object.
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T> Context<T> for std::io::Result<T> {
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|source| LabError::Io { what: what().into(), source })
    }
}

impl<T> Context<T> for nix::Result<T> {
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|source| LabError::Kernel { what: what().into(), source })
    }
}

impl<T> Context<T> for std::result::Result<T, rtnetlink::Error> {
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|source| LabError::Netlink { what: what().into(), source })
    }
}

/// Turns "there is no such file" into `None`.
pub(crate) fn optional<T>(result: std::io::Result<T>, path: &Path) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context(|| format!("reading {}", path.display())),
    }
}
