//! The daemon at the size of a large cluster: how much memory stays in use, and how long a change takes from a manifest
//! to the kernel.

mod cgroup;
mod manifests;
mod process;

use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::{Duration, Instant};

use juneau_bpf::KernelTables;
use juneau_core::tables::Endpoints;

use crate::error::{Context, Error, Result};
use crate::namespace::{End, Fabric};
use crate::ours::{self, Place};
use crate::report::{Bound, Row};
use crate::rounds::Effort;
use crate::statistics::median;

pub use cgroup::sweep;
pub(crate) use cgroup::{Cgroup, SELF};
use process::Agent;

const MEMORY: &str = "agent, resident, 10 000 endpoints and 100 VPCs";
const CHANGE: &str = "an attached Pod's change, manifest to map, at that size";
/// Names of the rows.
pub const NAMES: [&str; 2] = [MEMORY, CHANGE];

const VPCS: u32 = 100;
const ENDPOINTS: u32 = 10_000;
/// As many as VPCs: each has an endpoint on every node.
const NODES: u32 = 100;
const VTEP: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);
const ROUNDS: u8 = 15;
/// Longest that the agent may need for a start or for a change.
const PATIENCE: Duration = Duration::from_secs(60);

/// Takes the figures.
///
/// # Errors
/// When the agent does not start, or does not do what it is told.
pub fn run(fabric: &Fabric, _: Effort) -> Result<Vec<Row>> {
    let mut members = ours::spread(VPCS, ENDPOINTS, NODES);
    let attached = members.iter().position(|member| matches!(member.place, Place::Here(_)));
    let attached = members.swap_remove(attached.ok_or_else(|| Error::Missing("endpoint of this node".into()))?);
    let [node, elsewhere, pod] = [fabric.namespace()?, fabric.namespace()?, fabric.namespace()?];
    node.veth("underlay", &End { namespace: &elsewhere, name: "underlay" }, 1500)?;
    // Wide enough for every VTEP to be a neighbour.
    node.address("underlay", VTEP, 16)?;

    let agent = Agent::new()?;
    manifests::write(agent.manifests(), VTEP, &members)?;
    manifests::write_attached(agent.manifests(), &attached)?;
    let agent = agent.start(&node)?;
    agent.await_ready(PATIENCE)?;
    agent.attach(&pod, &attached)?;

    let tables = KernelTables::open(agent.pins()).context("reading the agent's tables")?;
    let held = || -> Result<[u8; 6]> {
        let found = tables.endpoint(attached.vpc, IpAddr::V4(attached.address));
        let found = found.map_err(|source| Error::Tables { what: "reading the agent's tables".into(), source })?;
        Ok(found.map_or([0; 6], |endpoint| endpoint.mac))
    };
    let mut times = Vec::new();
    for round in 1..=ROUNDS {
        let wanted = ours::Member { mac: [2, 9, 9, 9, 9, round], ..attached };
        let written = manifests::prepare_attached(agent.manifests(), &wanted)?;
        let start = Instant::now();
        written.put()?;
        while held()? != wanted.mac {
            if start.elapsed() > PATIENCE {
                return Err(Error::Missing("change of a manifest in the kernel".into()));
            }
            thread::yield_now();
        }
        times.push(start.elapsed().as_secs_f64() * 1e3);
        agent.await_ready(PATIENCE)?;
    }
    let resident = agent.resident()?;
    let row = |name: &str, value, unit, goal| Row {
        name: name.into(),
        value,
        unit,
        noise: None,
        goal: Some(Bound::AtMost(goal)),
        detail: String::new(),
    };
    Ok(vec![
        row(MEMORY, resident as f64 / f64::from(1 << 20), "MiB", 64.0),
        row(CHANGE, median(times).unwrap_or(f64::NAN), "ms", 5.0),
    ])
}
