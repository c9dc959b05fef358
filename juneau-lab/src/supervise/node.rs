//! Nodes: namespaces held by a process, a port on the underlay, an agent.

use super::event::{wait_for_agent, wait_for_end};
use super::{Supervisor, pause};
use crate::cgroup::Cgroup;
use crate::enter::Enter;
use crate::error::{Context, Result, optional};
use crate::paths::Paths;
use crate::process::{Process, kill_all};
use crate::spawn::{start, start_inside};
use crate::state;
use crate::{namespace, underlay};
use juneau_agent::protocol::Status;
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

/// An agent that ran so long did not fail at its start.
const STABLE: Duration = Duration::from_secs(5);

/// A node that exists.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) address: Ipv4Addr,
    pub(super) holder: Process,
    pub(super) agent: Option<Agent>,
    pub(super) cgroup: Option<Cgroup>,
    /// Its holder ended: nothing of it can be relied on.
    pub(super) gone: bool,
    starts: u32,
    failures: u32,
    not_before: Instant,
}

/// A node's agent that runs.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) process: Process,
    pub(super) ready: bool,
    since: Instant,
}

impl Node {
    pub(super) fn ready(&self) -> bool {
        !self.gone && self.agent.as_ref().is_some_and(|agent| agent.ready)
    }

    pub(super) fn agent_ended(&mut self) {
        let Some(agent) = self.agent.take() else { return };
        if agent.since.elapsed() < STABLE && !agent.ready {
            self.not_before = Instant::now() + pause(self.failures);
            self.failures += 1;
        } else {
            self.failures = 0;
        }
    }

    pub(super) fn state(&self, paths: &Paths, name: &str) -> state::Node {
        state::Node {
            address: self.address,
            holder: self.holder,
            netns: paths.namespace(name),
            agent: self.agent.as_ref().map(|agent| agent.process),
            ready: self.ready(),
            restarts: self.starts.saturating_sub(1),
            socket: paths.agent_socket(name),
            cgroup: self.cgroup.as_ref().map(|cgroup| cgroup.path().to_owned()),
        }
    }
}

/// What a log ends with.
fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("(no log)").to_owned()
}

impl Supervisor {
    pub(super) fn remove_unwanted_nodes(&mut self) {
        let wanted = &self.wanted.nodes;
        let unwanted: Vec<String> = self
            .nodes
            .iter()
            .filter(|(name, node)| node.gone || !wanted.contains_key(*name))
            .map(|(n, _)| n.clone())
            .collect();
        for name in unwanted {
            let Some(node) = self.nodes.remove(&name) else { continue };
            for pod in self.pods_on(&name) {
                self.remove_pod(&pod);
            }
            if let Err(error) = self.remove_node(&name, &node) {
                tracing::error!("node {name} is not removed cleanly: {error}");
            }
        }
    }

    fn remove_node(&self, name: &str, node: &Node) -> Result<()> {
        tracing::info!("removing node {name}");
        let agent = node.agent.as_ref().map(|agent| agent.process);
        kill_all(&[Some(node.holder), agent].into_iter().flatten().collect::<Vec<_>>(), Duration::from_secs(5))?;
        if let Some(cgroup) = &node.cgroup {
            cgroup.destroy()?;
        }
        underlay::disconnect(&self.paths.underlay(), name)?;
        namespace::unpin(&self.paths.namespace(name))?;
        let dir = self.paths.node(name);
        optional(std::fs::remove_dir_all(&dir), &dir).map(drop)
    }

    pub(super) fn bring_up_nodes(&mut self) {
        for (name, address) in self.wanted.nodes.clone() {
            if let Err(error) = self.bring_up_node(&name, address) {
                tracing::error!("node {name}: {error}");
                self.wait_for(format!("node {name}: {error}"), Some(Instant::now() + pause(5)));
            }
        }
    }

    fn bring_up_node(&mut self, name: &str, address: Ipv4Addr) -> Result<()> {
        if !self.nodes.contains_key(name) {
            let node = self.create_node(name, address)?;
            self.nodes.insert(name.to_owned(), node);
        }
        let Some(node) = self.nodes.get_mut(name) else { return Ok(()) };
        if node.address != address {
            underlay::set_address(&self.paths.namespace(name), name, address)?;
            node.address = address;
        }
        if node.agent.is_none() {
            if Instant::now() < node.not_before {
                let (until, failures) = (node.not_before, node.failures);
                let last = last_line(&self.paths.log(name));
                let what = format!("the agent of node {name}, which ended at once {failures} times: {last}");
                self.wait_for(what, Some(until));
                return Ok(());
            }
            let Some(objects) = self.source.objects(&self.paths, name) else {
                self.wait_for(format!("node {name}: its agent's token"), None);
                return Ok(());
            };
            let started = Self::start_agent(&self.paths, name, &node.state(&self.paths, name), objects)?;
            let process = started.process;
            tracing::info!("the agent of node {name} is process {}", process.pid);
            wait_for_end(started.child, process, self.events.clone());
            wait_for_agent(name.to_owned(), process, self.paths.agent_socket(name), self.events.clone());
            node.agent = Some(Agent { process, ready: false, since: Instant::now() });
            node.starts += 1;
        }
        if !self.nodes.get(name).is_some_and(Node::ready) {
            self.wait_for(format!("the agent of node {name} to be ready"), None);
        }
        Ok(())
    }

    fn create_node(&self, name: &str, address: Ipv4Addr) -> Result<Node> {
        tracing::info!("making node {name} at {address}");
        let netns = self.paths.namespace(name);
        // What a try before this one may have left.
        underlay::disconnect(&self.paths.underlay(), name)?;
        namespace::unpin(&netns)?;
        let cgroup = self.cgroup.as_ref().map(|lab| lab.child(name));
        let mut arguments = vec![OsString::from("hold")];
        if let Some(cgroup) = &cgroup {
            cgroup.create()?;
            arguments.extend(["--cgroup".into(), cgroup.path().into()]);
        }
        for dir in [self.paths.node(name), self.paths.agent_state(name)] {
            std::fs::create_dir_all(&dir).context(|| format!("creating {}", dir.display()))?;
        }
        let started = start(&self.paths, name, &arguments, true)?;
        let holder = started.process;
        let connected = namespace::pin(&holder.namespace("net"), &netns)
            .and_then(|()| underlay::connect(&self.paths.underlay(), &netns, name, address, self.mtu));
        if let Err(error) = connected {
            kill_all(&[holder], Duration::from_secs(5))?;
            return Err(error);
        }
        wait_for_end(started.child, holder, self.events.clone());
        Ok(Node {
            address,
            holder,
            agent: None,
            cgroup,
            gone: false,
            starts: 0,
            failures: 0,
            not_before: Instant::now(),
        })
    }

    fn start_agent(
        paths: &Paths,
        name: &str,
        node: &state::Node,
        objects: (&str, OsString),
    ) -> Result<crate::spawn::Started> {
        let mut command: Vec<OsString> = vec!["juneau-agent".into(), "run".into()];
        for (option, value) in [
            ("--node", name.into()),
            objects,
            ("--socket", node.socket.clone().into()),
            ("--metrics-socket", paths.metrics_socket(name).into()),
            ("--state-dir", paths.agent_state(name).into()),
            ("--underlay", underlay::NODE_DEVICE.into()),
        ] {
            command.extend([option.into(), value]);
        }
        start_inside(paths, name, &Enter::node(node), &command, false)
    }

    pub(super) fn agent_is_ready(&mut self, name: &str, process: Process, status: &Status) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let Some(agent) = node.agent.as_mut().filter(|agent| agent.process == process) else { return };
        agent.ready = true;
        node.failures = 0;
        tracing::info!("the agent of node {name} is ready");
        // An agent takes over what its predecessor attached; what it does not know must be attached anew.
        for (pod_name, pod) in self.pods.iter_mut().filter(|(_, pod)| pod.node == name && pod.attached.is_some()) {
            if !status.attachments.iter().any(|attachment| attachment.container_id == pod.container_id) {
                tracing::warn!("the agent of node {name} does not know Pod {pod_name}: it is attached again");
                pod.attached = None;
            }
        }
    }
}
