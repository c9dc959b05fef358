//! What has to be made anew when one view follows another.

use super::context::Context;
use super::endpoints::{self, Owner};
use crate::names;
use crate::view::{Item, Items, Text, View, Workloads};
use juneau_core::model::Model;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// What may be other than before.
#[derive(Debug, Default)]
pub(super) struct Stale {
    /// Nodes, VPCs, route tables and Subnets.
    pub(super) context: bool,
    /// Namespaces whose owners may be others.
    pub(super) namespaces: BTreeSet<Text>,
    /// Whose endpoints.
    pub(super) owners: BTreeSet<Owner>,
    /// All endpoints.
    pub(super) all_endpoints: bool,
    /// Whose routes.
    pub(super) tables: BTreeSet<Text>,
    /// Some Service itself, or an EndpointSlice.
    pub(super) services: bool,
    /// All Services.
    pub(super) all_services: bool,
    /// Namespaces whose labels are others.
    pub(super) relabelled: BTreeSet<Text>,
    /// Some Subnet: names of Subnets mean something else.
    subnets: bool,
}

impl Stale {
    /// All of it.
    pub(super) fn everything() -> Self {
        Self { context: true, all_endpoints: true, all_services: true, subnets: true, ..Self::default() }
    }

    /// What the parts of the views tell.
    pub(super) fn by_parts(before: &View, view: &View) -> Self {
        if before.pods_of != view.pods_of {
            return Self::everything();
        }
        let same = Arc::ptr_eq(&before.nodes, &view.nodes)
            && Arc::ptr_eq(&before.vpcs, &view.vpcs)
            && Arc::ptr_eq(&before.subnets, &view.subnets)
            && Arc::ptr_eq(&before.route_tables, &view.route_tables);
        Self { context: !same, ..Self::default() }
    }

    /// Whether all is as it was.
    pub(super) fn is_nothing(&self) -> bool {
        !self.context
            && self.namespaces.is_empty()
            && self.owners.is_empty()
            && !self.services
            && self.relabelled.is_empty()
    }

    /// Compares what everything else is judged by.
    pub(super) fn compare(
        &mut self,
        (before, context_before, model_before): (Option<&View>, &Context, &Model),
        (view, context, model): (&View, &Context, &Model),
        node: &str,
    ) {
        let empty = View::default();
        let before = before.unwrap_or(&empty);
        // Endpoints ask which nodes there are, and what each Subnet is.
        self.all_endpoints |=
            !model_before.nodes.keys().eq(model.nodes.keys()) || !before.nodes.keys().eq(view.nodes.keys());
        self.subnets |= !before.subnets.keys().eq(view.subnets.keys());
        // Services ask what VPCs say about them, which zone this is, and where nodes are.
        let zone = |view: &View| view.nodes.get(node).and_then(|item| item.object.zone.clone());
        self.all_services |= !Arc::ptr_eq(&before.vpcs, &view.vpcs)
            || context_before.node_addresses != context.node_addresses
            || zone(before) != zone(view);
        for (old, new) in differing(&context_before.subnets, &context.subnets, |a, b| a == b) {
            self.subnets = true;
            self.owners.extend([old, new].into_iter().flatten().map(|subnet| Some(subnet.vpc)));
        }
        if self.subnets {
            self.owners.insert(None);
        }
        let closed: BTreeSet<_> = context_before.closed.keys().chain(context.closed.keys()).collect();
        let others = closed.into_iter().filter(|vpc| context_before.closed.get(vpc) != context.closed.get(vpc));
        self.owners.extend(others.map(|vpc| Some(*vpc)));
        for (name, table) in &context.tables {
            let same = before.route_tables.get(name).zip(view.route_tables.get(name));
            if self.subnets
                || context_before.tables.get(name) != Some(table)
                || !same.is_some_and(|(old, new)| old.is_same(new))
            {
                self.tables.insert(Arc::clone(name));
            }
        }
    }

    /// Compares what the namespaces hold.
    pub(super) fn workloads(&mut self, old: (&View, &Context), new: (&View, &Context)) {
        let all: BTreeSet<&Text> = old.0.workloads.keys().chain(new.0.workloads.keys()).collect();
        let empty = Arc::default();
        for namespace in all {
            let before = old.0.workloads.get(namespace).unwrap_or(&empty);
            let after = new.0.workloads.get(namespace).unwrap_or(&empty);
            if Arc::ptr_eq(before, after) {
                if self.subnets {
                    self.namespaces.insert(Arc::clone(namespace));
                }
                continue;
            }
            self.services |= !Arc::ptr_eq(&before.services, &after.services)
                || !Arc::ptr_eq(&before.endpoint_slices, &after.endpoint_slices);
            self.namespaces.insert(Arc::clone(namespace));
            for name in touched(before, after) {
                let owner = |workloads: &Workloads, context: &Context| {
                    let item = workloads.network_endpoints.get(name)?;
                    Some(endpoints::owner(context, &item.object))
                };
                self.owners.extend([owner(before, old.1), owner(after, new.1)].into_iter().flatten());
            }
        }
    }
}

/// Namespaces that came, went, or have other labels.
pub(super) fn namespaces(before: &View, view: &View) -> BTreeSet<Text> {
    if Arc::ptr_eq(&before.namespaces, &view.namespaces) {
        return BTreeSet::new();
    }
    pairs(&before.namespaces, &view.namespaces).map(|(name, ..)| Arc::clone(name)).collect()
}

/// Names of endpoints that are judged by something that changed: themselves, their interface or their Pod.
fn touched<'w>(before: &'w Workloads, after: &'w Workloads) -> BTreeSet<&'w str> {
    let mut names: BTreeSet<&str> = changed(&before.network_endpoints, &after.network_endpoints).collect();
    names.extend(changed(&before.network_interfaces, &after.network_interfaces));
    for pod in changed(&before.pods, &after.pods) {
        // An endpoint of another name asks for no Pod.
        let prefix = names::interface_prefix(pod);
        for workloads in [before, after] {
            let from = (Bound::Included(prefix.as_str()), Bound::Unbounded);
            let endpoints = workloads.network_endpoints.range::<str, _>(from).map(|(name, _)| &**name);
            names.extend(endpoints.take_while(|name| name.starts_with(&prefix)));
        }
    }
    names
}

/// Names of objects that came, went, or are others.
fn changed<'w, T>(before: &'w Items<T>, after: &'w Items<T>) -> impl Iterator<Item = &'w str> {
    let gone = before.iter().filter(|(name, _)| !after.contains_key(*name));
    let other = |(name, item): &(&Text, &Item<T>)| !before.get(*name).is_some_and(|known| known.is_same(item));
    gone.chain(after.iter().filter(other)).map(|(name, _)| &**name)
}

/// Objects that came, went, or are others: by one walk over both, as there may be many.
pub(super) fn pairs<'w, T>(
    before: &'w Items<T>,
    after: &'w Items<T>,
) -> impl Iterator<Item = (&'w Text, Option<&'w Item<T>>, Option<&'w Item<T>>)> {
    let (mut old, mut new) = (before.iter().peekable(), after.iter().peekable());
    let order = |a: &Text, b: &Text| if Arc::ptr_eq(a, b) { Ordering::Equal } else { a.cmp(b) };
    std::iter::from_fn(move || {
        loop {
            let next = match (old.peek(), new.peek()) {
                (Some((a, _)), Some((b, _))) => order(a, b),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return None,
            };
            match next {
                Ordering::Less => return old.next().map(|(name, item)| (name, Some(item), None)),
                Ordering::Greater => return new.next().map(|(name, item)| (name, None, Some(item))),
                Ordering::Equal => {
                    let ((name, a), (_, b)) = old.next().zip(new.next())?;
                    if !a.is_same(b) {
                        return Some((name, Some(a), Some(b)));
                    }
                }
            }
        }
    })
}

/// Pairs of values that differ.
fn differing<'m, K: Ord, V>(
    before: &'m BTreeMap<K, V>,
    after: &'m BTreeMap<K, V>,
    same: impl Fn(&V, &V) -> bool,
) -> Vec<(Option<&'m V>, Option<&'m V>)> {
    let keys: BTreeSet<&K> = before.keys().chain(after.keys()).collect();
    let pairs = keys.into_iter().map(|key| (before.get(key), after.get(key)));
    pairs.filter(|(old, new)| !old.zip(*new).is_some_and(|(old, new)| same(old, new))).collect()
}
