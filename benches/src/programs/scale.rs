//! Whether a packet costs more when a node has many VPCs, at the same number of active flows and of endpoints.
//!
//! Frames are put on the devices of the Pods that send, each of a flow that is drawn anew; they pass our program and
//! end in the receiving Pod's stack, which has no socket for them.

use super::stage::{Devices, Direction, Packet, Stage};
use crate::content::Random;
use crate::cpu;
use crate::error::{Error, Result};
use crate::kernel::{Device, FrameSocket};
use crate::namespace::Fabric;
use crate::report::{Bound, Row, progress};
use crate::rounds::Effort;
use crate::statistics::{Series, mean, median, median_ratio};

const ONE: &str = "1 000 VPCs / 2, UDP packet, 1 flow";
const THOUSAND: &str = "1 000 VPCs / 2, UDP packet, 1 000 flows";
const MANY: &str = "1 000 VPCs / 2, UDP packet, 100 000 flows";
/// Names of the rows.
pub const NAMES: [&str; 3] = [ONE, THOUSAND, MANY];

const CASES: [(&str, u32); 3] = [(ONE, 1), (THOUSAND, 1_000), (MANY, 100_000)];
/// Few VPCs come twice, as every base does.
const VPCS: [u32; 3] = [2, 1_000, 2];
/// Pairs of endpoints, of few VPCs or of many.
const PAIRS: u32 = 1_000;
const ROUNDS: usize = 9;
/// Packets in a round.
const PACKETS: u32 = 50_000;

/// Takes the figures.
///
/// # Errors
/// When the programs cannot be loaded, or do not do what is measured.
pub fn run(fabric: &Fabric, effort: Effort) -> Result<Vec<Row>> {
    let devices = Devices::new(fabric, PAIRS)?;
    let mut stages = Vec::new();
    for vpcs in VPCS {
        let stage = devices.stage(vpcs)?;
        let packets = packets(&stage, CASES[2].1)?;
        stages.push((stage, packets));
    }
    let socket = devices.run_among_senders(FrameSocket::new)?;
    let others = cpu::soft_interrupt_threads();
    let mut figures: [[Series; 3]; 3] = Default::default();
    for round in 0..=ROUNDS {
        let order = if round % 2 == 0 { [0, 1, 2] } else { [2, 1, 0] };
        for which in order {
            let (stage, packets) = &stages[which];
            devices.attach(stage)?;
            // The first round makes the flows: a case's are the first of the next one's.
            if round == 0 {
                send(&socket, packets.iter().map(Some))?;
                continue;
            }
            for ((_, flows), figures) in CASES.iter().zip(&mut figures) {
                let time = cost(&socket, stage, &packets[..*flows as usize], (effort.cpu, &others), round as u64)?;
                figures[which].insert(round, time);
            }
        }
        progress(format!("1 000 VPCs: round {round} of {ROUNDS}"));
    }
    let time = |series: &Series| median(series.values().copied()).unwrap_or(f64::NAN);
    Ok(CASES
        .iter()
        .zip(&figures)
        .filter_map(|((name, _), [first, many, second])| {
            let few = mean(&[first, second]);
            Some(Row {
                name: (*name).into(),
                value: median_ratio(many, &few)?,
                unit: "",
                noise: median_ratio(second, first).map(|ratio| (ratio - 1.0).abs()),
                goal: Some(Bound::AtMost(1.05)),
                detail: format!("{:.0} / {:.0} ns", time(many), time(&few)),
            })
        })
        .collect())
}

/// One packet for each flow; flows are spread evenly over the endpoints, and so over the VPCs.
fn packets(stage: &Stage, flows: u32) -> Result<Vec<(Packet, Device)>> {
    (0..flows)
        .map(|flow| {
            let port = u16::try_from(1 + flow / PAIRS).unwrap_or(u16::MAX);
            let packet = stage.packet(flow % PAIRS, port, Direction::Forth)?;
            let device = Device::new(packet.ifindex);
            Ok((packet, device))
        })
        .collect()
}

fn send<'a>(socket: &FrameSocket, packets: impl Iterator<Item = Option<&'a (Packet, Device)>>) -> Result<()> {
    packets.flatten().try_for_each(|(packet, device)| socket.send(device, &packet.frame))
}

/// Processor time of a packet, in nanoseconds; all must be delivered.
fn cost(
    socket: &FrameSocket,
    stage: &Stage,
    packets: &[(Packet, Device)],
    (cpu, others): (usize, &[cpu::ProcessId]),
    seed: u64,
) -> Result<f64> {
    let count = u32::try_from(packets.len()).unwrap_or(u32::MAX);
    let mut random = Random::new(seed);
    let before = stage.delivered()?;
    let work = || -> Result<f64> {
        cpu::pin(cpu)?;
        let spent = || Ok::<_, Error>(cpu::thread_time()? + cpu::time_of(others.iter().copied()));
        let start = spent()?;
        send(socket, (0..PACKETS).map(|_| packets.get(random.below(count) as usize)))?;
        Ok(spent()?.saturating_sub(start).as_nanos() as f64 / f64::from(PACKETS))
    };
    let time = std::thread::scope(|scope| scope.spawn(work).join())
        .map_err(|_| Error::Thread("sending frames".into()))
        .flatten()?;
    let delivered = stage.delivered()? - before;
    if delivered != u64::from(PACKETS) {
        return Err(Error::NotOurs(format!("{PACKETS} packets were sent and {delivered} delivered")));
    }
    Ok(time)
}
