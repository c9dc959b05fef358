//! A real Kubernetes cluster on one machine. A node is a set of namespaces with a kubelet and a containerd of its own,
//! at the paths where they are on any node; the control plane is that of `juneau-controlplane`, beside the first node's
//! programs. Nothing is played: what runs in such a node would run on a machine.
//!
//! [`Cluster`] is a cluster, [`Node`] one of its nodes. [`config`] is what their programs are told.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod cgroups;
pub mod check;
pub mod cli;
mod cluster;
pub mod config;
pub mod deploy;
mod error;
mod hold;
pub mod image;
mod init;
mod keep;
mod kubectl;
mod node;
mod paths;
mod program;
mod service;
mod state;
mod teardown;
mod up;

pub use cluster::{Cluster, Options};
pub use error::{ClusterError, Result};
pub use kubectl::Kubectl;
pub use node::Node;
pub use paths::{DEFAULT_DIR, Paths};
pub use service::Service;
pub use state::State;
pub use teardown::teardown;
