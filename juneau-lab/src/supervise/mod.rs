//! The lab's supervisor: makes nodes and Pods what the manifests say, plays the container runtime for the agents, and
//! starts again what ends.
//!
//! Level-triggered: whatever happens (a manifest changes, a process ends, a command asks), the supervisor compares what
//! there should be with what there is, and does what is missing.

mod control;
mod event;
mod node;
mod operator;
mod pod;
mod source;

pub use control::{Ask, ask};
pub use source::Follow;

use crate::cgroup::Cgroup;
use crate::cluster::Cluster;
use crate::error::{Context, LabError, Result};
use crate::paths::Paths;
use crate::process::Process;
use crate::state::{self, State};
use crate::underlay;
use event::Event;
use node::Node;
use operator::Operator;
use pod::Pod;
use source::Source;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// First pause before something that failed is tried again; doubled each time.
const RETRY: Duration = Duration::from_millis(50);

/// Longest pause between tries.
const RETRY_MAXIMUM: Duration = Duration::from_secs(2);

/// The pause after this many failures in a row.
fn pause(failures: u32) -> Duration {
    RETRY.saturating_mul(1 << failures.min(10)).min(RETRY_MAXIMUM)
}

/// How a supervisor is started.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// MTU of the underlay, in bytes.
    pub mtu: u32,
    /// Whether an operator plans; without one, manifests say everything.
    pub with_operator: bool,
    /// What is followed.
    pub follow: Follow,
}

/// The supervisor of one lab.
#[derive(Debug)]
struct Supervisor {
    paths: Paths,
    mtu: u32,
    this: Process,
    cgroup: Option<Cgroup>,
    /// The operator, unless the manifests say everything.
    operator: Option<Operator>,
    source: Source,
    wanted: Cluster,
    problems: Vec<String>,
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<String, Pod>,
    events: Sender<Event>,
    /// Who asked to be told when the lab has settled.
    asked: Vec<control::Waiting>,
    /// What is missing, found by the last round.
    waiting: Vec<String>,
    /// When to look again, without an event.
    next: Option<Instant>,
}

/// Runs the supervisor of the lab at `paths`, which follows a directory or an API server, until the process ends. Writes
/// a line to standard output when it listens.
///
/// # Errors
/// When the underlay cannot be made, or the directory cannot be watched.
pub fn run(paths: &Paths, options: &Options) -> Result<()> {
    nix::unistd::setsid().ok();
    let cgroup = match Cgroup::of_lab(&paths.name(), &paths.cgroup_mount()) {
        Ok(cgroup) => Some(cgroup),
        Err(error @ LabError::NoCgroup { .. }) => {
            tracing::warn!("{error}; nodes have no control groups of their own");
            None
        }
        Err(error) => return Err(error),
    };
    if let Some(cgroup) = &cgroup {
        cgroup.create()?;
        cgroup.join()?;
    }
    let Options { mtu, with_operator, follow } = *options;
    underlay::create(&paths.underlay(), mtu)?;
    let (events, incoming) = channel();
    let source = Source::start(paths, mtu, follow, &events)?;
    control::listen(&paths.supervisor_socket(), events.clone())?;
    let mut supervisor = Supervisor {
        paths: paths.clone(),
        mtu,
        this: Process::this()?,
        cgroup,
        operator: with_operator.then(Operator::default),
        source,
        wanted: Cluster::default(),
        problems: Vec::new(),
        nodes: BTreeMap::new(),
        pods: BTreeMap::new(),
        events,
        asked: Vec::new(),
        waiting: vec!["manifests to be read".to_owned()],
        next: None,
    };
    supervisor.state().write(paths)?;
    let mut out = std::io::stdout();
    writeln!(out, "ready").and_then(|()| out.flush()).context(|| "saying that the supervisor is ready")?;
    supervisor.read_manifests();
    supervisor.serve(&incoming)
}

impl Supervisor {
    fn serve(&mut self, incoming: &Receiver<Event>) -> Result<()> {
        loop {
            self.round();
            self.state().write(&self.paths)?;
            self.source.tell(&self.nodes, &self.pods);
            self.tell_who_asked();
            let patience = match self.next {
                Some(next) => next.saturating_duration_since(Instant::now()),
                None => Duration::from_secs(3600),
            };
            match incoming.recv_timeout(patience) {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => {}
                // The watcher and the listener hold senders as long as this process lives.
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            while let Ok(event) = incoming.try_recv() {
                self.handle(event);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Manifests => self.read_manifests(),
            Event::Server(server) => self.source.take_server(*server),
            Event::Told(told) => {
                self.wanted = told.cluster;
                self.problems = told.problems;
                self.source.was_told(told.waiting);
            }
            Event::OperatorAnswers(process) => self.operator_answers(process),
            Event::Ended(process, status) => self.ended(process, &status),
            Event::AgentReady(name, process, status) => self.agent_is_ready(&name, process, &status),
            Event::Asked(waiting) => self.asked.push(waiting),
        }
    }

    fn read_manifests(&mut self) {
        let Source::Directory { source, .. } = &mut self.source else { return };
        match source.read() {
            Ok(snapshot) => {
                self.wanted = Cluster::from(&snapshot.view);
                self.problems = snapshot.problems.iter().map(ToString::to_string).collect();
            }
            // What was wanted before stays.
            Err(error) => self.problems = vec![error.to_string()],
        }
    }

    /// One comparison of what there should be with what there is.
    fn round(&mut self) {
        self.next = None;
        self.waiting.clear();
        for missing in self.source.missing() {
            self.wait_for(missing, None);
        }
        self.bring_up_operator();
        self.remove_unwanted_pods();
        self.remove_unwanted_nodes();
        self.bring_up_nodes();
        self.bring_up_pods();
    }

    /// Remembers that something is missing, and when to look after it.
    fn wait_for(&mut self, what: String, until: Option<Instant>) {
        self.waiting.push(what);
        if let Some(until) = until {
            self.next = Some(self.next.map_or(until, |next| next.min(until)));
        }
    }

    fn ended(&mut self, process: Process, status: &str) {
        if self.operator.as_mut().is_some_and(|operator| operator.ended(process)) {
            tracing::warn!("the operator ended ({status}): it is started again");
        }
        for (name, node) in &mut self.nodes {
            if node.holder == process {
                tracing::warn!("the holder of node {name} ended ({status}): the node is made anew");
                node.gone = true;
            }
            if node.agent.as_ref().is_some_and(|agent| agent.process == process) {
                tracing::warn!("the agent of node {name} ended ({status}): it is started again");
                node.agent_ended();
            }
        }
        for (name, pod) in &mut self.pods {
            if pod.responder == Some(process) {
                tracing::warn!("the responder of Pod {name} ended ({status}): it is started again");
                pod.responder = None;
            }
        }
    }

    fn state(&self) -> State {
        State {
            version: state::VERSION,
            supervisor: self.this,
            operator: self.operator.as_ref().and_then(Operator::process),
            cgroup: self.cgroup.as_ref().map(|cgroup| cgroup.path().to_owned()),
            nodes: self.nodes.iter().map(|(name, node)| (name.clone(), node.state(&self.paths, name))).collect(),
            pods: self.pods.iter().map(|(name, pod)| (name.clone(), pod.state(&self.paths, name))).collect(),
            waiting: self.waiting.clone(),
            problems: self.problems.clone(),
            kubernetes: self.source.kubernetes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_bounded() {
        assert_eq!(pause(0), RETRY);
        assert!(pause(3) > pause(2));
        assert_eq!(pause(u32::MAX), RETRY_MAXIMUM);
    }
}
