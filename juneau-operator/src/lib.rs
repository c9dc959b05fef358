//! Juneau's operator: from what exists to what shall be.
//!
//! One pure function, [`plan::plan`], reads a [`view::View`] of everything that exists and says what to change. What it
//! says goes to a sink: an API server, or the lab's directory. Nothing is remembered between two plans but what the
//! objects themselves hold, so that the operator can be killed between any two writes.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod plan;
pub mod sink;
pub mod view;
