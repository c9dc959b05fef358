//! Plans when something changed, and carries the plan out.
//!
//! Writes run side by side, at most one for each object and [`WRITES`] in all; a new plan is made while they run. An
//! object whose write failed rests, the others go on. What a write answers goes into the view at once, so the next plan
//! builds on it without waiting for the watch.

use super::Metrics;
use crate::clock::Clock;
use crate::leader::Leadership;
use crate::plan::{Change, Config, Memory, Notice, Plan, Target};
use crate::sink::objects::to_json;
use crate::sink::server::{Outcome, write};
use crate::state::{Event, State};
use crate::view::{Kind, View};
use juneau_api::view::ObjectName;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Writes that run side by side.
const WRITES: usize = 32;
/// After a plan, changes that come within this time are planned together. The first one after a pause is planned at once,
/// for a Pod's start is a row of writes, and each waits for the plan that knows of the one before.
const GATHER: Duration = Duration::from_millis(3);
/// A plan whose writes are not all begun after this is made anew.
const PLAN_AGE: Duration = Duration::from_millis(200);
/// How long an object rests after a failure, at first and at most.
const REST: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// The same when only the view was behind.
const REST_BEHIND: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// A deletion that was accepted is not asked for again within this time, unless the object changed.
const DELETED: Duration = Duration::from_secs(30);
/// What a server did not keep is not written again within this time, as long as it is the same.
const DROPPED: Duration = Duration::from_secs(600);
/// How long writes that run are waited for at the end.
const LAST_WRITES: Duration = Duration::from_secs(2);

type Key = (Kind, ObjectName);

#[derive(Debug, Clone, Copy)]
struct Rest {
    failures: u32,
    until: Instant,
}

/// What a server did not keep.
#[derive(Debug, Clone)]
struct Dropped {
    target: Target,
    /// The part that was written.
    wish: Value,
    fields: String,
    at: Instant,
}

/// The part of an object that a change is about.
fn wish(change: &Change) -> Option<Value> {
    let (object, part) = match change {
        Change::Status(object) => (object, "status"),
        Change::Spec(object) => (object, "spec"),
        _ => return None,
    };
    to_json(object).map(|mut document| document[part].take())
}

/// What the planner needs.
pub struct Planner {
    /// The API server.
    pub client: kube::Client,
    /// What exists.
    pub state: Arc<State>,
    /// What the plan goes by.
    pub config: watch::Receiver<Arc<Config>>,
    /// Who writes.
    pub leadership: watch::Receiver<Leadership>,
    /// Where notices go.
    pub notices: watch::Sender<Arc<Vec<Notice>>>,
    /// The time of day.
    pub clock: Clock,
    /// What is counted.
    pub metrics: Metrics,
    /// What plans: [`Memory::plan`].
    pub plan: fn(&mut Memory, &View, &Config, Timestamp) -> Plan,
}

#[derive(Default)]
struct Progress {
    queue: VecDeque<Change>,
    memory: Memory,
    planned: Option<Instant>,
    running: HashSet<Key>,
    /// Objects whose write ended since the plan: what it says of them is out of date.
    ended: HashSet<Key>,
    rests: HashMap<Key, Rest>,
    deleted: HashMap<Key, (Target, Instant)>,
    dropped: HashMap<Key, Dropped>,
    throttled: Option<Instant>,
    /// The view changed at this time, and no plan knows of it.
    dirty: Option<Instant>,
    wake: Option<Instant>,
}

impl Planner {
    /// Plans until `stop` says so or its sender is gone, then waits a moment for writes that run.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut changes = self.state.changes();
        let mut progress = Progress { dirty: Some(Instant::now()), ..Progress::default() };
        let mut writes: JoinSet<(Change, Outcome)> = JoinSet::new();
        while !*stop.borrow_and_update() {
            let leads = self.leadership.borrow_and_update().is_leader() && self.state.is_synced();
            let now = Instant::now();
            if !leads {
                progress.queue.clear();
                progress.dirty.get_or_insert(now);
            } else if progress.due(now) {
                self.plan(&mut progress).await;
            }
            if leads {
                self.begin(&mut progress, &mut writes);
            }
            let next = progress.next(leads);
            let wait = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                gone = stop.changed() => if gone.is_err() { break },
                Some(done) = writes.join_next() => match done {
                    Ok((change, outcome)) => self.end(&mut progress, &change, outcome),
                    // A panic is a bug; whoever started this starts it anew.
                    Err(_) => return,
                },
                Ok(()) = changes.changed() => drop(progress.dirty.get_or_insert(Instant::now())),
                Ok(()) = self.config.changed() => drop(progress.dirty.get_or_insert(Instant::now())),
                Ok(()) = self.leadership.changed() => {}
                () = wait => {}
            }
        }
        let _ = tokio::time::timeout(LAST_WRITES, async { while writes.join_next().await.is_some() {} }).await;
    }

    async fn plan(&mut self, progress: &mut Progress) {
        progress.dirty = None;
        progress.ended.clear();
        let moment = self.clock.now();
        let view = self.state.view(moment);
        let config = Arc::clone(&self.config.borrow());
        let (plan, begun) = (self.plan, Instant::now());
        let mut memory = std::mem::take(&mut progress.memory);
        // Milliseconds for a large cluster: not on a thread that answers admission.
        let work = move || (plan(&mut memory, &view, &config, moment), memory);
        let Ok((planned, memory)) = tokio::task::spawn_blocking(work).await else {
            // A plan that panics is a bug; the next change may take it around it.
            tracing::error!("the plan was not made");
            progress.planned = Some(Instant::now());
            return;
        };
        progress.memory = memory;
        self.metrics.plan_seconds.observe(begun.elapsed().as_secs_f64());
        let now = Instant::now();
        progress.planned = Some(now);
        progress.wake = planned.wake.map(|wake| {
            let wait = Duration::try_from(wake.duration_since(moment)).unwrap_or_default();
            now + wait.max(Duration::from_millis(10))
        });
        if !planned.changes.is_empty() {
            tracing::debug!(changes = planned.changes.len(), at_rest = progress.memory.at_rest(), "plan");
        }
        // What this version cannot read it does not write either: another one, or a person, has to mend it.
        let undecodable = self.state.undecodable();
        let mut changes = planned.changes;
        changes.retain(|change| {
            let target = change.target();
            !undecodable.contains_key(&(target.kind, target.name))
        });
        progress.queue = changes.into();
        progress.deleted.retain(|_, (_, at)| now < *at + DELETED);
        progress.rests.retain(|_, rest| now < rest.until + REST.1);
        progress.dropped.retain(|_, dropped| now < dropped.at + DROPPED);
        let mut notices = planned.notices;
        notices.extend(self.undecodable());
        notices.extend(progress.dropped.values().map(Dropped::notice));
        if **self.notices.borrow() != notices {
            self.notices.send_replace(Arc::new(notices));
        }
    }

    /// Notices of what cannot be decoded.
    fn undecodable(&self) -> impl Iterator<Item = Notice> {
        self.state.undecodable().into_iter().map(|((kind, name), what)| {
            let effect = if what.kept { "its last good version is used" } else { "it is ignored" };
            Notice {
                object: Target { kind, name, uid: what.uid, resource_version: what.resource_version },
                warning: true,
                at_once: false,
                reason: "Undecodable",
                message: format!("cannot be decoded: {}; {effect} until it is mended", what.error),
            }
        })
    }

    /// Begins as many writes as may run.
    fn begin(&self, progress: &mut Progress, writes: &mut JoinSet<(Change, Outcome)>) {
        let now = Instant::now();
        if progress.throttled.is_some_and(|until| now < until) {
            return;
        }
        progress.throttled = None;
        let mut seen = HashSet::new();
        while writes.len() < WRITES {
            let Some(change) = progress.queue.pop_front() else { break };
            let target = change.target();
            let key = (target.kind, target.name.clone());
            // The second change of an object waits for the plan that knows of the first.
            if !seen.insert(key.clone())
                || progress.running.contains(&key)
                || progress.ended.contains(&key)
                || progress.is_in_vain(&key, &change)
                || progress.rests.get(&key).is_some_and(|rest| now < rest.until)
                || matches!((&change, progress.deleted.get(&key)), (Change::Delete(_), Some((before, _))) if *before == target)
            {
                continue;
            }
            progress.running.insert(key);
            let (client, leadership) = (self.client.clone(), self.leadership.clone());
            writes.spawn(async move {
                // Looked at as late as can be: this process may have been stopped since.
                let leads = leadership.borrow().is_leader();
                let outcome = if leads {
                    write(&client, &change).await
                } else {
                    Outcome::Behind("not the leader any more".into())
                };
                (change, outcome)
            });
        }
    }

    fn end(&self, progress: &mut Progress, change: &Change, outcome: Outcome) {
        let target = change.target();
        let key = (target.kind, target.name.clone());
        let now = Instant::now();
        progress.running.remove(&key);
        progress.ended.insert(key.clone());
        self.metrics.write(change, outcome.as_str());
        let mut rest = |(first, most): (Duration, Duration)| {
            let failures = progress.rests.get(&key).map_or(0, |rest| rest.failures) + 1;
            let pause = first.saturating_mul(1 << (failures - 1).min(16)).min(most);
            progress.rests.insert(key.clone(), Rest { failures, until: now + pause });
            failures
        };
        match outcome {
            Outcome::Written(object) => {
                progress.rests.remove(&key);
                tracing::debug!(%change, "written");
                self.state.handle(Event::Found(object));
            }
            Outcome::Dropped(object, fields) => {
                progress.rests.remove(&key);
                let fields = fields.join(", ");
                // Once, not once for each object: the definition is what is wrong.
                if progress.dropped.values().all(|one| one.target.kind != target.kind || one.fields != fields) {
                    tracing::error!(kind = %target.kind, fields, "{}", OLD_DEFINITION);
                }
                if let Some(wish) = wish(change) {
                    progress.dropped.insert(key, Dropped { target, wish, fields, at: now });
                }
                self.state.handle(Event::Found(object));
            }
            Outcome::Deleted => {
                progress.rests.remove(&key);
                tracing::debug!(%change, "deleted");
                progress.deleted.insert(key, (target, now));
            }
            Outcome::Behind(why) => {
                rest(REST_BEHIND);
                tracing::debug!(%change, why, "behind");
            }
            Outcome::Throttled(pause) => {
                tracing::info!(seconds = pause.as_secs(), "the API server asks for a pause");
                progress.throttled = Some(progress.throttled.map_or(now + pause, |until| until.max(now + pause)));
            }
            Outcome::Forbidden(why) => {
                rest(REST);
                tracing::error!(%change, "{why}");
            }
            Outcome::Refused(why) => {
                rest(REST);
                tracing::error!(%change, why, "refused");
            }
            Outcome::Failed(why) => {
                let failures = rest(REST);
                if failures == 1 {
                    tracing::warn!(%change, why, "failed");
                } else {
                    tracing::debug!(%change, why, failures, "failed");
                }
            }
        }
        // What was put aside meanwhile, or rests, is for the next plan.
        progress.dirty.get_or_insert(now);
    }
}

/// Why a server does not keep a field, and what helps.
const OLD_DEFINITION: &str = "the API server does not keep these fields, as the definition that it has is of another release: apply what \
     `juneau-operator crds` prints";

impl Dropped {
    fn notice(&self) -> Notice {
        let message = format!("{}: {OLD_DEFINITION}", self.fields);
        // The version changes with each write of others; the cause does not.
        let object = Target { resource_version: String::new(), ..self.target.clone() };
        Notice { object, warning: true, at_once: false, reason: "FieldsDropped", message }
    }
}

impl Progress {
    /// Whether the server was told just this, and did not keep it.
    fn is_in_vain(&self, key: &Key, change: &Change) -> bool {
        self.dropped.get(key).is_some_and(|dropped| {
            dropped.target.uid == change.target().uid && wish(change).as_ref() == Some(&dropped.wish)
        })
    }

    /// Whether it is time for a plan.
    fn due(&self, now: Instant) -> bool {
        self.next(true).is_some_and(|next| next <= now) && self.throttled.is_none_or(|until| until <= now)
    }

    /// When to look again.
    fn next(&self, leads: bool) -> Option<Instant> {
        if !leads {
            return None;
        }
        let gathered = self.dirty.map(|dirty| {
            let gathered = self.planned.map_or(dirty, |planned| dirty.max(planned + GATHER));
            match (self.queue.is_empty(), self.planned) {
                // Writes of the last plan are still to be begun.
                (false, Some(planned)) => gathered.max(planned + PLAN_AGE),
                _ => gathered,
            }
        });
        // A rest that ends is a reason to plan again only if that is not known to be in vain.
        let rested = self
            .rests
            .values()
            .map(|rest| rest.until)
            .filter(|until| self.planned.is_none_or(|planned| *until > planned))
            .min();
        let next = [gathered, rested, self.wake].into_iter().flatten().min()?;
        Some(self.throttled.map_or(next, |until| next.max(until)))
    }
}

#[cfg(test)]
mod tests;
