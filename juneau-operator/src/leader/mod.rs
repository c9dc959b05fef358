//! Which replica writes: one holds a Lease of `coordination.k8s.io`, the others wait.
//!
//! [`Elector`] decides and knows no clock: time comes in as an argument. Two rules make it safe.
//!
//! * The holder counts its term from the moment *before* it asked for it, by its own monotonic clock, and stops writing
//!   when its [`Timing::renew_deadline`] is over, whether it was running in between or not.
//! * Another one takes over when it has *seen* no change of the Lease for the whole term, by its own monotonic clock.
//!   The times inside the Lease are for readers; nobody computes with another's clock.
//!
//! A process that was started anew in the same Pod need not wait: the holder that it finds at its first look, under its own
//! Pod's name, was ended before it began. It takes that one's place as it would take anyone's, and only that one's: a
//! holder that still renews lives, and whatever comes later came after this process.
//!
//! Every write carries the `resourceVersion` that it is based on, so of two that try at once one wins.
//! What a holder wrote just before it was paused can still arrive late: each write of the plan has preconditions of
//! its own against that.

mod store;
mod task;

pub use store::{ApiStore, LeaseStore, StoreError};
pub use task::{Leadership, lead};

use std::time::{Duration, Instant};

/// The Lease's name, as in the Go project.
pub const LEASE: &str = "e810463e.juneau.loutres.me";

/// How long terms are. By default others wait for 15 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Others wait this long after the last change that they saw. Whole seconds in the Lease.
    pub lease_duration: Duration,
    /// The holder stops writing this long after it asked for the term it has. Shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// Between two renewals. What fails is tried again after `retry_period`, several times before the term ends.
    pub renew_interval: Duration,
    /// After a failure, and between two looks of those who wait.
    pub retry_period: Duration,
}

impl Timing {
    /// The times for a Lease of this length. A renewal is asked for as soon as the one before is answered or
    /// `renew_interval` is over, so a server that takes a third of the length for each answer costs no term.
    #[must_use]
    pub fn of(lease_duration: Duration) -> Self {
        Self {
            lease_duration,
            renew_deadline: lease_duration * 4 / 5,
            renew_interval: lease_duration / 3,
            retry_period: lease_duration * 2 / 15,
        }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self::of(Duration::from_secs(15))
    }
}

/// What a Lease says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; empty: nobody.
    pub holder: String,
    /// How long others wait.
    pub duration: Duration,
    /// How often the holder changed.
    pub transitions: i32,
}

/// A Lease as the server holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// What it says.
    pub record: Record,
    /// The server's version of it. Only equality means anything.
    pub version: String,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Ask the server what the Lease says.
    Look,
    /// Write this, based on that version; without one the Lease is to be created.
    Write {
        /// What the Lease shall say.
        record: Record,
        /// The version that it replaces.
        version: Option<String>,
    },
    /// Nothing until then.
    Wait(Instant),
}

/// Who leads, decided from what was seen and when.
#[derive(Debug)]
pub struct Elector {
    identity: String,
    /// What identities of processes of the same Pod begin with.
    pod: Option<String>,
    /// The holder that was there at the first look, as the server had it then, if it was an earlier process of this Pod.
    predecessor: Option<Stored>,
    timing: Timing,
    /// The last state of the Lease and when it was first seen. The inner one is `None` when there is no Lease.
    seen: Option<(Option<Stored>, Instant)>,
    /// Until when this replica may write.
    term: Option<Instant>,
    /// Not before then.
    next: Option<Instant>,
    /// The state must be looked at before anything is decided on it.
    stale: bool,
}

impl Elector {
    /// One that has seen nothing. `identity` differs between all processes that ever try, for instance
    /// `<pod>_<random>`: a process that was started anew must not take the old one's term for its own.
    #[must_use]
    pub const fn new(identity: String, timing: Timing) -> Self {
        let (pod, predecessor) = (None, None);
        Self { identity, pod, predecessor, timing, seen: None, term: None, next: None, stale: true }
    }

    /// Of processes whose identity is `<pod>_<something>` one runs at a time, as it is with those of a Pod's container.
    #[must_use]
    pub fn of_pod(mut self, pod: &str) -> Self {
        self.pod = Some(format!("{pod}_"));
        self
    }

    /// Until when this replica may write; in the past or `None`: it may not.
    #[must_use]
    pub const fn term(&self) -> Option<Instant> {
        self.term
    }

    /// Whether this replica may write.
    #[must_use]
    pub fn is_leader(&self, now: Instant) -> bool {
        self.term.is_some_and(|term| now < term)
    }

    /// Who holds the Lease, as last seen.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        let stored = self.seen.as_ref()?.0.as_ref()?;
        Some(stored.record.holder.as_str()).filter(|holder| !holder.is_empty())
    }

    /// How often the holder changed, as last seen.
    #[must_use]
    pub fn transitions(&self) -> i32 {
        self.seen.as_ref().and_then(|(stored, _)| stored.as_ref()).map_or(0, |stored| stored.record.transitions)
    }

    /// What to do now.
    #[must_use]
    pub fn poll(&self, now: Instant) -> Step {
        if let Some(next) = self.next
            && now < next
        {
            return Step::Wait(next);
        }
        let Some((stored, since)) = &self.seen else { return Step::Look };
        if self.stale {
            return Step::Look;
        }
        match stored {
            None => self.write(None),
            Some(stored) if stored.record.holder == self.identity || stored.record.holder.is_empty() => {
                self.write(Some(stored))
            }
            Some(stored) if self.predecessor.as_ref() == Some(stored) => self.write(Some(stored)),
            Some(stored) => {
                // The longer of the two terms: replicas of two releases may differ in what they are told.
                if now >= *since + stored.record.duration.max(self.timing.lease_duration) {
                    self.write(Some(stored))
                } else {
                    Step::Look
                }
            }
        }
    }

    fn write(&self, stored: Option<&Stored>) -> Step {
        let transitions = stored.map_or(0, |stored| {
            stored.record.transitions.saturating_add(i32::from(stored.record.holder != self.identity))
        });
        let record = Record { holder: self.identity.clone(), duration: self.timing.lease_duration, transitions };
        Step::Write { record, version: stored.map(|stored| stored.version.clone()) }
    }

    /// The server's answer to [`Step::Look`].
    pub fn handle_look(&mut self, now: Instant, stored: Option<Stored>) {
        let mine = stored.as_ref().is_some_and(|stored| stored.record.holder == self.identity);
        if !mine {
            self.term = None;
        }
        if self.seen.is_none()
            && let (Some(pod), Some(stored)) = (&self.pod, &stored)
            && !mine
            && stored.record.holder.starts_with(pod.as_str())
        {
            self.predecessor = Some(stored.clone());
        }
        if self.seen.as_ref().is_none_or(|(before, _)| *before != stored) {
            self.seen = Some((stored, now));
        }
        self.stale = false;
        self.next = None;
        // Whoever waits for another's term looks again later, not at once.
        self.next = matches!(self.poll(now), Step::Look).then(|| now + self.timing.retry_period);
        if self.next.is_some() {
            self.stale = true;
            // At the end of the term nothing is to be looked up twice.
            if let Some((Some(stored), since)) = &self.seen {
                let end = *since + stored.record.duration.max(self.timing.lease_duration);
                self.next = self.next.map(|next| next.min(end.max(now)));
            }
        }
    }

    /// The server took a [`Step::Write`] that was sent at `sent`.
    pub fn handle_written(&mut self, sent: Instant, now: Instant, stored: Stored) {
        self.term = Some(sent + self.timing.renew_deadline);
        self.seen = Some((Some(stored), now));
        self.stale = false;
        // Counted from the question: with a slow server the time until the answer is pause enough.
        self.next = Some(now.max(sent + self.timing.renew_interval));
    }

    /// Somebody else wrote first: look at once.
    pub fn handle_conflict(&mut self) {
        self.stale = true;
        self.next = None;
    }

    /// The server did not answer, or not usefully. A term that runs goes on until its end.
    pub fn handle_failure(&mut self, now: Instant) {
        // Whether the write took place is not known.
        self.stale = true;
        self.next = Some(now + self.timing.retry_period);
    }

    /// Gives the term up, and says what to write so that another need not wait.
    pub fn release(&mut self, now: Instant) -> Option<Step> {
        let leads = self.is_leader(now);
        self.term = None;
        let (Some(stored), _) = self.seen.as_ref()? else { return None };
        if !leads || stored.record.holder != self.identity {
            return None;
        }
        let record = Record { holder: String::new(), duration: Duration::from_secs(1), ..stored.record.clone() };
        Some(Step::Write { record, version: Some(stored.version.clone()) })
    }
}

#[cfg(test)]
mod tests;
