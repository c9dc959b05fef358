//! Subnets: their number, their reserved addresses, their pool.

use super::Target;
use super::allocate::{Allocation, Allocations};
use super::claim::Want;
use super::mac;
use super::networks::{self, Networks};
use super::planner::{Planner, few, has_finalizer, is_owned_by, name, object_name, owner, owners, set_finalizer, uid};
use crate::view::{Kind, Object};
use ipnet::Ipv4Net;
use juneau_api::kinds::{
    AllocationPool, AllocationPoolSpec, IpSpace, PoolType, Subnet, SubnetNetworkAcl, SubnetStatus, reason,
};
use juneau_api::{conditions, names};
use std::sync::Arc;

/// Finalizer of a Subnet: it stays while Pods have addresses of it.
pub const FINALIZER: &str = "subnet.juneau.loutres.me/in-use";

/// What the encapsulation adds to a packet of a Pod, in bytes: IPv4, UDP, VXLAN and the inner Ethernet header.
const ENCAPSULATION: u32 = 50;

impl<'v> Planner<'v> {
    /// The number of a Subnet, if it has one.
    pub(super) fn vni(&self, allocations: &Allocations<'_>, subnet: &Subnet) -> Option<u32> {
        let said = subnet.status.as_ref().and_then(|status| status.vni);
        self.number(allocations, &subnet.metadata, names::Attribute::Vni, said)
    }

    pub(super) fn subnets(&mut self, networks: &Networks<'v>, allocations: &Allocations<'v>) {
        for subnet in self.view.subnets.values() {
            self.subnet(subnet, networks, allocations);
        }
    }

    fn subnet(&mut self, subnet: &'v Arc<Subnet>, networks: &Networks<'v>, allocations: &Allocations<'v>) {
        let own = name(&subnet.metadata);
        let mut status = subnet.status.clone().unwrap_or_default();
        if subnet.metadata.deletion_timestamp.is_some() {
            if let Some(users) = self.subnet_deleting(subnet) {
                let message = format!("is being deleted and waits for {users}");
                self.subnet_status(subnet, status, Err((reason::IN_USE, message)));
            }
            return;
        }
        if !has_finalizer(&subnet.metadata, FINALIZER) {
            let mut subnet = Subnet::clone(subnet);
            set_finalizer(&mut subnet.metadata, FINALIZER, true);
            self.metadata(subnet);
        }
        let Some(prefix) = networks.subnets.get(own).copied() else {
            let why = networks.refused.get(own).cloned();
            let (reason, message) = why.unwrap_or((reason::NOT_READY, String::new()));
            self.warn(Target::of(&Object::Subnet(Arc::clone(subnet))), reason, message.clone());
            self.subnet_status(subnet, status, Err((reason, message)));
            return;
        };
        let want = Want {
            kind: Kind::Subnet,
            metadata: &subnet.metadata,
            owner: names::Owner::Subnet(own),
            attribute: names::Attribute::Vni,
            pool: names::SUBNET_VNI_POOL,
        };
        let allocation = self.claim(allocations, &want, |_| ());
        let pool = self.subnet_pool(subnet, prefix);
        status.vni = self.vni(allocations, subnet);
        let mac_of = |known: Option<String>, what: &str| {
            known.filter(|known| mac::is_usable(known)).unwrap_or_else(|| mac::derive(&[uid(&subnet.metadata), what]))
        };
        status.gateway = Some(networks::gateway(prefix).to_string());
        status.gateway_mac = Some(mac_of(status.gateway_mac.take(), "gateway"));
        status.dns = Some(networks::dns(prefix).to_string());
        status.dns_mac = Some(mac_of(status.dns_mac.take(), "dns"));
        status.mtu = Some(self.config.underlay_mtu.saturating_sub(ENCAPSULATION));
        let acl = subnet.spec.network_acl.as_ref().filter(|name| !name.is_empty());
        status.network_acl = acl.map(|name| SubnetNetworkAcl { name: name.clone(), acl_id: 0, ruleset_version: None });
        let outcome = match (allocation, status.vni) {
            (Allocation::Failed(failure), _) => Err((reason::RECONCILE_FAILED, failure.message().to_owned())),
            (_, None) => Err((reason::NOT_READY, "waits for its number".to_owned())),
            (_, Some(_)) if !pool => Err((reason::NOT_READY, "waits for its AllocationPool".to_owned())),
            (_, Some(_)) => self.subnet_routing(subnet, allocations),
        };
        self.subnet_status(subnet, status, outcome);
    }

    /// Whether the Vpc and the RouteTable of a Subnet can be used. Routes that lead nowhere are not the Subnet's fault.
    fn subnet_routing(&self, subnet: &Subnet, allocations: &Allocations<'_>) -> Result<(), (&'static str, String)> {
        let vpc_name = &subnet.spec.vpc;
        let vpc = self.view.vpcs.get(vpc_name);
        if vpc.and_then(|vpc| self.vpc_id(allocations, vpc)).is_none() {
            return Err((reason::VPC_NOT_READY, format!("Vpc/{vpc_name} has no number yet")));
        }
        let chosen = subnet.spec.route_table.as_deref().filter(|name| !name.is_empty());
        let table_name = chosen.unwrap_or(vpc_name);
        match self.view.route_tables.get(table_name) {
            None if chosen.is_none() => {
                Err((reason::VPC_NOT_READY, format!("Vpc/{vpc_name} has no main RouteTable yet")))
            }
            None => Err((reason::NOT_READY, format!("RouteTable/{table_name} does not exist"))),
            Some(table) if table.spec.vpc != *vpc_name => Err((
                reason::RECONCILE_FAILED,
                format!("RouteTable/{table_name} is of Vpc/{}, not of Vpc/{vpc_name}", table.spec.vpc),
            )),
            Some(table) if self.table_id(allocations, table).is_none() => {
                Err((reason::NOT_READY, format!("RouteTable/{table_name} has no number yet")))
            }
            Some(_) => Ok(()),
        }
    }

    fn subnet_status(&mut self, subnet: &Arc<Subnet>, mut status: SubnetStatus, outcome: Result<(), (&str, String)>) {
        let (ready, reason, message) = match outcome {
            Ok(()) => (true, reason::RECONCILE_SUCCEEDED, String::new()),
            Err((reason, message)) => (false, reason, message),
        };
        let generation = subnet.metadata.generation;
        conditions::set_ready(&mut status.conditions, ready, reason, &message, generation, &self.time());
        status.observed_generation = generation;
        self.status(subnet, Subnet { status: Some(status), ..Subnet::clone(subnet) });
    }

    /// Whom a Subnet that is being deleted waits for; lets it go when that is nobody.
    fn subnet_deleting(&mut self, subnet: &Arc<Subnet>) -> Option<String> {
        if !has_finalizer(&subnet.metadata, FINALIZER) {
            return None;
        }
        let own = name(&subnet.metadata);
        let view = self.view;
        let interfaces = view.network_interfaces.values().filter(|nic| nic.spec.subnet.as_deref() == Some(own));
        let users: Vec<String> = interfaces
            .filter(|nic| {
                // One at rest has its address.
                self.index.claim(uid(&nic.metadata), names::Attribute::Address).is_some()
                    || nic.status.as_ref().is_some_and(|status| status.address.is_some())
            })
            .map(|nic| format!("NetworkInterface/{}", object_name(&nic.metadata)))
            .collect();
        if users.is_empty() {
            let mut subnet = Subnet::clone(subnet);
            set_finalizer(&mut subnet.metadata, FINALIZER, false);
            self.metadata(subnet);
            return None;
        }
        Some(few(&users))
    }

    /// Makes the pool of a Subnet's addresses; whether it is there.
    fn subnet_pool(&mut self, subnet: &Subnet, prefix: Ipv4Net) -> bool {
        let pool_name = names::subnet_pool(name(&subnet.metadata));
        let spec = AllocationPoolSpec {
            kind: PoolType::Ip,
            ip: Some(IpSpace {
                cidrs: vec![prefix.to_string()],
                ranges: Vec::new(),
                excluded: networks::reserved(prefix).map(|address| address.to_string()).into(),
            }),
            ..AllocationPoolSpec::default()
        };
        match self.view.pools.get(&pool_name) {
            None => {
                let mut pool = AllocationPool::new(&pool_name, spec);
                pool.metadata.owner_references = Some(vec![owner(Kind::Subnet, &subnet.metadata)]);
                self.create(pool);
                false
            }
            // An earlier Subnet's; it goes first.
            Some(pool) if !is_owned_by(&pool.metadata, Kind::Subnet, uid(&subnet.metadata)) => false,
            Some(pool) => {
                if pool.spec != spec {
                    let mut pool = AllocationPool::clone(pool);
                    pool.spec = spec;
                    self.spec(pool);
                }
                pool.metadata.deletion_timestamp.is_none()
            }
        }
    }

    /// The status of every pool, and the end of those whose Subnet is gone, or whose prefix the Vpc has no more.
    pub(super) fn pools(&mut self, networks: &Networks<'v>) {
        let wanted = self.endpoint_pools(networks);
        for (name, pool) in self.view.pools.iter() {
            let mut subnets = owners(&pool.metadata).iter().filter(|owner| owner.kind == Kind::Subnet.as_str());
            let gone = subnets.any(|owner| {
                self.view.subnets.get(&owner.name).is_none_or(|subnet| uid(&subnet.metadata) != owner.uid)
                    && !self.is_unreadable(Kind::Subnet, "", &owner.name)
            });
            let is_over = gone || self.is_left_over(name, pool, &wanted);
            if is_over && self.is_settled(&pool.metadata) {
                self.delete(pool);
                continue;
            }
            let mut status = pool.status.clone().unwrap_or_default();
            let (ready, reason, message) = match super::pool::Free::new(&pool.spec) {
                Ok(_) => (true, reason::RECONCILE_SUCCEEDED, String::new()),
                Err(message) => (false, reason::INVALID_POOL, message),
            };
            let generation = pool.metadata.generation;
            conditions::set_ready(&mut status.conditions, ready, reason, &message, generation, &self.time());
            status.observed_generation = generation;
            self.status(pool, AllocationPool { status: Some(status), ..AllocationPool::clone(pool) });
        }
    }
}
