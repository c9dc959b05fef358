//! Who gets which number or address.
//!
//! An AllocationLease is the lock: its name is made of the pool and the value, and it is only ever made by a POST, so of
//! two operators one succeeds. A claim's value is that of the lease that names it; once it is in the claim's status it
//! stays. What an object is given is what the status of its claim holds.

use super::planner::{FastMap, Planner, later, name, uid};
use super::pool::{self, Free};
use crate::view::{Kind, Retaining};
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use juneau_api::kinds::{
    self, AllocationClaim, AllocationClaimStatus, AllocationLease, AllocationLeaseSpec, AllocationPool, ClaimPhase,
    ClaimRef, LeasePhase, PoolRef, PoolType, reason,
};
use juneau_api::view::{ObjectName, Time};
use juneau_api::{conditions, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Two clocks that differ by less agree.
const CLOCKS_AGREE: Duration = Duration::from_secs(5);
/// Annotation of an AllocationLease: the identity that the value is kept for, when it is not the claim's name.
pub const REUSE_KEY: &str = "juneau.loutres.me/reuse-key";

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

/// A pool as far as it is needed to hand out its values.
struct Stock<'v> {
    kind: PoolType,
    all: Free,
    free: Free,
    /// Where the search begins: after the value that was handed out last, so that a value that comes back rests.
    start: u32,
    /// Leases by value.
    leases: BTreeMap<u32, &'v Arc<AllocationLease>>,
    /// Leases without a holder and without a stable identity, the oldest first.
    resting: Vec<(Timestamp, u32)>,
}

/// What the claims that have no value are served from.
struct Store<'v> {
    stocks: HashMap<&'v str, Result<Stock<'v>, String>>,
    /// Leases without a holder by pool and identity.
    returning: HashMap<(&'v str, &'v str), &'v Arc<AllocationLease>>,
}

impl<'v> Planner<'v> {
    /// Hands out values, and takes back what nobody has any more.
    pub(super) fn allocate(&mut self) -> Allocations<'v> {
        let view = self.view;
        let mut allocations = Allocations::with_capacity_and_hasher(view.claims.len(), Default::default());
        let mut waiting = Vec::new();
        for claim in view.claims.values() {
            if let Some(allocation) = self.settled(claim) {
                allocations.insert(uid(&claim.metadata), allocation);
            } else if claim.metadata.deletion_timestamp.is_none() && self.is_wanted(claim) {
                waiting.push(claim);
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
        for lease in view.leases.values() {
            self.lease(lease);
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
            // There are many of these.
            Kind::NetworkInterface => {
                let nic = self.index.interfaces.get(resource.uid.as_deref()?);
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

    /// Marks the leases of a claim whose object goes; whether there was one to mark.
    pub(super) fn mark_leases(&mut self, claim: &AllocationClaim) -> bool {
        let leases = self.index.leases.get(uid(&claim.metadata)).cloned().unwrap_or_default();
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

    /// Deletes claims whose object is gone.
    pub(super) fn collect_claims(&mut self) {
        let view = self.view;
        for claim in view.claims.values() {
            if claim.metadata.deletion_timestamp.is_none() && !self.is_wanted(claim) && self.is_settled(&claim.metadata)
            {
                self.delete(claim);
            }
        }
    }

    /// A claim that has its value, or a lease that says what it will be.
    fn settled(&mut self, claim: &'v Arc<AllocationClaim>) -> Option<Allocation> {
        if let Some(value) = self.at_rest(claim) {
            return Some(Allocation::Value(value));
        }
        let held = self.index.leases.get(uid(&claim.metadata)).cloned().unwrap_or_default();
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
        let [lease] = self.index.leases.get(uid(&claim.metadata))?.as_slice() else { return None };
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

    /// Whether the claim that a lease names exists.
    fn is_held(&self, lease: &AllocationLease) -> bool {
        let uid = lease.spec.claim_ref.uid.as_deref().unwrap_or_default();
        self.index.claim_uids.contains_key(uid)
            || self.is_unreadable(Kind::AllocationClaim, "", &lease.spec.claim_ref.name)
    }

    /// Since when a lease counts as without a holder, or from when on: its mark, by the clock of whoever is here.
    fn without_holder_since(&self, lease: &AllocationLease) -> Option<Timestamp> {
        let written = lease.spec.owner_deletion_timestamp.as_ref()?.0;
        let Some(sightings) = &self.view.sightings else { return Some(written) };
        let seen = sightings.mark(uid(&lease.metadata));
        let (early, late) = (later(seen, self.config.settle), later(seen, self.config.settle + CLOCKS_AGREE));
        // A mark lies ahead of when it was written by nothing or by `settle`. Which, only a clock that agrees tells.
        let agree = later(written, CLOCKS_AGREE) >= seen && written <= late;
        Some(if agree { written.clamp(seen, early) } else { early })
    }

    /// Gives a lease without a holder to a claim, in one write that fails if anything about the lease changed.
    fn hand_over(&mut self, lease: &Arc<AllocationLease>, claim: &AllocationClaim) {
        let mut lease = AllocationLease::clone(lease);
        lease.spec.claim_ref = claim_ref(claim);
        lease.spec.owner_deletion_timestamp = None;
        lease.spec.ttl_seconds = ttl_seconds(claim);
        lease.spec.retain_while.clone_from(&claim.spec.retain_while);
        self.spec(lease);
    }

    /// The pools that these claims want something of.
    fn store(&self, waiting: &[&'v Arc<AllocationClaim>]) -> Store<'v> {
        let view = self.view;
        let wanted: HashSet<&str> =
            waiting.iter().flat_map(|claim| &claim.spec.pool_refs).map(|pool| pool.name.as_str()).collect();
        let mut stocks: HashMap<&str, Result<Stock<'v>, String>> = wanted
            .iter()
            .map(|pool| {
                let stock = match view.pools.get(*pool) {
                    Some(object) => stock(object),
                    None => Err(format!("AllocationPool/{pool} does not exist")),
                };
                (*pool, stock)
            })
            .collect();
        // What a claim's status holds is taken, even if its lease was deleted by a hand.
        for claim in view.claims.values() {
            let value = claim.status.as_ref().and_then(|status| status.value.as_ref()).and_then(pool::number);
            if let Some(value) = value {
                for pool in &claim.spec.pool_refs {
                    if let Some(Ok(stock)) = stocks.get_mut(pool.name.as_str()) {
                        stock.free.take(value);
                    }
                }
            }
        }
        let mut newest: HashMap<&str, (Option<&Time>, u32)> = HashMap::new();
        let mut returning = HashMap::new();
        for lease in view.leases.values() {
            let pool = lease.spec.pool_ref.name.as_str();
            let (Some(Ok(stock)), Some(value)) = (stocks.get_mut(pool), pool::number(&lease.spec.value)) else {
                continue;
            };
            stock.free.take(value);
            stock.leases.insert(value, lease);
            let age = (lease.metadata.creation_timestamp.as_ref(), value);
            newest.entry(pool).and_modify(|newest| *newest = (*newest).max(age)).or_insert(age);
            if !self.is_held(lease) {
                returning.insert((pool, identity_of_lease(lease)), lease);
                if let (false, Some(since)) = (is_retained(lease), self.without_holder_since(lease))
                    && since <= self.now
                {
                    stock.resting.push((since, value));
                }
            }
        }
        for (pool, stock) in &mut stocks {
            if let Ok(stock) = stock {
                // Popped from the end.
                stock.resting.sort_unstable_by(|one, other| other.cmp(one));
                if stock.kind == PoolType::Ip {
                    stock.start = newest.get(pool).map_or(0, |(_, value)| value.wrapping_add(1));
                }
            }
        }
        Store { stocks, returning }
    }

    /// Finds a value for a claim.
    fn serve(&mut self, claim: &'v Arc<AllocationClaim>, store: &mut Store<'v>) -> Allocation {
        let requested = match (claim.spec.requested_number, &claim.spec.requested_ip) {
            (Some(number), _) => Some(number),
            (None, Some(text)) => match text.parse::<Ipv4Addr>() {
                Ok(address) => Some(address.into()),
                Err(_) => return Allocation::Failed(Failure::Outside(format!("{text:?} is not an IPv4 address"))),
            },
            (None, None) => None,
        };
        let mut failure = Failure::Pool("it names no AllocationPool".to_owned());
        for pool in &claim.spec.pool_refs {
            let Some(stock) = store.stocks.get_mut(pool.name.as_str()) else { continue };
            let stock = match stock {
                Ok(stock) => stock,
                Err(message) => {
                    failure = Failure::Pool(message.clone());
                    continue;
                }
            };
            let own = store.returning.remove(&(pool.name.as_str(), identity(claim)));
            if let Some(lease) = own
                && requested.is_none_or(|requested| pool::number(&lease.spec.value) == Some(requested))
                && pool::number(&lease.spec.value).is_some_and(|value| stock.all.contains(value))
            {
                self.hand_over(lease, claim);
                return Allocation::Pending;
            }
            let served = match requested {
                Some(requested) => self.serve_requested(claim, &pool.name, stock, requested),
                None => self.serve_any(claim, &pool.name, stock),
            };
            match served {
                Ok(()) => return Allocation::Pending,
                Err(why) => failure = why,
            }
        }
        Allocation::Failed(failure)
    }

    fn serve_any(&mut self, claim: &AllocationClaim, pool: &str, stock: &mut Stock<'v>) -> Result<(), Failure> {
        while let Some(value) = stock.free.next(stock.start) {
            stock.free.take(value);
            if self.is_unreadable(Kind::AllocationLease, "", &lease_of(pool, stock.kind, value)) {
                continue;
            }
            if stock.kind == PoolType::Ip {
                stock.start = value.wrapping_add(1);
            }
            self.create(new_lease(pool, value, claim));
            return Ok(());
        }
        // An address that rests is better than none; the next plan hands it out.
        if let Some((_, value)) = stock.resting.pop()
            && let Some(lease) = stock.leases.get(&value)
        {
            self.delete(lease);
            return Ok(());
        }
        Err(Failure::Exhausted(format!("AllocationPool/{pool} has nothing left")))
    }

    fn serve_requested(
        &mut self,
        claim: &AllocationClaim,
        pool: &str,
        stock: &mut Stock<'v>,
        requested: u32,
    ) -> Result<(), Failure> {
        let shown = match stock.kind {
            PoolType::Ip => Ipv4Addr::from(requested).to_string(),
            _ => requested.to_string(),
        };
        if !stock.all.contains(requested) {
            return Err(Failure::Outside(format!("AllocationPool/{pool} does not hand out {shown}")));
        }
        if self.is_unreadable(Kind::AllocationLease, "", &lease_of(pool, stock.kind, requested)) {
            return Err(Failure::InUse(format!("the AllocationLease of {shown} cannot be decoded")));
        }
        if stock.free.take(requested) {
            self.create(new_lease(pool, requested, claim));
            return Ok(());
        }
        if let Some(place) = stock.resting.iter().position(|(_, value)| *value == requested)
            && let Some(lease) = stock.leases.get(&requested)
        {
            stock.resting.remove(place);
            self.delete(lease);
            return Ok(());
        }
        Err(Failure::InUse(match stock.leases.get(&requested) {
            Some(lease) if !self.is_held(lease) && !is_retained(lease) => {
                format!("{shown} was used until now")
            }
            Some(lease) if !self.is_held(lease) => {
                format!("{shown} is kept for AllocationClaim/{}", lease.spec.claim_ref.name)
            }
            Some(lease) => format!("{shown} belongs to AllocationClaim/{}", lease.spec.claim_ref.name),
            None => format!("{shown} is being given to another"),
        }))
    }

    /// What becomes of a lease: nothing while its claim exists.
    fn lease(&mut self, lease: &'v Arc<AllocationLease>) {
        let holder = lease.spec.claim_ref.uid.as_deref().and_then(|uid| self.index.claim_uids.get(uid)).copied();
        if let Some(holder) = holder {
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

fn stock<'v>(pool: &AllocationPool) -> Result<Stock<'v>, String> {
    let all = Free::new(&pool.spec).map_err(|why| format!("AllocationPool/{}: {why}", name(&pool.metadata)))?;
    let free = all.clone();
    Ok(Stock { kind: pool.spec.kind, all, free, start: 0, leases: BTreeMap::new(), resting: Vec::new() })
}

/// Whom a value is kept for.
fn identity(claim: &AllocationClaim) -> &str {
    claim.spec.reuse_key.as_deref().unwrap_or_else(|| name(&claim.metadata))
}

/// Whom a lease's value is kept for.
fn identity_of_lease(lease: &AllocationLease) -> &str {
    let key = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(REUSE_KEY));
    key.map_or(lease.spec.claim_ref.name.as_str(), String::as_str)
}

/// Whether a lease waits for its holder's return.
const fn is_retained(lease: &AllocationLease) -> bool {
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
fn lease_name(pool: &str, claim: &AllocationClaim, value: u32) -> String {
    let is_address = claim.status.as_ref().and_then(|status| status.value.as_ref()).is_some_and(|v| v.ip.is_some());
    names::lease(pool, lease_value(is_address, value))
}

/// The name of the lease of a pool's value.
fn lease_of(pool: &str, kind: PoolType, value: u32) -> String {
    names::lease(pool, lease_value(kind == PoolType::Ip, value))
}

const fn lease_value(is_address: bool, value: u32) -> names::LeaseValue {
    if is_address {
        names::LeaseValue::Address(IpAddr::V4(Ipv4Addr::from_bits(value)))
    } else {
        names::LeaseValue::Number(value)
    }
}

fn new_lease(pool: &str, value: u32, claim: &AllocationClaim) -> AllocationLease {
    let is_address = claim.spec.attribute == names::Attribute::Address.as_str()
        || claim.spec.attribute == names::Attribute::NodeAddress.as_str();
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
