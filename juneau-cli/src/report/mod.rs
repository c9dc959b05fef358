//! Reports: what was fetched, put together the way people ask. Pure functions; what they give can be written as JSON.

mod address;
mod describe;
mod event;
mod interface;
mod parts;
mod pod;
mod status;
mod trace;
mod version;

pub use address::Addresses;
pub use describe::{Description, Target, TargetKind, describe, target};
pub use event::EventPart;
pub use interface::{AttachmentPart, ClaimPart, EndpointPart, InterfacePart, InterfaceReport, LeasePart};
pub use parts::{Entry, RoutePart, RouteState, State, SubnetPart, SubnetReport, TablePart, TableReport, VpcReport};
pub use pod::{AgentPart, PodReport, Wish};
pub use status::{KindCount, NodeStatus, OperatorStatus, PoolStatus, StatusReport, Verdict, WebhookStatus, status};
pub use trace::{End, Hop, Question, Trace, TraceReport, TraceWish};
pub use version::{Definition, VersionReport};

use crate::problems::{self, Problem};
use crate::snapshot::{ObjectRef, Snapshot};
use juneau_api::kinds::AllocationLease;
use std::collections::{BTreeMap, HashMap};

/// What is looked up often.
pub(crate) struct Index<'s> {
    pub(crate) snapshot: &'s Snapshot,
    problems: BTreeMap<ObjectRef, Vec<Problem>>,
    /// Leases by pool.
    leases: HashMap<&'s str, Vec<&'s AllocationLease>>,
    /// Leases by the claim that has them.
    claimed: HashMap<&'s str, Vec<&'s AllocationLease>>,
}

impl<'s> Index<'s> {
    pub(crate) fn new(snapshot: &'s Snapshot) -> Self {
        let mut problems: BTreeMap<ObjectRef, Vec<Problem>> = BTreeMap::new();
        for problem in problems::of_objects(snapshot) {
            problems.entry(problem.object.clone()).or_default().push(problem);
        }
        let mut leases: HashMap<&str, Vec<_>> = HashMap::new();
        let mut claimed: HashMap<&str, Vec<_>> = HashMap::new();
        for lease in snapshot.leases.values() {
            leases.entry(lease.spec.pool_ref.name.as_str()).or_default().push(lease);
            claimed.entry(lease.spec.claim_ref.name.as_str()).or_default().push(lease);
        }
        Self { snapshot, problems, leases, claimed }
    }

    /// What is off with an object.
    pub(crate) fn problems_of(&self, object: &ObjectRef) -> Vec<Problem> {
        self.problems.get(object).cloned().unwrap_or_default()
    }

    /// All that is off with objects.
    pub(crate) fn all_problems(&self) -> impl Iterator<Item = &Problem> {
        self.problems.values().flatten()
    }

    /// What is taken of a pool.
    pub(crate) fn leases_of(&self, pool: &str) -> &[&'s AllocationLease] {
        self.leases.get(pool).map(Vec::as_slice).unwrap_or_default()
    }

    /// What a claim has, or had.
    pub(crate) fn leases_of_claim(&self, claim: &str) -> &[&'s AllocationLease] {
        self.claimed.get(claim).map(Vec::as_slice).unwrap_or_default()
    }

    /// What could not be read, in words.
    pub(crate) fn not_shown(&self) -> Vec<String> {
        let mut all: Vec<String> = self.snapshot.hidden.iter().map(ToString::to_string).collect();
        all.dedup();
        all
    }
}
