//! A real Kubernetes control plane, for tests and for the lab: `etcd`, `kube-apiserver` and, when asked for,
//! `kube-controller-manager` and `kube-scheduler`.
//!
//! [`Programs`] finds the programs, that of nodes among them, or builds them from this folder's Go module;
//! [`Containers`] does the same for what runs containers on a node. [`ControlPlane`] runs them, either on a loopback
//! address of its own or in a network namespace, with keys made for the occasion; they end with the value that stands
//! for them, and with the process whatever ends it. [`AuditLog`] counts what the API server was asked.
//!
//! `docs/kubernetes.md` describes all of it.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod address;
mod audit;
mod cache;
mod containers;
mod error;
mod forward;
mod keeper;
mod kubeconfig;
mod pki;
mod programs;
mod server;

pub use audit::{AuditEvent, AuditLog};
pub use containers::{Containers, Tool};
pub use error::{Error, Result};
pub use kubeconfig::client;
pub use programs::{Program, Programs};
pub use server::{ControlPlane, Network, NodeIdentity, Options};

/// The name in API requests of this crate, so that audit logs tell them from those of others.
pub const USER_AGENT: &str = "juneau-controlplane";
