//! The limit between two nodes: the same three veth pairs as every overlay crosses, with constant redirects by TCX.

use crate::error::Result;
use crate::namespace::Fabric;
use crate::path::Path;
use crate::peers::{Config, PeerObject, TwoNodes};

/// Makes the path.
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
