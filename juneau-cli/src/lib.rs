//! `kubectl-juneau`: what Juneau's objects say, what belongs together, and what is off.
//!
//! What is fetched ([`fetch`]) becomes a [`snapshot::Snapshot`]; [`report`] makes reports of it and [`render`] text of
//! these. Both are pure functions.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod bundle;
pub mod cli;
pub mod client;
pub mod complete;
pub mod error;
pub mod exec;
pub mod fetch;
pub mod problems;
pub mod render;
pub mod report;
pub mod run;
pub mod snapshot;
