//! A cluster: API server and operator in one network namespace, two nodes with agents on the same link.

use std::fs;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use juneau_agent::protocol::{Attached, CallError, Detached, Method, Sandbox, Status, call};
use juneau_controlplane::{AuditLog, ControlPlane, Network, Options, Programs, client};
use kube::Client;
use nix::mount::{MsFlags, mount};
use serde_json::json;
use tokio::runtime::Runtime;

use super::daemon::{self, Daemon};
use crate::agent::Cgroup;
use crate::error::{Context, Error, Result};
use crate::namespace::{End, Fabric, Namespace};

/// The nodes that exist; more may be made that are but objects.
pub(super) const NODES: [&str; 2] = ["node-a", "node-b"];

const SERVER: Ipv4Addr = Ipv4Addr::new(172, 31, 0, 1);
const ACCOUNTS: [&str; 2] =
    ["system:serviceaccount:juneau-system:juneau-operator", "system:serviceaccount:juneau-system:juneau-agent"];
/// What `deploy/base` has beside the workloads.
const BASE: [&str; 6] =
    ["namespace.yaml", "roles-operator.yaml", "roles-agent.yaml", "roles-users.yaml", "policy.yaml", "webhook.yaml"];
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two questions whether something is so.
const POLL: Duration = Duration::from_millis(50);

/// A cluster without daemons.
pub(super) struct Cluster {
    control_plane: ControlPlane,
    operator_kubeconfig: PathBuf,
    nodes: Vec<Node>,
    server: Namespace,
}

struct Node {
    name: &'static str,
    kubeconfig: PathBuf,
    cgroup: Cgroup,
    namespace: Namespace,
}

impl Cluster {
    /// Starts API server and etcd, and applies what `deploy/` holds.
    pub(super) fn new(fabric: &Fabric, programs: &Programs) -> Result<Self> {
        const NONE: Option<&str> = None;
        mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), NONE).context("mounting a tmpfs")?;
        let server = fabric.namespace()?;
        let mut namespaces = Vec::new();
        for (name, address) in NODES.into_iter().zip(addresses()) {
            let namespace = fabric.namespace()?;
            server.veth(name, &End { namespace: &namespace, name: "underlay" }, 1500)?;
            namespace.address("underlay", address, 24)?;
            namespaces.push(namespace);
        }
        server.bridge("underlay", 1500, &NODES)?;
        server.address("underlay", SERVER, 24)?;

        let network = Network::Namespace { namespace: server.path(), address: SERVER };
        let control_plane = ControlPlane::start(programs, &Options::default().network(network))?;
        let definitions = juneau_operator::crds().map_err(Error::Missing)?;
        apply(&control_plane, &definitions)?;
        kubectl(&control_plane, &["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"], "")?;
        let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/base");
        for file in BASE {
            let text = fs::read_to_string(base.join(file)).context(format!("reading {file}"))?;
            apply(&control_plane, &text)?;
        }
        for (name, address) in NODES.into_iter().zip(addresses()) {
            apply(
                &control_plane,
                &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}).to_string(),
            )?;
            let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}}).to_string();
            let patch = ["patch", "node", name, "--subresource=status", "--type=merge", "-p", &status];
            kubectl(&control_plane, &patch, "")?;
        }

        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
        let account = |name: &str, node: Option<&str>| -> Result<PathBuf> {
            let written = control_plane.service_account_kubeconfig("juneau-system", name, node);
            // Everybody is where the server has its own address.
            Ok(runtime.block_on(written)?.with_extension("inner.kubeconfig"))
        };
        let operator_kubeconfig = account("juneau-operator", None)?;
        let mut nodes = Vec::new();
        for (name, namespace) in NODES.into_iter().zip(namespaces) {
            fs::create_dir(daemon::state(name)).context("making an agent's directory")?;
            nodes.push(Node {
                name,
                kubeconfig: account("juneau-agent", Some(name))?,
                cgroup: Cgroup::new(name)?,
                namespace,
            });
        }
        Ok(Self { control_plane, operator_kubeconfig, nodes, server })
    }

    /// Runs `work` on a thread in the API server's network namespace, with a runtime of that namespace.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce(&Inside<'_>) -> Result<T> + Send) -> Result<T> {
        self.server.run(|| {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .context("a runtime")?;
            let client = runtime.block_on(client(&self.control_plane.inner_kubeconfig()))?;
            work(&Inside { cluster: self, runtime, client })
        })
    }

    /// Who asked the API server for what.
    pub(super) fn audit(&self) -> AuditLog {
        self.control_plane.audit()
    }

    /// Writes of operator and agents in a log, but for the Lease, which is renewed whatever happens.
    pub(super) fn writes(log: &AuditLog) -> Result<Vec<String>> {
        let ours = log
            .events()?
            .into_iter()
            .filter(|event| ACCOUNTS.contains(&event.user.as_str()) && event.is_write() && event.resource != "leases");
        Ok(ours.map(|event| format!("{} {}", event.verb, event.resource)).collect())
    }

    /// Bytes that arrived at a node so far.
    pub(super) fn received(&self, node: usize) -> Result<u64> {
        let node = self.node(node)?;
        let text =
            node.namespace.run(|| fs::read_to_string("/proc/thread-self/net/dev").context("reading counters"))?;
        parse_received(&text).ok_or_else(|| Error::Missing("counters of the underlay".into()))
    }

    /// Attaches a Pod of a node.
    pub(super) fn attach(&self, node: usize, namespace: &str, name: &str, pod: &Namespace) -> Result<()> {
        let node = self.node(node)?;
        let sandbox = Sandbox {
            namespace: namespace.into(),
            name: name.into(),
            netns: pod.path(),
            container_id: name.into(),
            // The agent may hear of the endpoint later than whoever calls.
            patience: 5_000,
            ..Sandbox::default()
        };
        let attached: std::result::Result<Attached, CallError> =
            call(&daemon::socket(node.name), &Method::Attach(sandbox), Duration::from_secs(20));
        attached.map(drop).map_err(|error| Error::NotOurs(error.to_string()))
    }

    /// Takes away what the Pod of this name has, which is the only one of that name.
    pub(super) fn detach(&self, node: usize, name: &str) -> Result<()> {
        let sandbox = Sandbox { container_id: name.into(), ..Sandbox::default() };
        let socket = daemon::socket(self.node(node)?.name);
        let detached: std::result::Result<Detached, CallError> =
            call(&socket, &Method::Detach(sandbox), Duration::from_secs(20));
        match detached {
            Ok(Detached { changed: true }) => Ok(()),
            Ok(_) => Err(Error::NotOurs(format!("{name} was not attached"))),
            Err(error) => Err(Error::NotOurs(error.to_string())),
        }
    }

    fn node(&self, node: usize) -> Result<&Node> {
        self.nodes.get(node).ok_or_else(|| Error::Missing(format!("node {node}")))
    }
}

/// The cluster as seen by who is in the API server's network namespace.
pub(super) struct Inside<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) runtime: Runtime,
    /// An administrator.
    pub(super) client: Client,
}

impl Inside<'_> {
    /// Starts the operator.
    pub(super) fn operator(&self) -> Result<Daemon> {
        Daemon::operator(&self.cluster.operator_kubeconfig)
    }

    /// Starts the agents of all nodes, and waits until they are ready.
    pub(super) fn agents(&self) -> Result<Vec<Daemon>> {
        let agents = (0..self.cluster.nodes.len()).map(|node| self.agent(node)).collect::<Result<_>>()?;
        for node in 0..self.cluster.nodes.len() {
            self.await_agent(node, POLL, PATIENCE, |status| status.ready && status.settled)?;
        }
        Ok(agents)
    }

    /// Starts a node's agent.
    pub(super) fn agent(&self, node: usize) -> Result<Daemon> {
        let node = self.cluster.node(node)?;
        node.namespace.run(|| Daemon::agent(node.name, &node.kubeconfig, node.cgroup.path()))
    }

    /// Asks a node's agent for its status until it is as wanted.
    pub(super) fn await_agent(
        &self,
        node: usize,
        poll: Duration,
        patience: Duration,
        is_so: impl Fn(&Status) -> bool,
    ) -> Result<()> {
        let socket = daemon::socket(self.cluster.node(node)?.name);
        let begun = Instant::now();
        loop {
            let status: std::result::Result<Status, CallError> =
                call(&socket, &Method::Status, Duration::from_secs(20));
            match status {
                Ok(status) if is_so(&status) => return Ok(()),
                // The socket is not there yet, or the agent does not tell when it is ready.
                _ if begun.elapsed() < patience => thread::sleep(poll),
                Ok(status) => return Err(Error::NotOurs(format!("an agent is not ready: {:?}", status.problems))),
                Err(error) => return Err(Error::NotOurs(error.to_string())),
            }
        }
    }
}

fn addresses() -> impl Iterator<Item = Ipv4Addr> {
    (11..).map(|last| Ipv4Addr::new(172, 31, 0, last))
}

fn apply(control_plane: &ControlPlane, text: &str) -> Result<()> {
    kubectl(control_plane, &["apply", "--server-side", "--force-conflicts", "-f", "-"], text)
}

fn kubectl(control_plane: &ControlPlane, arguments: &[&str], input: &str) -> Result<()> {
    let mut command = control_plane.kubectl();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context("starting kubectl")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).context("telling kubectl what to apply")?;
    }
    let output = child.wait_with_output().context("waiting for kubectl")?;
    if output.status.success() {
        Ok(())
    } else {
        Err(Error::NotOurs(format!("kubectl {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr))))
    }
}

/// The first number of a device's line in `/proc/net/dev`.
fn parse_received(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("underlay:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_bytes() {
        let text = "Inter-|   Receive\n face |bytes    packets\n    lo: 1 2 3\nunderlay: 1234 5 0\n";
        assert_eq!(parse_received(text), Some(1234));
        assert_eq!(parse_received("    lo: 1 2 3\n"), None);
    }
}
