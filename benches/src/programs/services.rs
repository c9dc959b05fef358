//! What a Service costs over a direct way, by test runs: each packet of a flow, its first one, and how many there are.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::stage::{Devices, PORT, Packet, Stage};
use crate::cpu;
use crate::error::Result;
use crate::namespace::Fabric;
use crate::ours::{Cluster, Member};
use crate::report::{Bound, Row};
use crate::rounds::Effort;
use crate::statistics::median;

const ADDRESS: &str = "program: hit with an address translated, above a hit";
const BOTH: &str = "program: hit with address and port translated, above a hit";
const FIRST: &str = "program: first packet of a flow to a Service, above a direct one";
const SCALE: &str = "program: first packet to a Service of 20 000, over one of 10";
/// Names of the rows.
pub const NAMES: [&str; 4] = [ADDRESS, BOTH, FIRST, SCALE];

/// Packets of each flow.
const HITS: u32 = 50_000;
/// New flows of each kind.
const FLOWS: u16 = 20_000;
/// Source ports of direct flows begin here, those of flows to Services above all of these: two flows that differ in
/// their destination alone would want one key for their answers.
const DIRECT: u16 = 1_000;
const THROUGH: u16 = 30_000;

const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The port of the Service whose backend has another.
const OTHER_PORT: u16 = 80;

/// Adds so many Services of the first pair's VPC. Those that are asked come last.
fn services(count: u32) -> impl Fn(&mut Cluster, &[Member]) -> Result<()> {
    move |cluster, members| {
        let [client, backend, ..] = members else { return Ok(()) };
        let target = SocketAddrV4::new(backend.address, PORT);
        for n in 2..count {
            let address = Ipv4Addr::from(SERVICE.to_bits() + 0x100 + n);
            cluster.serve(client.vpc, address, PORT, target)?;
        }
        cluster.serve(client.vpc, SERVICE, PORT, target)?;
        cluster.serve(client.vpc, SERVICE, OTHER_PORT, target)
    }
}

/// Takes the figures.
///
/// # Errors
/// When the programs cannot be loaded, or do not do what is measured.
pub fn run(fabric: &Fabric, effort: Effort) -> Result<Vec<Row>> {
    let devices = Devices::new(fabric, 1)?;
    let few = devices.stage_with(1, services(10))?;
    let many = devices.stage_with(1, services(20_000))?;
    let direct = |stage: &Stage, port: u16| stage.packet(0, port, super::stage::Direction::Forth);
    let through = |stage: &Stage, port: u16, to: u16| stage.packet_to(0, port, (SERVICE, to));
    let mut hits = [Vec::new(), Vec::new(), Vec::new()];
    let mut firsts = [Vec::new(), Vec::new(), Vec::new()];
    devices.run(|| {
        cpu::pin(effort.cpu)?;
        let packets = [direct(&few, 60_000)?, through(&few, 60_001, PORT)?, through(&few, 60_002, OTHER_PORT)?];
        for packet in &packets {
            few.run(packet, 1)?;
            few.expect_hit(packet)?;
        }
        // One at a time: what a run translated is no packet of the Pod's any more.
        for _ in 0..HITS {
            for (packet, list) in packets.iter().zip(&mut hits) {
                list.push(nanoseconds(&few, packet)?);
            }
        }
        for flow in 0..FLOWS {
            let new = [
                (&few, direct(&few, DIRECT + flow)?),
                (&few, through(&few, THROUGH + flow, PORT)?),
                (&many, through(&many, THROUGH + flow, PORT)?),
            ];
            for ((stage, packet), list) in new.iter().zip(&mut firsts) {
                list.push(nanoseconds(stage, packet)?);
            }
        }
        Ok(())
    })?;
    let of = |values: &[f64]| median(values.iter().copied()).unwrap_or(f64::NAN);
    let [hit, address, both] = hits.each_ref().map(|values| of(values));
    let [first, service, large] = firsts.each_ref().map(|values| of(values));
    let row = |name: &str, value, unit, goal, detail| Row {
        name: name.into(),
        value,
        unit,
        noise: None,
        goal: Some(Bound::AtMost(goal)),
        detail,
    };
    Ok(vec![
        row(ADDRESS, address - hit, "ns", 20.0, format!("{address:.0} − {hit:.0} ns")),
        row(BOTH, both - hit, "ns", 35.0, format!("{both:.0} − {hit:.0} ns")),
        row(FIRST, service - first, "ns", 150.0, format!("{service:.0} − {first:.0} ns, {FLOWS} flows each")),
        row(SCALE, large / service, "", 1.02, format!("{large:.0} / {service:.0} ns")),
    ])
}

fn nanoseconds(stage: &Stage, packet: &Packet) -> Result<f64> {
    Ok(stage.run(packet, 1)?.as_nanos() as f64)
}
