//! Operator and agents on a real API server: from a Pod to its endpoint, and what it costs to have them; a node full of
//! Pods; and clusters with kubelets.

mod cluster;
mod daemon;
mod full;
mod lab;
mod pods;
mod real;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use juneau_controlplane::Programs;
use serde_json::json;

use crate::error::Result;
use crate::namespace::Fabric;
use crate::ours::mount_pins;
use crate::report::{Bound, Row, Rows, progress};
use crate::statistics::percentile;

use cluster::{Cluster, Inside, NODES};
use daemon::Daemon;
use pods::{Endpoints, Pod};

/// Vpcs of the load.
const VPCS: usize = 3;
/// Subnets of the load, over all Vpcs.
const SUBNETS: usize = 10;
/// Between two Pods: 20 a second.
const PACE: Duration = Duration::from_millis(50);
/// Pods whose bytes and writes are counted.
const COUNTED: usize = 10;
/// Vpcs and endpoints of a large cluster, and the nodes that its Pods are on.
const LARGE: (usize, usize, usize) = (100, 10_000, 100);
/// Longest that all Pods of the large cluster may take.
const PATIENCE: Duration = Duration::from_secs(900);
/// After the last endpoint is ready, until everybody has come to rest.
const SETTLE: Duration = Duration::from_secs(5);

/// How much is done.
struct Effort {
    /// Pods of the load.
    pods: usize,
    /// How long it is watched how nothing happens.
    idle: Duration,
    /// Labs that are brought up.
    labs: usize,
    /// Whether there is a large cluster.
    large: bool,
    /// Pods that are attached on a full node, one after the other.
    more: usize,
    /// Clusters with kubelets that are brought up.
    clusters: usize,
    /// Rounds of Pods on such a cluster and on one with another network.
    rounds: usize,
}

/// A part of what is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// From nothing to the lab on Kubernetes.
    Lab,
    /// From nothing to the table of `make cluster`.
    Cluster,
    /// Pod → Ready on such a cluster, against the plugin ptp.
    Ready,
    /// Operator and agents under load, and idle.
    Load,
    /// A node full of Pods: ADD, the plugin's process, the agent's restart.
    Full,
}

impl Part {
    const ALL: [Self; 5] = [Self::Lab, Self::Cluster, Self::Ready, Self::Load, Self::Full];
}

/// Programs that are measured beside this one. Without one of them its rows are left out.
#[derive(Debug, Clone, clap::Args)]
pub struct Measured {
    /// The lab's program, whose start is measured
    #[arg(long, value_name = "PROGRAM")]
    lab: Option<PathBuf>,
    /// The cluster's program, with images beside it: its start, and Pods on it
    #[arg(long, value_name = "PROGRAM")]
    cluster: Option<PathBuf>,
    /// Where the CNI plugins ptp and host-local are, with which Pods on a cluster are compared
    #[arg(long, value_name = "DIRECTORY")]
    ptp: Option<PathBuf>,
    /// The CNI plugin
    #[arg(long, value_name = "PROGRAM")]
    plugin: Option<PathBuf>,
}

/// Takes the figures of some parts, or of all, as far as their programs are there.
///
/// # Errors
/// When something does not start, or an endpoint does not become ready. `rows` has what was taken before.
pub fn run(quick: bool, only: &[Part], measured: &Measured, rows: &mut Rows) -> Result<()> {
    let effort = if quick {
        Effort { pods: 200, idle: Duration::from_secs(30), labs: 1, large: false, more: 100, clusters: 1, rounds: 10 }
    } else {
        Effort { pods: 600, idle: Duration::from_secs(60), labs: 3, large: true, more: 300, clusters: 3, rounds: 40 }
    };
    let wanted = |part: Part| if only.is_empty() { Part::ALL.contains(&part) } else { only.contains(&part) };
    // The programs of Kubernetes may have to be built.
    let programs = Programs::find_or_build(&mut |line| progress(line))?;
    if let Some(cluster) = &measured.cluster {
        // While everything that others mount is seen here, and the other way round.
        if wanted(Part::Cluster) {
            rows.push(real::warm(cluster, effort.clusters)?);
        }
        if let Some(ptp) = measured.ptp.as_ref().filter(|_| wanted(Part::Ready)) {
            rows.push(real::ready(cluster, ptp, effort.rounds)?);
        }
    }
    mount_pins()?;
    if let Some(lab) = measured.lab.as_ref().filter(|_| wanted(Part::Lab)) {
        rows.push(lab::run(lab, effort.labs)?);
    }
    if !(wanted(Part::Load) || wanted(Part::Full)) {
        return Ok(());
    }
    progress("kubernetes: API server, operator, two nodes");
    let fabric = Fabric::new()?;
    let cluster = Cluster::new(&fabric, &programs)?;
    cluster.run(|inside| {
        let operator = inside.operator()?;
        let mut endpoints = networks(inside)?;
        let mut agents = inside.agents()?;
        let mut load = Load { endpoints: &mut endpoints, inside, made: 0 };
        if wanted(Part::Full)
            && let Some(agent) = agents.first_mut()
        {
            full::run(&fabric, &mut load, agent, measured.plugin.as_deref(), effort.more, rows)?;
        }
        if wanted(Part::Load) {
            measure(&fabric, &mut load, &operator, &agents, &effort, rows)?;
        }
        Ok(())
    })
}

/// Vpcs and Subnets of the load, and what tells of endpoints in them.
fn networks(inside: &Inside<'_>) -> Result<Endpoints> {
    let Inside { runtime, client, .. } = inside;
    runtime.block_on(async {
        for vpc in 0..VPCS {
            pods::network(client, &format!("vpc-{vpc}"), (SUBNETS + VPCS - 1 - vpc) / VPCS).await?;
        }
        pods::await_subnets(client, Duration::from_secs(60)).await?;
        Ok(Endpoints::watch(client.clone()))
    })
}

fn measure(
    fabric: &Fabric,
    load: &mut Load<'_>,
    operator: &Daemon,
    agents: &[Daemon],
    effort: &Effort,
    rows: &mut Rows,
) -> Result<()> {
    let cluster = load.inside.cluster;
    progress(format!("kubernetes: {} Pods, 20 a second", effort.pods));
    load.run("warm", 40, Some(PACE), small)?;
    let times = load.run("load", effort.pods, Some(PACE), small)?;
    rows.extend(latencies("Pod → ready endpoint, 20 Pods a second", &times, Some(150.0)));
    rows.push(memory("operator, resident, beside that load", operator, Some(128.0))?);

    progress("kubernetes: bytes and writes of a Pod's start");
    rows.extend(count(fabric, cluster, load)?);

    progress(format!("kubernetes: idle for {} s", effort.idle.as_secs()));
    thread::sleep(SETTLE);
    rows.extend(idle(cluster, operator, agents, effort.idle)?);
    if effort.large {
        rows.extend(large(load, operator, agents)?);
    }
    Ok(())
}

/// Pods of the load, numbered through.
struct Load<'a> {
    endpoints: &'a mut Endpoints,
    inside: &'a Inside<'a>,
    made: usize,
}

impl Load<'_> {
    /// Makes Pods, waits until their endpoints are ready, and answers how long each took, in milliseconds.
    fn run(
        &mut self,
        name: &str,
        count: usize,
        pace: Option<Duration>,
        place: impl Fn(usize, String) -> Pod,
    ) -> Result<Vec<f64>> {
        let pods: Vec<Pod> = (0..count).map(|number| place(number, format!("{name}-{number}"))).collect();
        self.made += count;
        self.inside.runtime.block_on(async {
            let made = pods::start(&self.inside.client, &pods, pace).await?;
            self.endpoints.await_count(self.made, PATIENCE).await?;
            Ok(self.endpoints.since(&made))
        })
    }
}

/// Where the n-th Pod of the small cluster is: Subnets and nodes in turn.
fn small(number: usize, name: String) -> Pod {
    let vpc = format!("vpc-{}", number % SUBNETS % VPCS);
    let subnet = pods::subnet_name(&vpc, number % SUBNETS / VPCS);
    let node = NODES.iter().cycle().nth(number / SUBNETS % NODES.len()).copied().unwrap_or_default().to_owned();
    Pod { namespace: vpc, name, node, subnet }
}

/// What one Pod's start costs, attachment included: bytes at its own node and at another, and writes.
fn count(fabric: &Fabric, cluster: &Cluster, load: &mut Load<'_>) -> Result<Vec<Row>> {
    // The last writes of the load come after its last endpoint is ready.
    thread::sleep(SETTLE);
    let log = cluster.audit().from_now()?;
    let before = [cluster.received(0)?, cluster.received(1)?];
    let mut held = Vec::new();
    for number in 0..COUNTED {
        let name = format!("counted-{number}");
        load.run(&name, 1, None, |_, name| Pod { node: NODES[0].to_owned(), ..small(number, name) })?;
        let (pod, place) = (fabric.namespace()?, small(number, format!("{name}-0")));
        cluster.attach(0, &place.namespace, &place.name, &pod)?;
        held.push(pod);
    }
    thread::sleep(Duration::from_secs(2));
    let after = [cluster.received(0)?, cluster.received(1)?];
    let writes = Cluster::writes(&log)?;
    let each = |total: f64| total / COUNTED as f64;
    let kilobytes = |node: usize| {
        let (before, after) = (before.get(node).copied(), after.get(node).copied());
        each(after.unwrap_or_default().saturating_sub(before.unwrap_or_default()) as f64) / 1e3
    };
    let row = |name: &str, value, unit, goal: Option<f64>, detail: &str| Row {
        name: name.into(),
        value,
        unit,
        noise: None,
        goal: goal.map(Bound::AtMost),
        detail: detail.into(),
    };
    let counted = "all that arrives at the node, headers and TLS included";
    Ok(vec![
        row("a Pod's start: bytes to its own node", kilobytes(0), "kB", None, counted),
        row("a Pod's start: bytes to another node", kilobytes(1), "kB", None, counted),
        row("a Pod's start: writes", each(writes.len() as f64), "", Some(8.0), &kinds(&writes)),
    ])
}

/// What daemons cost that have nothing to do.
fn idle(cluster: &Cluster, operator: &Daemon, agents: &[Daemon], time: Duration) -> Result<Vec<Row>> {
    let log = cluster.audit().from_now()?;
    let daemons = || std::iter::once(operator).chain(agents);
    let before: Vec<Duration> = daemons().map(Daemon::time).collect::<Result<_>>()?;
    let received = [cluster.received(0)?, cluster.received(1)?];
    let begun = Instant::now();
    thread::sleep(time);
    let after: Vec<Duration> = daemons().map(Daemon::time).collect::<Result<_>>()?;
    let elapsed = begun.elapsed().as_secs_f64();
    let bytes = cluster.received(0)?.saturating_sub(received[0]) as f64 / elapsed;
    let percent: Vec<f64> =
        before.iter().zip(&after).map(|(before, after)| (*after - *before).as_secs_f64() / elapsed * 100.0).collect();
    let (of_operator, of_agents) = percent.split_first().map_or((f64::NAN, &[][..]), |(first, rest)| (*first, rest));
    let of_agents = of_agents.iter().copied().fold(0.0, f64::max);
    let writes = Cluster::writes(&log)?;
    let over = format!("over {} s", time.as_secs());
    let row = |name: &str, value, unit, goal: Option<f64>, detail: String| Row {
        name: name.into(),
        value,
        unit,
        noise: None,
        goal: goal.map(Bound::AtMost),
        detail,
    };
    Ok(vec![
        row("idle: operator, processor", of_operator, "%", Some(0.1), over.clone()),
        row("idle: agent, processor", of_agents, "%", Some(0.1), format!("{over}, the busier of two")),
        row(
            "idle: writes",
            writes.len() as f64,
            "",
            Some(0.0),
            format!("{over}, but for the Lease {}", kinds(&writes)),
        ),
        row("idle: bytes a second to a node", bytes, "B", None, over),
    ])
}

/// The same operator and agents with many objects.
fn large(load: &mut Load<'_>, operator: &Daemon, agents: &[Daemon]) -> Result<Vec<Row>> {
    let (vpcs, endpoints, nodes) = LARGE;
    let Inside { runtime, client, .. } = load.inside;
    progress(format!("kubernetes: {endpoints} endpoints in {vpcs} VPCs on {nodes} nodes"));
    runtime.block_on(async {
        for node in NODES.len()..nodes {
            let metadata = json!({"name": format!("node-{node}")});
            let status = json!({"addresses": [{"type": "InternalIP", "address": format!("172.31.0.{}", node + 20)}]});
            // A Node's status is taken at its creation.
            let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status});
            pods::create(client, "/api/v1/nodes", &object).await?;
        }
        for vpc in 0..vpcs - VPCS {
            pods::network(client, &format!("large-{vpc}"), 1).await?;
        }
        pods::await_subnets(client, Duration::from_secs(60)).await
    })?;
    let place = |number: usize, name: String| {
        let vpc = format!("large-{}", number % (vpcs - VPCS));
        let node = number / (vpcs - VPCS) % nodes;
        let node = NODES.get(node).map_or_else(|| format!("node-{node}"), ToString::to_string);
        Pod { subnet: pods::subnet_name(&vpc, 0), namespace: vpc, name, node }
    };
    let begun = Instant::now();
    load.run("large", endpoints - load.made, None, place)?;
    let seconds = begun.elapsed().as_secs_f64();
    thread::sleep(SETTLE);
    let mut rows = vec![
        Row {
            name: "10 000 Pods at once, until all are ready".into(),
            value: seconds,
            unit: "s",
            noise: None,
            goal: None,
            detail: format!("{:.0} Pods a second", endpoints as f64 / seconds),
        },
        memory("operator, resident, 10 000 endpoints", operator, Some(128.0))?,
    ];
    for agent in agents.iter().take(1) {
        rows.push(memory("agent on watches, resident, 10 000 endpoints", agent, Some(64.0))?);
    }
    let times = load.run("late", 200, Some(PACE), place)?;
    rows.extend(latencies("the same at 10 000 endpoints", &times, None));
    Ok(rows)
}

fn latencies(name: &str, times: &[f64], goal: Option<f64>) -> [Row; 2] {
    let row = |part: f64, what: &str, goal: Option<f64>| Row {
        name: format!("{name}, {what}"),
        value: percentile(times.iter().copied(), part).unwrap_or(f64::NAN),
        unit: "ms",
        noise: None,
        goal: goal.map(Bound::AtMost),
        detail: format!("{} Pods", times.len()),
    };
    [row(0.5, "median", None), row(0.99, "99th percentile", goal)]
}

fn memory(name: &str, daemon: &Daemon, goal: Option<f64>) -> Result<Row> {
    Ok(Row {
        name: name.into(),
        value: daemon.resident()? as f64 / f64::from(1 << 20),
        unit: "MiB",
        noise: None,
        goal: goal.map(Bound::AtMost),
        detail: String::new(),
    })
}

/// How many of each there are, for the reader.
fn kinds(writes: &[String]) -> String {
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    for write in writes {
        *counts.entry(write).or_default() += 1;
    }
    counts.iter().map(|(write, count)| format!("{count} {write}")).collect::<Vec<_>>().join(", ")
}
