//! Free ranges against a set.

use super::*;
use juneau_api::kinds::{IpRange, IpSpace, NumberRange};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn addresses(cidrs: &[&str], ranges: &[(&str, &str)], excluded: &[&str]) -> AllocationPoolSpec {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let ranges =
        ranges.iter().map(|(start, end)| IpRange { start: (*start).to_owned(), end: (*end).to_owned() }).collect();
    AllocationPoolSpec {
        kind: PoolType::Ip,
        ip: Some(IpSpace { cidrs: texts(cidrs), ranges, excluded: texts(excluded) }),
        ..AllocationPoolSpec::default()
    }
}

fn all(free: &mut Free) -> Vec<String> {
    let mut taken = Vec::new();
    while let Some(number) = free.next(0) {
        assert!(free.take(number));
        taken.push(Ipv4Addr::from(number).to_string());
    }
    taken
}

#[test]
fn a_small_subnet_offers_eleven_addresses() {
    let spec = addresses(&["10.0.0.0/28"], &[], &["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let taken = all(&mut Free::new(&spec).unwrap());
    assert_eq!((taken.len(), taken[0].as_str(), taken[10].as_str()), (11, "10.0.0.4", "10.0.0.14"));
}

#[test]
fn ranges_hand_out_every_address_and_prefixes_neither_end() {
    for (spec, expected) in [
        (addresses(&["10.0.0.0/30"], &[], &[]), vec!["10.0.0.1", "10.0.0.2"]),
        (addresses(&["10.0.0.0/31"], &[], &[]), vec![]),
        (addresses(&["0.0.0.0/32"], &[], &[]), vec![]),
        (addresses(&[], &[("10.0.0.0", "10.0.0.1")], &[]), vec!["10.0.0.0", "10.0.0.1"]),
        (addresses(&[], &[("255.255.255.255", "255.255.255.255")], &[]), vec!["255.255.255.255"]),
    ] {
        assert_eq!(all(&mut Free::new(&spec).unwrap()), expected);
    }
}

#[test]
fn a_pool_that_contradicts_itself_says_so() {
    for spec in [
        addresses(&["10.0.0.0/33"], &[], &[]),
        addresses(&[], &[("10.0.0.2", "10.0.0.1")], &[]),
        addresses(&[], &[], &["x"]),
        AllocationPoolSpec { number: Some(NumberRange { min: 0, max: 3 }), ..AllocationPoolSpec::default() },
        AllocationPoolSpec { number: Some(NumberRange { min: 4, max: 3 }), ..AllocationPoolSpec::default() },
        AllocationPoolSpec::default(),
    ] {
        assert!(Free::new(&spec).is_err(), "{spec:?}");
    }
}

#[test]
fn the_whole_number_space_is_one_range() {
    let spec =
        AllocationPoolSpec { number: Some(NumberRange { min: 1, max: u32::MAX }), ..AllocationPoolSpec::default() };
    let mut free = Free::new(&spec).unwrap();
    assert!(!free.contains(0) && free.take(u32::MAX) && !free.take(u32::MAX));
    assert_eq!(free.next(u32::MAX), Some(1));
}

proptest! {
    #[test]
    fn it_is_a_set(puts in prop::collection::vec((0_u32..300, 0_u32..40), 0..6), takes in prop::collection::vec(0_u32..350, 0..400), starts in prop::collection::vec(0_u32..350, 1..8)) {
        let (mut free, mut model) = (Free::default(), BTreeSet::new());
        for (first, length) in puts {
            free.put(first, first + length);
            model.extend(first..=first + length);
        }
        for number in takes {
            prop_assert_eq!(free.take(number), model.remove(&number));
        }
        for start in starts {
            let expected = model.range(start..).next().or_else(|| model.iter().next()).copied();
            prop_assert_eq!(free.next(start), expected);
        }
        let numbers: BTreeSet<u32> = (0..400).filter(|number| free.contains(*number)).collect();
        prop_assert_eq!(numbers, model);
        // Ranges that touch would be one.
        for ((_, last), (first, _)) in free.ranges.iter().zip(free.ranges.iter().skip(1)) {
            prop_assert!(last + 1 < *first);
        }
    }
}
