//! A prefix of a VPC, one layer-2 segment.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

/// What a Subnet shall be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "kube",
    derive(schemars::JsonSchema, kube::CustomResource),
    kube(
        group = "juneau.loutres.me",
        version = "v1alpha1",
        kind = "Subnet",
        plural = "subnets",
        status = "SubnetStatus",
        derive = "Default",
        derive = "PartialEq",
        doc = "A prefix of a Vpc, and one layer-2 segment over all nodes.",
        printcolumn = r#"{"name":"Vpc","type":"string","jsonPath":".spec.vpc"}"#,
        printcolumn = r#"{"name":"Cidr","type":"string","jsonPath":".spec.cidr"}"#,
        printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SubnetSpec {
    /// The Vpc that it belongs to. Cannot be changed. Subnet `default` alone is of Vpc `default`. Example: `red`.
    pub vpc: String,
    /// Its IPv4 prefix, /16 to /28, which overlaps no other Subnet of the Vpc. Cannot be changed. Host bits are ignored.
    /// The first three hosts are the gateway, the DNS server, and kept free. Example: `10.0.1.0/24`.
    pub cidr: String,
    /// Its RouteTable, of the same Vpc. Absent or empty: the Vpc's main one. Not for Subnet `default`. Example:
    /// `red-through-firewall`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_table: Option<String>,
    /// Its NetworkACL, of the same Vpc. Absent or empty: none, so that nothing is filtered here.
    #[serde(default, rename = "networkACL", skip_serializing_if = "Option::is_none")]
    pub network_acl: Option<String>,
    /// How long the address of a Pod that is gone rests before another Pod gets it, as a duration. It is used at once
    /// when the Subnet has no other. Default: 60s. Example: `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<String>,
}

/// What a Subnet is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SubnetStatus {
    /// Its VXLAN network identifier, 2 to 16777215; no other segment has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vni: Option<u32>,
    /// The gateway of its Pods: the first host, the same on every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The gateway's MAC address, the same on every node.
    #[serde(default, rename = "gatewayMAC", skip_serializing_if = "Option::is_none")]
    pub gateway_mac: Option<String>,
    /// The DNS server of its Pods: the second host, the same on every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<String>,
    /// The MAC address of the DNS server, the same on every node.
    #[serde(default, rename = "dnsMAC", skip_serializing_if = "Option::is_none")]
    pub dns_mac: Option<String>,
    /// The NetworkACL in force. Absent: none is asked for.
    #[serde(default, rename = "networkACL", skip_serializing_if = "Option::is_none")]
    pub network_acl: Option<SubnetNetworkAcl>,
    /// The largest packet that its Pods send, in bytes: the underlay's MTU less 50. Example: 1450.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Ready: the Subnet has its number and its addresses, and its Vpc is ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The NetworkACL that a Subnet uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SubnetNetworkAcl {
    /// Its name.
    pub name: String,
    /// Its number; 0 when it is missing or has none yet.
    #[serde(default, rename = "aclID")]
    pub acl_id: u32,
    /// The version of its rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ruleset_version: Option<i64>,
}

#[cfg(not(feature = "kube"))]
super::plain_root!(
    /// A prefix of a VPC, one layer-2 segment.
    Subnet,
    SubnetSpec,
    SubnetStatus
);
