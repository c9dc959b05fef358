//! Requests to attach whose objects are on their way.
//!
//! A kubelet that is told to try again does so after ten seconds or more, while the operator needs a tenth of one from
//! the Pod to its endpoint. So a request that says how long it can wait is answered when the objects are there.

use super::{Engine, debug};
use crate::metrics::{Stage, Stopwatch};
use crate::protocol::{ErrorCode, Failure, Method, Sandbox};
use crate::server::Call;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The longest that a request waits, whatever it says.
const LONGEST: Duration = Duration::from_secs(10);

/// So many wait; what comes then is answered at once, so that connections are left for other requests.
const ROOM: usize = 32;

/// A request that waits.
#[derive(Debug)]
pub(super) struct Waiting {
    sandbox: Sandbox,
    until: Instant,
    stopwatch: Stopwatch,
    reply: oneshot::Sender<Result<Value, Failure>>,
}

impl Engine {
    /// Answers a request, now or later.
    pub(super) async fn hear(&mut self, call: Call) {
        let Call { method, read, reply } = call;
        let mut stopwatch = Stopwatch::from(read);
        stopwatch.end(Stage::Queue);
        if let Method::Detach(sandbox) = &method {
            self.give_up(&sandbox.container_id);
        }
        let sandbox = match &method {
            Method::Attach(sandbox) if sandbox.patience > 0 && self.waiting.len() < ROOM => Some(sandbox.clone()),
            _ => None,
        };
        let until = |sandbox: &Sandbox| Instant::now() + Duration::from_millis(sandbox.patience).min(LONGEST);
        let waits = sandbox.map(|sandbox| (until(&sandbox), sandbox));
        match (self.answer(method, stopwatch).await, waits) {
            (Err(_), Some((until, sandbox))) if self.is_early(&sandbox) => {
                self.waiting.push(Waiting { sandbox, until, stopwatch, reply });
            }
            // Whoever asked may have gone.
            (outcome, _) => drop(reply.send(outcome)),
        }
    }

    /// Whether it is objects that a sandbox lacks, or what they are programmed into.
    fn is_early(&self, sandbox: &Sandbox) -> bool {
        self.find_wanted(sandbox)
            .map_or_else(|failure| failure.code == ErrorCode::TryAgain, |_| self.dataplane.is_none())
    }

    /// Attaches the first whose objects have come, or tells the first whose time is over what is missing still. One at a
    /// time, since each may wait for the kernel: what else is asked meanwhile is answered between two of them.
    pub(super) async fn attach_waiting(&mut self) {
        let now = Instant::now();
        let due = self.waiting.iter().position(|waiting| waiting.until <= now || !self.is_early(&waiting.sandbox));
        self.more_waiting = due.is_some();
        if let Some(waiting) = due.map(|due| self.waiting.remove(due)) {
            let outcome = self.attach(&waiting.sandbox, waiting.stopwatch).await.and_then(debug::value);
            drop(waiting.reply.send(outcome));
        }
    }

    /// When to look again, if nothing happens before: when the first of them has waited long enough, and at once while
    /// there may be others whose objects have come.
    pub(super) fn waiting_until(&self) -> Option<Instant> {
        let now = self.more_waiting.then(Instant::now);
        now.or_else(|| self.waiting.iter().map(|waiting| waiting.until).min())
    }

    /// A sandbox that ends is not attached any more.
    fn give_up(&mut self, container_id: &str) {
        let gone = self.waiting.extract_if(.., |waiting| waiting.sandbox.container_id == container_id);
        for waiting in gone {
            let failure = Failure::new(ErrorCode::TryAgain, "the sandbox was detached meanwhile", "attach another one");
            drop(waiting.reply.send(Err(failure)));
        }
    }
}
