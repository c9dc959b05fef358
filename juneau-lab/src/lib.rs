//! A Juneau cluster in a box: nodes as namespaces, the real agent and BPF programs, on a directory of manifests.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod cgroup;
pub mod check;
pub mod cli;
pub mod cluster;
pub mod commands;
pub mod enter;
pub mod error;
pub mod hold;
pub mod kubernetes;
pub mod lock;
pub mod namespace;
pub mod paths;
pub mod process;
pub mod spawn;
pub mod state;
pub mod supervise;
pub mod teardown;
pub mod underlay;

pub use juneau_responder as responder;
