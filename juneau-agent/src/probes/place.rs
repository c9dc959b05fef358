//! Where a Pod is asked: its network namespace, found by the node's end of its interface.
//!
//! Nothing is held open, since a namespace that somebody holds does not end; and nothing is remembered that could not be
//! found again, so that a new agent finds what the one before did. A path is only where to look first: what is there
//! must be the namespace that the interface's other end is in now.

use crate::net::{Namespace, NetError, Netlink};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;

/// Threads that are in a Pod's network namespace at the same time. None stays there longer than it takes to make a
/// socket, so nobody waits for anybody's answer.
const ENTERED: usize = 128;

/// A Pod cannot be entered.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    /// Its namespace ended, or is nowhere to be found.
    #[error("{0}")]
    Gone(String),
    /// The kernel refused something.
    #[error(transparent)]
    Net(#[from] NetError),
    /// There is no thread to be had.
    #[error("no thread: {0}")]
    Thread(#[from] tokio::task::JoinError),
    /// A connection was refused.
    #[error("connect: {0}")]
    Connect(#[from] std::io::Error),
}

/// Finds network namespaces.
#[derive(Debug)]
pub(super) struct Places {
    netlink: Netlink,
    directory: PathBuf,
    /// Where those of interfaces were last, by ifindex.
    paths: Mutex<HashMap<u32, PathBuf>>,
    entered: Semaphore,
}

impl Places {
    /// In the calling thread's network namespace, which is the node's.
    pub(super) fn new(directory: &Path) -> Result<Self, NetError> {
        Ok(Self {
            netlink: Netlink::open()?,
            directory: directory.to_owned(),
            paths: Mutex::default(),
            entered: Semaphore::new(ENTERED),
        })
    }

    /// The network namespace that the other end of this device is in.
    pub(super) async fn find(&self, ifindex: u32) -> Result<Arc<Namespace>, PlaceError> {
        let gone = || PlaceError::Gone(format!("device {ifindex} of the Pod is gone"));
        let link = self.netlink.link_at(ifindex).await?.ok_or_else(gone)?;
        let number = link.peer_namespace.ok_or_else(gone)?;
        let known = self.paths().get(&ifindex).cloned();
        if let Some(path) = known
            && let Some(namespace) = self.at(&path, number).await?
        {
            return Ok(Arc::new(namespace));
        }
        let unreadable =
            |error: std::io::Error| PlaceError::Gone(format!("{} cannot be read: {error}", self.directory.display()));
        for entry in std::fs::read_dir(&self.directory).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if let Some(namespace) = self.at(&path, number).await? {
                let mut paths = self.paths();
                if paths.len() > 4096 {
                    paths.clear();
                }
                paths.insert(ifindex, path);
                return Ok(Arc::new(namespace));
            }
        }
        let directory = self.directory.display();
        Err(PlaceError::Gone(format!("the Pod's network namespace is not in {directory}: see --netns-dir")))
    }

    fn paths(&self) -> std::sync::MutexGuard<'_, HashMap<u32, PathBuf>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is at this path, if it is the namespace with this number.
    async fn at(&self, path: &Path, number: i32) -> Result<Option<Namespace>, PlaceError> {
        // Files that are none, or have just gone, are in nobody's way.
        let Ok(namespace) = Namespace::open(path) else { return Ok(None) };
        let found = self.netlink.number_of(&namespace).await.ok().flatten();
        Ok((found == Some(number)).then_some(namespace))
    }

    /// A connection from inside the namespace.
    pub(super) async fn connect(
        &self,
        namespace: &Arc<Namespace>,
        to: std::net::SocketAddr,
    ) -> Result<TcpStream, PlaceError> {
        let socket = {
            let _permit = self.entered.acquire().await;
            let namespace = Arc::clone(namespace);
            tokio::task::spawn_blocking(move || namespace.tcp_socket()).await??
        };
        Ok(TcpSocket::from_std_stream(socket).connect(to).await?)
    }
}
