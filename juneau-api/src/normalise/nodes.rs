//! Nodes: their InternalIP is their VTEP.

use super::context::Networks;
use super::{oldest_first, parse, wrong};
use crate::view::Text;
use core::net::IpAddr;
use juneau_core::model::{Node, Problem};
use std::collections::BTreeMap;

impl Networks<'_> {
    pub(super) fn nodes(&mut self, own: &str) {
        let view = self.view;
        let mut holders: BTreeMap<IpAddr, &str> = BTreeMap::new();
        for (name, item) in oldest_first(&view.nodes, |node| node.created.as_ref()) {
            let result = internal_ip(&item.object.internal_ips).and_then(|address| match holders.get(&address) {
                Some(holder) => Err(wrong(
                    format!("InternalIP {address} is Node/{holder}'s as well"),
                    "give each node an address of its own",
                )),
                None => Ok(address),
            });
            match result {
                Ok(internal_ip) => {
                    holders.insert(internal_ip, name);
                    self.model.nodes.insert(name.to_string(), Node { internal_ip, origin: item.origin.to_string() });
                }
                Err(wrong) => self.problem(format!("Node/{name}"), item, wrong),
            }
        }
        if !view.nodes.contains_key(own) {
            self.problems.push(Problem::new(
                format!("Node/{own}"),
                "does not exist, though this is the node; no endpoint of it can be used",
                "create it with the node's InternalIP, or start the node under its right name",
            ));
        }
    }
}

/// The first address that is IPv4, else the first.
fn internal_ip(addresses: &[Text]) -> Result<IpAddr, super::Wrong> {
    let mut chosen: Option<IpAddr> = None;
    for text in addresses {
        let address: IpAddr = text.parse().map_err(|_| {
            wrong(format!("InternalIP {text:?} is not an address"), "write an address, as in 192.0.2.11")
        })?;
        if !parse::is_unicast(address) {
            return Err(wrong(
                format!("InternalIP {address} is no address that a node can have"),
                "give the address of the node on the underlay",
            ));
        }
        if chosen.is_none_or(|chosen| chosen.is_ipv6() && address.is_ipv4()) {
            chosen = Some(address);
        }
    }
    chosen.ok_or_else(|| wrong("has no InternalIP", "add one of type InternalIP to status.addresses"))
}
