//! A tenant's network.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use serde::{Deserialize, Serialize};

/// What a VPC shall be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "kube",
    derive(schemars::JsonSchema, kube::CustomResource),
    kube(
        group = "juneau.loutres.me",
        version = "v1alpha1",
        kind = "Vpc",
        plural = "vpcs",
        status = "VpcStatus",
        derive = "Default",
        derive = "PartialEq",
        doc = "A tenant's network with an address space of its own: two Vpcs may have equal prefixes and addresses, and do not reach each other.",
        printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct VpcSpec {
    /// Service routing. Absent: Services are not reachable from this Vpc at all. Example: `{consume: true}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<VpcService>,
    /// Whether each interface of a new Pod must name at least one SecurityGroup of this Vpc, and is closed otherwise.
    /// Default: false.
    #[serde(default)]
    pub enforce_security_groups: bool,
    /// Addresses that VpcEndpoints of this Vpc get. Absent: it can have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_pool: Option<EndpointPool>,
    /// Namespaces whose Pods and Services may enter this Vpc, selected by their labels. Absent: all Namespaces, or none
    /// when the operator runs with --require-namespace-binding. `{}` selects all. Example, one Namespace by its name:
    /// `{matchLabels: {kubernetes.io/metadata.name: red}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_namespaces: Option<LabelSelector>,
}

/// How a VPC takes part in Services.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VpcService {
    /// Whether Pods here may call shared Services of other Vpcs. Default: false.
    #[serde(default)]
    pub consume: bool,
    /// Lets Services of this Vpc be shared with other Vpcs. Absent: none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<ServiceProvider>,
}

/// What a provider of shared Services needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ServiceProvider {
    /// A Subnet of this Vpc. Each node takes one of its addresses, from which shared Services see their callers. Example:
    /// `red-nat`.
    pub nat_source_subnet: String,
}

/// Addresses for VpcEndpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EndpointPool {
    /// IPv4 prefixes of /16 to /32 that no Subnet of the Vpc overlaps; at most 32. Host bits are ignored. Example:
    /// `[10.80.250.0/24]`.
    pub cidrs: Vec<String>,
}

/// What a VPC is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VpcStatus {
    /// The RouteTable of Subnets that name none; it has the Vpc's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main_route_table: Option<String>,
    /// The Vpc's number, which tells its addresses from equal ones of other Vpcs: 1 is Vpc `default`, others have 2 to
    /// 16777215.
    #[serde(default, rename = "vpcID", skip_serializing_if = "Option::is_none")]
    pub vpc_id: Option<u32>,
    /// Ready: the Vpc has its number and its main RouteTable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

#[cfg(not(feature = "kube"))]
super::plain_root!(
    /// A tenant's network: an address space of its own.
    Vpc,
    VpcSpec,
    VpcStatus
);
