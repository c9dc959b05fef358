//! How full a pool is.

use juneau_api::kinds::{AllocationLease, AllocationPoolSpec, LeasePhase, PoolType};
use serde::Serialize;
use std::net::Ipv4Addr;

/// Values of a pool, or addresses of a Subnet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Addresses {
    /// All that can be handed out.
    pub total: u64,
    /// Held.
    pub used: u64,
    /// Not held, and kept for their last holder or resting for a while.
    pub resting: u64,
    /// The rest.
    pub free: u64,
}

impl Addresses {
    /// How full a pool with these leases is. Absent: the pool contradicts itself, or cannot be read.
    pub(crate) fn of(spec: &AllocationPoolSpec, leases: &[&AllocationLease]) -> Option<Self> {
        let total = total(spec)?;
        let is_held = |lease: &&&AllocationLease| {
            let phase = lease.status.as_ref().and_then(|status| status.phase);
            lease.spec.owner_deletion_timestamp.is_none() && !matches!(phase, Some(LeasePhase::Retained))
        };
        let used = leases.iter().filter(is_held).count() as u64;
        let resting = leases.len() as u64 - used;
        Some(Self { total, used, resting, free: total.saturating_sub(leases.len() as u64) })
    }

    /// How much is held, in per cent.
    #[must_use]
    pub const fn percent(&self) -> u64 {
        match self.total {
            0 => 100,
            total => self.used * 100 / total,
        }
    }
}

/// How many values a pool has.
fn total(spec: &AllocationPoolSpec) -> Option<u64> {
    match spec.kind {
        PoolType::Number => spec.number.map(|range| u64::from(range.max) + 1 - u64::from(range.min.min(range.max))),
        PoolType::Ip => addresses(spec),
        PoolType::Unknown => None,
    }
}

fn addresses(spec: &AllocationPoolSpec) -> Option<u64> {
    let space = spec.ip.as_ref()?;
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cidr in &space.cidrs {
        let prefix: ipnet::Ipv4Net = cidr.parse().ok()?;
        let (first, last) = (u32::from(prefix.network()), u32::from(prefix.broadcast()));
        if last - first >= 2 {
            ranges.push((first + 1, last - 1));
        }
    }
    for range in &space.ranges {
        let ends = (range.start.parse::<Ipv4Addr>().ok()?, range.end.parse::<Ipv4Addr>().ok()?);
        ranges.push((ends.0.into(), ends.1.into()));
    }
    ranges.sort_unstable();
    let mut merged: Vec<(u32, u32)> = Vec::new();
    for (first, last) in ranges.into_iter().filter(|(first, last)| first <= last) {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    let mut excluded: Vec<u32> =
        space.excluded.iter().filter_map(|text| text.parse::<Ipv4Addr>().ok()).map(u32::from).collect();
    excluded.sort_unstable();
    excluded.dedup();
    let inside = |one: &u32| merged.iter().any(|(first, last)| first <= one && one <= last);
    let left_out = excluded.iter().filter(|one| inside(one)).count() as u64;
    let all: u64 = merged.iter().map(|(first, last)| u64::from(last - first) + 1).sum();
    Some(all.saturating_sub(left_out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn size(spec: serde_json::Value) -> Option<u64> {
        total(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn sizes_are_those_that_the_operator_hands_out() {
        let excluded = json!(["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.9.9.9"]);
        assert_eq!(size(json!({"type": "ip", "ip": {"cidrs": ["10.0.0.0/28"], "excluded": excluded}})), Some(11));
        assert_eq!(size(json!({"type": "number", "number": {"min": 2, "max": 0xff_ffff}})), Some(0xff_fffe));
        let ranges = json!([{"start": "10.0.0.5", "end": "10.0.0.20"}]);
        assert_eq!(size(json!({"type": "ip", "ip": {"cidrs": ["10.0.0.0/28"], "ranges": ranges}})), Some(20));
        assert_eq!(size(json!({"type": "ip", "ip": {"cidrs": ["x"]}})), None);
        assert_eq!(size(json!({"type": "ip"})), None);
    }
}
