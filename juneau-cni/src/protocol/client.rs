//! A blocking client: one call, one connection.

use super::{AnswerError, Failure, Method, decode_answer, encode_request};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Longest answer that [`call_within`] reads, in bytes.
pub const ANSWER_LIMIT: usize = 1024 * 1024;

/// Why a call has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallError {
    /// Nobody answers at the socket, or the connection broke.
    Socket {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The answer is none.
    Answer {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        source: AnswerError,
    },
    /// The agent refused.
    Refused(Failure),
}

impl CallError {
    fn answer(path: &Path, source: impl Into<AnswerError>) -> Self {
        Self::Answer { path: path.to_owned(), source: source.into() }
    }
}

impl From<Failure> for CallError {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket { path, source } => {
                write!(f, "agent socket {}: {source} (is juneau-agent running on this node?)", path.display())
            }
            Self::Answer { path, source } => write!(f, "agent socket {}: {source}", path.display()),
            Self::Refused(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Socket { source, .. } => Some(source),
            Self::Answer { source, .. } => Some(source),
            Self::Refused(_) => None,
        }
    }
}

/// Sends a request and waits for its answer; at most `timeout` for each read and write.
///
/// # Errors
/// See [`CallError`].
pub fn call<T: DeserializeOwned>(path: &Path, method: &Method, timeout: Duration) -> Result<T, CallError> {
    let request = encode_request(method).map_err(|error| CallError::answer(path, error))?;
    let line = exchange(path, &request, timeout, u64::MAX)
        .map_err(|source| CallError::Socket { path: path.to_owned(), source })?;
    Ok(decode_answer(&line).map_err(|error| CallError::answer(path, error))??)
}

/// The same for a caller who must be done after `timeout`, whatever is at the socket: it counts for everything, to
/// connect among it; an answer longer than [`ANSWER_LIMIT`] is none; and the socket must be root's, or the caller's.
/// A thread that waits in vain is left behind.
///
/// # Errors
/// See [`CallError`].
pub fn call_within(path: &Path, method: &Method, timeout: Duration) -> Result<Value, CallError> {
    let socket = |source| CallError::Socket { path: path.to_owned(), source };
    let request = encode_request(method).map_err(|error| CallError::answer(path, error))?;
    let (sender, receiver) = mpsc::channel();
    let owned = path.to_owned();
    let limit = u64::try_from(ANSWER_LIMIT).unwrap_or(u64::MAX);
    // The standard library connects to a Unix socket without a timeout, and one for each read is none for all of them.
    let attempt = move || {
        let outcome = check_owner(&owned).and_then(|()| exchange(&owned, &request, timeout, limit.saturating_add(1)));
        let _ = sender.send(outcome);
    };
    std::thread::Builder::new().spawn(attempt).map_err(socket)?;
    let line = match receiver.recv_timeout(timeout) {
        Ok(outcome) => outcome.map_err(socket)?,
        Err(RecvTimeoutError::Timeout) => {
            let text = format!("no answer in {} ms", timeout.as_millis());
            return Err(socket(io::Error::new(io::ErrorKind::TimedOut, text)));
        }
        Err(RecvTimeoutError::Disconnected) => return Err(socket(io::Error::other("the call ended without a word"))),
    };
    if line.len() > ANSWER_LIMIT {
        let text = format!("the answer is longer than {ANSWER_LIMIT} bytes");
        return Err(socket(io::Error::new(io::ErrorKind::InvalidData, text)));
    }
    Ok(decode_answer(&line).map_err(|error| CallError::answer(path, error))??)
}

/// What anybody could have put there is not believed.
fn check_owner(path: &Path) -> io::Result<()> {
    let socket = path.metadata()?;
    if !socket.file_type().is_socket() {
        return Err(io::Error::other("it is not a socket"));
    }
    let own = Path::new("/proc/self").metadata()?.uid();
    if socket.uid() != 0 && socket.uid() != own {
        let text = format!("it belongs to user {}, not to root", socket.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

fn exchange(path: &Path, request: &[u8], timeout: Duration, limit: u64) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(request)?;
    let mut line = Vec::new();
    BufReader::new(stream.take(limit)).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed without an answer"));
    }
    Ok(line)
}
