//! The routes in force of every table: `status.routes`, never `spec.routes`.

use super::context::Context;
use super::endpoints::owner;
use super::{Wrong, first_and_last, missing, parse, problem, wrong};
use crate::kinds::{self, ViaType};
use crate::view::{self, Item, View};
use core::net::IpAddr;
use ipnet::IpNet;
use juneau_core::id::VpcId;
use juneau_core::model::{Endpoint, Problem, Route, RouteTarget};
use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, BTreeSet};

/// Endpoints by what holds what: address in a VPC.
type Endpoints = BTreeMap<(VpcId, IpAddr), Endpoint>;
/// A VPC's endpoints by name without namespace.
type Named<'m> = BTreeMap<&'m str, Vec<&'m Endpoint>>;

/// What the routes of one table are judged by.
#[derive(Debug)]
pub(super) struct Router<'a> {
    view: &'a View,
    context: &'a Context,
    endpoints: &'a Endpoints,
    vpc: VpcId,
    named: OnceCell<Named<'a>>,
    looks_outside: Cell<bool>,
}

/// The routes of a table.
#[derive(Debug)]
pub(super) struct Routed {
    pub(super) routes: Vec<Route>,
    pub(super) problems: Vec<Problem>,
    /// What is said about a route depends on endpoints of other VPCs.
    pub(super) looks_outside: bool,
}

impl<'a> Router<'a> {
    /// For a table of this VPC.
    pub(super) fn new(view: &'a View, context: &'a Context, endpoints: &'a Endpoints, vpc: VpcId) -> Self {
        Self { view, context, endpoints, vpc, named: OnceCell::new(), looks_outside: Cell::new(false) }
    }

    /// All routes of the table.
    pub(super) fn routes(&self, name: &str, item: &Item<view::RouteTable>) -> Routed {
        let (mut routes, mut problems) = (Vec::new(), Vec::new());
        let all = item.object.routes.iter();
        let (good, bad): (Vec<_>, Vec<_>) =
            all.map(|route| (route, parse::prefix(&route.dst))).partition(|(_, prefix)| prefix.is_ok());
        let mut prefixes = BTreeSet::new();
        // A route whose own prefix is wrong takes none from a good one.
        for (route, prefix) in good.into_iter().chain(bad) {
            let (kept, wrongs) = self.route(route, prefix, &mut prefixes);
            problems.extend(wrongs.into_iter().map(|(message, remedy)| {
                let wrong = wrong(format!("route {}: {message}", route.dst), remedy);
                problem(format!("RouteTable/{name}"), item, wrong)
            }));
            routes.extend(kept);
        }
        Routed { routes, problems, looks_outside: self.looks_outside.get() }
    }

    fn named(&self) -> &Named<'a> {
        self.named.get_or_init(|| {
            let (first, last) = first_and_last(self.vpc);
            let mut named = Named::new();
            for endpoint in self.endpoints.range(first..=last).map(|(_, endpoint)| endpoint) {
                let name = endpoint.name.rsplit('/').next().unwrap_or_default();
                named.entry(name).or_default().push(endpoint);
            }
            named
        })
    }

    /// One route. Broken, but with a prefix that can be read, it leads nowhere, so that no wider route takes over.
    fn route(
        &self,
        route: &kinds::Route,
        prefix: Result<IpNet, (Wrong, Option<IpNet>)>,
        prefixes: &mut BTreeSet<IpNet>,
    ) -> (Option<Route>, Option<Wrong>) {
        let (prefix, target) = match prefix {
            Ok(prefix) => (prefix, self.target(&route.via, route, prefix)),
            Err((wrong, Some(prefix))) => (prefix, Err(wrong)),
            Err((wrong, None)) => return (None, Some(wrong)),
        };
        match (target, prefixes.insert(prefix)) {
            (Ok(_), false) => {
                (None, Some(wrong("the table has a route for the prefix already", "remove one of the two")))
            }
            (Err(wrong), false) => (None, Some(wrong)),
            (Ok(target), true) => (Some(Route { prefix, target }), None),
            (Err((message, remedy)), true) => {
                let target = RouteTarget::Gone(message.clone());
                (Some(Route { prefix, target }), Some(wrong(format!("{message}; {prefix} is unreachable"), remedy)))
            }
        }
    }

    fn target(&self, via: &kinds::Via, route: &kinds::Route, prefix: IpNet) -> Result<RouteTarget, Wrong> {
        let not_yet = |what: &str| {
            wrong(format!("{what} are not programmed yet"), "remove it, or wait for a version that knows them")
        };
        match via.kind {
            ViaType::Connected => self.connected(route, prefix),
            ViaType::Endpoint => self.next_hop(via),
            ViaType::InternetGateway => Err(not_yet("routes to the internet")),
            ViaType::Service => Ok(RouteTarget::Service),
            ViaType::NatGateway => Err(not_yet("routes to NATGateways")),
            ViaType::VpcPeering => Err(not_yet("routes to VpcPeerings")),
            ViaType::TransitGateway => Err(not_yet("routes to TransitGateways")),
            ViaType::VpcEndpoint => Err(not_yet("routes to VpcEndpoints")),
            ViaType::Vpn => Err(not_yet("routes to VPNs")),
            ViaType::Unknown => Err(wrong("via.type is none that is known", "use connected or endpoint")),
        }
    }

    fn connected(&self, route: &kinds::Route, prefix: IpNet) -> Result<RouteTarget, Wrong> {
        let Some(name) = route.subnet.as_deref().filter(|name| !name.is_empty()) else {
            if route.l2_network.as_deref().is_some_and(|name| !name.is_empty()) {
                return Err(wrong("L2Networks are not programmed yet", "use a Subnet"));
            }
            return Err(wrong("names no Subnet", "set its subnet"));
        };
        let subnet = self.context.subnets.get(name).ok_or_else(|| missing("Subnet", name, &self.view.subnets))?;
        if subnet.vpc != self.vpc {
            return Err(wrong(format!("Subnet/{name} is in another VPC"), "name a Subnet of the table's VPC"));
        }
        if subnet.prefix != prefix {
            return Err(wrong(format!("Subnet/{name} is {}", subnet.prefix), format!("set dst to {}", subnet.prefix)));
        }
        Ok(RouteTarget::Connected(subnet.vni))
    }

    /// An endpoint of the table's own VPC. Others of its name elsewhere do not matter, or one tenant could break
    /// another's route by a name.
    fn next_hop(&self, via: &kinds::Via) -> Result<RouteTarget, Wrong> {
        let Some(text) = via.endpoint_name.as_deref().filter(|name| !name.is_empty()) else {
            return Err(wrong("names no endpoint", "set via.endpointName"));
        };
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, text),
        };
        let is_meant = |endpoint: &&&Endpoint| namespace.is_none() || endpoint.name == text;
        let all = self.named().get(name).map(Vec::as_slice).unwrap_or_default();
        let found: Vec<_> = all.iter().filter(is_meant).collect();
        match found.as_slice() {
            [endpoint] => Ok(RouteTarget::Endpoint(endpoint.address)),
            [] => {
                self.looks_outside.set(true);
                let described = self.described(namespace, name);
                let elsewhere = described.iter().any(|(namespace, endpoint)| self.is_used(namespace, name, endpoint));
                let described = !described.is_empty();
                Err(if elsewhere {
                    wrong(format!("NetworkEndpoint {text} is in another VPC"), "name an endpoint of the table's VPC")
                } else if described {
                    wrong(format!("NetworkEndpoint {text} cannot be used"), "mend it first")
                } else {
                    wrong(format!("NetworkEndpoint {text} does not exist"), "create it, or remove the route")
                })
            }
            several => Err(wrong(
                format!(
                    "the VPC has {} endpoints named {text}: {}",
                    several.len(),
                    several.iter().map(|endpoint| endpoint.name.as_str()).collect::<Vec<_>>().join(", ")
                ),
                "write namespace/name in via.endpointName",
            )),
        }
    }

    /// Endpoints of this name, of any VPC or none, usable or not, with their namespaces.
    fn described(&self, namespace: Option<&str>, name: &str) -> Vec<(&'a str, &'a view::NetworkEndpoint)> {
        let found = self.view.workloads.iter().filter(|(key, _)| namespace.is_none_or(|wanted| ***key == *wanted));
        found.filter_map(|(key, inside)| Some((&**key, &*inside.network_endpoints.get(name)?.object))).collect()
    }

    /// Whether an endpoint is one of the model's.
    fn is_used(&self, namespace: &str, name: &str, endpoint: &view::NetworkEndpoint) -> bool {
        let address = endpoint.address.as_deref().and_then(|text| parse::address(text).ok());
        let holder = owner(self.context, endpoint)
            .zip(address)
            .and_then(|(vpc, (address, _))| self.endpoints.get(&(vpc, address)));
        holder.is_some_and(|holder| holder.name.split_once('/') == Some((namespace, name)))
    }
}
