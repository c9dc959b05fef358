//! Pods: a network namespace, attached by the node's agent, with a responder in it. What a container runtime does.

use super::event::wait_for_end;
use super::{Supervisor, pause};
use crate::cgroup::Cgroup;
use crate::cluster;
use crate::enter::Enter;
use crate::error::{Result, optional};
use crate::namespace;
use crate::paths::{Paths, file_name};
use crate::process::{Process, kill_all};
use crate::spawn::start_inside;
use crate::state;
use crate::underlay;
use juneau_agent::protocol::{Attached, CallError, Detached, ErrorCode, Failure, Method, Sandbox, call};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

/// How long an agent may take to attach a Pod.
const ATTACH: Duration = Duration::from_secs(10);

/// A Pod that exists.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) node: String,
    pub(super) container_id: String,
    pub(super) attached: Option<Attached>,
    pub(super) responder: Option<Process>,
    namespace: String,
    name: String,
    uid: String,
    cgroup: Option<Cgroup>,
    problem: Option<String>,
    failures: u32,
    not_before: Instant,
}

impl Pod {
    fn sandbox(&self, paths: &Paths) -> Sandbox {
        Sandbox {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            netns: paths.namespace(&format!("{}/{}", self.namespace, self.name)),
            container_id: self.container_id.clone(),
            ..Sandbox::default()
        }
    }

    /// Whether it still is what the manifests want. An address does not change under a Pod: it is another sandbox then,
    /// as with a real runtime.
    fn is(&self, wanted: &cluster::Pod) -> bool {
        let moved = self.attached.as_ref().is_some_and(|at| {
            // What an agent knows already may be news to the lab, and an endpoint may be away for a moment.
            let address = at.address.split('/').next().and_then(|text| text.parse::<Ipv4Addr>().ok());
            wanted.address.is_some_and(|wanted| address != Some(wanted))
                || wanted.mac.as_ref().is_some_and(|wanted| !wanted.eq_ignore_ascii_case(&at.mac))
        });
        self.uid == wanted.uid && self.node == wanted.node && !moved
    }

    fn attach_failed(&mut self, error: &CallError) {
        let text = error.to_string();
        if self.problem.as_ref() != Some(&text) {
            tracing::warn!("Pod {}/{} is not attached: {text}", self.namespace, self.name);
        }
        self.problem = Some(text);
        self.not_before = Instant::now() + pause(self.failures);
        self.failures += 1;
    }

    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    pub(super) fn state(&self, paths: &Paths, name: &str) -> state::Pod {
        state::Pod {
            node: self.node.clone(),
            netns: paths.namespace(name),
            container_id: self.container_id.clone(),
            attached: self.attached.clone(),
            responder: self.responder,
            problem: self.problem.clone(),
            cgroup: self.cgroup.as_ref().map(|cgroup| cgroup.path().to_owned()),
        }
    }
}

impl Supervisor {
    pub(super) fn pods_on(&self, node: &str) -> Vec<String> {
        self.pods.iter().filter(|(_, pod)| pod.node == node).map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn remove_unwanted_pods(&mut self) {
        let wanted = &self.wanted.pods;
        let unwanted: Vec<String> = self
            .pods
            .iter()
            .filter(|(name, pod)| !wanted.get(*name).is_some_and(|wanted| pod.is(wanted)))
            .map(|(name, _)| name.clone())
            .collect();
        for name in unwanted {
            self.remove_pod(&name);
        }
    }

    /// Ends its processes, has it detached, then lets its namespace go: the order of a runtime.
    pub(super) fn remove_pod(&mut self, name: &str) {
        let Some(pod) = self.pods.remove(name) else { return };
        tracing::info!("removing Pod {name}");
        let responder: Vec<Process> = pod.responder.into_iter().collect();
        let mut result = kill_all(&responder, Duration::from_secs(5));
        if let Some(cgroup) = &pod.cgroup {
            result = result.and(cgroup.destroy());
        }
        if pod.attached.is_some() && self.nodes.get(&pod.node).is_some_and(super::Node::ready) {
            let detach = Method::Detach(pod.sandbox(&self.paths));
            let detached = call::<Detached>(&self.paths.agent_socket(&pod.node), &detach, ATTACH);
            result = result.and(detached.map(drop).map_err(Into::into));
        }
        let socket = self.paths.responder_socket(name);
        result = result.and(optional(std::fs::remove_file(&socket), &socket).map(drop));
        if let Err(error) = result.and(namespace::unpin(&self.paths.namespace(name))) {
            tracing::error!("Pod {name} is not removed cleanly: {error}");
        }
    }

    pub(super) fn bring_up_pods(&mut self) {
        for (name, wanted) in self.wanted.pods.clone() {
            if !self.nodes.contains_key(&wanted.node) {
                self.wait_for(format!("Pod {name}: its node {} to exist", wanted.node), None);
            } else if !self.pods.contains_key(&name) {
                match self.create_pod(&name, &wanted) {
                    Ok(pod) => drop(self.pods.insert(name, pod)),
                    Err(error) => {
                        tracing::error!("Pod {name}: {error}");
                        self.wait_for(format!("Pod {name}: {error}"), Some(Instant::now() + pause(5)));
                    }
                }
            }
        }
        self.attach_pods();
        self.start_responders();
    }

    fn create_pod(&self, name: &str, wanted: &cluster::Pod) -> Result<Pod> {
        let netns = self.paths.namespace(name);
        namespace::unpin(&netns)?;
        namespace::create(&netns)?;
        underlay::loopback_up(&netns)?;
        let node = self.nodes.get(&wanted.node).and_then(|node| node.cgroup.as_ref());
        let cgroup = node.map(|node| node.child("pods").child(&file_name(name)));
        if let Some(cgroup) = &cgroup {
            cgroup.create()?;
        }
        // A namespace's number is not used again while the namespace exists; the time tells later ones apart.
        let inode = std::fs::metadata(&netns).map(|file| std::os::unix::fs::MetadataExt::ino(&file)).unwrap_or(0);
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Ok(Pod {
            node: wanted.node.clone(),
            container_id: format!("{inode:08x}{:016x}", since.as_nanos()),
            attached: None,
            responder: None,
            namespace: wanted.namespace.clone(),
            name: wanted.name.clone(),
            uid: wanted.uid.clone(),
            cgroup,
            problem: None,
            failures: 0,
            not_before: Instant::now(),
        })
    }

    /// Has every Pod attached that is not, the nodes side by side.
    fn attach_pods(&mut self) {
        let (paths, nodes) = (&self.paths, &self.nodes);
        let now = Instant::now();
        let mut by_node: BTreeMap<String, Vec<&mut Pod>> = BTreeMap::new();
        for pod in self.pods.values_mut() {
            let ready = nodes.get(&pod.node).is_some_and(super::Node::ready);
            if ready && pod.attached.is_none() && pod.not_before <= now {
                by_node.entry(pod.node.clone()).or_default().push(pod);
            }
        }
        thread::scope(|scope| {
            for (node, pods) in by_node {
                scope.spawn(move || {
                    for pod in pods {
                        attach(paths, &node, pod);
                    }
                });
            }
        });
        let missing: Vec<(String, Option<Instant>)> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.attached.is_none())
            .map(|(name, pod)| match &pod.problem {
                Some(problem) => (format!("Pod {name}: {problem}"), Some(pod.not_before)),
                None => (format!("Pod {name} to be attached"), None),
            })
            .collect();
        for (what, until) in missing {
            self.wait_for(what, until);
        }
    }

    fn start_responders(&mut self) {
        let names: Vec<String> = self
            .pods
            .iter()
            .filter(|(_, p)| p.attached.is_some() && p.responder.is_none())
            .map(|(n, _)| n.clone())
            .collect();
        for name in names {
            let Some(pod) = self.pods.get(&name) else { continue };
            let mut command: Vec<OsString> = vec![self.paths.programs().join("juneau-lab").into(), "responder".into()];
            command.extend(["--name".into(), name.clone().into()]);
            command.extend(["--socket".into(), self.paths.responder_socket(&name).into()]);
            let enter = Enter::pod(&pod.state(&self.paths, &name));
            match start_inside(&self.paths, &name, &enter, &command, true) {
                Ok(started) => {
                    wait_for_end(started.child, started.process, self.events.clone());
                    if let Some(pod) = self.pods.get_mut(&name) {
                        pod.responder = Some(started.process);
                    }
                }
                Err(error) => {
                    tracing::error!("the responder of Pod {name}: {error}");
                    self.wait_for(format!("the responder of Pod {name}: {error}"), Some(Instant::now() + pause(5)));
                }
            }
        }
    }
}

fn attach(paths: &Paths, node: &str, pod: &mut Pod) {
    match call::<Attached>(&paths.agent_socket(node), &Method::Attach(pod.sandbox(paths)), ATTACH) {
        Ok(attached) => {
            tracing::info!("Pod {}/{} is attached: {}", pod.namespace, pod.name, attached.address);
            pod.attached = Some(attached);
            pod.problem = None;
            pod.failures = 0;
        }
        Err(error) => {
            // Its object may stand in a file that the agent reads a moment later.
            if let CallError::Refused(Failure { code: ErrorCode::TryAgain, .. }) = &error {
                pod.failures = pod.failures.min(2);
            }
            pod.attach_failed(&error);
        }
    }
}
