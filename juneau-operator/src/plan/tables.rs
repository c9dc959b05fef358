//! RouteTables: their number and the routes in force. Each route is resolved by itself: one that is wrong costs nothing
//! but itself, and the status says why.

use super::Target;
use super::allocate::{Allocation, Allocations};
use super::claim::Want;
use super::networks::Networks;
use super::planner::{Planner, few, has_finalizer, name, owners, set_finalizer};
use super::services::Externals;
use super::vpcs::is_leftover;
use crate::view::{Kind, Object};
use core::net::Ipv4Addr;
use ipnet::Ipv4Net;
use juneau_api::kinds::{RejectedRoute, Route, RouteTable, RouteTableStatus, Via, ViaType, reason};
use juneau_api::view::ObjectName;
use juneau_api::{conditions, names};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Finalizer of a RouteTable: it stays while Subnets use it.
pub const FINALIZER: &str = "routetable.juneau.loutres.me/in-use";

/// NetworkEndpoints by name without namespace.
type Named<'v> = HashMap<&'v str, Vec<&'v ObjectName>>;

impl<'v> Planner<'v> {
    /// The number of a RouteTable, if it has one.
    pub(super) fn table_id(&self, allocations: &Allocations<'_>, table: &RouteTable) -> Option<u32> {
        if name(&table.metadata) == names::DEFAULT {
            return Some(1);
        }
        let said = table.status.as_ref().and_then(|status| status.table_id);
        self.number(allocations, &table.metadata, names::Attribute::TableId, said)
    }

    pub(super) fn tables(&mut self, networks: &Networks<'v>, externals: &Externals<'v>, allocations: &Allocations<'v>) {
        let view = self.view;
        let mut named = Named::new();
        let is_endpoint = |route: &Route| route.via.kind == ViaType::Endpoint;
        if view.route_tables.values().any(|table| table.spec.routes.iter().any(is_endpoint)) {
            for key in view.network_endpoints.keys() {
                named.entry(key.name.as_str()).or_default().push(key);
            }
        }
        for table in view.route_tables.values() {
            let of_vpc = externals.get(table.spec.vpc.as_str());
            self.table(table, networks, of_vpc, allocations, &named);
        }
    }

    fn table(
        &mut self,
        table: &'v Arc<RouteTable>,
        networks: &Networks<'v>,
        externals: Option<&BTreeSet<Ipv4Addr>>,
        allocations: &Allocations<'v>,
        named: &Named<'v>,
    ) {
        let own = name(&table.metadata);
        let vpc = self.view.vpcs.get(&table.spec.vpc);
        let mut status = table.status.clone().unwrap_or_default();
        if table.metadata.deletion_timestamp.is_some() {
            if let Some(users) = self.table_deleting(table) {
                let message = format!("is being deleted and waits for {users}");
                self.table_status(table, status, Err((reason::IN_USE, message)));
            }
            return;
        }
        let of_gone_vpc = owners(&table.metadata).iter().any(|owner| owner.kind == Kind::Vpc.as_str())
            && vpc.is_none_or(|vpc| is_leftover(&table.metadata, &vpc.metadata))
            && !self.is_unreadable(Kind::Vpc, "", &table.spec.vpc);
        if of_gone_vpc && self.is_settled(&table.metadata) {
            self.delete(table);
            return;
        }
        if !has_finalizer(&table.metadata, FINALIZER) {
            let mut table = RouteTable::clone(table);
            set_finalizer(&mut table.metadata, FINALIZER, true);
            self.metadata(table);
        }
        if vpc.is_none() {
            let message = format!("Vpc/{} does not exist", table.spec.vpc);
            self.warn(Target::of(&Object::RouteTable(Arc::clone(table))), reason::VPC_NOT_FOUND, message.clone());
            self.table_status(table, status, Err((reason::VPC_NOT_FOUND, message)));
            return;
        }
        let allocation = (own != names::DEFAULT).then(|| {
            let want = Want {
                kind: Kind::RouteTable,
                metadata: &table.metadata,
                owner: names::Owner::RouteTable(own),
                attribute: names::Attribute::TableId,
                pool: names::ROUTE_TABLE_ID_POOL,
            };
            self.claim(allocations, &want, |_| ())
        });
        status.table_id = self.table_id(allocations, table);
        (status.routes, status.rejected_routes) = self.routes(table, networks, externals, allocations, named);
        // A route that the automatic one makes superfluous is told, but nothing is amiss.
        let amiss: Vec<String> = status
            .rejected_routes
            .iter()
            .filter(|route| route.reason != reason::AUTOMATIC_ROUTE_EXISTS)
            .map(|route| format!("{}: {}", route.dst, route.message))
            .collect();
        let outcome = match (allocation, status.table_id) {
            (Some(Allocation::Failed(failure)), _) => Err((reason::RECONCILE_FAILED, failure.message().to_owned())),
            (_, None) => Err((reason::NOT_READY, "waits for its number".to_owned())),
            (_, Some(_)) if amiss.is_empty() => Ok(()),
            (_, Some(_)) => {
                let message = format!("routes that lead nowhere: {}", few(&amiss));
                self.warn(Target::of(&Object::RouteTable(Arc::clone(table))), reason::ROUTES_REJECTED, message.clone());
                Err((reason::ROUTES_REJECTED, message))
            }
        };
        self.table_status(table, status, outcome);
    }

    fn table_status(
        &mut self,
        table: &Arc<RouteTable>,
        mut status: RouteTableStatus,
        outcome: Result<(), (&str, String)>,
    ) {
        let (ready, reason, message) = match outcome {
            Ok(()) => (true, reason::RECONCILE_SUCCEEDED, String::new()),
            Err((reason, message)) => (false, reason, message),
        };
        let generation = table.metadata.generation;
        conditions::set_ready(&mut status.conditions, ready, reason, &message, generation, &self.time());
        status.observed_generation = generation;
        self.status(table, RouteTable { status: Some(status), ..RouteTable::clone(table) });
    }

    /// Whom a RouteTable that is being deleted waits for; lets it go when that is nobody.
    fn table_deleting(&mut self, table: &Arc<RouteTable>) -> Option<String> {
        if !has_finalizer(&table.metadata, FINALIZER) {
            return None;
        }
        let own = name(&table.metadata);
        let subnets = self.view.subnets.values().filter(|subnet| subnet.spec.route_table.as_deref() == Some(own));
        let mut users: Vec<String> = subnets.map(|subnet| format!("Subnet/{}", name(&subnet.metadata))).collect();
        if let Some(vpc) = self.view.vpcs.get(own).filter(|_| table.spec.vpc == own)
            && vpc.metadata.deletion_timestamp.is_none()
            && !is_leftover(&table.metadata, &vpc.metadata)
        {
            users.insert(0, format!("Vpc/{own}"));
        }
        if users.is_empty() {
            let mut table = RouteTable::clone(table);
            set_finalizer(&mut table.metadata, FINALIZER, false);
            self.metadata(table);
            return None;
        }
        Some(few(&users))
    }

    /// The routes in force, and those that are not or lead nowhere. One whose target cannot be used stays among those in
    /// force, so that its packets go nowhere rather than where a wider route leads.
    fn routes(
        &self,
        table: &RouteTable,
        networks: &Networks<'v>,
        externals: Option<&BTreeSet<Ipv4Addr>>,
        allocations: &Allocations<'_>,
        named: &Named<'v>,
    ) -> (Vec<Route>, Vec<RejectedRoute>) {
        let subnets = networks.of_vpc.get(table.spec.vpc.as_str()).into_iter().flatten();
        let mut connected: Vec<(Ipv4Net, &str)> = subnets
            .filter(|subnet| self.vni(allocations, subnet).is_some())
            .filter_map(|subnet| {
                let own = name(&subnet.metadata);
                networks.subnets.get(own).map(|prefix| (*prefix, own))
            })
            .collect();
        connected.sort_unstable();
        let mut automatic: BTreeMap<Ipv4Net, &str> =
            connected.iter().map(|(prefix, _)| (*prefix, "a Subnet has this prefix")).collect();
        let mut routes: Vec<Route> = connected
            .into_iter()
            .map(|(prefix, subnet)| Route {
                dst: prefix.to_string(),
                via: Via { kind: ViaType::Connected, ..Via::default() },
                subnet: Some(subnet.to_owned()),
                ..Route::default()
            })
            .collect();
        let own = table.spec.vpc.as_str();
        let has_services = self.view.vpcs.get(own).is_some_and(|vpc| vpc.spec.service.is_some());
        let services = self.config.service_cidrs.iter().filter(|_| has_services).copied();
        let externals = externals.into_iter().flatten().map(|address| Ipv4Net::from(*address));
        let endpoints = networks.endpoints.get(own).into_iter().flatten().copied();
        let services = services.map(|prefix| (prefix, ViaType::Service, "it is the range of Services"));
        let externals = externals.map(|prefix| (prefix, ViaType::Service, "it is an external address of a Service"));
        let endpoints = endpoints.map(|prefix| (prefix, ViaType::VpcEndpoint, "it is of the Vpc's endpointPool"));
        for (prefix, kind, why) in services.chain(externals).chain(endpoints) {
            if let Entry::Vacant(place) = automatic.entry(prefix) {
                place.insert(why);
                let via = Via { kind, ..Via::default() };
                routes.push(Route { dst: prefix.to_string(), via, ..Route::default() });
            }
        }
        let mut rejected = Vec::new();
        let mut seen = BTreeSet::new();
        for route in &table.spec.routes {
            let prefix = destination(&route.dst);
            let verdict = match &prefix {
                Err(message) => Err((reason::INVALID_DESTINATION, message.clone())),
                // Written by older versions; the automatic route is the one that counts.
                Ok(_) if route.via.kind == ViaType::Connected => continue,
                Ok(prefix) if automatic.contains_key(prefix) => {
                    let why = automatic.get(prefix).copied().unwrap_or_default();
                    Err((reason::AUTOMATIC_ROUTE_EXISTS, why.to_owned()))
                }
                Ok(prefix) if !seen.insert(*prefix) => {
                    Err((reason::DUPLICATE_DESTINATION, "an earlier route has this destination".to_owned()))
                }
                Ok(_) => {
                    routes.push(Route { dst: route.dst.clone(), via: route.via.clone(), ..Route::default() });
                    self.target(&route.via, &table.spec.vpc, named)
                }
            };
            if let Err((reason, message)) = verdict {
                rejected.push(RejectedRoute { dst: route.dst.clone(), reason: reason.to_owned(), message });
            }
        }
        (routes, rejected)
    }

    /// Whether a route's target can be used.
    fn target(&self, via: &Via, vpc: &str, named: &Named<'v>) -> Result<(), (&'static str, String)> {
        let not_yet = |kind: &str, name: Option<&str>| {
            let which = name.map(|name| format!("{kind}/{name}")).unwrap_or_else(|| kind.to_owned());
            Err((reason::NOT_IMPLEMENTED, format!("routes to {which} are not implemented yet")))
        };
        match via.kind {
            ViaType::Connected => Ok(()),
            ViaType::Endpoint => self.endpoint_target(via.endpoint_name.as_deref().unwrap_or_default(), vpc, named),
            ViaType::InternetGateway => not_yet("the internet", None),
            ViaType::NatGateway => not_yet("NATGateway", via.nat_gateway.as_deref()),
            ViaType::VpcPeering => not_yet("VpcPeering", via.vpc_peering.as_deref()),
            ViaType::TransitGateway => not_yet("TransitGateway", via.transit_gateway.as_deref()),
            ViaType::Vpn => {
                let vpn = via.vpn.as_ref().map(|vpn| format!("{}/{}", vpn.namespace, vpn.name));
                not_yet("VPN", vpn.as_deref())
            }
            ViaType::Service | ViaType::VpcEndpoint => {
                Err((reason::RECONCILE_FAILED, "routes of this type are made automatically; remove it".to_owned()))
            }
            ViaType::Unknown => Err((reason::NOT_IMPLEMENTED, "via.type is none that is known".to_owned())),
        }
    }

    /// An endpoint by its name, or by `namespace/name`. Others of its name in other Vpcs do not matter: a tenant could
    /// break another's route by a name.
    fn endpoint_target(&self, text: &str, vpc: &str, named: &Named<'v>) -> Result<(), (&'static str, String)> {
        let (namespace, short) = match text.split_once('/') {
            Some((namespace, short)) => (Some(namespace), short),
            None => (None, text),
        };
        let all = named.get(short).map(Vec::as_slice).unwrap_or_default();
        let meant: Vec<_> =
            all.iter().filter(|key| namespace.is_none_or(|namespace| key.namespace == namespace)).collect();
        let inside = meant.iter().filter_map(|key| {
            let endpoint = self.view.network_endpoints.get(*key)?;
            let subnet = self.view.subnets.get(endpoint.spec.subnet.as_deref()?)?;
            (subnet.spec.vpc == vpc).then_some((*key, endpoint))
        });
        let inside: Vec<_> = inside.collect();
        match inside.as_slice() {
            [(_, endpoint)] if endpoint.spec.address.is_none() => {
                Err((reason::TARGET_NOT_READY, format!("NetworkEndpoint/{text} has no address yet")))
            }
            [(_, endpoint)] if endpoint.metadata.deletion_timestamp.is_some() => {
                Err((reason::TARGET_NOT_READY, format!("NetworkEndpoint/{text} is being deleted")))
            }
            [_] => Ok(()),
            [] if meant.is_empty() => Err((reason::TARGET_NOT_FOUND, format!("NetworkEndpoint/{text} does not exist"))),
            [] => Err((reason::TARGET_IN_ANOTHER_VPC, format!("NetworkEndpoint/{text} is not in Vpc/{vpc}"))),
            several => {
                let names: Vec<String> = several.iter().map(|(key, _)| key.to_string()).collect();
                let message = format!("the Vpc has several: {}; write namespace/name", few(&names));
                Err((reason::TARGET_AMBIGUOUS, message))
            }
        }
    }
}

/// The prefix of a destination.
fn destination(text: &str) -> Result<Ipv4Net, String> {
    let prefix: Ipv4Net = text.parse().map_err(|_| format!("{text:?} is not an IPv4 prefix"))?;
    if prefix.trunc().to_string() == text {
        Ok(prefix)
    } else {
        Err(format!("{text} has host bits; write {}", prefix.trunc()))
    }
}
