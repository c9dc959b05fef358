//! Where the changes of a plan go.

pub mod directory;
mod objects;
pub mod server;

pub use objects::{Objects, Refusal};
