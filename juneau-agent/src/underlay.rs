//! The device that carries the overlay, and the VXLAN device beside it.

use crate::net::{Link, NetError, Netlink, disable_ipv6};
use crate::pod::LINK_GROUP;
use crate::protocol::Underlay;
use ipnet::Ipv4Net;
use juneau_core::model::Problem;
use std::net::Ipv4Addr;
use std::path::Path;

/// Name of the VXLAN device.
pub const VXLAN_DEVICE: &str = "juneau.vxlan";
/// Its MTU: the programs decide what fits, so the device must never be the one that refuses.
const VXLAN_MTU: u32 = 65_000;
/// What encapsulation adds to a Pod's packet, in bytes (`JN_ENCAP_OVERHEAD`).
const OVERHEAD: u32 = 50;

/// MTU of Pods on this underlay.
#[must_use]
pub fn pod_mtu(underlay: &Underlay) -> u32 {
    underlay.mtu.saturating_sub(OVERHEAD)
}

/// Finds the underlay device: the one that has the node's InternalIP, or the one named.
///
/// # Errors
/// A problem that names the node or the device.
pub fn find(
    links: &[Link],
    addresses: &[(u32, Ipv4Net)],
    node: &str,
    internal_ip: Ipv4Addr,
    name: Option<&str>,
) -> Result<Underlay, Problem> {
    let link = match name {
        Some(name) => links.iter().find(|link| link.name == name).ok_or_else(|| {
            Problem::new(
                format!("device {name}"),
                "the underlay device named at the start does not exist",
                "create it, or start the agent with another --underlay",
            )
        })?,
        None => addresses
            .iter()
            .filter(|(_, address)| address.addr() == internal_ip)
            .find_map(|(index, _)| links.iter().find(|link| link.index == *index))
            .ok_or_else(|| {
                Problem::new(
                    format!("Node/{node}"),
                    format!("no device of this node has its InternalIP {internal_ip}"),
                    "correct the InternalIP, give a device that address, or name the device with --underlay",
                )
            })?,
    };
    if !link.up {
        return Err(Problem::new(
            format!("device {}", link.name),
            "the underlay device is down",
            format!("ip link set {} up", link.name),
        ));
    }
    // 576 bytes inside the tunnel: what every IPv4 host must take (RFC 791, 3.2).
    if link.mtu < 576 + OVERHEAD {
        return Err(Problem::new(
            format!("device {}", link.name),
            format!("its MTU {} leaves less than 576 bytes for Pods", link.mtu),
            format!("ip link set {} mtu 1500", link.name),
        ));
    }
    Ok(Underlay { device: link.name.clone(), ifindex: link.index, address: internal_ip, mtu: link.mtu })
}

/// A VXLAN device of somebody else on our port, which the kernel would let us neither share nor take over.
#[must_use]
pub fn foreign_vxlan(links: &[Link], port: u16) -> Option<Problem> {
    let foreign = links
        .iter()
        .find(|link| link.name != VXLAN_DEVICE && link.vxlan.as_ref().is_some_and(|vxlan| vxlan.port == port))?;
    let name = &foreign.name;
    Some(Problem::new(
        format!("device {name}"),
        format!("it is a VXLAN device of somebody else on UDP port {port}, which is the overlay's"),
        format!("ip link delete {name}, or give every agent another --vxlan-port"),
    ))
}

/// Makes sure that our VXLAN device exists, is as it should be, and is up; its ifindex.
///
/// # Errors
/// See [`NetError`].
pub async fn ensure_vxlan(netlink: &Netlink, port: u16, sysctls: &Path) -> Result<u32, NetError> {
    if let Some(link) = netlink.link(VXLAN_DEVICE).await? {
        let right = link.vxlan.as_ref().is_some_and(|vxlan| vxlan.external && vxlan.port == port);
        if right {
            if link.mtu != VXLAN_MTU {
                netlink.set_mtu(link.index, VXLAN_MTU).await?;
            }
            if !link.up {
                netlink.set_up(link.index).await?;
            }
            return Ok(link.index);
        }
        netlink.delete_link(link.index).await?;
    }
    netlink.add_external_vxlan(VXLAN_DEVICE, port, VXLAN_MTU, LINK_GROUP).await?;
    disable_ipv6(sysctls, VXLAN_DEVICE)?;
    let missing =
        || NetError::Netlink { action: format!("look up device {VXLAN_DEVICE}"), message: "it vanished".into() };
    let link = netlink.link(VXLAN_DEVICE).await?.ok_or_else(missing)?;
    netlink.set_up(link.index).await?;
    Ok(link.index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Vxlan;

    fn link(index: u32, name: &str, mtu: u32) -> Link {
        Link {
            index,
            name: name.into(),
            alias: None,
            group: 0,
            mtu,
            up: true,
            mac: None,
            peer: None,
            peer_namespace: None,
            kind: None,
            vxlan: None,
        }
    }

    const IP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    fn addresses() -> Vec<(u32, Ipv4Net)> {
        vec![(1, "127.0.0.1/8".parse().unwrap()), (3, "192.0.2.1/24".parse().unwrap())]
    }

    #[test]
    fn the_device_with_the_internal_ip_is_taken() {
        let links = [link(1, "lo", 65536), link(2, "eth0", 1500), link(3, "eth1", 9000)];
        let found = find(&links, &addresses(), "n1", IP, None).unwrap();
        assert_eq!((found.device.as_str(), found.ifindex, found.mtu, pod_mtu(&found)), ("eth1", 3, 9000, 8950));
        assert_eq!(find(&links, &addresses(), "n1", IP, Some("eth0")).unwrap().ifindex, 2);
    }

    #[test]
    fn what_is_missing_is_named() {
        let links = [link(1, "lo", 65536), link(3, "eth1", 600)];
        let elsewhere = find(&links, &addresses(), "n1", Ipv4Addr::new(192, 0, 2, 9), None).unwrap_err();
        assert_eq!(elsewhere.object, "Node/n1");
        assert!(elsewhere.message.contains("192.0.2.9"));
        assert_eq!(find(&links, &addresses(), "n1", IP, Some("x")).unwrap_err().object, "device x");
        assert!(find(&links, &addresses(), "n1", IP, None).unwrap_err().message.contains("MTU 600"));
        let mut down = link(3, "eth1", 1500);
        down.up = false;
        assert!(find(&[down], &addresses(), "n1", IP, None).unwrap_err().message.contains("down"));
    }

    #[test]
    fn a_foreign_vxlan_device_is_named_and_ours_is_not() {
        let vxlan = |name: &str, port| {
            let mut link = link(7, name, 1500);
            link.vxlan = Some(Vxlan { vni: 1, port, external: false });
            link
        };
        assert_eq!(foreign_vxlan(&[vxlan(VXLAN_DEVICE, 4789), vxlan("flannel.1", 8472)], 4789), None);
        let problem = foreign_vxlan(&[vxlan("flannel.1", 8472)], 8472).unwrap();
        assert_eq!(problem.object, "device flannel.1");
    }
}
