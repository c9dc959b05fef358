//! What plans remember: what was at rest.
//!
//! Of a large cluster nearly everything is as it should be, and to see that, a plan reads a Pod, its interface, endpoint,
//! claim and lease, and compares their texts, which lie all over the memory. But what is judged by the very same objects
//! is judged the same. So what was at rest is passed over as long as its objects are the same ones, which their pointers
//! tell: none of them is read.
//!
//! A *unit* is a Pod with the interfaces that it asks for, and the endpoint, the claim and the lease of each. It is at rest
//! when a plan had nothing to say about any of them, and looked at no clock for it. That depends on the unit's own objects,
//! on what [`Surroundings`] hold, and on nothing else. A new or changed object that names one of a unit by its uid ends the
//! unit's rest, whatever it wants of it.
//!
//! What is remembered never changes what is planned, only what it costs; tests plan with it and without it.

use super::planner::{FastMap, FastSet, name, uid};
use super::{Config, Plan, compose};
use crate::view::{Pod, Shared, View};
use core::cmp::Ordering;
use juneau_api::kinds::{AllocationClaim, AllocationLease, NetworkEndpoint, NetworkInterface};
use juneau_api::view::ObjectName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What one plan remembers for the next. One that remembers nothing is as good as any.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    surroundings: Option<Surroundings>,
    pods: Resting<Pod>,
    interfaces: Resting<NetworkInterface>,
    endpoints: Resting<NetworkEndpoint>,
    claims: Resting<AllocationClaim>,
    leases: Resting<AllocationLease>,
    /// The units at rest by the uids of their Pods, interfaces and claims.
    uids: Arc<Uids>,
    last: Unit,
}

/// Which unit an object is of.
type Unit = u64;

/// Units by uid.
pub(super) type Uids = FastMap<String, Unit>;

/// Objects of units at rest, in the order of their names.
type Resting<T> = Vec<(Arc<T>, Unit)>;

/// What units are judged by beside their own objects.
#[derive(Debug, Clone)]
struct Surroundings {
    view: View,
    config: Config,
}

impl Surroundings {
    fn new(view: &View, config: &Config) -> Self {
        let view = View {
            namespaces: Arc::clone(&view.namespaces),
            nodes: Arc::clone(&view.nodes),
            vpcs: Arc::clone(&view.vpcs),
            subnets: Arc::clone(&view.subnets),
            undecodable: view.undecodable.clone(),
            ..View::default()
        };
        Self { view, config: config.clone() }
    }

    fn are(&self, view: &View, config: &Config) -> bool {
        same(&self.view.namespaces, &view.namespaces)
            && same(&self.view.nodes, &view.nodes)
            && same(&self.view.vpcs, &view.vpcs)
            && same(&self.view.subnets, &view.subnets)
            && self.view.undecodable == view.undecodable
            && self.config == *config
    }
}

/// Whether these are the very same objects.
fn same<K, T>(one: &Shared<K, T>, other: &Shared<K, T>) -> bool {
    Arc::ptr_eq(one, other)
        || one.len() == other.len() && one.values().zip(other.values()).all(|(one, other)| Arc::ptr_eq(one, other))
}

/// One object that a plan has to judge.
#[derive(Debug)]
pub(super) struct Entry<'v, K, T> {
    /// Its place in the order of names.
    pub(super) place: usize,
    /// Its name.
    pub(super) name: &'v K,
    /// The object.
    pub(super) object: &'v Arc<T>,
}

/// What a plan has to judge: all but what is at rest.
#[derive(Debug)]
pub(super) struct Active<'v> {
    pub(super) pods: Vec<Entry<'v, ObjectName, Pod>>,
    pub(super) interfaces: Vec<Entry<'v, ObjectName, NetworkInterface>>,
    pub(super) endpoints: Vec<Entry<'v, ObjectName, NetworkEndpoint>>,
    pub(super) claims: Vec<Entry<'v, String, AllocationClaim>>,
    pub(super) leases: Vec<Entry<'v, String, AllocationLease>>,
}

impl<'v> Active<'v> {
    /// All of a view.
    pub(super) fn all(view: &'v View) -> Self {
        Self::but(view, &Units::none(view))
    }

    fn but(view: &'v View, units: &Units) -> Self {
        Self {
            pods: active(&view.pods, &units.pods),
            interfaces: active(&view.network_interfaces, &units.interfaces),
            endpoints: active(&view.network_endpoints, &units.endpoints),
            claims: active(&view.claims, &units.claims),
            leases: active(&view.leases, &units.leases),
        }
    }
}

fn active<'v, K, T>(objects: &'v BTreeMap<K, Arc<T>>, units: &[Option<Unit>]) -> Vec<Entry<'v, K, T>> {
    let entries = objects.iter().zip(units).enumerate().filter(|(_, (_, unit))| unit.is_none());
    entries.map(|(place, ((name, object), _))| Entry { place, name, object }).collect()
}

/// The units of a view's objects, each kind in the order of its names.
#[derive(Debug)]
struct Units {
    pods: Vec<Option<Unit>>,
    interfaces: Vec<Option<Unit>>,
    endpoints: Vec<Option<Unit>>,
    claims: Vec<Option<Unit>>,
    leases: Vec<Option<Unit>>,
}

impl Units {
    fn none(view: &View) -> Self {
        Self {
            pods: vec![None; view.pods.len()],
            interfaces: vec![None; view.network_interfaces.len()],
            endpoints: vec![None; view.network_endpoints.len()],
            claims: vec![None; view.claims.len()],
            leases: vec![None; view.leases.len()],
        }
    }

    fn end(&mut self, disturbed: &FastSet<Unit>) {
        for units in [&mut self.pods, &mut self.interfaces, &mut self.endpoints, &mut self.claims, &mut self.leases] {
            units
                .iter_mut()
                .filter(|unit| unit.is_some_and(|unit| disturbed.contains(&unit)))
                .for_each(|unit| *unit = None);
        }
    }
}

/// What a plan had nothing to say about.
#[derive(Debug, Default)]
pub(super) struct Calm<'v> {
    /// Pods whose interfaces are all there, and the names of these.
    pub(super) pods: Vec<(usize, &'v Arc<Pod>, Vec<&'v ObjectName>)>,
    /// Interfaces that have all that they shall have.
    pub(super) interfaces: FastMap<&'v ObjectName, CalmInterface<'v>>,
    /// Claims, by uid, that have their value and are wanted.
    pub(super) claims: FastMap<&'v str, usize>,
    /// Leases, by the uid of the claim that holds them.
    pub(super) leases: FastMap<&'v str, usize>,
}

/// An interface that has all that it shall have.
#[derive(Debug)]
pub(super) struct CalmInterface<'v> {
    pub(super) place: usize,
    pub(super) endpoint: usize,
    pub(super) uid: &'v str,
    pub(super) claim: &'v str,
}

impl Memory {
    /// Like [`plan`](super::plan), with less work where little changed since the plan before.
    pub fn plan(&mut self, view: &View, config: &Config, now: Timestamp) -> Plan {
        let mut units = self.recall(view, config);
        let active = Active::but(view, &units);
        let (plan, calm) = compose(view, config, now, active, Some(Arc::clone(&self.uids)));
        let before = self.last;
        for (place, pod, names) in &calm.pods {
            self.settle(&mut units, &calm, *place, pod, names);
        }
        if self.last != before {
            keep(&mut self.pods, &view.pods, &units.pods);
            keep(&mut self.interfaces, &view.network_interfaces, &units.interfaces);
            keep(&mut self.endpoints, &view.network_endpoints, &units.endpoints);
            keep(&mut self.claims, &view.claims, &units.claims);
            keep(&mut self.leases, &view.leases, &units.leases);
        }
        plan
    }

    /// How many objects the last plan found at rest, or left so.
    #[must_use]
    pub fn at_rest(&self) -> usize {
        self.pods.len() + self.interfaces.len() + self.endpoints.len() + self.claims.len() + self.leases.len()
    }

    /// The units that are still at rest; the others are forgotten.
    fn recall(&mut self, view: &View, config: &Config) -> Units {
        if !self.surroundings.as_ref().is_some_and(|known| known.are(view, config)) {
            // Numbers of units are not used again.
            *self = Self { surroundings: Some(Surroundings::new(view, config)), last: self.last, ..Self::default() };
            return Units::none(view);
        }
        let mut disturbed = FastSet::default();
        let pods = still(&self.pods, &view.pods, |pod, key| in_namespace(&pod.metadata, key), &mut disturbed);
        let of_view = &view.network_interfaces;
        let interfaces = still(&self.interfaces, of_view, |nic, key| in_namespace(&nic.metadata, key), &mut disturbed);
        let of_view = &view.network_endpoints;
        let endpoints = still(&self.endpoints, of_view, |one, key| in_namespace(&one.metadata, key), &mut disturbed);
        let claims = still(&self.claims, &view.claims, |claim, key| in_cluster(&claim.metadata, key), &mut disturbed);
        let leases = still(&self.leases, &view.leases, |lease, key| in_cluster(&lease.metadata, key), &mut disturbed);
        let mut units = Units { pods, interfaces, endpoints, claims, leases };
        self.disturb(&Active::but(view, &units), &mut disturbed);
        if !disturbed.is_empty() {
            units.end(&disturbed);
            let rests = |unit: &Unit| !disturbed.contains(unit);
            self.pods.retain(|(_, unit)| rests(unit));
            self.interfaces.retain(|(_, unit)| rests(unit));
            self.endpoints.retain(|(_, unit)| rests(unit));
            self.claims.retain(|(_, unit)| rests(unit));
            self.leases.retain(|(_, unit)| rests(unit));
            Arc::make_mut(&mut self.uids).retain(|_, unit| rests(unit));
        }
        units
    }

    /// Ends the rest of what new and changed objects name.
    fn disturb(&self, active: &Active<'_>, disturbed: &mut FastSet<Unit>) {
        let mut named = |uid: Option<&str>| disturbed.extend(uid.and_then(|uid| self.uids.get(uid)));
        for pod in &active.pods {
            named(pod.object.metadata.uid.as_deref());
        }
        for nic in &active.interfaces {
            named(nic.object.metadata.uid.as_deref());
            named(Some(&nic.object.spec.pod_ref.uid));
        }
        for endpoint in &active.endpoints {
            named(endpoint.object.spec.pod_ref.as_ref().map(|pod| pod.uid.as_str()));
        }
        for claim in &active.claims {
            named(claim.object.metadata.uid.as_deref());
            named(claim.object.spec.resource_ref.uid.as_deref());
        }
        for lease in &active.leases {
            named(lease.object.spec.claim_ref.uid.as_deref());
        }
    }

    /// Makes a unit of a Pod about which there was nothing to say, if there was nothing to say about what belongs to it.
    fn settle(&mut self, units: &mut Units, calm: &Calm<'_>, place: usize, pod: &Pod, names: &[&ObjectName]) {
        let mut uids = vec![uid(&pod.metadata)];
        let mut members = Vec::with_capacity(names.len());
        for name in names {
            let Some(nic) = calm.interfaces.get(name) else { return };
            let (Some(claim), Some(lease)) = (calm.claims.get(nic.claim), calm.leases.get(nic.claim)) else { return };
            uids.extend([nic.uid, nic.claim]);
            members.push((nic, *claim, *lease));
        }
        // Where a uid is not unique, nothing is certain.
        let is_own =
            |(at, uid): (usize, &&str)| !uid.is_empty() && !uids[..at].contains(uid) && !self.uids.contains_key(*uid);
        if !uids.iter().enumerate().all(is_own) {
            return;
        }
        self.last += 1;
        let unit = self.last;
        let set = |units: &mut Vec<Option<Unit>>, place: usize| units.get_mut(place).map(|slot| *slot = Some(unit));
        set(&mut units.pods, place);
        for (nic, claim, lease) in members {
            set(&mut units.interfaces, nic.place);
            set(&mut units.endpoints, nic.endpoint);
            set(&mut units.claims, claim);
            set(&mut units.leases, lease);
        }
        Arc::make_mut(&mut self.uids).extend(uids.into_iter().map(|uid| (uid.to_owned(), unit)));
    }
}

/// How an object's name is to another of its kind.
fn in_namespace(metadata: &ObjectMeta, other: &ObjectName) -> Ordering {
    let own = (metadata.namespace.as_deref().unwrap_or_default(), name(metadata));
    own.cmp(&(other.namespace.as_str(), other.name.as_str()))
}

/// The same for a kind without namespaces.
fn in_cluster(metadata: &ObjectMeta, other: &str) -> Ordering {
    name(metadata).cmp(other)
}

/// The units of those objects that are the very ones that were at rest. Units whose objects are gone, or are others now,
/// are disturbed.
fn still<K, T>(
    resting: &[(Arc<T>, Unit)],
    objects: &BTreeMap<K, Arc<T>>,
    order: impl Fn(&T, &K) -> Ordering,
    disturbed: &mut FastSet<Unit>,
) -> Vec<Option<Unit>> {
    let mut resting = resting.iter().peekable();
    let units = objects.iter().map(|(name, object)| {
        while let Some((known, unit)) = resting.peek() {
            if Arc::ptr_eq(known, object) {
                resting.next();
                return Some(*unit);
            }
            match order(known, name) {
                // It is new, or was not at rest.
                Ordering::Greater => return None,
                Ordering::Equal => {
                    disturbed.insert(*unit);
                    resting.next();
                    return None;
                }
                Ordering::Less => {
                    disturbed.insert(*unit);
                    resting.next();
                }
            }
        }
        None
    });
    let units = units.collect();
    disturbed.extend(resting.map(|(_, unit)| *unit));
    units
}

/// Holds what is at rest now; what was so before is only moved.
fn keep<K, T>(resting: &mut Resting<T>, objects: &BTreeMap<K, Arc<T>>, units: &[Option<Unit>]) {
    let mut before = std::mem::take(resting).into_iter().peekable();
    resting.extend(objects.values().zip(units).filter_map(|(object, unit)| {
        let unit = (*unit)?;
        let known = before.next_if(|(known, _)| Arc::ptr_eq(known, object));
        Some((known.map_or_else(|| Arc::clone(object), |(known, _)| known), unit))
    }));
}
