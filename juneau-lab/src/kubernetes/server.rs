//! The control plane of a lab.

use super::{CONTROL_PLANE, CONTROL_PLANE_NAME, Done, Told, deploy, kubelet, node, objects};
use crate::cluster::{Cluster, NODES};
use crate::error::{LabError, Result};
use crate::paths::Paths;
use crate::process::Process;
use crate::{namespace, underlay};
use juneau_controlplane::{ControlPlane, Network, Options, Programs};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::Api;
use kube::runtime::wait::await_condition;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Where the two programs' ServiceAccounts are, as in `deploy/`.
const SYSTEM: &str = "juneau-system";
/// The ServiceAccount of the operator.
const OPERATOR: &str = "juneau-operator";
/// The ServiceAccount of the agents.
const AGENT: &str = "juneau-agent";

/// After how long something that failed is asked for again.
const RETRY: Duration = Duration::from_secs(1);

/// Kubeconfigs of agents by node.
type Agents = Arc<Mutex<BTreeMap<String, PathBuf>>>;

/// A control plane that runs, and the lab's side of it.
#[derive(Debug)]
pub(crate) struct Server {
    control_plane: Arc<ControlPlane>,
    operator: PathBuf,
    agents: Agents,
    done: watch::Sender<Done>,
    phases: Vec<(String, u64)>,
}

impl Server {
    /// Starts a control plane at the underlay, applies what a platform team applies, gives it its first nodes, and
    /// follows it: `told` is called with each change.
    ///
    /// # Errors
    /// When it does not start, or refuses.
    pub(crate) fn start(paths: &Paths, mtu: u32, told: impl FnMut(Told) -> bool + Send + 'static) -> Result<Self> {
        let mut phases = Vec::new();
        let mut begun = Instant::now();
        let mut phase = |name: &str| {
            phases.push((name.to_owned(), u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)));
            begun = Instant::now();
        };
        let netns = paths.namespace(CONTROL_PLANE_NAME);
        namespace::create(&netns)?;
        underlay::connect(&paths.underlay(), &netns, CONTROL_PLANE_NAME, CONTROL_PLANE, mtu)?;
        let programs = Programs::find_or_build(&mut |line| tracing::info!("{line}"))?;
        let network = Network::Namespace { namespace: netns, address: CONTROL_PLANE };
        let options = Options::default().dir(paths.control_plane()).network(network).controllers();
        let control_plane = Arc::new(ControlPlane::start(&programs, &options)?);
        tracing::info!("the API server is ready at {CONTROL_PLANE}");
        phase("control plane");
        let runtime = objects::runtime()?;
        let operator = runtime.block_on(async {
            let client = control_plane.client().await?;
            deploy::apply(&client, control_plane.kubectl(), &paths.deploy()).await?;
            for (name, address) in NODES {
                // A kubelet makes its own Node.
                let kubeconfig = kubelet::kubeconfig(&control_plane, name)?;
                node::create(&juneau_controlplane::client(&kubeconfig).await?, name, address).await?;
            }
            let operator = control_plane.service_account_kubeconfig(SYSTEM, OPERATOR, None).await?;
            Ok::<_, LabError>(operator.with_extension("inner.kubeconfig"))
        })?;
        tracing::info!("definitions and roles are applied");
        phase("definitions, roles, policy");
        let (done, changes) = watch::channel(Done::default());
        let agents = Agents::default();
        let server =
            Self { control_plane: Arc::clone(&control_plane), operator, agents: Arc::clone(&agents), done, phases };
        std::thread::spawn(move || runtime.block_on(serve(&control_plane, &agents, told, changes)));
        Ok(server)
    }

    /// What the lab did. The API server is told what is new in it.
    pub(crate) fn tell(&self, done: Done) {
        self.done.send_if_modified(|before| {
            let changed = *before != done;
            *before = done;
            changed
        });
    }

    /// The kubeconfig of an administrator, for use outside.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.control_plane.kubeconfig()
    }

    /// The kubeconfig by which the operator is itself, in the control plane's network namespace.
    pub(crate) fn operator_kubeconfig(&self) -> PathBuf {
        self.operator.clone()
    }

    /// The kubeconfig by which the agent of a node is itself, once there is such a Node.
    pub(crate) fn agent_kubeconfig(&self, node: &str) -> Option<PathBuf> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner).get(node).cloned()
    }

    /// Its programs.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let ids = self.control_plane.processes();
        ids.into_iter().filter_map(|(_, pid)| Process::find(i32::try_from(pid).ok()?)).collect()
    }

    /// What its start took, in milliseconds.
    pub(crate) fn phases(&self) -> &[(String, u64)] {
        &self.phases
    }

    /// Why it does not run any more, if so.
    pub(crate) fn ended(&self) -> Option<String> {
        self.control_plane.ended().map(|error| error.to_string())
    }
}

/// Waits until the controllers have made the first ServiceAccount.
async fn wait_for_controllers(client: &Client) {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let there = |account: Option<&ServiceAccount>| account.is_some();
    while let Err(error) = await_condition(accounts.clone(), "default", there).await {
        tracing::warn!("waiting for the controllers: {error}");
        tokio::time::sleep(RETRY).await;
    }
}

async fn serve(
    control_plane: &Arc<ControlPlane>,
    agents: &Agents,
    mut told: impl FnMut(Told) -> bool,
    done: watch::Receiver<Done>,
) {
    let client = match control_plane.client().await {
        Ok(client) => client,
        Err(error) => return tracing::error!("{error}"),
    };
    tokio::join!(follow(control_plane, &client, agents, &mut told), kubelet::run(control_plane, &client, done));
}

/// Follows what exists. Before a Node is told of, its agent is given a token that is bound to it.
async fn follow(control_plane: &ControlPlane, client: &Client, agents: &Agents, told: &mut impl FnMut(Told) -> bool) {
    let (sender, mut changes) = watch::channel(None::<Told>);
    let hand_on = async {
        let mut controllers = std::pin::pin!(wait_for_controllers(client));
        let (mut again, mut controlled) = (false, false);
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(RETRY), if again => {}
                () = &mut controllers, if !controlled => {
                    tracing::info!("the controllers have begun");
                    controlled = true;
                }
            }
            let Some(mut now) = changes.borrow_and_update().clone() else { continue };
            if !controlled {
                now.waiting.push("the controllers, without which no namespace takes a Pod".to_owned());
            }
            let failed = give_tokens(control_plane, agents, &now.cluster).await;
            again = !failed.is_empty();
            now.problems.extend(failed);
            if !told(now) {
                return;
            }
        }
    };
    tokio::select! {
        () = hand_on => {}
        () = objects::follow(client, |now| sender.send(Some(now)).is_ok()) => {}
    }
}

/// Gives the agents of new nodes their tokens; returns what failed.
async fn give_tokens(control_plane: &ControlPlane, agents: &Agents, cluster: &Cluster) -> Vec<String> {
    let known = || agents.lock().unwrap_or_else(PoisonError::into_inner);
    // A Node that is made again is another one: a token is bound to one of them.
    known().retain(|name, _| cluster.nodes.contains_key(name));
    let mut failed = Vec::new();
    for name in cluster.nodes.keys() {
        if known().contains_key(name) {
            continue;
        }
        match control_plane.service_account_kubeconfig(SYSTEM, AGENT, Some(name)).await {
            Ok(path) => drop(known().insert(name.clone(), path.with_extension("inner.kubeconfig"))),
            Err(error) => failed.push(error.to_string()),
        }
    }
    failed
}
