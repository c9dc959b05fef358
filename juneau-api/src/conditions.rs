//! Conditions of a status, as Kubernetes has them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The condition that every kind has.
pub const READY: &str = "Ready";
/// NetworkInterface: it has its address.
pub const ALLOCATED: &str = "Allocated";
/// VpcEndpoint: it has its address.
pub const ADDRESS_ALLOCATED: &str = "AddressAllocated";
/// VpcEndpoint: its Service may be called through it.
pub const SERVICE_ACCEPTED: &str = "ServiceAccepted";

/// Longest message, in bytes, that Kubernetes takes.
pub const MESSAGE_MAX: usize = 32_768;

/// Whether something holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// It does.
    True,
    /// It does not.
    False,
    /// Nobody can tell.
    Unknown,
}

impl Status {
    /// As conditions write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Sets a condition; whether anything about it changed. `lastTransitionTime` becomes `now` when the status changes, and
/// stays otherwise, so what is unchanged need not be written. The order of conditions stays; a new one comes last.
pub fn set(
    conditions: &mut Vec<Condition>,
    kind: &str,
    status: Status,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: &Time,
) -> bool {
    let message = cut(message);
    let Some(known) = conditions.iter_mut().find(|condition| condition.type_ == kind) else {
        conditions.push(Condition {
            type_: kind.to_owned(),
            status: status.as_str().to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            observed_generation: generation,
            last_transition_time: now.clone(),
        });
        return true;
    };
    let before = known.clone();
    if known.status != status.as_str() {
        status.as_str().clone_into(&mut known.status);
        known.last_transition_time = now.clone();
    }
    reason.clone_into(&mut known.reason);
    message.clone_into(&mut known.message);
    known.observed_generation = generation;
    *known != before
}

/// [`set`] of [`READY`].
pub fn set_ready(
    conditions: &mut Vec<Condition>,
    status: impl Into<Status>,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: &Time,
) -> bool {
    set(conditions, READY, status.into(), reason, message, generation, now)
}

/// Whether [`set`] would change nothing. It copies nothing either, so it is for those who look often and change seldom.
#[must_use]
pub fn is_set(
    conditions: &[Condition],
    kind: &str,
    status: Status,
    reason: &str,
    message: &str,
    generation: Option<i64>,
) -> bool {
    find(conditions, kind).is_some_and(|known| {
        known.status == status.as_str()
            && known.reason == reason
            && known.message == cut(message)
            && known.observed_generation == generation
    })
}

/// The condition of this type.
#[must_use]
pub fn find<'c>(conditions: &'c [Condition], kind: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether a condition of this type is there and holds.
#[must_use]
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == Status::True.as_str())
}

/// [`is_true`] of [`READY`].
#[must_use]
pub fn is_ready(conditions: &[Condition]) -> bool {
    is_true(conditions, READY)
}

/// As much of a message as Kubernetes takes.
fn cut(message: &str) -> &str {
    let mut end = message.len().min(MESSAGE_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        Time(text.parse().unwrap())
    }

    #[test]
    fn the_time_moves_when_the_status_does_and_only_then() {
        let (first, second, third) =
            (at("2026-01-01T00:00:00Z"), at("2026-01-01T00:00:01Z"), at("2026-01-01T00:00:02Z"));
        let mut conditions = Vec::new();
        assert!(set_ready(&mut conditions, false, "NotReady", "waits", Some(1), &first));
        assert_eq!(conditions[0].last_transition_time, first);
        assert!(!set_ready(&mut conditions, false, "NotReady", "waits", Some(1), &second), "nothing changed");
        let is_set = |status, reason, message, generation| {
            super::is_set(&conditions, READY, status, reason, message, generation)
        };
        assert!(is_set(Status::False, "NotReady", "waits", Some(1)));
        assert!(!is_set(Status::True, "NotReady", "waits", Some(1)));
        assert!(!is_set(Status::False, "Ready", "waits", Some(1)));
        assert!(!is_set(Status::False, "NotReady", "", Some(1)));
        assert!(!is_set(Status::False, "NotReady", "waits", Some(2)));
        assert!(!super::is_set(&[], READY, Status::False, "NotReady", "waits", Some(1)));
        assert!(set_ready(&mut conditions, false, "NotReady", "waits more", Some(1), &second));
        assert!(set_ready(&mut conditions, false, "NotReady", "waits more", Some(2), &second));
        assert!(set_ready(&mut conditions, false, "ReconcileFailed", "waits more", Some(2), &second));
        assert_eq!(conditions[0].last_transition_time, first);
        assert!(!is_ready(&conditions));
        assert!(set_ready(&mut conditions, true, "ReconcileSucceeded", "", Some(2), &third));
        assert_eq!(conditions[0].last_transition_time, third);
        assert!(is_ready(&conditions));
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn others_conditions_stay() {
        let now = at("2026-01-01T00:00:00Z");
        let mut conditions = Vec::new();
        set(&mut conditions, ALLOCATED, Status::True, "AllocationSucceeded", "", None, &now);
        set(&mut conditions, "Theirs", Status::Unknown, "X", "", None, &now);
        set_ready(&mut conditions, true, "ReconcileSucceeded", "", None, &now);
        set(&mut conditions, ALLOCATED, Status::False, "AllocationFailed", "none left", None, &now);
        let kinds: Vec<_> = conditions.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(kinds, [ALLOCATED, "Theirs", READY]);
        assert_eq!(find(&conditions, "Theirs").unwrap().status, "Unknown");
        assert!(!is_true(&conditions, ALLOCATED) && !is_true(&conditions, "Absent"));
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let now = at("2026-01-01T00:00:00Z");
        let mut conditions = Vec::new();
        let message = format!("{}é", "a".repeat(MESSAGE_MAX - 1));
        set_ready(&mut conditions, false, "NotReady", &message, None, &now);
        assert_eq!(conditions[0].message.len(), MESSAGE_MAX - 1);
        assert!(!set_ready(&mut conditions, false, "NotReady", &message, None, &now), "the cut one is the same");
    }
}
