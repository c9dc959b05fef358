//! An API server as a source: every kind is listed and watched, for ever.
//!
//! A watch ends only with its source. What does not decode is a problem of that object alone. A connection that breaks
//! is taken up where it was; a version that the server has forgotten (410 Gone) means a new list. After an error nothing
//! is asked for a while that grows and is never the same, so that the agents of a cluster do not come back all at once.
//! Lists are streamed where the server does so (`sendInitialEvents`, Kubernetes 1.32), else taken from its cache.
//!
//! Objects are decoded straight into what is held of them; nothing else of them is ever in memory twice.
//!
//! Of interfaces and endpoints a node holds those of VPCs that something on it is in. It is told of all by one watch of
//! each kind, and forgets the others at once. A VPC that becomes needed is read with one list for each of its Subnets.

mod part;
mod slim;

use super::client::{is_watch, with_causes};
use super::directory::Snapshot;
use super::objects::Objects;
use crate::kinds;
use crate::view::{Kind, Object, Text};
use futures::StreamExt as _;
use http::Request;
use kube::client::Body;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use slim::{Lean, Slim};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// Longer than any pause after an error: a watch without an error for so long works.
const WELL_AGAIN: Duration = Duration::from_secs(90);
/// A watch that has begun works, unless it breaks at once.
const SETTLED: Duration = Duration::from_secs(1);
/// What objects of an API server say about where they were read.
const ORIGIN: &str = "API server";

/// Services and EndpointSlices that are for whoever implements Services on a node: not those of another
/// implementation, and not those of headless Services, which the slice controller labels. It gives slices the labels of
/// their Service.
const PROXIED: &str = "!service.kubernetes.io/service-proxy-name,!service.kubernetes.io/headless";

/// Who is told that there may be something new.
type Changed = Arc<dyn Fn() + Send + Sync>;

/// Watches everything that a node needs.
#[derive(Debug)]
pub struct WatchSource {
    objects: Arc<Mutex<Objects>>,
    tasks: Vec<JoinHandle<()>>,
}

impl WatchSource {
    /// Begins to watch, in the runtime that this is called in: all kinds; of Pods those of the node `node`, and of
    /// interfaces and endpoints those that it needs, which are forgotten when they have not been needed for `keep`.
    /// `changed` is called after every change; it must not block.
    #[must_use]
    pub fn start(client: &Client, node: &str, keep: Duration, changed: impl Fn() + Send + Sync + 'static) -> Self {
        let node: Text = node.into();
        let objects = Arc::new(Mutex::new(Objects::new(Kind::ALL, Some(Arc::clone(&node)), keep, ORIGIN)));
        let ticks = watch::Sender::new(());
        let (tick, mut ticked) = (ticks.clone(), ticks.subscribe());
        ticked.mark_unchanged();
        let changed = Arc::new(move || {
            tick.send_replace(());
            changed();
        });
        let starter = Starter { client, objects: &objects, changed, ticks };
        // A list that is cut into pages is not taken from the server's cache.
        let all = Config { page_size: None, ..Config::default() };
        let on_node = format!("spec.nodeName={node}");
        let of_node = all.clone().fields(&on_node);
        let proxied = all.clone().labels(PROXIED);
        let tasks = vec![
            starter.follow::<kinds::Namespace>(&all),
            starter.follow::<kinds::Node>(&all),
            starter.follow::<kinds::Pod>(&of_node),
            starter.follow::<kinds::Vpc>(&all),
            starter.follow::<kinds::Subnet>(&all),
            starter.follow::<kinds::RouteTable>(&all),
            starter.follow::<kinds::Service>(&proxied),
            starter.follow::<kinds::EndpointSlice>(&proxied),
            starter.follow_part::<kinds::NetworkInterface>(&all, &on_node),
            starter.follow_part::<kinds::NetworkEndpoint>(&all, &on_node),
            starter.read_parts(ticked),
        ];
        Self { objects, tasks }
    }

    /// What exists now, and what is wrong.
    #[must_use]
    pub fn read(&self) -> Snapshot {
        lock(&self.objects).snapshot()
    }
}

impl Drop for WatchSource {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

struct Starter<'a> {
    client: &'a Client,
    objects: &'a Arc<Mutex<Objects>>,
    changed: Changed,
    /// Told of every change.
    ticks: watch::Sender<()>,
}

impl Starter<'_> {
    fn follower(&self) -> Follower {
        Follower { objects: Arc::clone(self.objects), changed: Arc::clone(&self.changed) }
    }

    fn follow<K: Lean>(&self, config: &Config) -> JoinHandle<()> {
        tokio::spawn(self.follower().follow::<K>(self.client.clone(), config.clone()))
    }

    /// A kind of which only a part is held: first what is on this node, which says what else.
    fn follow_part<K: Lean>(&self, config: &Config, on_node: &str) -> JoinHandle<()> {
        let (follower, ticked) = (self.follower(), self.ticks.subscribe());
        let (client, config, on_node) = (self.client.clone(), config.clone(), on_node.to_owned());
        tokio::spawn(async move {
            follower.begin_with::<K>(&Api::all(client.clone()), &on_node, ticked).await;
            follower.follow::<K>(client, config).await;
        })
    }

    fn read_parts(&self, ticked: watch::Receiver<()>) -> JoinHandle<()> {
        tokio::spawn(part::read_all(self.client.clone(), self.follower(), ticked))
    }
}

type Guarded<K> = DeserializeGuard<Slim<K>>;

/// One kind.
struct Follower {
    objects: Arc<Mutex<Objects>>,
    changed: Changed,
}

impl Follower {
    async fn follow<K: Lean>(self, client: Client, config: Config) {
        let (begins, mut begun) = watch::channel(());
        let api = Api::<Guarded<K>>::all(telling(client, begins));
        // Whether a list has come whole since the last one began.
        let (mut streams_lists, mut listed) = (true, false);
        // When it works again, if nothing else happens.
        let mut well_at: Option<Instant> = None;
        loop {
            let config = if streams_lists { config.clone().streaming_lists() } else { config.clone().any_semantic() };
            let mut events = std::pin::pin!(watcher(api.clone(), config).default_backoff());
            loop {
                let well_again = async move {
                    match well_at {
                        Some(at) => sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    event = events.next() => match event {
                        Some(Ok(event)) => {
                            match event {
                                Event::Init => listed = false,
                                Event::InitDone => listed = true,
                                _ => {}
                            }
                            self.take::<K>(event);
                            if well_at.take().is_some() {
                                self.fail::<K>(None);
                            }
                        }
                        Some(Err(error)) if streams_lists && refuses_streams(&error, listed) => {
                            tracing::debug!(kind = %K::KIND, %error, "the server does not stream lists");
                            streams_lists = false;
                            break;
                        }
                        Some(Err(error)) => {
                            tracing::debug!(kind = %K::KIND, %error, "watch");
                            well_at = Some(Instant::now() + WELL_AGAIN);
                            begun.mark_unchanged();
                            // A version that is too old is the daily life of a watch.
                            if !is_gone(&error) {
                                self.fail::<K>(Some(explain(K::KIND, &error)));
                            }
                        }
                        None => break,
                    },
                    Ok(()) = begun.changed(), if well_at.is_some() => well_at = Some(Instant::now() + SETTLED),
                    () = well_again => {
                        well_at = None;
                        self.fail::<K>(None);
                    }
                }
            }
        }
    }

    fn take<K: Lean>(&self, event: Event<Guarded<K>>) {
        {
            let mut objects = lock(&self.objects);
            if let Event::InitApply(object) | Event::Apply(object) | Event::Delete(object) = &event
                && let Some(version) = object.resource_version()
            {
                objects.saw(K::KIND, &version);
            }
            match event {
                Event::Init => objects.begin(K::KIND),
                Event::InitApply(object) | Event::Apply(object) => {
                    let (namespace, name, decoded) = decoded(object);
                    objects.apply(K::KIND, &namespace, &name, decoded);
                }
                Event::Delete(object) => {
                    objects.delete(K::KIND, &object.namespace().unwrap_or_default(), &object.name_any());
                }
                Event::InitDone => objects.end(K::KIND),
            }
        }
        (self.changed)();
    }

    fn fail<K: Lean>(&self, failure: Option<(String, String)>) {
        lock(&self.objects).set_failure(K::KIND, failure);
        (self.changed)();
    }
}

/// The same client, which tells when the server has begun to answer a watch. kube's watcher says nothing of that, and a
/// watch may be quiet for long.
fn telling(client: Client, begins: watch::Sender<()>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, begins) = (client.clone(), begins.clone());
        async move {
            let watches = is_watch(&request);
            let answer = client.send(request).await?;
            if watches && answer.status().is_success() {
                begins.send_replace(());
            }
            Ok::<_, kube::Error>(answer)
        }
    });
    Client::new(service, namespace)
}

/// Namespace, name, and what is held of an object or why it cannot be decoded.
fn decoded<K: Lean>(object: Guarded<K>) -> (Text, Text, Result<Object, String>) {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let object = object.0.map(Slim::into_object).map_err(|invalid| one_line(&invalid.error));
    (namespace.into(), name.into(), object)
}

/// Nothing of what is done under the lock can leave it half done.
fn lock(objects: &Mutex<Objects>) -> MutexGuard<'_, Objects> {
    objects.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The server knows no `sendInitialEvents`, or does not allow it (400 and 422); or it begins, and ends with an error
/// before the list is whole, as one does whose etcd tells no progress (3.4 up to 3.4.30).
fn refuses_streams(error: &watcher::Error, listed: bool) -> bool {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => matches!(status.code, 400 | 422),
        watcher::Error::WatchError(status) => !listed && !matches!(status.code, 410 | 429),
        _ => false,
    }
}

fn is_gone(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchError(status) => status.code == 410,
        watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::InitialListFailed(kube::Error::Api(status)) => status.code == 410,
        _ => false,
    }
}

/// What is wrong with a watch, and what to do.
fn explain(kind: Kind, error: &watcher::Error) -> (String, String) {
    let status = match error {
        watcher::Error::WatchError(status) => Some(status),
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => Some(status),
        _ => None,
    };
    let remedy = match status.map(|status| status.code) {
        Some(401 | 403) => format!("let the agent's account list and watch {kind} objects"),
        Some(404) => "apply the CRDs of this release".to_owned(),
        _ => "see that the API server can be reached from this node; what was read stays in force".to_owned(),
    };
    (with_causes(error), remedy)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
