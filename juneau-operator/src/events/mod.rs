//! Events about what is wrong: one for each cause, and never many at once.
//!
//! A plan repeats a notice as long as its cause lasts; [`Filter`] lets it through once, when it has lasted a moment. The name of an Event is made of
//! what it says, so an operator that was started anew, or another replica, does not say it again.

use crate::plan::Notice;
use crate::view::Kind;
use http::{Request, StatusCode};
use juneau_api::view::ObjectName;
use k8s_openapi::jiff::Timestamp;
use kube::client::Body;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// Events at once.
const BURST: u32 = 25;
/// Then one each.
const EVERY: Duration = Duration::from_millis(200);
/// A cause is told when it has lasted so long. What is applied together comes one by one, and watches of two kinds are not
/// in step, so that a Subnet may be seen before its Vpc is; and what is in order soon is nothing to tell.
const SETTLE: Duration = Duration::from_secs(2);
/// The same cause with another text is told after this again. A cause may have several texts at once, as two interfaces
/// of one Pod have: each is told once.
const AGAIN: Duration = Duration::from_secs(60);
/// A text that was away for this long is told anew when it comes back.
const FORGET: Duration = Duration::from_secs(600);
/// One that the server did not take is told again after this.
const RETRY: Duration = Duration::from_secs(5);
/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest text that the API takes, in bytes.
const NOTE_LIMIT: usize = 1024;

type Cause = (Kind, ObjectName, String, &'static str);

#[derive(Debug)]
struct Told {
    /// What was said, and when it was there last.
    texts: HashMap<String, Instant>,
    /// When something was said last.
    at: Instant,
}

fn cause(notice: &Notice) -> Cause {
    let target = &notice.object;
    (target.kind, target.name.clone(), target.uid.clone(), notice.reason)
}

/// Decides which notices become Events.
#[derive(Debug)]
pub struct Filter {
    told: HashMap<Cause, Told>,
    /// Causes that have not lasted long enough yet, and since when.
    seen: HashMap<Cause, Instant>,
    /// When the budget would be full again.
    full: Instant,
}

impl Filter {
    /// One that has told nothing.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { told: HashMap::new(), seen: HashMap::new(), full: now }
    }

    /// The notices to tell now, and when to ask again if some have to wait.
    pub fn handle<'a>(&mut self, now: Instant, notices: &'a [Notice]) -> (Vec<&'a Notice>, Option<Instant>) {
        let mut tell = Vec::new();
        let mut next: Option<Instant> = None;
        let before = std::mem::take(&mut self.seen);
        for notice in notices {
            let cause = cause(notice);
            if !self.told.contains_key(&cause) {
                let since = before.get(&cause).copied().unwrap_or(now);
                self.seen.insert(cause.clone(), since);
                if !notice.at_once && now < since + SETTLE {
                    next = Some(next.map_or(since + SETTLE, |next| next.min(since + SETTLE)));
                    continue;
                }
            }
            if let Some(told) = self.told.get_mut(&cause) {
                if let Some(present) = told.texts.get_mut(&notice.message) {
                    *present = now;
                    continue;
                }
                if now < told.at + AGAIN {
                    let due = told.at + AGAIN;
                    next = Some(next.map_or(due, |next| next.min(due)));
                    continue;
                }
            }
            if self.full.saturating_duration_since(now) >= EVERY * BURST {
                let due = self.full.checked_sub(EVERY * (BURST - 1)).unwrap_or(self.full);
                next = Some(next.map_or(due, |next| next.min(due)));
                // The others are still noted.
                continue;
            }
            self.full = self.full.max(now) + EVERY;
            self.seen.remove(&cause);
            let told = self.told.entry(cause).or_insert_with(|| Told { texts: HashMap::new(), at: now });
            told.at = now;
            told.texts.insert(notice.message.clone(), now);
            tell.push(notice);
        }
        self.told.retain(|_, told| {
            told.texts.retain(|_, present| now < *present + FORGET);
            !told.texts.is_empty()
        });
        (tell, next)
    }

    /// A notice that was to be told could not be.
    pub fn failed(&mut self, notice: &Notice) {
        let cause = cause(notice);
        if let Some(told) = self.told.get_mut(&cause) {
            told.texts.remove(&notice.message);
            if told.texts.is_empty() {
                self.told.remove(&cause);
            }
        }
    }
}

/// The Event of a notice.
#[must_use]
pub fn event(notice: &Notice, now: Timestamp, instance: &str) -> Value {
    let target = &notice.object;
    let mut hash = DefaultHasher::new();
    (&target.uid, notice.reason, &notice.message).hash(&mut hash);
    let namespace = if target.name.namespace.is_empty() { "default" } else { target.name.namespace.as_str() };
    let kind = if notice.warning { "Warning" } else { "Normal" };
    let mut note = notice.message.clone();
    if note.len() > NOTE_LIMIT {
        let end = (0..=NOTE_LIMIT - 4).rev().find(|end| note.is_char_boundary(*end)).unwrap_or_default();
        note.truncate(end);
        note.push_str(" ...");
    }
    // A name has at most 253 characters.
    let stem: String = target.name.name.chars().take(200).collect();
    let stem = stem.trim_end_matches(['.', '-']);
    let mut regarding = json!({
        "apiVersion": target.kind.api_version(), "kind": target.kind.as_str(),
        "name": target.name.name, "uid": target.uid,
    });
    if !target.name.namespace.is_empty() {
        regarding["namespace"] = target.name.namespace.as_str().into();
    }
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": { "name": format!("{stem}.{:016x}", hash.finish()), "namespace": namespace },
        "eventTime": format!("{now:.6}"), "type": kind, "reason": notice.reason, "note": note, "regarding": regarding,
        "action": "Plan", "reportingController": "juneau.loutres.me/operator",
        "reportingInstance": instance.chars().take(128).collect::<String>(),
    })
}

/// Tells what comes in, for ever.
pub async fn tell(
    client: kube::Client,
    instance: String,
    mut notices: watch::Receiver<Arc<Vec<Notice>>>,
    sent: Counter,
) {
    let mut filter = Filter::new(Instant::now());
    let mut next = None;
    loop {
        let wait = async {
            match next {
                Some(next) => sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = notices.changed() => if changed.is_err() { return },
            () = wait => {}
        }
        let all = Arc::clone(&notices.borrow_and_update());
        let (tell, again) = filter.handle(Instant::now(), &all);
        next = again;
        for notice in tell {
            match timeout(PATIENCE, post(&client, &event(notice, Timestamp::now(), &instance))).await {
                Ok(Ok(taken)) => {
                    log(notice);
                    match taken {
                        Taken::Yes => drop(sent.inc()),
                        Taken::Not => {}
                        Taken::Forbidden => tracing::error!(
                            "may not create events (group events.k8s.io): is it in ClusterRole juneau-operator, as in deploy/?"
                        ),
                    }
                    continue;
                }
                Ok(Err(error)) => tracing::debug!(%error, "an Event was not taken"),
                Err(_) => tracing::debug!("an Event was not answered"),
            }
            filter.failed(notice);
            let due = Instant::now() + RETRY;
            next = Some(next.map_or(due, |next| next.min(due)));
        }
    }
}

fn log(notice: &Notice) {
    if notice.warning {
        tracing::warn!(object = %notice.object, reason = notice.reason, "{}", notice.message);
    } else {
        tracing::info!(object = %notice.object, reason = notice.reason, "{}", notice.message);
    }
}

/// What became of an Event.
enum Taken {
    /// It is told.
    Yes,
    /// It was told already, or the server will never take it: its namespace ends, or it is wrong.
    Not,
    /// A right is missing.
    Forbidden,
}

/// Sends an Event; an error is one that may go away.
async fn post(client: &kube::Client, event: &Value) -> Result<Taken, String> {
    let failed = |error: &dyn core::fmt::Display| error.to_string();
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
    let request = Request::post(format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::from(serde_json::to_vec(event).map_err(|error| failed(&error))?))
        .map_err(|error| failed(&error))?;
    let (head, body) = client.send(request).await.map_err(|error| failed(&error))?.into_parts();
    match head.status {
        status if status.is_success() => Ok(Taken::Yes),
        // A namespace that is being deleted takes no new objects, which is said with the same code as a missing right.
        StatusCode::FORBIDDEN => {
            let said = body.collect_bytes().await.map_err(|error| failed(&error))?;
            let said: Value = serde_json::from_slice(&said).unwrap_or_default();
            let ends = said["details"]["causes"][0]["reason"] == "NamespaceTerminating";
            Ok(if ends { Taken::Not } else { Taken::Forbidden })
        }
        StatusCode::CONFLICT | StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::UNPROCESSABLE_ENTITY => {
            Ok(Taken::Not)
        }
        status => Err(status.to_string()),
    }
}

#[cfg(test)]
mod tests;
