//! What was seen, against what was expected. Pure.

use super::{Expected, Plan};
use crate::responder::{Outcome, Protocol};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// One cell of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// The Pod that sent the probe.
    pub from: String,
    /// Where it sent it.
    pub to: Ipv4Addr,
    /// With what.
    pub protocol: Protocol,
    /// What it should have come to.
    pub expected: Expected,
    /// What came back.
    pub outcome: Outcome,
    /// The Pods that saw it, of whichever tenant.
    pub seen_by: BTreeSet<String>,
    /// Whether it is as expected.
    pub ok: bool,
}

/// A check's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Whether every cell is as expected, and every Pod could be asked.
    pub ok: bool,
    /// The cells, in the order of the plan.
    pub cells: Vec<Cell>,
    /// Pods that could not take part, with the reason.
    pub absent: BTreeMap<String, String>,
}

/// Judges a check: `outcomes` and `sightings` are by the probe's number, `absent` are the Pods that could not be asked.
#[must_use]
pub fn judge(
    plan: &Plan,
    outcomes: &BTreeMap<u32, Outcome>,
    sightings: &BTreeMap<u32, BTreeSet<String>>,
    absent: BTreeMap<String, String>,
) -> Report {
    let cells: Vec<Cell> = plan
        .probes
        .iter()
        .map(|probe| {
            let outcome = outcomes
                .get(&probe.index)
                .cloned()
                .unwrap_or_else(|| Outcome::Refused("the probe was not sent".to_owned()));
            let seen_by = sightings.get(&probe.index).cloned().unwrap_or_default();
            let ok = as_expected(&probe.expected, &outcome, &seen_by) && outcomes.contains_key(&probe.index);
            Cell {
                from: probe.from.clone(),
                to: probe.to,
                protocol: probe.protocol,
                expected: probe.expected.clone(),
                outcome,
                seen_by,
                ok,
            }
        })
        .collect();
    // No cell at all shows nothing.
    let ok = absent.is_empty() && !cells.is_empty() && cells.iter().all(|cell| cell.ok);
    Report { ok, cells, absent }
}

fn as_expected(expected: &Expected, outcome: &Outcome, seen_by: &BTreeSet<String>) -> bool {
    match (expected, outcome) {
        (Expected::Answer(pod), Outcome::Answered { by, .. }) => {
            by.as_ref().is_none_or(|by| by == pod) && seen_by.len() == 1 && seen_by.contains(pod)
        }
        // "Refused" is an error of the network's (no route), which says nothing about other tenants.
        (Expected::Silence, Outcome::Silent | Outcome::Refused(_)) => seen_by.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Probe;

    fn one(expected: Expected, protocol: Protocol, outcome: Outcome, seen_by: &[&str]) -> bool {
        let probe = Probe { index: 0, from: "red/a".into(), to: Ipv4Addr::new(10, 0, 2, 20), protocol, expected };
        let sightings = seen_by.iter().map(|pod| (*pod).to_owned()).collect();
        let plan = Plan { probes: vec![probe] };
        judge(&plan, &[(0, outcome)].into(), &[(0, sightings)].into(), BTreeMap::new()).ok
    }

    fn answered(by: Option<&str>) -> Outcome {
        Outcome::Answered { by: by.map(str::to_owned), microseconds: 1 }
    }

    #[test]
    fn an_answer_counts_from_the_right_pod_only() {
        let expected = || Expected::Answer("red/b".into());
        assert!(one(expected(), Protocol::Tcp, answered(Some("red/b")), &["red/b"]));
        assert!(!one(expected(), Protocol::Tcp, answered(Some("blue/b")), &["blue/b"]), "the other tenant's");
        assert!(!one(expected(), Protocol::Tcp, answered(Some("red/b")), &["red/b", "blue/b"]), "leaked as well");
        assert!(!one(expected(), Protocol::Tcp, Outcome::Silent, &[]));
        assert!(!one(expected(), Protocol::Udp, Outcome::Silent, &["red/b"]), "the answer was lost");
        assert!(one(expected(), Protocol::Icmp, answered(None), &["red/b"]), "the kernel gives no name");
        assert!(!one(expected(), Protocol::Icmp, answered(None), &["blue/b"]), "but the sighting does");
        assert!(!one(expected(), Protocol::Icmp, answered(None), &[]), "an answer out of nowhere");
    }

    #[test]
    fn silence_means_that_nobody_saw_it() {
        assert!(one(Expected::Silence, Protocol::Udp, Outcome::Silent, &[]));
        assert!(one(Expected::Silence, Protocol::Udp, Outcome::Refused("no route".into()), &[]));
        assert!(!one(Expected::Silence, Protocol::Udp, Outcome::Silent, &["blue/only"]), "one-way traffic is a leak");
        assert!(!one(Expected::Silence, Protocol::Udp, answered(Some("blue/only")), &["blue/only"]));
    }

    #[test]
    fn nothing_shown_is_nothing_proved() {
        assert!(!judge(&Plan::default(), &BTreeMap::new(), &BTreeMap::new(), BTreeMap::new()).ok);
        let probe = Probe {
            index: 0,
            from: "red/a".into(),
            to: Ipv4Addr::LOCALHOST,
            protocol: Protocol::Udp,
            expected: Expected::Silence,
        };
        let plan = Plan { probes: vec![probe] };
        let report = judge(&plan, &BTreeMap::new(), &BTreeMap::new(), BTreeMap::new());
        assert!(!report.ok, "a probe that was not sent is not silence");
    }
}
