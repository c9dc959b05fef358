//! Juneau's node daemon as a library: objects → model → tables → kernel, and the socket at which Pods are attached.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod cgroup;
pub mod cli;
mod daemon;
mod engine;
pub mod install;
pub mod lock;
pub mod metrics;
pub mod net;
pub mod node_port;
pub mod options;
pub mod pod;
pub mod probes;
pub mod rights;
pub mod server;
pub mod underlay;
pub mod uninstall;

pub use daemon::{AgentError, run, run_until};
pub use engine::EngineError;
pub use juneau_cni::protocol;
