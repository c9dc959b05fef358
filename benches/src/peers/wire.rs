//! The limits of TCX: constant redirects that look at nothing, between two Pods of a node and between two nodes.

use crate::error::Result;
use crate::namespace::Fabric;
use crate::path::Path;
use crate::peers::{Config, OneNode, PeerObject, TwoNodes};

/// Two Pods of one node: what any program at their host veths costs at least.
///
/// # Errors
/// What making and asking it can answer.
pub fn wire_local(fabric: &Fabric, cpu: usize) -> Result<Path> {
    let one = OneNode::new(fabric)?;
    let mut programs = Vec::new();
    let [first, second] = &one.pods;
    for (here, there) in [(first, second), (second, first)] {
        here.behind_gateway(there.mac)?;
        let mut object = PeerObject::load(&Config { ifindex: there.host_index, ..Config::default() }, &["wire_in"])?;
        object.attach(&one.node, "wire_in", here.host_index)?;
        programs.push(object);
    }
    let (pods, node) = one.into_pods();
    Path::new("constant redirect", pods, cpu, vec![Box::new(programs), Box::new(node)])
}

/// Two nodes: the same three veth pairs as every overlay crosses.
///
/// # Errors
/// What making and asking it can answer.
pub fn wire(fabric: &Fabric, cpu: usize) -> Result<Path> {
    let nodes = TwoNodes::new(fabric)?;
    let (mut programs, mut ids) = (Vec::new(), Vec::new());
    for (here, there) in nodes.both_ways() {
        // Frames carry the far underlay device's address from the start: it takes them for its own.
        here.pod.behind_gateway(there.mac)?;
        let redirects = [("wire_out", here.pod.host_index, here.index), ("wire_in", here.index, here.pod.host_index)];
        for (program, from, to) in redirects {
            let config = Config { ifindex: to, ..Config::default() };
            let mut object = PeerObject::load(&config, &[program])?;
            object.attach(&here.namespace, program, from)?;
            ids.push(object.id(program)?);
            programs.push(object);
        }
    }
    let (pods, between) = nodes.into_pods();
    let path = Path::new("wire", pods, cpu, vec![Box::new(programs), Box::new(between)])?;
    Ok(path.with_programs(ids))
}
