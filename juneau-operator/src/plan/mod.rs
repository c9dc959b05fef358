//! From what exists to what shall be changed: a pure function.
//!
//! A plan is the first step, not the whole way: what depends on an object's uid waits until the object exists, so the
//! caller plans again whenever the view changed. A plan that was carried out is followed by an empty one.
//!
//! Every change but a creation names the uid and the resourceVersion of the object that the plan saw. A writer that
//! slept meanwhile is refused, and nothing that it means to say is lost, since the next plan says it again.

mod change;
mod config;

pub use change::{Change, Notice, Plan, Target};
pub use config::Config;

use crate::view::View;
use k8s_openapi::jiff::Timestamp;

/// What to change, as far as this view and this moment tell.
#[must_use]
pub fn plan(_view: &View, _config: &Config, _now: Timestamp) -> Plan {
    Plan::default()
}
