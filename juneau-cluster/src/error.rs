//! What can go wrong, each with its remedy where there is one.

use juneau_lab::error::LabError;
use std::path::{Path, PathBuf};

/// Shorthand of this crate.
pub type Result<T, E = ClusterError> = std::result::Result<T, E>;

/// Why there is no cluster, or why it did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// A file, directory, socket, mount or process could not be worked with.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, naming the object.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Namespaces, links or processes, in which a cluster is like a lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The control plane.
    #[error(transparent)]
    ControlPlane(#[from] juneau_controlplane::Error),
    /// A document that should be ours cannot be read.
    #[error("{}: {source}", path.display())]
    Document {
        /// Where it is, or comes from.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Another command changes this cluster.
    #[error("another command (process {pid}) works on {}; wait for it to end", dir.display())]
    Locked {
        /// The cluster's directory.
        dir: PathBuf,
        /// The process that holds the lock.
        pid: String,
    },
    /// The machine has no control groups that a kubelet could use.
    #[error("there are no control groups: mount a cgroup2 hierarchy at /sys/fs/cgroup")]
    NoCgroups,
    /// A node did not come up.
    #[error("node {node} did not come up; its log: {}", log.display())]
    Node {
        /// Its name.
        node: String,
        /// Where it wrote why.
        log: PathBuf,
    },
    /// A node's first process refused.
    #[error("node {node}: {message}")]
    Refused {
        /// Its name.
        node: String,
        /// What it said.
        message: String,
    },
    /// A program that was run to its end failed.
    #[error("{command} failed ({status}): {last}")]
    Program {
        /// What was run.
        command: String,
        /// How it ended.
        status: String,
        /// The last that it said.
        last: String,
    },
    /// A request to the API server failed.
    #[error("{what}: {source}")]
    Api {
        /// What was asked for.
        what: String,
        /// What the client said.
        source: Box<kube::Error>,
    },
    /// Something that was waited for did not come.
    #[error("not within {seconds} s: {what}")]
    Late {
        /// How long was waited.
        seconds: u64,
        /// What for.
        what: String,
    },
    /// No cluster has its things in this directory, or its keeper is gone.
    #[error("no cluster runs in {} (start one: juneau-cluster up)", dir.display())]
    NotRunning {
        /// The directory.
        dir: PathBuf,
    },
    /// A name that is no node's.
    #[error("there is no node {name}; there are {known}")]
    NoSuchNode {
        /// What was asked for.
        name: String,
        /// What exists.
        known: String,
    },
    /// A command line or a machine that makes no sense here.
    #[error("{0}")]
    Usage(String),
}

/// Adds what was tried to an error of the operating system.
pub(crate) trait Context<T> {
    /// `what` says what was tried and names the object.
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T>;

    /// As [`Context::context`], for work on a file.
    fn on(self, action: &str, path: &Path) -> Result<T>
    where
        Self: Sized,
    {
        self.context(|| format!("{action} {}", path.display()))
    }
}

impl<T> Context<T> for std::io::Result<T> {
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|source| ClusterError::Io { what: what().into(), source })
    }
}

impl<T> Context<T> for nix::Result<T> {
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(std::io::Error::from).context(what)
    }
}
