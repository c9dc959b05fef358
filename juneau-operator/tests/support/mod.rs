//! A control plane with what `deploy/` holds, and operators as programs under their own ServiceAccount.

// Each test file uses a part of it.
#![allow(unreachable_pub, dead_code)]

pub mod canonical;
pub mod history;
pub mod proxy;

use juneau_controlplane::{ControlPlane, Options, Programs};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const OPERATOR: &str = "system:serviceaccount:juneau-system:juneau-operator";
const PATIENCE: Duration = Duration::from_secs(60);

/// A port that was free a moment ago.
pub fn port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

pub struct Cluster {
    pub control_plane: ControlPlane,
    pub client: kube::Client,
    pub webhook: u16,
}

impl Cluster {
    /// Starts one with the definitions, the roles, the policy and two nodes; with the webhook if it is asked for.
    pub async fn start(with_webhook: bool) -> Self {
        Self::with(with_webhook, Options::default()).await
    }

    /// The same with other options.
    pub async fn with(with_webhook: bool, options: Options) -> Self {
        let control_plane = tokio::task::spawn_blocking(move || {
            let programs = Programs::find_or_build(&mut |_| {}).unwrap();
            ControlPlane::start(&programs, &options).unwrap()
        })
        .await
        .unwrap();
        let client = control_plane.client().await.unwrap();
        let cluster = Self { control_plane, client, webhook: port() };
        cluster.apply(&juneau_operator::crds().unwrap());
        cluster.run(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"], "").unwrap();
        let base = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/base");
        for file in ["namespace.yaml", "roles-operator.yaml", "roles-agent.yaml", "roles-users.yaml", "policy.yaml"] {
            cluster.apply(&fs::read_to_string(base.join(file)).unwrap());
        }
        if with_webhook {
            for file in ["webhook.yaml", "probes.yaml"] {
                let text = fs::read_to_string(base.join(file)).unwrap();
                cluster.apply(&text.replace("127.0.0.1:9443", &format!("127.0.0.1:{}", cluster.webhook)));
            }
        }
        for (node, address) in [("node-a", "192.0.2.1"), ("node-b", "192.0.2.2")] {
            cluster.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}).to_string());
            let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}}).to_string();
            cluster.run(&["patch", "node", node, "--subresource=status", "--type=merge", "-p", &status], "").unwrap();
        }
        cluster
    }

    /// kubectl; what it said on its error output when it failed.
    pub fn run(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut command = self.control_plane.kubectl();
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    pub fn try_apply(&self, text: &str) -> Result<String, String> {
        self.run(&["apply", "--server-side", "--force-conflicts", "-f", "-"], text)
    }

    pub fn apply(&self, text: &str) {
        self.try_apply(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    }

    /// A namespace of a tenant, with the account that Pods need.
    pub fn namespace(&self, name: &str, annotations: Value) {
        let metadata = json!({"name": name, "labels": {"tenant": name}, "annotations": annotations});
        self.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}).to_string());
        let account = json!({"name": "default", "namespace": name});
        self.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}).to_string());
    }

    /// All objects of a kind of ours.
    pub async fn list(&self, kind: &str) -> Vec<Value> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("juneau.loutres.me", "v1alpha1", kind));
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let list = api.list(&ListParams::default()).await.unwrap();
        list.items.into_iter().map(|object| serde_json::to_value(object).unwrap()).collect()
    }

    pub async fn get(&self, kind: &str, name: &str) -> Option<Value> {
        self.list(kind).await.into_iter().find(|object| object["metadata"]["name"] == name)
    }

    /// Asks until something is so.
    pub async fn until(&self, what: &str, operators: &[&Operator], is: impl AsyncFn(&Self) -> bool) {
        let begun = Instant::now();
        while !is(self).await {
            if begun.elapsed() > PATIENCE {
                let logs: Vec<_> = operators.iter().map(|operator| operator.log()).collect();
                panic!("{what}: not within {PATIENCE:?}\n{}", logs.join("\n---\n"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Fails if anything was asked for that the roles do not grant.
    pub fn nothing_was_forbidden(&self) {
        let forbidden: Vec<_> = self
            .control_plane
            .audit()
            .forbidden()
            .unwrap()
            .into_iter()
            .filter(|event| event.user == OPERATOR)
            .collect();
        assert!(forbidden.is_empty(), "{forbidden:#?}");
    }
}

/// A request by a client; what the server said when it refused. kubectl does the same in a hundred times the time.
pub async fn ask(client: &kube::Client, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
    let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = http::Request::builder().method(method).uri(path).header("content-type", media);
    client.request(request.body(body.into_bytes()).unwrap()).await.map_err(|error| error.to_string())
}

/// The path of an object, or without its name that of its kind.
pub fn path(object: &Value, with_name: bool) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let version = text("/apiVersion").unwrap();
    let root = if version.contains('/') { "apis" } else { "api" };
    let namespace = text("/metadata/namespace").map(|name| format!("/namespaces/{name}")).unwrap_or_default();
    let name = if with_name { format!("/{}", text("/metadata/name").unwrap()) } else { String::new() };
    format!("/{root}/{version}{namespace}/{}s{name}", text("/kind").unwrap().to_lowercase())
}

pub async fn create(client: &kube::Client, object: &str) -> Result<Value, String> {
    let object = serde_json::from_str(object).unwrap();
    ask(client, "POST", &path(&object, false), Some(&object)).await
}

/// Changes a part of an object, which is given by its path.
pub async fn merge(client: &kube::Client, path: &str, change: Value) -> Result<Value, String> {
    ask(client, "PATCH", path, Some(&change)).await
}

pub async fn delete(client: &kube::Client, path: &str) -> Result<Value, String> {
    ask(client, "DELETE", path, None).await
}

/// A client by a kubeconfig.
pub async fn client(path: &std::path::Path) -> kube::Client {
    juneau_controlplane::client(path).await.unwrap()
}

/// An object of ours in YAML's subset.
pub fn object(kind: &str, name: &str, spec: Value) -> String {
    json!({"apiVersion": "juneau.loutres.me/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
        .to_string()
}

pub fn pod(namespace: &str, name: &str, node: &str, annotations: Value) -> String {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "none"}],
                 "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0}})
    .to_string()
}

pub fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The operator as a program.
pub struct Operator {
    child: Child,
    log: tempfile::NamedTempFile,
}

impl Operator {
    pub async fn start(cluster: &Cluster, webhook: u16) -> Self {
        Self::start_with(cluster, webhook, &[]).await
    }

    /// With further arguments.
    pub async fn start_with(cluster: &Cluster, webhook: u16, arguments: &[&str]) -> Self {
        let kubeconfig =
            cluster.control_plane.service_account_kubeconfig("juneau-system", "juneau-operator", None).await.unwrap();
        Self::start_by(&kubeconfig, webhook, arguments)
    }

    /// With a kubeconfig, which may lead to a server that is not well.
    pub fn start_by(kubeconfig: &Path, webhook: u16, arguments: &[&str]) -> Self {
        let log = tempfile::NamedTempFile::new().unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_juneau-operator"))
            .args(["run", "--log", "info,juneau_operator=debug", "--kubeconfig"])
            .arg(kubeconfig)
            .arg(format!("--webhook-bind-address=127.0.0.1:{webhook}"))
            .arg("--enable-probe-rewrite")
            .args(arguments)
            .arg(format!("--health-probe-bind-address=127.0.0.1:{}", port()))
            .env("POD_NAMESPACE", "juneau-system")
            .stderr(log.reopen().unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.log.path()).unwrap()
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Ends it as a crash does, and waits until it is gone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Tells it to stop and waits until it has.
    pub fn stop(mut self) {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.log());
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until an object is Ready; the object then.
pub async fn ready(cluster: &Cluster, operator: &Operator, kind: &str, name: &str) -> Value {
    let what = format!("{kind} {name} ready");
    cluster
        .until(&what, &[operator], async |cluster| {
            cluster.get(kind, name).await.is_some_and(|object| is_ready(&object))
        })
        .await;
    cluster.get(kind, name).await.unwrap()
}

/// Makes an object as an administrator.
pub async fn put(cluster: &Cluster, text: &str) {
    create(&cluster.client, text).await.unwrap_or_else(|error| panic!("{error}: {text}"));
}
