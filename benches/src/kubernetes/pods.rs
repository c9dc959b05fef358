//! Objects that are made at the API server, and the moments at which endpoints are ready.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::Request;
use juneau_api::conditions;
use juneau_api::kinds::NetworkEndpoint;
use kube::api::Api;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::{Context, Error, Result};

/// Requests that are made side by side when there is no pace.
const SIDE_BY_SIDE: usize = 24;

/// A Pod that is to be made. Its name is unique in the whole cluster.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) node: String,
    pub(super) subnet: String,
}

/// When endpoints became ready, by the names of their Pods.
#[derive(Default)]
struct Seen {
    ready: HashMap<String, Instant>,
    /// What went wrong with the watch last.
    failure: Option<String>,
}

/// A watch of all endpoints.
pub(super) struct Endpoints {
    seen: Arc<Mutex<Seen>>,
    count: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Endpoints {
    /// Starts to watch; within a runtime.
    pub(super) fn watch(client: Client) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (count, counted) = watch::channel(0);
        let task = tokio::spawn(follow(client, Arc::clone(&seen), count));
        Self { seen, count: counted, task }
    }

    /// Waits until so many endpoints are ready.
    pub(super) async fn await_count(&mut self, wanted: usize, patience: Duration) -> Result<()> {
        let waited = tokio::time::timeout(patience, self.count.wait_for(|count| *count >= wanted)).await;
        if waited.is_ok_and(|waited| waited.is_ok()) {
            return Ok(());
        }
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = seen.failure.as_deref().unwrap_or("no failure of the watch");
        Err(Error::NotOurs(format!("{} of {wanted} endpoints became ready; {failure}", seen.ready.len())))
    }

    /// How long each of these Pods' endpoints took from a moment on, in milliseconds.
    pub(super) fn since(&self, made: &[(String, Instant)]) -> Vec<f64> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = made.iter().filter_map(|(name, made)| Some((made, seen.ready.get(name)?)));
        ready.map(|(made, ready)| ready.saturating_duration_since(*made).as_secs_f64() * 1e3).collect()
    }
}

impl Drop for Endpoints {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(client: Client, seen: Arc<Mutex<Seen>>, count: watch::Sender<usize>) {
    let mut events = pin!(watcher(Api::<NetworkEndpoint>::all(client), watcher::Config::default()));
    while let Some(event) = events.next().await {
        let now = Instant::now();
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Ok(watcher::Event::Apply(endpoint) | watcher::Event::InitApply(endpoint)) if is_ready(&endpoint) => {
                if let Some(pod) = &endpoint.spec.pod_ref
                    && !seen.ready.contains_key(&pod.name)
                {
                    seen.ready.insert(pod.name.clone(), now);
                }
            }
            Ok(_) => {}
            Err(error) => seen.failure = Some(format!("the watch of endpoints: {error}")),
        }
        count.send_replace(seen.ready.len());
    }
}

/// Whether packets can be sent to it: address, node, and the node's address are known.
fn is_ready(endpoint: &NetworkEndpoint) -> bool {
    let status = endpoint.status.as_ref();
    let ready = status.and_then(|status| conditions::find(&status.conditions, conditions::READY));
    endpoint.spec.address.is_some() && ready.is_some_and(|ready| ready.status == "True")
}

/// Makes an object.
pub(super) async fn create(client: &Client, path: &str, object: &Value) -> Result<()> {
    let request = Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(object.to_string().into_bytes())
        .map_err(|error| Error::NotOurs(format!("a request: {error}")))?;
    client.request::<IgnoredAny>(request).await.context(format!("POST {path}")).map(drop)
}

/// Makes an object that the webhook is asked about: the server refuses it until the operator answers there.
async fn create_admitted(client: &Client, path: &str, object: &Value) -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let begun = Instant::now();
    loop {
        match create(client, path, object).await {
            Err(_) if begun.elapsed() < PATIENCE => tokio::time::sleep(Duration::from_millis(50)).await,
            done => return done,
        }
    }
}

/// Makes Pods, one at each tick of `pace`, or as fast as the server takes them; when each was answered.
pub(super) async fn start(client: &Client, pods: &[Pod], pace: Option<Duration>) -> Result<Vec<(String, Instant)>> {
    let mut made = Vec::with_capacity(pods.len());
    let mut running = FuturesUnordered::new();
    let mut ticks = pace.map(tokio::time::interval);
    let mut waiting = pods.iter();
    let mut next = waiting.next();
    while next.is_some() || !running.is_empty() {
        let tick = async {
            if let Some(ticks) = &mut ticks {
                ticks.tick().await;
            }
        };
        let free = pace.is_some() || running.len() < SIDE_BY_SIDE;
        tokio::select! {
            () = tick, if next.is_some() && free => if let Some(pod) = next {
                running.push(one(client, pod));
                next = waiting.next();
            },
            Some(done) = running.next() => made.push(done?),
        }
    }
    Ok(made)
}

async fn one(client: &Client, pod: &Pod) -> Result<(String, Instant)> {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod.name, "annotations": {"juneau.loutres.me/subnet": pod.subnet}},
        "spec": {
            "nodeName": pod.node, "containers": [{"name": "main", "image": "none"}],
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
        },
    });
    create(client, &format!("/api/v1/namespaces/{}/pods", pod.namespace), &object).await?;
    Ok((pod.name.clone(), Instant::now()))
}

/// A Vpc for one Namespace, with Subnets of the prefixes 10.0.0.0/24, 10.0.1.0/24 and so on. Names are the Vpc's and,
/// for Subnets, a number.
pub(super) async fn network(client: &Client, name: &str, subnets: usize) -> Result<()> {
    let ours = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "juneau.loutres.me/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let core = |kind: &str, metadata: Value| json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
    let namespace = core("Namespace", json!({"name": name, "labels": {"tenant": name}}));
    create(client, "/api/v1/namespaces", &namespace).await?;
    let account = core("ServiceAccount", json!({"name": "default"}));
    create(client, &format!("/api/v1/namespaces/{name}/serviceaccounts"), &account).await?;
    let vpc = ours("Vpc", name, json!({"allowedNamespaces": {"matchLabels": {"tenant": name}}}));
    create_admitted(client, "/apis/juneau.loutres.me/v1alpha1/vpcs", &vpc).await?;
    for number in 0..subnets {
        let spec = json!({"vpc": name, "cidr": format!("10.0.{number}.0/24")});
        let subnet = ours("Subnet", &subnet_name(name, number), spec);
        create_admitted(client, "/apis/juneau.loutres.me/v1alpha1/subnets", &subnet).await?;
    }
    Ok(())
}

/// Name of a Vpc's Subnet.
pub(super) fn subnet_name(vpc: &str, number: usize) -> String {
    format!("{vpc}-{number}")
}

/// Waits until all Subnets are ready.
pub(super) async fn await_subnets(client: &Client, patience: Duration) -> Result<()> {
    let subnets = Api::<juneau_api::kinds::Subnet>::all(client.clone());
    let begun = Instant::now();
    loop {
        let list = subnets.list(&kube::api::ListParams::default()).await.context("listing Subnets")?;
        let waiting = list.items.iter().find(|subnet| {
            let status = subnet.status.as_ref();
            let ready = status.and_then(|status| conditions::find(&status.conditions, conditions::READY));
            ready.is_none_or(|ready| ready.status != "True")
        });
        match waiting {
            None => return Ok(()),
            Some(subnet) if begun.elapsed() > patience => {
                return Err(Error::NotOurs(format!("Subnet {} does not become ready", subnet.name_any())));
            }
            Some(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
