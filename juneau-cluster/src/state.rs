//! What a cluster's keeper tells the other commands.

use crate::error::{ClusterError, Context, Result};
use crate::node::Node;
use crate::paths::Paths;
use juneau_controlplane::Containers;
use juneau_lab::process::Process;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// A cluster that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The process that it ends with.
    pub keeper: Process,
    /// The kubeconfig of its administrator, for use on this machine.
    pub kubeconfig: PathBuf,
    /// Its nodes, and where they are on the underlay.
    pub nodes: BTreeMap<String, Ipv4Addr>,
    /// Where the API server is, for whatever runs on nodes.
    pub api_server: Ipv4Addr,
}

impl State {
    /// The state of the cluster at `paths`.
    ///
    /// # Errors
    /// [`ClusterError::NotRunning`].
    pub fn of_running(paths: &Paths) -> Result<Self> {
        let (file, not_running) = (paths.state(), || ClusterError::NotRunning { dir: paths.dir().to_owned() });
        let text = match fs::read(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(not_running()),
            read => read.on("reading", &file)?,
        };
        let state: Self =
            serde_json::from_slice(&text).map_err(|source| ClusterError::Document { path: file, source })?;
        if state.keeper.runs() { Ok(state) } else { Err(not_running()) }
    }

    /// Writes it: it is there whole, or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, paths: &Paths) -> Result<()> {
        let file = paths.state();
        let text = serde_json::to_vec_pretty(self);
        let text = text.map_err(|source| ClusterError::Document { path: file.clone(), source })?;
        let unfinished = file.with_extension("unfinished");
        fs::write(&unfinished, text).on("writing", &unfinished)?;
        fs::rename(&unfinished, &file).on("writing", &file)
    }

    /// The node of this name.
    ///
    /// # Errors
    /// [`ClusterError::NoSuchNode`], or when the programs of nodes are not there any more.
    pub fn node(&self, paths: &Paths, name: &str) -> Result<Node> {
        let address = self.nodes.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.nodes.keys().map(String::as_str).collect();
            ClusterError::NoSuchNode { name: name.to_owned(), known: known.join(", ") }
        })?;
        Ok(Node::new(paths, name, *address, &Containers::find_or_unpack(&mut |_| {})?))
    }
}
