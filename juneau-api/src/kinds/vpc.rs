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
        doc = "A tenant's network: an address space of its own.",
        printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct VpcSpec {
    /// Service routing; absent: none at all in this VPC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<VpcService>,
    /// Each policed interface of a new Pod must name a valid SecurityGroup.
    #[serde(default)]
    pub enforce_security_groups: bool,
    /// Addresses for VpcEndpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_pool: Option<EndpointPool>,
    /// Namespaces whose Pods and Services may enter this VPC, by their labels; absent: all, or none when the operator
    /// requires a binding; `{}`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_namespaces: Option<LabelSelector>,
}

/// How a VPC takes part in Services.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VpcService {
    /// Pods here may call shared Services of other VPCs.
    #[serde(default)]
    pub consume: bool,
    /// This VPC shares Services with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<ServiceProvider>,
}

/// What a provider of shared Services needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ServiceProvider {
    /// The Subnet of this VPC that gives each node a source address.
    pub nat_source_subnet: String,
}

/// Addresses for VpcEndpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EndpointPool {
    /// IPv4 prefixes.
    pub cidrs: Vec<String>,
}

/// What a VPC is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VpcStatus {
    /// The RouteTable of Subnets that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main_route_table: Option<String>,
    /// The VPC's number, 1 to 16777215; 1 is the VPC `default`.
    #[serde(default, rename = "vpcID", skip_serializing_if = "Option::is_none")]
    pub vpc_id: Option<u32>,
    /// `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation that the status is about.
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
