//! The agent's socket: one request and one answer a connection, from root only.

use crate::protocol::{ErrorCode, Failure, Method, REQUEST_LIMIT, decode_request, encode_answer};
use serde_json::Value;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Connections that are served at the same time; more wait in the socket's backlog.
const CONNECTIONS: usize = 64;
/// A client that does not finish its request in this time is cut off.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// A request on its way to the engine.
#[derive(Debug)]
pub struct Call {
    /// What is asked.
    pub method: Method,
    /// When it was read.
    pub read: Instant,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Result<Value, Failure>>,
}

/// A socket cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("socket {}: {source}", path.display())]
#[non_exhaustive]
pub struct SocketError {
    /// The socket.
    pub path: PathBuf,
    /// What the kernel said.
    pub source: io::Error,
}

/// Binds a Unix socket that only root may use, in place of one that an earlier agent left. The caller holds the lock
/// that keeps two agents apart.
///
/// # Errors
/// [`SocketError`].
pub fn bind(path: &Path) -> Result<UnixListener, SocketError> {
    let bind = || {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    };
    bind().map_err(|source| SocketError { path: path.to_owned(), source })
}

/// Serves `listener` until the task is aborted.
pub fn serve(listener: UnixListener, calls: mpsc::Sender<Call>) -> JoinHandle<()> {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    tokio::spawn(async move {
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let calls = calls.clone();
                    tokio::spawn(async move {
                        if let Err(error) = answer(stream, calls).await {
                            tracing::debug!(%error, "connection of a client");
                        }
                        drop(slot);
                    });
                }
                // Out of descriptors or memory: others must let go of theirs first.
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    })
}

async fn answer(stream: UnixStream, calls: mpsc::Sender<Call>) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    let (read, mut write) = stream.into_split();
    // Who may not ask is heard out as well: an answer before the end of the question breaks its pipe.
    let outcome = match tokio::time::timeout(REQUEST_TIME, request(read)).await {
        Ok(line) => {
            let line = line?;
            match authorise(peer.uid()) {
                Ok(()) => process(line, calls).await,
                Err(failure) => Err(failure),
            }
        }
        Err(_) => Err(Failure::new(
            ErrorCode::InvalidRequest,
            "the request did not end in ten seconds",
            "send it as one line",
        )),
    };
    write.write_all(&encode_answer(outcome)).await?;
    write.shutdown().await
}

fn authorise(uid: u32) -> Result<(), Failure> {
    match uid {
        0 => Ok(()),
        other => Err(Failure::new(
            ErrorCode::Denied,
            format!("user {other} may not use the agent's socket"),
            "call it as root",
        )),
    }
}

async fn request(read: tokio::net::unix::OwnedReadHalf) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    // One byte more than allowed, so that a request of exactly the limit is told from a longer one.
    let limit = u64::try_from(REQUEST_LIMIT).unwrap_or(u64::MAX).saturating_add(1);
    BufReader::new(read).take(limit).read_until(b'\n', &mut line).await?;
    Ok(line)
}

async fn process(line: Vec<u8>, calls: mpsc::Sender<Call>) -> Result<Value, Failure> {
    if line.len() > REQUEST_LIMIT {
        return Err(Failure::new(
            ErrorCode::InvalidRequest,
            format!("the request is longer than {REQUEST_LIMIT} bytes"),
            "send a shorter one",
        ));
    }
    let method = decode_request(&line)?;
    let (reply, result) = oneshot::channel();
    let stopping = || Failure::new(ErrorCode::TryAgain, "the agent is stopping", "ask again when it runs");
    calls.send(Call { method, read: Instant::now(), reply }).await.map_err(|_| stopping())?;
    result.await.map_err(|_| stopping())?
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(text: &[u8]) -> String {
        let (mut client, server) = UnixStream::pair().unwrap();
        let (calls, mut queue) = mpsc::channel::<Call>(1);
        tokio::spawn(async move {
            while let Some(call) = queue.recv().await {
                call.reply.send(Ok(Value::from("seen"))).unwrap();
            }
        });
        let served = tokio::spawn(answer(server, calls));
        // A client that is told off early may find its pipe closed.
        let _ = client.write_all(text).await;
        let _ = client.shutdown().await;
        let mut said = String::new();
        client.read_to_string(&mut said).await.unwrap();
        let _ = served.await.unwrap();
        said
    }

    #[tokio::test]
    async fn a_request_is_answered_and_the_connection_ends() {
        assert_eq!(ask(b"{\"version\":1,\"method\":\"status\"}\n").await, "{\"version\":1,\"result\":\"seen\"}\n");
        // Without the newline the end of the stream ends the request.
        assert_eq!(ask(b"{\"version\":1,\"method\":\"status\"}").await, "{\"version\":1,\"result\":\"seen\"}\n");
        assert!(ask(b"").await.contains("invalid-request"));
        assert!(ask(&vec![b' '; REQUEST_LIMIT + 10]).await.contains("longer than"));
    }

    #[test]
    fn only_root_is_served() {
        assert!(authorise(0).is_ok());
        assert_eq!(authorise(1000).unwrap_err().code, ErrorCode::Denied);
    }
}
