//! An address of a VPC in front of a Service.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

/// Which Service gets an address in which Vpc.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "kube",
    derive(schemars::JsonSchema, kube::CustomResource),
    kube(
        group = "juneau.loutres.me",
        version = "v1alpha1",
        kind = "VpcEndpoint",
        plural = "vpcendpoints",
        status = "VpcEndpointStatus",
        derive = "Default",
        derive = "PartialEq",
        doc = "An address of one Vpc in front of one Service, of the same Vpc or of another one that provides Services.",
        printcolumn = r#"{"name":"Vpc","type":"string","jsonPath":".spec.vpc"}"#,
        printcolumn = r#"{"name":"Address","type":"string","jsonPath":".status.address"}"#,
        printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct VpcEndpointSpec {
    /// The Vpc whose Pods call the address; it needs an endpointPool. Cannot be changed. Example: `red`.
    pub vpc: String,
    /// The Service behind the address. Its ports are the address's. It may be changed; the address stays. Example:
    /// `{namespace: blue, name: shop}`.
    pub service: ServiceReference,
}

/// Names a Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ServiceReference {
    /// The Service's namespace.
    pub namespace: String,
    /// The Service's name.
    pub name: String,
}

/// What a VpcEndpoint is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VpcEndpointStatus {
    /// The address, without a prefix length. Example: `10.80.255.2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The AllocationClaim that holds the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_claim: Option<String>,
    /// AddressAllocated: it has its address. ServiceAccepted: the Service may be called through it, which is what nodes
    /// go by. Ready: both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

#[cfg(not(feature = "kube"))]
super::plain_root!(
    /// An address of a VPC in front of a Service.
    VpcEndpoint,
    VpcEndpointSpec,
    VpcEndpointStatus
);
