//! Watches: one a kind, each on its own, so that one that fails holds up no other.

use crate::state::{Event, State, Undecodable};
use crate::view::{Kind, Object};
use futures::StreamExt as _;
use juneau_api::source::client::{watch_seconds, with_causes};
use juneau_api::view::ObjectName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource};
use kube::core::DynamicResourceScope;
use kube::runtime::{WatchStreamExt as _, watcher};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Objects in one answer to a list.
const PAGE: u32 = 500;

/// A document as the server sent it. Reading it never fails, so one that is not of its kind's shape costs itself and
/// not the watch, as with kube's `DeserializeGuard`; unlike there nothing is copied to be read twice.
#[derive(Debug, Clone)]
struct Document {
    metadata: ObjectMeta,
    value: Value,
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let text = |key: &str| value["metadata"][key].as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, value })
    }
}

impl kube::Resource for Document {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(dynamic: &ApiResource) -> Cow<'_, str> {
        dynamic.kind.as_str().into()
    }

    fn group(dynamic: &ApiResource) -> Cow<'_, str> {
        dynamic.group.as_str().into()
    }

    fn version(dynamic: &ApiResource) -> Cow<'_, str> {
        dynamic.version.as_str().into()
    }

    fn plural(dynamic: &ApiResource) -> Cow<'_, str> {
        dynamic.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Labels of the counter of objects that could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabel {
    /// Of which kind they were.
    pub kind: &'static str,
}

/// What watches count.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Objects that could not be decoded, each version once.
    pub undecodable: Family<KindLabel, Counter>,
    /// Lists that were read anew.
    pub lists: Family<KindLabel, Counter>,
    /// Watches that failed.
    pub failures: Family<KindLabel, Counter>,
}

fn resource(kind: Kind) -> ApiResource {
    let (group, version) = kind.api_version().split_once('/').unwrap_or(("", kind.api_version()));
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: kind.api_version().to_owned(),
        kind: kind.as_str().to_owned(),
        plural: kind.plural().to_owned(),
    }
}

/// How a watch is asked for, when a connection without a word is given up after `patience`.
pub(crate) fn config(patience: Duration) -> watcher::Config {
    watcher::Config::default().page_size(PAGE).timeout(watch_seconds(patience))
}

/// Keeps one kind of a view current, for ever.
pub(super) async fn watch(client: kube::Client, kind: Kind, patience: Duration, state: Arc<State>, counts: Counts) {
    let label = KindLabel { kind: kind.as_str() };
    let api = Api::<Document>::all_with(client, &resource(kind));
    let mut events = pin!(watcher::watcher(api, config(patience)).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => {
                counts.lists.get_or_create(&label).inc();
                state.handle(Event::Begin(kind));
            }
            Ok(watcher::Event::InitDone) => {
                state.handle(Event::End(kind));
            }
            Ok(watcher::Event::InitApply(document) | watcher::Event::Apply(document)) => {
                let event = read(kind, document);
                if let Event::Broken(_, name, what) = &event {
                    counts.undecodable.get_or_create(&label).inc();
                    tracing::error!(object = %format_args!("{kind}/{name}"), error = what.error, "cannot be decoded");
                }
                state.handle(event);
            }
            Ok(watcher::Event::Delete(document)) => {
                let metadata = document.metadata;
                state.handle(Event::Gone(kind, name(&metadata), metadata.uid.unwrap_or_default()));
            }
            Err(error) => {
                counts.failures.get_or_create(&label).inc();
                let why = with_causes(&error);
                tell(kind, &error, &why);
                state.failed(kind, &why);
            }
        }
    }
}

fn name(metadata: &ObjectMeta) -> ObjectName {
    ObjectName::new(metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

fn read(kind: Kind, document: Document) -> Event {
    let metadata = document.metadata;
    match Object::from_json(kind, document.value) {
        Ok(object) => Event::Found(object),
        Err(error) => {
            let what = Undecodable {
                uid: metadata.uid.clone().unwrap_or_default(),
                resource_version: metadata.resource_version.clone().unwrap_or_default(),
                error: error.to_string(),
                kept: false,
            };
            Event::Broken(kind, name(&metadata), what)
        }
    }
}

/// Says what helps, where that is known.
fn tell(kind: Kind, error: &watcher::Error, why: &str) {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))
    | watcher::Error::WatchFailed(kube::Error::Api(status))
    | watcher::Error::WatchError(status)) = error
    else {
        return tracing::warn!(%kind, why, "watch");
    };
    match status.code {
        403 => tracing::error!(
            %kind,
            "may not list and watch {} of group \"{}\": add both verbs to ClusterRole juneau-operator, as in deploy/",
            kind.plural(),
            resource(kind).group,
        ),
        404 => tracing::error!(%kind, "the kind is not defined: apply what `juneau-operator crds` prints"),
        // The server forgot the version; a new list follows.
        410 => tracing::info!(%kind, "watch expired"),
        _ => tracing::warn!(%kind, why, "watch"),
    }
}
