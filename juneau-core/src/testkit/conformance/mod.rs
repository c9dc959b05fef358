//! Suites that every implementation of the traits must pass.

mod flows;
mod tables;

pub use flows::flow_table;
pub use tables::tables;
