//! Benchmarks of Juneau: whole paths side by side with other data paths, programs, and compilation.
//!
//! `make bench` runs them. Everything happens in namespaces without names, which vanish with the process.

pub mod agent;
pub mod cli;
pub mod content;
pub mod cpu;
pub mod error;
pub mod kernel;
pub mod kubernetes;
pub mod load;
pub mod measure;
pub mod namespace;
pub mod ours;
pub mod path;
pub mod peers;
pub mod plan;
pub mod programs;
pub mod report;
pub mod rounds;
pub mod statistics;
pub mod suites;
pub mod tables;
