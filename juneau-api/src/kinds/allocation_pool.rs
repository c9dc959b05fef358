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
    /// Numbers or addresses.
    #[serde(default, rename = "type")]
    pub kind: PoolType,
    /// Which free value is next.
    #[serde(default)]
    pub strategy: PoolStrategy,
    /// Of type `number`: the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<NumberRange>,
    /// Of type `ip`: prefixes and ranges.
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
    /// The first, at least 1.
    pub min: u32,
    /// The last, at least `min`.
    pub max: u32,
}

/// Addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IpSpace {
    /// IPv4 prefixes, of which neither the network's nor the broadcast address is handed out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cidrs: Vec<String>,
    /// IPv4 ranges, of which every address is handed out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<IpRange>,
    /// Addresses that are never handed out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<String>,
}

/// A range of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IpRange {
    /// The first address.
    pub start: String,
    /// The last address, not before `start`.
    pub end: String,
}

/// What a pool is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AllocationPoolStatus {
    /// How often the pool's content changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_version: Option<i64>,
    /// Of type `number`: what was handed out last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_allocated_number: Option<u32>,
    /// Of type `ip`: what was handed out last.
    #[serde(default, rename = "lastAllocatedIP", skip_serializing_if = "Option::is_none")]
    pub last_allocated_ip: Option<String>,
    /// `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation that the status is about.
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
