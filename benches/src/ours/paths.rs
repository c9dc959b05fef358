//! Paths through our programs.

use std::net::Ipv4Addr;

use juneau_bpf::Dataplane;

use super::content::{Cluster, GATEWAY_MAC, Member, Place, VPC};
use super::nodes::{VXLAN_PORT, open};
use crate::error::{Context, Error, Result};
use crate::namespace::{Fabric, Vxlan};
use crate::path::Path;
use crate::peers::{LOCAL_MTU, OneNode, POD_MTU, Pod, TwoNodes};

const VXLAN: &str = "vxlan";
/// VTEP of a node without others.
const ALONE: Ipv4Addr = Ipv4Addr::new(192, 168, 9, 1);

/// Whether Pods' packets have room for our headers in front from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headroom {
    /// As the kernel makes them.
    Default,
    /// A host veth takes the room that its bridge's ports need, and tells it to its peer: an idle bridge with an unused
    /// VXLAN device gives 64 bytes and more. No frame reaches the bridge, since our program runs before it.
    Reserved,
}

fn member(pod: &Pod, place: Place) -> Member {
    Member { vpc: VPC, address: pod.address, mac: pod.mac, place }
}

/// Two Pods of one node and one Subnet.
///
/// # Errors
/// What making and asking it can answer.
pub fn ours_local(fabric: &Fabric, cpu: usize) -> Result<Path> {
    let one = OneNode::new(fabric)?;
    one.node.vxlan_external(VXLAN, VXLAN_PORT, LOCAL_MTU)?;
    let members = one.pods.each_ref().map(|pod| member(pod, Place::Here(pod.host_index)));
    // This node is alone: what it would take for its underlay does not matter.
    let underlay = one.node.index("lo")?;
    let vxlan = one.node.index(VXLAN)?;
    let cluster = Cluster::new(ALONE, LOCAL_MTU, &members)?;
    let dataplane = open(&one.node, underlay, vxlan, &cluster)?;
    for pod in &one.pods {
        pod.behind_gateway(GATEWAY_MAC)?;
        let attach = || dataplane.attach_pod(pod.host_device, pod.host_index);
        one.node.run(|| attach().context("attaching our program"))?;
    }
    let (pods, node) = one.into_pods();
    let dataplanes = [dataplane];
    let path = Path::new("ours", pods, cpu, vec![Box::new(node)])?;
    Ok(path.with_check(move || only_the_fast_way(&dataplanes)))
}

/// Pods of two nodes and two Subnets.
///
/// # Errors
/// What making and asking it can answer.
pub fn ours_nodes(fabric: &Fabric, cpu: usize, headroom: Headroom) -> Result<Path> {
    let nodes = TwoNodes::new(fabric)?;
    let mut dataplanes = Vec::new();
    for (here, there) in nodes.both_ways() {
        here.pod.behind_gateway(GATEWAY_MAC)?;
        let node = &here.namespace;
        node.vxlan_external(VXLAN, VXLAN_PORT, POD_MTU)?;
        if headroom == Headroom::Reserved {
            let room = Vxlan { vni: 1, port: 4999, device: here.device, local: None };
            node.vxlan("room", &room, POD_MTU)?;
            node.bridge("headroom", POD_MTU, &["room", here.pod.host_device])?;
        }
        let vxlan = node.index(VXLAN)?;
        let members =
            [member(&here.pod, Place::Here(here.pod.host_index)), member(&there.pod, Place::There(there.vtep))];
        let cluster = Cluster::new(here.vtep, POD_MTU, &members)?;
        let dataplane = open(node, here.index, vxlan, &cluster)?;
        node.run(|| {
            dataplane.attach_pod(here.pod.host_device, here.pod.host_index).context("attaching to a Pod")?;
            dataplane.attach_underlay(here.index).context("attaching to the underlay")?;
            dataplane.attach_vxlan(vxlan).context("attaching to the VXLAN device")
        })?;
        dataplanes.push(dataplane);
    }
    let (pods, between) = nodes.into_pods();
    let name = match headroom {
        Headroom::Default => "ours",
        Headroom::Reserved => "ours with headroom",
    };
    let path = Path::new(name, pods, cpu, vec![Box::new(between)])?;
    let mut programs = Vec::new();
    for dataplane in &dataplanes {
        programs.extend(dataplane.links().context("our links")?.iter().map(|link| link.program));
    }
    Ok(path.with_programs(programs).with_check(move || only_the_fast_way(&dataplanes)))
}

/// A path that quietly took the VXLAN device, or dropped, would be another measurement.
fn only_the_fast_way(dataplanes: &[Dataplane]) -> Result<()> {
    for dataplane in dataplanes {
        let counters = dataplane.counters().context("our counters")?;
        let slow: u64 = counters.devices().context("our counters")?.iter().map(|(_, packets)| packets).sum();
        if slow > 0 {
            return Err(Error::NotOurs(format!("{slow} packets went by the VXLAN device")));
        }
        if let Some(exit) = counters.exits().context("our counters")?.first() {
            return Err(Error::NotOurs(format!("not all packets were delivered: {exit:?}")));
        }
        if counters.traffic().context("our counters")?.is_empty() {
            return Err(Error::NotOurs("no packet was delivered by our programs".into()));
        }
    }
    Ok(())
}
