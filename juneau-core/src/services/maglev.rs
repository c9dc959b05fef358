//! Consistent hashing by Maglev tables (Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer",
//! NSDI 2016, section 3.4).
//!
//! A table is a function of the names of its backends alone: every node computes the same one, in whatever order it
//! came to know them. Each backend has a permutation of all slots, and backends take their next free slot in turns, so
//! that their numbers of slots differ by at most one. When a backend comes or goes, few slots of the others change.

use core::net::SocketAddr;

/// Numbers of slots: primes just below a power of four, so that each fills a power of two of 16-slot lines.
pub const SIZES: [u32; 7] = [61, 251, 1021, 4093, 16381, 65521, 262_139];

/// Slots for each backend, at least: then none has more than 1.1 of the mean.
pub const SLOTS_PER_BACKEND: usize = 12;

/// Slots of a table for this many backends: the first of [`SIZES`] with [`SLOTS_PER_BACKEND`] for each, else the last;
/// 0 without backends.
#[must_use]
pub fn size(backends: usize) -> u32 {
    if backends == 0 {
        return 0;
    }
    let [.., last] = SIZES;
    let wanted = backends.saturating_mul(SLOTS_PER_BACKEND);
    SIZES.into_iter().find(|size| usize::try_from(*size).is_ok_and(|size| size >= wanted)).unwrap_or(last)
}

/// The backend of each slot, as an index into `backends`; empty without backends.
///
/// Names must differ: of two equal ones either may be meant where the other is. More backends than slots leave some
/// without a slot.
#[must_use]
pub fn table(backends: &[SocketAddr]) -> Vec<u32> {
    let slots = size(backends.len());
    let mut order: Vec<(Permutation, u32)> =
        (0..).zip(backends).map(|(index, name)| (Permutation::new(name, slots), index)).collect();
    order.sort_unstable();
    let mut table = vec![FREE; usize::try_from(slots).unwrap_or_default()];
    let mut left = table.len();
    while left > 0 && !order.is_empty() {
        for (permutation, index) in &mut order {
            // A prime number of slots and a stride below it: the walk comes by every slot.
            let slot = loop {
                match table.get_mut(permutation.advance(slots)) {
                    Some(slot) if *slot == FREE => break slot,
                    _ => {}
                }
            };
            *slot = *index;
            left -= 1;
            if left == 0 {
                break;
            }
        }
    }
    table
}

/// No backend has the slot yet.
const FREE: u32 = u32::MAX;

/// Where a backend stands in its permutation of the slots. The order of permutations is that of turns: by the hash
/// first, so that no address has more of the tables than others.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Permutation {
    hash: (u64, u64),
    next: u32,
    stride: u32,
}

impl Permutation {
    fn new(name: &SocketAddr, slots: u32) -> Self {
        let hash = hash(name);
        let stride = below(hash.1, slots.saturating_sub(1)) + 1;
        Self { hash, next: below(hash.0, slots), stride }
    }

    /// The next slot of the permutation.
    fn advance(&mut self, slots: u32) -> usize {
        let slot = self.next;
        let next = slot + self.stride;
        self.next = if next >= slots { next - slots } else { next };
        slot as usize
    }
}

/// A number below `limit`, from a hash.
fn below(hash: u64, limit: u32) -> u32 {
    // The product's high half is below `limit`.
    ((u128::from(hash) * u128::from(limit)) >> 64) as u32
}

/// Two hashes of a name, the same on every node and in every version.
fn hash(name: &SocketAddr) -> (u64, u64) {
    let (words, port) = match name {
        SocketAddr::V4(name) => ([u64::from(name.ip().to_bits()), 0], name.port()),
        SocketAddr::V6(name) => {
            let bits = name.ip().to_bits();
            ([(bits >> 64) as u64, bits as u64], name.port())
        }
    };
    let family = u64::from(name.is_ipv6());
    let hash = words.into_iter().fold(mix(u64::from(port) << 1 | family), |hash, word| mix(hash ^ word));
    (hash, mix(hash))
}

/// The step of `SplitMix64` (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn backend(n: u32) -> SocketAddr {
        (Ipv4Addr::from_bits(0x0a00_0000 + n / 3), 80 + u16::try_from(n % 3).unwrap()).into()
    }

    fn backends(count: u32) -> Vec<SocketAddr> {
        (0..count).map(backend).collect()
    }

    fn named(backends: &[SocketAddr]) -> Vec<SocketAddr> {
        table(backends).into_iter().map(|index| backends[index as usize]).collect()
    }

    #[test]
    fn a_size_is_the_first_with_twelve_slots_for_each() {
        for (backends, expected) in [
            (0, 0),
            (1, 61),
            (5, 61),
            (6, 251),
            (20, 251),
            (21, 1021),
            (85, 1021),
            (341, 4093),
            (1365, 16381),
            (5000, 65521),
            (5461, 262_139),
            (usize::MAX, 262_139),
        ] {
            assert_eq!(size(backends), expected, "{backends}");
        }
        for size in SIZES {
            let prime = (2..=size.isqrt()).all(|divisor| size % divisor != 0);
            let lines = size.div_ceil(16);
            assert!(prime && lines.is_power_of_two(), "{size}");
        }
    }

    #[test]
    fn slots_are_shared_out_evenly() {
        for count in [1, 2, 3, 5, 6, 20, 21, 85, 341, 1365, 5000] {
            let table = table(&backends(count));
            let mut slots = BTreeMap::new();
            for index in &table {
                *slots.entry(index).or_insert(0u32) += 1;
            }
            assert_eq!(slots.len(), count as usize, "each has one");
            let (least, most) = (slots.values().min().unwrap(), slots.values().max().unwrap());
            assert!(most - least <= 1, "{count}: {least} to {most}");
            let mean = f64::from(size(count as usize)) / f64::from(count);
            assert!(f64::from(*most) <= 1.1 * mean, "{count}: {most} of {mean}");
        }
    }

    #[test]
    fn tables_are_those_of_every_node_and_version() {
        let table = table(&backends(3));
        let text: String = table.iter().map(u32::to_string).collect();
        assert_eq!(text, "1120100212222211201011010102222020212010011101012020122120010");
        assert_eq!(super::table(&[]), [0u32; 0]);
        let v6: SocketAddr = "[fd00::1]:80".parse().unwrap();
        assert_eq!(super::table(&[v6]), [0; 61]);
        assert_ne!(hash(&v6), hash(&"[fd00:0:0:1::]:80".parse().unwrap()));
    }

    #[test]
    fn more_backends_than_slots_fill_the_table() {
        let backends: Vec<_> = (0..300_000).map(backend).collect();
        let table = table(&backends);
        assert_eq!(table.iter().collect::<BTreeSet<_>>().len(), 262_139);
    }

    /// Slots that changed though neither their old nor their new backend is the one that came or went.
    fn moved(before: &[SocketAddr], after: &[SocketAddr], about: SocketAddr) -> usize {
        let pairs = before.iter().zip(after);
        pairs.filter(|(before, after)| before != after && **before != about && **after != about).count()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_order_of_backends_does_not_matter(
            backends in prop::collection::btree_set((0u32..4000).prop_map(backend), 1..80)
                .prop_map(|set| set.into_iter().collect::<Vec<_>>()),
            seed in any::<u64>(),
        ) {
            let mut shuffled = backends.clone();
            shuffled.sort_by_key(|name| mix(hash(name).0 ^ seed));
            prop_assert_eq!(named(&backends), named(&shuffled));
        }

        #[test]
        fn one_backend_more_or_less_leaves_the_others_their_slots(
            backends in prop::collection::btree_set((0u32..4000).prop_map(backend), 2..80)
                .prop_map(|set| set.into_iter().collect::<Vec<_>>()),
            one in any::<prop::sample::Index>(),
        ) {
            let one = *one.get(&backends);
            let fewer: Vec<_> = backends.iter().copied().filter(|name| *name != one).collect();
            prop_assume!(size(fewer.len()) == size(backends.len()));
            let (with, without) = (named(&backends), named(&fewer));
            let moved = moved(&with, &without, one);
            prop_assert!(moved * 100 <= with.len() * 20, "{moved} of {}", with.len());
        }
    }

    #[test]
    fn on_average_a_tenth_of_the_slots_moves_beyond_what_must() {
        let mut shares = Vec::new();
        for count in [3, 5, 20, 80, 300] {
            let all = backends(count);
            let with = named(&all);
            for one in all.iter().step_by(all.len().div_ceil(20)) {
                let fewer: Vec<_> = all.iter().copied().filter(|name| name != one).collect();
                if size(fewer.len()) == size(all.len()) {
                    shares.push((count, moved(&with, &named(&fewer), *one) as f64 / with.len() as f64));
                }
            }
        }
        let mean = shares.iter().map(|(_, share)| share).sum::<f64>() / shares.len() as f64;
        assert!(mean <= 0.1, "{mean} {shares:?}");
    }
}
