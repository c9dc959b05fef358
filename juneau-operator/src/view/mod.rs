//! Everything that exists, as the plan reads it.

mod core;
mod object;
mod sightings;

pub use self::core::{Namespace, Node, Pod, Service};
pub use object::{Kind, Object};
pub use sightings::Sightings;

use juneau_api::kinds;
use juneau_api::view::ObjectName;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Objects of one kind, by name.
pub type Shared<K, T> = Arc<BTreeMap<K, Arc<T>>>;

/// Takes an object out; whether it was there. What is not there copies nothing.
fn take<K: Ord + Clone, T>(objects: &mut Shared<K, T>, name: &K) -> bool {
    objects.contains_key(name) && Arc::make_mut(objects).remove(name).is_some()
}

/// Everything that exists. Cluster-wide kinds are kept by name, the others by namespace and name.
///
/// Objects are shared, and so is what holds those of a kind: a clone of a view copies one pointer a kind. While there is a
/// clone, the first change of a kind copies the names of that kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct View {
    /// v1 Namespaces.
    pub namespaces: Shared<String, Namespace>,
    /// v1 Nodes.
    pub nodes: Shared<String, Node>,
    /// v1 Pods.
    pub pods: Shared<ObjectName, Pod>,
    /// v1 Services.
    pub services: Shared<ObjectName, Service>,
    /// Those of them that a plan has to look at ([`Service::is_notable`]), so that it costs nothing how many there are.
    pub notable_services: Shared<ObjectName, Service>,
    /// Tenants' networks.
    pub vpcs: Shared<String, kinds::Vpc>,
    /// Their prefixes.
    pub subnets: Shared<String, kinds::Subnet>,
    /// Their routes.
    pub route_tables: Shared<String, kinds::RouteTable>,
    /// Interfaces of Pods.
    pub network_interfaces: Shared<ObjectName, kinds::NetworkInterface>,
    /// What holds addresses.
    pub network_endpoints: Shared<ObjectName, kinds::NetworkEndpoint>,
    /// Nodes' source addresses for shared Services.
    pub nat_attachments: Shared<String, kinds::ServiceNATAttachment>,
    /// Addresses of VPCs in front of Services.
    pub vpc_endpoints: Shared<String, kinds::VpcEndpoint>,
    /// What numbers and addresses are handed out of.
    pub pools: Shared<String, kinds::AllocationPool>,
    /// Wishes for them.
    pub claims: Shared<String, kinds::AllocationClaim>,
    /// What is taken of them.
    pub leases: Shared<String, kinds::AllocationLease>,
    /// Objects of other kinds that exist, of those that `spec.retainWhile` of a lease names. Who fills the view looks
    /// them up; a kind that the cluster does not serve has none.
    pub retaining: BTreeSet<Retaining>,
    /// When things were seen. Without it the timestamps of the objects count, as where only one clock ever writes.
    pub sightings: Option<Sightings>,
    /// Objects that exist and cannot be decoded. What depends on one of them is neither given away nor removed.
    pub undecodable: BTreeSet<(Kind, ObjectName)>,
}

impl View {
    /// Puts an object in, in place of one with the same kind and name, if there is one.
    pub fn insert(&mut self, object: Object) {
        let key = object.name();
        match object {
            Object::Namespace(object) => drop(Arc::make_mut(&mut self.namespaces).insert(key.name, object)),
            Object::Node(object) => drop(Arc::make_mut(&mut self.nodes).insert(key.name, object)),
            Object::Pod(object) => drop(Arc::make_mut(&mut self.pods).insert(key, object)),
            Object::Service(object) => {
                if object.is_notable() {
                    Arc::make_mut(&mut self.notable_services).insert(key.clone(), Arc::clone(&object));
                } else {
                    take(&mut self.notable_services, &key);
                }
                drop(Arc::make_mut(&mut self.services).insert(key, object));
            }
            Object::Vpc(object) => drop(Arc::make_mut(&mut self.vpcs).insert(key.name, object)),
            Object::Subnet(object) => drop(Arc::make_mut(&mut self.subnets).insert(key.name, object)),
            Object::RouteTable(object) => drop(Arc::make_mut(&mut self.route_tables).insert(key.name, object)),
            Object::NetworkInterface(object) => drop(Arc::make_mut(&mut self.network_interfaces).insert(key, object)),
            Object::NetworkEndpoint(object) => drop(Arc::make_mut(&mut self.network_endpoints).insert(key, object)),
            Object::ServiceNATAttachment(object) => {
                drop(Arc::make_mut(&mut self.nat_attachments).insert(key.name, object));
            }
            Object::VpcEndpoint(object) => drop(Arc::make_mut(&mut self.vpc_endpoints).insert(key.name, object)),
            Object::AllocationPool(object) => drop(Arc::make_mut(&mut self.pools).insert(key.name, object)),
            Object::AllocationClaim(object) => drop(Arc::make_mut(&mut self.claims).insert(key.name, object)),
            Object::AllocationLease(object) => drop(Arc::make_mut(&mut self.leases).insert(key.name, object)),
        }
    }

    /// Takes an object out; whether it was there.
    pub fn remove(&mut self, kind: Kind, name: &ObjectName) -> bool {
        match kind {
            Kind::Namespace => take(&mut self.namespaces, &name.name),
            Kind::Node => take(&mut self.nodes, &name.name),
            Kind::Pod => take(&mut self.pods, name),
            Kind::Service => {
                take(&mut self.notable_services, name);
                take(&mut self.services, name)
            }
            Kind::Vpc => take(&mut self.vpcs, &name.name),
            Kind::Subnet => take(&mut self.subnets, &name.name),
            Kind::RouteTable => take(&mut self.route_tables, &name.name),
            Kind::NetworkInterface => take(&mut self.network_interfaces, name),
            Kind::NetworkEndpoint => take(&mut self.network_endpoints, name),
            Kind::ServiceNATAttachment => take(&mut self.nat_attachments, &name.name),
            Kind::VpcEndpoint => take(&mut self.vpc_endpoints, &name.name),
            Kind::AllocationPool => take(&mut self.pools, &name.name),
            Kind::AllocationClaim => take(&mut self.claims, &name.name),
            Kind::AllocationLease => take(&mut self.leases, &name.name),
        }
    }

    /// All objects of a kind.
    #[must_use]
    pub fn all(&self, kind: Kind) -> Vec<Object> {
        fn each<K, T>(map: &BTreeMap<K, Arc<T>>, wrap: impl Fn(Arc<T>) -> Object) -> Vec<Object> {
            map.values().cloned().map(wrap).collect()
        }
        match kind {
            Kind::Namespace => each(&self.namespaces, Object::Namespace),
            Kind::Node => each(&self.nodes, Object::Node),
            Kind::Pod => each(&self.pods, Object::Pod),
            Kind::Service => each(&self.services, Object::Service),
            Kind::Vpc => each(&self.vpcs, Object::Vpc),
            Kind::Subnet => each(&self.subnets, Object::Subnet),
            Kind::RouteTable => each(&self.route_tables, Object::RouteTable),
            Kind::NetworkInterface => each(&self.network_interfaces, Object::NetworkInterface),
            Kind::NetworkEndpoint => each(&self.network_endpoints, Object::NetworkEndpoint),
            Kind::ServiceNATAttachment => each(&self.nat_attachments, Object::ServiceNATAttachment),
            Kind::VpcEndpoint => each(&self.vpc_endpoints, Object::VpcEndpoint),
            Kind::AllocationPool => each(&self.pools, Object::AllocationPool),
            Kind::AllocationClaim => each(&self.claims, Object::AllocationClaim),
            Kind::AllocationLease => each(&self.leases, Object::AllocationLease),
        }
    }

    /// The object with this kind and name.
    #[must_use]
    pub fn get(&self, kind: Kind, name: &ObjectName) -> Option<Object> {
        match kind {
            Kind::Namespace => self.namespaces.get(&name.name).cloned().map(Object::Namespace),
            Kind::Node => self.nodes.get(&name.name).cloned().map(Object::Node),
            Kind::Pod => self.pods.get(name).cloned().map(Object::Pod),
            Kind::Service => self.services.get(name).cloned().map(Object::Service),
            Kind::Vpc => self.vpcs.get(&name.name).cloned().map(Object::Vpc),
            Kind::Subnet => self.subnets.get(&name.name).cloned().map(Object::Subnet),
            Kind::RouteTable => self.route_tables.get(&name.name).cloned().map(Object::RouteTable),
            Kind::NetworkInterface => self.network_interfaces.get(name).cloned().map(Object::NetworkInterface),
            Kind::NetworkEndpoint => self.network_endpoints.get(name).cloned().map(Object::NetworkEndpoint),
            Kind::ServiceNATAttachment => {
                self.nat_attachments.get(&name.name).cloned().map(Object::ServiceNATAttachment)
            }
            Kind::VpcEndpoint => self.vpc_endpoints.get(&name.name).cloned().map(Object::VpcEndpoint),
            Kind::AllocationPool => self.pools.get(&name.name).cloned().map(Object::AllocationPool),
            Kind::AllocationClaim => self.claims.get(&name.name).cloned().map(Object::AllocationClaim),
            Kind::AllocationLease => self.leases.get(&name.name).cloned().map(Object::AllocationLease),
        }
    }
}

/// An object of any kind that keeps a value for somebody.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Retaining {
    /// Its group and version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace and name.
    pub name: ObjectName,
}

impl From<&kinds::RetainWhile> for Retaining {
    fn from(wish: &kinds::RetainWhile) -> Self {
        Self {
            api_version: wish.api_version.clone(),
            kind: wish.kind.clone(),
            name: ObjectName::new(wish.namespace.as_str(), wish.name.as_str()),
        }
    }
}

#[cfg(test)]
mod tests;
