//! What a node's first process is asked for, and how it is asked.

use crate::error::{ClusterError, Context, Result};
use nix::sys::socket::{getsockopt, sockopt};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long an answer may take: that of a program that says when it is ready, most of all.
const PATIENCE: Duration = Duration::from_secs(90);

/// A program that a node runs, and runs again when it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its name among the node's.
    pub name: String,
    /// Its file, as the node sees it.
    pub program: PathBuf,
    /// What it is told.
    pub arguments: Vec<String>,
    /// Its environment, and nothing else.
    pub environment: BTreeMap<String, String>,
    /// Where its output goes.
    pub log: PathBuf,
    /// Whether it says by sd_notify(3) when it is ready, which is waited for.
    pub notifies: bool,
}

/// What a node's first process is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Run this from now on.
    Start(Service),
    /// End the service of this name, and let it rest.
    Stop(String),
    /// Which processes are services?
    List,
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// It is so.
    Done,
    /// It is not.
    Failed(String),
    /// Services by name; those that rest or are about to start again have no process.
    Services(BTreeMap<String, Option<i32>>),
}

/// Asks the first process of `node`, which answers at `socket`.
pub(crate) fn ask(node: &str, socket: &Path, order: &Order) -> Result<Answer> {
    let what = || format!("asking the first process of node {node}");
    let document = |source| ClusterError::Document { path: socket.to_owned(), source };
    let mut stream = UnixStream::connect(socket).context(what)?;
    stream.set_read_timeout(Some(PATIENCE)).context(what)?;
    let mut line = serde_json::to_vec(order).map_err(document)?;
    line.push(b'\n');
    stream.write_all(&line).context(what)?;
    let mut answer = Vec::new();
    BufReader::new(stream).read_until(b'\n', &mut answer).context(what)?;
    match serde_json::from_slice(&answer).map_err(document)? {
        Answer::Failed(message) => Err(ClusterError::Refused { node: node.to_owned(), message }),
        answer => Ok(answer),
    }
}

/// The number that the first process of a node has here, outside.
pub(crate) fn first_process(node: &str, socket: &Path) -> Result<i32> {
    let what = || format!("asking the first process of node {node}");
    let stream = UnixStream::connect(socket).context(what)?;
    // The kernel answers, with the number as this process sees it.
    Ok(getsockopt(&stream, sockopt::PeerCredentials).context(what)?.pid())
}
