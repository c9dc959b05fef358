//! The time of day.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The time of day of this replica: for what it writes for others to read. It may be wrong by hours, so nothing that
/// another one wrote is compared with it; see [`Sightings`](crate::view::Sightings).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Clock {
    ahead: SignedDuration,
}

impl Clock {
    /// One that is wrong by so much.
    #[must_use]
    pub const fn ahead_by(ahead: SignedDuration) -> Self {
        Self { ahead }
    }

    /// What it shows.
    #[must_use]
    pub fn now(self) -> Timestamp {
        Timestamp::now().saturating_add(self.ahead).unwrap_or(Timestamp::MAX)
    }
}
