//! What can go wrong.

use std::path::{Path, PathBuf};

/// Why a responder does not answer, or cannot be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResponderError {
    /// A socket or file could not be worked with.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, naming the object.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// An order or an answer that is none.
    #[error("{}: {source}", path.display())]
    Document {
        /// Where it came from.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// Shorthand of this crate.
pub type Result<T, E = ResponderError> = std::result::Result<T, E>;

/// Adds what was tried to an error.
pub(crate) trait Context<T> {
    /// `what` says what was tried and names the object.
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T> Context<T> for std::io::Result<T> {
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|source| ResponderError::Io { what: what().into(), source })
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
