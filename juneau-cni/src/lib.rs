//! Juneau's CNI plugin as a library, and the protocol that it speaks with the node's agent.
//!
//! The plugin decides nothing: it reads what the container runtime says (CNI specification 0.1.0 to 1.1.0), asks the
//! agent, and writes the answer as the version wants it. [`respond`] is all of it but for the socket, as a function of
//! its input; [`main`] is the process around it.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod check;
mod config;
mod environment;
mod error;
mod process;
pub mod protocol;
mod respond;
mod result;
mod version;

pub use config::{CONFIG_LIMIT, Config, SOCKET};
pub use environment::{Command, Environment, Variables};
pub use error::{CniError, Code};
pub use process::{TIMEOUT, main};
pub use respond::{Ask, Outcome, respond};
pub use result::document;
pub use version::Version;
