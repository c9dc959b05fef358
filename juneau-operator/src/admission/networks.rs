//! Vpcs, Subnets and RouteTables.

use super::{Denial, Operation, Request, Verdict, Versions, is_deleting, listed, overlap, prefix};
use crate::plan::Config;
use crate::view::{Kind, View};
use ipnet::Ipv4Net;
use juneau_api::kinds::{RouteTable, Subnet, ViaType, Vpc, VpcEndpoint};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The name of the Vpc and of the Subnet of Pods that name none.
const DEFAULT: &str = "default";

/// Subnets of a Vpc that stay.
fn subnets_of<'a>(view: &'a View, vpc: &'a str) -> impl Iterator<Item = (&'a String, &'a Arc<Subnet>)> {
    view.subnets.iter().filter(move |(_, subnet)| subnet.spec.vpc == vpc && !is_deleting(&subnet.metadata))
}

fn pool(vpc: &Vpc) -> impl Iterator<Item = Ipv4Net> + '_ {
    vpc.spec.endpoint_pool.iter().flat_map(|pool| &pool.cidrs).filter_map(|cidr| prefix(cidr))
}

/// Whether a Vpc routes Services: then the Service ranges are taken in it.
const fn has_services(vpc: &Vpc) -> bool {
    vpc.spec.service.is_some()
}

/// The Vpc that a Subnet or RouteTable names.
pub(super) fn owner<'a>(view: &'a View, what: &str, vpc: &str) -> Result<&'a Arc<Vpc>, Denial> {
    match view.vpcs.get(vpc) {
        None => Err(Denial::of_missing(Kind::Vpc, vpc, format!("{what}: Vpc {vpc} does not exist; create it first"))),
        Some(vpc) if is_deleting(&vpc.metadata) => Err(Denial::of_others(format!(
            "{what}: Vpc {} is being deleted; wait until it is gone and create it anew",
            vpc.own_name()
        ))),
        Some(vpc) => Ok(vpc),
    }
}

pub(super) trait OwnName {
    fn own_name(&self) -> &str;
}

impl OwnName for Vpc {
    fn own_name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

pub(super) fn vpc(view: &View, config: &Config, request: &Request) -> Verdict {
    let name = &request.name;
    if request.operation == Operation::Delete {
        if name == DEFAULT {
            return Err(Denial::firm("Vpc default cannot be deleted: Pods that name no Subnet are in it".into()));
        }
        let mut users: Vec<_> = subnets_of(view, name).map(|(subnet, _)| format!("Subnet {subnet}")).collect();
        users.extend(endpoints_of(view, name).map(|(endpoint, _)| format!("VpcEndpoint {endpoint}")));
        return if users.is_empty() {
            Ok(Vec::new())
        } else {
            Err(Denial::of_others(format!("Vpc {name} is in use by {}; delete them first", listed(users))))
        };
    }
    let versions = Versions::<Vpc>::of(request)?;
    let Some(new) = versions.new.filter(|new| !is_deleting(&new.metadata)) else { return Ok(Vec::new()) };
    if versions.old.as_ref().is_some_and(|old| old.spec == new.spec) {
        return Ok(Vec::new());
    }
    source_subnet(view, name, &new)?;
    let pools: Vec<Ipv4Net> = pool(&new).collect();
    if let Some(old) = &versions.old {
        held(view, name, old, &pools)?;
    }
    for (n, first) in pools.iter().enumerate() {
        if let Some(second) = pools.iter().skip(n + 1).find(|second| overlap(*first, **second)) {
            return Err(Denial::firm(format!(
                "Vpc {name}: spec.endpointPool.cidrs: {first} and {second} overlap; leave one out"
            )));
        }
    }
    for (subnet, cidr) in subnets_of(view, name).filter_map(|(n, subnet)| Some((n, prefix(&subnet.spec.cidr)?))) {
        if let Some(range) = pools.iter().find(|range| overlap(**range, cidr)) {
            return Err(Denial::of_others(format!(
                "Vpc {name}: spec.endpointPool.cidrs: {range} overlaps Subnet {subnet} ({cidr}); choose another range"
            )));
        }
        if has_services(&new)
            && let Some(services) = config.service_cidrs.iter().find(|services| overlap(**services, cidr))
        {
            return Err(Denial::of_others(format!(
                "Vpc {name}: spec.service cannot be set: Subnet {subnet} ({cidr}) overlaps the Service range {services}; \
                 replace the Subnet by one with another range"
            )));
        }
    }
    for range in &pools {
        if let Some(services) = config.service_cidrs.iter().find(|services| overlap(**services, *range)) {
            return Err(Denial::firm(format!(
                "Vpc {name}: spec.endpointPool.cidrs: {range} overlaps the Service range {services}; choose another range"
            )));
        }
    }
    Ok(Vec::new())
}

/// VpcEndpoints of a Vpc that stay.
fn endpoints_of<'a>(view: &'a View, vpc: &'a str) -> impl Iterator<Item = (&'a String, &'a Arc<VpcEndpoint>)> {
    view.vpc_endpoints.iter().filter(move |(_, endpoint)| endpoint.spec.vpc == vpc && !is_deleting(&endpoint.metadata))
}

/// The Subnet of source addresses for sharing is one of the Vpc, or not there yet: whoever makes both in one file makes
/// one of them first.
fn source_subnet(view: &View, name: &str, vpc: &Vpc) -> Result<(), Denial> {
    let provider = vpc.spec.service.as_ref().and_then(|service| service.provider.as_ref());
    let Some(subnet) = provider.map(|provider| &provider.nat_source_subnet) else { return Ok(()) };
    match view.subnets.get(subnet) {
        Some(found) if found.spec.vpc != name => Err(Denial::of_others(format!(
            "Vpc {name}: spec.service.provider.natSourceSubnet: Subnet {subnet} is of Vpc {}; name one of the same Vpc",
            found.spec.vpc
        ))),
        _ => Ok(()),
    }
}

/// No VpcEndpoint loses its address because the pool shrinks.
fn held(view: &View, name: &str, old: &Vpc, pools: &[Ipv4Net]) -> Result<(), Denial> {
    for (endpoint, object) in endpoints_of(view, name) {
        let address = object.status.as_ref().and_then(|status| status.address.as_deref());
        let Some(address) = address.and_then(|text| text.parse::<Ipv4Addr>().ok()) else { continue };
        let is_in = |mut pools: std::slice::Iter<'_, Ipv4Net>| pools.any(|range| range.contains(&address));
        let before: Vec<Ipv4Net> = pool(old).collect();
        if is_in(before.iter()) && !is_in(pools.iter()) {
            return Err(Denial::of_others(format!(
                "Vpc {name}: spec.endpointPool.cidrs: VpcEndpoint {endpoint} has {address}, which is in none of them; \
                 keep its range, or delete the VpcEndpoint first"
            )));
        }
    }
    Ok(())
}

pub(super) fn subnet(view: &View, config: &Config, request: &Request) -> Verdict {
    let name = &request.name;
    if request.operation == Operation::Delete {
        return subnet_deletion(view, name);
    }
    let versions = Versions::<Subnet>::of(request)?;
    let Some(new) = versions.new.filter(|new| !is_deleting(&new.metadata)) else { return Ok(Vec::new()) };
    let what = format!("Subnet {name}");
    let table_changed = versions.old.as_ref().is_none_or(|old| old.spec.route_table != new.spec.route_table);
    if versions.old.is_none() {
        if (name == DEFAULT) != (new.spec.vpc == DEFAULT) {
            let message = if name == DEFAULT {
                format!("Subnet default must be in Vpc default, not in {}; set spec.vpc to default", new.spec.vpc)
            } else {
                format!("{what}: Vpc default has one Subnet, default; name another Vpc in spec.vpc")
            };
            return Err(Denial::firm(message));
        }
        let vpc = owner(view, &what, &new.spec.vpc)?;
        // A prefix that cannot be read is refused by the definition.
        if let Some(cidr) = prefix(&new.spec.cidr) {
            free(view, config, &what, name, vpc, cidr)?;
        }
    }
    if let Some(table) = new.spec.route_table.as_deref().filter(|table| table_changed && !table.is_empty()) {
        if name == DEFAULT {
            return Err(Denial::firm(
                "Subnet default has the main RouteTable of Vpc default; leave spec.routeTable out".into(),
            ));
        }
        let Some(found) = view.route_tables.get(table) else {
            let message = format!(
                "{what}: RouteTable {table} does not exist; create it first, or leave spec.routeTable out for the main one"
            );
            return Err(Denial::of_missing(Kind::RouteTable, table, message));
        };
        if found.spec.vpc != new.spec.vpc {
            return Err(Denial::of_others(format!(
                "{what}: RouteTable {table} belongs to Vpc {}, the Subnet to Vpc {}; name one of the same Vpc",
                found.spec.vpc, new.spec.vpc
            )));
        }
    }
    Ok(Vec::new())
}

/// Whether nothing else in the Vpc has addresses of `cidr`.
fn free(view: &View, config: &Config, what: &str, name: &str, vpc: &Vpc, cidr: Ipv4Net) -> Result<(), Denial> {
    let owner = vpc.own_name();
    let clash = |with: String| {
        Denial::of_others(format!("{what}: {cidr} overlaps {with}; choose a range that is free in Vpc {owner}"))
    };
    for (other, subnet) in subnets_of(view, owner).filter(|(other, _)| *other != name) {
        if let Some(taken) = prefix(&subnet.spec.cidr).filter(|taken| overlap(*taken, cidr)) {
            return Err(clash(format!("Subnet {other} ({taken})")));
        }
    }
    if let Some(taken) = pool(vpc).find(|taken| overlap(*taken, cidr)) {
        return Err(clash(format!("the endpoint pool of Vpc {owner} ({taken})")));
    }
    if has_services(vpc)
        && let Some(taken) = config.service_cidrs.iter().find(|taken| overlap(**taken, cidr))
    {
        return Err(clash(format!("the Service range {taken}, which Vpc {owner} routes (spec.service)")));
    }
    Ok(())
}

fn subnet_deletion(view: &View, name: &str) -> Verdict {
    if name == DEFAULT {
        return Err(Denial::firm("Subnet default cannot be deleted: Pods that name no Subnet are in it".into()));
    }
    let mut users: Vec<String> = view
        .network_interfaces
        .iter()
        .filter(|(_, nic)| nic.spec.subnet.as_deref() == Some(name) && !is_deleting(&nic.metadata))
        .map(|(nic, _)| format!("NetworkInterface {nic}"))
        .collect();
    users.extend(
        view.vpcs
            .iter()
            .filter(|(_, vpc)| {
                let source = vpc.spec.service.as_ref().and_then(|service| service.provider.as_ref());
                source.is_some_and(|provider| provider.nat_source_subnet == name) && !is_deleting(&vpc.metadata)
            })
            .map(|(vpc, _)| format!("Vpc {vpc} (spec.service.provider.natSourceSubnet)")),
    );
    if users.is_empty() {
        Ok(Vec::new())
    } else {
        Err(Denial::of_others(format!("Subnet {name} is in use by {}; delete or change them first", listed(users))))
    }
}

pub(super) fn route_table(view: &View, request: &Request) -> Verdict {
    let name = &request.name;
    if request.operation == Operation::Delete {
        return route_table_deletion(view, name);
    }
    let versions = Versions::<RouteTable>::of(request)?;
    let Some(new) = versions.new.filter(|new| !is_deleting(&new.metadata)) else { return Ok(Vec::new()) };
    if versions.old.as_ref().is_some_and(|old| old.spec == new.spec) {
        return Ok(Vec::new());
    }
    let what = format!("RouteTable {name}");
    if versions.old.is_none() {
        owner(view, &what, &new.spec.vpc)?;
        if *name != new.spec.vpc && view.vpcs.contains_key(name) {
            return Err(Denial::of_others(format!(
                "{what}: the name is kept for the main RouteTable of Vpc {name}; choose another, or set spec.vpc to {name}"
            )));
        }
    }
    let mut warnings = Vec::new();
    for (n, route) in new.spec.routes.iter().enumerate() {
        if versions.old.as_ref().is_some_and(|old| old.spec.routes.contains(route)) {
            // What was admitted once does not keep the rest from being changed.
            continue;
        }
        let Some(dst) = prefix(&route.dst) else { continue };
        let same = |(_, subnet): &(&String, &Arc<Subnet>)| prefix(&subnet.spec.cidr) == Some(dst);
        if let Some((subnet, _)) = subnets_of(view, &new.spec.vpc).find(same) {
            return Err(Denial::of_others(format!(
                "{what}: spec.routes[{n}]: {dst} is Subnet {subnet} of the same Vpc, which is always connected; \
                 leave the route out"
            )));
        }
        if route.via.kind == ViaType::Endpoint
            && let Some(target) = route.via.endpoint_name.as_deref()
        {
            warnings.extend(endpoint(view, &format!("{what}: spec.routes[{n}]"), &new.spec.vpc, target)?);
        }
    }
    Ok(warnings)
}

/// The NetworkEndpoint that a route names, as `name` or `namespace/name`; a warning when it does not exist yet. As in the
/// plan, one of the Vpc is meant before all others: what another tenant calls a Pod is in nobody's way.
fn endpoint(view: &View, what: &str, vpc: &str, target: &str) -> Result<Option<String>, Denial> {
    let named = view.network_endpoints.iter().filter(|(name, _)| match target.split_once('/') {
        Some((namespace, plain)) => name.namespace == namespace && name.name == plain,
        None => name.name == target,
    });
    let (mut inside, mut elsewhere) = (Vec::new(), None);
    let mut exists = false;
    for (name, endpoint) in named {
        exists = true;
        // One whose Subnet is not known yet may become right.
        let Some(subnet) = endpoint.spec.subnet.as_deref().and_then(|subnet| view.subnets.get(subnet)) else {
            continue;
        };
        if subnet.spec.vpc == vpc {
            inside.push(name.to_string());
        } else {
            elsewhere.get_or_insert((name, subnet.spec.vpc.as_str()));
        }
    }
    match (inside.len(), elsewhere) {
        (0, Some((name, other))) => Err(Denial::of_others(format!(
            "{what}: NetworkEndpoint {name} is in Vpc {other}, the RouteTable in Vpc {vpc}; name one of the same Vpc"
        ))),
        (0, None) if !exists => {
            Ok(Some(format!("{what}: NetworkEndpoint {target} does not exist; the route leads nowhere until it does")))
        }
        (0 | 1, _) => Ok(None),
        _ => Err(Denial::of_others(format!(
            "{what}: NetworkEndpoint {target} means several of Vpc {vpc}: {}; write namespace/name",
            listed(inside)
        ))),
    }
}

fn route_table_deletion(view: &View, name: &str) -> Verdict {
    if view.vpcs.get(name).is_some_and(|vpc| !is_deleting(&vpc.metadata)) {
        return Err(Denial::of_others(format!(
            "RouteTable {name} is the main one of Vpc {name} and goes with it; to remove its routes empty spec.routes"
        )));
    }
    let users: Vec<_> = view
        .subnets
        .iter()
        .filter(|(_, subnet)| subnet.spec.route_table.as_deref() == Some(name) && !is_deleting(&subnet.metadata))
        .map(|(subnet, _)| format!("Subnet {subnet}"))
        .collect();
    if users.is_empty() {
        Ok(Vec::new())
    } else {
        Err(Denial::of_others(format!(
            "RouteTable {name} is in use by {}; change their spec.routeTable first",
            listed(users)
        )))
    }
}
