//! A cluster that runs: a control plane beside the first node's programs, and nodes.

use crate::cgroups::Groups;
use crate::error::{ClusterError, Context, Result};
use crate::image;
use crate::node::{self, Node};
use crate::paths::Paths;
use crate::teardown::teardown;
use juneau_controlplane::{Containers, ControlPlane, Network, Options as ControlPlaneOptions, Program, Programs, Tool};
use juneau_lab::cluster::NODES;
use juneau_lab::{namespace, underlay};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use nix::mount::{MsFlags, mount};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Child;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a kubelet may take to make its Node.
const REGISTER: Duration = Duration::from_secs(60);

/// The label by which a node is one of the control plane's. No kubelet may give it to itself.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// What a cluster should be.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its nodes: names, and addresses on the underlay. The control plane is on the first.
    pub nodes: Vec<(String, Ipv4Addr)>,
    /// MTU of the underlay, in bytes.
    pub mtu: u32,
    /// The program that is the nodes' first process: `juneau-cluster`.
    pub program: PathBuf,
    /// What is to be the image [`image::RESPONDER`], for Pods that take part in checks: `juneau-responder`.
    pub responder: Option<PathBuf>,
    /// Archives of images that all nodes have from the beginning, beside those that they need themselves.
    pub images: Vec<PathBuf>,
}

impl Options {
    /// Two nodes, and no more images than they need.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let nodes = NODES.map(|(name, address)| (name.to_owned(), address)).into();
        Self { nodes, mtu: 1500, program: program.into(), responder: None, images: Vec::new() }
    }
}

/// A cluster. It ends, and all that it made is removed, when this is dropped; and when the process ends, whatever ends it,
/// its processes do.
#[derive(Debug)]
pub struct Cluster {
    paths: Paths,
    nodes: Vec<Node>,
    programs: Programs,
    control_plane: Option<ControlPlane>,
    holders: Option<Holders>,
    phases: Vec<(String, Duration)>,
}

impl Cluster {
    /// Starts a cluster at `paths`, in the place of what was left there, and waits until its nodes are known. They are not
    /// ready before they have a network. `progress` is told what happens, line by line.
    ///
    /// # Errors
    /// When a program does not start or is not ready in time.
    pub fn start(paths: &Paths, options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Self> {
        if !nix::unistd::Uid::effective().is_root() {
            return Err(ClusterError::Usage("a cluster makes namespaces and mounts: run it as root".to_owned()));
        }
        if paths.dir().to_string_lossy().contains([':', ',', '\\']) {
            let dir = paths.dir().display();
            return Err(ClusterError::Usage(format!("{dir}: no colon, comma or backslash may be in that name")));
        }
        let programs = Programs::find_or_build_these(&Program::ALL, progress)?;
        let containers = Containers::find_or_unpack(progress)?;
        teardown(paths)?;
        let mut cluster = Self {
            paths: paths.clone(),
            nodes: Vec::new(),
            programs,
            control_plane: None,
            holders: None,
            phases: Vec::new(),
        };
        let mut since = Instant::now();
        let mut phase = |cluster: &mut Self, name: &str| {
            cluster.phases.push((name.to_owned(), since.elapsed()));
            progress(&format!("{name}: {:.1} s", since.elapsed().as_secs_f32()));
            since = Instant::now();
        };
        cluster.make_nodes(options, &containers)?;
        phase(&mut cluster, "namespaces of the nodes");
        cluster.start_programs(options, &containers)?;
        phase(&mut cluster, "control plane, containerd, images");
        cluster.join()?;
        phase(&mut cluster, "kubelets, until their Nodes exist");
        Ok(cluster)
    }

    fn make_nodes(&mut self, options: &Options, containers: &Containers) -> Result<()> {
        let (paths, dir) = (&self.paths, self.paths.dir());
        fs::create_dir_all(dir).on("creating", dir)?;
        mount(Some("juneau-cluster"), dir, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
            .on("mounting a tmpfs at", dir)?;
        for dir in paths.directories() {
            fs::create_dir_all(&dir).on("creating", &dir)?;
        }
        let link = paths.lab().programs().join("juneau-cluster");
        std::os::unix::fs::symlink(&options.program, &link).on("linking", &link)?;
        underlay::create(&paths.lab().underlay(), options.mtu)?;
        for (name, address) in &options.nodes {
            Node::furnish(paths, name, containers)?;
            self.nodes.push(Node::new(paths, name, *address, containers));
        }
        self.holders = Some(Holders::start(paths, options)?);
        Ok(())
    }

    /// Starts the control plane, and meanwhile containerd on every node, and imports the images.
    fn start_programs(&mut self, options: &Options, containers: &Containers) -> Result<()> {
        let first = self.nodes.first();
        let first = first.ok_or_else(|| ClusterError::Usage("a cluster has at least one node".to_owned()))?;
        let network = Network::Namespace { namespace: self.paths.namespace(first.name()), address: first.address() };
        let wanted = ControlPlaneOptions::default().dir(self.paths.control_plane()).network(network).controllers();
        let folder = self.paths.dir().join("images");
        let mut archives = image::write(&folder, &containers.path(Tool::Busybox))?;
        if let Some(program) = &options.responder {
            let (name, entrypoint) = ("juneau-responder", ["/bin/juneau-responder", "serve"]);
            archives.push(image::write_local(&folder, image::RESPONDER, &entrypoint, "0:0", &[(name, program)])?);
        }
        archives.extend(options.images.iter().cloned());
        let (nodes, programs, archives) = (&self.nodes, &self.programs, &archives);
        let control_plane = std::thread::scope(|scope| {
            let begun: Vec<_> = nodes
                .iter()
                .map(|node| {
                    scope.spawn(move || {
                        node.start_containerd()?;
                        archives.iter().try_for_each(|archive| node.import(archive))
                    })
                })
                .collect();
            let started = ControlPlane::start(programs, &wanted);
            for thread in begun {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            started.map_err(ClusterError::from)
        })?;
        self.control_plane = Some(control_plane);
        Ok(())
    }

    /// Makes the nodes the control plane's.
    fn join(&self) -> Result<()> {
        let control_plane = self.control_plane()?;
        self.nodes.iter().try_for_each(|node| self.start_kubelet(node))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.context(|| "starting a runtime for the API server's client")?.block_on(async {
            let client = control_plane.client().await?;
            for node in &self.nodes {
                wait_for(&client, node.name()).await?;
            }
            match self.nodes.first() {
                Some(first) => label(&client, first.name()).await,
                None => Ok(()),
            }
        })
    }

    fn start_kubelet(&self, node: &Node) -> Result<()> {
        let identity = self.control_plane()?.node(node.name(), node.address())?;
        node.start_kubelet(&self.programs, &identity)
    }

    /// Takes the power from a node: its processes end without a word, and with them its namespaces, devices, mounts, BPF
    /// programs and maps. Its disk stays: `/etc`, `/opt`, `/var`.
    ///
    /// # Errors
    /// When there is none of that name, or it does not end.
    pub fn power_off(&self, name: &str) -> Result<()> {
        let node = self.node(name)?;
        self.order(name, false)?;
        Groups::of_cluster(&self.paths.name())?.child(node.name()).destroy()?;
        let (namespace, socket) = (self.paths.namespace(name), self.paths.init_socket(name));
        underlay::disconnect(&self.paths.lab().underlay(), name)?;
        namespace::unpin(&namespace)?;
        fs::remove_file(&socket).on("removing", &socket)
    }

    /// Starts a node that was powered off, and its containerd and kubelet.
    ///
    /// # Errors
    /// When there is none of that name, it runs, or a program does not start.
    pub fn power_on(&self, name: &str) -> Result<()> {
        let node = self.node(name)?;
        self.order(name, true)?;
        node.start_containerd()?;
        self.start_kubelet(node)
    }

    fn order(&self, name: &str, run: bool) -> Result<()> {
        let not_running = || ClusterError::NotRunning { dir: self.paths.dir().to_owned() };
        self.holders.as_ref().ok_or_else(not_running)?.order(name, run)
    }

    /// The control plane.
    ///
    /// # Errors
    /// When it was stopped.
    pub fn control_plane(&self) -> Result<&ControlPlane> {
        self.control_plane.as_ref().ok_or_else(|| ClusterError::NotRunning { dir: self.paths.dir().to_owned() })
    }

    /// The nodes, in the order in which they were asked for.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node of this name.
    ///
    /// # Errors
    /// [`ClusterError::NoSuchNode`].
    pub fn node(&self, name: &str) -> Result<&Node> {
        self.nodes.iter().find(|node| node.name() == name).ok_or_else(|| {
            let known: Vec<&str> = self.nodes.iter().map(Node::name).collect();
            ClusterError::NoSuchNode { name: name.to_owned(), known: known.join(", ") }
        })
    }

    /// Where its things are.
    #[must_use]
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// What its start took, in order.
    #[must_use]
    pub fn phases(&self) -> &[(String, Duration)] {
        &self.phases
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Kubelets first: they would complain of an API server that is gone.
        drop(self.holders.take());
        drop(self.control_plane.take());
        if let Err(error) = teardown(&self.paths) {
            tracing::error!("the cluster is not removed cleanly: {error}");
        }
    }
}

/// The processes that hold the nodes, on the thread with which they end.
#[derive(Debug)]
struct Holders {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// What that thread is asked for.
#[derive(Debug)]
struct Order {
    node: String,
    /// Whether the node is to run.
    run: bool,
    done: Sender<Result<()>>,
}

impl Holders {
    fn start(paths: &Paths, options: &Options) -> Result<Self> {
        let (orders, received) = channel::<Order>();
        let (told, result) = channel();
        let (paths, options) = (paths.clone(), options.clone());
        let thread = std::thread::spawn(move || {
            let mut holders: BTreeMap<String, Child> = BTreeMap::new();
            let hold = |holders: &mut BTreeMap<String, Child>, wanted: &str| {
                let (name, address) = options.nodes.iter().find(|(name, _)| name == wanted).ok_or_else(no_thread)?;
                holders.insert(name.clone(), node::hold(&paths, name, *address, options.mtu)?);
                Ok(())
            };
            let made = options.nodes.iter().try_for_each(|(name, _)| hold(&mut holders, name));
            let made_all = made.is_ok();
            if told.send(made).is_ok() && made_all {
                // Until the other end is dropped.
                while let Ok(Order { node, run, done }) = received.recv() {
                    let outcome = match (run, holders.remove(&node)) {
                        (true, None) => hold(&mut holders, &node),
                        (true, Some(holder)) => {
                            holders.insert(node.clone(), holder);
                            Err(ClusterError::Usage(format!("node {node} runs")))
                        }
                        (false, holder) => {
                            holder.into_iter().for_each(|mut holder| node::end(&mut holder));
                            Ok(())
                        }
                    };
                    // Whoever asked may have gone.
                    done.send(outcome).ok();
                }
            }
            holders.values_mut().for_each(node::end);
        });
        let holders = Self { orders: Some(orders), thread: Some(thread) };
        let made = result.recv().unwrap_or_else(|_| Err(no_thread()));
        made.map(|()| holders)
    }

    /// Has a node begin or end.
    fn order(&self, node: &str, run: bool) -> Result<()> {
        let (done, outcome) = channel();
        let sent =
            self.orders.as_ref().is_some_and(|orders| orders.send(Order { node: node.to_owned(), run, done }).is_ok());
        sent.then(|| outcome.recv().ok()).flatten().unwrap_or_else(|| Err(no_thread()))
    }
}

fn no_thread() -> ClusterError {
    ClusterError::Usage("the nodes' thread ended".to_owned())
}

impl Drop for Holders {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Waits until a kubelet has made its Node.
async fn wait_for(client: &Client, name: &str) -> Result<()> {
    let nodes: Api<NodeObject> = Api::all(client.clone());
    let exists = await_condition(nodes, name, |node: Option<&NodeObject>| node.is_some());
    let late =
        || ClusterError::Late { seconds: REGISTER.as_secs(), what: format!("the kubelet of {name} makes its Node") };
    let waited = tokio::time::timeout(REGISTER, exists).await.map_err(|_| late())?;
    waited.map(drop).map_err(|error| ClusterError::Usage(format!("waiting for Node {name}: {error}")))
}

/// Says that a node is the control plane's, for Pods that belong there.
async fn label(client: &Client, name: &str) -> Result<()> {
    let patch = json!({ "metadata": { "labels": { CONTROL_PLANE: "" } } });
    let nodes: Api<NodeObject> = Api::all(client.clone());
    let patched = nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    let what = || format!("labelling Node {name}");
    patched.map(drop).map_err(|source| ClusterError::Api { what: what(), source: Box::new(source) })
}
