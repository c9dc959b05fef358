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
        doc = "A prefix of a VPC, one layer-2 segment.",
        printcolumn = r#"{"name":"Vpc","type":"string","jsonPath":".spec.vpc"}"#,
        printcolumn = r#"{"name":"Cidr","type":"string","jsonPath":".spec.cidr"}"#,
        printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SubnetSpec {
    /// The VPC that it belongs to.
    pub vpc: String,
    /// Its prefix, without host bits.
    pub cidr: String,
    /// Its RouteTable; absent: the VPC's main one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_table: Option<String>,
    /// Its NetworkACL.
    #[serde(default, rename = "networkACL", skip_serializing_if = "Option::is_none")]
    pub network_acl: Option<String>,
    /// How long the address of a Pod that is gone rests before another Pod gets it, as a duration; absent: 60 s. It is
    /// used at once when the Subnet has no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<String>,
}

/// What a Subnet is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SubnetStatus {
    /// Its VXLAN network identifier, 2 to 16777215.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vni: Option<u32>,
    /// Its gateway, the same on every node; the first host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// The gateway's MAC address, the same on every node.
    #[serde(default, rename = "gatewayMAC", skip_serializing_if = "Option::is_none")]
    pub gateway_mac: Option<String>,
    /// The address of the virtual DNS; the second host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<String>,
    /// The MAC address of the virtual DNS.
    #[serde(default, rename = "dnsMAC", skip_serializing_if = "Option::is_none")]
    pub dns_mac: Option<String>,
    /// The NetworkACL in force.
    #[serde(default, rename = "networkACL", skip_serializing_if = "Option::is_none")]
    pub network_acl: Option<SubnetNetworkAcl>,
    /// The largest packet that its Pods may send, in bytes: what the underlay carries less 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation that the status is about.
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
