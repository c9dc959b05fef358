//! Services: whose each is, where it is met, and which endpoints of its VPC are its backends.
//!
//! Of Services of one VPC that claim one address, protocol and port, the older has the address; the other keeps those
//! that nobody else claims.

use super::context::Context;
use super::endpoints::refusal;
use super::stale::{Stale, pairs};
use super::{Wrong, by_age, first_and_last, missing, parse, problem, wrong};
use crate::names;
use crate::services::{self, Here};
use crate::view::{Address, EndpointSlice, Item, Service, ServicePort, Text, View};
use core::net::IpAddr;
use juneau_core::id::VpcId;
use juneau_core::model::{self, Model, Problem};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Namespace and name of a Service.
pub(super) type Name = (Text, Text);

/// Most addresses that a problem names.
const NAMED: usize = 3;

/// Addresses of a Service that are looked for in every other VPC; nobody shall make that long.
const LOOKED_FOR: usize = 64;

/// EndpointSlices by the Service that they are of, and by name.
type OfServices = BTreeMap<Text, Vec<(Text, Arc<EndpointSlice>)>>;
/// A Service that is there, and what it claims: nothing here, or why it may claim nothing.
type Judged<'v> = Option<(&'v Item<Service>, Result<Option<Claim>, Wrong>)>;

/// What is known of all Services.
#[derive(Debug, Default)]
pub(super) struct Services {
    /// By namespace.
    slices: BTreeMap<Text, OfServices>,
    /// Who claims an address of a VPC.
    claims: BTreeMap<(VpcId, IpAddr), Vec<Name>>,
    /// VPCs whose Services this node serves; of the others nothing is made.
    served: BTreeSet<VpcId>,
    /// Claims of Services that are not the model's.
    lost: BTreeMap<Name, Vec<(VpcId, IpAddr)>>,
    problems: BTreeMap<Name, Vec<Problem>>,
}

/// What Services are judged by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judge<'a> {
    pub(super) view: &'a View,
    pub(super) context: &'a Context,
    pub(super) here: &'a str,
}

/// A Service that may be served: its VPC and its addresses.
struct Claim {
    vpc: VpcId,
    addresses: BTreeSet<IpAddr>,
    wrongs: Vec<Wrong>,
}

impl Services {
    /// What is wrong with Services.
    pub(super) fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.problems.values().flatten()
    }

    /// Makes all Services anew that may be others than before: themselves or their slices, what they rest on, or what
    /// one of the addresses `moved` is. `before` is what they were made of.
    pub(super) fn renew(
        &mut self,
        judge: Judge<'_>,
        before: &View,
        stale: &Stale,
        moved: &BTreeSet<IpAddr>,
        model: &mut Model,
    ) {
        let mut touched = self.follow(before, judge.view);
        let served = self.renew_served(judge, stale, model);
        let everything = stale.all_services;
        if everything || !served.is_empty() || !stale.relabelled.is_empty() {
            for (namespace, inside) in &judge.view.workloads {
                let all = everything || stale.relabelled.contains(namespace);
                let of_served = |item: &Item<Service>| {
                    item.object
                        .vpc
                        .as_ref()
                        .is_ok_and(|name| judge.context.vpcs.get(name).is_some_and(|vpc| served.contains(vpc)))
                };
                let some = inside.services.iter().filter(|(_, item)| all || of_served(item));
                touched.extend(some.map(|(name, _)| (Arc::clone(namespace), Arc::clone(name))));
            }
        }
        self.touched_by(moved, &mut touched);
        // What touched ones claim, or claimed, others may have now, or no more.
        let mut contested = BTreeSet::new();
        let mut judged = BTreeMap::new();
        for name in &touched {
            let old = self.withdraw(name, model);
            let item = judge.service(name);
            let claim =
                item.filter(|item| !item.object.is_left_alone).map(|item| (item, judge.claim(self, name, item)));
            let new = match &claim {
                Some((_, Ok(Some(claim)))) => claim.addresses.iter().map(|address| (claim.vpc, *address)).collect(),
                _ => Vec::new(),
            };
            for key in &new {
                self.claims.entry(*key).or_insert_with(|| Vec::with_capacity(1)).push(name.clone());
            }
            contested.extend(old.into_iter().chain(new));
            judged.insert(name.clone(), claim);
        }
        let rivals: BTreeSet<Name> = contested.iter().filter_map(|at| self.claims.get(at)).flatten().cloned().collect();
        for name in rivals.difference(&touched).cloned() {
            let Some(item) = judge.service(&name) else { continue };
            let claim = judge.claim(self, &name, item);
            judged.insert(name, Some((item, claim)));
        }
        for (name, claim) in judged {
            self.put(judge, &name, claim, model);
        }
    }

    /// Takes in which slices there are. Yields Services whose own objects or slices are others.
    fn follow(&mut self, before: &View, view: &View) -> BTreeSet<Name> {
        let mut touched = BTreeSet::new();
        let empty = Arc::default();
        let namespaces: BTreeSet<&Text> = before.workloads.keys().chain(view.workloads.keys()).collect();
        for namespace in namespaces {
            let old = before.workloads.get(namespace).unwrap_or(&empty);
            let new = view.workloads.get(namespace).unwrap_or(&empty);
            if !Arc::ptr_eq(&old.services, &new.services) {
                let changed = pairs(&old.services, &new.services);
                touched.extend(changed.map(|(name, ..)| (Arc::clone(namespace), Arc::clone(name))));
            }
            if Arc::ptr_eq(&old.endpoint_slices, &new.endpoint_slices) {
                continue;
            }
            let services = self.slices.entry(Arc::clone(namespace)).or_default();
            for (name, old, new) in pairs(&old.endpoint_slices, &new.endpoint_slices) {
                if let Some(service) = old.and_then(|item| item.object.service.as_ref()) {
                    if let Some(slices) = services.get_mut(service) {
                        slices.retain(|(other, _)| other != name);
                        if slices.is_empty() {
                            services.remove(service);
                        }
                    }
                    touched.insert((Arc::clone(namespace), Arc::clone(service)));
                }
                if let Some((item, service)) = new.and_then(|item| Some((item, item.object.service.as_ref()?))) {
                    let slices = services.entry(Arc::clone(service)).or_insert_with(|| Vec::with_capacity(1));
                    slices.push((Arc::clone(name), Arc::clone(&item.object)));
                    slices.sort_by(|(a, _), (b, _)| a.cmp(b));
                    touched.insert((Arc::clone(namespace), Arc::clone(service)));
                }
            }
            if services.is_empty() {
                self.slices.remove(namespace);
            }
        }
        touched
    }

    /// Notes anew which VPCs are served. Yields those that were not, or are no longer.
    fn renew_served(&mut self, judge: Judge<'_>, stale: &Stale, model: &Model) -> BTreeSet<VpcId> {
        let mut changed = BTreeSet::new();
        let mut owners: BTreeSet<VpcId> = stale.owners.iter().flatten().copied().collect();
        if stale.all_services {
            owners.extend(judge.context.vpcs.values().chain(&self.served).copied());
        }
        for vpc in owners {
            let (first, last) = first_and_last(vpc);
            let is_served = judge.view.pods_of.is_none()
                || model.endpoints.range(first..=last).any(|(_, endpoint)| endpoint.node == judge.here);
            if is_served && self.served.insert(vpc) || !is_served && self.served.remove(&vpc) {
                changed.insert(vpc);
            }
        }
        changed
    }

    /// Adds Services with an endpoint at one of these addresses.
    fn touched_by(&self, moved: &BTreeSet<IpAddr>, touched: &mut BTreeSet<Name>) {
        if moved.is_empty() {
            return;
        }
        let is_moved = |address: &Address| matches!(address, Address::Ip(address) if moved.contains(address));
        for (namespace, services) in &self.slices {
            for (name, slices) in services {
                let mut endpoints = slices.iter().flat_map(|(_, slice)| &slice.endpoints);
                if endpoints.any(|endpoint| is_moved(&endpoint.address)) {
                    touched.insert((Arc::clone(namespace), Arc::clone(name)));
                }
            }
        }
    }

    /// Takes back what a Service claims.
    fn withdraw(&mut self, name: &Name, model: &Model) -> Vec<(VpcId, IpAddr)> {
        let mut keys = self.lost.remove(name).unwrap_or_default();
        if let Some(service) = model.services.get(&key(name)) {
            keys.extend(service.addresses.iter().map(|address| (service.vpc, *address)));
        }
        for at in &keys {
            if let Some(names) = self.claims.get_mut(at) {
                names.retain(|other| other != name);
                if names.is_empty() {
                    self.claims.remove(at);
                }
            }
        }
        keys
    }

    /// Puts a Service into the model, or takes it away.
    fn put(&mut self, judge: Judge<'_>, name: &Name, claim: Judged<'_>, model: &mut Model) {
        let mut wrongs = Vec::new();
        let mut service = None;
        self.lost.remove(name);
        if let Some((item, claim)) = &claim {
            match claim {
                Ok(Some(claim)) => {
                    wrongs.extend(claim.wrongs.iter().cloned());
                    let (addresses, lost) = self.divide(judge, name, item, claim, &mut wrongs);
                    if !lost.is_empty() {
                        self.lost.insert(name.clone(), lost);
                    }
                    if !addresses.is_empty() {
                        service = Some(self.service(judge, name, item, claim.vpc, addresses, model, &mut wrongs));
                    }
                }
                Err(wrong) if !is_the_servers(name) => wrongs.push(wrong.clone()),
                Ok(None) | Err(_) => {}
            }
        }
        match (service, model.services.get_mut(&key(name))) {
            // What is equal stays the same, so that nobody looks at it again.
            (Some(service), Some(known)) if **known == service => {}
            (Some(service), Some(known)) => *known = Arc::new(service),
            (Some(service), None) => drop(model.services.insert(key(name), Arc::new(service))),
            (None, _) => drop(model.services.remove(&key(name))),
        }
        let object = || format!("Service/{}", key(name));
        let problems: Vec<_> = match claim {
            Some((item, _)) => wrongs.into_iter().map(|wrong| problem(object(), item, wrong)).collect(),
            None => Vec::new(),
        };
        if problems.is_empty() {
            self.problems.remove(name);
        } else {
            self.problems.insert(name.clone(), problems);
        }
    }

    /// Which of its addresses a Service has, and which others have before it.
    fn divide(
        &self,
        judge: Judge<'_>,
        name: &Name,
        item: &Item<Service>,
        claim: &Claim,
        wrongs: &mut Vec<Wrong>,
    ) -> (BTreeSet<IpAddr>, Vec<(VpcId, IpAddr)>) {
        let (mut addresses, mut lost) = (BTreeSet::new(), Vec::new());
        for address in &claim.addresses {
            let names = self.claims.get(&(claim.vpc, *address)).map(Vec::as_slice).unwrap_or_default();
            match (names.len() > 1).then(|| judge.rival(name, item, names)).flatten() {
                Some((rival, port)) => {
                    wrongs.push(wrong(
                        format!("{address} port {} is Service/{}'s already", port.port, key(&rival)),
                        "give each Service of a VPC addresses or ports of its own",
                    ));
                    lost.push((claim.vpc, *address));
                }
                None => drop(addresses.insert(*address)),
            }
        }
        (addresses, lost)
    }

    #[expect(clippy::too_many_arguments, reason = "each is another thing")]
    fn service(
        &self,
        judge: Judge<'_>,
        name: &Name,
        item: &Item<Service>,
        vpc: VpcId,
        addresses: BTreeSet<IpAddr>,
        model: &Model,
        wrongs: &mut Vec<Wrong>,
    ) -> model::Service {
        let slices = self.slices.get(&name.0).and_then(|services| services.get(&name.1));
        let slices = slices.into_iter().flatten().map(|(_, slice)| &**slice);
        let mut outside: BTreeMap<Unfit, BTreeSet<String>> = BTreeMap::new();
        let mut looked = 0;
        let mut admit = |address: &Address| match judge.unfit(vpc, address, model, &mut looked) {
            None => true,
            Some(why) => {
                outside.entry(why).or_default().insert(address.to_string());
                false
            }
        };
        let zone = judge.view.nodes.get(judge.here).and_then(|node| node.object.zone.as_deref());
        let here = Here { node: judge.here, zone };
        let (ports, refused) = services::ports(&item.object, slices, here, &mut admit);
        let vpc_name = item.object.vpc.as_deref().unwrap_or_default();
        wrongs.extend(refused.into_iter().map(|refused| wrong(refused.to_string(), refused.remedy())));
        wrongs.extend(outside.into_iter().map(|(why, addresses)| why.explain(&addresses, vpc_name)));
        if item.object.ports.is_empty() {
            wrongs.push(wrong("has no ports", "set spec.ports"));
        }
        let (affinity, origin) = (item.object.affinity, item.origin.to_string());
        model::Service { name: key(name), vpc, addresses, affinity, ports, origin }
    }
}

/// `namespace/name`.
fn key((namespace, name): &Name) -> String {
    format!("{namespace}/{name}")
}

/// Whether it is the Service that every API server makes of itself: that it is in no VPC is nobody's slip.
fn is_the_servers((namespace, name): &Name) -> bool {
    (&**namespace, &**name) == (names::DEFAULT, "kubernetes")
}

/// Why an address can be no backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unfit {
    NoAddress,
    NotV4,
    Reserved,
    OtherVpc,
    Outside,
}

impl Unfit {
    /// One problem for all addresses of a kind.
    fn explain(self, addresses: &BTreeSet<String>, vpc: &str) -> Wrong {
        let mut list = addresses.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        if addresses.len() > NAMED {
            list.push_str(&format!(" and {} more", addresses.len() - NAMED));
        }
        let (what, endpoints) = if addresses.len() == 1 { ("is", "endpoint") } else { ("are", "endpoints") };
        let own = format!("take it out of the EndpointSlice, or use addresses of Pods of Vpc/{vpc}");
        match self {
            Self::NoAddress => wrong(format!("{endpoints} {list} {what} no address"), own),
            Self::NotV4 => wrong(format!("{endpoints} {list} {what} not of IPv4, as the EndpointSlice says"), own),
            Self::Reserved => {
                wrong(format!("{endpoints} {list} {what} nothing that can be reached from elsewhere"), own)
            }
            Self::OtherVpc => wrong(
                format!("{endpoints} {list} {what} in another VPC than the Service, which is in Vpc/{vpc}"),
                "name the VPC of its Pods in the annotation juneau.loutres.me/vpc, or select Pods of that VPC",
            ),
            Self::Outside => wrong(
                format!("{endpoints} {list} outside of Vpc/{vpc} {what} not reachable through a Service yet"),
                "use addresses of Pods of the VPC, or wait for a version that reaches others",
            ),
        }
    }
}

impl<'a> Judge<'a> {
    fn service(&self, (namespace, name): &Name) -> Option<&'a Item<Service>> {
        self.view.workloads.get(namespace)?.services.get(name)
    }

    /// What a Service claims, if it is to be served here.
    fn claim(&self, services: &Services, name: &Name, item: &Item<Service>) -> Result<Option<Claim>, Wrong> {
        let service = &*item.object;
        let vpc_name = service.vpc.as_deref().map_err(|error| {
            wrong(format!("annotation {}: {}", error.annotation, error.message), error.remedy.as_str())
        })?;
        let vpc = *self.context.vpcs.get(vpc_name).ok_or_else(|| missing("Vpc", vpc_name, &self.view.vpcs))?;
        if !services.served.contains(&vpc) {
            return Ok(None);
        }
        if self.view.vpcs.get(vpc_name).is_none_or(|vpc| vpc.object.service.is_none()) {
            return Err(wrong(
                format!("Vpc/{vpc_name} has no Services"),
                format!("set spec.service of Vpc/{vpc_name}, or name another VPC"),
            ));
        }
        if let Some(refused) = refusal(self.view, self.context, Some(vpc), &name.0) {
            return Err(refused);
        }
        let given = "create the Service without one, and it is given one";
        let cluster = service.cluster_ip.as_ref().ok_or_else(|| wrong("has no ClusterIP", "set spec.clusterIP"))?;
        let cluster = met_at(cluster).map_err(|why| wrong(format!("its ClusterIP {cluster} {why}"), given))?;
        let (mut addresses, mut wrongs) = (BTreeSet::from([cluster]), Vec::new());
        for external in &service.external_ips {
            match met_at(external) {
                Ok(address) => drop(addresses.insert(address)),
                Err(why) => wrongs.push(wrong(
                    format!("its external address {external} {why}"),
                    "take it out of spec.externalIPs, or use another",
                )),
            }
        }
        Ok(Some(Claim { vpc, addresses, wrongs }))
    }

    /// An older Service that has a port of this one at one of its addresses. `names` are all that claim it.
    fn rival(&self, name: &Name, item: &Item<Service>, names: &[Name]) -> Option<(Name, ServicePort)> {
        let mut all: Vec<_> = names.iter().filter_map(|other| Some((other, self.service(other)?))).collect();
        all.sort_by_key(|(name, _)| *name);
        by_age(&mut all, |(_, item)| item.object.created.as_ref());
        // Who loses the address to an older one takes none of its ports from a younger.
        let mut holders: Vec<(&Name, &Item<Service>)> = Vec::new();
        for (other, at) in all {
            let shared = holders.iter().find_map(|(holder, held)| {
                let port = held.object.ports.iter().find(|port| has_port(&at.object, port))?;
                Some(((*holder).clone(), port.clone()))
            });
            if other == name {
                debug_assert!(Arc::ptr_eq(&at.object, &item.object));
                return shared;
            }
            if shared.is_none() {
                holders.push((other, at));
            }
        }
        None
    }

    /// Why an address can be no backend of a Service of this VPC. `looked` counts those that were looked for elsewhere.
    fn unfit(&self, vpc: VpcId, address: &Address, model: &Model, looked: &mut usize) -> Option<Unfit> {
        let Address::Ip(address) = address else { return Some(Unfit::NoAddress) };
        if address.is_ipv6() {
            return Some(Unfit::NotV4);
        }
        if !parse::is_unicast(*address) {
            return Some(Unfit::Reserved);
        }
        let is_node = self.context.nodes_vpc == Some(vpc) && self.context.node_addresses.contains(address);
        if is_node || model.endpoints.contains_key(&(vpc, *address)) {
            return None;
        }
        *looked += 1;
        let elsewhere =
            *looked <= LOOKED_FOR && model.vpcs.keys().any(|other| model.endpoints.contains_key(&(*other, *address)));
        Some(if elsewhere { Unfit::OtherVpc } else { Unfit::Outside })
    }
}

fn has_port(service: &Service, wanted: &ServicePort) -> bool {
    service.ports.iter().any(|port| (port.transport, port.port) == (wanted.transport, wanted.port))
}

/// An address where a Service can be met.
fn met_at(address: &Address) -> Result<IpAddr, &'static str> {
    match address {
        Address::Invalid(_) => Err("is no address"),
        Address::Ip(IpAddr::V6(_)) => Err("is of IPv6, which is not programmed yet"),
        Address::Ip(address) if !parse::is_unicast(*address) => Err("is none that packets go to"),
        Address::Ip(address) => Ok(*address),
    }
}
