//! Nodes: each has an endpoint of its own in the Subnet `default`, by which the node itself is reached from there.

use super::allocate::{Allocation, Allocations};
use super::claim::Want;
use super::memory::Entry;
use super::networks::Networks;
use super::planner::{Planner, is_owned_by, owner, uid};
use super::{Target, mac};
use crate::view::{Kind, Node, Object};
use core::net::Ipv4Addr;
use juneau_api::kinds::{EndpointKind, NetworkEndpoint, NetworkEndpointSpec, reason};
use juneau_api::names;
use juneau_api::view::ObjectName;
use std::rc::Rc;
use std::sync::Arc;

/// What a node's MAC address is derived from, beside its uid: the device that has it.
const DEVICE: &str = "juneau_node";

impl<'v> Planner<'v> {
    /// Makes the endpoints of nodes, puts them right, and removes those of nodes that are gone.
    pub(super) fn nodes(&mut self, networks: &Networks<'v>, allocations: &Allocations<'v>) {
        let Some(namespace) = self.config.node_namespace.as_deref() else { return };
        let mut wanted = std::collections::BTreeSet::new();
        for (name, node) in self.view.nodes.iter() {
            let key = ObjectName::new(namespace, names::node_endpoint(name));
            if node.metadata.deletion_timestamp.is_none() {
                self.node(&key, name, node, networks, allocations);
                wanted.insert(key);
            }
        }
        let active = Rc::clone(&self.active);
        for Entry { name, object: endpoint, .. } in &active.endpoints {
            if endpoint.spec.kind == EndpointKind::Node
                && !wanted.contains(*name)
                && !self.is_unreadable(Kind::Node, "", &endpoint.spec.node_name)
                && self.is_settled(&endpoint.metadata)
            {
                self.delete(endpoint);
            }
        }
    }

    fn node(
        &mut self,
        key: &ObjectName,
        name: &str,
        node: &'v Arc<Node>,
        networks: &Networks<'v>,
        allocations: &Allocations<'v>,
    ) {
        let attribute = names::Attribute::NodeAddress;
        let Some(prefix) = networks.subnets.get(names::DEFAULT).copied() else { return };
        let Some(subnet) = self.view.subnets.get(names::DEFAULT) else { return };
        let has_claim = self.index.claim(uid(&node.metadata), attribute).is_some();
        if !has_claim && self.is_network_ready(subnet, allocations).is_err() {
            return;
        }
        let pool = names::subnet_pool(names::DEFAULT);
        let owned = names::Owner::Node(name);
        let want = Want { kind: Kind::Node, metadata: &node.metadata, owner: owned, attribute, pool: &pool };
        let value = match self.claim(allocations, &want, |_| ()) {
            Allocation::Value(value) => value,
            Allocation::Pending => return,
            Allocation::Failed(failure) => {
                let target = Target::of(&Object::Node(Arc::clone(node)));
                self.warn(target, reason::ALLOCATION_FAILED, format!("its own endpoint: {}", failure.message()));
                return;
            }
        };
        let spec = NetworkEndpointSpec {
            kind: EndpointKind::Node,
            node_name: name.to_owned(),
            subnet: Some(names::DEFAULT.to_owned()),
            address: Some(format!("{}/{}", Ipv4Addr::from_bits(value), prefix.prefix_len())),
            mac_address: Some(mac::derive(&[uid(&node.metadata), DEVICE])),
            ..NetworkEndpointSpec::default()
        };
        let Some(endpoint) = self.view.network_endpoints.get(key) else {
            // Without its namespace it could only fail.
            if self.view.namespaces.contains_key(&key.namespace) {
                let mut endpoint = NetworkEndpoint::new(&key.name, spec);
                endpoint.metadata.namespace = Some(key.namespace.clone());
                endpoint.metadata.owner_references = Some(vec![owner(Kind::Node, &node.metadata)]);
                self.create(endpoint);
            }
            return;
        };
        if endpoint.metadata.deletion_timestamp.is_some() {
            return;
        }
        if !is_owned_by(&endpoint.metadata, Kind::Node, uid(&node.metadata)) {
            // An earlier node's of the same name.
            if self.is_settled(&endpoint.metadata) {
                self.delete(endpoint);
            }
            return;
        }
        // The attachment is the node's to write.
        let is_right = NetworkEndpointSpec { attachment: None, ..endpoint.spec.clone() } == spec;
        if is_right {
            self.endpoint_status(endpoint);
            return;
        }
        let target = Target::of(&Object::NetworkEndpoint(Arc::clone(endpoint)));
        self.warn_at_once(
            target,
            reason::ENDPOINT_MISMATCH,
            "it is not as its node has it; it is put right".to_owned(),
        );
        let mut endpoint = NetworkEndpoint::clone(endpoint);
        endpoint.spec = spec;
        self.spec(endpoint);
    }
}
