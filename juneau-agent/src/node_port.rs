//! The node port: a veth pair by which the node itself takes part in its VPC, like a Pod.
//!
//! Both ends are in the node's network namespace. [`DEVICE`] has the program; [`HOST_DEVICE`] is the node's interface,
//! with the MAC address and the address of the node's endpoint, and with the routes to the VPC.

use crate::net::{HostRoute, Link, NetError, Netlink, VethRequest, disable_ipv6, loosen_reverse_path};
use crate::pod::LINK_GROUP;
use ipnet::Ipv4Net;
use juneau_core::id::MacAddr;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::Path;

/// The end with the program.
pub const DEVICE: &str = "juneau_node";
/// The node's end.
pub const HOST_DEVICE: &str = "juneau_node_h";

/// How a node port is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wiring {
    /// Address with the Subnet's prefix length.
    pub address: Ipv4Net,
    /// MAC address of the node's end.
    pub mac: MacAddr,
    /// MTU of both ends.
    pub mtu: u32,
    /// The Subnet's gateway.
    pub gateway: Ipv4Addr,
    /// The other Subnets of the VPC and the addresses of Services, behind the gateway.
    pub others: BTreeSet<Ipv4Net>,
}

impl Wiring {
    /// The routes to the VPC.
    fn routes(&self) -> BTreeSet<HostRoute> {
        let own = HostRoute { prefix: self.address.trunc(), gateway: None };
        let others = self.others.iter().map(|prefix| HostRoute { prefix: *prefix, gateway: Some(self.gateway) });
        others.chain([own]).collect()
    }
}

/// Whether a device is one of the pair.
#[must_use]
pub fn is_part(name: &str) -> bool {
    [DEVICE, HOST_DEVICE].contains(&name)
}

/// Makes sure that the pair exists, and leaves one alone that does; answers with the end that has the program.
///
/// # Errors
/// `EEXIST` when somebody else's device has one of the names; see [`NetError`].
pub async fn make(netlink: &Netlink, wiring: &Wiring) -> Result<Link, NetError> {
    let (device, host) = (netlink.link(DEVICE).await?, netlink.link(HOST_DEVICE).await?);
    if let (Some(device), Some(host)) = (&device, &host)
        && (device.peer, host.peer) == (Some(host.index), Some(device.index))
    {
        return Ok(device.clone());
    }
    // Half of it, or one that was put together from others.
    for link in [&device, &host].into_iter().flatten().filter(|link| link.group == LINK_GROUP) {
        netlink.delete_link(link.index).await?;
    }
    let request = VethRequest {
        name: DEVICE,
        group: LINK_GROUP,
        peer_name: HOST_DEVICE,
        peer_namespace: None,
        peer_mac: wiring.mac,
        mtu: wiring.mtu,
    };
    netlink.add_veth(&request).await?;
    expect(netlink, DEVICE).await
}

/// Sets the pair up, with its address and its routes. The program and its tables have to be in place before. What
/// differs is mended, what is right is left alone.
///
/// # Errors
/// `EEXIST` when another device has one of the routes; see [`NetError`].
pub async fn bring_up(netlink: &Netlink, wiring: &Wiring, sysctls: &Path) -> Result<(), NetError> {
    let (device, host) = (expect(netlink, DEVICE).await?, expect(netlink, HOST_DEVICE).await?);
    for link in [&device, &host] {
        disable_ipv6(sysctls, &link.name)?;
        if link.mtu != wiring.mtu {
            netlink.set_mtu(link.index, wiring.mtu).await?;
        }
    }
    // The node's own strictness would refuse Pods whose answers it would send elsewhere.
    loosen_reverse_path(sysctls, HOST_DEVICE)?;
    if host.mac != Some(wiring.mac.octets()) {
        netlink.set_mac(host.index, wiring.mac).await?;
    }
    let addresses = netlink.addresses().await?;
    let held: Vec<Ipv4Net> =
        addresses.into_iter().filter(|(index, _)| *index == host.index).map(|(_, address)| address).collect();
    for other in held.iter().filter(|address| **address != wiring.address) {
        netlink.delete_address(host.index, *other).await?;
    }
    if !held.contains(&wiring.address) {
        netlink.add_address(host.index, wiring.address).await?;
    }
    for link in [&device, &host] {
        if !link.up {
            netlink.set_up(link.index).await?;
        }
    }
    let wanted = wiring.routes();
    let present = netlink.routes_over(host.index).await?;
    for (route, _) in present.iter().filter(|(route, ours)| *ours && !wanted.contains(route)) {
        netlink.delete_route(host.index, *route).await?;
    }
    for route in wanted {
        if !present.iter().any(|(held, _)| *held == route) {
            netlink.add_route(host.index, route, wiring.address.addr()).await?;
        }
    }
    Ok(())
}

/// Removes the pair; without one nothing happens.
///
/// # Errors
/// See [`NetError`].
pub async fn remove(netlink: &Netlink) -> Result<(), NetError> {
    // The other end goes with it.
    match netlink.link(DEVICE).await? {
        Some(link) if link.group == LINK_GROUP => netlink.delete_link(link.index).await,
        _ => Ok(()),
    }
}

async fn expect(netlink: &Netlink, name: &str) -> Result<Link, NetError> {
    let missing = || NetError::Netlink { action: format!("look up device {name}"), message: "it vanished".into() };
    netlink.link(name).await?.ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_lead_to_the_own_subnet_and_to_others_by_the_gateway() {
        let wiring = Wiring {
            address: "10.244.0.5/16".parse().unwrap(),
            mac: "02:00:00:00:00:05".parse().unwrap(),
            mtu: 1450,
            gateway: "10.244.0.1".parse().unwrap(),
            others: ["10.245.0.0/16".parse().unwrap()].into(),
        };
        let routes: Vec<_> =
            wiring.routes().into_iter().map(|route| (route.prefix.to_string(), route.gateway)).collect();
        let gateway = Some("10.244.0.1".parse().unwrap());
        assert_eq!(routes, [("10.244.0.0/16".to_owned(), None), ("10.245.0.0/16".to_owned(), gateway)]);
    }
}
