//! The daemon's one loop: what changed, what should be, what the kernel holds.
//!
//! Everything is level-triggered. Events only say that it is time to look; a look reads the objects, compiles the
//! tables and writes the difference to what the kernel holds. Requests to attach a Pod go through the same steps with
//! one more attachment, so there is no second way for anything to get into a map.

mod apply;
mod attach;
mod check;
mod debug;
mod explain;
mod failpoint;
mod files;
mod node;
mod node_port;
mod packet;
mod plugin;
mod pods;
mod probes;
mod problems;
mod sample;
mod services;
mod source;
mod sync;
mod waiting;
mod wanted;
mod writes;

use crate::metrics::{AttachTimes, Sample, Stopwatch};
use crate::net::{NetError, Netlink};
use crate::options::Options;
use crate::probes::Registry;
use crate::protocol::{Failure, Method, Status, Underlay};
use crate::server::Call;
use juneau_api::normalise::Normaliser;
use juneau_bpf::failpoint::Failpoints;
use juneau_bpf::{Dataplane, NodeConfig, Sweeper};
use juneau_core::compile::Compiler;
use juneau_core::tables::Tables;
use node::Ways;
use node_port::NodePort;
use pods::Pods;
use problems::Problems;
use serde_json::Value;
pub(crate) use source::Source;
pub(crate) use source::SourceError;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use waiting::Waiting;

/// Devices change in bursts, our own attaching among them, and nothing about them is urgent.
const NETWORK_LATER: Duration = Duration::from_millis(100);
/// Between two passes over the flow table; and after one that found next to nothing.
const SWEEP: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(6));
/// First and longest wait before a failed application is tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// The daemon cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Netlink cannot be used.
    #[error(transparent)]
    Net(#[from] NetError),
}

/// Where requests and hints come from.
#[derive(Debug)]
pub(crate) struct Inputs {
    pub(crate) calls: mpsc::Receiver<Call>,
    pub(crate) scrapes: mpsc::Receiver<oneshot::Sender<Sample>>,
    pub(crate) file_changes: mpsc::Receiver<()>,
    pub(crate) network_changes: mpsc::Receiver<()>,
}

/// The daemon's state.
#[derive(Debug)]
pub(crate) struct Engine {
    options: Options,
    netlink: Netlink,
    source: Source,
    dataplane: Option<Dataplane>,
    /// What the programs in force were loaded with.
    config: Option<NodeConfig>,
    sweeper: Option<Sweeper>,
    underlay: Option<Underlay>,
    ways: Ways,
    node_port: NodePort,
    pods: Pods,
    objects: Normaliser,
    compiler: Compiler,
    /// What the tables hold, as far as we wrote or read it.
    mirror: Tables,
    /// What they held at the start and must keep until every object was read once.
    adopted: Option<Tables>,
    /// The objects were read at least once.
    read: bool,
    /// Nothing was lost to a document that has no good version yet.
    complete: bool,
    /// The objects were read whole at least once, and everything was applied and bumped once after it.
    synced: bool,
    problems: Problems,
    /// Where probes of Pods are found by their tokens.
    probes: Arc<Registry>,
    /// Devices changed in a way that may change tables.
    dirty: bool,
    failpoints: Failpoints,
    /// When manifests were seen to change, so long as nobody has looked since.
    files_seen: Option<Instant>,
    /// Until when nobody looks at them, since somebody just has.
    files_rest: Instant,
    /// The same for devices, addresses and routes.
    network_seen: Option<Instant>,
    /// Nobody has seen to the plugin since the start or the last look at everything.
    install_due: bool,
    /// Requests to attach whose objects are on their way.
    waiting: Vec<Waiting>,
    /// There may be some among them whose objects have come.
    more_waiting: bool,
    retry: Option<Instant>,
    retry_wait: Duration,
    counts: Counts,
}

/// What happened since the start.
#[derive(Debug, Default)]
struct Counts {
    applies: u64,
    failures: u64,
    lag: Duration,
    expired: u64,
    attach: AttachTimes,
}

impl Engine {
    pub(crate) fn new(options: Options, source: Source, probes: Arc<Registry>) -> Result<Self, EngineError> {
        Ok(Self {
            netlink: Netlink::open()?,
            source,
            dataplane: None,
            config: None,
            sweeper: None,
            underlay: None,
            ways: Ways::default(),
            node_port: NodePort::default(),
            pods: Pods::default(),
            objects: Normaliser::new(options.node.as_str()).requiring_binding(options.require_namespace_binding),
            compiler: Compiler::new(),
            mirror: Tables::default(),
            adopted: None,
            read: false,
            complete: false,
            synced: false,
            problems: Problems::default(),
            probes,
            dirty: false,
            failpoints: failpoint::from_environment(),
            files_seen: None,
            files_rest: Instant::now(),
            network_seen: None,
            install_due: true,
            waiting: Vec::new(),
            more_waiting: false,
            retry: None,
            retry_wait: RETRY.0,
            counts: Counts::default(),
            options,
        })
    }

    /// Runs until `stop`. What was programmed stays.
    pub(crate) async fn run(mut self, inputs: Inputs, stop: impl Future<Output = ()>) {
        let Inputs { mut calls, mut scrapes, mut file_changes, mut network_changes } = inputs;
        let mut stop = std::pin::pin!(stop);
        let mut resync = interval(Duration::from_secs(self.options.resync.max(1)));
        resync.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sweep_due = Instant::now();
        loop {
            let files_due = at(self.files_seen.map(|seen| seen.max(self.files_rest)));
            let network_due = at(self.network_seen.map(|seen| seen + NETWORK_LATER));
            let retry_due = at(self.retry);
            let waiting_due = at(self.waiting_until());
            tokio::select! {
                () = &mut stop => return,
                Some(call) = calls.recv() => self.hear(call).await,
                () = waiting_due => {}
                Some(reply) = scrapes.recv() => {
                    let _ = reply.send(self.sample());
                }
                Some(()) = file_changes.recv() => {
                    self.files_seen.get_or_insert_with(Instant::now);
                }
                Some(()) = network_changes.recv() => {
                    self.network_seen.get_or_insert_with(Instant::now);
                }
                () = files_due => {
                    let seen = self.files_seen.take().unwrap_or_else(Instant::now);
                    let begun = Instant::now();
                    self.files_changed(seen).await;
                    // However fast files change, half of the time is for others.
                    self.files_rest = Instant::now() + begun.elapsed();
                }
                () = network_due => {
                    self.network_seen = None;
                    self.network_changed().await;
                }
                () = retry_due => {
                    self.retry = None;
                    self.look_again().await;
                }
                // The first tick comes at once: it is the start.
                _ = resync.tick() => {
                    self.resync().await;
                    self.install_due = true;
                }
                () = sleep_until(sweep_due) => {
                    let calm = self.sweep_flows();
                    sweep_due = Instant::now() + if calm { SWEEP.1 } else { SWEEP.0 };
                }
            }
            self.attach_waiting().await;
            self.install_plugin();
        }
    }

    async fn answer(&mut self, method: Method, stopwatch: Stopwatch) -> Result<Value, Failure> {
        match method {
            Method::Attach(sandbox) => debug::value(self.attach(&sandbox, stopwatch).await?),
            Method::Detach(sandbox) => debug::value(self.detach(&sandbox).await?),
            Method::Check(sandbox) => debug::value(self.check(&sandbox).await?),
            Method::Collect(valid) => debug::value(self.collect(&valid).await?),
            Method::Readiness => debug::value(self.readiness()),
            Method::Status => debug::value(self.status()),
            Method::Drops => debug::value(self.drops()?),
            Method::Flows(filter) => debug::value(self.flows(&filter)?),
            Method::Routes => debug::value(self.routes()?),
            Method::Endpoints => debug::value(self.endpoints()?),
            Method::Services(filter) => debug::value(self.services(&filter)?),
            Method::Explain(request) => debug::value(self.explain(&request).await?),
        }
    }

    /// Whether everything that can be programmed is. Objects with problems do not count: one tenant's slip must not
    /// take a node out of service.
    fn ready(&self) -> bool {
        self.synced && self.dataplane.is_some() && self.problems.blocking().next().is_none()
    }

    fn status(&self) -> Status {
        let mut attachments: Vec<_> = self.attachment_list().collect();
        attachments.sort_by(|a, b| (&a.namespace, &a.name, &a.interface).cmp(&(&b.namespace, &b.name, &b.interface)));
        Status {
            ready: self.ready(),
            node: self.options.node.clone(),
            pid: std::process::id(),
            generation: self.dataplane.as_ref().map_or(0, |dataplane| dataplane.load().generation),
            revision: self.counts.applies,
            settled: self.synced && self.retry.is_none() && self.files_seen.is_none(),
            underlay: self.underlay.clone(),
            problems: self.problems.list(),
            attachments,
        }
    }
}

/// Waits for a moment; without one for ever.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
