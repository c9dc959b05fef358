//! From what exists to what shall be changed: a pure function.
//!
//! A plan is the first step, not the whole way: what depends on an object's uid waits until the object exists, so the
//! caller plans again whenever the view changed. A plan that was carried out is followed by an empty one in the end.
//!
//! Every change but a creation names the uid and the resourceVersion of the object that the plan saw. A writer that
//! slept meanwhile is refused, and nothing that it means to say is lost, since the next plan says it again. A plan
//! changes an object at most once.

mod allocate;
mod bootstrap;
mod change;
mod claim;
mod config;
mod interfaces;
mod mac;
mod memory;
mod nat;
mod networks;
mod nodes;
mod planner;
mod pods;
mod pool;
mod services;
mod subnets;
mod tables;
mod text;
mod vpc_endpoints;
mod vpcs;

pub use allocate::REUSE_KEY;
pub use change::{Change, Notice, Plan, Target};
pub use config::{Config, USUAL_SERVICES};
pub use interfaces::FINALIZER as INTERFACE_FINALIZER;
pub use memory::Memory;
pub use subnets::FINALIZER as SUBNET_FINALIZER;
pub use tables::FINALIZER as ROUTE_TABLE_FINALIZER;
pub use vpcs::FINALIZER as VPC_FINALIZER;

use crate::view::View;
use k8s_openapi::jiff::Timestamp;
use memory::{Active, Calm, Uids};
use planner::Planner;
use std::sync::Arc;

/// What to change, as far as this view and this moment tell.
#[must_use]
pub fn plan(view: &View, config: &Config, now: Timestamp) -> Plan {
    compose(view, config, now, Active::all(view), None).0
}

/// A plan for what is active, and what it had nothing to say about. The rest, with these uids, is at rest; with none at all,
/// nobody asks what was calm.
fn compose<'v>(
    view: &'v View,
    config: &'v Config,
    now: Timestamp,
    active: Active<'v>,
    resting: Option<Arc<Uids>>,
) -> (Plan, Calm<'v>) {
    let mut planner = Planner::new(view, config, now, active, resting);
    planner.bootstrap();
    let allocations = planner.allocate();
    let networks = planner.networks();
    planner.vpcs(&networks, &allocations);
    let externals = planner.services(&networks);
    planner.tables(&networks, &externals, &allocations);
    planner.subnets(&networks, &allocations);
    planner.pools(&networks);
    let kept = planner.pods();
    planner.interfaces(&kept, &networks, &allocations);
    planner.nodes(&networks, &allocations);
    planner.nat_attachments(&networks, &allocations);
    planner.vpc_endpoints(&networks, &allocations);
    planner.collect_claims();
    planner.finish()
}

#[cfg(test)]
mod tests;
