//! Who gets which number or address.
//!
//! An AllocationLease is the lock: its name is made of the pool and the value, and it is only ever made by a POST, so of
//! two operators one succeeds. A claim's value is that of the lease that names it; once it is in the claim's status it
//! stays. What an object is given is what the status of its claim holds.

mod leases;
mod stock;

pub use leases::REUSE_KEY;

use super::memory::Entry;
use super::planner::{FastMap, Planner, name, uid};
use super::pool;
use crate::view::Kind;
use juneau_api::conditions;
use juneau_api::kinds::{AllocationClaim, AllocationClaimStatus, ClaimPhase, reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use leases::{lease_name, new_lease};
use std::rc::Rc;
use std::sync::Arc;

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Allocation {
    /// It has this value, and its status says so.
    Value(u32),
    /// It will have one soon.
    Pending,
    /// It has none, for this reason.
    Failed(Failure),
}

/// Why a claim has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// All values are taken.
    Exhausted(String),
    /// The value that it asks for is somebody's.
    InUse(String),
    /// The value that it asks for is none of the pool's.
    Outside(String),
    /// Its own value is somebody else's lease.
    Lost(String),
    /// The pool is missing or wrong.
    Pool(String),
}

impl Failure {
    const fn reason(&self) -> &'static str {
        match self {
            Self::Exhausted(_) => reason::PENDING,
            _ => reason::ALLOCATION_FAILED,
        }
    }

    pub(super) fn message(&self) -> &str {
        match self {
            Self::Exhausted(text) | Self::InUse(text) | Self::Outside(text) | Self::Lost(text) | Self::Pool(text) => {
                text
            }
        }
    }
}

/// What became of all claims, by their uids.
pub(super) type Allocations<'v> = FastMap<&'v str, Allocation>;

impl<'v> Planner<'v> {
    /// Hands out values, and takes back what nobody has any more.
    pub(super) fn allocate(&mut self) -> Allocations<'v> {
        let active = Rc::clone(&self.active);
        let mut allocations = Allocations::with_capacity_and_hasher(active.claims.len(), Default::default());
        let mut waiting = Vec::new();
        for Entry { place, object: claim, .. } in &active.claims {
            if let Some(value) = self.at_rest(claim) {
                allocations.insert(uid(&claim.metadata), Allocation::Value(value));
                if let Some(calm) = &mut self.calm {
                    calm.claims.insert(uid(&claim.metadata), *place);
                }
            } else if let Some(allocation) = self.settled(claim) {
                allocations.insert(uid(&claim.metadata), allocation);
            } else if claim.metadata.deletion_timestamp.is_none() && self.is_wanted(claim) {
                waiting.push(*claim);
            }
        }
        if !waiting.is_empty() {
            waiting.sort_by_key(|claim| (claim.metadata.creation_timestamp.clone(), name(&claim.metadata)));
            let mut store = self.store(&waiting);
            for claim in waiting {
                let allocation = self.serve(claim, &mut store);
                if let Allocation::Failed(failure) = &allocation {
                    self.claim_failed(claim, failure);
                }
                allocations.insert(uid(&claim.metadata), allocation);
            }
        }
        for Entry { place, object: lease, .. } in &active.leases {
            let said = self.said();
            self.lease(lease);
            if self.said() == said
                && let (Some(calm), Some(claim)) = (&mut self.calm, &lease.spec.claim_ref.uid)
            {
                calm.leases.insert(claim, *place);
            }
        }
        allocations
    }

    /// Whether the object that a claim is for exists.
    fn is_wanted(&self, claim: &AllocationClaim) -> bool {
        let resource = &claim.spec.resource_ref;
        let namespace = resource.namespace.as_deref().unwrap_or_default();
        let unreadable = |kind| self.is_unreadable(kind, namespace, &resource.name);
        self.resource(claim).is_some()
            || Kind::ALL.into_iter().any(|kind| kind.as_str() == resource.kind && unreadable(kind))
    }

    /// The object that a claim is for.
    fn resource(&self, claim: &AllocationClaim) -> Option<&'v ObjectMeta> {
        let resource = &claim.spec.resource_ref;
        let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == resource.kind)?;
        let metadata = match kind {
            Kind::Vpc => self.view.vpcs.get(&resource.name).map(|object| &object.metadata),
            Kind::Subnet => self.view.subnets.get(&resource.name).map(|object| &object.metadata),
            Kind::RouteTable => self.view.route_tables.get(&resource.name).map(|object| &object.metadata),
            Kind::Node => self.view.nodes.get(&resource.name).map(|object| &object.metadata),
            Kind::ServiceNATAttachment => self.view.nat_attachments.get(&resource.name).map(|object| &object.metadata),
            Kind::VpcEndpoint => self.view.vpc_endpoints.get(&resource.name).map(|object| &object.metadata),
            // There are many of these.
            Kind::NetworkInterface => {
                let nic = self.index.interface(resource.uid.as_deref()?);
                nic.map(|nic| &nic.metadata).filter(|metadata| {
                    name(metadata) == resource.name
                        && metadata.namespace.as_deref().unwrap_or_default()
                            == resource.namespace.as_deref().unwrap_or_default()
                })
            }
            _ => None,
        };
        metadata.filter(|metadata| metadata.uid.is_some() && metadata.uid == resource.uid)
    }

    /// Deletes claims whose object is gone.
    pub(super) fn collect_claims(&mut self) {
        let active = Rc::clone(&self.active);
        for claim in active.claims.iter().map(|claim| claim.object) {
            let said = self.said();
            if claim.metadata.deletion_timestamp.is_none() && !self.is_wanted(claim) && self.is_settled(&claim.metadata)
            {
                self.delete(claim);
            }
            if self.said() != said
                && let Some(calm) = &mut self.calm
            {
                calm.claims.remove(uid(&claim.metadata));
            }
        }
    }

    /// A claim that has its value, or a lease that says what it will be, and is not at rest.
    fn settled(&mut self, claim: &'v Arc<AllocationClaim>) -> Option<Allocation> {
        let held = self.index.leases(claim).to_vec();
        let said = claim.status.as_ref().and_then(|status| status.value.as_ref());
        let Some(value) = said.and_then(pool::number) else {
            let lease = held.first()?;
            let mut status = AllocationClaimStatus {
                phase: Some(ClaimPhase::Allocated),
                value: Some(lease.spec.value.clone()),
                ..claim.status.clone().unwrap_or_default()
            };
            self.claim_status(claim, &mut status, true, reason::ALLOCATED, "");
            return Some(Allocation::Pending);
        };
        let mut status = claim.status.clone().unwrap_or_default();
        // Only now is it certain which of several leases is the claim's: what a status says stays.
        for lease in held.iter().filter(|lease| pool::number(&lease.spec.value) != Some(value)) {
            self.delete(lease);
        }
        if held.iter().all(|lease| pool::number(&lease.spec.value) != Some(value)) {
            let pools = claim.spec.pool_refs.iter().map(|pool| pool.name.as_str());
            let lease = pools.clone().find_map(|pool| self.view.leases.get(&lease_name(pool, claim, value)));
            match (lease, claim.spec.pool_refs.first()) {
                (Some(lease), _) if self.is_held(lease) => {
                    let message = format!("the value belongs to AllocationClaim/{}", lease.spec.claim_ref.name);
                    let failure = Failure::Lost(message);
                    self.claim_status(claim, &mut status, false, failure.reason(), failure.message());
                    return Some(Allocation::Failed(failure));
                }
                (Some(lease), _) => self.hand_over(lease, claim),
                // Somebody deleted the lock; nobody else was given the value, since it counts as taken.
                (None, Some(pool)) if claim.metadata.deletion_timestamp.is_none() => {
                    self.create(new_lease(&pool.name, value, claim));
                }
                (None, _) => {}
            }
        }
        status.phase = Some(ClaimPhase::Allocated);
        self.claim_status(claim, &mut status, true, reason::ALLOCATED, "");
        Some(Allocation::Value(value))
    }

    /// The value of a claim about which all is said and done: nearly every one.
    fn at_rest(&self, claim: &AllocationClaim) -> Option<u32> {
        let status = claim.status.as_ref()?;
        let value = status.value.as_ref().and_then(pool::number)?;
        let [lease] = self.index.leases(claim) else { return None };
        let generation = claim.metadata.generation;
        let is_said = status.phase == Some(ClaimPhase::Allocated)
            && status.observed_generation == generation
            && conditions::is_set(
                &status.conditions,
                conditions::READY,
                conditions::Status::True,
                reason::ALLOCATED,
                "",
                generation,
            );
        (is_said && pool::number(&lease.spec.value) == Some(value)).then_some(value)
    }

    fn claim_status(
        &mut self,
        claim: &Arc<AllocationClaim>,
        status: &mut AllocationClaimStatus,
        ready: bool,
        reason: &str,
        message: &str,
    ) {
        let generation = claim.metadata.generation;
        conditions::set_ready(&mut status.conditions, ready, reason, message, generation, &self.time());
        status.observed_generation = generation;
        if claim.status.as_ref() != Some(status) {
            self.status(claim, AllocationClaim { status: Some(status.clone()), ..AllocationClaim::clone(claim) });
        }
    }

    fn claim_failed(&mut self, claim: &Arc<AllocationClaim>, failure: &Failure) {
        let mut status = claim.status.clone().unwrap_or_default();
        status.phase = Some(ClaimPhase::Pending);
        self.claim_status(claim, &mut status, false, failure.reason(), failure.message());
    }
}
