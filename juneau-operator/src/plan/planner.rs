//! What the parts of a plan share: the view, indexes over it, and the list of changes.

use super::memory::{Active, Calm, Uids};
use super::{Change, Config, Notice, Plan, Target};
use crate::view::{Kind, Object, View};
use core::time::Duration;
use juneau_api::view::{ObjectName, Time};
use juneau_api::{kinds, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

/// A map for what is looked up for each of ten thousand objects. Keys are uids and names, which the API server gives or
/// has checked; the hash is seeded anew in each process.
pub(super) type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
/// The same as a set.
pub(super) type FastSet<K> = HashSet<K, foldhash::fast::RandomState>;

/// A plan in the making.
pub(super) struct Planner<'v> {
    pub(super) view: &'v View,
    pub(super) config: &'v Config,
    pub(super) now: Timestamp,
    pub(super) index: Index<'v>,
    /// What is to be judged.
    pub(super) active: Rc<Active<'v>>,
    /// What there was nothing to say about, where somebody wants to know.
    pub(super) calm: Option<Calm<'v>>,
    plan: Plan,
    touched: HashSet<(Kind, ObjectName)>,
    /// How often something was said, or a clock was looked at.
    said: u64,
}

/// What is looked up often. Objects at rest are known by their uids alone: whatever else names one is at no rest, and then
/// neither is that.
pub(super) struct Index<'v> {
    /// Claims by the uid of the object that they are for and their attribute.
    claims: FastMap<(&'v str, &'v str), &'v Arc<kinds::AllocationClaim>>,
    /// Claims by uid.
    claim_uids: FastMap<&'v str, &'v Arc<kinds::AllocationClaim>>,
    /// Leases by the uid of the claim that holds them, in the order of their values.
    leases: FastMap<&'v str, Vec<&'v Arc<kinds::AllocationLease>>>,
    /// Interfaces by uid.
    interfaces: FastMap<&'v str, &'v Arc<kinds::NetworkInterface>>,
    /// Uids of Pods, interfaces and claims at rest.
    resting: Option<Arc<Uids>>,
}

impl<'v> Index<'v> {
    fn new(active: &Active<'v>, resting: Option<Arc<Uids>>) -> Self {
        let mut claims = FastMap::with_capacity_and_hasher(active.claims.len(), Default::default());
        let mut claim_uids = FastMap::with_capacity_and_hasher(active.claims.len(), Default::default());
        for claim in active.claims.iter().map(|claim| claim.object) {
            if let Some(uid) = &claim.spec.resource_ref.uid {
                claims.insert((uid.as_str(), claim.spec.attribute.as_str()), claim);
            }
            if let Some(uid) = &claim.metadata.uid {
                claim_uids.insert(uid.as_str(), claim);
            }
        }
        let mut leases: FastMap<&str, Vec<_>> =
            FastMap::with_capacity_and_hasher(active.leases.len(), Default::default());
        for lease in active.leases.iter().map(|lease| lease.object) {
            if let Some(uid) = &lease.spec.claim_ref.uid {
                leases.entry(uid.as_str()).or_default().push(lease);
            }
        }
        for leases in leases.values_mut().filter(|leases| leases.len() > 1) {
            leases.sort_by_key(|lease| super::pool::number(&lease.spec.value));
        }
        let interfaces = active.interfaces.iter().map(|nic| nic.object);
        let interfaces = interfaces.filter_map(|nic| Some((nic.metadata.uid.as_deref()?, nic))).collect();
        Self { claims, claim_uids, leases, interfaces, resting }
    }

    fn rests(&self, uid: &str) -> bool {
        self.resting.as_ref().is_some_and(|uids| uids.contains_key(uid))
    }

    /// The claim of an object that is not at rest.
    pub(super) fn claim(&self, of: &str, attribute: names::Attribute) -> Option<&'v Arc<kinds::AllocationClaim>> {
        self.claims.get(&(of, attribute.as_str())).copied()
    }

    /// The claim that a lease names, if neither is at rest.
    pub(super) fn holder(&self, lease: &kinds::AllocationLease) -> Option<&'v Arc<kinds::AllocationClaim>> {
        self.claim_uids.get(lease.spec.claim_ref.uid.as_deref()?).copied()
    }

    /// Whether there is a claim with this uid.
    pub(super) fn is_claim(&self, uid: &str) -> bool {
        self.claim_uids.contains_key(uid) || self.rests(uid)
    }

    /// The leases of a claim that is not at rest.
    pub(super) fn leases(&self, claim: &kinds::AllocationClaim) -> &[&'v Arc<kinds::AllocationLease>] {
        self.leases.get(uid(&claim.metadata)).map(Vec::as_slice).unwrap_or_default()
    }

    /// The interface with this uid, if it is not at rest.
    pub(super) fn interface(&self, uid: &str) -> Option<&'v Arc<kinds::NetworkInterface>> {
        self.interfaces.get(uid).copied()
    }
}

impl<'v> Planner<'v> {
    pub(super) fn new(
        view: &'v View,
        config: &'v Config,
        now: Timestamp,
        active: Active<'v>,
        resting: Option<Arc<Uids>>,
    ) -> Self {
        let calm = resting.is_some().then(Calm::default);
        let index = Index::new(&active, resting);
        let (plan, touched, active) = (Plan::default(), HashSet::new(), Rc::new(active));
        Self { view, config, now, index, active, calm, plan, touched, said: 0 }
    }

    pub(super) fn finish(mut self) -> (Plan, Calm<'v>) {
        self.plan.notices.sort();
        self.plan.notices.dedup();
        (self.plan, self.calm.unwrap_or_default())
    }

    /// How much was said so far: what adds nothing to it was calm.
    pub(super) const fn said(&self) -> u64 {
        self.said
    }

    /// The moment of the plan, for conditions. Whole seconds: the API holds no more, and a time that it cut would differ
    /// from ours for ever.
    pub(super) fn time(&self) -> Time {
        Time(Timestamp::from_second(self.now.as_second()).unwrap_or(self.now))
    }

    /// Adds a change, unless the plan changes that object already: the second would meet another resourceVersion than
    /// it names. The next plan says it again.
    fn push(&mut self, kind: Kind, name: ObjectName, change: Change) {
        self.said += 1;
        if self.touched.insert((kind, name)) {
            self.plan.changes.push(change);
        }
    }

    pub(super) fn create(&mut self, object: impl Into<Object>) {
        let object = object.into();
        self.push(object.kind(), object.name(), Change::Create(object));
    }

    pub(super) fn metadata(&mut self, object: impl Into<Object>) {
        let object = object.into();
        self.push(object.kind(), object.name(), Change::Metadata(object));
    }

    pub(super) fn spec(&mut self, object: impl Into<Object>) {
        let object = object.into();
        self.push(object.kind(), object.name(), Change::Spec(object));
    }

    /// Adds a status if it differs from what is there.
    pub(super) fn status<T: Into<Object> + Clone + PartialEq>(&mut self, before: &Arc<T>, after: T) {
        if **before != after {
            let object = after.into();
            self.push(object.kind(), object.name(), Change::Status(object));
        }
    }

    /// Deletes an object, unless that is under way.
    pub(super) fn delete<T: Into<Object> + Clone>(&mut self, object: &Arc<T>) {
        let object: Object = T::clone(object).into();
        if object.metadata().deletion_timestamp.is_none() {
            let target = Target::of(&object);
            self.push(object.kind(), object.name(), Change::Delete(target));
        }
    }

    /// Whether an object exists of which no more is known: it cannot be decoded.
    pub(super) fn is_unreadable(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        // Nearly always there is none.
        !self.view.undecodable.is_empty() && self.view.undecodable.contains(&(kind, ObjectName::new(namespace, name)))
    }

    pub(super) fn is_touched(&self, kind: Kind, name: &ObjectName) -> bool {
        // An owned key is what the set's lookup needs; this is asked for a few objects only.
        self.touched.contains(&(kind, name.clone()))
    }

    /// Tells what is wrong, as long as it is.
    pub(super) fn warn(&mut self, object: Target, reason: &'static str, message: impl Into<String>) {
        self.said += 1;
        self.plan.notices.push(Notice { object, warning: true, at_once: false, reason, message: message.into() });
    }

    /// Tells what was wrong and is put right by this plan.
    pub(super) fn warn_at_once(&mut self, object: Target, reason: &'static str, message: impl Into<String>) {
        self.said += 1;
        self.plan.notices.push(Notice { object, warning: true, at_once: true, reason, message: message.into() });
    }

    /// Asks for another plan at a moment that is not past; whether it is past.
    pub(super) fn is_due(&mut self, moment: Timestamp) -> bool {
        self.said += 1;
        if moment <= self.now {
            return true;
        }
        self.plan.wake = Some(self.plan.wake.map_or(moment, |wake| wake.min(moment)));
        false
    }

    /// Whether an object without its owner may be taken for left over. One that is new may only have been seen before
    /// its owner was: watches of two kinds are not in step.
    pub(super) fn is_settled(&mut self, metadata: &ObjectMeta) -> bool {
        self.is_older(metadata, self.config.settle)
    }

    /// Whether an object has been there for so long.
    pub(super) fn is_older(&mut self, metadata: &ObjectMeta, age: Duration) -> bool {
        self.said += 1;
        let since = match &self.view.sightings {
            Some(sightings) => Some(sightings.object(uid(metadata))),
            None => metadata.creation_timestamp.as_ref().map(|created| created.0),
        };
        since.is_none_or(|since| self.is_due(later(since, age)))
    }
}

/// A moment plus a duration, at most the last moment that there is.
pub(super) fn later(moment: Timestamp, duration: Duration) -> Timestamp {
    moment.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

/// The uid, or an empty text.
pub(super) fn uid(metadata: &ObjectMeta) -> &str {
    metadata.uid.as_deref().unwrap_or_default()
}

/// The name, or an empty text.
pub(super) fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

/// Namespace and name.
pub(super) fn object_name(metadata: &ObjectMeta) -> ObjectName {
    ObjectName::new(metadata.namespace.as_deref().unwrap_or_default(), name(metadata))
}

/// What makes an object go with its owner.
pub(super) fn owner(kind: Kind, metadata: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: kind.api_version().to_owned(),
        kind: kind.as_str().to_owned(),
        name: name(metadata).to_owned(),
        uid: uid(metadata).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    }
}

/// Whether an owner with this kind and uid is among the owners.
pub(super) fn is_owned_by(metadata: &ObjectMeta, kind: Kind, uid: &str) -> bool {
    owners(metadata).iter().any(|owner| owner.kind == kind.as_str() && owner.uid == uid)
}

/// The owners.
pub(super) fn owners(metadata: &ObjectMeta) -> &[OwnerReference] {
    metadata.owner_references.as_deref().unwrap_or_default()
}

/// Whether the finalizer is there.
pub(super) fn has_finalizer(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|one| one == finalizer)
}

/// Puts the finalizer there, or takes it away.
pub(super) fn set_finalizer(metadata: &mut ObjectMeta, finalizer: &str, wanted: bool) {
    let finalizers = metadata.finalizers.get_or_insert_default();
    finalizers.retain(|one| one != finalizer);
    if wanted {
        finalizers.push(finalizer.to_owned());
    }
    if finalizers.is_empty() {
        metadata.finalizers = None;
    }
}

/// At most a few of many names, and how many more.
pub(super) fn few(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
