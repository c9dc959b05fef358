//! The program against a real API server, with the operator under its ServiceAccount, as users of few rights.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use clap::Parser as _;
use juneau_controlplane::{ControlPlane, Options, Programs};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::watch;

const PATIENCE: Duration = Duration::from_secs(60);
const API_VERSION: &str = "juneau.loutres.me/v1alpha1";

/// A port that was free a moment ago.
fn port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

struct Cluster {
    control_plane: ControlPlane,
    webhook: u16,
}

impl Cluster {
    async fn start() -> Self {
        let control_plane = tokio::task::spawn_blocking(|| {
            let programs = Programs::find_or_build(&mut |_| {}).unwrap();
            // The roles that are put together of others are put together by a controller.
            ControlPlane::start(&programs, &Options::default().controllers()).unwrap()
        });
        Self { control_plane: control_plane.await.unwrap(), webhook: port() }
    }

    fn run(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut command = self.control_plane.kubectl();
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    fn apply(&self, text: &str) {
        let arguments = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.run(&arguments, text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    }

    fn put(&self, objects: &[Value]) {
        self.apply(&json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string());
    }

    fn base(file: &str) -> String {
        let base = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/base");
        std::fs::read_to_string(base.join(file)).unwrap()
    }

    /// A user who has a role in the whole cluster, or in one namespace.
    fn user(&self, name: &str, role: &str, namespace: Option<&str>) -> PathBuf {
        let (kind, metadata) = match namespace {
            None => ("ClusterRoleBinding", json!({"name": name})),
            Some(namespace) => ("RoleBinding", json!({"name": name, "namespace": namespace})),
        };
        self.put(&[json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]})]);
        self.control_plane.user_kubeconfig(name, None).unwrap()
    }
}

/// What the program said.
#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    error: String,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

fn ask(kubeconfig: &Path, arguments: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-juneau"));
    let output = command.arg("--kubeconfig").arg(kubeconfig).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code().unwrap(), out: text(output.stdout), error: text(output.stderr) }
}

/// What is off by `status`, as `object reason`.
fn off(report: &Value) -> Vec<String> {
    let problems = report["problems"].as_array().unwrap();
    let text = |problem: &Value| {
        let object = &problem["object"];
        let namespace = object["namespace"].as_str().map(|name| format!("{name}/")).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        assert!(!text(&problem["remedy"]).is_empty(), "{problem}");
        format!("{}/{namespace}{} {}", text(&object["kind"]), text(&object["name"]), text(&problem["reason"]))
    };
    problems.iter().map(text).collect()
}

/// Asks until something is so.
async fn until(what: &str, kubeconfig: &Path, arguments: &[&str], is: impl Fn(&Said) -> bool) -> Said {
    let begun = Instant::now();
    loop {
        let said = ask(kubeconfig, arguments);
        if is(&said) {
            return said;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}: {said:#?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    options: juneau_operator::run::Options,
}

/// The operator, in this process and under its own account.
struct Operator {
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<Result<(), juneau_operator::run::RunError>>,
}

impl Operator {
    async fn start(cluster: &Cluster) -> Self {
        let account = cluster.control_plane.service_account_kubeconfig("juneau-system", "juneau-operator", None);
        let kubeconfig = account.await.unwrap().to_str().unwrap().to_owned();
        let webhook = format!("--webhook-bind-address=127.0.0.1:{}", cluster.webhook);
        let health = format!("--health-probe-bind-address=127.0.0.1:{}", port());
        let words = ["operator", "--pod-namespace", "juneau-system", "--kubeconfig", &kubeconfig, &webhook, &health];
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tokio::spawn(juneau_operator::run::run(Line::parse_from(words).options, stopped)) }
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        self.task.await.unwrap().unwrap();
    }
}

fn own(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn namespace(name: &str) -> [Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"tenant": name}}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}),
    ]
}

fn pod(namespace: &str, name: &str, subnet: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": {"juneau.loutres.me/subnet": subnet}},
        "spec": {"nodeName": "node-a", "containers": [{"name": "c", "image": "none"}],
                 "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0}})
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

/// A kubeconfig like another one, changed.
fn changed(like: &Path, name: &str, change: impl Fn(&mut Value)) -> PathBuf {
    let mut file: Value = serde_saphyr::from_str(&std::fs::read_to_string(like).unwrap()).unwrap();
    change(&mut file);
    let path = like.with_file_name(name);
    std::fs::write(&path, file.to_string()).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn what_is_off_is_told_to_users_of_few_rights_until_it_is_repaired() {
    let cluster = Cluster::start().await;
    let admin = cluster.control_plane.kubeconfig();

    // Without Juneau.
    let said = ask(&admin, &["status"]);
    assert_eq!((said.code, said.out.as_str()), (2, ""), "{said:?}");
    assert!(said.error.contains("juneau-operator crds | kubectl apply"), "{said:?}");
    let said = ask(&admin, &["version"]);
    assert!(said.code == 1 && said.out.contains("not shown") && said.out.contains("API server      v1."), "{said:?}");

    cluster.apply(&juneau_operator::crds().unwrap());
    cluster.run(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"], "").unwrap();
    for file in ["namespace.yaml", "roles-operator.yaml", "roles-agent.yaml", "roles-users.yaml", "policy.yaml"] {
        cluster.apply(&Cluster::base(file));
    }
    cluster.put(&[&namespace("red")[..], &namespace("blue")[..], &[node("node-a")]].concat());
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}).to_string();
    cluster.run(&["patch", "node", "node-a", "--subresource=status", "--type=merge", "-p", &status], "").unwrap();
    let viewer = cluster.user("viewer", "view", None);
    let tenant = changed(&cluster.user("tenant", "view", Some("red")), "tenant-red.kubeconfig", |file| {
        file["contexts"][0]["context"]["namespace"] = "red".into();
    });
    let nobody = cluster.control_plane.user_kubeconfig("nobody", None).unwrap();

    // Without an operator and without a webhook.
    let said = until("the role is put together", &viewer, &["status", "-o", "json"], |said| {
        said.code == 1 && said.json()["operator"].is_object() && said.json()["webhook"].is_object()
    });
    let report = said.await.json();
    let missing = [
        "Lease/juneau-system/e810463e.juneau.loutres.me OperatorMissing",
        "ValidatingWebhookConfiguration/juneau WebhookMissing",
    ];
    assert_eq!(off(&report), missing);

    // Five things that are wrong, while nobody admits.
    let operator = Operator::start(&cluster).await;
    let mut objects = vec![
        own("Vpc", "red", json!({"allowedNamespaces": {"matchLabels": {"tenant": "red"}}})),
        own(
            "RouteTable",
            "red",
            json!({"vpc": "red", "routes": [
            {"dst": "172.16.0.0/12", "via": {"type": "endpoint", "endpointName": "firewall.eth0"}}]}),
        ),
        own("Subnet", "red-a", json!({"vpc": "red", "cidr": "10.0.1.0/24"})),
        own("Subnet", "red-tiny", json!({"vpc": "red", "cidr": "10.0.2.0/28"})),
        own("Subnet", "orphan", json!({"vpc": "gone", "cidr": "10.0.3.0/24"})),
        pod("red", "a1", "red-a"),
        pod("blue", "stranger", "red-a"),
    ];
    objects.extend((0..11).map(|number| pod("red", &format!("t{number:02}"), "red-tiny")));
    cluster.put(&objects);
    let wait = ["wait", "--for=condition=Ready", "--timeout=60s", "nic", "--all", "-n", "red"];
    until("eleven have an address", &viewer, &["status", "-o", "json"], |said| {
        let kinds = said.json()["kinds"].as_array().cloned().unwrap_or_default();
        kinds.iter().any(|kind| kind["kind"] == "NetworkInterface" && kind["ready"] == 12)
    })
    .await;
    cluster.run(&wait, "").unwrap();
    cluster.put(&[pod("red", "late", "red-tiny")]);
    let wrong = [
        missing[1],
        "NetworkInterface/blue/stranger.eth0 NamespaceNotAllowed",
        "NetworkInterface/red/late.eth0 SubnetExhausted",
        "RouteTable/red TargetNotFound",
        "Subnet/orphan VpcNotFound",
    ];
    let said =
        until("all that is wrong is told", &viewer, &["status", "-o", "json"], |said| off(&said.json()) == wrong);
    let report = said.await.json();
    assert!(report["operator"]["leader"].is_string() && report["operator"]["writes"] == true, "{report}");
    let hidden: Vec<_> = report["notShown"].as_array().unwrap().iter().map(|why| why.as_str().unwrap()).collect();
    assert_eq!(hidden, ["may not list Nodes"]);
    let said = ask(&viewer, &["status"]);
    assert_eq!(said.code, 1);
    assert!(
        said.out.contains("✗ Subnet/orphan  VpcNotFound: Vpc/gone does not exist\n    → create Vpc/gone"),
        "{said:?}"
    );
    assert!(said.out.contains("5 things are off") && !said.out.contains('\u{1b}'), "{}", said.out);

    // Who sees one Namespace.
    let said = ask(&tenant, &["status", "-o", "json"]);
    let report = said.json();
    assert_eq!(off(&report), ["NetworkInterface/red/late.eth0 SubnetExhausted"], "{report:#}");
    assert_eq!(said.code, 1);
    let hidden = report["notShown"].to_string();
    for what in ["may not list Vpcs", "may not list NetworkInterfaces in all Namespaces: those of red are shown"] {
        assert!(hidden.contains(what), "{hidden}");
    }
    let said = ask(&tenant, &["describe", "nic", "a1.eth0"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.starts_with("NetworkInterface/red/a1.eth0  Ready  10.0.1.4/24  on node-a\n"), "{}", said.out);
    assert!(said.out.contains("may not list Subnets"), "{}", said.out);
    let said = ask(&tenant, &["describe", "vpc", "red"]);
    assert!(said.code == 1 && said.error.contains("you may not list Vpcs"), "{said:?}");
    let said = ask(&tenant, &["describe", "nic", "stranger.eth0", "-n", "blue"]);
    assert!(said.code == 1 && said.error.contains("in Namespace blue"), "{said:?}");
    assert_eq!(ask(&nobody, &["status"]).code, 2);

    // Who views all. Events are told of what has lasted.
    let said = until("its Events are told", &viewer, &["describe", "vpc", "red"], |said| {
        said.out.contains("SubnetExhausted  interface eth0")
    })
    .await;
    assert_eq!(said.code, 0, "{said:?}");
    for part in [
        "may enter: Namespaces with tenant=red: red",
        "addresses: 11 of 11 used, 0 free",
        "NetworkEndpoint/a1.eth0  on node-a (192.0.2.1)",
        "✗ TargetNotFound: NetworkEndpoint/firewall.eth0 does not exist",
        "AllocationLease/subnet-ip-red-a--10-0-1-4  10.0.1.4  held",
        "SubnetExhausted  interface eth0: Subnet/red-tiny (10.0.2.0/28) has no free address",
    ] {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
    let said = ask(&viewer, &["describe", "pod", "late", "-n", "red"]);
    assert!(said.out.contains("its network is not up") && said.out.contains("✗ SubnetExhausted"), "{said:?}");
    let said = ask(&viewer, &["describe", "subnet", "red"]);
    assert_eq!(
        (said.code, said.error.as_str()),
        (1, "error: Subnet/red does not exist; did you mean one of red-a, red-tiny?\n")
    );
    let said = ask(&viewer, &["describe", "nic", "a1.eth0", "-n", "blue"]);
    assert!(said.error.contains("NetworkInterface/blue/a1.eth0 does not exist"), "{said:?}");
    let said = ask(&viewer, &["describe", "nic", "red/a1.eth0", "-o", "yaml"]);
    let nic: Value = serde_saphyr::from_str(&said.out).unwrap();
    assert_eq!(
        (&nic["kind"], &nic["address"], &nic["vpc"]),
        (&json!("NetworkInterface"), &json!("10.0.1.4/24"), &json!("red"))
    );

    agents_are_asked_by_who_may(&cluster, &viewer, &admin);
    a_bundle_has_no_secret_and_names_what_is_missing(&cluster, &viewer, &admin);

    // As a plugin.
    // kubectl takes no flags before a plugin's name.
    let mut kubectl = Command::new(cluster.control_plane.kubectl().get_program());
    let program = Path::new(env!("CARGO_BIN_EXE_kubectl-juneau")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let output = kubectl.args(["juneau", "version", "--kubeconfig"]).arg(&viewer).env("PATH", path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && text.contains(&format!("definitions     {API_VERSION}: AllocationClaim, ")),
        "{text}"
    );
    assert!(!text.contains("missing"), "{text}");

    // Everything is repaired, but nobody writes.
    operator.stop().await;
    cluster.put(&[own("Vpc", "gone", json!({})), own("RouteTable", "red", json!({"vpc": "red", "routes": []}))]);
    for (namespace, pod) in [("red", "t00"), ("blue", "stranger")] {
        cluster.run(&["delete", "pod", "-n", namespace, pod, "--force", "--grace-period=0"], "").unwrap();
    }
    let report = ask(&viewer, &["status", "-o", "json"]).json();
    assert!(off(&report).contains(&"Lease/juneau-system/e810463e.juneau.loutres.me NoLeader".to_owned()), "{report:#}");
    let text = Cluster::base("webhook.yaml");
    cluster.apply(&text.replace("127.0.0.1:9443", &format!("127.0.0.1:{}", cluster.webhook)));
    let report = ask(&admin, &["status", "-o", "json"]).json();
    assert!(off(&report).contains(&"ValidatingWebhookConfiguration/juneau NoCABundle".to_owned()), "{report:#}");
    assert!(off(&report).contains(&"ValidatingWebhookConfiguration/juneau WebhookSilent".to_owned()), "{report:#}");
    assert_eq!(report["webhook"]["answers"], false);

    // Until one does, and the node has made its interfaces.
    let operator = Operator::start(&cluster).await;
    let names = cluster.run(&["get", "nwep", "-n", "red", "-o", "name"], "").unwrap();
    let attachment = json!({"spec": {"attachment": {"ifindex": 7, "containerID": "0123456789abcdef"}}}).to_string();
    for name in names.lines().filter(|name| !name.ends_with("/t00.eth0")) {
        cluster.run(&["patch", "-n", "red", name, "--type=merge", "-p", &attachment], "").unwrap();
    }
    let well = until("nothing is off", &admin, &["status", "-o", "json"], |said| {
        said.code == 0 && said.json()["webhook"]["answers"] == true
    });
    let report = well.await.json();
    assert_eq!(report["verdict"], "well");
    assert_eq!(report["nodes"][0]["endpoints"], 12);
    let days = report["webhook"]["certificateEndsInSeconds"].as_i64().unwrap() / 86_400;
    assert_eq!((report["webhook"]["trusted"].as_bool(), days), (Some(true), 89));
    let said = ask(&viewer, &["status"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.ends_with("nothing that could be read is off\n"), "{}", said.out);
    let said = ask(&tenant, &["status"]);
    assert_eq!(said.code, 0, "{said:?}");
    operator.stop().await;
}

/// The program, with a kubectl in its path.
fn ask_by_kubectl(cluster: &Cluster, kubeconfig: &Path, arguments: &[&str]) -> Said {
    let kubectl = cluster.control_plane.kubectl();
    let folder = Path::new(kubectl.get_program()).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-juneau"));
    let output = command.arg("--kubeconfig").arg(kubeconfig).args(arguments).env("PATH", path).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code().unwrap(), out: text(output.stdout), error: text(output.stderr) }
}

/// No kubelet runs here: what is shown is who may, and what is said to who may not.
fn agents_are_asked_by_who_may(cluster: &Cluster, viewer: &Path, admin: &Path) {
    let trace = ["trace", "red/a1", "10.0.1.5", "-o", "json"];
    let said = ask_by_kubectl(cluster, viewer, &trace);
    assert!(
        said.code == 2 && said.error.contains("Node node-a has no agent's Pod in Namespace juneau-system"),
        "{said:?}"
    );

    let mut agent = pod("juneau-system", "juneau-agent-a", "none");
    agent["metadata"]["labels"] = json!({"app.kubernetes.io/name": "juneau-agent"});
    agent["spec"]["hostNetwork"] = true.into();
    agent["spec"]["containers"][0]["name"] = "agent".into();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": "juneau-system"}});
    cluster.put(&[account, agent]);
    let said = ask_by_kubectl(cluster, viewer, &trace);
    assert!(said.code == 2 && said.error.contains("--clusterrole=juneau-support-role"), "{said:?}");
    assert_eq!(said.error.lines().count(), 1, "{said:?}");
    // Who was given it comes as far as the Pod, which no kubelet runs; so does who may do everything.
    let helper = cluster.user("helper", "juneau-support-role", Some("juneau-system"));
    let view = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "helper-views"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "helper"}]});
    cluster.put(&[view]);
    for who in [&helper, &admin.to_owned()] {
        let said = ask_by_kubectl(cluster, who, &trace);
        assert!(said.code == 2 && said.error.starts_with("error: the agent of node-a: "), "{said:?}");
        assert_eq!(said.error.lines().count(), 1, "{said:?}");
    }
}

fn a_bundle_has_no_secret_and_names_what_is_missing(cluster: &Cluster, viewer: &Path, admin: &Path) {
    const SECRET: &str = "hunter2-planted";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "red"},
        "stringData": {"password": SECRET}});
    let mut planted = pod("red", "planted", "red-a");
    planted["metadata"]["annotations"]["token"] = SECRET.into();
    planted["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = SECRET.into();
    planted["spec"]["containers"][0]["env"] = json!([{"name": "PASSWORD", "value": SECRET}]);
    planted["spec"]["containers"][0]["args"] = json!([SECRET]);
    cluster.put(&[secret, planted]);
    let folder = tempfile::tempdir().unwrap();
    let files = |who: &Path, name: &str| {
        let path = folder.path().join(name);
        let said = ask_by_kubectl(cluster, who, &["support-bundle", "-o", path.to_str().unwrap(), "--timeout", "60s"]);
        // No agent answers here.
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.error.contains("objects …") && said.out.contains("see errors.txt in it"), "{said:?}");
        let bytes = flate2::read::GzDecoder::new(std::fs::File::open(&path).unwrap());
        let mut archive = tar::Archive::new(bytes);
        let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            std::io::Read::read_to_string(&mut entry, &mut text).unwrap();
            (entry.path().unwrap().display().to_string(), text)
        };
        archive.entries().unwrap().map(read).collect::<Vec<_>>()
    };
    let all = files(admin, "admin.tar.gz");
    let names: Vec<&str> = all.iter().map(|(name, _)| name.strip_prefix("juneau-support/").unwrap()).collect();
    assert!(names.is_sorted(), "{names:?}");
    for kind in ["Vpc", "Subnet", "NetworkEndpoint", "AllocationLease", "Node", "Namespace", "Pod", "Event-about"] {
        assert!(names.contains(&format!("objects/{kind}.json").as_str()), "{kind}: {names:?}");
    }
    for (name, text) in &all {
        assert!(!text.contains(SECRET), "{name} has a secret");
        assert!(!text.contains("managedFields") && !text.contains("BEGIN"), "{name}");
    }
    let text = |all: &[(String, String)], name: &str| {
        let found = all.iter().find(|(found, _)| found.ends_with(name));
        found.map(|(_, text)| text.clone()).unwrap_or_default()
    };
    // The positive control: the Pod is in it, with the annotation that is ours.
    let pods: Vec<Value> = serde_json::from_str(&text(&all, "objects/Pod.json")).unwrap();
    let found = pods.iter().find(|pod| pod["metadata"]["name"] == "planted").unwrap();
    assert_eq!(found["metadata"]["annotations"], json!({"juneau.loutres.me/subnet": "red-a"}));
    assert!(text(&all, "errors.txt").contains("agents/node-a/status.json: the agent of node-a: "), "{all:?}");
    assert!(text(&all, "objects/Vpc.json").contains("allowedNamespaces"));

    let few = files(viewer, "viewer.tar.gz");
    let errors = text(&few, "errors.txt");
    for missing in ["objects/Node.json: ", "agents/node-a/status.json: you may not ask the agents"] {
        assert!(errors.contains(missing), "{errors}");
    }
    assert!(!text(&few, "objects/Vpc.json").is_empty());

    for (namespace, pod) in [("juneau-system", "juneau-agent-a"), ("red", "planted")] {
        cluster.run(&["delete", "pod", "-n", namespace, pod, "--force", "--grace-period=0"], "").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the programs of Kubernetes: make test-kubernetes"]
async fn a_connection_that_fails_is_one_clear_line() {
    let control_plane = tokio::task::spawn_blocking(|| ControlPlane::shared().unwrap()).await.unwrap();
    let admin = control_plane.kubeconfig();
    let account = control_plane.user_kubeconfig("stranger", None).unwrap();
    let unreachable = changed(&admin, "cli-unreachable.kubeconfig", |file| {
        file["clusters"][0]["cluster"]["server"] = format!("https://127.0.0.1:{}", port()).into();
    });
    let expired = changed(&account, "cli-expired.kubeconfig", |file| {
        file["users"][0]["user"] = json!({"token": "no-longer-good"});
    });
    let distrusted = changed(&account, "cli-distrusted.kubeconfig", |file| {
        let cluster = file["clusters"][0]["cluster"].as_object_mut().unwrap();
        cluster.retain(|key, _| key == "server");
    });
    // One that takes connections and says nothing.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let hangs = changed(&admin, "cli-hangs.kubeconfig", |file| {
        file["clusters"][0]["cluster"]["server"] = format!("https://{}", silent.local_addr().unwrap()).into();
    });
    let nothing = admin.with_file_name("cli-no-such-file");
    for (kubeconfig, arguments, says) in [
        (&unreachable, vec!["status"], "cannot be reached: Connection refused"),
        (
            &expired,
            vec!["status"],
            "does not accept these credentials: Unauthorized; they may have expired: log in again",
        ),
        (&distrusted, vec!["status"], "is not trusted: invalid peer certificate"),
        (&hangs, vec!["status", "--request-timeout", "1s"], "did not answer within 1 s"),
        (&nothing, vec!["status"], "no API server is known: "),
        (&admin, vec!["status", "--context", "elsewhere"], "no API server is known: "),
    ] {
        let said = ask(kubeconfig, &arguments);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{said:?}");
        assert!(said.error.contains(says), "{says}: {}", said.error);
        assert_eq!(said.error.lines().count(), 1, "{}", said.error);
        let said = ask(kubeconfig, &[vec!["describe", "vpc", "x"], arguments[1..].to_vec()].concat());
        assert!(said.code == 1 && said.error.contains(says), "{said:?}");
    }
}
