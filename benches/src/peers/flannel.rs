//! Flannel's shape: a bridge for the node's Pods, a route for each other node's Subnet over one VXLAN device, with fixed
//! neighbour and forwarding entries.

use std::net::Ipv4Addr;

use crate::error::Result;
use crate::namespace::{Fabric, Vxlan};
use crate::path::Path;
use crate::peers::{POD_MTU, TwoNodes};

const BRIDGE: &str = "cni0";
const TUNNEL: &str = "flannel.1";

/// Makes the path.
///
/// # Errors
/// What making and asking it can answer.
pub fn flannel(fabric: &Fabric, cpu: usize) -> Result<Path> {
    let nodes = TwoNodes::new(fabric)?;
    for (here, _) in nodes.both_ways() {
        let node = &here.namespace;
        let gateway = with_last(here.pod.address, 1);
        node.bridge(BRIDGE, POD_MTU, &[here.pod.host_device])?;
        node.address(BRIDGE, gateway, 24)?;
        here.pod.namespace.address("eth0", here.pod.address, 24)?;
        here.pod.namespace.route((Ipv4Addr::UNSPECIFIED, 0), Some(gateway), "eth0")?;
        let tunnel = Vxlan { vni: 1, port: 8472, device: here.device, local: Some(here.vtep) };
        node.vxlan(TUNNEL, &tunnel, POD_MTU)?;
        node.address(TUNNEL, with_last(here.pod.address, 0), 32)?;
        node.up(TUNNEL)?;
    }
    for (here, there) in nodes.both_ways() {
        let node = &here.namespace;
        let far = with_last(there.pod.address, 0);
        let mac = there.namespace.mac(TUNNEL)?;
        node.route((far, 24), Some(far), TUNNEL)?;
        node.neighbour(TUNNEL, far, mac)?;
        node.forwarding(TUNNEL, mac, there.vtep)?;
    }
    let (pods, between) = nodes.into_pods();
    Path::new("Flannel shape", pods, cpu, vec![Box::new(between)])
}

fn with_last(address: Ipv4Addr, last: u8) -> Ipv4Addr {
    let [a, b, c, _] = address.octets();
    Ipv4Addr::new(a, b, c, last)
}
