//! Events, the newest first.

use crate::snapshot::{ObjectRef, Snapshot};
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeSet;

/// So many are shown.
const SHOWN: usize = 10;

/// One Event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventPart {
    /// What it is about.
    pub object: ObjectRef,
    /// How many seconds ago it was, the last time.
    pub seconds_ago: i64,
    /// Something is wrong; otherwise it is told for information.
    pub warning: bool,
    /// The cause in one word.
    pub reason: String,
    /// What is the matter.
    pub message: String,
    /// How often it was.
    pub count: i32,
}

/// The moment of an Event, the last one where it came several times.
fn moment(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let first = event.event_time.as_ref().map(|time| time.0);
    let made = event.metadata.creation_timestamp.as_ref().map(|time| time.0);
    series.or(last).or(first).or(made)
}

fn part(snapshot: &Snapshot, event: &Event) -> EventPart {
    let object = &event.involved_object;
    let of_series = event.series.as_ref().and_then(|series| series.count);
    EventPart {
        object: ObjectRef {
            kind: object.kind.clone().unwrap_or_default(),
            namespace: object.namespace.clone().filter(|namespace| !namespace.is_empty()),
            name: object.name.clone().unwrap_or_default(),
        },
        seconds_ago: moment(event).map_or(0, |moment| snapshot.seconds_since(moment)),
        warning: event.type_.as_deref() == Some("Warning"),
        reason: event.reason.clone().unwrap_or_default(),
        message: event.message.clone().unwrap_or_default().trim().to_owned(),
        count: of_series.or(event.count).unwrap_or(1).max(1),
    }
}

fn newest(mut events: Vec<EventPart>, shown: usize) -> Vec<EventPart> {
    let key =
        |event: &EventPart| (event.seconds_ago, event.object.clone(), event.reason.clone(), event.message.clone());
    events.sort_by_cached_key(key);
    // The same thing said several times is one line.
    events.dedup_by(|later, first| {
        let is_same = later.object == first.object && later.reason == first.reason && later.message == first.message;
        first.count = if is_same { first.count.saturating_add(later.count) } else { first.count };
        is_same
    });
    events.truncate(shown);
    events
}

/// Events about some objects.
pub(super) fn about(snapshot: &Snapshot, objects: &BTreeSet<ObjectRef>) -> Vec<EventPart> {
    let all = snapshot.events.iter().map(|event| part(snapshot, event));
    newest(all.filter(|event| objects.contains(&event.object)).collect(), SHOWN)
}

/// What was wrong within the last seconds.
pub(super) fn warnings(snapshot: &Snapshot, within: i64, shown: usize) -> Vec<EventPart> {
    let all = snapshot.events.iter().map(|event| part(snapshot, event));
    newest(all.filter(|event| event.warning && event.seconds_ago <= within).collect(), shown)
}
