//! A wish for a number or an address.

use super::RetainWhile;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

/// What is asked for, and for whom. Written by the operator, never by tenants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "kube",
    derive(schemars::JsonSchema, kube::CustomResource),
    kube(
        group = "juneau.loutres.me",
        version = "v1alpha1",
        kind = "AllocationClaim",
        plural = "allocationclaims",
        status = "AllocationClaimStatus",
        derive = "Default",
        derive = "PartialEq",
        doc = "A wish for one value of a pool: a number or an address. Its spec cannot be changed.",
        printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
        printcolumn = r#"{"name":"Number","type":"integer","jsonPath":".status.value.number"}"#,
        printcolumn = r#"{"name":"IP","type":"string","jsonPath":".status.value.ip"}"#,
        printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct AllocationClaimSpec {
    /// Pools to take the value from, tried in this order; 1 to 16. Example: `[{name: subnet-ip-red-a}]`.
    pub pool_refs: Vec<PoolRef>,
    /// The object that the value is for.
    pub resource_ref: ResourceRef,
    /// Which of the object's values it is. Example: `address`.
    pub attribute: String,
    /// The number that is asked for. Absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_number: Option<u32>,
    /// The IPv4 address that is asked for. Absent: any.
    #[serde(default, rename = "requestedIP", skip_serializing_if = "Option::is_none")]
    pub requested_ip: Option<String>,
    /// What the value must be, besides being in a pool. Absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_filter: Option<AllocationFilter>,
    /// How long the value stays reserved after the claim is gone, as a duration. Absent: not at all. Example: `1h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_after: Option<String>,
    /// The identity that the reserved value is kept for. Absent: the claim's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse_key: Option<String>,
    /// Keeps the value while this object exists, also after the claim is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain_while: Option<RetainWhile>,
}

/// Names an AllocationPool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PoolRef {
    /// The AllocationPool's name.
    pub name: String,
}

/// The object that a value is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResourceRef {
    /// The object's group and version. Example: `juneau.loutres.me/v1alpha1`.
    pub api_version: String,
    /// The object's kind. Example: `NetworkInterface`.
    pub kind: String,
    /// The object's namespace. Absent: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
    /// The object's uid, so that a later object of the same name does not take the claim over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// What a value must be, besides being in a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AllocationFilter {
    /// IPv4 prefixes; the address is in one of them. Absent or empty: it need not be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cidrs: Vec<String>,
}

/// How far a claim is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
pub enum ClaimPhase {
    /// It has no value yet.
    #[default]
    Pending,
    /// It has its value.
    Allocated,
    /// A phase that this version does not know.
    #[serde(other)]
    #[cfg_attr(feature = "kube", schemars(skip))]
    Unknown,
}

/// A number or an address.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AllocationValue {
    /// The number, from a pool of numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// The IPv4 address, from a pool of addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
}

/// What a claim is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AllocationClaimStatus {
    /// How far it is: Pending without a value, Allocated with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ClaimPhase>,
    /// The value that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<AllocationValue>,
    /// Ready: the claim holds its value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

#[cfg(not(feature = "kube"))]
super::plain_root!(
    /// A wish for one value of a pool: a number or an address.
    AllocationClaim,
    AllocationClaimSpec,
    AllocationClaimStatus
);
