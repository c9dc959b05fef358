//! Two nodes with a real kubelet and a real containerd each, and Juneau from images: what becomes of Pods and packets when
//! programs and nodes go away and come back. The tests share one cluster and have it one after the other.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]
#![allow(unreachable_pub, reason = "modules of one test")]

mod away;
mod bring_up;
mod churn;
mod connectivity;
mod fixture;
mod flow;
mod machines;
mod node_port;
mod nodes;
mod refused;
mod sandboxes;
mod uninstall;
mod workload;

#[path = "../common/programs.rs"]
mod programs;
