//! The reference path, rule by rule, on the two tenants of the testkit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod arp;
mod common;
mod delivery;
mod exits;
mod flows;
mod fragments;
mod icmp;
mod moves;
mod node;
mod overlay;
mod policy;
mod properties;
mod resets;
mod routers;
mod services;
