//! Kubernetes' own end-to-end tests of the network, run against a cluster of ours.
//!
//! [`List`] says of each test whether it passes, and else why not; `docs/conformance.md` is made from it. [`run`] starts
//! a cluster, gives its nodes the [`image`] that the tests' Pods run, and runs tests; [`judge`] holds what came out to
//! the list.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod document;
mod error;
pub mod image;
pub mod judge;
mod list;
pub mod report;
pub mod run;
pub mod suite;

pub use error::{Error, Result};
pub use list::{Entry, Expected, List};
