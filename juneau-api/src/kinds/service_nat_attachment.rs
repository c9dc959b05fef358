//! A node's source address for the shared Services of one VPC.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

/// Which node, and for which Vpc. Written by the operator, for each node and each Vpc that provides shared Services.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "kube",
    derive(schemars::JsonSchema, kube::CustomResource),
    kube(
        group = "juneau.loutres.me",
        version = "v1alpha1",
        kind = "ServiceNATAttachment",
        plural = "servicenatattachments",
        status = "ServiceNatAttachmentStatus",
        derive = "Default",
        derive = "PartialEq",
        doc = "A node's source address for shared Services of one Vpc: their backends see it as the caller.",
        printcolumn = r#"{"name":"Node","type":"string","jsonPath":".spec.nodeName"}"#,
        printcolumn = r#"{"name":"Vpc","type":"string","jsonPath":".spec.vpc"}"#,
        printcolumn = r#"{"name":"AssignedIP","type":"string","jsonPath":".status.assignedIP"}"#,
        printcolumn = r#"{"name":"Subnet","type":"string","jsonPath":".status.subnet"}"#,
        printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ServiceNatAttachmentSpec {
    /// The node whose callers have the address. Cannot be changed. Example: `node-1`.
    pub node_name: String,
    /// The Vpc whose Services are shared. Cannot be changed. Example: `red`.
    pub vpc: String,
}

/// What an attachment is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ServiceNatAttachmentStatus {
    /// The address, without a prefix length. Example: `10.0.9.4`.
    #[serde(default, rename = "assignedIP", skip_serializing_if = "Option::is_none")]
    pub assigned_ip: Option<String>,
    /// Its MAC address.
    #[serde(default, rename = "assignedMAC", skip_serializing_if = "Option::is_none")]
    pub assigned_mac: Option<String>,
    /// The Subnet that the address is of: what `natSourceSubnet` of the Vpc said when it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// Ready: the address is there, and a NetworkEndpoint publishes it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

#[cfg(not(feature = "kube"))]
super::plain_root!(
    /// A node's source address for shared Services of one VPC.
    ServiceNATAttachment,
    ServiceNatAttachmentSpec,
    ServiceNatAttachmentStatus
);
