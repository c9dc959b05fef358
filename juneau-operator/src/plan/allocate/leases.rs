//! AllocationLeases: whom each is for, and what becomes of it when nobody holds it any more.

use crate::plan::planner::{Planner, later, name, uid};
use crate::plan::pool;
use crate::view::{Kind, Retaining};
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use juneau_api::kinds::{
    self, AllocationClaim, AllocationLease, AllocationLeaseSpec, AllocationPool, ClaimRef, LeasePhase, PoolRef,
    PoolType,
};
use juneau_api::view::{ObjectName, Time};
use juneau_api::{conditions, names};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Two clocks that differ by less agree.
const CLOCKS_AGREE: Duration = Duration::from_secs(5);
/// Annotation of an AllocationLease: the identity that the value is kept for, when it is not the claim's name.
pub const REUSE_KEY: &str = "juneau.loutres.me/reuse-key";

impl<'v> Planner<'v> {
    /// Marks the leases of a claim whose object goes; whether there was one to mark.
    pub(in crate::plan) fn mark_leases(&mut self, claim: &AllocationClaim) -> bool {
        let leases = self.index.leases(claim).to_vec();
        let mut unmarked = leases.into_iter().filter(|lease| lease.spec.owner_deletion_timestamp.is_none()).peekable();
        let any = unmarked.peek().is_some();
        let now = self.time();
        for lease in unmarked {
            let mut lease = AllocationLease::clone(lease);
            lease.spec.owner_deletion_timestamp = Some(now.clone());
            self.spec(lease);
        }
        any
    }

    /// Whether the claim that a lease names exists.
    pub(super) fn is_held(&self, lease: &AllocationLease) -> bool {
        let uid = lease.spec.claim_ref.uid.as_deref().unwrap_or_default();
        self.index.is_claim(uid) || self.is_unreadable(Kind::AllocationClaim, "", &lease.spec.claim_ref.name)
    }

    /// Since when a lease counts as without a holder, or from when on: its mark, by the clock of whoever is here.
    pub(super) fn without_holder_since(&self, lease: &AllocationLease) -> Option<Timestamp> {
        let written = lease.spec.owner_deletion_timestamp.as_ref()?.0;
        let Some(sightings) = &self.view.sightings else { return Some(written) };
        let seen = sightings.mark(uid(&lease.metadata));
        let (early, late) = (later(seen, self.config.settle), later(seen, self.config.settle + CLOCKS_AGREE));
        // A mark lies ahead of when it was written by nothing or by `settle`. Which, only a clock that agrees tells.
        let agree = later(written, CLOCKS_AGREE) >= seen && written <= late;
        Some(if agree { written.clamp(seen, early) } else { early })
    }

    /// Gives a lease without a holder to a claim, in one write that fails if anything about the lease changed.
    pub(super) fn hand_over(&mut self, lease: &Arc<AllocationLease>, claim: &AllocationClaim) {
        let mut lease = AllocationLease::clone(lease);
        lease.spec.claim_ref = claim_ref(claim);
        lease.spec.owner_deletion_timestamp = None;
        lease.spec.ttl_seconds = ttl_seconds(claim);
        lease.spec.retain_while.clone_from(&claim.spec.retain_while);
        self.spec(lease);
    }

    /// What becomes of a lease: nothing while its claim exists.
    pub(super) fn lease(&mut self, lease: &'v Arc<AllocationLease>) {
        if let Some(holder) = self.index.holder(lease) {
            let stays = self.resource(holder).is_some_and(|object| object.deletion_timestamp.is_none());
            if lease.spec.owner_deletion_timestamp.is_some() {
                if stays {
                    let mut lease = AllocationLease::clone(lease);
                    lease.spec.owner_deletion_timestamp = None;
                    self.spec(lease);
                }
            } else if let Some(status) = &lease.status
                && !status.is_active(lease.metadata.generation)
            {
                self.lease_status(lease, status.clone(), LeasePhase::Active, None);
            }
            return;
        }
        let key = ObjectName::new("", name(&lease.metadata));
        if self.is_held(lease) || self.is_touched(Kind::AllocationLease, &key) || !self.is_settled(&lease.metadata) {
            return;
        }
        let Some(since) = &lease.spec.owner_deletion_timestamp else {
            // Its claim may be there, and only its watch be behind: it counts as gone a while later. Whoever sees the claim
            // takes the mark away.
            let since = later(self.time().0, self.config.settle);
            let mut lease = AllocationLease::clone(lease);
            lease.spec.owner_deletion_timestamp = Some(Time(since));
            self.spec(lease);
            return;
        };
        let written = since.0;
        let since = self.without_holder_since(lease).unwrap_or(written);
        if !self.is_due(since) {
            return;
        }
        let Some(pool) = self.view.pools.get(&lease.spec.pool_ref.name) else {
            if !self.is_unreadable(Kind::AllocationPool, "", &lease.spec.pool_ref.name) {
                self.delete(lease);
            }
            return;
        };
        if lease.spec.retain_while.as_ref().is_some_and(|wish| self.view.retaining.contains(&Retaining::from(wish))) {
            let status = lease.status.clone().unwrap_or_default();
            self.lease_status(lease, status, LeasePhase::Retained, None);
            return;
        }
        let rest = match lease.spec.ttl_seconds {
            Some(seconds) => Duration::from_secs(seconds.try_into().unwrap_or_default()),
            None => self.quarantine(pool),
        };
        if self.is_due(later(since, rest)) {
            self.delete(lease);
        } else {
            // For readers, and the same whoever writes it.
            let end = later(written, rest);
            let status = lease.status.clone().unwrap_or_default();
            self.lease_status(lease, status, LeasePhase::Released, Some(Time(end)));
        }
    }

    fn lease_status(
        &mut self,
        lease: &Arc<AllocationLease>,
        mut status: kinds::AllocationLeaseStatus,
        phase: LeasePhase,
        expires_at: Option<Time>,
    ) {
        let generation = lease.metadata.generation;
        let reason = match phase {
            LeasePhase::Active => "Active",
            LeasePhase::Released => "Released",
            _ => "Retained",
        };
        status.phase = Some(phase);
        status.expires_at = expires_at;
        status.observed_generation = generation;
        conditions::set_ready(&mut status.conditions, true, reason, "", generation, &self.time());
        self.status(lease, AllocationLease { status: Some(status), ..AllocationLease::clone(lease) });
    }

    /// How long a value of a pool rests.
    fn quarantine(&self, pool: &AllocationPool) -> Duration {
        let owners = pool.metadata.owner_references.iter().flatten();
        let mut subnets = owners.filter(|owner| owner.kind == Kind::Subnet.as_str());
        let subnet = subnets.find_map(|owner| self.view.subnets.get(&owner.name));
        let text = subnet.and_then(|subnet| subnet.spec.quarantine.as_deref());
        text.and_then(|text| kinds::parse_duration(text).ok()).unwrap_or(self.config.quarantine)
    }
}

/// Whom a value is kept for.
pub(super) fn identity(claim: &AllocationClaim) -> &str {
    claim.spec.reuse_key.as_deref().unwrap_or_else(|| name(&claim.metadata))
}

/// Whom a lease's value is kept for.
pub(super) fn identity_of_lease(lease: &AllocationLease) -> &str {
    let key = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(REUSE_KEY));
    key.map_or(lease.spec.claim_ref.name.as_str(), String::as_str)
}

/// Whether a lease waits for its holder's return.
pub(super) const fn is_retained(lease: &AllocationLease) -> bool {
    lease.spec.ttl_seconds.is_some() || lease.spec.retain_while.is_some()
}

fn claim_ref(claim: &AllocationClaim) -> ClaimRef {
    ClaimRef { name: name(&claim.metadata).to_owned(), uid: claim.metadata.uid.clone() }
}

fn ttl_seconds(claim: &AllocationClaim) -> Option<i64> {
    let duration = kinds::parse_duration(claim.spec.release_after.as_deref()?).ok()?;
    duration.as_secs().try_into().ok()
}

/// The type of a claim's values: its value tells, since a claim's pools are all alike.
pub(super) fn lease_name(pool: &str, claim: &AllocationClaim, value: u32) -> String {
    let is_address = claim.status.as_ref().and_then(|status| status.value.as_ref()).is_some_and(|v| v.ip.is_some());
    names::lease(pool, lease_value(is_address, value))
}

/// The name of the lease of a pool's value.
pub(super) fn lease_of(pool: &str, kind: PoolType, value: u32) -> String {
    names::lease(pool, lease_value(kind == PoolType::Ip, value))
}

const fn lease_value(is_address: bool, value: u32) -> names::LeaseValue {
    if is_address {
        names::LeaseValue::Address(IpAddr::V4(Ipv4Addr::from_bits(value)))
    } else {
        names::LeaseValue::Number(value)
    }
}

pub(super) fn new_lease(pool: &str, value: u32, claim: &AllocationClaim) -> AllocationLease {
    let mut addresses = names::Attribute::ALL.iter().filter(|attribute| attribute.is_address());
    let is_address = addresses.any(|attribute| attribute.as_str() == claim.spec.attribute);
    let kind = if is_address { PoolType::Ip } else { PoolType::Number };
    let spec = AllocationLeaseSpec {
        pool_ref: PoolRef { name: pool.to_owned() },
        value: pool::value(kind, value),
        claim_ref: claim_ref(claim),
        owner_deletion_timestamp: None,
        ttl_seconds: ttl_seconds(claim),
        retain_while: claim.spec.retain_while.clone(),
    };
    let mut lease = AllocationLease::new(&names::lease(pool, lease_value(is_address, value)), spec);
    if let Some(key) = &claim.spec.reuse_key {
        lease.metadata.annotations = Some(BTreeMap::from([(REUSE_KEY.to_owned(), key.clone())]));
    }
    lease
}
