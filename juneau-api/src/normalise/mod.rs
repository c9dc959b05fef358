//! From the view to the model: names become numbers, strings become addresses, and what is wrong becomes a named
//! problem.
//!
//! [`normalise`] is pure and never fails. A bad object costs itself and what rests on it alone. Of two objects that
//! claim one thing (a number, an address, a prefix) the older has it, and among those of one age, or of none, the first
//! by name; so a newcomer never disturbs what works.
//!
//! A [`Normaliser`] yields the same for one view after another, and computes only what may have changed: nodes, VPCs,
//! route tables and Subnets all together; endpoints by VPC, because those of one VPC compete with each other alone;
//! routes by table. Each such piece is always made as a whole, by the functions that make it the first time.

mod context;
mod endpoints;
mod networks;
mod nodes;
mod parse;
mod routes;
mod services;
mod stale;

use crate::view::{self, Item, Items, Text, Time, View};
use context::{Context, Networks};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use endpoints::{Judge, Owner};
use juneau_core::id::VpcId;
use juneau_core::model::{Endpoint, Model, Problem};
use routes::Router;
use services::Services;
use stale::Stale;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Keeps the model of the latest view.
#[derive(Debug)]
pub struct Normaliser {
    node: Text,
    require_binding: bool,
    /// What the rest was made of; none before the first.
    view: Option<View>,
    context: Context,
    model: Model,
    problems: Vec<Problem>,
    /// Who owns endpoints of a namespace.
    owners: BTreeMap<Text, BTreeSet<Owner>>,
    /// What is wrong with endpoints, by their owner.
    of_endpoints: BTreeMap<Owner, Vec<Problem>>,
    /// What is wrong with routes, by table.
    of_routes: BTreeMap<Text, OfRoutes>,
    services: Services,
}

#[derive(Debug)]
struct OfRoutes {
    problems: Vec<Problem>,
    looks_outside: bool,
}

impl Normaliser {
    /// Nothing exists yet, as the node `node` sees it.
    #[must_use]
    pub fn new(node: impl Into<Text>) -> Self {
        Self {
            node: node.into(),
            require_binding: false,
            view: None,
            context: Context::default(),
            model: Model::default(),
            problems: Vec::new(),
            owners: BTreeMap::new(),
            of_endpoints: BTreeMap::new(),
            of_routes: BTreeMap::new(),
            services: Services::default(),
        }
    }

    /// VPCs that do not say which Namespaces may enter are open to none, less the one that all untouched Pods are in.
    #[must_use]
    pub const fn requiring_binding(mut self, require: bool) -> Self {
        self.require_binding = require;
        self
    }

    /// The model of the latest view.
    #[must_use]
    pub const fn model(&self) -> &Model {
        &self.model
    }

    /// What is wrong with the objects of the latest view.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The endpoints that say to be on this node, by `namespace/name`, whether they can be used or not.
    pub fn own_endpoints(&self) -> impl Iterator<Item = (String, &view::NetworkEndpoint)> {
        let namespaces = self.view.iter().flat_map(|view| &view.workloads);
        let all = namespaces.flat_map(|(namespace, inside)| {
            inside.network_endpoints.iter().map(move |(name, item)| (namespace, name, &*item.object))
        });
        all.filter(|(_, _, endpoint)| endpoint.node == self.node)
            .map(|(namespace, name, endpoint)| (format!("{namespace}/{name}"), endpoint))
    }

    /// The interfaces of Pods that this node's usable endpoints are of: Namespace, Pod, interface, and the endpoint's name
    /// as the model has it.
    pub fn own_interfaces(&self) -> impl Iterator<Item = (&str, &str, &str, &str)> {
        let here = self.model.endpoints.values().filter(|endpoint| *endpoint.node == *self.node);
        here.filter_map(|endpoint| {
            let (namespace, name) = endpoint.name.split_once('/')?;
            let item = self.view.as_ref()?.workloads.get(namespace)?.network_endpoints.get(name)?;
            let pod = item.object.pod.as_ref()?;
            Some((namespace, &*pod.name, &*pod.interface, endpoint.name.as_str()))
        })
    }

    /// How many objects of a kind are held.
    #[must_use]
    pub fn held(&self, kind: view::Kind) -> usize {
        self.view.as_ref().map_or(0, |view| view.count(kind))
    }

    /// A Pod that is known.
    #[must_use]
    pub fn pod(&self, namespace: &str, name: &str) -> Option<&crate::view::Pod> {
        Some(&*self.view.as_ref()?.workloads.get(namespace)?.pods.get(name)?.object)
    }

    /// Takes in what exists now. Whether anything may be other than before.
    pub fn update(&mut self, view: &View) -> bool {
        let before = self.view.replace(view.clone());
        let mut stale = match &before {
            None => Stale::everything(),
            Some(before) => Stale::by_parts(before, view),
        };
        let context_before = stale.context.then(|| self.renew_context(view, before.as_ref(), &mut stale));
        let empty = View::default();
        let old = (before.as_ref().unwrap_or(&empty), context_before.as_ref().unwrap_or(&self.context));
        stale.workloads(old, (view, &self.context));
        // Their labels say which VPCs they may enter.
        stale.relabelled = stale::namespaces(old.0, view);
        let owners = stale.relabelled.iter().filter_map(|name| self.owners.get(name)).flatten().copied();
        stale.owners.extend(owners.collect::<Vec<_>>());
        if stale.is_nothing() {
            return false;
        }
        self.renew_owners(view, &stale);
        if stale.all_endpoints {
            stale.owners.extend(self.owners.values().flatten().copied());
            stale.owners.extend(self.of_endpoints.keys().copied());
        }
        let mut moved = BTreeSet::new();
        for owner in &stale.owners {
            self.renew_endpoints(view, *owner, &mut moved);
        }
        self.renew_routes(view, &stale);
        let judge = services::Judge { view, context: &self.context, here: &self.node };
        self.services.renew(judge, before.as_ref().unwrap_or(&empty), &stale, &moved, &mut self.model);
        let of_endpoints = self.of_endpoints.values().flatten();
        let of_routes = self.of_routes.values().flat_map(|routes| &routes.problems);
        let of_services = self.services.problems();
        let all = self.context.problems.iter().chain(of_endpoints).chain(of_routes).chain(of_services);
        self.problems = all.cloned().collect();
        self.problems.sort();
        true
    }

    /// Makes nodes, VPCs, tables and Subnets anew, and notes what rests on those that are others now. Yields what was.
    fn renew_context(&mut self, view: &View, before: Option<&View>, stale: &mut Stale) -> Context {
        let (mut model, context) = Networks::normalise(view, &self.node, self.require_binding);
        stale.compare((before, &self.context, &self.model), (view, &context, &model), &self.node);
        model.endpoints = std::mem::take(&mut self.model.endpoints);
        model.services = std::mem::take(&mut self.model.services);
        for (name, (id, _)) in context.tables.iter().filter(|(name, _)| !stale.tables.contains(*name)) {
            let (Some(table), Some(known)) = (model.tables.get_mut(id), self.model.tables.get_mut(id)) else {
                continue;
            };
            debug_assert_eq!(table.name, **name);
            table.routes = std::mem::take(&mut known.routes);
        }
        self.of_routes.retain(|name, _| context.tables.contains_key(name));
        self.model = model;
        std::mem::replace(&mut self.context, context)
    }

    /// Notes anew who owns endpoints of the namespaces that changed.
    fn renew_owners(&mut self, view: &View, stale: &Stale) {
        for namespace in &stale.namespaces {
            match view.workloads.get(namespace) {
                Some(workloads) => {
                    let endpoints = workloads.network_endpoints.values();
                    let owners = endpoints.map(|item| endpoints::owner(&self.context, &item.object)).collect();
                    self.owners.insert(Arc::clone(namespace), owners);
                }
                None => drop(self.owners.remove(namespace)),
            }
        }
    }

    /// Adds to `moved` what addresses are others' than before, or nobody's.
    fn renew_endpoints(&mut self, view: &View, owner: Owner, moved: &mut BTreeSet<IpAddr>) {
        let judge = Judge { view, context: &self.context, nodes: &self.model.nodes };
        let namespaces = self.owners.iter().filter(|(_, owners)| owners.contains(&owner)).map(|(name, _)| &**name);
        let (endpoints, problems) = judge.endpoints(owner, namespaces);
        if let Some(vpc) = owner {
            replace(&mut self.model.endpoints, vpc, endpoints, moved);
        }
        if problems.is_empty() {
            self.of_endpoints.remove(&owner);
        } else {
            self.of_endpoints.insert(owner, problems);
        }
    }

    fn renew_routes(&mut self, view: &View, stale: &Stale) {
        for (name, (id, vpc)) in &self.context.tables {
            let looks_outside = self.of_routes.get(name).is_some_and(|routes| routes.looks_outside);
            if !(stale.tables.contains(name) || stale.owners.contains(&Some(*vpc)) || looks_outside) {
                continue;
            }
            let (Some(item), Some(table)) = (view.route_tables.get(name), self.model.tables.get_mut(id)) else {
                continue;
            };
            let routed = Router::new(view, &self.context, &self.model.endpoints, *vpc).routes(name, item);
            table.routes = routed.routes;
            let (mut problems, looks_outside) = (routed.problems, routed.looks_outside);
            if view.pods_of.is_some() && !has_endpoint_on(&self.model.endpoints, *vpc, &self.node) {
                // Its endpoints are not known here; nodes that have one of them judge its routes.
                problems.clear();
            }
            if problems.is_empty() {
                self.of_routes.remove(name);
            } else {
                self.of_routes.insert(Arc::clone(name), OfRoutes { problems, looks_outside });
            }
        }
    }
}

/// The first and the last that a VPC's endpoints can have as key.
const fn first_and_last(vpc: VpcId) -> ((VpcId, IpAddr), (VpcId, IpAddr)) {
    ((vpc, IpAddr::V4(Ipv4Addr::UNSPECIFIED)), (vpc, IpAddr::V6(Ipv6Addr::from_bits(u128::MAX))))
}

/// Puts a VPC's endpoints in place of those that it had. Addresses that came or went are added to `moved`.
fn replace(
    all: &mut BTreeMap<(VpcId, IpAddr), Endpoint>,
    vpc: VpcId,
    mut wanted: BTreeMap<(VpcId, IpAddr), Endpoint>,
    moved: &mut BTreeSet<IpAddr>,
) {
    let (first, last) = first_and_last(vpc);
    let mut gone = Vec::new();
    for (key, endpoint) in all.range_mut(first..=last) {
        match wanted.remove(key) {
            Some(wanted) => *endpoint = wanted,
            None => gone.push(*key),
        }
    }
    moved.extend(wanted.keys().chain(&gone).map(|(_, address)| *address));
    for key in gone {
        all.remove(&key);
    }
    all.append(&mut wanted);
}

/// Whether a VPC has an endpoint on a node.
fn has_endpoint_on(all: &BTreeMap<(VpcId, IpAddr), Endpoint>, vpc: VpcId, node: &str) -> bool {
    let (first, last) = first_and_last(vpc);
    all.range(first..=last).any(|(_, endpoint)| endpoint.node == node)
}

/// The model of a view, and what is wrong with its objects, as the node `node` sees it.
#[must_use]
pub fn normalise(view: &View, node: &str) -> (Model, Vec<Problem>) {
    let mut normaliser = Normaliser::new(node);
    normaliser.update(view);
    (normaliser.model, normaliser.problems)
}

/// A message and a remedy.
type Wrong = (String, String);

/// Says what is wrong.
fn wrong(message: impl Into<String>, remedy: impl Into<String>) -> Wrong {
    (message.into(), remedy.into())
}

/// The same as a problem of an object.
fn problem<T>(object: String, item: &Item<T>, (message, remedy): Wrong) -> Problem {
    Problem::new(object, message, remedy).at(item.origin.to_string())
}

/// Sorts objects by age: who comes first has what both claim. Those of one age stay in their order.
fn by_age<T>(objects: &mut [T], created: impl Fn(&T) -> Option<&Time>) {
    // Without a time an object is younger than any with one.
    objects.sort_by(|a, b| {
        let (a, b) = (created(a), created(b));
        a.is_none().cmp(&b.is_none()).then_with(|| a.map(|time| time.0).cmp(&b.map(|time| time.0)))
    });
}

/// Objects by age, then by name.
fn oldest_first<T>(objects: &Items<T>, created: impl Fn(&T) -> Option<&Time>) -> Vec<(&Text, &Item<T>)> {
    let mut all: Vec<_> = objects.iter().collect();
    by_age(&mut all, |(_, item)| created(&item.object));
    all
}

/// `Vpc/red does not exist`, or `cannot be used` when it is there but something is wrong with it.
fn missing<T>(kind: &str, name: &str, objects: &Items<T>) -> Wrong {
    if objects.contains_key(name) {
        wrong(format!("{kind}/{name} cannot be used"), format!("mend {kind}/{name} first"))
    } else {
        wrong(format!("{kind}/{name} does not exist"), format!("create {kind}/{name}, or name another"))
    }
}
