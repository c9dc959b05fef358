//! The lab on a real API server: a control plane in a network namespace at the underlay, what a kubelet does, and what
//! exists as the API server tells it.

mod definitions;
pub mod deploy;
pub mod kubelet;
mod node;
mod objects;
mod pod;
mod server;
mod webhook;

pub use node::add as add_node;
pub use objects::{list, read};
pub(crate) use server::Server;
pub(crate) use webhook::wait as wait_for_webhook;

use crate::cluster::Cluster;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Where the API server is on the underlay.
pub const CONTROL_PLANE: Ipv4Addr = Ipv4Addr::new(192, 168, 77, 254);

/// The name of the control plane's port on the underlay, and of its network namespace. No node has it: names of
/// Kubernetes objects do not begin with a dot.
pub(crate) const CONTROL_PLANE_NAME: &str = ".control-plane";

/// What the API server says that matters to the lab.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told {
    /// The wanted cluster.
    pub(crate) cluster: Cluster,
    /// What is not to be acted on yet, in words that follow "waiting for".
    pub(crate) waiting: Vec<String>,
    /// What is wrong with objects, or with the connection.
    pub(crate) problems: Vec<String>,
}

/// What the lab did, for the API server to be told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// Nodes that exist, by name: whether the agent is ready.
    pub nodes: BTreeMap<String, bool>,
    /// Pods that exist, by `NAMESPACE/NAME`.
    pub pods: BTreeMap<String, DonePod>,
}

/// A Pod that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DonePod {
    /// Its UID.
    pub uid: String,
    /// Its address, once it is attached and its process runs.
    pub address: Option<String>,
}
