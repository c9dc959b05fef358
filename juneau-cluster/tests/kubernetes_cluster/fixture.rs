//! The cluster that the tests share, and what they ask it.

use crate::programs::{Programs, succeeds};
use juneau_cluster::{Cluster, Node, Options, Paths, deploy};
use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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
      command: ["/bin/busybox", "sh", "-c", "echo TENANT/NAME >/tmp/who; exec busybox httpd -f -h /tmp"]
"#;

/// A Pod that answers with its name, in the tenant's Subnet.
pub fn pod(tenant: &str, name: &str, node: &str, address: &str) -> String {
    pod_with_grace(tenant, name, node, address, 1)
}

/// One that takes so many seconds to end.
pub fn pod_with_grace(tenant: &str, name: &str, node: &str, address: &str, grace: u32) -> String {
    let pod = POD.replace("TENANT", tenant).replace("NAME", name).replace("NODE", node);
    pod.replace("ADDRESS", address).replace("GRACE", &grace.to_string())
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
    let deadline = Instant::now() + LIMIT;
    loop {
        match ask() {
            Ok(value) => return value,
            Err(last) => assert!(Instant::now() < deadline, "{what}: not within {} s: {last}", LIMIT.as_secs()),
        }
        std::thread::sleep(Duration::from_millis(50));
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
        self.run(|| {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            stream.write_all(b"GET /who HTTP/1.0\r\n\r\n").ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            answer.lines().last().map(str::to_owned)
        })
    }
}

/// A cluster with two nodes, Juneau and two tenants.
pub struct Fixture {
    cluster: Cluster,
    programs: Programs,
    turn: Mutex<()>,
}

impl Fixture {
    /// The cluster that all tests of this process have in common: it ends with the last one that holds it, or waits for
    /// its turn.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Fixture>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let started = Arc::new(Self::start());
            *shared = Arc::downgrade(&started);
            started
        })
    }

    /// The cluster is the caller's alone until the guard goes. All of [`PODS`] are there and reach each other.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.expect_network();
        turn
    }

    fn start() -> Self {
        let begun = Instant::now();
        let programs = Programs::new();
        let paths = Paths::new(format!("/run/juneau-cluster-test-shared-{}", std::process::id()));
        let images = programs.images();
        let mut options = Options::new(programs.file("juneau-cluster"));
        options.images = ["agent", "operator"].map(|name| images.join(file(name))).into();
        let cluster = Cluster::start(&paths, &options, &mut |line| println!("{line}")).unwrap();
        let this = Self { cluster, programs, turn: Mutex::default() };
        this.deploy();
        for tenant in ["red", "blue"] {
            until("the webhook answers", || this.apply(&TENANT.replace("TENANT", tenant)));
        }
        for kind in ["vpc", "subnet"] {
            succeeds(&mut this.kubectl(&format!("wait --for=condition=Ready {kind} --all --timeout=60s")));
        }
        this.expect_pods();
        println!("the cluster is there after {:.1} s", begun.elapsed().as_secs_f32());
        this
    }

    fn deploy(&self) {
        let dir = self.cluster.paths().dir();
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
        deploy::juneau(&dir.join("deploy"), &repository.join("deploy"), self.cluster.nodes()[0].address()).unwrap();
        let expression = json!({ "key": AWAY, "operator": "DoesNotExist" });
        let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": [expression] }],
        } } });
        let agent = json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": { "name": "juneau-agent", "namespace": "juneau-system" },
            "spec": { "template": { "spec": { "affinity": affinity } } },
        });
        let whole = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": ["deploy"],
            "patches": [{ "patch": agent.to_string() }],
        });
        std::fs::write(dir.join("kustomization.yaml"), whole.to_string()).unwrap();
        succeeds(self.kubectl("apply --server-side -k").arg(dir));
        // Nodes get ready when their agents have put the plugin's configuration in place.
        succeeds(&mut self.kubectl("wait --for=condition=Ready node --all --timeout=90s"));
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
        let mut command = self.kubectl("apply -f -");
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
        succeeds(&mut self.kubectl(&format!("-n {tenant} wait --for=condition=Ready pod/{name} --timeout=90s")));
    }

    #[track_caller]
    pub fn delete_pod(&self, tenant: &str, name: &str) {
        succeeds(&mut self.kubectl(&format!("-n {tenant} delete pod {name} --timeout=60s")));
    }

    /// All of [`PODS`], made where they are missing.
    pub fn expect_pods(&self) {
        for (tenant, name, node, address) in PODS {
            // Namespaces take Pods when their ServiceAccounts are there.
            until("the Pod is taken", || self.apply(&pod(tenant, name, node, address)));
        }
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
        assert_eq!(red_a.ask("10.0.1.30"), None);
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
        let objects = "get pods,allocationleases,allocationclaims,networkendpoints,networkinterfaces -o name";
        let mut all: BTreeSet<String> = ["red", "blue"]
            .iter()
            .flat_map(|tenant| {
                let names = succeeds(&mut self.kubectl(&format!("-n {tenant} {objects}")));
                names.lines().map(|name| format!("{tenant}: {name}")).collect::<Vec<_>>()
            })
            .collect();
        let leases = succeeds(&mut self.kubectl("get allocationleases -A -o name"));
        all.extend(leases.lines().map(str::to_owned));
        ["node-1", "node-2"].iter().for_each(|node| all.extend(self.left_on(node)));
        all
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
