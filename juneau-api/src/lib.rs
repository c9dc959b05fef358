//! Juneau's Kubernetes kinds, the typed view of what exists, and where it comes from.
//!
//! State flows one way.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod kinds;
pub mod source;
pub mod view;
