//! Where the changes of a plan go.

mod objects;

pub use objects::{Objects, Refusal, stable_uid};
