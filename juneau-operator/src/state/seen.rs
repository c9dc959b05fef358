//! When things were seen, by the monotonic clock.

use crate::view::Sightings;
use juneau_api::kinds::AllocationLease;
use k8s_openapi::jiff::Timestamp;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// An object that came longer ago is like one that was always there. Longer than whatever a plan waits for.
const YOUNG: Duration = Duration::from_secs(30);

/// When things were seen first, by the monotonic clock.
#[derive(Debug)]
pub(super) struct Seen {
    /// When all was read for the first time.
    pub(super) listed: Instant,
    young: HashMap<Arc<str>, Instant>,
    /// The same, oldest first.
    young_in_order: VecDeque<(Instant, Arc<str>)>,
    /// Leases that are marked, and with what.
    marks: HashMap<Arc<str>, (Timestamp, Instant)>,
}

impl Default for Seen {
    fn default() -> Self {
        let listed = Instant::now();
        Self { listed, young: HashMap::new(), young_in_order: VecDeque::new(), marks: HashMap::new() }
    }
}

impl Seen {
    /// An object that was not there before.
    pub(super) fn came(&mut self, uid: &str) {
        let (now, uid) = (Instant::now(), Arc::<str>::from(uid));
        while self.young_in_order.front().is_some_and(|(since, _)| now > *since + YOUNG)
            && let Some((_, oldest)) = self.young_in_order.pop_front()
        {
            self.young.remove(&oldest);
        }
        self.young.insert(Arc::clone(&uid), now);
        self.young_in_order.push_back((now, uid));
    }

    /// A version of a lease.
    pub(super) fn lease(&mut self, lease: &AllocationLease) {
        let Some(uid) = lease.metadata.uid.as_deref() else { return };
        match &lease.spec.owner_deletion_timestamp {
            None => drop(self.marks.remove(uid)),
            Some(mark) if self.marks.get(uid).is_some_and(|(known, _)| *known == mark.0) => {}
            Some(mark) => drop(self.marks.insert(uid.into(), (mark.0, Instant::now()))),
        }
    }

    /// A lease that is gone.
    pub(super) fn gone(&mut self, lease: &AllocationLease) {
        if let Some(uid) = lease.metadata.uid.as_deref() {
            self.marks.remove(uid);
        }
    }

    /// In the time of a plan.
    pub(super) fn sightings(&self, now: Timestamp) -> Sightings {
        let here = Instant::now();
        let at = |seen: Instant| now.saturating_sub(here.saturating_duration_since(seen)).unwrap_or(Timestamp::MIN);
        Sightings {
            listed: at(self.listed),
            young: self.young.iter().map(|(uid, seen)| (Arc::clone(uid), at(*seen))).collect(),
            marks: self.marks.iter().map(|(uid, (_, seen))| (Arc::clone(uid), at(*seen))).collect(),
        }
    }
}
