//! What must be the same on both sides.

use std::collections::BTreeMap;
use std::fmt::Write;

use juneau_bpf::{Counters, Flows, Run};
use juneau_core::flow::FlowRead;
use juneau_core::layout::{DEVICE_REFUSED, FROM_OVERLAY, FROM_POD, Flow, FlowKey};
use juneau_core::pipeline::{self, Outcome, Pipeline};
use juneau_core::verdict::{Action, Hook};
use zerocopy::IntoBytes;

/// Bytes for people.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Verdict and bytes.
pub fn packet(run: &Run, outcome: &Outcome) -> Result<(), String> {
    let verdict = run.verdict.decode().ok_or_else(|| format!("unknown numbers in {:?}", run.verdict))?;
    if verdict.action == Action::Pass && outcome.verdict.action == Action::Pass {
        return if run.returned == -1 { Ok(()) } else { Err(format!("passed with {}", run.returned)) };
    }
    if verdict != outcome.verdict {
        return Err("verdicts differ".to_owned());
    }
    let expected = match verdict.action {
        // TC_ACT_SHOT, TC_ACT_REDIRECT.
        Action::Drop => 2,
        _ => 7,
    };
    if run.returned != expected {
        return Err(format!("returned {} with {:?}", run.returned, verdict.action));
    }
    match verdict.action {
        Action::Drop => Ok(()),
        // The neighbour writes the outer addresses.
        Action::Encap if run.packet.get(12..) == outcome.frame.get(12..) => Ok(()),
        Action::Encap => Err("encapsulated bytes differ".to_owned()),
        _ if run.packet == outcome.frame => Ok(()),
        _ => Err("bytes differ".to_owned()),
    }
}

fn masked(flow: &Flow) -> Flow {
    Flow { tag: 0, epoch: 0, tag_low: 0, tag_last: 0, ..*flow }
}

/// First fragments, path MTUs and clients' backends.
pub fn learned(kernel: [&[(Vec<u8>, Vec<u8>)]; 3], reference: &Pipeline) -> Result<(), String> {
    let bytes = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
    let fragments: BTreeMap<_, _> =
        reference.state.fragments().iter().map(|(key, value)| bytes(key.as_bytes(), value.as_bytes())).collect();
    let pmtus: BTreeMap<_, _> =
        reference.state.pmtus().iter().map(|(key, value)| bytes(&key.octets(), value.as_bytes())).collect();
    let clients: BTreeMap<_, _> =
        reference.state.affinities().iter().map(|(key, value)| bytes(key.as_bytes(), value.as_bytes())).collect();
    for (name, held, expected) in
        [("first fragments", kernel[0], fragments), ("path MTUs", kernel[1], pmtus), ("clients", kernel[2], clients)]
    {
        let held: BTreeMap<_, _> = held.iter().cloned().collect();
        if held != expected {
            return Err(format!("{name}: programs {held:?}\nreference {expected:?}"));
        }
    }
    Ok(())
}

/// Flow entries, the VPCs' counts.
pub fn flows(kernel: &Flows, reference: &Pipeline) -> Result<(), String> {
    let kernel_flows: BTreeMap<FlowKey, Flow> =
        kernel.dump().map_err(|e| e.to_string())?.iter().map(|(key, flow)| (*key, masked(flow))).collect();
    let expected: BTreeMap<FlowKey, Flow> = reference.flows.iter().map(|(key, flow)| (*key, masked(flow))).collect();
    for (key, flow) in &expected {
        match kernel_flows.get(key) {
            Some(held) if held == flow => {}
            Some(held) => return Err(format!("flow {key:?}\nprograms  {held:?}\nreference {flow:?}")),
            None => return Err(format!("flow {key:?} is only in the reference: {flow:?}")),
        }
    }
    if let Some((key, flow)) = kernel_flows.iter().find(|(key, _)| !expected.contains_key(key)) {
        return Err(format!("flow {key:?} is only in the kernel: {flow:?}"));
    }
    for index in [0, 1] {
        let (held, expected) =
            (kernel.vpc_state(index).map_err(|e| e.to_string())?, reference.flows.vpc_state(index).unwrap_or_default());
        if held != expected {
            return Err(format!("VPC {index}: programs {held:?}, reference {expected:?}"));
        }
    }
    Ok(())
}

/// Every counter.
pub fn counters(kernel: &Counters, reference: &pipeline::Counters) -> Result<(), String> {
    let exits: BTreeMap<_, _> = kernel
        .exits()
        .map_err(|e| e.to_string())?
        .into_iter()
        .filter(|exit| exit.hook != Hook::Cgroup)
        .map(|exit| ((exit.hook, exit.reason, exit.answered), exit.packets))
        .collect();
    if exits != reference.exits {
        return Err(format!("exits: programs {exits:?}\nreference {:?}", reference.exits));
    }
    let mut traffic = BTreeMap::new();
    for count in kernel.traffic().map_err(|e| e.to_string())? {
        for (direction, value) in [(FROM_POD, count.from_pod), (FROM_OVERLAY, count.from_overlay)] {
            if value.packets != 0 {
                traffic.insert((count.vpc_index, direction), value);
            }
        }
    }
    if traffic != reference.traffic {
        return Err(format!("traffic: programs {traffic:?}\nreference {:?}", reference.traffic));
    }
    let devices: BTreeMap<_, _> = kernel
        .devices()
        .map_err(|e| e.to_string())?
        .into_iter()
        .filter(|(cause, packets)| *packets != 0 && *cause != DEVICE_REFUSED)
        .collect();
    if devices != reference.devices {
        return Err(format!("devices: programs {devices:?}\nreference {:?}", reference.devices));
    }
    Ok(())
}
