//! The routes in force of every table: `status.routes`, never `spec.routes`.

use super::{Normaliser, Wrong, missing, parse, wrong};
use crate::kinds::{self, ViaType};
use ipnet::IpNet;
use juneau_core::id::VpcId;
use juneau_core::model::{Endpoint, Problem, Route, RouteTarget};
use std::collections::{BTreeMap, BTreeSet};

/// Endpoints by VPC and name without namespace.
type Named<'m> = BTreeMap<(VpcId, &'m str), Vec<&'m Endpoint>>;

impl Normaliser<'_> {
    pub(super) fn routes(&mut self) {
        let mut named: Named<'_> = BTreeMap::new();
        for endpoint in self.model.endpoints.values() {
            let name = endpoint.name.rsplit('/').next().unwrap_or_default();
            named.entry((endpoint.vpc, name)).or_default().push(endpoint);
        }
        let mut routes = Vec::new();
        let mut problems = Vec::new();
        for (name, (id, vpc)) in &self.tables {
            let Some(item) = self.view.route_tables.get(*name) else { continue };
            let all = item.object.status.iter().flat_map(|status| &status.routes);
            let (good, bad): (Vec<_>, Vec<_>) =
                all.map(|route| (route, parse::prefix(&route.dst))).partition(|(_, prefix)| prefix.is_ok());
            let mut prefixes = BTreeSet::new();
            // A route whose own prefix is wrong takes none from a good one.
            for (route, prefix) in good.into_iter().chain(bad) {
                let (kept, wrongs) = self.route(route, prefix, *vpc, &named, &mut prefixes);
                problems.extend(wrongs.into_iter().map(|(message, remedy)| {
                    Problem::new(format!("RouteTable/{name}"), format!("route {}: {message}", route.dst), remedy)
                        .at(item.origin.to_string())
                }));
                routes.extend(kept.map(|route| (*id, route)));
            }
        }
        for (id, route) in routes {
            if let Some(table) = self.model.tables.get_mut(&id) {
                table.routes.push(route);
            }
        }
        self.problems.append(&mut problems);
    }

    /// One route. Broken, but with a prefix that can be read, it leads nowhere, so that no wider route takes over.
    fn route(
        &self,
        route: &kinds::Route,
        prefix: Result<IpNet, (Wrong, Option<IpNet>)>,
        vpc: VpcId,
        named: &Named<'_>,
        prefixes: &mut BTreeSet<IpNet>,
    ) -> (Option<Route>, Option<Wrong>) {
        let (prefix, target) = match prefix {
            Ok(prefix) => (prefix, self.target(&route.via, route, prefix, vpc, named)),
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

    fn target(
        &self,
        via: &kinds::Via,
        route: &kinds::Route,
        prefix: IpNet,
        vpc: VpcId,
        named: &Named<'_>,
    ) -> Result<RouteTarget, Wrong> {
        let not_yet = |what: &str| {
            wrong(format!("{what} are not programmed yet"), "remove it, or wait for a version that knows them")
        };
        match via.kind {
            ViaType::Connected => self.connected(route, prefix, vpc),
            ViaType::Endpoint => self.next_hop(via, vpc, named),
            ViaType::InternetGateway => Err(not_yet("routes to the internet")),
            ViaType::Service => Err(not_yet("routes to Services")),
            ViaType::NatGateway => Err(not_yet("routes to NATGateways")),
            ViaType::VpcPeering => Err(not_yet("routes to VpcPeerings")),
            ViaType::TransitGateway => Err(not_yet("routes to TransitGateways")),
            ViaType::VpcEndpoint => Err(not_yet("routes to VpcEndpoints")),
            ViaType::Vpn => Err(not_yet("routes to VPNs")),
            ViaType::Unknown => Err(wrong("via.type is none that is known", "use connected or endpoint")),
        }
    }

    fn connected(&self, route: &kinds::Route, prefix: IpNet, vpc: VpcId) -> Result<RouteTarget, Wrong> {
        let Some(name) = route.subnet.as_deref().filter(|name| !name.is_empty()) else {
            if route.l2_network.as_deref().is_some_and(|name| !name.is_empty()) {
                return Err(wrong("L2Networks are not programmed yet", "use a Subnet"));
            }
            return Err(wrong("names no Subnet", "set its subnet"));
        };
        let subnet = self.subnets.get(name).ok_or_else(|| missing("Subnet", name, &self.view.subnets))?;
        if subnet.vpc != vpc {
            return Err(wrong(format!("Subnet/{name} is in another VPC"), "name a Subnet of the table's VPC"));
        }
        if subnet.prefix != prefix {
            return Err(wrong(format!("Subnet/{name} is {}", subnet.prefix), format!("set dst to {}", subnet.prefix)));
        }
        Ok(RouteTarget::Connected(subnet.vni))
    }

    /// An endpoint of the table's own VPC. Others of its name elsewhere do not matter, or one tenant could break
    /// another's route by a name.
    fn next_hop(&self, via: &kinds::Via, vpc: VpcId, named: &Named<'_>) -> Result<RouteTarget, Wrong> {
        let Some(text) = via.endpoint_name.as_deref().filter(|name| !name.is_empty()) else {
            return Err(wrong("names no endpoint", "set via.endpointName"));
        };
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, text),
        };
        let is_meant = |endpoint: &&&Endpoint| namespace.is_none() || endpoint.name == text;
        let all = named.get(&(vpc, name)).map(Vec::as_slice).unwrap_or_default();
        let found: Vec<_> = all.iter().filter(is_meant).collect();
        match found.as_slice() {
            [endpoint] => Ok(RouteTarget::Endpoint(endpoint.address)),
            [] => {
                let elsewhere = self.model.endpoints.values().any(|endpoint| {
                    endpoint.name == text || (namespace.is_none() && endpoint.name.rsplit('/').next() == Some(name))
                });
                let described = self
                    .view
                    .network_endpoints
                    .keys()
                    .any(|key| key.name == name && namespace.is_none_or(|namespace| key.namespace == namespace));
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
}
