//! What tests of this crate and of others share: conformance suites for the traits, packets, and a small network of two
//! tenants. Functions here assert: they are for tests alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod conformance;
pub mod packets;
pub mod pcap;
pub mod services;
pub mod topology;
