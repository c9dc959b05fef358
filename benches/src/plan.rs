//! The operator's plan at the size of a large cluster: when there is nothing to do, and at each step of a Pod's start.

use std::hint::black_box;
use std::time::Duration;

use juneau_operator::plan::{Config, Memory, Plan, plan};
use juneau_operator::sink::Objects;
use juneau_operator::view::{Kind, Object};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::cpu;
use crate::error::{Context, Error, Result};
use crate::namespace::Fabric;
use crate::report::{Bound, Row, progress};
use crate::rounds::Effort;
use crate::statistics::median;

const FIRST: &str = "plan of 10 000 new Pods in 100 VPCs";
const IDLE: &str = "plan, nothing to do, 10 000 endpoints and 100 VPCs";
const STEP: &str = "plan, a step of one Pod's start, at that size";
const ANEW: &str = "plan, nothing to do, at that size, nothing remembered";
/// Names of the rows.
pub const NAMES: [&str; 4] = [FIRST, IDLE, STEP, ANEW];

const VPCS: u32 = 100;
const ENDPOINTS: u32 = 10_000;
const NODES: u32 = 100;
const ROUNDS: u32 = 15;
/// Goal for one plan, in milliseconds.
const GOAL: f64 = 50.0;
/// More plans than this one after the other mean that they do not come to an end.
const STEPS: usize = 60;

/// Takes the figures.
///
/// # Errors
/// When the operator does not come to an end.
pub fn run(_: &Fabric, effort: Effort) -> Result<Vec<Row>> {
    std::thread::scope(|scope| {
        let work = || {
            cpu::pin(effort.cpu)?;
            measure()
        };
        scope.spawn(work).join().map_err(|_| Error::Thread("planning".into())).flatten()
    })
}

fn measure() -> Result<Vec<Row>> {
    let mut cluster = Cluster::new()?;
    cluster.networks()?;
    cluster.settle(&mut Vec::new())?;
    for number in 0..ENDPOINTS {
        cluster.pod(number)?;
    }
    let mut first = Vec::new();
    cluster.settle(&mut first)?;
    let endpoints = cluster.objects.view().network_endpoints.len();
    if endpoints != ENDPOINTS as usize {
        return Err(Error::NotOurs(format!("{endpoints} endpoints of {ENDPOINTS} were planned")));
    }
    progress(format!("plan: {endpoints} endpoints after {} plans", first.len()));

    let idle: Vec<f64> = (0..ROUNDS).map(|_| Ok(cluster.timed()?.0)).collect::<Result<_>>()?;
    let anew: Vec<f64> = (0..ROUNDS).map(|_| cluster.timed_anew()).collect::<Result<_>>()?;
    let mut steps = Vec::new();
    let mut plans = 0;
    for number in 0..ROUNDS {
        cluster.pod(ENDPOINTS + number)?;
        let mut times = Vec::new();
        cluster.settle(&mut times)?;
        // The last one found nothing to do.
        times.pop();
        plans = times.len();
        steps.append(&mut times);
    }
    let row = |name: &str, value: Option<f64>, goal: Option<f64>, detail: String| Row {
        name: name.into(),
        value: value.unwrap_or(f64::NAN),
        unit: "ms",
        noise: None,
        goal: goal.map(Bound::AtMost),
        detail,
    };
    let slowest = steps.iter().copied().fold(0.0, f64::max);
    Ok(vec![
        row(FIRST, first.first().copied(), None, format!("the first of {} plans", first.len())),
        row(IDLE, median(idle), Some(GOAL), String::new()),
        row(STEP, median(steps), Some(GOAL), format!("{plans} plans a Pod, the slowest of all {slowest:.1} ms")),
        row(ANEW, median(anew), None, "after a change of a Node, Namespace, Vpc or Subnet".into()),
    ])
}

/// A cluster in memory, and the operator's plans for it.
struct Cluster {
    objects: Objects,
    config: Config,
    now: Timestamp,
    memory: Memory,
}

impl Cluster {
    fn new() -> Result<Self> {
        // Waiting for what users or watches may still bring is no part of a plan's cost.
        let config = Config { main_table_grace: Duration::ZERO, settle: Duration::ZERO, ..Config::default() };
        let now = Timestamp::from_second(1_800_000_000);
        let now = now.map_err(|error| Error::NotOurs(format!("a time: {error}")))?;
        Ok(Self { objects: Objects::new(), config, now, memory: Memory::default() })
    }

    fn put(&mut self, kind: Kind, document: Value) -> Result<()> {
        let object = Object::from_json(kind, document).map_err(std::io::Error::from).context("making an object")?;
        self.objects.put(object);
        Ok(())
    }

    /// Nodes, Vpcs, and for each a Namespace and a Subnet, with the same prefix everywhere.
    fn networks(&mut self) -> Result<()> {
        for number in 0..NODES {
            let address = format!("192.0.2.{number}");
            let status = json!({"addresses": [{"type": "InternalIP", "address": address}]});
            self.put(Kind::Node, json!({"metadata": {"name": node(number)}, "status": status}))?;
        }
        for number in 0..VPCS {
            let metadata = json!({"name": tenant(number), "labels": {"tenant": tenant(number)}, "generation": 1});
            let allowed = json!({"matchLabels": {"tenant": tenant(number)}});
            let subnet = json!({"vpc": tenant(number), "cidr": "10.0.0.0/16"});
            self.put(Kind::Namespace, json!({"metadata": metadata}))?;
            self.put(Kind::Vpc, json!({"metadata": metadata, "spec": {"allowedNamespaces": allowed}}))?;
            self.put(Kind::Subnet, json!({"metadata": metadata, "spec": subnet}))?;
        }
        Ok(())
    }

    fn pod(&mut self, number: u32) -> Result<()> {
        let namespace = tenant(number % VPCS);
        let annotations = json!({"juneau.loutres.me/subnet": namespace});
        let metadata = json!({"name": format!("pod-{number}"), "namespace": namespace, "annotations": annotations});
        let spec = json!({"nodeName": node(number / VPCS % NODES), "containers": []});
        self.put(Kind::Pod, json!({"metadata": metadata, "spec": spec}))
    }

    /// How long a plan takes a processor that remembers nothing, in milliseconds.
    fn timed_anew(&self) -> Result<f64> {
        let start = cpu::thread_time()?;
        black_box(plan(black_box(self.objects.view()), &self.config, self.now));
        Ok((cpu::thread_time()? - start).as_secs_f64() * 1e3)
    }

    /// One plan and how long it took a processor, in milliseconds.
    fn timed(&mut self) -> Result<(f64, Plan)> {
        let start = cpu::thread_time()?;
        let planned = black_box(self.memory.plan(black_box(self.objects.view()), &self.config, self.now));
        Ok(((cpu::thread_time()? - start).as_secs_f64() * 1e3, planned))
    }

    /// Plans and carries out until nothing is left to do; the time of each plan.
    fn settle(&mut self, times: &mut Vec<f64>) -> Result<()> {
        for _ in 0..STEPS {
            let (time, planned) = self.timed()?;
            times.push(time);
            if planned.changes.is_empty() {
                return Ok(());
            }
            for change in &planned.changes {
                let made = self.objects.apply(change, self.now);
                made.map_err(|refusal| Error::NotOurs(format!("{change}: {refusal}")))?;
            }
        }
        Err(Error::NotOurs(format!("something is left to do after {STEPS} plans")))
    }
}

fn tenant(number: u32) -> String {
    format!("tenant-{number}")
}

fn node(number: u32) -> String {
    format!("node-{number}")
}
