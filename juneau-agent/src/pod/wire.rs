//! The veth pair between the node and a Pod.

use super::{Record, host_veth};
use crate::net::{Link, Namespace, NetError, Netlink, VethRequest, disable_ipv6};
use ipnet::Ipv4Net;
use juneau_core::id::MacAddr;
use std::net::Ipv4Addr;
use std::path::Path;

/// The interface that every Pod has.
pub const INTERFACE: &str = "eth0";

/// Device group of every host end ("jn"). It is set when the device is made, before its alias can be: a device of this
/// group without an alias is half made and may be deleted.
pub const LINK_GROUP: u32 = 0x6a6e;

/// How a Pod's interface is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wiring {
    /// Address with the Subnet's prefix length.
    pub address: Ipv4Net,
    /// Next hop of the default route, if this is the interface that it leaves by.
    pub gateway: Option<Ipv4Addr>,
    /// MAC address of the Pod's end.
    pub mac: MacAddr,
    /// MTU of both ends.
    pub mtu: u32,
}

/// Creates the pair, down at both ends, with its record in the alias; answers with the host end. `sysctls` is where the
/// kernel's settings can be written.
///
/// # Errors
/// `EEXIST` when the Pod has an interface of that name; see [`NetError`].
pub async fn create(
    netlink: &Netlink,
    record: &Record,
    namespace: &Namespace,
    wiring: &Wiring,
    sysctls: &Path,
) -> Result<Link, NetError> {
    let interface = &*record.nic.interface;
    let name = host_veth(interface, &record.container_id);
    let request = VethRequest {
        name: &name,
        group: LINK_GROUP,
        peer_name: interface,
        peer_namespace: Some(namespace),
        peer_mac: wiring.mac,
        mtu: wiring.mtu,
    };
    netlink.add_veth(&request).await?;
    let missing = || NetError::Netlink { action: format!("look up device {name}"), message: "it vanished".into() };
    let mut link = netlink.link(&name).await?.ok_or_else(missing)?;
    let alias = record.to_alias();
    let finish = async {
        netlink.set_alias(link.index, &alias).await?;
        disable_ipv6(sysctls, &name)
    };
    if let Err(error) = finish.await {
        netlink.delete_link(link.index).await?;
        return Err(error);
    }
    link.alias = Some(alias);
    Ok(link)
}

/// Sets both ends up and gives the Pod its address, and its default route. The TC program has to be in place before.
/// `inside` is the Pod's namespace. Idempotent: what differs is mended, what is right is left alone.
///
/// # Errors
/// See [`NetError`].
pub async fn bring_up(
    netlink: &Netlink,
    inside: &Netlink,
    host: &Link,
    interface: &str,
    wiring: &Wiring,
) -> Result<(), NetError> {
    if host.mtu != wiring.mtu {
        netlink.set_mtu(host.index, wiring.mtu).await?;
    }
    netlink.set_up(host.index).await?;
    if let Some(loopback) = inside.link("lo").await? {
        inside.set_up(loopback.index).await?;
    }
    let missing =
        || NetError::Netlink { action: format!("look up {interface} in the Pod"), message: "it is not there".into() };
    let peer = inside.link(interface).await?.ok_or_else(missing)?;
    if peer.mac != Some(wiring.mac.octets()) {
        inside.set_mac(peer.index, wiring.mac).await?;
    }
    if peer.mtu != wiring.mtu {
        inside.set_mtu(peer.index, wiring.mtu).await?;
    }
    for (index, address) in inside.addresses().await? {
        if index == peer.index && address != wiring.address {
            inside.delete_address(index, address).await?;
        }
    }
    inside.add_address(peer.index, wiring.address).await?;
    inside.set_up(peer.index).await?;
    match wiring.gateway {
        Some(gateway) => inside.set_default_route(peer.index, gateway).await,
        None => Ok(()),
    }
}

/// The other end of the host device, if it is in this namespace under this name.
///
/// # Errors
/// See [`NetError`].
pub async fn other_end(inside: &Netlink, host: &Link, interface: &str) -> Result<Option<Link>, NetError> {
    // The two ends of a veth name each other by ifindex.
    let link = inside.link(interface).await?;
    Ok(link.filter(|link| link.peer == Some(host.index) && host.peer == Some(link.index)))
}
