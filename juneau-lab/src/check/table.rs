//! A report as text for people. Pure.

use super::{Cell, Expected, Report};
use crate::cluster::Cluster;
use crate::responder::{Outcome, Protocol};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Failed cells that are told one by one.
const TOLD: usize = 20;

/// The table: one block a VPC, one line a source, one column an address. Each cell shows the protocols by their first
/// letters: `I T U` got the right answer, `· · ·` nothing, each as expected; anything else is marked with `!` and told
/// below.
#[must_use]
pub fn render(cluster: &Cluster, report: &Report) -> String {
    let mut out = String::new();
    let mut by_vpc: BTreeMap<&str, BTreeMap<(Ipv4Addr, &str), Vec<&Cell>>> = BTreeMap::new();
    for cell in &report.cells {
        let Some(pod) = cluster.pods.get(&cell.from) else { continue };
        let (Some(vpc), Some(address)) = (&pod.vpc, pod.address) else { continue };
        by_vpc.entry(vpc).or_default().entry((address, &cell.from)).or_default().push(cell);
    }
    for (vpc, rows) in &by_vpc {
        block(&mut out, cluster, vpc, rows);
    }
    tell_failures(&mut out, report);
    summary(&mut out, report);
    out
}

fn block(out: &mut String, cluster: &Cluster, vpc: &str, rows: &BTreeMap<(Ipv4Addr, &str), Vec<&Cell>>) {
    let mut columns: Vec<Ipv4Addr> = rows.values().flatten().map(|cell| cell.to).collect();
    columns.sort_unstable();
    columns.dedup();
    let owner = |address: &Ipv4Addr| {
        let found =
            cluster.pods.iter().find(|(_, pod)| pod.vpc.as_deref() == Some(vpc) && pod.address == Some(*address));
        found.map_or_else(|| "(not here)".to_owned(), |(name, pod)| format!("{name} @{}", pod.node))
    };
    let headings: Vec<(String, String)> = columns.iter().map(|to| (to.to_string(), owner(to))).collect();
    let widths: Vec<usize> =
        headings.iter().map(|(address, name)| address.chars().count().max(name.chars().count()).max(7)).collect();
    let sources: Vec<String> = rows
        .keys()
        .map(|(address, name)| {
            let node = cluster.pods.get(*name).map_or("?", |pod| pod.node.as_str());
            format!("{name} @{node}  {address}")
        })
        .collect();
    let title = format!("VPC {vpc}: from");
    let first = sources.iter().map(|source| source.chars().count()).max().unwrap_or(0).max(title.chars().count());
    let line = |out: &mut String, head: &str, cells: Vec<String>| {
        let mut text = format!("{head:first$}");
        for (cell, width) in cells.iter().zip(&widths) {
            // Writing to a string does not fail.
            write!(text, "  {cell:width$}").ok();
        }
        writeln!(out, "{}", text.trim_end()).ok();
    };
    line(out, &title, headings.iter().map(|(address, _)| address.clone()).collect());
    line(out, "", headings.iter().map(|(_, name)| name.clone()).collect());
    for (source, cells) in sources.iter().zip(rows.values()) {
        let shown = columns.iter().map(|to| mark(cells.iter().filter(|cell| cell.to == *to).copied())).collect();
        line(out, source, shown);
    }
    out.push('\n');
}

/// `I T U`, `· · ·`, or what is not as expected with an exclamation mark behind it.
fn mark<'a>(cells: impl Iterator<Item = &'a Cell>) -> String {
    let mut words = Vec::new();
    for cell in cells {
        let letter = match (&cell.outcome, cell.protocol) {
            (Outcome::Answered { .. }, Protocol::Icmp) => "I",
            (Outcome::Answered { .. }, Protocol::Tcp) => "T",
            (Outcome::Answered { .. }, Protocol::Udp) => "U",
            (Outcome::Silent | Outcome::Refused(_), _) => "·",
        };
        words.push(if cell.ok { letter.to_owned() } else { format!("{letter}!") });
    }
    if words.is_empty() { "itself".to_owned() } else { words.join(" ") }
}

fn tell_failures(out: &mut String, report: &Report) {
    for (pod, reason) in &report.absent {
        writeln!(out, "{pod} took no part: {reason}").ok();
    }
    let failed: Vec<&Cell> = report.cells.iter().filter(|cell| !cell.ok).collect();
    for cell in failed.iter().take(TOLD) {
        let expected = match &cell.expected {
            Expected::Answer(pod) => format!("an answer of {pod}"),
            Expected::Silence => "silence".to_owned(),
        };
        let seen = match &cell.outcome {
            Outcome::Answered { by: Some(by), .. } => format!("an answer of {by}"),
            Outcome::Answered { by: None, .. } => "an answer".to_owned(),
            Outcome::Silent => "no answer".to_owned(),
            Outcome::Refused(reason) => format!("no answer ({reason})"),
        };
        let seen_by: Vec<&str> = cell.seen_by.iter().map(String::as_str).collect();
        let seen_by = if seen_by.is_empty() { "nobody".to_owned() } else { seen_by.join(", ") };
        let (from, to, protocol) = (&cell.from, cell.to, cell.protocol.name());
        writeln!(out, "{from} → {to} {protocol}: expected {expected}; seen {seen}; it reached {seen_by}").ok();
    }
    if failed.len() > TOLD {
        writeln!(out, "and {} more", failed.len() - TOLD).ok();
    }
    if !failed.is_empty() || !report.absent.is_empty() {
        out.push('\n');
    }
}

fn summary(out: &mut String, report: &Report) {
    let silent = report.cells.iter().filter(|cell| cell.expected == Expected::Silence).count();
    let right = report.cells.iter().filter(|cell| cell.ok).count();
    let all = report.cells.len();
    writeln!(out, "I = ICMP, T = TCP, U = UDP answered by the right Pod; · = silence; ! = not as expected").ok();
    let probes = format!("{all} probes, {} expected to be answered and {silent} to be silent", all - silent);
    writeln!(out, "{probes}: {right} of {all} are as expected").ok();
    let foreign = report.cells.iter().filter(|cell| leaked(cell)).count();
    writeln!(out, "{foreign} were seen by a Pod that they were not meant for").ok();
}

fn leaked(cell: &Cell) -> bool {
    cell.seen_by.iter().any(|pod| match &cell.expected {
        Expected::Answer(expected) => pod != expected,
        Expected::Silence => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{judge, plan};
    use crate::cluster::tests::two_tenants;
    use std::collections::BTreeSet;

    type Parts = (BTreeMap<u32, Outcome>, BTreeMap<u32, BTreeSet<String>>);

    fn perfect(plan: &crate::check::Plan) -> Parts {
        let mut parts = Parts::default();
        for probe in &plan.probes {
            let outcome = match &probe.expected {
                Expected::Silence => Outcome::Silent,
                Expected::Answer(pod) => {
                    parts.1.insert(probe.index, [pod.clone()].into());
                    let by = (probe.protocol != Protocol::Icmp).then(|| pod.clone());
                    Outcome::Answered { by, microseconds: 80 }
                }
            };
            parts.0.insert(probe.index, outcome);
        }
        parts
    }

    #[test]
    fn a_table_of_two_tenants() {
        let cluster = two_tenants();
        let plan = plan(&cluster);
        let (outcomes, sightings) = perfect(&plan);
        let text = render(&cluster, &judge(&plan, &outcomes, &sightings, BTreeMap::new()));
        let expected = "\
VPC blue: from               10.0.1.10       10.0.1.99           10.0.2.20
                             blue/a @node-1  blue/only @node-1   blue/b @node-2
blue/a @node-1  10.0.1.10    itself          I T U               I T U
blue/only @node-1  10.0.1.99 I T U           itself              I T U
blue/b @node-2  10.0.2.20    I T U           I T U               itself
";
        let squeeze = |text: &str| {
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(squeeze(&text)[..5], squeeze(expected)[..]);
        assert!(text.contains("· · ·"), "{text}");
        assert!(text.contains("(not here)"), "{text}");
        assert!(!text.contains("!\n"), "{text}");
        assert!(text.ends_with("0 were seen by a Pod that they were not meant for\n"), "{text}");
    }

    #[test]
    fn a_leak_is_told() {
        let cluster = two_tenants();
        let plan = plan(&cluster);
        let (outcomes, mut sightings) = perfect(&plan);
        let silent = plan.probes.iter().find(|probe| probe.expected == Expected::Silence).unwrap();
        sightings.insert(silent.index, ["blue/only".to_owned()].into());
        let report = judge(&plan, &outcomes, &sightings, BTreeMap::new());
        let text = render(&cluster, &report);
        assert!(!report.ok);
        assert!(text.contains("expected silence; seen no answer; it reached blue/only"), "{text}");
        assert!(text.contains("·!"), "{text}");
        assert!(text.ends_with("1 were seen by a Pod that they were not meant for\n"), "{text}");
    }
}
