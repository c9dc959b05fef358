//! Carries a plan out: gives every Pod's responder its probes, all at once, then asks all of them what they saw.

use super::{Expected, Plan, Report, judge};
use crate::error::{Context, Result};
use crate::responder::{Order, ProbeOrder, ProbeReport, Sighting, call};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// How long an expected answer may take. Long, for slow machines: it is over when the answer is there.
const ANSWER: Duration = Duration::from_secs(5);

/// How long silence is listened to.
const SILENCE: Duration = Duration::from_millis(900);

/// A Pod that takes part: its responder's socket, or why there is none.
pub type Subject = std::result::Result<PathBuf, String>;

/// Runs a check.
///
/// # Errors
/// When no random number can be had; Pods that cannot be asked are part of the report.
pub fn run(plan: &Plan, subjects: &BTreeMap<String, Subject>) -> Result<Report> {
    let check = random()?;
    let mut absent: BTreeMap<String, String> =
        subjects.iter().filter_map(|(pod, subject)| Some((pod.clone(), subject.clone().err()?))).collect();
    let sockets: BTreeMap<&String, &PathBuf> =
        subjects.iter().filter_map(|(pod, subject)| Some((pod, subject.as_ref().ok()?))).collect();

    let mut outcomes = BTreeMap::new();
    let timeout = ANSWER + Duration::from_secs(5);
    for (pod, answer) in ask::<Vec<ProbeReport>>(&sockets, timeout, |pod| Order::Probe(orders(plan, check, pod))) {
        match answer {
            Ok(reports) => outcomes.extend(reports.into_iter().map(|report| (index(report.id), report.outcome))),
            Err(error) => drop(absent.insert(pod, error.to_string())),
        }
    }
    let mut sightings: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    for (pod, answer) in ask::<Vec<Sighting>>(&sockets, Duration::from_secs(5), |_| Order::Seen(check)) {
        match answer {
            Ok(seen) => {
                for Sighting { id, .. } in seen {
                    sightings.entry(index(id)).or_default().insert(pod.clone());
                }
            }
            Err(error) => drop(absent.insert(pod, error.to_string())),
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
fn ask<T: serde::de::DeserializeOwned + Send>(
    sockets: &BTreeMap<&String, &PathBuf>,
    timeout: Duration,
    order: impl Fn(&str) -> Order,
) -> Vec<(String, Result<T>)> {
    thread::scope(|scope| {
        let asked: Vec<_> = sockets
            .iter()
            .map(|(pod, socket)| {
                let order = order(pod);
                ((*pod).clone(), scope.spawn(move || call(socket, &order, timeout)))
            })
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<T>>| {
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
