//! The reference path, rule by rule, on the two tenants of the testkit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
mod delivery;
