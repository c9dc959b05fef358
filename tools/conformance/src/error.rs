//! What can go wrong, each with its remedy where there is one.

use std::path::{Path, PathBuf};

/// Shorthand of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the tests did not run, or a document is not as it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or process could not be worked with.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, naming the object.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The programs of Kubernetes.
    #[error(transparent)]
    ControlPlane(#[from] juneau_controlplane::Error),
    /// The cluster.
    #[error(transparent)]
    Cluster(#[from] juneau_cluster::ClusterError),
    /// The image that the tests' Pods run.
    #[error("the image of the tests' Pods: {0}")]
    Image(#[from] juneau_images::ImageError),
    /// A file that an image cannot have.
    #[error("the image of the tests' Pods: {0}")]
    Tree(#[from] juneau_images::TreeError),
    /// No images are made for this processor.
    #[error("no images are made for processors of the kind {0}")]
    Processor(&'static str),
    /// A certificate for that image could not be made.
    #[error("making a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A program of this machine that belongs into that image.
    #[error("{program} is missing: apt-get install --no-install-recommends {package}")]
    Missing {
        /// The program.
        program: &'static str,
        /// Debian's package.
        package: &'static str,
    },
    /// A line of the list that says nothing.
    #[error("line {line} of the list is neither a heading nor a test below one, or names a test twice: {text}")]
    List {
        /// Its number, from 1.
        line: usize,
        /// What stands there.
        text: String,
    },
    /// List and tests do not agree.
    #[error("the list does not agree with the tests of this version of Kubernetes:\n{0}")]
    Suite(String),
    /// Nothing was chosen.
    #[error("no test of the list is chosen by this focus")]
    Nothing,
    /// An expression that is none.
    #[error(transparent)]
    Focus(#[from] regex::Error),
    /// A program failed.
    #[error("{command} failed ({status}): {last}")]
    Program {
        /// What was run.
        command: String,
        /// How it ended.
        status: String,
        /// The last that it said.
        last: String,
    },
    /// The tests ended without a report.
    #[error("the tests left no report ({why}); what they said is in {}", log.display())]
    NoReport {
        /// What is wrong with it.
        why: String,
        /// Their output.
        log: PathBuf,
    },
    /// Somebody ended the run.
    #[error("interrupted")]
    Interrupted,
    /// The page does not say where its table is.
    #[error("{}: there are no lines {begin} and {end}", path.display())]
    Marks {
        /// The page.
        path: PathBuf,
        /// The line before the table.
        begin: &'static str,
        /// The line behind it.
        end: &'static str,
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
