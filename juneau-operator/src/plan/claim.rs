//! Claims: one for each number or address that an object needs.

use super::allocate::{Allocation, Allocations};
use super::planner::{Planner, name, uid};
use crate::view::Kind;
use juneau_api::kinds::{AllocationClaim, AllocationClaimSpec, PoolRef, ResourceRef};
use juneau_api::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A value that an object needs.
pub(super) struct Want<'a> {
    pub(super) kind: Kind,
    pub(super) metadata: &'a ObjectMeta,
    pub(super) owner: names::Owner<'a>,
    pub(super) attribute: names::Attribute,
    pub(super) pool: &'a str,
}

impl Planner<'_> {
    /// What became of an object's claim, which is made if there is none.
    pub(super) fn claim(
        &mut self,
        allocations: &Allocations<'_>,
        want: &Want<'_>,
        fill: impl FnOnce(&mut AllocationClaimSpec),
    ) -> Allocation {
        if let Some(claim) = self.index.claim(uid(want.metadata), want.attribute) {
            return allocations.get(uid(&claim.metadata)).cloned().unwrap_or(Allocation::Pending);
        }
        let claim_name = names::claim(want.pool, want.owner, want.attribute);
        // One that is there is an earlier object's, and on its way out.
        if !self.view.claims.contains_key(&claim_name) {
            let mut spec = AllocationClaimSpec {
                pool_refs: vec![PoolRef { name: want.pool.to_owned() }],
                resource_ref: ResourceRef {
                    api_version: want.kind.api_version().to_owned(),
                    kind: want.kind.as_str().to_owned(),
                    namespace: want.metadata.namespace.clone(),
                    name: name(want.metadata).to_owned(),
                    uid: want.metadata.uid.clone(),
                },
                attribute: want.attribute.as_str().to_owned(),
                ..AllocationClaimSpec::default()
            };
            fill(&mut spec);
            self.create(AllocationClaim::new(&claim_name, spec));
        }
        Allocation::Pending
    }

    /// The number that an object has: its claim's, or, until the claim has one, what its status says.
    pub(super) fn number(
        &self,
        allocations: &Allocations<'_>,
        metadata: &ObjectMeta,
        attribute: names::Attribute,
        said: Option<u32>,
    ) -> Option<u32> {
        let claim = self.index.claim(uid(metadata), attribute);
        match claim.and_then(|claim| allocations.get(uid(&claim.metadata))) {
            Some(Allocation::Value(number)) => Some(*number),
            Some(Allocation::Failed(_)) => None,
            Some(Allocation::Pending) | None => said,
        }
    }
}
