//! What the supervisor tells the other commands: a file that is replaced whole at every change.

use crate::error::{Context, LabError, Result, optional};
use crate::paths::Paths;
use crate::process::Process;
use juneau_agent::protocol::Attached;
use juneau_api::source::store::write_atomically;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// The version of the file.
pub const VERSION: u32 = 1;

/// A running lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// [`VERSION`].
    pub version: u32,
    /// The process that follows the manifests.
    pub supervisor: Process,
    /// The operator that plans on the manifests.
    pub operator: Option<Process>,
    /// Where the lab's control group is; without one where the machine has no cgroup v2.
    pub cgroup: Option<PathBuf>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Node>,
    /// Pods by `NAMESPACE/NAME`.
    pub pods: BTreeMap<String, Pod>,
    /// What keeps the lab from being what the manifests say; empty when it is.
    pub waiting: Vec<String>,
    /// What the supervisor found wrong with manifests; the agents know more.
    #[serde(rename = "manifestProblems")]
    pub problems: Vec<String>,
    /// The control plane, of a lab that is on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Kubernetes>,
}

/// A control plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kubernetes {
    /// The kubeconfig of its administrator.
    pub kubeconfig: PathBuf,
    /// Its programs.
    pub processes: Vec<Process>,
    /// What its start took, in milliseconds, in order.
    pub phases: Vec<(String, u64)>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its address on the underlay.
    pub address: Ipv4Addr,
    /// The process that holds its namespaces.
    pub holder: Process,
    /// Its network namespace, pinned.
    pub netns: PathBuf,
    /// Its agent.
    pub agent: Option<Process>,
    /// Whether the agent has programmed everything.
    pub ready: bool,
    /// How often the agent was started after the first time.
    pub restarts: u32,
    /// The agent's socket.
    pub socket: PathBuf,
    /// Its control group.
    pub cgroup: Option<PathBuf>,
}

/// A Pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// Its node.
    pub node: String,
    /// Its network namespace, pinned.
    pub netns: PathBuf,
    /// The id that its sandbox has for the agent.
    pub container_id: String,
    /// What the agent answered when it was attached.
    pub attached: Option<Attached>,
    /// The process that answers in it.
    pub responder: Option<Process>,
    /// Why it is not attached.
    pub problem: Option<String>,
    /// Its control group.
    pub cgroup: Option<PathBuf>,
}

impl State {
    /// Reads the state of the lab at `paths`; `None` when none was started.
    ///
    /// # Errors
    /// When the file is there but is not ours.
    pub fn read(paths: &Paths) -> Result<Option<Self>> {
        let path = paths.state();
        let Some(bytes) = optional(std::fs::read(&path), &path)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|source| LabError::Document { path, source })
    }

    /// The state of a lab that runs.
    ///
    /// # Errors
    /// [`LabError::NotRunning`], [`LabError::SupervisorGone`].
    pub fn of_running(paths: &Paths) -> Result<Self> {
        let state = Self::read(paths)?.ok_or_else(|| LabError::NotRunning { dir: paths.dir().to_owned() })?;
        if !state.supervisor.runs() {
            return Err(LabError::SupervisorGone { log: paths.log("supervisor") });
        }
        Ok(state)
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, paths: &Paths) -> Result<()> {
        let path = paths.state();
        let document = |source| LabError::Document { path: path.clone(), source };
        let mut bytes = serde_json::to_vec_pretty(self).map_err(document)?;
        bytes.push(b'\n');
        write_atomically(&path, &bytes).context(|| format!("writing {}", path.display()))
    }

    /// Every process that is recorded, the supervisor first.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        let nodes = self.nodes.values().flat_map(|node| [Some(node.holder), node.agent]);
        let pods = self.pods.values().map(|pod| pod.responder);
        let control_plane = self.kubernetes.iter().flat_map(|kubernetes| &kubernetes.processes).copied().map(Some);
        let first = [Some(self.supervisor), self.operator].into_iter();
        first.chain(pods).chain(nodes).chain(control_plane).flatten().collect()
    }

    /// The names of nodes and Pods, for messages.
    #[must_use]
    pub fn known(&self) -> String {
        let names: Vec<&str> = self.nodes.keys().chain(self.pods.keys()).map(String::as_str).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_survives_its_file() {
        let dir = std::env::temp_dir().join(format!("juneau-lab-state-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let paths = Paths::new(&dir);
        assert_eq!(State::read(&paths).unwrap(), None);
        let holder = Process { pid: 2, start: 8 };
        let node = Node {
            address: Ipv4Addr::new(192, 168, 77, 1),
            holder,
            netns: paths.namespace("node-1"),
            agent: None,
            ready: false,
            restarts: 0,
            socket: paths.agent_socket("node-1"),
            cgroup: None,
        };
        let state = State {
            version: VERSION,
            supervisor: Process { pid: 1, start: 7 },
            operator: Some(Process { pid: 3, start: 9 }),
            cgroup: None,
            nodes: [("node-1".to_owned(), node)].into(),
            pods: BTreeMap::new(),
            waiting: Vec::new(),
            problems: Vec::new(),
            kubernetes: None,
        };
        state.write(&paths).unwrap();
        assert_eq!(State::read(&paths).unwrap().as_ref(), Some(&state));
        assert_eq!(state.processes(), [state.supervisor, Process { pid: 3, start: 9 }, holder]);
        std::fs::write(paths.state(), "{").unwrap();
        assert!(State::read(&paths).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
