//! A control plane that runs.

mod arguments;
mod temporary;

use crate::address::Held;
use crate::audit::{self, AuditLog};
use crate::error::{Context, Error, Result};
use crate::forward::Forward;
use crate::keeper::{Keeper, Start};
use crate::kubeconfig::{self, Identity, client};
use crate::pki::{self, Pki};
use crate::programs::{Program, Programs};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::{Api, PostParams};
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Where the API server listens.
const PORT: u16 = 6443;

/// How long the API server may take from listening to being ready.
const READY: Duration = Duration::from_secs(30);

/// Where a control plane is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    /// At a loopback address that no other one uses, in the network namespace of the thread that starts it.
    Loopback,
    /// In the network namespace at `namespace`, at `address`, which must be there. From the network namespace of the
    /// thread that starts it, it is reached at a loopback address.
    Namespace {
        /// The namespace's file.
        namespace: PathBuf,
        /// The address, for example on an underlay that nodes share.
        address: Ipv4Addr,
    },
}

/// How a control plane should be.
#[derive(Debug, Clone)]
pub struct Options {
    dir: Option<PathBuf>,
    network: Network,
    controllers: bool,
    service_cidr: String,
    pod_cidr: String,
    api_server: Vec<String>,
}

impl Default for Options {
    /// etcd and API server on loopback.
    fn default() -> Self {
        Self {
            dir: None,
            network: Network::Loopback,
            controllers: false,
            service_cidr: "10.96.0.0/16".to_owned(),
            pod_cidr: "10.244.0.0/16".to_owned(),
            api_server: Vec::new(),
        }
    }
}

impl Options {
    /// Keeps everything in this directory, which should be on a tmpfs and stays when the control plane ends.
    /// Without it, there is a new one that goes.
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Where it is reached.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Runs kube-controller-manager and kube-scheduler, too: without them Pods are not bound, namespaces have no
    /// default ServiceAccount, and what an owner leaves behind stays.
    #[must_use]
    pub fn controllers(mut self) -> Self {
        self.controllers = true;
        self
    }

    /// The addresses of Services, and those that nodes get for Pods (`spec.podCIDR`).
    #[must_use]
    pub fn ranges(mut self, services: &str, pods: &str) -> Self {
        services.clone_into(&mut self.service_cidr);
        pods.clone_into(&mut self.pod_cidr);
        self
    }

    /// Gives the API server one more argument.
    #[must_use]
    pub fn api_server_argument(mut self, argument: impl Into<String>) -> Self {
        self.api_server.push(argument.into());
        self
    }
}

/// What makes a kubelet a node of a control plane. Files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeIdentity {
    /// By which it is the node at the API server.
    pub kubeconfig: PathBuf,
    /// The certificate that it shows those who ask it.
    pub certificate: PathBuf,
    /// The key of that certificate.
    pub key: PathBuf,
    /// Who signs the certificates of those who may ask it.
    pub authority: PathBuf,
}

/// A control plane. Its processes end, and what it made is removed, when this is dropped; and when the process ends,
/// whatever ends it, the processes do.
#[derive(Debug)]
pub struct ControlPlane {
    dir: PathBuf,
    /// Whether the directory goes with it.
    temporary: bool,
    programs: Programs,
    pki: Pki,
    /// URL from where it was started.
    url: String,
    /// URL within the namespace of [`Network::Namespace`].
    inner_url: String,
    keeper: Keeper,
    forward: Option<Forward>,
    orders: Option<Sender<(Order, Sender<Result<()>>)>>,
    thread: Option<JoinHandle<()>>,
    address: Held,
}

impl ControlPlane {
    /// Starts a control plane, and waits until the API server is ready. This blocks: a few seconds on an idle machine.
    ///
    /// # Errors
    /// When a program does not start or is not ready in time, with the end of its log.
    pub fn start(programs: &Programs, options: &Options) -> Result<Self> {
        let held = Held::take()?;
        let (dir, temporary) = match &options.dir {
            Some(dir) => (dir.clone(), false),
            None => (temporary::dir(held.address)?, true),
        };
        // One that was killed may have left something there.
        remove(&dir.join("etcd"))?;
        std::fs::create_dir_all(&dir).on("creating", &dir)?;
        let pki = Pki::create(&dir.join("pki"))?;
        let address = match &options.network {
            Network::Loopback => held.address,
            Network::Namespace { address, .. } => *address,
        };
        let (url, inner_url) = (format!("https://{}:{PORT}", held.address), format!("https://{address}:{PORT}"));
        let mut this = Self {
            dir,
            temporary,
            programs: programs.clone(),
            pki,
            url,
            inner_url,
            keeper: Keeper::default(),
            forward: None,
            orders: None,
            thread: None,
            address: held,
        };
        this.make_files(&[IpAddr::V4(address), IpAddr::V4(this.address.address), Ipv4Addr::LOCALHOST.into()], options)?;
        this.run(address, options)?;
        if let Network::Namespace { namespace, .. } = &options.network {
            let here = SocketAddr::from((this.address.address, PORT));
            this.forward = Some(Forward::start(here, namespace, SocketAddr::from((address, PORT)))?);
        }
        Ok(this)
    }

    /// The control plane, with default options, that the tests of a process have in common: it is started for the first
    /// one that asks, and ends with the last one that holds it. Programs that are missing are built.
    ///
    /// # Errors
    /// Those of [`Programs::find_or_build`] and [`ControlPlane::start`].
    pub fn shared() -> Result<Arc<Self>> {
        static SHARED: Mutex<Weak<ControlPlane>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = shared.upgrade() {
            return Ok(running);
        }
        let programs = Programs::find_or_build(&mut |_| {})?;
        let started = Arc::new(Self::start(&programs, &Options::default())?);
        *shared = Arc::downgrade(&started);
        Ok(started)
    }

    /// The kubeconfig of an administrator, for use where the control plane was started.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.kubeconfig")
    }

    /// The same for use within the namespace of [`Network::Namespace`], and where its address is reached.
    #[must_use]
    pub fn inner_kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.inner.kubeconfig")
    }

    /// What the API server was asked, from its start.
    #[must_use]
    pub fn audit(&self) -> AuditLog {
        AuditLog::new(&self.dir.join("audit.log"))
    }

    /// Where everything of it is: logs as `NAME.log`, kubeconfigs, keys.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file of the certificate that signed all others.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.pki.authority()
    }

    /// kubectl, with the rights of an administrator and a cache of its own.
    #[must_use]
    pub fn kubectl(&self) -> std::process::Command {
        let mut command = std::process::Command::new(self.programs.path(Program::Kubectl));
        command.arg("--kubeconfig").arg(self.kubeconfig()).arg("--cache-dir").arg(self.dir.join("kubectl-cache"));
        command
    }

    /// The processes: name and id.
    #[must_use]
    pub fn processes(&self) -> Vec<(&'static str, u32)> {
        self.keeper.processes()
    }

    /// The error, if one of its programs has ended.
    #[must_use]
    pub fn ended(&self) -> Option<Error> {
        self.keeper.ended()
    }

    /// Writes a kubeconfig by which a client is `user`, in `group` if there is one, and returns its file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn user_kubeconfig(&self, user: &str, group: Option<&str>) -> Result<PathBuf> {
        let name = user.replace([':', '/'], "-");
        let pair = self.pki.client(&name, user, group)?;
        let path = self.dir.join(format!("{name}.kubeconfig"));
        kubeconfig::write(&path, &self.url, &self.pki.authority(), &Identity::Certificate(&pair))?;
        Ok(path)
    }

    /// Makes what a kubelet needs to be the node `name` at `address`: who it is at the API server, and the certificate
    /// by which the API server knows it. For use where the control plane's own address is reached.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn node(&self, name: &str, address: Ipv4Addr) -> Result<NodeIdentity> {
        let user = format!("system:node:{name}");
        let client = self.pki.client(&format!("node-{name}"), &user, Some("system:nodes"))?;
        let kubeconfig = self.dir.join(format!("node-{name}.inner.kubeconfig"));
        kubeconfig::write(&kubeconfig, &self.inner_url, &self.pki.authority(), &Identity::Certificate(&client))?;
        let server = self.pki.server(&format!("kubelet-{name}"), &[name], &[IpAddr::V4(address)])?;
        let authority = self.pki.authority();
        Ok(NodeIdentity { kubeconfig, certificate: server.certificate, key: server.key, authority })
    }

    /// Asks for a token of a ServiceAccount, as the kubelet does for a Pod, and writes a kubeconfig with it. With
    /// `node`, the token is bound to that Node, and so carries its name as the claim that admission policies see.
    ///
    /// # Errors
    /// When there is no such ServiceAccount or Node, or the file cannot be written.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str, node: Option<&str>) -> Result<PathBuf> {
        let what = || format!("a token of ServiceAccount {namespace}/{name}");
        let api = |source| Error::Api { what: what(), source: Box::new(source) };
        let client = self.client().await?;
        let reference = node.map(|node| BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            uid: None,
        });
        let spec = TokenRequestSpec { bound_object_ref: reference, ..Default::default() };
        let request = TokenRequest { spec: Some(spec), ..Default::default() };
        let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await.map_err(api)?;
        let token = answer.status.and_then(|status| status.token).unwrap_or_default();
        let place = node.map(|node| format!(".{node}")).unwrap_or_default();
        let path = self.dir.join(format!("{namespace}.{name}{place}.kubeconfig"));
        kubeconfig::write(&path, &self.url, &self.pki.authority(), &Identity::Token(&token))?;
        // Nodes reach it by its own address.
        let inner = path.with_extension("inner.kubeconfig");
        kubeconfig::write(&inner, &self.inner_url, &self.pki.authority(), &Identity::Token(&token))?;
        Ok(path)
    }

    /// A client with the rights of an administrator.
    ///
    /// # Errors
    /// When its kubeconfig is not there any more.
    pub async fn client(&self) -> Result<Client> {
        client(&self.kubeconfig()).await
    }

    fn make_files(&self, addresses: &[IpAddr], options: &Options) -> Result<()> {
        let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        self.pki.server("apiserver", &names, &[addresses, &arguments::service_address(options)].concat())?;
        self.pki.client("front", "front", None)?;
        self.pki.client("kubelet-client", "kube-apiserver-kubelet-client", Some("system:masters"))?;
        let mut users = vec![("admin", "kubernetes-admin", Some("system:masters"))];
        if options.controllers {
            users.push(("kube-controller-manager", "system:kube-controller-manager", None));
            users.push(("kube-scheduler", "system:kube-scheduler", None));
        }
        for (file, user, group) in users {
            let pair = self.pki.client(file, user, group)?;
            for (url, end) in [(&self.url, "kubeconfig"), (&self.inner_url, "inner.kubeconfig")] {
                let path = self.dir.join(format!("{file}.{end}"));
                kubeconfig::write(&path, url, &self.pki.authority(), &Identity::Certificate(&pair))?;
            }
        }
        pki::write(&self.dir.join("audit-policy.json"), audit::POLICY)
    }

    /// Starts the programs on a thread that keeps them.
    fn run(&mut self, address: Ipv4Addr, options: &Options) -> Result<()> {
        let (orders, received) = channel::<(Order, Sender<Result<()>>)>();
        let (told, result) = channel();
        let keeper = self.keeper.clone();
        let namespace = match &options.network {
            Network::Loopback => None,
            Network::Namespace { namespace, .. } => Some(namespace.clone()),
        };
        let starts = arguments::all(&self.dir, &self.programs, &self.pki, address, options);
        let (dir, config) = (self.dir.clone(), self.inner_kubeconfig());
        let thread = std::thread::spawn(move || {
            let work = || {
                if let Some(namespace) = namespace {
                    let file = File::open(&namespace).on("opening", &namespace)?;
                    setns(file, CloneFlags::CLONE_NEWNET).context(|| format!("entering {}", namespace.display()))?;
                }
                starts.iter().try_for_each(|wanted| start(&keeper, &dir, &config, wanted.clone()))
            };
            let done = work();
            let run = done.is_ok();
            if told.send(done).is_ok() && run {
                // Until the other end is dropped.
                while let Ok((order, done)) = received.recv() {
                    let api_server = starts.iter().find(|wanted| wanted.name == Program::ApiServer.name());
                    let outcome = match (order, api_server) {
                        (Order::StartApiServer, Some(wanted)) => start(&keeper, &dir, &config, wanted.clone()),
                        (Order::StopApiServer, _) | (Order::StartApiServer, None) => {
                            keeper.stop(Program::ApiServer.name());
                            Ok(())
                        }
                    };
                    // Whoever asked may have gone.
                    done.send(outcome).ok();
                }
            }
            keeper.kill();
        });
        self.orders = Some(orders);
        self.thread = Some(thread);
        result.recv().unwrap_or_else(|_| Err(thread_ended("starting the control plane")))
    }

    /// Kills the API server; everything else goes on. None is no error.
    ///
    /// # Errors
    /// When the control plane has ended.
    pub fn stop_api_server(&self) -> Result<()> {
        self.order(Order::StopApiServer)
    }

    /// Starts the API server after [`Self::stop_api_server`], as it was, and waits until it is ready.
    ///
    /// # Errors
    /// When it is not ready in time, with the end of its log.
    pub fn start_api_server(&self) -> Result<()> {
        self.order(Order::StartApiServer)
    }

    /// Has the thread that keeps the programs do something.
    fn order(&self, order: Order) -> Result<()> {
        let (told, done) = channel();
        let sent = self.orders.as_ref().is_some_and(|orders| orders.send((order, told)).is_ok());
        let outcome = sent.then(|| done.recv().ok()).flatten();
        outcome.unwrap_or_else(|| Err(thread_ended("stopping or starting the API server")))
    }
}

/// What the thread that keeps the programs is asked for.
#[derive(Debug, Clone, Copy)]
enum Order {
    StopApiServer,
    StartApiServer,
}

fn thread_ended(what: &str) -> Error {
    Error::Io { what: what.to_owned(), source: std::io::Error::other("the thread of its programs ended") }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        drop(self.forward.take());
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
        if self.temporary {
            std::fs::remove_dir_all(&self.dir).ok();
        }
    }
}

/// Starts a program, and waits until it is ready.
fn start(keeper: &Keeper, dir: &Path, config: &Path, wanted: arguments::Wanted) -> Result<()> {
    let arguments::Wanted { name, program, arguments, notifies } = wanted;
    keeper.start(Start { name, program: &program, arguments, dir, notifies })?;
    if name != Program::ApiServer.name() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context(|| "starting a runtime for the API server's client")?;
    runtime.block_on(wait_until_ready(keeper, dir, config))
}

/// The server has said that it listens. What it does first of all (roles, its own namespaces) shows in `/readyz` alone.
async fn wait_until_ready(keeper: &Keeper, dir: &Path, config: &Path) -> Result<()> {
    let client = client(config).await?;
    let deadline = Instant::now() + READY;
    loop {
        let request = http::Request::get("/readyz").body(Vec::new());
        let answer = match request {
            Ok(request) => client.request_text(request).await,
            Err(source) => Err(kube::Error::HttpError(source)),
        };
        if answer.is_ok() {
            return Ok(());
        }
        if let Some(error) = keeper.ended() {
            return Err(error);
        }
        if Instant::now() >= deadline {
            let program = Program::ApiServer.name().to_owned();
            let log = dir.join(format!("{program}.log"));
            return Err(Error::NotReady { program, seconds: READY.as_secs(), log });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn remove(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).on("removing", dir),
        _ => Ok(()),
    }
}
