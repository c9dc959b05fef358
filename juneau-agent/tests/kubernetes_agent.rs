//! An agent at a real API server, under its own ServiceAccount whose token is bound to its node.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use juneau_agent::protocol::{CallError, Method};
use juneau_controlplane::{AuditEvent, ControlPlane, Options, Programs};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use support::agent::{Agent, Node, container_id, until};
use support::{Pod, in_node, lonely_underlay, run};

const AGENT: &str = "system:serviceaccount:juneau-system:juneau-agent";
const API: &str = "juneau.loutres.me/v1alpha1";
/// Where the agent finds the API server.
const PORT: u16 = 6443;
/// Kinds that an agent reads.
const KINDS: usize = 10;

/// The way from the agent, in its node's network namespace, to the API server, in the machine's. It can be cut.
struct Way {
    listener: mpsc::Sender<TcpListener>,
    open: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    fn to(server: String) -> Self {
        let (listener, listening) = mpsc::channel::<TcpListener>();
        let way =
            Self { listener, open: Arc::new(AtomicBool::new(true)), refused: Arc::default(), streams: Arc::default() };
        let (open, refused, streams) = (Arc::clone(&way.open), Arc::clone(&way.refused), Arc::clone(&way.streams));
        std::thread::spawn(move || {
            let Ok(listener) = listening.recv() else { return };
            for client in listener.incoming() {
                let client = client.unwrap();
                if !open.load(Ordering::SeqCst) {
                    refused.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                let Ok(server) = TcpStream::connect(&server) else { return };
                for (mut from, mut to) in [
                    (client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (server.try_clone().unwrap(), client.try_clone().unwrap()),
                ] {
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                streams.lock().unwrap().extend([client, server]);
            }
        });
        way
    }

    /// Begins, in the network namespace of the caller.
    fn begin(&self) {
        self.listener.send(TcpListener::bind(("127.0.0.1", PORT)).unwrap()).unwrap();
    }

    fn cut(&self) {
        self.refused.store(0, Ordering::SeqCst);
        self.open.store(false, Ordering::SeqCst);
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn mend(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}

/// A control plane with what `deploy/` holds and a tenant.
struct World {
    control_plane: ControlPlane,
    way: Way,
    kubeconfig: PathBuf,
}

impl World {
    fn new(options: &Options) -> Self {
        let programs = Programs::find_or_build(&mut |_| {}).unwrap();
        let control_plane = ControlPlane::start(&programs, options).unwrap();
        let kubectl = |arguments: &[&str]| {
            let output = control_plane.kubectl().args(arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        let whole = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");
        kubectl(&["apply", "--server-side", "-k", whole]);
        kubectl(&["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"]);
        // Nobody answers it here.
        kubectl(&["delete", "validatingwebhookconfiguration", "juneau"]);
        kubectl(&["create", "--validate=false", "-f", &node_file(control_plane.dir())]);
        let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.168.77.11"}]}});
        kubectl(&["patch", "node", "node-1", "--subresource=status", "--type=merge", "-p", &addresses.to_string()]);

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let token = control_plane.service_account_kubeconfig("juneau-system", "juneau-agent", Some("node-1"));
        let text = std::fs::read_to_string(runtime.block_on(token).unwrap()).unwrap();
        let mut config: Value = serde_saphyr::from_str(&text).unwrap();
        let cluster = &mut config["clusters"][0]["cluster"];
        let server = cluster["server"].as_str().unwrap().strip_prefix("https://").unwrap().to_owned();
        let way = Way::to(server.clone());
        cluster["server"] = format!("https://127.0.0.1:{PORT}").into();
        cluster["tls-server-name"] = server.rsplit_once(':').unwrap().0.into();
        let kubeconfig = control_plane.dir().join("agent.kubeconfig");
        std::fs::write(&kubeconfig, config.to_string()).unwrap();

        let world = Self { control_plane, way, kubeconfig };
        world.namespace("red");
        let only_red = json!({"allowedNamespaces": {"matchLabels": {"tenant": "red"}}});
        world.ours("Vpc", "", "red", only_red, json!({"vpcID": 2, "mainRouteTable": "red"}));
        let gateway = json!({"vni": 201, "gateway": "10.0.1.1", "gatewayMAC": "02:00:0a:00:01:01"});
        world.ours("Subnet", "", "red-a", json!({"vpc": "red", "cidr": "10.0.1.0/24"}), gateway);
        let connected = json!([{"dst": "10.0.1.0/24", "via": {"type": "connected"}, "subnet": "red-a"}]);
        world.ours("RouteTable", "", "red", json!({"vpc": "red"}), json!({"tableID": 20, "routes": connected}));
        world
    }

    fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        let kubectl = self.control_plane.kubectl();
        // From a node's network namespace, too.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", std::process::id())).arg(kubectl.get_program());
        command
            .args(kubectl.get_args())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?} {input}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn apply(&self, object: &Value) {
        self.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &object.to_string());
    }

    fn get(&self, kind: &str, namespace: &str, name: &str) -> Value {
        serde_json::from_str(&self.kubectl(&["get", kind, "-n", namespace, name, "-o", "json"], "")).unwrap()
    }

    /// An object of ours with its status.
    fn ours(&self, kind: &str, namespace: &str, name: &str, spec: Value, status: Value) {
        let mut metadata = json!({"name": name});
        if !namespace.is_empty() {
            metadata["namespace"] = namespace.into();
        }
        self.apply(&json!({"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}));
        if !status.is_null() {
            let status = json!({"status": status}).to_string();
            let place = ["patch", kind, name, "-n", namespace, "--subresource=status", "--type=merge", "-p", &status];
            self.kubectl(&place, "");
        }
    }

    fn namespace(&self, name: &str) {
        let metadata = json!({"name": name, "labels": {"tenant": name}});
        self.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}));
        let account = json!({"name": "default", "namespace": name});
        self.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}));
    }

    /// A Pod of the node in Subnet red-a, with what an operator makes of it; the endpoint's address may be another one
    /// than the interface's.
    fn pod(&self, namespace: &str, name: &str, allocated: u8, taken: u8) {
        self.pod_at(namespace, name, "red-a", "node-1", allocated, taken);
    }

    fn pod_at(&self, namespace: &str, name: &str, subnet: &str, node: &str, allocated: u8, taken: u8) {
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "none"}],
            "automountServiceAccountToken": false});
        let metadata = json!({"name": name, "namespace": namespace});
        self.apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}));
        let uid = self.get("pod", namespace, name)["metadata"]["uid"].clone();
        let interface = format!("{name}.eth0");
        let reference = json!({"name": name, "interface": "eth0", "uid": uid});
        let spec = json!({"podRef": reference, "nodeName": node, "subnet": subnet});
        let address = json!({"phase": "Allocated", "address": format!("10.0.1.{allocated}/24")});
        self.ours("NetworkInterface", namespace, &interface, spec, address);
        let spec = json!({"kind": "Pod", "nodeName": node, "subnet": subnet, "podRef": reference,
            "address": format!("10.0.1.{taken}/24"), "macAddress": format!("02:00:0a:00:01:{taken:02x}")});
        self.ours("NetworkEndpoint", namespace, &interface, spec, Value::Null);
    }

    fn attachment(&self, name: &str) -> Value {
        self.get("networkendpoint", "red", name)["spec"]["attachment"].clone()
    }

    /// Waits for an Event of the agent about an endpoint.
    fn rejected(&self, namespace: &str, endpoint: &str, why: &str) {
        until("an Event", || {
            let text = self.kubectl(&["get", "events.v1.events.k8s.io", "-n", namespace, "-o", "json"], "");
            let list: Value = serde_json::from_str(&text).unwrap();
            let about = |event: &&Value| event["reason"] == "Rejected" && event["regarding"]["name"] == endpoint;
            let events: Vec<&Value> = list["items"].as_array().unwrap().iter().filter(about).collect();
            (events.len() == 1 && events[0]["note"].as_str().unwrap().contains(why)).then_some(())
        })
        .unwrap_or_else(|| panic!("no Event about {namespace}/{endpoint} says {why}"));
    }

    /// What the agent asked.
    fn asked(&self) -> Vec<AuditEvent> {
        let mut events = self.control_plane.audit().events().unwrap();
        events.retain(|event| event.user == AGENT);
        events
    }

    /// How often it asked for all objects of a kind. A list that a server does not stream is asked for a second time.
    fn lists(&self) -> usize {
        let asked = self.asked();
        let count = |is: fn(&AuditEvent) -> bool| asked.iter().filter(|event| is(event)).count();
        let all = |event: &AuditEvent| event.verb == "list" && !is_part(event);
        count(all).max(count(|event| event.uri.contains("sendInitialEvents=true")))
    }

    fn nothing_was_forbidden(&self) {
        let mut forbidden = self.control_plane.audit().forbidden().unwrap();
        forbidden.retain(|event| event.user == AGENT);
        assert!(forbidden.is_empty(), "{forbidden:#?}");
    }
}

/// It asked for interfaces or endpoints of one node or Subnet, once.
fn is_part(event: &AuditEvent) -> bool {
    event.verb == "list" && event.uri.contains("fieldSelector=spec.") && event.resource != "pods"
}

fn node_file(directory: &Path) -> String {
    let path = directory.join("node.json");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}});
    std::fs::write(&path, node.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn hears(pod: &Pod, address: &str) -> bool {
    pod.succeeds(&format!("ping -c 2 -i 0.1 -W 2 {address}"))
}

/// Waits until every watch was told something; the longest pause after an error is 30 s.
fn back(agent: &Agent<'_>) {
    let is_well = || {
        let problems = agent.status().problems;
        (!problems.iter().any(|problem| problem.object.starts_with("watch of"))).then_some(())
    };
    assert!((0..5).any(|_| until("watches are back", is_well).is_some()), "{:#?}", agent.status().problems);
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn it_serves_its_node_tells_what_it_did_and_outlives_the_api_server() {
    let world = World::new(&Options::default());
    in_node(move || {
        lonely_underlay();
        world.way.begin();
        world.pod("red", "a1", 10, 10);
        world.pod("red", "b1", 11, 11);
        let node = Node::new("node-1");
        let agent = node.start_at(&world.kubeconfig).ready();
        let [a1, b1, d1] = [Pod::new(), Pod::new(), Pod::new()];
        agent.attach(&a1, "red", "a1");
        let attached = agent.attach(&b1, "red", "b1");
        assert!(hears(&a1, "10.0.1.11"));

        // What it did, by server-side apply.
        let told =
            |name: &str| until("an attachment", || Some(world.attachment(name)).filter(Value::is_object)).unwrap();
        assert_eq!(told("b1.eth0")["containerID"], container_id("red", "b1"));
        let first = told("a1.eth0");
        let endpoint =
            world.kubectl(&["get", "nwep", "-n", "red", "a1.eth0", "-o", "json", "--show-managed-fields"], "");
        let endpoint: Value = serde_json::from_str(&endpoint).unwrap();
        let managers = endpoint["metadata"]["managedFields"].as_array().unwrap();
        let ours: Vec<_> = managers.iter().filter(|entry| entry["manager"] == "juneau-agent").collect();
        assert_eq!(ours.len(), 1);
        assert_eq!(ours[0]["operation"], "Apply");

        // What it refuses, though no webhook was asked: an address that is not the interface's, and a tenant who may not
        // be here.
        world.pod("red", "c1", 12, 13);
        world.rejected("red", "c1.eth0", "has the address 10.0.1.12, not 10.0.1.13");
        world.namespace("blue");
        world.pod("blue", "x", 14, 14);
        world.rejected("blue", "x.eth0", "Namespace/blue may not enter Vpc/red");
        let intruder = Pod::new();
        let sandbox = node.sandbox(&intruder, "blue", "x", &container_id("blue", "x"));
        let refused = node.ask::<Value>(&Method::Attach(sandbox)).unwrap_err();
        assert!(
            matches!(&refused, CallError::Refused(failure) if failure.message.contains("may not enter")),
            "{refused}"
        );

        it_holds_only_what_it_needs(&world, &node, &agent);

        // Detached while no agent ran: the next one says so, and nothing else again.
        agent.kill();
        run(&format!("ip link delete {}", attached.host_interface));
        assert!(world.attachment("b1.eth0").is_object());
        let log = world.control_plane.audit().from_now().unwrap();
        let agent = node.start_at(&world.kubeconfig).ready();
        until("taken back", || world.attachment("b1.eth0").is_null().then_some(())).unwrap();
        assert_eq!(world.attachment("a1.eth0"), first);
        let writes = log.writes_of(AGENT).unwrap();
        let patches = writes.get(&("patch".to_owned(), "networkendpoints".to_owned()));
        assert_eq!(patches, Some(&1), "{writes:?}");

        // Without the server packets go on; who is away comes back slowly, and goes on where it was.
        agent.attach(&b1, "red", "b1");
        told("b1.eth0");
        world.way.cut();
        world.pod("red", "d1", 15, 15);
        std::thread::sleep(Duration::from_secs(3));
        assert!(hears(&a1, "10.0.1.11"));
        let tries = world.way.refused.load(Ordering::SeqCst);
        assert!((1..=KINDS * 5).contains(&tries), "{tries} tries in 3 s");
        world.way.mend();
        let sandbox = node.sandbox(&d1, "red", "d1", &container_id("red", "d1"));
        // A quiet watch that was taken up again says nothing; what is new comes.
        let attached = || node.ask::<Value>(&Method::Attach(sandbox.clone())).ok();
        assert!((0..3).any(|_| until("attached", attached).is_some()), "{:#?}", agent.status().problems);
        assert!(hears(&a1, "10.0.1.15"));
        told("d1.eth0");
        // An endpoint that goes while its Pod is attached is not made again by what is said of it.
        world.kubectl(&["delete", "nwep", "-n", "red", "d1.eth0"], "");
        agent.detach(&d1, "red", "d1");
        assert!(agent.stop());

        // Watches are in the log when they have ended.
        until("watches ended", || (world.lists() >= 2 * KINDS).then_some(())).unwrap();
        let asked = world.asked();
        let shown =
            || asked.iter().map(|event| format!("{} {} {}", event.verb, event.uri, event.code)).collect::<Vec<_>>();
        assert_eq!(world.lists(), 2 * KINDS, "one a start and kind: {:#?}", shown());
        let mut lists = asked.iter().filter(|event| event.verb == "list" && !is_part(event));
        assert!(lists.all(|event| event.uri.contains("resourceVersion=0")), "lists come from the server's cache");
        let watches: Vec<_> = asked.iter().filter(|event| event.verb == "watch").collect();
        assert!(watches.len() > 2 * KINDS, "nothing was resumed");
        assert!(watches.iter().all(|event| event.uri.contains("allowWatchBookmarks=true")), "{watches:#?}");
        let pods = watches.iter().filter(|event| event.resource == "pods");
        assert!(pods.clone().count() > 0 && pods.clone().all(|event| event.uri.contains("spec.nodeName%3Dnode-1")));
        let left = world.kubectl(&["get", "nwep", "-n", "red", "-o", "name"], "");
        assert!(left.contains("a1.eth0") && !left.contains("d1.eth0"), "{left}");
        world.nothing_was_forbidden();
    });
}

/// Endpoints of a VPC are there before a Pod in it is attached, and not before there is one, and not for long after.
fn it_holds_only_what_it_needs(world: &World, node: &Node, agent: &Agent<'_>) {
    let held = |count: usize| {
        let text = scrape(node);
        text.contains(&format!("juneau_held_objects{{kind=\"NetworkEndpoint\"}} {count}\n")).then_some(())
    };
    // Of red: a1, b1, c1, and blue's x, which says to be here.
    until("what is needed", || held(4)).unwrap_or_else(|| panic!("{}", scrape(node)));
    world.ours("Vpc", "", "blue", json!({}), json!({"vpcID": 3, "mainRouteTable": "blue"}));
    let gateway = json!({"vni": 301, "gateway": "10.0.1.1", "gatewayMAC": "02:00:0a:00:01:01"});
    world.ours("Subnet", "", "blue-a", json!({"vpc": "blue", "cidr": "10.0.1.0/24"}), gateway);
    let connected = json!([{"dst": "10.0.1.0/24", "via": {"type": "connected"}, "subnet": "blue-a"},
        {"dst": "10.9.0.0/16", "via": {"type": "endpoint", "endpointName": "far.eth0"}}]);
    world.ours("RouteTable", "", "blue", json!({"vpc": "blue"}), json!({"tableID": 30, "routes": connected}));
    world.kubectl(
        &["create", "--validate=false", "-f", "-"],
        &json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "node-2"}})
        .to_string(),
    );
    let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.168.77.12"}]}});
    world.kubectl(
        &["patch", "node", "node-2", "--subresource=status", "--type=merge", "-p", &addresses.to_string()],
        "",
    );
    let log = world.control_plane.audit().from_now().unwrap();
    world.pod_at("blue", "far", "blue-a", "node-2", 20, 20);
    until("the table is seen", || scrape(node).contains("{kind=\"RouteTable\"} 2\n").then_some(())).unwrap();
    // What comes after the endpoint has been seen.
    world.pod("red", "e1", 16, 16);
    until("what is needed", || held(5)).unwrap_or_else(|| panic!("{}", scrape(node)));
    let problems = agent.status().problems;
    assert!(
        !problems.iter().any(|problem| problem.object.contains("blue/far") || problem.object.contains("Table/blue"))
    );

    world.pod_at("blue", "near", "blue-a", "node-1", 21, 21);
    let near = Pod::new();
    let sandbox = node.sandbox(&near, "blue", "near", &container_id("blue", "near"));
    until("attached", || node.ask::<Value>(&Method::Attach(sandbox.clone())).ok()).unwrap();
    held(7).unwrap_or_else(|| panic!("{}", scrape(node)));
    let routes: Value = serde_json::to_value(agent.endpoints()).unwrap();
    assert!(routes.to_string().contains("10.0.1.20"), "{routes}");
    let parts = || log.events().unwrap().into_iter().filter(|event| event.user == AGENT && is_part(event)).count();
    assert_eq!(parts(), 2, "one list of each kind for the one Subnet");

    agent.detach(&near, "blue", "near");
    for object in ["pod/near", "nwep/near.eth0", "networkinterface/near.eth0"] {
        world.kubectl(&["delete", "-n", "blue", "--grace-period=0", "--force", object], "");
    }
    until("forgotten", || held(5)).unwrap_or_else(|| panic!("{}", scrape(node)));
    for object in ["pod/e1", "nwep/e1.eth0", "networkinterface/e1.eth0"] {
        world.kubectl(&["delete", "-n", "red", "--grace-period=0", "--force", object], "");
    }
}

/// What the agent's metrics say.
fn scrape(node: &Node) -> String {
    let socket = node.directory.path().join("metrics.sock");
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: node\r\n\r\n").unwrap();
    std::io::read_to_string(stream).unwrap()
}

#[test]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
fn a_version_that_the_server_has_forgotten_means_one_list_of_each_kind() {
    // Without a cache what a watch may go on from is what etcd has; it forgets what is older than two intervals.
    let options = Options::default()
        .api_server_argument("--watch-cache=false")
        .api_server_argument("--etcd-compaction-interval=1s");
    let world = World::new(&options);
    in_node(move || {
        lonely_underlay();
        world.way.begin();
        world.pod("red", "a1", 10, 10);
        let node = Node::new("node-1");
        let agent = node.start_at(&world.kubeconfig).ready();
        let [a1, b1] = [Pod::new(), Pod::new()];
        agent.attach(&a1, "red", "a1");
        until("an attachment", || Some(world.attachment("a1.eth0")).filter(Value::is_object)).unwrap();
        world.way.cut();
        world.pod("red", "b1", 11, 11);
        for _ in 0..3 {
            world.kubectl(
                &["annotate", "--overwrite", "namespace", "red", &format!("turn={:?}", std::time::Instant::now())],
                "",
            );
            std::thread::sleep(Duration::from_secs(1));
        }
        world.way.mend();
        back(&agent);
        agent.attach(&b1, "red", "b1");
        assert!(hears(&a1, "10.0.1.11"));
        assert!(agent.stop());
        until("watches ended", || (world.lists() >= 2 * KINDS).then_some(())).unwrap();
        let lists: Vec<_> =
            world.asked().into_iter().map(|event| format!("{} {} {}", event.verb, event.uri, event.code)).collect();
        assert_eq!(world.lists(), 2 * KINDS, "{lists:#?}");
        world.nothing_was_forbidden();
    });
}
