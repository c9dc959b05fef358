//! Where the changes of a plan go.

pub mod directory;
mod objects;

pub use objects::{Objects, Refusal};
