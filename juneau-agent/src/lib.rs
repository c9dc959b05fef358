//! Juneau's node daemon as a library: objects → model → tables → kernel, and the socket at which Pods are attached.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod net;
pub mod pod;
pub mod protocol;
