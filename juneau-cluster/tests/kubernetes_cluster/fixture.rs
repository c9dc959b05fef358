//! The cluster that the tests share, and what they ask it.

use crate::programs::{Programs, succeeds};
use juneau_cluster::{Cluster, Node, Options, Paths, deploy};
use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(90);

/// The label of nodes on which no agent is to run.
pub const AWAY: &str = "juneau-test/agent-away";

/// A tenant.
const TENANT: &str = include_str!("../common/tenant.yaml");

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: NAME
  namespace: TENANT
  annotations: { juneau.loutres.me/subnet: TENANT, juneau.loutres.me/address: ADDRESS }
spec:
  nodeName: NODE
  terminationGracePeriodSeconds: GRACE
  containers:
    - name: main
      image: localhost/juneau-shell:1
      command: ["/bin/busybox", "sh", "-c", "echo TENANT/NAME >/tmp/who; SERVE"]
"#;

/// The end of a shell's line: serves `/tmp`, and ends when it is told to, which the first process of a container does only
/// if it says so.
pub const SERVE: &str = "trap exit TERM; busybox httpd -f -h /tmp & wait";

/// A Pod that answers with its name, in the tenant's Subnet.
pub fn pod(tenant: &str, name: &str, node: &str, address: &str) -> String {
    made(tenant, name, node, address, 1, SERVE)
}

/// One that takes so many seconds to end.
pub fn pod_with_grace(tenant: &str, name: &str, node: &str, address: &str, grace: u32) -> String {
    made(tenant, name, node, address, grace, "exec busybox httpd -f -h /tmp")
}

fn made(tenant: &str, name: &str, node: &str, address: &str, grace: u32, serve: &str) -> String {
    let pod = POD.replace("TENANT", tenant).replace("NAME", name).replace("NODE", node);
    pod.replace("ADDRESS", address).replace("GRACE", &grace.to_string()).replace("SERVE", serve)
}

/// The Pods that are always there: tenant, name, node, address. red and blue have the same address, and blue one more.
pub const PODS: [(&str, &str, &str, &str); 5] = [
    ("red", "a", "node-1", "10.0.1.10"),
    ("red", "b", "node-2", "10.0.1.20"),
    ("red", "c", "node-1", "10.0.1.40"),
    ("blue", "a", "node-1", "10.0.1.10"),
    ("blue", "b", "node-2", "10.0.1.30"),
];

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Asks again until it is so.
#[track_caller]
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let (begun, mut before) = (Instant::now(), String::new());
    loop {
        match ask() {
            Ok(value) => {
                told(&format!("{what}, at last {before:.500}"), begun);
                return value;
            }
            Err(last) => {
                assert!(begun.elapsed() < LIMIT, "{what}: not within {} s: {last}", LIMIT.as_secs());
                before = last;
            }
        }
        std::thread::sleep(Duration::from_millis(150));
    }
}

/// Says what took long.
fn told(what: &str, begun: Instant) {
    let took = begun.elapsed();
    if took > Duration::from_secs(1) {
        println!("{:.1} s: {what}", took.as_secs_f32());
    }
}

/// The network namespace of a Pod.
pub struct Inside(File);

impl Inside {
    /// Runs something in it, on a thread of its own.
    pub fn run<T: Send>(&self, job: impl FnOnce() -> T + Send) -> T {
        let thread = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
            job()
        };
        std::thread::scope(|scope| scope.spawn(thread).join().unwrap())
    }

    /// Who answers at an address; nobody if it is silent.
    pub fn ask(&self, address: &str) -> Option<String> {
        let address = SocketAddr::new(address.parse().unwrap(), 80);
        self.run(|| ask(address, Duration::from_secs(2)))
    }

    /// Nobody answers there in the time in which others answer often.
    #[track_caller]
    pub fn expect_silence(&self, address: &str) {
        let address = SocketAddr::new(address.parse().unwrap(), 80);
        assert_eq!(self.run(|| ask(address, Duration::from_millis(300))), None, "at {address}");
    }

    /// The address from which something there is asked.
    pub fn source_towards(&self, address: &str) -> String {
        self.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect((address, 80)).unwrap();
            socket.local_addr().unwrap().ip().to_string()
        })
    }
}

/// Who answers there; nobody if there is no connection within that time.
pub fn ask(address: SocketAddr, patience: Duration) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, patience).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(b"GET /who HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.lines().last().map(str::to_owned)
}

/// A cluster with two nodes, Juneau and two tenants.
pub struct Fixture {
    cluster: Cluster,
    programs: Programs,
    turn: RwLock<()>,
    installed: Mutex<Option<Installation>>,
}

/// Nodes, whether they are ready and why not, while Juneau was installed.
#[derive(Debug, Clone)]
pub struct Installation {
    /// When the operator had rolled out, and there were no agents.
    pub without_agents: BTreeMap<String, (bool, String)>,
    /// In the end.
    pub with_agents: BTreeMap<String, (bool, String)>,
}

impl Fixture {
    /// The cluster that all tests of this process have in common: it ends with the last one that holds it, or waits for
    /// its turn.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Fixture>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let started = Arc::new(Self::new());
            *shared = Arc::downgrade(&started);
            started
        })
    }

    /// The cluster is the caller's alone until the guard goes. All of [`PODS`] are there and reach each other.
    pub fn turn(&self) -> RwLockWriteGuard<'_, ()> {
        let turn = self.turn.write().unwrap_or_else(PoisonError::into_inner);
        self.expect_installed();
        let ours = |object: &str| ["red/", "blue/", "juneau-system/"].iter().any(|owner| object.starts_with(owner));
        for node in ["node-1", "node-2"] {
            until("nodes know only of what is always there", || {
                let known = self.agent(node, "endpoints")?;
                let known = known["endpoints"].as_array().unwrap();
                // The addresses of nodes' devices are no objects.
                let more =
                    known.iter().find(|known| known["object"].as_str().map_or(known["vpc"] != 1, |name| !ours(name)));
                more.map_or(Ok(()), |more| Err(more.to_string()))
            });
        }
        self.expect_network();
        turn
    }

    /// The cluster is shared with others who hold such a guard, each with Namespaces and Vpcs of its own: nothing that
    /// runs in it is taken away.
    pub fn together(&self) -> RwLockReadGuard<'_, ()> {
        let together = self.turn.read().unwrap_or_else(PoisonError::into_inner);
        self.expect_installed();
        together
    }

    fn new() -> Self {
        let begun = Instant::now();
        let programs = Programs::new();
        let paths = Paths::new(format!("/run/juneau-cluster-test-shared-{}", std::process::id()));
        let images = programs.images();
        println!("images: {:.1} s", begun.elapsed().as_secs_f32());
        let mut options = Options::new(programs.file("juneau-cluster"));
        options.images = ["agent", "operator"].map(|name| images.join(file(name))).into();
        let cluster = Cluster::start(&paths, &options, &mut |line| println!("{line}")).unwrap();
        let this = Self { cluster, programs, turn: RwLock::default(), installed: Mutex::default() };
        this.expect_installed();
        println!("the cluster is there after {:.1} s", begun.elapsed().as_secs_f32());
        this
    }

    /// Installs Juneau where it is not, and makes the tenants and Pods that are always there.
    fn expect_installed(&self) {
        let mut installed = self.installed.lock().unwrap_or_else(PoisonError::into_inner);
        if installed.is_some() {
            return;
        }
        // The operator first, alone: nothing that it does needs a network, which does not work before there are agents.
        succeeds(&mut self.kubectl(&format!("label node --all --overwrite {AWAY}=yes")));
        let begun = Instant::now();
        self.deploy();
        succeeds(&mut self.kubectl("-n juneau-system rollout status deployment/juneau-operator --timeout=90s"));
        told("the operator", begun);
        for tenant in ["red", "blue"] {
            until("the webhook answers", || self.apply(&TENANT.replace("TENANT", tenant)));
        }
        let without_agents = self.nodes();
        succeeds(&mut self.kubectl(&format!("label node --all {AWAY}-")));
        let begun = Instant::now();
        succeeds(&mut self.kubectl("-n juneau-system rollout status daemonset/juneau-agent --timeout=90s"));
        told("agents", begun);
        // Nodes get ready when their agents have put the plugin's configuration in place.
        let begun = Instant::now();
        succeeds(&mut self.kubectl("wait --for=condition=Ready node --all --timeout=90s"));
        told("nodes", begun);
        for kind in ["vpc", "subnet"] {
            succeeds(&mut self.kubectl(&format!("wait --for=condition=Ready {kind} --all --timeout=60s")));
        }
        let begun = Instant::now();
        self.expect_pods();
        told("Pods", begun);
        *installed = Some(Installation { without_agents, with_agents: self.nodes() });
    }

    /// What was seen while Juneau was installed.
    pub fn installation(&self) -> Installation {
        self.installed.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap()
    }

    /// Juneau is not there any more: whoever comes next needs it.
    pub fn is_uninstalled(&self) {
        *self.installed.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether nodes are ready, and why not.
    fn nodes(&self) -> BTreeMap<String, (bool, String)> {
        let text = succeeds(&mut self.kubectl("get node -o json"));
        let nodes: Value = serde_json::from_str(&text).unwrap();
        let state = |node: &Value| {
            let conditions = node["status"]["conditions"].as_array().unwrap();
            let ready = conditions.iter().find(|condition| condition["type"] == "Ready").unwrap();
            (ready["status"] == "True", ready["message"].as_str().unwrap().to_owned())
        };
        let name = |node: &Value| node["metadata"]["name"].as_str().unwrap().to_owned();
        nodes["items"].as_array().unwrap().iter().map(|node| (name(node), state(node))).collect()
    }

    fn deploy(&self) {
        let dir = self.cluster.paths().dir();
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
        deploy::juneau(&dir.join("deploy"), &repository.join("deploy"), self.cluster.nodes()[0].address()).unwrap();
        let expression = json!({ "key": AWAY, "operator": "DoesNotExist" });
        let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": [expression] }],
        } } });
        // Asked more often than on a cluster on which nobody waits.
        let container = |name: &str, probes: &[&str]| {
            let periods = probes.iter().map(|probe| ((*probe).to_owned(), json!({ "periodSeconds": 1 })));
            let mut container: serde_json::Map<String, Value> = periods.collect();
            container.insert("name".to_owned(), json!(name));
            Value::from(container)
        };
        let agent = json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": { "name": "juneau-agent", "namespace": "juneau-system" },
            "spec": { "template": { "spec": {
                "affinity": affinity,
                "containers": [container("agent", &["startupProbe", "readinessProbe"])],
            } } },
        });
        let operator = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": { "name": "juneau-operator", "namespace": "juneau-system" },
            "spec": { "template": { "spec": { "containers": [container("operator", &["readinessProbe"])] } } },
        });
        let whole = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": ["deploy"],
            "patches": [{ "patch": agent.to_string() }, { "patch": operator.to_string() }],
        });
        std::fs::write(dir.join("kustomization.yaml"), whole.to_string()).unwrap();
        succeeds(self.kubectl("apply --server-side -k").arg(dir));
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub fn node(&self, name: &str) -> &Node {
        self.cluster.node(name).unwrap()
    }

    /// kubectl with these words.
    pub fn kubectl(&self, line: &str) -> Command {
        let mut command = self.cluster.control_plane().unwrap().kubectl();
        command.args(line.split_whitespace());
        command
    }

    pub fn apply(&self, manifests: &str) -> Result<(), String> {
        self.send("apply -f -", manifests)
    }

    /// Hands manifests to kubectl with these words; says why they were not taken.
    pub fn send(&self, line: &str, manifests: &str) -> Result<(), String> {
        let mut command = self.kubectl(line);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(manifests.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        if output.status.success() { Ok(()) } else { Err(text(&output)) }
    }

    /// Makes a Pod, and waits until it is ready.
    #[track_caller]
    pub fn start_pod(&self, tenant: &str, name: &str, node: &str, address: &str) {
        until("the Pod is taken", || self.apply(&pod(tenant, name, node, address)));
        self.wait_for_pod(tenant, name);
    }

    #[track_caller]
    pub fn wait_for_pod(&self, tenant: &str, name: &str) {
        let begun = Instant::now();
        succeeds(&mut self.kubectl(&format!("-n {tenant} wait --for=condition=Ready pod/{name} --timeout=90s")));
        told(&format!("Pod {tenant}/{name}"), begun);
    }

    #[track_caller]
    pub fn delete_pod(&self, tenant: &str, name: &str) {
        let begun = Instant::now();
        succeeds(&mut self.kubectl(&format!("-n {tenant} delete pod {name} --timeout=60s")));
        told(&format!("end of Pod {tenant}/{name}"), begun);
    }

    /// All of [`PODS`], made where they are missing.
    pub fn expect_pods(&self) {
        let pods = PODS.map(|(tenant, name, node, address)| pod(tenant, name, node, address));
        // Namespaces take Pods when their ServiceAccounts are there.
        until("the Pods are taken", || self.apply(&pods.join("---")));
        for tenant in ["red", "blue"] {
            succeeds(&mut self.kubectl(&format!("-n {tenant} wait --for=condition=Ready pod --all --timeout=90s")));
        }
    }

    /// The sandbox of a Pod, as the operator's object has it.
    pub fn sandbox(&self, tenant: &str, pod: &str) -> String {
        let line = format!("-n {tenant} get networkendpoint {pod}.eth0 -o jsonpath={{.spec.attachment.containerID}}");
        succeeds(&mut self.kubectl(&line))
    }

    /// The network of a Pod. What holds it keeps its namespace from going away.
    #[track_caller]
    pub fn inside(&self, tenant: &str, pod: &str) -> Inside {
        let line = format!("-n {tenant} get pod {pod} -o jsonpath={{.spec.nodeName}}");
        let node = self.node(&succeeds(&mut self.kubectl(&line))).clone();
        let process =
            until("the sandbox runs", || process_of(&node, &self.sandbox(tenant, pod)).ok_or_else(String::new));
        let namespace = format!("/proc/{}/root/proc/{process}/ns/net", node.first_process().unwrap());
        Inside(File::open(namespace).unwrap())
    }

    /// The network of a node.
    #[track_caller]
    pub fn host(&self, node: &str) -> Inside {
        Inside(File::open(format!("/proc/{}/ns/net", self.node(node).first_process().unwrap())).unwrap())
    }

    /// Each tenant's Pods reach each other on one node and on two, and not the other tenant's.
    #[track_caller]
    pub fn expect_network(&self) {
        let [red_a, red_b] = ["a", "b"].map(|name| self.inside("red", name));
        let blue_a = self.inside("blue", "a");
        for (from, address, who) in [
            (&red_a, "10.0.1.20", "red/b"),
            (&red_a, "10.0.1.40", "red/c"),
            (&red_b, "10.0.1.10", "red/a"),
            (&red_b, "10.0.1.40", "red/c"),
            (&blue_a, "10.0.1.30", "blue/b"),
        ] {
            assert_eq!(from.ask(address).as_deref(), Some(who), "at {address}");
        }
        // blue has one, as seen above.
        red_a.expect_silence("10.0.1.30");
    }

    /// The node's agent, asked there by its own client.
    pub fn agent(&self, node: &str, line: &str) -> Result<Value, String> {
        let mut command =
            self.node(node).command(&self.programs.file("juneau-agent")).map_err(|error| error.to_string())?;
        let output = command.args(line.split_whitespace()).args(["-o", "json"]).output().unwrap();
        if !output.status.success() {
            return Err(text(&output));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
    }

    /// The process of the node's agent, as the node sees it.
    pub fn agent_process(&self, node: &str) -> Option<String> {
        let mut ctr = self.node(node).ctr().unwrap();
        ctr.args(["containers", "list", "--quiet", "labels.\"io.kubernetes.container.name\"==agent"]);
        succeeds(&mut ctr).lines().find_map(|id| process_of(self.node(node), id))
    }

    /// Kills the node's agent.
    #[track_caller]
    pub fn kill_agent(&self, node: &str) {
        let process = self.agent_process(node).expect("there is an agent");
        succeeds(self.node(node).command(Path::new("kill")).unwrap().args(["-9", &process]));
    }

    /// Waits until an agent of the node says that it is ready.
    #[track_caller]
    pub fn wait_for_agent(&self, node: &str) {
        until("the agent is ready", || self.agent(node, "status --ready"));
    }

    /// Runs a shell's line in a node.
    pub fn on(&self, node: &str, line: &str) -> String {
        succeeds(self.node(node).command(Path::new("/bin/sh")).unwrap().args(["-c", line]))
    }

    /// What of a Pod could stay behind on a node.
    pub fn left_on(&self, node: &str) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for line in ["ls /sys/class/net", "ls /run/netns", "ls /sys/fs/bpf/juneau/links", "ls /var/lib/kubelet/pods"] {
            // An agent's own Pod has a directory, and may be another one than before.
            let entries = self.on(node, line);
            let agents = if line.ends_with("/pods") { self.system_pods() } else { String::new() };
            all.extend(
                entries.lines().filter(|id| !agents.contains(id)).map(|entry| format!("{node}: {line}: {entry}")),
            );
        }
        let entry = |endpoint: &Value| format!("{node}: endpoint {} {}", endpoint["vpc"], endpoint["address"]);
        let endpoints = until("the agent answers", || self.agent(node, "endpoints"));
        all.extend(endpoints["endpoints"].as_array().unwrap().iter().map(entry));
        all
    }

    fn system_pods(&self) -> String {
        succeeds(&mut self.kubectl("-n juneau-system get pod -o jsonpath={.items[*].metadata.uid}"))
    }

    /// The same of both nodes, and what the API server has of Pods.
    pub fn left(&self) -> BTreeSet<String> {
        let objects = "get pods,networkendpoints,networkinterfaces -o name";
        let mut all: BTreeSet<String> = ["red", "blue"]
            .iter()
            .flat_map(|tenant| {
                let names = succeeds(&mut self.kubectl(&format!("-n {tenant} {objects}")));
                names.lines().map(|name| format!("{tenant}: {name}")).collect::<Vec<_>>()
            })
            .collect();
        // Other tests' come and go in their time.
        let taken = succeeds(&mut self.kubectl("get allocationleases,allocationclaims -o name"));
        let ours = |name: &&str| ["red", "blue"].iter().any(|tenant| name.contains(&format!("/subnet-ip-{tenant}--")));
        all.extend(taken.lines().filter(ours).map(str::to_owned));
        ["node-1", "node-2"].iter().for_each(|node| all.extend(self.left_on(node)));
        all
    }

    /// What there is once nothing is left of Pods that earlier tests ended: a kubelet removes their directories in its time.
    #[track_caller]
    pub fn settled(&self) -> BTreeSet<String> {
        until("directories are those of Pods that there are", || {
            let pods = succeeds(&mut self.kubectl("get pods -A -o jsonpath={.items[*].metadata.uid}"));
            let of_no_pod =
                |node: &&str| self.on(node, "ls /var/lib/kubelet/pods").lines().any(|id| !pods.contains(id));
            match ["node-1", "node-2"].into_iter().find(of_no_pod) {
                None => Ok(()),
                Some(node) => Err(format!("{node} has more")),
            }
        });
        self.left()
    }

    /// Waits until there is what there was.
    #[track_caller]
    pub fn expect_left(&self, before: &BTreeSet<String>) {
        until("what is there is what was there", || {
            let now = self.left();
            let (more, less): (Vec<_>, Vec<_>) = (now.difference(before).collect(), before.difference(&now).collect());
            if more.is_empty() && less.is_empty() { Ok(()) } else { Err(format!("more {more:#?}, less {less:#?}")) }
        });
    }

    /// The same, but for the names of what was made anew.
    #[track_caller]
    pub fn expect_as_many(&self, before: &BTreeSet<String>) {
        until("there is as much as there was", || match (count(&self.left()), count(before)) {
            (now, before) if now == before => Ok(()),
            (now, before) => Err(format!("{now:#?} in the place of {before:#?}")),
        });
    }
}

/// Entries of directories are counted, others named.
fn count(entries: &BTreeSet<String>) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for entry in entries {
        let kind = if entry.contains(": ls ") { entry.rsplit_once(": ").map_or("", |(kind, _)| kind) } else { entry };
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

/// The first process of a container that runs, as the node sees it.
fn process_of(node: &Node, container: &str) -> Option<String> {
    let tasks = node.ctr().ok()?.args(["tasks", "list"]).output().ok()?;
    let tasks = String::from_utf8_lossy(&tasks.stdout).into_owned();
    let mut rows = tasks.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.len() == 3 && row[0] == container && row[2] == "RUNNING")?;
    Some(row[1].to_owned())
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(format!("juneau-{name}.oci.tar"))
}
