//! The network between the nodes: a bridge in a network namespace of its own, and a veth pair to each node's `eth0`.
//! Nothing of it is in the machine's own network namespace.

use crate::error::{Context, LabError, Result};
use crate::namespace;
use futures::TryStreamExt;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::{InfoData, InfoVeth, LinkAttribute};
use rtnetlink::{Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::path::Path;

/// A node's device on the underlay.
pub const NODE_DEVICE: &str = "eth0";

/// Prefix length of the underlay.
pub const PREFIX_LENGTH: u8 = 24;

const BRIDGE: &str = "underlay";

/// Makes the underlay's namespace, pinned at `path`, with its bridge.
///
/// # Errors
/// When the kernel refuses.
pub fn create(path: &Path, mtu: u32) -> Result<()> {
    namespace::create(path)?;
    namespace::within(path, || {
        // Quiet captures: nobody speaks IPv6 here.
        for scope in ["all", "default"] {
            let file = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
            if Path::new(&file).exists() {
                std::fs::write(&file, "1").context(|| format!("writing {file}"))?;
            }
        }
        Ok(())
    })?;
    namespace::with_netlink(path, async |handle: Handle| {
        let bridge = LinkBridge::new(BRIDGE).mtu(mtu).mcast_snooping(false).build();
        handle.link().add(bridge).execute().await.context(|| "making the underlay's bridge")?;
        up(&handle, "lo").await
    })
}

/// Connects the node whose network namespace is at `node` with the underlay at `underlay`, and gives it an address.
///
/// # Errors
/// When the kernel refuses.
pub fn connect(underlay: &Path, node: &Path, name: &str, address: Ipv4Addr, mtu: u32) -> Result<()> {
    let target = namespace::open(node)?;
    let port = port_name(name);
    namespace::with_netlink(underlay, async |handle: Handle| {
        let bridge = index(&handle, BRIDGE).await?;
        // One message makes both ends, the other one at its place and under its name at once. It cannot come up before
        // it has its other end.
        let far_end =
            LinkMessageBuilder::<LinkUnspec>::new().name(NODE_DEVICE).mtu(mtu).setns_by_fd(target.as_raw_fd()).build();
        let pair = LinkMessageBuilder::<LinkVeth>::new(&port, NODE_DEVICE)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(far_end)))
            .mtu(mtu)
            .controller(bridge)
            .up()
            .build();
        handle.link().add(pair).execute().await.context(|| format!("connecting node {name} with the underlay"))
    })?;
    namespace::with_netlink(node, async |handle: Handle| {
        up(&handle, "lo").await?;
        up(&handle, NODE_DEVICE).await
    })?;
    set_address(node, name, address)
}

/// Takes a node's port away, if it is there.
///
/// # Errors
/// When the kernel refuses.
pub fn disconnect(underlay: &Path, name: &str) -> Result<()> {
    let port = port_name(name);
    namespace::with_netlink(underlay, async |handle: Handle| match index(&handle, &port).await {
        Ok(index) => handle.link().del(index).execute().await.context(|| format!("removing device {port}")),
        Err(_) => Ok(()),
    })
}

/// Makes `address` the only one of the node's device.
///
/// # Errors
/// When the kernel refuses.
pub fn set_address(node: &Path, name: &str, address: Ipv4Addr) -> Result<()> {
    namespace::with_netlink(node, async |handle: Handle| {
        let device = index(&handle, NODE_DEVICE).await?;
        let held: Vec<_> = handle
            .address()
            .get()
            .set_link_index_filter(device)
            .execute()
            .try_collect()
            .await
            .context(|| format!("listing the addresses of node {name}"))?;
        let wanted = IpAddr::V4(address);
        let is = |message: &rtnetlink::packet_route::address::AddressMessage, test: fn(&IpAddr, &IpAddr) -> bool| {
            message.attributes.iter().any(|attribute| match attribute {
                AddressAttribute::Local(held) => held.is_ipv4() && test(held, &wanted),
                _ => false,
            })
        };
        let mut there = false;
        for message in held {
            if is(&message, |held, wanted| held == wanted) {
                there = true;
            } else if is(&message, |held, wanted| held != wanted) {
                let removed = handle.address().del(message).execute().await;
                removed.context(|| format!("taking an old address from node {name}"))?;
            }
        }
        if there {
            return Ok(());
        }
        let added = handle.address().add(device, wanted, PREFIX_LENGTH).execute().await;
        added.context(|| format!("giving node {name} the address {address}"))
    })
}

/// Brings a namespace's loopback up, as a container runtime does.
///
/// # Errors
/// When the kernel refuses.
pub fn loopback_up(path: &Path) -> Result<()> {
    namespace::with_netlink(path, async |handle: Handle| up(&handle, "lo").await)
}

/// MTU and name of each device in a namespace, for `status`.
///
/// # Errors
/// When the namespace is not there.
pub fn devices(path: &Path) -> Result<Vec<String>> {
    namespace::with_netlink(path, async |handle: Handle| {
        let links: Vec<_> =
            handle.link().get().execute().try_collect().await.context(|| "listing the devices of a namespace")?;
        let name = |attribute: &LinkAttribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.clone()),
            _ => None,
        };
        Ok(links.iter().filter_map(|link| link.attributes.iter().find_map(name)).collect())
    })
}

async fn index(handle: &Handle, name: &str) -> Result<u32> {
    let found = handle.link().get().match_name(name).execute().try_next().await;
    let found = found.context(|| format!("looking up device {name}"))?;
    found.map(|link| link.header.index).ok_or_else(|| LabError::Io {
        what: format!("looking up device {name}"),
        source: std::io::ErrorKind::NotFound.into(),
    })
}

async fn up(handle: &Handle, name: &str) -> Result<()> {
    let request = handle.link().set(LinkUnspec::new_with_name(name).up().build());
    request.execute().await.context(|| format!("bringing device {name} up"))
}

/// The bridge's port towards a node: the node's name, or, where that does not fit into the 15 bytes of a device's name,
/// its beginning and a hash.
fn port_name(node: &str) -> String {
    if node.len() <= 15 && node != BRIDGE && node != "lo" {
        return node.to_owned();
    }
    // FNV-1a.
    let hash = node.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let beginning: String = node.chars().filter(char::is_ascii).take(6).collect();
    format!("{beginning}.{hash:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_names_that_fit_and_differ() {
        assert_eq!(port_name("node-1"), "node-1");
        let (one, other) = (port_name("a-node-with-a-long-name-1"), port_name("a-node-with-a-long-name-2"));
        assert!(one.len() <= 15 && other.len() <= 15);
        assert_ne!(one, other);
        assert_ne!(port_name(BRIDGE), BRIDGE);
    }
}
