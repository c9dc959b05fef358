//! A value that is taken. Its name says which one, so that two holders of one value cannot be.

use super::{AllocationValue, PoolRef, RetainWhile};
use crate::conditions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Which value is taken, and by whom. Written by the operator, never by tenants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "kube",
    derive(schemars::JsonSchema, kube::CustomResource),
    kube(
        group = "juneau.loutres.me",
        version = "v1alpha1",
        kind = "AllocationLease",
        plural = "allocationleases",
        status = "AllocationLeaseStatus",
        derive = "Default",
        derive = "PartialEq",
        doc = "One value of a pool that is taken. It may outlive its claim.",
        printcolumn = r#"{"name":"Pool","type":"string","jsonPath":".spec.poolRef.name"}"#,
        printcolumn = r#"{"name":"Claim","type":"string","jsonPath":".spec.claimRef.name"}"#,
        printcolumn = r#"{"name":"Number","type":"integer","jsonPath":".spec.value.number"}"#,
        printcolumn = r#"{"name":"IP","type":"string","jsonPath":".spec.value.ip"}"#,
        printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
        printcolumn = r#"{"name":"ExpiresAt","type":"date","jsonPath":".status.expiresAt"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct AllocationLeaseSpec {
    /// The AllocationPool that the value is of. Cannot be changed.
    pub pool_ref: PoolRef,
    /// The value, a number or an address. Cannot be changed; the lease's name is made of it, so that a value has one lease.
    pub value: AllocationValue,
    /// The AllocationClaim that has the value, or had it last.
    pub claim_ref: ClaimRef,
    /// When the holder went. Absent: it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_deletion_timestamp: Option<Time>,
    /// How long the value stays reserved after the holder went, in seconds. Absent: not at all. Example: 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<i64>,
    /// Keeps the value while this object exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain_while: Option<RetainWhile>,
}

/// The claim that holds a value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClaimRef {
    /// The claim's name.
    pub name: String,
    /// The claim's uid, so that a later claim of the same name is told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// How far a lease is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
pub enum LeasePhase {
    /// Its holder is there.
    #[default]
    Active,
    /// Its holder is gone, and the value is kept while the object of `retainWhile` exists.
    Retained,
    /// Its holder is gone, and the value is reserved until `expiresAt`.
    Released,
    /// The time that it was kept for is over.
    Expired,
    /// A phase that this version does not know.
    #[serde(other)]
    #[cfg_attr(feature = "kube", schemars(skip))]
    Unknown,
}

/// What a lease is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AllocationLeaseStatus {
    /// How far it is: Active while its holder is there; after it, Retained while the object of `retainWhile` exists, else
    /// Released, reserved until `expiresAt`; Expired when the value is free again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<LeasePhase>,
    /// When the value is free again. Absent: not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// When the object of `retainWhile` was seen to be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain_released_at: Option<Time>,
    /// Ready: the value is held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl AllocationLeaseStatus {
    /// What every lease is from the moment it is made: its being there is what holds the value. It is the default of the
    /// status in the definition, so a lease needs no second write to say so.
    ///
    /// Since a default is the same for all, its condition holds since the beginning of time; when it was made is the
    /// object's `creationTimestamp`.
    #[must_use]
    pub fn active() -> Self {
        let mut conditions = Vec::new();
        let since = Time(Timestamp::UNIX_EPOCH);
        conditions::set_ready(&mut conditions, true, ACTIVE, "", Some(1), &since);
        Self { phase: Some(LeasePhase::Active), conditions, observed_generation: Some(1), ..Self::default() }
    }

    /// Whether it says of this generation that the holder is there.
    #[must_use]
    pub fn is_active(&self, generation: Option<i64>) -> bool {
        let ready = conditions::Status::True;
        self.phase == Some(LeasePhase::Active)
            && self.expires_at.is_none()
            && self.observed_generation == generation
            && conditions::is_set(&self.conditions, conditions::READY, ready, ACTIVE, "", generation)
    }
}

/// The reason of Ready while the holder is there.
const ACTIVE: &str = "Active";

#[cfg(not(feature = "kube"))]
super::plain_root!(
    /// One value of a pool that is taken. It may outlive its claim.
    AllocationLease,
    AllocationLeaseSpec,
    AllocationLeaseStatus
);
