//! Juneau's operator: from what exists to what shall be.
//!
//! One pure function, [`plan::plan`], reads a [`view::View`] of everything that exists and says what to change. What it
//! says goes to a sink: an API server, or the lab's directory. Nothing is remembered between two plans but what the
//! objects themselves hold, so that the operator can be killed between any two writes.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod admission;
pub mod certificates;
pub mod cli;
pub mod clock;
pub mod events;
pub mod http;
pub mod leader;
pub mod plan;
pub mod readers;
pub mod rights;
pub mod run;
pub mod sink;
pub mod state;
pub mod view;

/// The definitions of Juneau's kinds, as YAML documents.
///
/// # Errors
/// When one cannot be written as YAML.
pub fn crds() -> Result<String, String> {
    let definitions = juneau_api::crd::yaml().map_err(|error| error.to_string())?;
    Ok(definitions.into_iter().map(|(_, text)| format!("---\n{text}")).collect())
}
