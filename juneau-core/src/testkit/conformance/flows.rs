//! What every flow table must do.

use crate::flow::{Committed, FlowTable, Opening, Replaced, TCP_ACK, TCP_FIN, Touch};
use crate::layout::{
    Be16, Be32, EGRESS_PEER, FLOW_EMBRYONIC, FLOW_NAT, FLOW_REPLY, FLOW_SINGLE, Flow, FlowKey, PROTO_TCP, PROTO_UDP,
    VpcState,
};
use crate::time::Now;
use std::collections::BTreeMap;

const NOW: Now = Now { stamp: 10_000, hz: 256 };
const INDEX: u16 = 2;

/// Flow tables: both directions or neither, limits, conflicts, answers, reuse, idleness.
///
/// `make(capacity)` gives an empty table of so many entries.
pub fn flow_table<F: FlowTable>(mut make: impl FnMut(usize) -> F) {
    both_or_neither(&mut make(64));
    no_room(&mut make(3));
    limits(&mut make(64));
    conflicts(&mut make(64));
    answers(&mut make(64));
    reuse(&mut make(64));
    in_place(&mut make(64));
    answers_that_move(&mut make(4));
    translations(&mut make(8));
    idle(&mut make(64));
    a_whole_sweep(&mut make(64));
    icmp_budget(&mut make(64));
}

fn key(n: u16) -> FlowKey {
    FlowKey {
        scope: FlowKey::scope(5, 0, PROTO_UDP),
        source: Be32::new(0x0a00_0102),
        destination: Be32::new(0x0a00_0103),
        source_port: Be16::new(n),
        destination_port: Be16::new(53),
    }
}

fn opening(n: u16) -> Opening {
    let forward = key(n);
    let reverse = forward.reversed();
    let flow = |peer, flags| Flow {
        kind: EGRESS_PEER,
        ifindex: 7,
        vpc_index: INDEX,
        stamp: NOW.stamp,
        flags: flags | FLOW_EMBRYONIC,
        peer,
        ..Flow::default()
    };
    Opening {
        vpc_index: INDEX,
        flow_limit: 100,
        embryonic_limit: 100,
        forward: (forward, flow(reverse, 0)),
        reverse: Some((reverse, flow(forward, FLOW_REPLY))),
        reused: false,
    }
}

fn counts<F: FlowTable>(table: &F) -> (i64, i64) {
    let state: VpcState = table.vpc_state(INDEX).unwrap();
    (state.flows, state.embryonic)
}

fn get<F: FlowTable>(table: &F, key: &FlowKey) -> Flow {
    table.lookup(key).unwrap().expect("the entry exists")
}

fn both_or_neither<F: FlowTable>(table: &mut F) {
    assert_eq!(table.lookup(&key(1)).unwrap(), None);
    assert!(table.is_empty().unwrap());
    assert_eq!(table.commit(&opening(1)).unwrap(), Committed::Both);
    assert_eq!(table.commit(&opening(1)).unwrap(), Committed::Held);
    assert_eq!(counts(table), (1, 1));
    let (forward, reverse) = (get(table, &key(1)), get(table, &key(1).reversed()));
    assert_eq!((forward.peer, reverse.peer), (key(1).reversed(), key(1)));
    assert!(reverse.has(FLOW_REPLY) && !forward.has(FLOW_REPLY));
    assert_eq!(forward.tag, forward.tag_last);
    assert_eq!(forward.tag as u32, forward.tag_low);
    assert_ne!(forward.tag, reverse.tag);
    assert_eq!(table.lookup(&key(1).in_scope(6, 0)).unwrap(), None, "another tenant's equal addresses");
    let mut seen = BTreeMap::new();
    let mut visit = |key: &FlowKey, flow: &Flow| {
        seen.insert(*key, *flow);
    };
    table.for_each(&mut visit).unwrap();
    assert_eq!(seen, [(key(1), forward), (key(1).reversed(), reverse)].into());
}

fn no_room<F: FlowTable>(table: &mut F) {
    assert_eq!(table.capacity(), 3);
    assert_eq!(table.commit(&opening(1)).unwrap(), Committed::Both);
    assert_eq!(table.commit(&opening(2)).unwrap(), Committed::Full, "room for one direction only");
    assert_eq!(table.len().unwrap(), 2);
    assert_eq!(table.lookup(&key(2).reversed()).unwrap(), None, "not half a connection");
    assert_eq!(counts(table), (1, 1));
}

fn limits<F: FlowTable>(table: &mut F) {
    let limited = |n, flow_limit, embryonic_limit| Opening { flow_limit, embryonic_limit, ..opening(n) };
    assert_eq!(table.commit(&limited(1, 0, 9)).unwrap(), Committed::QuotaFlows);
    assert_eq!(table.commit(&limited(1, 9, 0)).unwrap(), Committed::QuotaEmbryonic);
    assert!(table.is_empty().unwrap());
    assert_eq!(table.commit(&limited(1, 1, 1)).unwrap(), Committed::Both);
    assert_eq!(table.commit(&limited(2, 1, 9)).unwrap(), Committed::QuotaFlows);
    assert_eq!(table.commit(&limited(2, 9, 1)).unwrap(), Committed::QuotaEmbryonic);
    assert_eq!(counts(table), (1, 1), "a refusal counts nothing");
    let mut mature = limited(3, 9, 1);
    mature.forward.1.flags &= !FLOW_EMBRYONIC;
    assert_eq!(table.commit(&mature).unwrap(), Committed::Both, "what does not start embryonic has no such limit");
    let other = Opening { vpc_index: INDEX + 1, ..limited(4, 1, 1) };
    assert_eq!(table.commit(&other).unwrap(), Committed::Both, "another VPC has limits of its own");
    assert_eq!(counts(table), (2, 1));
}

fn conflicts<F: FlowTable>(table: &mut F) {
    // Another flow holds the key of our answers.
    let mut other = opening(1);
    other.forward = (key(9), Flow { peer: key(1).reversed(), ..other.forward.1 });
    other.reverse = Some((key(1).reversed(), Flow { peer: key(9), ..Flow::default() }));
    assert_eq!(table.commit(&other).unwrap(), Committed::Both);
    assert_eq!(table.commit(&opening(1)).unwrap(), Committed::Single);
    let single = get(table, &key(1));
    assert!(single.has(FLOW_SINGLE) && !single.has(FLOW_EMBRYONIC));
    assert_eq!(single.peer, key(1));
    assert_eq!(get(table, &key(1).reversed()).peer, key(9), "left alone");
    assert_eq!(counts(table), (2, 1));

    // What is left of an earlier flow of our own is replaced.
    let rest = opening(2).reverse.expect("two directions");
    assert!(table.replace(&rest.0, &rest.1).unwrap());
    assert_eq!(table.commit(&opening(2)).unwrap(), Committed::Both);
    assert_eq!(counts(table), (3, 2));
}

fn answers<F: FlowTable>(table: &mut F) {
    table.commit(&opening(1)).unwrap();
    for _ in 0..2 {
        table.answered(&key(1).reversed()).unwrap();
        assert_eq!(counts(table), (1, 0), "once");
        assert!(!get(table, &key(1)).has(FLOW_EMBRYONIC));
        assert!(!get(table, &key(1).reversed()).has(FLOW_EMBRYONIC));
    }
}

fn reuse<F: FlowTable>(table: &mut F) {
    table.commit(&opening(1)).unwrap();
    table.answered(&key(1).reversed()).unwrap();
    let fin = Touch { flags: u32::from(TCP_FIN), ..Touch::default() };
    table.touch(&key(1), fin).unwrap();
    let again = Opening { reused: true, flow_limit: 1, embryonic_limit: 0, ..opening(1) };
    assert_eq!(table.commit(&again).unwrap(), Committed::QuotaEmbryonic);
    assert!(get(table, &key(1)).saw(TCP_FIN), "a refusal leaves the old one");
    assert_eq!(table.commit(&Opening { embryonic_limit: 1, ..again }).unwrap(), Committed::Both);
    assert!(!get(table, &key(1)).saw(TCP_FIN));
    assert_eq!(counts(table), (1, 1));
    table.touch(&key(1), fin).unwrap();
    let in_its_place = Opening { embryonic_limit: 1, ..again };
    assert_eq!(table.commit(&in_its_place).unwrap(), Committed::Both, "the old one counted in embryonic, too");
    assert_eq!(counts(table), (1, 1));
    assert_eq!(table.len().unwrap(), 2);
}

fn in_place<F: FlowTable>(table: &mut F) {
    table.commit(&opening(1)).unwrap();
    let before = get(table, &key(1));
    table.touch(&key(1), Touch { stamp: Some(77), epoch: Some(8), flags: u32::from(TCP_ACK) }).unwrap();
    let expected = Flow { stamp: 77, epoch: 8, flags: before.flags | u32::from(TCP_ACK), ..before };
    assert_eq!(get(table, &key(1)), expected);
    table.touch(&key(1), Touch::default()).unwrap();
    assert_eq!(get(table, &key(1)), expected, "nothing to change");
    table.touch(&key(2), Touch { stamp: Some(1), ..Touch::default() }).unwrap();
    assert_eq!(table.lookup(&key(2)).unwrap(), None, "what is gone stays gone");

    let decided = Flow { ifindex: 9, ..expected };
    assert!(table.replace(&key(1), &decided).unwrap());
    let after = get(table, &key(1));
    assert_eq!((after.ifindex, after.flags, after.peer), (9, expected.flags, expected.peer));
    assert_eq!(counts(table), (1, 1));
}

/// A table of four.
fn answers_that_move<F: FlowTable>(table: &mut F) {
    table.commit(&opening(1)).unwrap();
    let old = key(1).reversed();
    let moved = |n: u16| Flow { peer: key(n), flags: FLOW_REPLY | FLOW_EMBRYONIC, vpc_index: INDEX, ..Flow::default() };
    let mut decided = Flow { ifindex: 9, peer: key(7), ..get(table, &key(1)) };
    assert_eq!(table.replace_pair(&key(1), &mut decided, &moved(1), &old).unwrap(), Replaced::Yes);
    assert_eq!(decided.peer, key(7));
    let after = get(table, &key(1));
    assert_eq!((after.ifindex, after.peer), (9, key(7)));
    assert_eq!(get(table, &key(7)).peer, key(1));
    assert_eq!(table.lookup(&old).unwrap(), None, "answers find the new one alone");
    assert_eq!((counts(table), table.len().unwrap()), ((1, 1), 2));
    table.answered(&key(7)).unwrap();
    assert_eq!(counts(table), (1, 0));

    // Another flow holds the key, or there is no room: all stays as it is.
    table.commit(&opening(2)).unwrap();
    for peer in [key(2).reversed(), key(8)] {
        let mut decided = Flow { ifindex: 11, peer, ..get(table, &key(1)) };
        assert_eq!(table.replace_pair(&key(1), &mut decided, &moved(1), &key(7)).unwrap(), Replaced::Yes);
        assert_eq!((decided.peer, get(table, &key(1)).ifindex), (key(7), 11));
        assert_eq!(get(table, &key(7)).peer, key(1));
    }
    assert_eq!(get(table, &key(2).reversed()).peer, key(2));
    assert_eq!((counts(table), table.len().unwrap()), ((2, 1), 4));

    // A translated one has nowhere to fall back to.
    let before = get(table, &key(1));
    for (peer, outcome) in [(key(2).reversed(), Replaced::Taken), (key(8), Replaced::Full)] {
        let mut decided = Flow { ifindex: 12, peer, flags: before.flags | FLOW_NAT, ..before };
        let mut reverse = moved(1);
        reverse.flags |= FLOW_NAT;
        assert_eq!(table.replace_pair(&key(1), &mut decided, &reverse, &key(7)).unwrap(), outcome);
        assert_eq!(get(table, &key(1)), before);
        assert_eq!(get(table, &key(2).reversed()).peer, key(2));
    }

    // One that is left of our own is replaced, and an old one that has become another's stays.
    assert!(table.replace(&key(2).reversed(), &moved(1)).unwrap());
    assert!(table.replace(&key(7), &Flow { peer: key(2), ..Flow::default() }).unwrap());
    let mut decided = Flow { peer: key(2).reversed(), ..get(table, &key(1)) };
    assert_eq!(table.replace_pair(&key(1), &mut decided, &moved(1), &key(7)).unwrap(), Replaced::Yes);
    assert_eq!(decided.peer, key(2).reversed());
    assert_eq!(get(table, &key(7)).peer, key(2));
}

/// A table of eight. Two connections never share the key of the answers when one of them is translated.
fn translations<F: FlowTable>(table: &mut F) {
    let onto = |n: u16, answers: FlowKey| {
        let mut opening = opening(n);
        let (own, forward) = opening.forward;
        opening.forward.1 = Flow { peer: answers, ..forward }.translated(&own);
        opening.reverse =
            opening.reverse.map(|(_, reverse)| (answers, Flow { peer: own, ..reverse }.translated(&answers)));
        opening
    };
    table.commit(&opening(1)).unwrap();
    let taken = key(1).reversed();
    assert_eq!(table.commit(&onto(2, taken)).unwrap(), Committed::Taken, "a direct one has it");
    assert_eq!((counts(table), table.len().unwrap()), ((1, 1), 2), "nothing is left of the try");
    assert_eq!(table.commit(&onto(2, key(3).reversed())).unwrap(), Committed::Both);
    assert_eq!(table.commit(&opening(3)).unwrap(), Committed::Taken, "a translated one has it");
    assert_eq!((counts(table), table.len().unwrap()), ((2, 2), 4));
    assert!(get(table, &key(2)).has(FLOW_NAT) && get(table, &key(3).reversed()).has(FLOW_NAT | FLOW_REPLY));

    // Ports that are used again for another translation leave nothing of the old one.
    let again = Opening { reused: true, ..onto(2, key(4).reversed()) };
    assert_eq!(table.commit(&again).unwrap(), Committed::Both);
    assert_eq!(table.lookup(&key(3).reversed()).unwrap(), None);
    assert_eq!((counts(table), table.len().unwrap()), ((2, 2), 4));
    assert_eq!(table.commit(&opening(3)).unwrap(), Committed::Both, "it is free now");

    // So do those of its answers, whose other direction is what was counted.
    let back = key(4).reversed();
    let way = Flow { vpc_index: INDEX, ..Flow::default() };
    let forward = Flow { peer: key(5), ..way };
    let reverse = Flow { flags: FLOW_REPLY, peer: back, ..way };
    let again = Opening { forward: (back, forward), reverse: Some((key(5), reverse)), reused: true, ..opening(4) };
    assert_eq!(table.commit(&again).unwrap(), Committed::Both);
    assert_eq!(table.lookup(&key(2)).unwrap(), None);
    let counted = |table: &F| {
        let mut counted = 0;
        table.for_each(&mut |_, flow| counted += i64::from(!flow.has(FLOW_REPLY))).unwrap();
        counted
    };
    assert_eq!((counts(table).0, counted(table)), (3, 3));
}

fn idle<F: FlowTable>(table: &mut F) {
    for n in 1..=4 {
        assert_eq!(table.commit(&opening(n)).unwrap(), Committed::Both);
    }
    let mut single = opening(5);
    single.forward.0.scope = FlowKey::scope(5, 0, PROTO_TCP);
    single.forward.1.flags = FLOW_SINGLE | u32::from(TCP_ACK);
    single.forward.1.peer = single.forward.0;
    single.reverse = None;
    assert_eq!(table.commit(&single).unwrap(), Committed::Single);
    table.answered(&key(1).reversed()).unwrap();
    let later = NOW.later(31);
    // One direction of the second is busy: both stay.
    table.touch(&key(2).reversed(), Touch { stamp: Some(later.stamp), ..Touch::default() }).unwrap();

    assert_eq!(table.expire(NOW, usize::MAX).unwrap().removed, 0);
    let mut removed = 0;
    for _ in 0..9 {
        let swept = table.expire(later, 1).unwrap();
        assert!(swept.examined <= 1, "no more than the budget");
        removed += swept.removed;
    }
    removed += table.expire(later, usize::MAX).unwrap().removed;
    assert_eq!(removed, 4, "the third and the fourth");
    assert!(table.lookup(&key(3)).unwrap().is_none() && table.lookup(&key(4).reversed()).unwrap().is_none());
    assert!(table.lookup(&key(1)).unwrap().is_some() && table.lookup(&key(2)).unwrap().is_some());
    assert_eq!(counts(table), (3, 1));
    table.expire(NOW.later(10_000), usize::MAX).unwrap();
    assert!(table.is_empty().unwrap());
    assert_eq!(counts(table), (0, 0));

    // What is left of a flow whose peer became another's goes alone, and does not wait for it.
    assert_eq!(table.commit(&opening(1)).unwrap(), Committed::Both);
    let rest = Flow { peer: key(1), flags: FLOW_REPLY, ..Flow::default() };
    assert!(table.replace(&key(9), &rest).unwrap());
    assert_eq!(table.expire(NOW, usize::MAX).unwrap().removed, 1);
    assert!(table.lookup(&key(9)).unwrap().is_none() && table.lookup(&key(1)).unwrap().is_some());
    assert_eq!(counts(table), (1, 1));
}

/// A sweep that may look at everything removes everything that is idle, whatever it removes on the way.
fn a_whole_sweep<F: FlowTable>(table: &mut F) {
    for n in 0..24 {
        assert_eq!(table.commit(&opening(n)).unwrap(), Committed::Both);
    }
    let later = NOW.later(31);
    for n in (0..24).filter(|n| n % 3 == 1) {
        table.touch(&key(n), Touch { stamp: Some(later.stamp), ..Touch::default() }).unwrap();
    }
    // Not from the first entry on, either.
    table.expire(NOW, 5).unwrap();
    assert_eq!(table.expire(later, usize::MAX).unwrap().removed, 2 * 16);
    assert_eq!(table.len().unwrap(), 2 * 8);
    assert_eq!(counts(table), (8, 8));
}

fn icmp_budget<F: FlowTable>(table: &mut F) {
    assert!(!table.take_icmp(INDEX, 0, NOW).unwrap());
    for _ in 0..2 {
        assert!(table.take_icmp(INDEX, 2, NOW).unwrap());
    }
    assert!(!table.take_icmp(INDEX, 2, NOW).unwrap());
    assert!(table.take_icmp(INDEX + 1, 2, NOW).unwrap(), "another VPC");
    assert!(table.take_icmp(INDEX, 2, NOW.later(1)).unwrap(), "the next unit");
    assert!(table.take_icmp(INDEX, 1, NOW).unwrap(), "stamps wrap: an earlier one is another one, too");
}
