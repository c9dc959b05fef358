//! Who reaches whom: planned from the manifests, probed by the Pods' responders, judged, and shown as a table.

mod judge;
mod plan;
mod run;
mod table;

pub use judge::{Cell, Report, judge};
pub use plan::{Expected, Plan, Probe, plan};
pub use run::{Subject, run};
pub use table::render;
