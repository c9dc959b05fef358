//! The free values of a pool, as ranges: taking the next one costs a logarithm, however large and full the pool is.

use core::net::Ipv4Addr;
use ipnet::Ipv4Net;
use juneau_api::kinds::{AllocationPoolSpec, AllocationValue, PoolType};
use std::collections::BTreeMap;

/// A value as a number: an address as its 32 bits.
pub(super) fn number(value: &AllocationValue) -> Option<u32> {
    match (value.number, &value.ip) {
        (Some(number), None) => Some(number),
        (None, Some(ip)) => ip.parse::<Ipv4Addr>().ok().map(u32::from),
        _ => None,
    }
}

/// A number as a value of a pool of this type.
pub(super) fn value(kind: PoolType, number: u32) -> AllocationValue {
    match kind {
        PoolType::Ip => AllocationValue { number: None, ip: Some(Ipv4Addr::from(number).to_string()) },
        _ => AllocationValue { number: Some(number), ip: None },
    }
}

/// Which numbers are free: first to last, none next to each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Free {
    ranges: BTreeMap<u32, u32>,
}

impl Free {
    /// All that a pool holds.
    ///
    /// # Errors
    /// What is wrong with the pool.
    pub(super) fn new(spec: &AllocationPoolSpec) -> Result<Self, String> {
        let mut free = Self::default();
        match (spec.kind, &spec.number, &spec.ip) {
            (PoolType::Number, Some(range), None) if 1 <= range.min && range.min <= range.max => {
                free.put(range.min, range.max);
            }
            (PoolType::Ip, None, Some(space)) => {
                for text in &space.cidrs {
                    let prefix: Ipv4Net = text.parse().map_err(|_| format!("{text:?} is not an IPv4 prefix"))?;
                    let (first, last) = (u32::from(prefix.network()), u32::from(prefix.broadcast()));
                    if last - first >= 2 {
                        free.put(first + 1, last - 1);
                    }
                }
                for range in &space.ranges {
                    let end = |text: &str| text.parse::<Ipv4Addr>().map(u32::from);
                    match (end(&range.start), end(&range.end)) {
                        (Ok(first), Ok(last)) if first <= last => free.put(first, last),
                        _ => return Err(format!("{} to {} is not a range of IPv4 addresses", range.start, range.end)),
                    }
                }
                for text in &space.excluded {
                    let address: Ipv4Addr = text.parse().map_err(|_| format!("{text:?} is not an IPv4 address"))?;
                    free.take(address.into());
                }
            }
            _ => return Err("type, number and ip do not fit each other".to_owned()),
        }
        Ok(free)
    }

    /// Adds a range; what overlaps becomes one.
    fn put(&mut self, mut first: u32, mut last: u32) {
        let touching: Vec<(u32, u32)> = self
            .ranges
            .range(..=last.saturating_add(1))
            .rev()
            .take_while(|(_, end)| end.saturating_add(1) >= first)
            .map(|(start, end)| (*start, *end))
            .collect();
        for (start, end) in touching {
            self.ranges.remove(&start);
            first = first.min(start);
            last = last.max(end);
        }
        self.ranges.insert(first, last);
    }

    /// Whether a number is free.
    pub(super) fn contains(&self, number: u32) -> bool {
        self.ranges.range(..=number).next_back().is_some_and(|(_, last)| number <= *last)
    }

    /// Takes a number; whether it was free.
    pub(super) fn take(&mut self, number: u32) -> bool {
        let Some((first, last)) = self.ranges.range(..=number).next_back().map(|(first, last)| (*first, *last)) else {
            return false;
        };
        if number > last {
            return false;
        }
        self.ranges.remove(&first);
        if first < number {
            self.ranges.insert(first, number - 1);
        }
        if number < last {
            self.ranges.insert(number + 1, last);
        }
        true
    }

    /// The first free number from `start` on; after the last one, from the beginning.
    pub(super) fn next(&self, start: u32) -> Option<u32> {
        if self.contains(start) {
            return Some(start);
        }
        let after = self.ranges.range(start..).next();
        after.or_else(|| self.ranges.iter().next()).map(|(first, _)| *first)
    }
}

#[cfg(test)]
mod tests;
