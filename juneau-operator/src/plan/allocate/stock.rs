//! What pools have left, and which of it a claim is given.

use super::leases::{identity, identity_of_lease, is_retained, lease_of, new_lease};
use super::{Allocation, Failure};
use crate::plan::planner::{Planner, name};
use crate::plan::pool::{self, Free};
use crate::view::Kind;
use core::net::Ipv4Addr;
use juneau_api::kinds::{AllocationClaim, AllocationLease, AllocationPool, PoolType};
use juneau_api::view::Time;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

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
pub(super) struct Store<'v> {
    stocks: HashMap<&'v str, Result<Stock<'v>, String>>,
    /// Leases without a holder by pool and identity.
    returning: HashMap<(&'v str, &'v str), &'v Arc<AllocationLease>>,
}

impl<'v> Planner<'v> {
    /// The pools that these claims want something of.
    pub(super) fn store(&self, waiting: &[&'v Arc<AllocationClaim>]) -> Store<'v> {
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
    pub(super) fn serve(&mut self, claim: &'v Arc<AllocationClaim>, store: &mut Store<'v>) -> Allocation {
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
}

fn stock<'v>(pool: &AllocationPool) -> Result<Stock<'v>, String> {
    let all = Free::new(&pool.spec).map_err(|why| format!("AllocationPool/{}: {why}", name(&pool.metadata)))?;
    let free = all.clone();
    Ok(Stock { kind: pool.spec.kind, all, free, start: 0, leases: BTreeMap::new(), resting: Vec::new() })
}
