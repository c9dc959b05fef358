//! When things were seen.

use k8s_openapi::jiff::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;

/// When this process saw things for the first time, in the time of the plan that is made of them.
///
/// What a timestamp in an object says is by the clock of whoever wrote it: another replica's, or an API server's. How
/// long something has lasted is counted from when it was seen instead. A process that was started anew counts from its
/// start, so things last rather too long than too short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sightings {
    /// When all objects were read for the first time: what is not in `young` was there then.
    pub listed: Timestamp,
    /// Objects that came later, by uid, unless that is long ago.
    pub young: HashMap<Arc<str>, Timestamp>,
    /// AllocationLeases by uid: since when they have the `ownerDeletionTimestamp` that they have.
    pub marks: HashMap<Arc<str>, Timestamp>,
}

impl Sightings {
    /// When an object was seen first, or a later moment that is past a while.
    #[must_use]
    pub fn object(&self, uid: &str) -> Timestamp {
        self.young.get(uid).copied().unwrap_or(self.listed)
    }

    /// When the mark of a lease was seen first.
    #[must_use]
    pub fn mark(&self, uid: &str) -> Timestamp {
        self.marks.get(uid).copied().unwrap_or(self.listed)
    }
}
