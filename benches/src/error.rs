//! What can go wrong while measuring.

use std::io;

/// An error of the benchmarks; each names what was being done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call or a file.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A request to the kernel's network configuration.
    #[error("{what}: {source}")]
    Netlink {
        /// What was being done.
        what: String,
        /// The kernel's answer.
        source: rtnetlink::Error,
    },
    /// Loading, attaching or running a program.
    #[error("{what}: {source}")]
    Bpf {
        /// What was being done.
        what: String,
        /// libbpf's answer.
        source: libbpf_rs::Error,
    },
    /// Something is not there that was made a moment ago.
    #[error("there is no {0}")]
    Missing(String),
    /// A load's process ended badly or said something else than a result.
    #[error("load {load} on {path}: {what}")]
    Load {
        /// Which load.
        load: String,
        /// Which path.
        path: String,
        /// What happened.
        what: String,
    },
    /// Packets were lost on the way, so the figure says nothing.
    #[error("{path}: {sent} packets were sent and {arrived} arrived")]
    Lost {
        /// Which path.
        path: String,
        /// Datagrams that the client sent.
        sent: u64,
        /// Datagrams that reached the server's socket, full or not.
        arrived: u64,
    },
    /// Our data path's half in the kernel.
    #[error("{what}: {source}")]
    Dataplane {
        /// What was being done.
        what: String,
        /// Its answer.
        source: Box<juneau_bpf::Error>,
    },
    /// Our tables.
    #[error("{what}: {source}")]
    Tables {
        /// What was being done.
        what: String,
        /// Their answer.
        source: juneau_core::tables::TableError,
    },
    /// A control plane for the benchmarks.
    #[error("control plane: {0}")]
    ControlPlane(#[from] juneau_controlplane::Error),
    /// A request to the API server.
    #[error("{what}: {source}")]
    Api {
        /// What was being done.
        what: String,
        /// The server's answer, or why there was none.
        source: Box<kube::Error>,
    },
    /// Packets took another way through our data path than the one that is measured.
    #[error("the figures of our path do not count: {0}")]
    NotOurs(String),
    /// A thread of the benchmarks panicked.
    #[error("a thread panicked while {0}")]
    Thread(String),
}

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// Says what was being done when an error came up.
pub trait Context<T> {
    /// Adds `what` to the error.
    ///
    /// # Errors
    /// The same error, with `what`.
    fn context(self, what: impl Into<String>) -> Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Io { what: what.into(), source })
    }
}

impl<T> Context<T> for nix::Result<T> {
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.map_err(io::Error::from).context(what)
    }
}

impl<T> Context<T> for std::result::Result<T, rtnetlink::Error> {
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Netlink { what: what.into(), source })
    }
}

impl<T> Context<T> for libbpf_rs::Result<T> {
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Bpf { what: what.into(), source })
    }
}

impl<T> Context<T> for kube::Result<T> {
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Api { what: what.into(), source: Box::new(source) })
    }
}

impl<T> Context<T> for juneau_bpf::Result<T> {
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Dataplane { what: what.into(), source: Box::new(source) })
    }
}
