//! VpcEndpoints: an address of the Vpc's endpoint pool in front of a Service.

use super::Target;
use super::allocate::{Allocation, Allocations};
use super::claim::Want;
use super::networks::Networks;
use super::planner::{Planner, is_owned_by, name, owner, owners, uid};
use super::pool::{self, Free};
use crate::view::{Kind, Object};
use core::net::Ipv4Addr;
use ipnet::Ipv4Net;
use juneau_api::access::services::accepted;
use juneau_api::kinds::{
    AllocationClaim, AllocationPool, AllocationPoolSpec, IpRange, IpSpace, PoolRef, PoolType, Vpc, VpcEndpoint,
    VpcEndpointStatus, reason,
};
use juneau_api::view::ObjectName;
use juneau_api::{conditions, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::collections::HashSet;
use std::sync::Arc;

/// Why something does not hold: reason and message.
type Obstacle = (&'static str, String);

impl<'v> Planner<'v> {
    /// Makes the pools of Vpcs' endpoint prefixes. Which of them are wanted, by name.
    pub(super) fn endpoint_pools(&mut self, networks: &Networks<'v>) -> HashSet<String> {
        let mut wanted = HashSet::new();
        for (vpc_name, prefixes) in &networks.endpoints {
            let Some(vpc) = self.view.vpcs.get(*vpc_name) else { continue };
            for prefix in prefixes {
                let pool = names::endpoint_pool(vpc_name, *prefix);
                if vpc.metadata.deletion_timestamp.is_none() {
                    self.endpoint_pool(&pool, vpc, *prefix);
                }
                wanted.insert(pool);
            }
        }
        wanted
    }

    /// Whether a pool was one of a Vpc's endpoint prefixes and is none any more. While somebody has an address of it, it
    /// stays.
    pub(super) fn is_left_over(&self, pool_name: &str, pool: &AllocationPool, wanted: &HashSet<String>) -> bool {
        let is_of = |vpc: &OwnerReference| vpc.kind == Kind::Vpc.as_str();
        let Some(vpc) = owners(&pool.metadata).iter().find(|owner| is_of(owner)) else { return false };
        let values = Free::new(&pool.spec).unwrap_or_default();
        let is_used = |claim: &AllocationClaim| {
            let value = claim.status.as_ref().and_then(|status| status.value.as_ref()).and_then(pool::number);
            claim.spec.pool_refs.iter().any(|one| one.name == pool_name)
                && value.is_some_and(|value| values.contains(value))
        };
        if self.is_unreadable(Kind::Vpc, "", &vpc.name) {
            return false;
        }
        let is_there = self.view.vpcs.get(&vpc.name).is_some_and(|found| uid(&found.metadata) == vpc.uid);
        !is_there || !wanted.contains(pool_name) && !self.view.claims.values().any(|claim| is_used(claim))
    }

    fn endpoint_pool(&mut self, pool_name: &str, vpc: &Vpc, prefix: Ipv4Net) {
        let spec = AllocationPoolSpec { kind: PoolType::Ip, ip: Some(space(prefix)), ..AllocationPoolSpec::default() };
        match self.view.pools.get(pool_name) {
            None if self.is_unreadable(Kind::AllocationPool, "", pool_name) => {}
            None => {
                let mut pool = AllocationPool::new(pool_name, spec);
                pool.metadata.owner_references = Some(vec![owner(Kind::Vpc, &vpc.metadata)]);
                self.create(pool);
            }
            Some(pool) if pool.spec != spec && is_owned_by(&pool.metadata, Kind::Vpc, uid(&vpc.metadata)) => {
                let mut pool = AllocationPool::clone(pool);
                pool.spec = spec;
                self.spec(pool);
            }
            Some(_) => {}
        }
    }

    pub(super) fn vpc_endpoints(&mut self, networks: &Networks<'v>, allocations: &Allocations<'v>) {
        for (own, endpoint) in self.view.vpc_endpoints.iter() {
            if endpoint.metadata.deletion_timestamp.is_none() {
                self.vpc_endpoint(own, endpoint, networks, allocations);
            }
        }
    }

    fn vpc_endpoint(
        &mut self,
        own: &str,
        endpoint: &'v Arc<VpcEndpoint>,
        networks: &Networks<'v>,
        allocations: &Allocations<'v>,
    ) {
        let service = &endpoint.spec.service;
        if self.is_unreadable(Kind::Vpc, "", &endpoint.spec.vpc)
            || self.is_unreadable(Kind::Service, &service.namespace, &service.name)
        {
            return;
        }
        let address = self.endpoint_address(own, endpoint, networks, allocations);
        let service = self.endpoint_service(endpoint);
        let attribute = names::Attribute::EndpointAddress;
        let claim = self.index.claim(uid(&endpoint.metadata), attribute);
        let status = VpcEndpointStatus {
            address: address.as_ref().ok().map(ToString::to_string),
            allocation_claim: claim.filter(|_| address.is_ok()).map(|claim| name(&claim.metadata).to_owned()),
            ..endpoint.status.clone().unwrap_or_default()
        };
        let ready = match (&address, &service) {
            (Ok(_), Ok(())) => Ok(()),
            (Err((reason::ALLOCATING, message)), _) => Err((reason::ADDRESS_PENDING, message.clone())),
            (Err(obstacle), _) => Err(obstacle.clone()),
            (_, Err((_, message))) => Err((reason::SERVICE_NOT_ACCEPTED, message.clone())),
        };
        // An address comes within a moment; nobody has to hear of that.
        if let Err((reason, message)) = &ready
            && *reason != reason::ADDRESS_PENDING
        {
            let target = Target::of(&Object::VpcEndpoint(Arc::clone(endpoint)));
            self.warn(target, reason, message.clone());
        }
        self.endpoint_conditions(endpoint, status, address.map(|_| ()), service, ready);
    }

    fn endpoint_conditions(
        &mut self,
        endpoint: &Arc<VpcEndpoint>,
        mut status: VpcEndpointStatus,
        address: Result<(), Obstacle>,
        service: Result<(), Obstacle>,
        ready: Result<(), Obstacle>,
    ) {
        let (generation, now) = (endpoint.metadata.generation, self.time());
        for (kind, verdict, success) in [
            (conditions::ADDRESS_ALLOCATED, address, reason::ALLOCATED),
            (conditions::SERVICE_ACCEPTED, service, reason::SERVICE_ACCEPTED),
            (conditions::READY, ready, reason::RECONCILE_SUCCEEDED),
        ] {
            let holds = conditions::Status::from(verdict.is_ok());
            let (reason, message) = verdict.err().unwrap_or((success, String::new()));
            conditions::set(&mut status.conditions, kind, holds, reason, &message, generation, &now);
        }
        status.observed_generation = generation;
        self.status(endpoint, VpcEndpoint { status: Some(status), ..VpcEndpoint::clone(endpoint) });
    }

    /// The address of a VpcEndpoint.
    fn endpoint_address(
        &mut self,
        own: &str,
        endpoint: &'v Arc<VpcEndpoint>,
        networks: &Networks<'v>,
        allocations: &Allocations<'v>,
    ) -> Result<Ipv4Addr, Obstacle> {
        let vpc_name = endpoint.spec.vpc.as_str();
        let unavailable = |message: String| (reason::VPC_UNAVAILABLE, message);
        let pending = |message: &str| (reason::ALLOCATING, message.to_owned());
        let attribute = names::Attribute::EndpointAddress;
        let claim = self.index.claim(uid(&endpoint.metadata), attribute);
        let Some(vpc) = self.view.vpcs.get(vpc_name) else {
            // An address of a Vpc that is gone is nobody's.
            if let Some(claim) = claim {
                self.delete(claim);
            }
            return Err(unavailable(format!("Vpc/{vpc_name} does not exist; create it")));
        };
        if claim.is_none() && vpc.metadata.deletion_timestamp.is_some() {
            return Err(unavailable(format!("Vpc/{vpc_name} is being deleted")));
        }
        if self.vpc_id(allocations, vpc).is_none() {
            return Err(unavailable(format!("Vpc/{vpc_name} has no number yet")));
        }
        let prefixes = networks.endpoints.get(vpc_name).map(Vec::as_slice).unwrap_or_default();
        if prefixes.is_empty() {
            if let Some(claim) = claim {
                self.delete(claim);
            }
            let message =
                format!("Vpc/{vpc_name} has no endpointPool that can be used; set its spec.endpointPool.cidrs");
            return Err((reason::ENDPOINT_POOL_NOT_CONFIGURED, message));
        }
        let pools: Vec<String> = prefixes.iter().map(|prefix| names::endpoint_pool(vpc_name, *prefix)).collect();
        if claim.is_none()
            && !pools.iter().all(|pool| {
                let pool = self.view.pools.get(pool);
                pool.is_some_and(|pool| is_owned_by(&pool.metadata, Kind::Vpc, uid(&vpc.metadata)))
            })
        {
            return Err(pending("waits for the AllocationPools of the Vpc's endpointPool"));
        }
        let owned = names::Owner::VpcEndpoint(own);
        let (kind, metadata) = (Kind::VpcEndpoint, &endpoint.metadata);
        let want = Want { kind, metadata, owner: owned, attribute, pool: &pools[0] };
        let refs = || pools.iter().map(|pool| PoolRef { name: pool.clone() }).collect();
        match self.claim(allocations, &want, |claim| claim.pool_refs = refs()) {
            Allocation::Value(value) => {
                let address = Ipv4Addr::from_bits(value);
                if prefixes.iter().any(|prefix| prefix.contains(&address)) {
                    return Ok(address);
                }
                // Its prefix has been taken out of the pool.
                if let Some(claim) = claim {
                    self.delete(claim);
                }
                Err(pending("its address is none of the Vpc's endpointPool any more; it gets another"))
            }
            Allocation::Pending => Err(pending("waits for its address")),
            Allocation::Failed(failure) => {
                // Prefixes that came since are asked only by a new claim.
                if let Some(claim) = claim
                    && claim.spec.pool_refs != refs()
                {
                    self.delete(claim);
                }
                Err((reason::ALLOCATING, failure.message().to_owned()))
            }
        }
    }

    /// Whether the Service of a VpcEndpoint may be called through it.
    fn endpoint_service(&self, endpoint: &VpcEndpoint) -> Result<(), Obstacle> {
        let wanted = &endpoint.spec.service;
        let which = ObjectName::new(wanted.namespace.as_str(), wanted.name.as_str());
        let found = self.view.services.get(&which);
        let Some(service) = found.filter(|service| service.metadata.deletion_timestamp.is_none()) else {
            return Err((reason::SERVICE_NOT_FOUND, format!("Service/{which} does not exist; create it")));
        };
        let offer = service
            .offer
            .as_ref()
            .map_err(|error| (reason::SERVICE_VPC_NOT_FOUND, format!("Service/{which} is in no Vpc: {error}")))?;
        let owner = self.view.vpcs.get(&offer.vpc);
        if let Some(owner) = owner
            && let Err(refused) = self.namespace_may_enter(&which.namespace, owner)
        {
            return Err((reason::SERVICE_VPC_NOT_FOUND, format!("Service/{which} is in no Vpc: {refused}")));
        }
        let way = accepted(&endpoint.spec.vpc, offer, service.cluster_ip, owner.map(|vpc| &**vpc));
        way.map(|_| ()).map_err(|why| {
            let message = format!("Service/{which} of Vpc/{} cannot be called through it: {why}", offer.vpc);
            (why.reason(), message)
        })
    }
}

/// What is handed out of a prefix. The first host of one that has more than two is kept free, as in a Subnet; of /31 and
/// /32 every address is handed out.
fn space(prefix: Ipv4Net) -> IpSpace {
    let (first, last) = (prefix.network(), prefix.broadcast());
    match prefix.prefix_len() {
        31.. => {
            let range = IpRange { start: first.to_string(), end: last.to_string() };
            IpSpace { ranges: vec![range], ..IpSpace::default() }
        }
        length => {
            let kept = (length < 30).then(|| Ipv4Addr::from_bits(first.to_bits() + 1).to_string());
            IpSpace { cidrs: vec![prefix.to_string()], excluded: kept.into_iter().collect(), ..IpSpace::default() }
        }
    }
}
