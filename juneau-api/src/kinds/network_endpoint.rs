//! What holds an address: where it is, and with which MAC address.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

/// Where an address is. Written by the operator; the node that holds it adds `attachment`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "kube",
    derive(schemars::JsonSchema, kube::CustomResource),
    kube(
        group = "juneau.loutres.me",
        version = "v1alpha1",
        kind = "NetworkEndpoint",
        plural = "networkendpoints",
        namespaced,
        shortname = "nwep",
        status = "NetworkEndpointStatus",
        derive = "Default",
        derive = "PartialEq",
        doc = "What holds an address: where it is, and with which MAC address.",
        printcolumn = r#"{"name":"Kind","type":"string","jsonPath":".spec.kind"}"#,
        printcolumn = r#"{"name":"Node","type":"string","jsonPath":".spec.nodeName"}"#,
        printcolumn = r#"{"name":"Subnet","type":"string","jsonPath":".spec.subnet"}"#,
        printcolumn = r#"{"name":"L2Network","type":"string","jsonPath":".spec.l2Network"}"#,
        printcolumn = r#"{"name":"ExternalNetwork","type":"string","jsonPath":".spec.externalNetwork"}"#,
        selectable = ".spec.subnet",
        selectable = ".spec.nodeName",
        printcolumn = r#"{"name":"Address","type":"string","jsonPath":".spec.address"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NetworkEndpointSpec {
    /// What holds the address: a Pod's interface, a node itself, or a node's source address for shared Services.
    pub kind: EndpointKind,
    /// The node that it is on. Packets for it are sent to that Node's InternalIP.
    pub node_name: String,
    /// The Subnet that the address is of; one of subnet, l2Network and externalNetwork is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// The L2Network that it is in; one of subnet, l2Network and externalNetwork is set.
    #[serde(default, rename = "l2Network", skip_serializing_if = "Option::is_none")]
    pub l2_network: Option<String>,
    /// The ExternalNetwork that the address is of, for kind Pod only; one of subnet, l2Network and externalNetwork is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_network: Option<String>,
    /// The address with the network's prefix length. Example: `10.0.1.20/24`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Its MAC address. Example: `02:5e:10:00:00:01`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// Facts of the node that holds it, written by that node. Nothing is decided by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<Attachment>,
    /// The Pod and its interface; needed for kind Pod. An endpoint that does not agree with its NetworkInterface is
    /// ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_ref: Option<EndpointPodRef>,
}

/// What holds an address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
pub enum EndpointKind {
    /// A Pod's interface.
    #[default]
    Pod,
    /// A node itself.
    Node,
    /// A node's source address for shared Services.
    ServiceNAT,
    /// A kind that this version does not know.
    #[serde(other)]
    #[cfg_attr(feature = "kube", schemars(skip))]
    Unknown,
}

/// Facts of the node that holds an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// The index of the node's end of the interface, from 1 on.
    pub ifindex: u32,
    /// The MAC address of the node's end of the interface.
    #[serde(default, rename = "hostMACAddress", skip_serializing_if = "Option::is_none")]
    pub host_mac_address: Option<String>,
    /// The sandbox that the interface is in, so that a late removal of an earlier one changes nothing.
    #[serde(default, rename = "containerID", skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
}

/// The Pod of an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EndpointPodRef {
    /// The Pod's name.
    pub name: String,
    /// The interface's name inside the Pod. Example: `eth0`.
    pub interface: String,
    /// The Pod's uid.
    pub uid: String,
}

/// What an endpoint is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NetworkEndpointStatus {
    /// The node's InternalIP, for readers; nodes take it from the Node.
    #[serde(default, rename = "nodeIP", skip_serializing_if = "Option::is_none")]
    pub node_ip: Option<String>,
    /// Ready: it has its node's address; `spec.attachment` tells that the node made the interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

#[cfg(not(feature = "kube"))]
super::plain_root!(
    /// What holds an address: where it is, and with which MAC address.
    NetworkEndpoint,
    NetworkEndpointSpec,
    NetworkEndpointStatus
);
