//! ServiceNATAttachments: each node has an address in each Vpc that provides Services, as which it calls these for others.

use super::allocate::{Allocation, Allocations};
use super::claim::Want;
use super::memory::Entry;
use super::networks::Networks;
use super::planner::{Planner, is_owned_by, owner, uid};
use super::{Target, mac};
use crate::view::{Kind, Node, Object};
use core::net::Ipv4Addr;
use ipnet::Ipv4Net;
use juneau_api::kinds::{
    EndpointKind, NetworkEndpoint, NetworkEndpointSpec, ServiceNATAttachment, ServiceNatAttachmentSpec,
    ServiceNatAttachmentStatus, Vpc, reason,
};
use juneau_api::view::ObjectName;
use juneau_api::{conditions, names};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// What the MAC address is derived from, beside the attachment's uid.
const DEVICE: &str = "service-nat";

impl<'v> Planner<'v> {
    /// Makes the attachments of nodes, gives them addresses, and removes those that are not wanted any more.
    pub(super) fn nat_attachments(&mut self, networks: &Networks<'v>, allocations: &Allocations<'v>) {
        // Who publishes no endpoints of nodes has no node to take part.
        let Some(namespace) = self.config.node_namespace.as_deref() else { return };
        let providers: Vec<(&'v String, &'v Arc<Vpc>, &'v str)> = self
            .view
            .vpcs
            .iter()
            .filter(|(_, vpc)| vpc.metadata.deletion_timestamp.is_none())
            .filter_map(|(name, vpc)| Some((name, vpc, source_subnet(vpc)?)))
            .collect();
        for (name, vpc, subnet) in &providers {
            self.source(name, vpc, subnet);
        }
        let (mut wanted, mut published) = (BTreeSet::new(), BTreeSet::new());
        for (node_name, node) in self.view.nodes.iter() {
            if node.metadata.deletion_timestamp.is_some() {
                continue;
            }
            for (vpc, _, subnet) in &providers {
                let own = names::service_nat_attachment(node_name, vpc);
                let endpoint = ObjectName::new(namespace, names::service_nat_endpoint(node_name, vpc));
                self.nat_attachment(&own, node, &endpoint, vpc, subnet, networks, allocations);
                wanted.insert(own);
                published.insert(endpoint);
            }
        }
        for (name, attachment) in self.view.nat_attachments.iter() {
            let of = &attachment.spec;
            let unreadable =
                self.is_unreadable(Kind::Node, "", &of.node_name) || self.is_unreadable(Kind::Vpc, "", &of.vpc);
            if !wanted.contains(name) && !unreadable && self.is_settled(&attachment.metadata) {
                self.delete(attachment);
            }
        }
        let active = Rc::clone(&self.active);
        for Entry { name, object: endpoint, .. } in &active.endpoints {
            if endpoint.spec.kind == EndpointKind::ServiceNAT
                && !published.contains(*name)
                && !self.is_unreadable(Kind::Node, "", &endpoint.spec.node_name)
                && !self.view.undecodable.iter().any(|(kind, _)| *kind == Kind::Vpc)
                && self.is_settled(&endpoint.metadata)
            {
                self.delete(endpoint);
            }
        }
    }

    /// Says on the Vpc that its addresses for sharing cannot be had: each attachment says it as well.
    fn source(&mut self, name: &str, vpc: &Arc<Vpc>, subnet: &str) {
        let message = match self.view.subnets.get(subnet) {
            Some(found) if found.spec.vpc == name => return,
            None if self.is_unreadable(Kind::Subnet, "", subnet) => return,
            // It is made in a moment.
            None if name == names::DEFAULT && subnet == names::DEFAULT => return,
            found => lacking(subnet, found.map(|found| found.spec.vpc.as_str()), name),
        };
        let message = format!("spec.service.provider.natSourceSubnet: {message}");
        self.warn(Target::of(&Object::Vpc(Arc::clone(vpc))), reason::SUBNET_NOT_FOUND, message);
    }

    #[expect(clippy::too_many_arguments, reason = "one of each kind that an attachment is between")]
    fn nat_attachment(
        &mut self,
        own: &str,
        node: &'v Arc<Node>,
        endpoint: &ObjectName,
        vpc: &str,
        subnet: &str,
        networks: &Networks<'v>,
        allocations: &Allocations<'v>,
    ) {
        let node_name = node.metadata.name.as_deref().unwrap_or_default();
        let spec = ServiceNatAttachmentSpec { node_name: node_name.to_owned(), vpc: vpc.to_owned() };
        let Some(attachment) = self.view.nat_attachments.get(own) else {
            if !self.is_unreadable(Kind::ServiceNATAttachment, "", own) {
                let mut attachment = ServiceNATAttachment::new(own, spec);
                attachment.metadata.owner_references = Some(vec![owner(Kind::Node, &node.metadata)]);
                self.create(attachment);
            }
            return;
        };
        if attachment.metadata.deletion_timestamp.is_some() {
            return;
        }
        if attachment.spec != spec || !is_owned_by(&attachment.metadata, Kind::Node, uid(&node.metadata)) {
            // A hand's, or an earlier node's of the same name.
            if self.is_settled(&attachment.metadata) {
                self.delete(attachment);
            }
            return;
        }
        let mac = mac::derive(&[uid(&attachment.metadata), DEVICE]);
        let mut status = attachment.status.clone().unwrap_or_default();
        let outcome = match self.nat_address(own, attachment, vpc, subnet, networks, allocations) {
            Ok(Some((address, prefix))) => {
                status.assigned_ip = Some(address.to_string());
                status.assigned_mac = Some(mac.clone());
                status.subnet = Some(subnet.to_owned());
                let spec = NetworkEndpointSpec {
                    kind: EndpointKind::ServiceNAT,
                    node_name: node_name.to_owned(),
                    subnet: Some(subnet.to_owned()),
                    address: Some(format!("{address}/{}", prefix.prefix_len())),
                    mac_address: Some(mac),
                    ..NetworkEndpointSpec::default()
                };
                if !self.nat_endpoint(endpoint, attachment, spec) {
                    return;
                }
                Ok(())
            }
            Ok(None) => return,
            Err((reason, message)) => {
                (status.assigned_ip, status.assigned_mac, status.subnet) = (None, None, None);
                // What has no address must not be found under its old one.
                if let Some(endpoint) = self.view.network_endpoints.get(endpoint) {
                    self.delete(endpoint);
                }
                self.warn(Target::of(&Object::ServiceNATAttachment(Arc::clone(attachment))), reason, message.clone());
                Err((reason, message))
            }
        };
        self.nat_status(attachment, status, outcome);
    }

    /// The address of an attachment, once it is certain.
    fn nat_address(
        &mut self,
        own: &str,
        attachment: &'v Arc<ServiceNATAttachment>,
        vpc: &str,
        subnet_name: &str,
        networks: &Networks<'v>,
        allocations: &Allocations<'v>,
    ) -> Result<Option<(Ipv4Addr, Ipv4Net)>, (&'static str, String)> {
        let attribute = names::Attribute::ServiceNatAddress;
        let claim = self.index.claim(uid(&attachment.metadata), attribute);
        let found = self.view.subnets.get(subnet_name);
        let usable = found.filter(|subnet| subnet.spec.vpc == vpc && subnet.metadata.deletion_timestamp.is_none());
        let place = usable.and_then(|subnet| Some((subnet, networks.subnets.get(subnet_name).copied()?)));
        let Some((subnet, prefix)) = place else {
            if self.is_unreadable(Kind::Subnet, "", subnet_name) {
                return Ok(None);
            }
            // The Subnet can go when nobody has an address of it.
            if let Some(claim) = claim {
                self.delete(claim);
            }
            return Err(match found {
                Some(found) if found.spec.vpc == vpc => {
                    (reason::NETWORK_NOT_READY, format!("Subnet/{subnet_name} is not in force or is being deleted"))
                }
                found => {
                    (reason::SUBNET_NOT_FOUND, lacking(subnet_name, found.map(|found| found.spec.vpc.as_str()), vpc))
                }
            });
        };
        let pool = names::subnet_pool(subnet_name);
        if let Some(claim) = claim {
            // Of the Subnet that it was before.
            if claim.spec.pool_refs.iter().all(|one| one.name != pool) {
                self.delete(claim);
                return Ok(None);
            }
        } else {
            self.is_network_ready(subnet, allocations).map_err(|message| (reason::NETWORK_NOT_READY, message))?;
        }
        let owned = names::Owner::ServiceNatAttachment(own);
        let (kind, metadata) = (Kind::ServiceNATAttachment, &attachment.metadata);
        let want = Want { kind, metadata, owner: owned, attribute, pool: &pool };
        match self.claim(allocations, &want, |_| ()) {
            Allocation::Value(value) if prefix.contains(&Ipv4Addr::from_bits(value)) => {
                Ok(Some((Ipv4Addr::from_bits(value), prefix)))
            }
            Allocation::Value(_) => {
                // Another Subnet has taken the name.
                if let Some(claim) = claim {
                    self.delete(claim);
                }
                Ok(None)
            }
            Allocation::Pending => Ok(None),
            Allocation::Failed(failure) => Err((reason::ALLOCATION_FAILED, failure.message().to_owned())),
        }
    }

    /// Makes the endpoint of an attachment, or puts it right; whether it is there.
    fn nat_endpoint(&mut self, key: &ObjectName, attachment: &ServiceNATAttachment, spec: NetworkEndpointSpec) -> bool {
        let Some(endpoint) = self.view.network_endpoints.get(key) else {
            // Without its namespace it could only fail.
            if self.view.namespaces.contains_key(&key.namespace)
                && !self.is_unreadable(Kind::NetworkEndpoint, &key.namespace, &key.name)
            {
                let mut endpoint = NetworkEndpoint::new(&key.name, spec);
                endpoint.metadata.namespace = Some(key.namespace.clone());
                endpoint.metadata.owner_references =
                    Some(vec![owner(Kind::ServiceNATAttachment, &attachment.metadata)]);
                self.create(endpoint);
            }
            return false;
        };
        if endpoint.metadata.deletion_timestamp.is_some() {
            return false;
        }
        if !is_owned_by(&endpoint.metadata, Kind::ServiceNATAttachment, uid(&attachment.metadata)) {
            if self.is_settled(&endpoint.metadata) {
                self.delete(endpoint);
            }
            return false;
        }
        // The attachment is the node's to write.
        if (NetworkEndpointSpec { attachment: None, ..endpoint.spec.clone() }) == spec {
            self.endpoint_status(endpoint);
            return true;
        }
        let mut endpoint = NetworkEndpoint::clone(endpoint);
        endpoint.spec = spec;
        self.spec(endpoint);
        false
    }

    fn nat_status(
        &mut self,
        attachment: &Arc<ServiceNATAttachment>,
        mut status: ServiceNatAttachmentStatus,
        outcome: Result<(), (&str, String)>,
    ) {
        let (ready, reason, message) = match outcome {
            Ok(()) => (true, reason::RECONCILE_SUCCEEDED, String::new()),
            Err((reason, message)) => (false, reason, message),
        };
        let generation = attachment.metadata.generation;
        conditions::set_ready(&mut status.conditions, ready, reason, &message, generation, &self.time());
        status.observed_generation = generation;
        self.status(
            attachment,
            ServiceNATAttachment { status: Some(status), ..ServiceNATAttachment::clone(attachment) },
        );
    }
}

/// The Subnet that a Vpc takes addresses of for sharing, if it shares.
fn source_subnet(vpc: &Vpc) -> Option<&str> {
    let provider = vpc.spec.service.as_ref()?.provider.as_ref()?;
    Some(provider.nat_source_subnet.as_str())
}

/// What is wrong with a Subnet that is not there, or is another Vpc's.
fn lacking(subnet: &str, of: Option<&str>, vpc: &str) -> String {
    match of {
        Some(other) => format!("Subnet/{subnet} is of Vpc/{other}, not of Vpc/{vpc}; name one of the same Vpc"),
        None => format!("Subnet/{subnet} does not exist; create it in Vpc/{vpc}, or name another"),
    }
}
