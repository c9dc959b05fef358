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
        doc = "A wish for one value of a pool: a number or an address.",
        printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
        printcolumn = r#"{"name":"Number","type":"integer","jsonPath":".status.value.number"}"#,
        printcolumn = r#"{"name":"IP","type":"string","jsonPath":".status.value.ip"}"#,
        printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct AllocationClaimSpec {
    /// Pools to take the value from, tried in this order.
    pub pool_refs: Vec<PoolRef>,
    /// The object that the value is for.
    pub resource_ref: ResourceRef,
    /// Which of the object's values it is.
    pub attribute: String,
    /// The number that is asked for; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_number: Option<u32>,
    /// The address that is asked for; absent: any.
    #[serde(default, rename = "requestedIP", skip_serializing_if = "Option::is_none")]
    pub requested_ip: Option<String>,
    /// Narrows the pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_filter: Option<AllocationFilter>,
    /// How long the value stays reserved after the claim is gone, as a duration; absent: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_after: Option<String>,
    /// The identity that the reserved value is kept for; absent: the claim's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse_key: Option<String>,
    /// Keeps the value while that object exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain_while: Option<RetainWhile>,
}

/// Names an AllocationPool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PoolRef {
    /// Its name.
    pub name: String,
}

/// The object that a value is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResourceRef {
    /// Its group and version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; absent: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its uid, so that a later object of the same name does not take the claim over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// What a value must be, besides being in a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AllocationFilter {
    /// The address is in one of these prefixes.
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
    /// Of a pool of numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// Of a pool of addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
}

/// What a claim is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AllocationClaimStatus {
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<ClaimPhase>,
    /// The value that it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<AllocationValue>,
    /// `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation that the status is about.
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
