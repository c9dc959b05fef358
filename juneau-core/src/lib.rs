//! The Juneau data plane as a library.
//!
//! `juneau-core` knows no kernel, no cluster, no clock and no sockets. Time is an argument everywhere; a packet's fate
//! is a value ([`verdict::Verdict`]), never an error.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod compile;
pub mod flow;
pub mod id;
pub mod layout;
pub mod model;
pub mod packet;
pub mod pipeline;
pub mod services;
pub mod tables;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
pub mod time;
pub mod verdict;

/// The README's examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
