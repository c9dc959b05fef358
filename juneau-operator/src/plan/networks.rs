//! Which Subnets are in force: those that no earlier one of their VPC stands against.

use super::planner::{Planner, name};
use core::net::Ipv4Addr;
use ipnet::Ipv4Net;
use juneau_api::kinds::{RouteTable, Subnet, Vpc, reason};
use juneau_api::names;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Shortest and longest prefix of a Subnet, in bits.
const LENGTHS: core::ops::RangeInclusive<u8> = 16..=28;
/// The same of a prefix of an endpoint pool.
const POOL_LENGTHS: core::ops::RangeInclusive<u8> = 16..=32;

/// What Vpcs, Subnets and RouteTables are to each other.
#[derive(Default)]
pub(super) struct Networks<'v> {
    /// Subnets in force, with their prefixes.
    pub(super) subnets: HashMap<&'v str, Ipv4Net>,
    /// Why the others are not: reason and message.
    pub(super) refused: HashMap<&'v str, (&'static str, String)>,
    /// All Subnets of a Vpc, by the Vpc's name.
    pub(super) of_vpc: HashMap<&'v str, Vec<&'v Arc<Subnet>>>,
    /// All RouteTables of a Vpc, by the Vpc's name.
    pub(super) tables_of_vpc: HashMap<&'v str, Vec<&'v Arc<RouteTable>>>,
    /// Prefixes of a Vpc's endpoint pool that are in force, by the Vpc's name.
    pub(super) endpoints: HashMap<&'v str, Vec<Ipv4Net>>,
    /// Ranges of a Vpc that stand against each other, each in words, by the Vpc's name.
    pub(super) conflicts: HashMap<&'v str, Vec<String>>,
}

/// The gateway of a Subnet: its first host.
pub(super) fn gateway(prefix: Ipv4Net) -> Ipv4Addr {
    host(prefix, 1)
}

/// The virtual DNS of a Subnet: its second host.
pub(super) fn dns(prefix: Ipv4Net) -> Ipv4Addr {
    host(prefix, 2)
}

/// What no Pod of a Subnet gets: the gateway, the DNS, and one that is kept for later.
pub(super) fn reserved(prefix: Ipv4Net) -> [Ipv4Addr; 3] {
    [gateway(prefix), dns(prefix), host(prefix, 3)]
}

fn host(prefix: Ipv4Net, number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(prefix.network().to_bits().saturating_add(number))
}

impl<'v> Planner<'v> {
    pub(super) fn networks(&self) -> Networks<'v> {
        let mut networks = Networks::default();
        for table in self.view.route_tables.values() {
            networks.tables_of_vpc.entry(table.spec.vpc.as_str()).or_default().push(table);
        }
        let mut subnets: Vec<&Arc<Subnet>> = self.view.subnets.values().collect();
        for subnet in &subnets {
            networks.of_vpc.entry(subnet.spec.vpc.as_str()).or_default().push(subnet);
        }
        // What is in force stays in force; among the others the older goes first.
        subnets.sort_by_key(|subnet| {
            let numbered = subnet.status.as_ref().is_some_and(|status| status.vni.is_some());
            (!numbered, subnet.metadata.creation_timestamp.clone(), name(&subnet.metadata))
        });
        // First address to {last address, name}, for each Vpc.
        let mut taken: HashMap<&str, BTreeMap<Ipv4Addr, (Ipv4Addr, &str)>> = HashMap::new();
        for subnet in subnets {
            let own = name(&subnet.metadata);
            let checked = self.prefix(subnet).and_then(|prefix| {
                let taken = taken.entry(subnet.spec.vpc.as_str()).or_default();
                if let Some((_, (last, other))) = taken.range(..=prefix.broadcast()).next_back()
                    && *last >= prefix.network()
                {
                    return Err((reason::RECONCILE_FAILED, format!("{prefix} overlaps Subnet/{other}")));
                }
                taken.insert(prefix.network(), (prefix.broadcast(), own));
                Ok(prefix)
            });
            match checked {
                Ok(prefix) => drop(networks.subnets.insert(own, prefix)),
                Err(why) => drop(networks.refused.insert(own, why)),
            }
        }
        for (own, vpc) in self.view.vpcs.iter() {
            if vpc.spec.service.is_some() || vpc.spec.endpoint_pool.is_some() {
                self.ranges(own, vpc, &mut networks);
            }
        }
        networks
    }

    /// Ranges of a Vpc beside its Subnets: those of VpcEndpoints, and those of Services. A Subnet in force goes before
    /// both.
    fn ranges(&self, own: &'v str, vpc: &'v Vpc, networks: &mut Networks<'v>) {
        let subnets = networks.of_vpc.get(own).into_iter().flatten();
        let subnets = subnets.map(|subnet| name(&subnet.metadata));
        let subnets: Vec<(&str, Ipv4Net)> =
            subnets.filter_map(|subnet| Some((subnet, *networks.subnets.get(subnet)?))).collect();
        let mut conflicts = Vec::new();
        let mut pools: Vec<Ipv4Net> = Vec::new();
        for text in vpc.spec.endpoint_pool.iter().flat_map(|pool| &pool.cidrs) {
            let what = format!("spec.endpointPool.cidrs: {text}");
            let Some(prefix) = text.parse::<Ipv4Net>().ok().map(|prefix| prefix.trunc()) else {
                conflicts.push(format!("{what} is not an IPv4 prefix"));
                continue;
            };
            let service = self.config.service_cidrs.iter().find(|services| overlap(**services, prefix));
            if !POOL_LENGTHS.contains(&prefix.prefix_len()) {
                conflicts.push(format!("{what} is not of /16 to /32"));
            } else if let Some(other) = pools.iter().find(|other| overlap(**other, prefix)) {
                conflicts.push(format!("{what} overlaps {other} before it"));
            } else if let Some(services) = service {
                conflicts.push(format!("{what} overlaps the Services' {services}"));
            } else if let Some((subnet, other)) = subnets.iter().find(|(_, other)| overlap(*other, prefix)) {
                conflicts.push(format!("{what} overlaps Subnet/{subnet} ({other})"));
            } else {
                pools.push(prefix);
            }
        }
        if vpc.spec.service.is_some() {
            for (subnet, prefix) in &subnets {
                if let Some(services) = self.config.service_cidrs.iter().find(|services| overlap(**services, *prefix)) {
                    conflicts.push(format!(
                        "spec.service: Subnet/{subnet} ({prefix}) overlaps the Services' {services}, whose addresses it hides"
                    ));
                }
            }
        }
        if !pools.is_empty() {
            networks.endpoints.insert(own, pools);
        }
        if !conflicts.is_empty() {
            networks.conflicts.insert(own, conflicts);
        }
    }

    /// The prefix of a Subnet, if it can be one by itself.
    fn prefix(&self, subnet: &Subnet) -> Result<Ipv4Net, (&'static str, String)> {
        let failed = |message: String| (reason::RECONCILE_FAILED, message);
        let text = subnet.spec.cidr.as_str();
        let prefix: Ipv4Net = text.parse().map_err(|_| failed(format!("spec.cidr {text:?} is not an IPv4 prefix")))?;
        if prefix.to_string() != text {
            return Err(failed(format!("spec.cidr {text} is not in its plain form; write {prefix}")));
        }
        // Host bits mean nothing, as the Go implementation has it.
        let prefix = prefix.trunc();
        if !LENGTHS.contains(&prefix.prefix_len()) {
            return Err(failed(format!("spec.cidr {text} is not of /16 to /28")));
        }
        let own = name(&subnet.metadata);
        if (own == names::DEFAULT) != (subnet.spec.vpc == names::DEFAULT) {
            return Err(failed("only Subnet/default is in Vpc/default, and in no other".to_owned()));
        }
        let Some(vpc) = self.view.vpcs.get(&subnet.spec.vpc) else {
            return Err((reason::VPC_NOT_FOUND, format!("Vpc/{} does not exist", subnet.spec.vpc)));
        };
        let numbered = subnet.status.as_ref().is_some_and(|status| status.vni.is_some());
        if !numbered && let Some((what, other)) = self.reserved_of(vpc).find(|(_, other)| overlap(prefix, *other)) {
            return Err(failed(format!("{prefix} overlaps {what} {other}")));
        }
        Ok(prefix)
    }

    /// Prefixes of a Vpc that are none of its Subnets'.
    fn reserved_of<'a>(&'a self, vpc: &'a Vpc) -> impl Iterator<Item = (&'static str, Ipv4Net)> + 'a {
        let services = self.config.service_cidrs.iter().filter(|_| vpc.spec.service.is_some());
        let endpoints = vpc.spec.endpoint_pool.iter().flat_map(|pool| &pool.cidrs);
        let endpoints = endpoints.filter_map(|text| text.parse::<Ipv4Net>().ok());
        services.map(|prefix| ("the Services'", *prefix)).chain(endpoints.map(|prefix| ("spec.endpointPool's", prefix)))
    }
}

/// Whether two prefixes have an address in common.
pub(super) fn overlap(one: Ipv4Net, other: Ipv4Net) -> bool {
    one.contains(&other.network()) || other.contains(&one.network())
}
