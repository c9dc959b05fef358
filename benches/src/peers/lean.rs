//! The leanest routers that one would still call a data path: a lookup, a conntrack-like entry, a redirect.

use std::net::Ipv4Addr;

use crate::error::Result;
use crate::namespace::{Fabric, Mac, Namespace};
use crate::path::Path;
use crate::peers::topology::Pod;
use crate::peers::{Config, OneNode, PeerObject, TwoNodes};

const VNI: u32 = 7;

/// Two Pods of one node.
///
/// # Errors
/// What making and asking it can answer.
pub fn lean_local(fabric: &Fabric, cpu: usize) -> Result<Path> {
    let one = OneNode::new(fabric)?;
    let config = Config { vni: VNI, ..Config::default() };
    let mut object = PeerObject::load(&config, &["lean_local"])?;
    for pod in &one.pods {
        pod.behind_gateway(pod.host_mac)?;
        object.update("lean_routes", &route_key(pod.address), &to_pod(pod))?;
        object.attach(&one.node, "lean_local", pod.host_index)?;
    }
    let (pods, node) = one.into_pods();
    Path::new("lean", pods, cpu, vec![Box::new(object), Box::new(node)])
}

/// Pods of two nodes, over VXLAN headers that the programs write and remove.
///
/// # Errors
/// What making and asking it can answer.
pub fn lean_nodes(fabric: &Fabric, cpu: usize) -> Result<Path> {
    let nodes = TwoNodes::new(fabric)?;
    let mut objects = Vec::new();
    for (here, there) in nodes.both_ways() {
        here.pod.behind_gateway(here.pod.host_mac)?;
        let config = Config { vni: VNI, vtep: Some(here.vtep), ..Config::default() };
        let mut object = PeerObject::load(&config, &["lean_encap", "lean_decap"])?;
        object.update(
            "lean_routes",
            &route_key(there.pod.address),
            &route(here.index, there.vtep, there.mac, here.mac),
        )?;
        object.update("lean_endpoints", &endpoint_key(here.pod.address), &to_pod(&here.pod))?;
        let node: &Namespace = &here.namespace;
        object.attach(node, "lean_encap", here.pod.host_index)?;
        object.attach(node, "lean_decap", here.index)?;
        objects.push(object);
    }
    let (pods, between) = nodes.into_pods();
    Path::new("lean", pods, cpu, vec![Box::new(objects), Box::new(between)])
}

/// `struct lean_route_key`, a host's.
fn route_key(address: Ipv4Addr) -> Vec<u8> {
    [&64_u32.to_ne_bytes()[..], &endpoint_key(address)].concat()
}

/// `struct lean_endpoint_key`.
fn endpoint_key(address: Ipv4Addr) -> Vec<u8> {
    [VNI.to_ne_bytes(), address.octets()].concat()
}

/// `struct lean_route`.
fn route(ifindex: u32, vtep: Ipv4Addr, destination: Mac, source: Mac) -> Vec<u8> {
    [&ifindex.to_ne_bytes()[..], &vtep.octets(), &destination, &source].concat()
}

fn to_pod(pod: &Pod) -> Vec<u8> {
    route(pod.host_index, Ipv4Addr::UNSPECIFIED, pod.mac, pod.host_mac)
}
