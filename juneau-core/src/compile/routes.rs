//! The routes of the tables that Subnets of this node use.

use super::{Compilation, Segments};
use crate::id::TableId;
use crate::layout::{
    Be32, ROUTE_CONNECTED, ROUTE_ENDPOINT, ROUTE_SERVICE, ROUTE_TARGET_GONE, Route as Record, RouteKey, be32,
};
use crate::model::{EndpointKind, Problem, Route, RouteTable, RouteTarget, Subnet};
use core::net::IpAddr;
use ipnet::IpNet;
use std::collections::BTreeSet;

impl Compilation<'_> {
    /// Every table that a Subnet of this node uses.
    pub(super) fn routes(&mut self, segments: &Segments) {
        let model = self.model;
        let mut tables: BTreeSet<TableId> = BTreeSet::new();
        for subnet in segments.iter().filter_map(|vni| model.subnets.get(vni)) {
            let Some(id) = subnet.table else { continue };
            match model.tables.get(&id) {
                Some(table) if table.vpc == subnet.vpc => {
                    tables.insert(id);
                }
                found => self.problems.push(unusable(subnet, id, found)),
            }
        }
        for table in tables.iter().filter_map(|id| model.tables.get(id)) {
            self.table(table);
        }
    }

    fn table(&mut self, table: &RouteTable) {
        for route in &table.routes {
            let IpNet::V4(prefix) = route.prefix else {
                self.complain(table, route, "IPv6 is not programmed yet", "remove the route, or use IPv4");
                continue;
            };
            let key = RouteKey::new(table.id.get(), prefix.addr(), prefix.prefix_len());
            if self.tables.routes.contains_key(&key) {
                self.complain(table, route, "the table has a route for the prefix already", "remove one of the two");
                continue;
            }
            let record = match self.target(table, &route.target) {
                Ok(record) => record,
                Err(why) => {
                    // Who made the model has told already why it knows no target.
                    if !matches!(route.target, RouteTarget::Gone(_)) {
                        self.complain(table, route, &why, "create what it names, or remove the route");
                    }
                    Record { kind: ROUTE_TARGET_GONE, ..Record::default() }
                }
            };
            self.tables.routes.insert(key, record);
        }
        for ((vpc, address), vni) in &self.behind_nodes {
            if *vpc != table.vpc {
                continue;
            }
            let record = Record { kind: ROUTE_CONNECTED, vni: vni.get(), ..Record::default() };
            // Whoever wrote a route for this very address meant it.
            self.tables.routes.entry(RouteKey::new(table.id.get(), *address, 32)).or_insert(record);
        }
    }

    /// The record of a target, or why there is none.
    fn target(&self, table: &RouteTable, target: &RouteTarget) -> Result<Record, String> {
        match target {
            RouteTarget::Connected(vni) => match self.model.subnets.get(vni) {
                Some(subnet) if subnet.vpc == table.vpc => {
                    Ok(Record { kind: ROUTE_CONNECTED, vni: vni.get(), next_hop: Be32::ZERO, zero: 0 })
                }
                _ => Err(format!("the VPC has no Subnet with VNI {vni}")),
            },
            RouteTarget::Endpoint(address) => match (address, self.model.endpoints.get(&(table.vpc, *address))) {
                (_, Some(endpoint)) if endpoint.kind == EndpointKind::Node => {
                    Err(format!("{address} is a node's, which forwards nothing"))
                }
                (IpAddr::V4(next_hop), Some(_)) => {
                    Ok(Record { kind: ROUTE_ENDPOINT, vni: 0, next_hop: be32(*next_hop), zero: 0 })
                }
                _ => Err(format!("no endpoint of the VPC holds {address}")),
            },
            RouteTarget::Service => Ok(Record { kind: ROUTE_SERVICE, ..Record::default() }),
            RouteTarget::Gone(why) => Err(why.clone()),
        }
    }

    fn complain(&mut self, table: &RouteTable, route: &Route, why: &str, remedy: &str) {
        let message = format!("route {}: {why}", route.prefix);
        self.problems.push(Problem::new(format!("RouteTable/{}", table.name), message, remedy).at(&table.origin));
    }
}

fn unusable(subnet: &Subnet, id: TableId, found: Option<&RouteTable>) -> Problem {
    let message = match found {
        None => format!("route table {id} does not exist; its Pods reach nothing"),
        Some(table) => format!("RouteTable/{} is another VPC's; its Pods reach nothing", table.name),
    };
    let remedy = "name a RouteTable of the Subnet's VPC";
    Problem::new(format!("Subnet/{}", subnet.name), message, remedy).at(&subnet.origin)
}
