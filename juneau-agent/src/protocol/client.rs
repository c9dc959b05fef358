//! A blocking client: one call, one connection.

use super::{Failure, Method, decode_answer, encode_request};
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Nobody answers at the socket, or the connection broke.
    #[error("agent socket {}: {source} (is juneau-agent running on this node?)", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The answer is none.
    #[error("agent socket {}: the answer cannot be read: {source}", path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The agent refused.
    #[error(transparent)]
    Refused(#[from] Failure),
}

/// Sends a request and waits for its answer, at most `timeout`.
///
/// # Errors
/// See [`CallError`].
pub fn call<T: DeserializeOwned>(path: &Path, method: &Method, timeout: Duration) -> Result<T, CallError> {
    let socket = |source| CallError::Socket { path: path.to_owned(), source };
    let answer = |source| CallError::Answer { path: path.to_owned(), source };
    let request = encode_request(method).map_err(answer)?;
    let mut stream = UnixStream::connect(path).map_err(socket)?;
    stream.set_read_timeout(Some(timeout)).map_err(socket)?;
    stream.set_write_timeout(Some(timeout)).map_err(socket)?;
    stream.write_all(&request).map_err(socket)?;
    let mut line = Vec::new();
    BufReader::new(stream).read_until(b'\n', &mut line).map_err(socket)?;
    Ok(decode_answer(&line).map_err(answer)??)
}
