//! Everything that who helps asks for, in one file: objects, Events, what the agents say, logs, versions. Secrets are not
//! asked for, and of other objects only what is listed in `clean` is taken.

mod archive;
mod clean;

pub use archive::{Archive, write};

use crate::client::Session;
use crate::error::CliError;
use crate::exec::Agents;
use crate::snapshot::AGENT;
use futures::StreamExt as _;
use juneau_api::kinds;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, LogParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Objects a page, and of a kind at most.
const PAGE: u32 = 500;
const MOST: usize = 100_000;
/// Bytes of a log, and lines.
const LOG_BYTES: i64 = 4 << 20;
const LOG_LINES: i64 = 20_000;
/// So many requests at once.
const AT_ONCE: usize = 8;
/// What each agent is asked.
const QUESTIONS: [(&str, &[&str]); 5] = [
    ("status", &["status"]),
    ("drops", &["drops"]),
    ("routes", &["routes"]),
    ("endpoints", &["endpoints"]),
    ("flows", &["flows", "--limit=10000"]),
];

/// What is collected, and where it goes.
pub struct Collector<'c> {
    /// The connection.
    pub session: &'c Session,
    /// Namespace of operator and agents.
    pub system_namespace: &'c str,
    /// Tells how far it is.
    pub progress: &'c mut dyn FnMut(&str),
    archive: Archive,
}

/// One kind of objects.
struct Kind {
    file: &'static str,
    resource: ApiResource,
    selector: Option<String>,
    clean: fn(&Value) -> Value,
}

impl<'c> Collector<'c> {
    /// Nothing is collected yet.
    pub fn new(session: &'c Session, system_namespace: &'c str, progress: &'c mut dyn FnMut(&str)) -> Self {
        Self { session, system_namespace, progress, archive: Archive::default() }
    }

    /// Collects everything within so long a time; what cannot be had is noted. `agents` makes the way to the agents of
    /// their Pods by nodes.
    pub async fn collect(
        mut self,
        limit: Duration,
        agents: impl FnOnce(BTreeMap<String, String>) -> Agents,
    ) -> Archive {
        let work = async {
            self.versions();
            self.objects().await;
            let pods = self.system_pods().await;
            self.logs(&pods).await;
            self.agents(&agents(of_nodes(&pods))).await;
        };
        if tokio::time::timeout(limit, work).await.is_err() {
            self.archive
                .error("everything", format_args!("not all was had within {} s; see --timeout", limit.as_secs()));
        }
        self.archive
    }

    fn json(&mut self, name: String, value: &Value) {
        match serde_json::to_vec_pretty(value) {
            Ok(text) => self.archive.put(name, text),
            Err(error) => self.archive.error(&name, error),
        }
    }

    fn versions(&mut self) {
        let versions = json!({
            "kubectl-juneau": env!("CARGO_PKG_VERSION"),
            "apiServer": self.session.version,
            "time": self.session.now.to_string(),
        });
        self.json("versions.json".to_owned(), &versions);
    }

    async fn objects(&mut self) {
        (self.progress)("objects");
        for kind in kinds_to_list() {
            let name = format!("objects/{}.json", kind.file);
            match self.list(&kind).await {
                Ok(items) => self.json(name, &Value::Array(items)),
                Err(why) => self.archive.error(&name, why),
            }
        }
    }

    async fn list(&self, kind: &Kind) -> Result<Vec<Value>, String> {
        let api: Api<DynamicObject> = Api::all_with(self.session.client.clone(), &kind.resource);
        let mut parameters = ListParams::default().limit(PAGE);
        parameters.field_selector.clone_from(&kind.selector);
        let mut items = Vec::new();
        loop {
            let page = self.session.within(api.list(&parameters)).await.map_err(|error| error.to_string())?;
            for object in page.items {
                items.push((kind.clean)(&serde_json::to_value(object).unwrap_or_default()));
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) if items.len() < MOST => parameters = parameters.continue_token(&token),
                _ => return Ok(items),
            }
        }
    }

    /// Pods of operator and agents.
    async fn system_pods(&mut self) -> Vec<Pod> {
        let api: Api<Pod> = Api::namespaced(self.session.client.clone(), self.system_namespace);
        let selector = format!("app.kubernetes.io/name in ({AGENT},juneau-operator)");
        match self.session.within(api.list(&ListParams::default().labels(&selector))).await {
            Ok(list) if list.items.is_empty() => {
                let why = format!("there are none in Namespace {}; see --system-namespace", self.system_namespace);
                self.archive.error("Pods of operator and agents", why);
                Vec::new()
            }
            Ok(list) => list.items,
            Err(error) => {
                self.archive.error("Pods of operator and agents", error);
                Vec::new()
            }
        }
    }

    async fn logs(&mut self, pods: &[Pod]) {
        let mut wanted = Vec::new();
        for pod in pods {
            let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            for status in statuses {
                let file = format!("logs/{}/{}", pod.name_any(), status.name);
                wanted.push((pod.name_any(), status.name.clone(), false, format!("{file}.log")));
                if status.restart_count > 0 {
                    wanted.push((pod.name_any(), status.name.clone(), true, format!("{file}.previous.log")));
                }
            }
        }
        (self.progress)(&format!("{} logs", wanted.len()));
        let session = self.session;
        let api: Api<Pod> = Api::namespaced(session.client.clone(), self.system_namespace);
        let reads = wanted.into_iter().map(|(pod, container, previous, file)| {
            let api = api.clone();
            async move {
                let parameters = LogParams {
                    container: Some(container),
                    previous,
                    timestamps: true,
                    limit_bytes: Some(LOG_BYTES),
                    tail_lines: Some(LOG_LINES),
                    ..LogParams::default()
                };
                (file, session.within(api.logs(&pod, &parameters)).await)
            }
        });
        let mut answers = futures::stream::iter(reads).buffer_unordered(AT_ONCE);
        while let Some((file, answer)) = answers.next().await {
            match answer {
                Ok(text) => self.archive.put(file, text.into_bytes()),
                Err(error) => self.archive.error(&file, error),
            }
        }
    }

    async fn agents(&mut self, agents: &Agents) {
        let nodes: Vec<&str> = agents.nodes().collect();
        (self.progress)(&format!("{} agents", nodes.len()));
        // Who may not ask the first may not ask the others.
        let mut refused = false;
        let of_node = |node: &str| {
            let node = node.to_owned();
            async move {
                let mut said = Vec::new();
                for (file, words) in QUESTIONS {
                    let words = [words, &["--output=json"]].concat();
                    said.push((format!("agents/{node}/{file}.json"), agents.ask(&node, &words).await));
                }
                said
            }
        };
        let (first, rest) = nodes.split_at(nodes.len().min(1));
        for part in [first, rest] {
            if refused {
                break;
            }
            let mut answers = futures::stream::iter(part.iter().map(|node| of_node(node))).buffer_unordered(AT_ONCE);
            while let Some(said) = answers.next().await {
                for (file, answer) in said {
                    match answer {
                        Ok(text) => self.archive.put(file, text),
                        Err(error) => {
                            refused |= matches!(error, CliError::MayNotExec { .. } | CliError::NoKubectl);
                            self.archive.error(&file, error);
                        }
                    }
                }
            }
        }
    }
}

/// The agents' Pods by their nodes.
fn of_nodes(pods: &[Pod]) -> BTreeMap<String, String> {
    let of = |pod: &&Pod| pod.labels().get("app.kubernetes.io/name").is_some_and(|name| name == AGENT);
    let agents = pods.iter().filter(of);
    agents.filter_map(|pod| Some((pod.spec.as_ref()?.node_name.clone()?, pod.name_any()))).collect()
}

fn kinds_to_list() -> Vec<Kind> {
    macro_rules! own {
        ($($kind:ident)*) => {
            vec![$(Kind {
                file: stringify!($kind),
                resource: ApiResource::erase::<kinds::$kind>(&()),
                selector: None,
                clean: clean::own,
            }),*]
        };
    }
    let mut all = own! {
        Vpc Subnet RouteTable NetworkInterface NetworkEndpoint ServiceNATAttachment VpcEndpoint AllocationPool AllocationClaim AllocationLease
    };
    let other = |file, resource, selector, clean| Kind { file, resource, selector, clean };
    let about = |selector: &str| Some(selector.to_owned());
    all.extend([
        other("Node", ApiResource::erase::<Node>(&()), None, clean::node as fn(&Value) -> Value),
        other("Namespace", ApiResource::erase::<Namespace>(&()), None, clean::namespace),
        other("Pod", ApiResource::erase::<Pod>(&()), None, clean::pod),
        // Only those about what is ours, or by the operator: others' messages are others'.
        other(
            "Event-about",
            ApiResource::erase::<Event>(&()),
            Some(format!("involvedObject.apiVersion={}", kinds::API_VERSION)),
            clean::event,
        ),
        other(
            "Event-by-operator",
            ApiResource::erase::<Event>(&()),
            about("reportingComponent=juneau.loutres.me/operator"),
            clean::event,
        ),
    ]);
    all
}
