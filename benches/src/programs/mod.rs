//! Figures of single programs: by test runs, and by the kernel's count of their run time inside whole paths.

pub mod in_path;
pub mod scale;
pub mod services;
mod stage;
pub mod timing;
pub mod two_cpus;
