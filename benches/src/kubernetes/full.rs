//! A node with as many Pods as a kubelet takes: what one more costs, the CNI plugin's process, and a new agent.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use libbpf_rs::Link;

use super::cluster::NODES;
use super::daemon::{self, Daemon};
use super::pods::Pod;
use super::{Load, small};
use crate::error::{Context, Error, Result};
use crate::namespace::{Fabric, Namespace};
use crate::report::{Bound, Row, Rows, progress};
use crate::statistics::{median, percentile};

mod plugin;
mod times;

use plugin::Plugin;
use times::Times;

/// Pods on the node while others are attached.
const FULL: usize = 100;
/// Pods on the node when its agent is replaced: as many as a kubelet takes.
const RESTARTED: usize = 110;
/// New agents.
const RESTARTS: usize = 7;
/// Longest that an agent may take to see endpoints that are ready, or to be ready itself.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two questions whether it is.
const POLL: Duration = Duration::from_millis(1);

/// Takes the figures on the first node, whose agent is `agent` before and after. Namespaces of Pods stay until the end: that
/// the kernel takes some down meanwhile is none of an attachment's business.
pub(super) fn run(
    fabric: &Fabric,
    load: &mut Load<'_>,
    agent: &mut Daemon,
    plugin: Option<&Path>,
    more: usize,
    rows: &mut Rows,
) -> Result<()> {
    progress(format!("kubernetes: {RESTARTED} Pods on a node, and {more} that come and go"));
    let place = |number, name| Pod { node: NODES[0].to_owned(), ..small(number, name) };
    load.run("full", RESTARTED, None, place)?;
    load.run("more", more, None, place)?;
    let pods = |name: &str, count: usize| -> Result<Vec<(Pod, Namespace)>> {
        (0..count).map(|number| Ok((place(number, format!("{name}-{number}")), fabric.namespace()?))).collect()
    };
    let full = pods("full", RESTARTED)?;
    let attach =
        |(pod, namespace): &(Pod, Namespace)| load.inside.cluster.attach(0, &pod.namespace, &pod.name, namespace);
    full.iter().take(FULL).try_for_each(attach)?;
    let more = pods("more", more)?;
    one_more(load, &more, plugin, rows)?;
    full.iter().skip(FULL).try_for_each(attach)?;
    restarts(load, agent, rows)?;
    drop(more);
    Ok(())
}

/// What attaching one more costs, one after the other; each goes before the next one comes.
fn one_more(load: &Load<'_>, pods: &[(Pod, Namespace)], plugin: Option<&Path>, rows: &mut Rows) -> Result<()> {
    let cluster = load.inside.cluster;
    let plugin = plugin.map(|program| Plugin::new(program, &daemon::socket(NODES[0])));
    let (mut own, mut programs, mut process, mut status) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (pod, namespace) in pods {
        let before = Times::of(NODES[0])?;
        let took = match &plugin {
            Some(plugin) => plugin.add(pod, namespace)?,
            None => {
                let begun = Instant::now();
                cluster.attach(0, &pod.namespace, &pod.name, namespace)?;
                begun.elapsed()
            }
        };
        let times = Times::of(NODES[0])?.since(&before)?;
        own.push(times.own());
        programs.push(times.programs);
        if let Some(plugin) = &plugin {
            process.push(took.as_secs_f64() * 1e3 - times.whole);
            status.push(plugin.status()?.as_secs_f64() * 1e3);
        }
        cluster.detach(0, &pod.name)?;
    }
    let row = |name: &str, values: &[f64], part: f64, goal: Option<f64>| Row {
        name: name.into(),
        value: percentile(values.iter().copied(), part).unwrap_or(f64::NAN),
        unit: "ms",
        noise: None,
        goal: goal.map(Bound::AtMost),
        detail: format!("{} Pods, beside {FULL}", values.len()),
    };
    rows.push(row("ADD: the agent, but for RCU and objects, 99th percentile", &own, 0.99, Some(20.0)));
    rows.push(row("ADD: the agent, but for RCU and objects, median", &own, 0.5, None));
    rows.push(row("ADD: attaching a program, which is to wait for RCU, median", &programs, 0.5, None));
    if plugin.is_some() {
        let mut of_process =
            row("CNI plugin: the process of an ADD, beyond the agent's time", &process, 0.5, Some(5.0));
        let high = percentile(process.iter().copied(), 0.99).unwrap_or(f64::NAN);
        of_process.detail = format!("median of {}; 99th percentile {high:.3} ms", process.len());
        rows.push(of_process);
        rows.push(row("CNI plugin: STATUS, from start to end, median", &status, 0.5, None));
    }
    Ok(())
}

/// Agents that begin on a node full of Pods, each in the place of one that was killed.
fn restarts(load: &Load<'_>, agent: &mut Daemon, rows: &mut Rows) -> Result<()> {
    let before = links()?;
    let mut times = Vec::new();
    for _ in 0..RESTARTS {
        agent.kill();
        let begun = Instant::now();
        *agent = load.inside.agent(0)?;
        load.inside.await_agent(0, POLL, PATIENCE, |status| status.ready)?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        load.inside.await_agent(0, POLL, PATIENCE, |status| status.ready && status.settled)?;
    }
    let after = links()?;
    if before.len() < RESTARTED {
        return Err(Error::NotOurs(format!("{RESTARTED} Pods are attached by {} links", before.len())));
    }
    let worst = times.iter().copied().fold(0.0, f64::max);
    rows.push(Row {
        name: format!("agent's restart with {RESTARTED} Pods: until it is ready, median"),
        value: median(times).unwrap_or(f64::NAN),
        unit: "ms",
        noise: None,
        goal: Some(Bound::AtMost(500.0)),
        detail: format!("{RESTARTS} restarts, from the process's start; the worst {worst:.0} ms"),
    });
    rows.push(Row {
        name: format!("agent's restart with {RESTARTED} Pods: new links"),
        value: after.difference(&before).count() as f64,
        unit: "",
        noise: None,
        goal: Some(Bound::AtMost(0.0)),
        detail: format!("of {}, by the kernel's numbers", after.len()),
    });
    Ok(())
}

/// The kernel's numbers of the links that the first node's agent has pinned.
fn links() -> Result<BTreeSet<u32>> {
    let folder = daemon::pins(NODES[0]).join("links");
    let entries = fs::read_dir(&folder).context(format!("reading {}", folder.display()))?;
    let mut ids = BTreeSet::new();
    for entry in entries {
        let path = entry.context(format!("reading {}", folder.display()))?.path();
        let what = || format!("reading the link {}", path.display());
        let link = Link::open(&path).context(what())?;
        ids.insert(link.info().context(what())?.id);
    }
    Ok(ids)
}
