//! What numbers and addresses are handed out of.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

/// What a pool hands out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "kube",
    derive(schemars::JsonSchema, kube::CustomResource),
    kube(
        group = "juneau.loutres.me",
        version = "v1alpha1",
        kind = "AllocationPool",
        plural = "allocationpools",
        status = "AllocationPoolStatus",
        derive = "Default",
        derive = "PartialEq",
        doc = "Numbers or addresses that are handed out, each to one holder.",
        printcolumn = r#"{"name":"Type","type":"string","jsonPath":".spec.type"}"#,
        printcolumn = r#"{"name":"Strategy","type":"string","jsonPath":".spec.strategy"}"#,
        printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct AllocationPoolSpec {
    /// What the pool holds: `number` or `ip`. Cannot be changed. Default: `number`.
    #[serde(default, rename = "type")]
    pub kind: PoolType,
    /// Which free value is next: `firstFit` is the smallest. Cannot be changed. Default: `firstFit`.
    #[serde(default)]
    pub strategy: PoolStrategy,
    /// With type `number`: the range. Cannot be changed. Example: `{min: 2, max: 16777215}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<NumberRange>,
    /// With type `ip`: prefixes, ranges, and what is left out of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpSpace>,
}

/// What a pool holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum PoolType {
    /// Numbers.
    #[default]
    Number,
    /// IPv4 addresses.
    Ip,
    /// A type that this version does not know.
    #[serde(other)]
    #[cfg_attr(feature = "kube", schemars(skip))]
    Unknown,
}

/// Which free value of a pool is next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum PoolStrategy {
    /// The smallest.
    #[default]
    FirstFit,
    /// A strategy that this version does not know.
    #[serde(other)]
    #[cfg_attr(feature = "kube", schemars(skip))]
    Unknown,
}

/// A range of numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NumberRange {
    /// The first number, at least 1.
    pub min: u32,
    /// The last number, at least `min`.
    pub max: u32,
}

/// Addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IpSpace {
    /// IPv4 prefixes, of which neither the network's nor the broadcast address is handed out. Example: `[10.0.1.0/24]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cidrs: Vec<String>,
    /// IPv4 ranges, of which every address is handed out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<IpRange>,
    /// IPv4 addresses that are never handed out. Example: `[10.0.1.1]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<String>,
}

/// A range of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IpRange {
    /// The first address of the range.
    pub start: String,
    /// The last address of the range, not before `start`.
    pub end: String,
}

/// What a pool is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AllocationPoolStatus {
    /// How often a value was handed out or given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_version: Option<i64>,
    /// With type `number`: what was handed out last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_allocated_number: Option<u32>,
    /// With type `ip`: what was handed out last.
    #[serde(default, rename = "lastAllocatedIP", skip_serializing_if = "Option::is_none")]
    pub last_allocated_ip: Option<String>,
    /// Ready: the pool can be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

#[cfg(not(feature = "kube"))]
super::plain_root!(
    /// Numbers or addresses that are handed out, each to one holder.
    AllocationPool,
    AllocationPoolSpec,
    AllocationPoolStatus
);
