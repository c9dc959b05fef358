//! Juneau's Kubernetes kinds, the typed view of what exists, and where it comes from.
//!
//! State flows one way: a [`source`] yields a [`view::View`], and [`normalise`](normalise::normalise) turns the view into the
//! plain model of `juneau-core` and what is wrong into named problems.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod access;
pub mod annotations;
pub mod conditions;
#[cfg(feature = "kube")]
pub mod crd;
pub mod kinds;
pub mod names;
pub mod normalise;
pub mod probes;
pub mod services;
pub mod source;
pub mod view;
