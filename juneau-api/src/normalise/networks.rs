//! VPCs, the numbers of route tables, and Subnets.

use super::context::Networks;
use super::{Wrong, missing, oldest_first, parse, wrong};
use crate::kinds::{self, VpcSpec};
use crate::view::{self, Item, Text};
use core::net::IpAddr;
use ipnet::IpNet;
use juneau_core::id::{MacAddr, TableId, Vni, VpcId};
use juneau_core::model::{RouteTable, Subnet, Vpc};

/// A Subnet that endpoints may be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usable {
    pub(super) vni: Vni,
    pub(super) vpc: VpcId,
    pub(super) prefix: IpNet,
    pub(super) gateway: IpAddr,
    pub(super) gateway_mac: MacAddr,
    /// It has rules that are not programmed, so its endpoints are closed.
    pub(super) closed: bool,
}

/// The VPC that all nodes and untouched Pods are in.
const DEFAULT_VPC: &str = "default";

impl Networks<'_> {
    pub(super) fn vpcs(&mut self) {
        let view = self.view;
        for (name, item) in oldest_first(&view.vpcs, |vpc| vpc.created.as_ref()) {
            match self.vpc_id(name, item) {
                Ok(id) => {
                    self.vpcs.insert(Text::clone(name), id);
                    let allowed = &item.object.allowed_namespaces;
                    if allowed.is_some() || self.require_binding {
                        let spec = VpcSpec { allowed_namespaces: allowed.clone(), ..VpcSpec::default() };
                        self.closed.insert(id, kinds::Vpc::new(name, spec));
                    }
                    let vpc = Vpc { id, name: name.to_string(), origin: item.origin.to_string() };
                    self.model.vpcs.insert(id, vpc);
                }
                Err(wrong) => self.problem(format!("Vpc/{name}"), item, wrong),
            }
        }
    }

    fn vpc_id(&self, name: &str, item: &Item<view::Vpc>) -> Result<VpcId, Wrong> {
        let number = item.object.id.ok_or_else(|| wrong("has no number", "set status.vpcID"))?;
        let free = "set status.vpcID to a free number of 2 to 16777215";
        let id = VpcId::new(number).map_err(|error| wrong(error.to_string(), free))?;
        if id.get() == 1 && name != DEFAULT_VPC {
            return Err(wrong("VPC id 1 is Vpc/default's alone", free));
        }
        match self.model.vpcs.get(&id) {
            Some(holder) => Err(wrong(format!("VPC id {id} is Vpc/{}'s already", holder.name), free)),
            None => Ok(id),
        }
    }

    pub(super) fn tables(&mut self) {
        let view = self.view;
        for (name, item) in oldest_first(&view.route_tables, |table| table.created.as_ref()) {
            match self.table(item) {
                Ok((id, vpc)) => {
                    self.tables.insert(Text::clone(name), (id, vpc));
                    let origin = item.origin.to_string();
                    let table = RouteTable { id, name: name.to_string(), vpc, routes: Vec::new(), origin };
                    self.model.tables.insert(id, table);
                }
                Err(wrong) => self.problem(format!("RouteTable/{name}"), item, wrong),
            }
        }
    }

    fn table(&self, item: &Item<view::RouteTable>) -> Result<(TableId, VpcId), Wrong> {
        let vpc = self.vpc_named(&item.object.vpc)?;
        let number = item.object.id.ok_or_else(|| wrong("has no number", "set status.tableID"))?;
        let free = "set status.tableID to a number that no other RouteTable has, from 1 on";
        let id = TableId::new(number).map_err(|error| wrong(error.to_string(), free))?;
        match self.model.tables.get(&id) {
            Some(holder) => Err(wrong(format!("route table id {id} is RouteTable/{}'s already", holder.name), free)),
            None => Ok((id, vpc)),
        }
    }

    fn vpc_named(&self, name: &str) -> Result<VpcId, Wrong> {
        self.vpcs.get(name).copied().ok_or_else(|| missing("Vpc", name, &self.view.vpcs))
    }

    pub(super) fn subnets(&mut self) {
        let view = self.view;
        for (name, item) in oldest_first(&view.subnets, |subnet| subnet.created.as_ref()) {
            let object = || format!("Subnet/{name}");
            let usable = match self.subnet(item) {
                Ok(usable) => usable,
                Err(wrong) => {
                    self.problem(object(), item, wrong);
                    continue;
                }
            };
            if usable.closed {
                let wrong = wrong(
                    "NetworkACLs are not programmed yet; its endpoints are closed",
                    "remove spec.networkACL, or wait for a version that knows them",
                );
                self.problem(object(), item, wrong);
            }
            if usable.prefix.addr().is_ipv6() {
                let wrong = wrong("IPv6 is not programmed yet; its endpoints reach nothing", "use an IPv4 prefix");
                self.problem(object(), item, wrong);
            }
            let table = match self.table_of(item, usable.vpc) {
                Ok(table) => Some(table),
                Err((message, remedy)) => {
                    self.problem(object(), item, wrong(format!("{message}; its Pods reach nothing"), remedy));
                    None
                }
            };
            let Usable { vni, vpc, prefix, gateway, gateway_mac, .. } = usable;
            let origin = item.origin.to_string();
            let subnet = Subnet { vni, name: name.to_string(), vpc, prefix, gateway, gateway_mac, table, origin };
            self.model.subnets.insert(vni, subnet);
            self.subnets_of.entry(vpc).or_default().push(vni);
            self.subnets.insert(Text::clone(name), usable);
        }
    }

    fn subnet(&self, item: &Item<view::Subnet>) -> Result<Usable, Wrong> {
        let object = &item.object;
        let vpc = self.vpc_named(&object.vpc)?;
        // Host bits mean nothing, as the Go implementation has it.
        let prefix = parse::prefix(&object.cidr)
            .or_else(|(why, without_host_bits)| without_host_bits.ok_or(why))
            .map_err(|(message, remedy)| wrong(format!("spec.cidr: {message}"), remedy))?;
        if let IpNet::V4(v4) = prefix
            && !(16..=28).contains(&v4.prefix_len())
        {
            return Err(wrong(
                format!("spec.cidr: {prefix} is not within /16 to /28"),
                "use a prefix of such a length",
            ));
        }
        if parse::has_reserved(prefix) {
            return Err(wrong(
                format!("spec.cidr: {prefix} holds addresses that no packet may have"),
                "use a prefix outside 0/8, 127/8, 169.254/16 and 224/3",
            ));
        }
        let vnis = self.subnets_of.get(&vpc).into_iter().flatten();
        let mut others = vnis.filter_map(|vni| self.model.subnets.get(vni));
        let overlapping = others.find(|other| other.prefix.contains(&prefix) || prefix.contains(&other.prefix));
        if let Some(other) = overlapping {
            return Err(wrong(
                format!("spec.cidr: {prefix} overlaps Subnet/{} ({}) of the same VPC", other.name, other.prefix),
                "use a prefix that no other Subnet of the VPC covers, or another VPC",
            ));
        }
        let number = object.vni.ok_or_else(|| wrong("has no VNI", "set status.vni"))?;
        let free = "set status.vni to a free number of 2 to 16777215";
        let vni = Vni::new(number).map_err(|error| wrong(error.to_string(), free))?;
        if let Some(holder) = self.model.subnets.get(&vni) {
            return Err(wrong(format!("VNI {vni} is Subnet/{}'s already", holder.name), free));
        }
        let gateway = object.gateway.as_deref().ok_or_else(|| wrong("has no gateway", "set status.gateway"))?;
        let first = "set status.gateway to the first host of the prefix";
        let gateway: IpAddr =
            gateway.parse().map_err(|_| wrong(format!("status.gateway: {gateway:?} is not an address"), first))?;
        // The address after the gateway is the virtual DNS.
        if ![Some(gateway), parse::next(gateway)].iter().flatten().all(|address| parse::is_host(prefix, *address)) {
            return Err(wrong(format!("status.gateway: {gateway} is not one of the hosts of {prefix}"), first));
        }
        let gateway_mac =
            object.gateway_mac.as_deref().ok_or_else(|| wrong("has no gatewayMAC", "set status.gatewayMAC"))?;
        let gateway_mac: MacAddr = gateway_mac.parse().map_err(|error: juneau_core::id::IdError| {
            wrong(format!("status.gatewayMAC: {error}"), "set a locally administered one, as in 02:00:00:00:00:01")
        })?;
        Ok(Usable { vni, vpc, prefix, gateway, gateway_mac, closed: object.has_acl })
    }

    /// The table that a Subnet names, else its VPC's main one.
    fn table_of(&self, item: &Item<view::Subnet>, vpc: VpcId) -> Result<TableId, Wrong> {
        let object = &item.object;
        let main = || self.view.vpcs.get(&object.vpc).and_then(|vpc| vpc.object.main_route_table.as_ref());
        let name = object.route_table.as_ref().or_else(main).unwrap_or(&object.vpc);
        match self.tables.get(name) {
            Some((id, owner)) if *owner == vpc => Ok(*id),
            Some(_) => Err(wrong(
                format!("RouteTable/{name} is another VPC's"),
                format!("name a RouteTable of Vpc/{}", object.vpc),
            )),
            None => Err(missing("RouteTable", name, &self.view.route_tables)),
        }
    }
}
