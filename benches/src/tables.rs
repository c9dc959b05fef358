//! From the model to tables to maps, at the size of a large cluster; and what the verifier has to walk through.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

use juneau_core::id::MacAddr;
use juneau_core::model::Model;
use juneau_core::tables::{Diff, TablesMut};

use crate::cpu;
use crate::error::{Context, Error, Result};
use crate::namespace::Fabric;
use crate::ours::{self, Cluster};
use crate::peers::POD_MTU;
use crate::report::{Bound, Row};
use crate::rounds::Effort;
use crate::statistics::median;

const COMPILE: &str = "model → tables, 10 000 endpoints and 100 VPCs";
const CHANGE: &str = "an attached Pod's change, model to map, at that size";
const VERIFIED: &str = "verified instructions per program, the most on this kernel";
/// Names of the rows.
pub const NAMES: [&str; 3] = [COMPILE, CHANGE, VERIFIED];

const VPCS: u32 = 100;
const ENDPOINTS: u32 = 10_000;
/// As many as VPCs: each has an endpoint here.
const NODES: u32 = 100;
const ROUNDS: usize = 15;

/// Takes the figures.
///
/// # Errors
/// When our programs or tables cannot be made.
pub fn run(fabric: &Fabric, effort: Effort) -> Result<Vec<Row>> {
    let members = ours::spread(VPCS, ENDPOINTS, NODES);
    let mut cluster = Cluster::new(Ipv4Addr::new(192, 168, 0, 1), POD_MTU, &members)?;
    let node = fabric.namespace()?;
    let dataplane = ours::open(&node, 1, 1, &cluster)?;
    let most = dataplane.verified_instructions().max_by_key(|(_, count)| *count);
    let (program, verified) = most.ok_or_else(|| Error::Missing("program of ours".into()))?;

    let mut tables = dataplane.tables().context("our tables")?;
    let generations = dataplane.generations().context("our generations")?;
    let mut current = cluster.tables()?;
    let (mut compilations, mut changes) = (Vec::new(), Vec::new());
    let mut round = |number: u8| -> Result<()> {
        let start = Instant::now();
        black_box(cluster.tables()?);
        compilations.push(milliseconds(start));

        change(&mut cluster.model, number)?;
        let start = Instant::now();
        let wanted = cluster.tables()?;
        let diff = Diff::between(&current, &wanted);
        tables.apply_diff(&diff).map_err(|source| Error::Tables { what: "changing our tables".into(), source })?;
        generations.advance(diff.generations.iter().copied()).context("moving generations")?;
        changes.push(milliseconds(start));
        if diff.is_empty() {
            return Err(Error::NotOurs("a change of the model changed no table".into()));
        }
        current = wanted;
        Ok(())
    };
    std::thread::scope(|scope| {
        let work = || {
            cpu::pin(effort.cpu)?;
            (1..=ROUNDS as u8).try_for_each(&mut round)
        };
        scope.spawn(work).join().map_err(|_| Error::Thread("compiling".into())).flatten()
    })?;
    let row = |name: &str, value, unit, goal, detail| Row {
        name: name.into(),
        value,
        unit,
        noise: None,
        goal: Some(Bound::AtMost(goal)),
        detail,
    };
    let middle = |times: &[f64]| median(times.iter().copied()).unwrap_or(f64::NAN);
    Ok(vec![
        row(COMPILE, middle(&compilations), "ms", 20.0, String::new()),
        row(CHANGE, middle(&changes), "ms", 5.0, "compile, compare, apply, move generations".into()),
        row(VERIFIED, f64::from(verified), "", 20_000.0, program.to_owned()),
    ])
}

/// Gives one endpoint of this node another MAC address.
fn change(model: &mut Model, number: u8) -> Result<()> {
    let endpoint = model.endpoints.values_mut().find(|endpoint| endpoint.node == ours::HERE);
    let endpoint = endpoint.ok_or_else(|| Error::Missing("endpoint of this node".into()))?;
    endpoint.mac =
        MacAddr::new([2, 9, 9, 9, 9, number]).map_err(|error| Error::NotOurs(format!("a MAC address: {error}")))?;
    Ok(())
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
