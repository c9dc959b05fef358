//! Where the changes of a plan go.

pub mod directory;
pub(crate) mod objects;
pub mod server;

pub use objects::{Objects, Refusal};
