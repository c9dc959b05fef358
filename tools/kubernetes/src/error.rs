//! What can go wrong, each with its remedy where there is one.

use std::path::{Path, PathBuf};

/// Shorthand of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no control plane.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file, directory, socket or process could not be worked with.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, naming the object.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Neither `XDG_CACHE_HOME` nor `HOME` says where caches belong.
    #[error("set HOME or XDG_CACHE_HOME: the programs of Kubernetes are cached below it")]
    NoHome,
    /// A program is neither where it should be nor can it be built here.
    #[error("{program} is missing: {remedy}")]
    Missing {
        /// The program.
        program: &'static str,
        /// How to get it.
        remedy: String,
    },
    /// The Go tools could not build the programs.
    #[error("building {programs} failed ({status}): {last}")]
    Build {
        /// What was to be built.
        programs: String,
        /// How the compiler ended.
        status: String,
        /// The last that it said.
        last: String,
    },
    /// Packages could not be fetched or unpacked.
    #[error("{command} failed ({status}): {last}")]
    Packages {
        /// What was run.
        command: String,
        /// How it ended.
        status: String,
        /// The last that it said.
        last: String,
    },
    /// A key or certificate could not be made.
    #[error("making the certificate of {subject}: {source}")]
    Certificate {
        /// Whose.
        subject: String,
        /// What the library said.
        source: rcgen::Error,
    },
    /// A program of the control plane ended when it should run.
    #[error("{program} ended ({status}); its log, {}, ends with: {last}", log.display())]
    Ended {
        /// Which.
        program: String,
        /// How it ended.
        status: String,
        /// Where it wrote why.
        log: PathBuf,
        /// The last line there.
        last: String,
    },
    /// A program of the control plane did not become ready in time.
    #[error("{program} was not ready after {seconds} s; its log: {}", log.display())]
    NotReady {
        /// Which.
        program: String,
        /// How long was waited.
        seconds: u64,
        /// Where it wrote why.
        log: PathBuf,
    },
    /// The API server refused or did not answer.
    #[error("{what}: {source}")]
    Api {
        /// What was asked for.
        what: String,
        /// What the client said.
        source: Box<kube::Error>,
    },
    /// A kubeconfig file of ours cannot be used.
    #[error("{}: {source}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<kube::config::KubeconfigError>,
    },
    /// A line of the audit log is not an event.
    #[error("{}: {source}", path.display())]
    Audit {
        /// The log.
        path: PathBuf,
        /// What is wrong with the line.
        source: serde_json::Error,
    },
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
        self.map_err(|source| Error::Io { what: what().into(), source })
    }
}

impl<T> Context<T> for nix::Result<T> {
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(std::io::Error::from).context(what)
    }
}
