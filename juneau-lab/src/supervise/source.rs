//! Where the supervisor learns what there should be, and whom it tells what there is.

use super::event::{self, Event};
use super::node::Node;
use super::pod::Pod;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::kubernetes::{self, Done, DonePod, Server};
use crate::paths::Paths;
use crate::state;
use juneau_api::source::directory::DirectorySource;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::mpsc::Sender;

/// What a supervisor follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// The lab's directory of manifests.
    Directory,
    /// An API server that the supervisor starts.
    Kubernetes,
}

/// What is followed.
#[derive(Debug)]
pub(super) enum Source {
    /// A directory, with what watches it.
    Directory { source: Box<DirectorySource>, _watcher: notify::RecommendedWatcher },
    /// An API server.
    Kubernetes {
        /// It, once it is there, or why it is not.
        server: Option<std::result::Result<Server, String>>,
        /// What it says is not to be acted on yet; nothing as long as it said nothing at all.
        told: Option<Vec<String>>,
    },
}

impl Source {
    /// Begins to follow.
    pub(super) fn start(paths: &Paths, mtu: u32, follow: Follow, events: &Sender<Event>) -> Result<Self> {
        if follow == Follow::Directory {
            let watcher = event::watch(&paths.manifests(), events.clone())?;
            return Ok(Self::Directory {
                source: Box::new(DirectorySource::new(paths.manifests())),
                _watcher: watcher,
            });
        }
        let (paths, events) = (paths.clone(), events.clone());
        std::thread::spawn(move || {
            let told = events.clone();
            let told = move |what| told.send(Event::Told(what)).is_ok();
            let server = Server::start(&paths, mtu, told).map_err(|error| error.to_string());
            events.send(Event::Server(Box::new(server))).ok();
        });
        Ok(Self::Kubernetes { server: None, told: None })
    }

    pub(super) fn take_server(&mut self, started: std::result::Result<Server, String>) {
        if let Err(error) = &started {
            tracing::error!("the API server: {error}");
        }
        if let Self::Kubernetes { server, .. } = self {
            *server = Some(started);
        }
    }

    /// The API server said what there should be.
    pub(super) fn was_told(&mut self, waiting: Vec<String>) {
        if let Self::Kubernetes { told, .. } = self {
            *told = Some(waiting);
        }
    }

    pub(super) fn server(&self) -> Option<&Server> {
        match self {
            Self::Kubernetes { server: Some(Ok(server)), .. } => Some(server),
            _ => None,
        }
    }

    /// What is waited for before what is wanted is known.
    pub(super) fn missing(&self) -> Vec<String> {
        let Self::Kubernetes { server, told } = self else { return Vec::new() };
        match (server, told) {
            (None, _) => vec!["the API server to be ready".to_owned()],
            (Some(Err(error)), _) => vec![format!("the API server: {error}")],
            (Some(Ok(server)), told) => match (server.ended(), told) {
                (Some(error), _) => vec![format!("the API server: {error}")],
                (None, None) => vec!["the API server to say what there is".to_owned()],
                (None, Some(waiting)) => waiting.clone(),
            },
        }
    }

    /// Whether the API server says nothing but what is wanted already. Directories are read again whenever somebody asks.
    pub(super) fn is_current(&self, wanted: &Cluster) -> bool {
        self.server().is_none_or(|server| match kubernetes::read(&server.kubeconfig()) {
            Ok(now) => now == *wanted,
            Err(error) => {
                tracing::warn!("{error}");
                false
            }
        })
    }

    /// The control plane, where there is one.
    pub(super) fn kubernetes(&self) -> Option<state::Kubernetes> {
        let server = self.server()?;
        Some(state::Kubernetes {
            kubeconfig: server.kubeconfig(),
            processes: server.processes(),
            phases: server.phases().to_vec(),
        })
    }

    /// The option by which the agent of a node is told where objects are, once they are anywhere.
    pub(super) fn objects(&self, paths: &Paths, node: &str) -> Option<(&'static str, OsString)> {
        match self {
            Self::Directory { .. } => Some(("--manifests", paths.manifests().into_os_string())),
            Self::Kubernetes { .. } => Some(("--kubeconfig", self.server()?.agent_kubeconfig(node)?.into_os_string())),
        }
    }

    /// Tells the API server what there is.
    pub(super) fn tell(&self, nodes: &BTreeMap<String, Node>, pods: &BTreeMap<String, Pod>) {
        let Some(server) = self.server() else { return };
        let nodes = nodes.iter().map(|(name, node)| (name.clone(), node.ready())).collect();
        let pods = pods.iter().map(|(name, pod)| {
            let runs = pod.responder.is_some();
            let address = pod.attached.as_ref().filter(|_| runs).and_then(|at| at.address.split('/').next());
            (name.clone(), DonePod { uid: pod.uid().to_owned(), address: address.map(str::to_owned) })
        });
        server.tell(Done { nodes, pods: pods.collect() });
    }
}
