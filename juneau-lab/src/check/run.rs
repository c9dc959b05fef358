//! Carries a plan out: gives every Pod's responder its probes, all at once, then asks all of them what they saw.

use super::{Expected, Plan, Report, judge};
use crate::error::{Context, Result};
use crate::responder::{Order, ProbeOrder, ProbeReport, Sighting};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::thread;
use std::time::Duration;

/// How long an expected answer may take. Long, for slow machines: it is over when the answer is there.
const ANSWER: Duration = Duration::from_secs(5);

/// How long silence is listened to.
const SILENCE: Duration = Duration::from_millis(900);

/// A Pod that takes part: the way to its responder, or why there is none.
pub type Subject<W> = std::result::Result<W, String>;

/// Runs a check. `call` gives an order to the responder at the end of a way, and waits so long for what came of it.
///
/// # Errors
/// When no random number can be had; Pods that cannot be asked are part of the report.
pub fn run<W: Sync>(
    plan: &Plan,
    subjects: &BTreeMap<String, Subject<W>>,
    call: impl Fn(&W, &Order, Duration) -> std::result::Result<Value, String> + Sync,
) -> Result<Report> {
    let check = random()?;
    let mut absent: BTreeMap<String, String> =
        subjects.iter().filter_map(|(pod, subject)| Some((pod.clone(), subject.as_ref().err()?.clone()))).collect();
    let ways: BTreeMap<&String, &W> =
        subjects.iter().filter_map(|(pod, subject)| Some((pod, subject.as_ref().ok()?))).collect();

    let mut outcomes = BTreeMap::new();
    let timeout = ANSWER + Duration::from_secs(5);
    for (pod, answer) in ask::<_, Vec<ProbeReport>>(&ways, timeout, &call, |pod| Order::Probe(orders(plan, check, pod)))
    {
        match answer {
            Ok(reports) => outcomes.extend(reports.into_iter().map(|report| (index(report.id), report.outcome))),
            Err(error) => drop(absent.insert(pod, error)),
        }
    }
    let mut sightings: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    for (pod, answer) in ask::<_, Vec<Sighting>>(&ways, Duration::from_secs(5), &call, |_| Order::Seen(check)) {
        match answer {
            Ok(seen) => {
                for Sighting { id, .. } in seen {
                    sightings.entry(index(id)).or_default().insert(pod.clone());
                }
            }
            Err(error) => drop(absent.insert(pod, error)),
        }
    }
    Ok(judge(plan, &outcomes, &sightings, absent))
}

fn orders(plan: &Plan, check: u32, pod: &str) -> Vec<ProbeOrder> {
    plan.probes
        .iter()
        .filter(|probe| probe.from == pod)
        .map(|probe| {
            let patience = match probe.expected {
                Expected::Answer(_) => ANSWER,
                Expected::Silence => SILENCE,
            };
            ProbeOrder {
                id: u64::from(check) << 32 | u64::from(probe.index),
                protocol: probe.protocol,
                address: probe.to,
                patience: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
            }
        })
        .collect()
}

/// Asks all responders at once.
fn ask<W: Sync, T: serde::de::DeserializeOwned + Send>(
    ways: &BTreeMap<&String, &W>,
    timeout: Duration,
    call: &(impl Fn(&W, &Order, Duration) -> std::result::Result<Value, String> + Sync),
    order: impl Fn(&str) -> Order,
) -> Vec<(String, std::result::Result<T, String>)> {
    thread::scope(|scope| {
        let asked: Vec<_> = ways
            .iter()
            .map(|(pod, way)| {
                let (order, way) = (order(pod), *way);
                let asking = move || {
                    let answer = call(way, &order, timeout)?;
                    serde_json::from_value(answer).map_err(|error| format!("its answer is none: {error}"))
                };
                ((*pod).clone(), scope.spawn(asking))
            })
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, std::result::Result<T, String>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        asked.into_iter().map(|(pod, thread)| (pod, join(thread))).collect()
    })
}

fn index(id: u64) -> u32 {
    (id & 0xffff_ffff) as u32
}

/// A number by which a check tells its probes from those of others.
fn random() -> Result<u32> {
    let mut bytes = [0; 4];
    let source = "/dev/urandom";
    std::fs::File::open(source)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context(|| format!("reading {source}"))?;
    Ok(u32::from_ne_bytes(bytes))
}
