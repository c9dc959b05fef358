//! Clients of the API server, and their manners.
//!
//! kube's watcher pauses after an error, but knows nothing of `Retry-After`, begins a watch that ends without an error
//! again at once, and asks for an expired version for ever when the server says 410 in the head of its answer rather
//! than in the stream. [`polite`] mends all three for whatever goes through it.

use http::header::{HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Watches of one resource that are begun without a pause.
const BURST: u32 = 5;
/// Then one each.
const EVERY: Duration = Duration::from_secs(5);
/// Longest wait that a server may ask for.
pub const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What a daemon's configuration has to say beyond how the server is reached: a connection on which nothing was heard
/// for `patience` is given up; nothing is repeated behind the caller's back; requests name the program as `agent`, which
/// the server's audit log keeps.
#[must_use]
pub fn configure(mut config: kube::Config, agent: &str, patience: Duration) -> kube::Config {
    config.read_timeout = Some(patience);
    config.reset_reader_on_write = true;
    // It would repeat writes that were decided on what may not hold any more.
    config.default_retry = false;
    // What a header cannot hold is left out of it.
    let agent: String = agent.chars().filter(|c| (' '..='~').contains(c)).collect();
    if let Ok(value) = HeaderValue::try_from(agent) {
        config.headers.push((USER_AGENT, value));
    }
    config
}

/// An error with all its causes, in one line. Of kube's errors the last one often is the only one that helps: the others
/// only say that there is one.
#[must_use]
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some errors have their cause in their own text.
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How long a watch is asked for, in seconds, when a connection without a word is given up after `patience`: the server
/// itself ends a watch before that, so only a connection that is dead is given up.
#[must_use]
pub fn watch_seconds(patience: Duration) -> u32 {
    u32::try_from(patience.as_secs() * 4 / 5).unwrap_or(u32::MAX).clamp(1, 290)
}

/// How long the server asks to be left alone, if it does; never longer than [`LONGEST_WAIT`].
#[must_use]
pub fn retry_after(head: &http::response::Parts) -> Option<Duration> {
    if !matches!(head.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return None;
    }
    let seconds = head.headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse::<u64>().ok()?;
    (seconds > 0).then(|| Duration::from_secs(seconds).min(LONGEST_WAIT))
}

/// When what may be sent.
#[derive(Debug, Default)]
struct Lanes {
    /// By resource: not before then, says the server. It speaks of all its parts, however many they are.
    pauses: Times,
    /// By resource or selected part of it: when as many watches as [`BURST`] may be begun at once again.
    full: Times,
}

type Times = Mutex<HashMap<String, Instant>>;

fn change<T>(times: &Times, key: String, change: impl FnOnce(&mut Instant) -> T) -> T {
    let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
    change(times.entry(key).or_insert_with(Instant::now))
}

impl Lanes {
    /// When a request may be sent.
    fn turn(&self, uri: &http::Uri, is_watch: bool) -> Instant {
        let now = Instant::now();
        let turn = now.max(self.not_before(uri));
        if !is_watch {
            return turn;
        }
        change(&self.full, lane(uri), |full| {
            let spare = EVERY * (BURST - 1);
            let turn = turn.max(full.checked_sub(spare).unwrap_or(now));
            *full = (*full).max(now) + EVERY;
            turn
        })
    }

    fn not_before(&self, uri: &http::Uri) -> Instant {
        change(&self.pauses, resource(uri.path()), |not_before| *not_before)
    }

    fn pause(&self, uri: &http::Uri, pause: Duration) {
        let until = Instant::now() + pause;
        change(&self.pauses, resource(uri.path()), |not_before| *not_before = until.max(*not_before));
    }
}

/// The resource that a path is about, without namespace and name.
fn resource(path: &str) -> String {
    let mut parts = path.trim_matches('/').split('/');
    let root: Vec<&str> = parts.by_ref().take(if path.starts_with("/api/") { 2 } else { 3 }).collect();
    let rest: Vec<&str> = parts.collect();
    let plural = match rest.as_slice() {
        ["namespaces", _, plural, ..] | [plural, ..] => plural,
        [] => "",
    };
    format!("{}/{plural}", root.join("/"))
}

/// What a request is about: a resource, or that part of it which selectors leave.
fn lane(uri: &http::Uri) -> String {
    let mut key = resource(uri.path());
    for pair in uri.query().unwrap_or_default().split('&') {
        if pair.starts_with("labelSelector=") || pair.starts_with("fieldSelector=") {
            key.push('?');
            key.push_str(pair);
        }
    }
    key
}

/// Whether a request begins a watch.
pub(super) fn is_watch(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.method() == Method::GET && query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1")
}

/// The same client, which leaves a resource alone for as long as the server asks, begins a watch at most five times at
/// once and then every 5 s, and takes 410 for what it is wherever it stands.
#[must_use]
pub fn polite(client: kube::Client) -> kube::Client {
    let namespace = client.default_namespace().to_owned();
    let lanes = Arc::new(Lanes::default());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, lanes) = (client.clone(), Arc::clone(&lanes));
        async move {
            let (uri, watch) = (request.uri().clone(), is_watch(&request));
            loop {
                let turn = lanes.turn(&uri, watch);
                if turn <= Instant::now() {
                    break;
                }
                sleep_until(turn).await;
                // The place in the row is kept; only a pause that was asked for meanwhile counts again.
                if lanes.not_before(&uri) <= Instant::now() {
                    break;
                }
            }
            let (head, body) = client.send(request).await?.into_parts();
            if let Some(pause) = retry_after(&head) {
                tracing::info!(
                    resource = resource(uri.path()),
                    seconds = pause.as_secs(),
                    "the API server asks for a pause"
                );
                lanes.pause(&uri, pause);
            }
            if watch && head.status == StatusCode::GONE {
                let said = body.collect_bytes().await?;
                return Ok::<_, kube::Error>(in_the_stream(&said));
            }
            Ok(Response::from_parts(head, body))
        }
    });
    kube::Client::new(service, namespace)
}

/// A watch that says that its version is gone.
fn in_the_stream(said: &[u8]) -> Response<Body> {
    let status = serde_json::from_slice(said).ok().filter(|status: &Value| status["code"] == 410);
    let status = status.unwrap_or_else(|| {
        json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "reason": "Expired",
               "message": String::from_utf8_lossy(said), "code": 410})
    });
    let event = json!({"type": "ERROR", "object": status});
    Response::new(Body::from(format!("{event}\n").into_bytes()))
}

#[cfg(test)]
mod tests;
