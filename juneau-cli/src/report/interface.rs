//! Interfaces: from the wish for an address to where it is.

use super::{EventPart, Index, State, event};
use crate::problems::Problem;
use crate::snapshot::{ObjectRef, Snapshot, What};
use juneau_api::kinds::{AllocationLease, AllocationValue, InterfacePhase, LeasePhase, NetworkInterface};
use juneau_api::names;
use juneau_api::view::ObjectName;
use serde::Serialize;
use std::collections::BTreeSet;

/// One interface and what belongs to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceReport {
    /// The interface.
    #[serde(flatten)]
    pub interface: InterfacePart,
    /// The Vpc of its Subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpc: Option<String>,
    /// Its Subnet and what is off with that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet_state: Option<State>,
    /// The default gateway that the Pod gets with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// SecurityGroups that it names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<String>,
    /// The newest Events about it, its endpoint and its Pod.
    pub events: Vec<EventPart>,
    /// What could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_shown: Vec<String>,
}

/// An interface, as a part of another report.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfacePart {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The Pod's name.
    pub pod: String,
    /// The interface's name inside the Pod.
    pub interface: String,
    /// The node that the Pod runs on.
    pub node: String,
    /// Its Subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// The address with its prefix length. Absent: it has none yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The address that the Pod asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_address: Option<String>,
    /// How far it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<InterfacePhase>,
    /// Its condition Ready.
    pub state: State,
    /// What holds its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<EndpointPart>,
    /// Where its address comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimPart>,
    /// What is off with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

/// What holds an address.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointPart {
    /// Its name; the namespace is the interface's.
    pub name: String,
    /// The node that it is on.
    pub node: String,
    /// That node's address.
    #[serde(rename = "nodeIP", skip_serializing_if = "Option::is_none")]
    pub node_ip: Option<String>,
    /// Its MAC address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// The node's end of it. Absent: the node has not made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachment: Option<AttachmentPart>,
    /// Its condition Ready.
    pub state: State,
}

/// The node's end of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentPart {
    /// The device's index on the node.
    pub ifindex: u32,
    /// The device's name on the node, as the agent makes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The sandbox that it leads into.
    #[serde(rename = "containerID", skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
}

/// A wish for a value.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimPart {
    /// Its name.
    pub name: String,
    /// The value that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Its condition Ready.
    pub state: State,
    /// What keeps others from the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeasePart>,
}

/// A value that is taken.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeasePart {
    /// Its name.
    pub name: String,
    /// The value.
    pub value: String,
    /// The claim that has it, or had it last.
    pub claim: String,
    /// How far it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<LeasePhase>,
    /// In how many seconds it is free again. Absent: not known, or while its holder is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_in_seconds: Option<i64>,
}

impl LeasePart {
    pub(super) fn new(snapshot: &Snapshot, lease: &AllocationLease) -> Self {
        let ends = lease.status.as_ref().and_then(|status| status.expires_at.as_ref());
        Self {
            name: lease.metadata.name.clone().unwrap_or_default(),
            value: value(&lease.spec.value).unwrap_or_default(),
            claim: lease.spec.claim_ref.name.clone(),
            phase: lease.status.as_ref().and_then(|status| status.phase),
            free_in_seconds: ends.map(|ends| (ends.0.as_second() - snapshot.now.as_second()).max(0)),
        }
    }
}

pub(super) fn value(value: &AllocationValue) -> Option<String> {
    value.ip.clone().or_else(|| value.number.map(|number| number.to_string()))
}

impl Index<'_> {
    /// An interface with its endpoint, claim and lease.
    pub(super) fn interface(&self, name: &ObjectName, nic: &NetworkInterface) -> InterfacePart {
        let status = nic.status.as_ref();
        InterfacePart {
            namespace: name.namespace.clone(),
            name: name.name.clone(),
            pod: nic.spec.pod_ref.name.clone(),
            interface: nic.spec.pod_ref.interface.clone(),
            node: nic.spec.node_name.clone(),
            subnet: nic.spec.subnet.clone(),
            address: status.and_then(|status| status.address.clone()),
            requested_address: nic.spec.address.clone(),
            phase: status.and_then(|status| status.phase),
            state: State::of(status.map(|status| status.conditions.as_slice())),
            endpoint: self.endpoint(name, &nic.spec.pod_ref.interface),
            claim: self.claim(name, nic),
            problems: self.problems_of(&ObjectRef::named(What::NetworkInterface.as_str(), name)),
        }
    }

    fn endpoint(&self, name: &ObjectName, interface: &str) -> Option<EndpointPart> {
        let endpoint = self.snapshot.endpoints.get(name)?;
        let status = endpoint.status.as_ref();
        let attachment = endpoint.spec.attachment.as_ref().map(|attachment| AttachmentPart {
            ifindex: attachment.ifindex,
            device: attachment.container_id.as_deref().map(|container| names::host_veth(interface, container)),
            container_id: attachment.container_id.clone(),
        });
        Some(EndpointPart {
            name: name.name.clone(),
            node: endpoint.spec.node_name.clone(),
            node_ip: status.and_then(|status| status.node_ip.clone()),
            mac_address: endpoint.spec.mac_address.clone(),
            attachment,
            state: State::of(status.map(|status| status.conditions.as_slice())),
        })
    }

    fn claim(&self, name: &ObjectName, nic: &NetworkInterface) -> Option<ClaimPart> {
        let pool = names::subnet_pool(nic.spec.subnet.as_deref()?);
        let owner = names::Owner::NetworkInterface { namespace: &name.namespace, name: &name.name };
        let said = nic.status.as_ref().and_then(|status| status.allocation_claim.clone());
        let claim_name = said.unwrap_or_else(|| names::claim(&pool, owner, names::Attribute::Address));
        let claim = self.snapshot.claims.get(&claim_name)?;
        let status = claim.status.as_ref();
        let uid = claim.metadata.uid.as_deref();
        let is_of = |of: Option<&str>| uid.is_none() || of.is_none() || of == uid;
        let mut leases = self.leases_of_claim(&claim_name).iter();
        let lease = leases.find(|lease| is_of(lease.spec.claim_ref.uid.as_deref()));
        Some(ClaimPart {
            name: claim_name.clone(),
            value: status.and_then(|status| status.value.as_ref()).and_then(value),
            state: State::of(status.map(|status| status.conditions.as_slice())),
            lease: lease.map(|lease| LeasePart::new(self.snapshot, lease)),
        })
    }

    /// The report of one interface.
    pub(super) fn interface_report(&self, name: &ObjectName, nic: &NetworkInterface) -> InterfaceReport {
        let subnet = nic.spec.subnet.as_deref().and_then(|subnet| self.snapshot.subnets.get(subnet));
        let subnet_status = subnet.and_then(|subnet| subnet.status.as_ref());
        let about: BTreeSet<ObjectRef> = [
            ObjectRef::named("NetworkInterface", name),
            ObjectRef::named("NetworkEndpoint", name),
            ObjectRef::named("Pod", &ObjectName::new(name.namespace.as_str(), nic.spec.pod_ref.name.as_str())),
        ]
        .into();
        let routes = nic.status.iter().flat_map(|status| &status.routes);
        InterfaceReport {
            interface: self.interface(name, nic),
            vpc: subnet.map(|subnet| subnet.spec.vpc.clone()),
            subnet_state: subnet.map(|_| State::of(subnet_status.map(|status| status.conditions.as_slice()))),
            gateway: routes.filter(|route| route.dst == "0.0.0.0/0").find_map(|route| route.gw.clone()),
            security_groups: nic.spec.security_groups.clone(),
            events: event::about(self.snapshot, &about),
            not_shown: self.not_shown(),
        }
    }
}
