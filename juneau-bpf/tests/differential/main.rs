//! The BPF programs and the reference path, side by side: the same tables, the same packets, the same moments.
//!
//! After every packet the verdict, the bytes that leave and the counter that moved are compared, and every now and then
//! all flow state, first fragments, path MTUs and counters. At the end every exit that a test run can reach must have
//! been reached.
//!
//! `JUNEAU_DIFFERENTIAL_SECONDS` bounds the run (15 by default); `JUNEAU_DIFFERENTIAL_SEED` replays one session
//! and compares all state after every step.
//!
//! What a test run cannot show, and real devices must: `gso_size` on encapsulation (`adjust_room` refuses), VLAN tags in
//! metadata, tunnel keys, pending checksums, non-linear and encapsulated packets, frames shorter than their network
//! header. Masked: births and epochs of entries, and the outer MAC addresses (the neighbour writes them).
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod changes;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod generate;
mod random;
mod world;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use juneau_core::verdict::{Hook, Reason};

use crate::random::Random;
use crate::world::World;

/// Steps of a session: packets, changes of tables, leaps of the clock.
const STEPS: u32 = 1500;
/// Sessions within which every exit must have been reached; their seeds, and so their packets, are always the same.
const MOST_SESSIONS: u64 = 40;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

#[test]
fn the_programs_do_what_the_reference_says() {
    let limit = Duration::from_secs(variable("JUNEAU_DIFFERENTIAL_SECONDS").unwrap_or(15));
    let replay = variable("JUNEAU_DIFFERENTIAL_SEED");
    let start = Instant::now();
    let mut reached = BTreeSet::new();
    let mut sessions = 0;
    let mut packets = 0;
    // The time bounds the search for differences, not the proof that every exit was reached.
    let missing =
        |reached: &BTreeSet<_>| expected().into_iter().filter(|exit| !reached.contains(exit)).collect::<Vec<_>>();
    while start.elapsed() < limit || (sessions < MOST_SESSIONS && !missing(&reached).is_empty()) {
        let seed = replay.unwrap_or(sessions);
        let session = std::sync::Mutex::new(None);
        common::sandbox(|sandbox| {
            let mut random = Random::new(seed);
            let mut world = World::new(&sandbox, &mut random, replay.is_some());
            for step in 0..STEPS {
                world.step(step, seed, &mut random);
            }
            world.compare_state(seed);
            *session.lock().unwrap() = Some((world.reached, world.packets));
        });
        // Without the rights for a sandbox the test has said so.
        let Some((exits, count)) = session.into_inner().unwrap() else { return };
        reached.extend(exits);
        packets += count;
        sessions += 1;
        if replay.is_some() {
            return;
        }
    }
    eprintln!("differential: {sessions} sessions, {packets} packets, {} exits reached", reached.len());
    let missing = missing(&reached);
    assert!(missing.is_empty(), "exits that no packet reached: {missing:?}");
}

/// Every exit of the hooks that a test run can reach, as {hook, reason, answered}.
fn expected() -> Vec<(Hook, Reason, bool)> {
    use Hook::{NodePort, Overlay, Pod, Vxlan};
    let silent = |hook, reasons: &[Reason]| reasons.iter().map(move |r| (hook, *r, false)).collect::<Vec<_>>();
    let all = [
        Reason::Ok,
        Reason::Malformed,
        Reason::Vlan,
        Reason::Ethertype,
        Reason::Ipv6,
        Reason::Destination,
        Reason::IpOptions,
        Reason::PolicyNotReady,
        Reason::FragmentNoFirst,
        Reason::FragmentMapFull,
        Reason::TcpFlags,
        Reason::IcmpType,
        Reason::IcmpQuote,
        Reason::IcmpNoFlow,
        Reason::QuotaFlows,
        Reason::QuotaEmbryonic,
        Reason::FlowMapFull,
    ];
    let senders = [
        Reason::NoInterface,
        Reason::SourceMac,
        Reason::ArpSender,
        Reason::ArpIgnored,
        Reason::ArpUnknown,
        Reason::Gateway,
    ];
    let mut exits: Vec<_> = [Pod, NodePort, Overlay].into_iter().flat_map(|hook| silent(hook, &all)).collect();
    exits.extend([Pod, NodePort].into_iter().flat_map(|hook| silent(hook, &senders)));
    exits.extend([(Pod, Reason::SourceAddress, false), (NodePort, Reason::NodeSource, false)]);
    exits.push((Overlay, Reason::PolicyIngress, false));
    let answered = [
        Reason::NoRoute,
        Reason::RouteUnreachable,
        Reason::NoEndpoint,
        Reason::TtlExceeded,
        Reason::FragmentationNeeded,
    ];
    for reason in answered {
        exits.extend([Pod, NodePort].into_iter().flat_map(|hook| [(hook, reason, true), (hook, reason, false)]));
    }
    for reason in [Reason::PolicyEgress, Reason::PolicyIngress] {
        exits.extend([(Pod, reason, true), (Pod, reason, false)]);
    }
    for hook in [Pod, NodePort] {
        exits.extend(silent(hook, &[Reason::ServiceUnknown, Reason::ServiceNotLocal, Reason::ServiceChanging]));
        for reason in [Reason::ServicePort, Reason::ServiceEmpty, Reason::ServiceGone] {
            exits.extend([(hook, reason, true), (hook, reason, false)]);
        }
        exits.push((hook, Reason::NatPorts, true));
    }
    // What the node opens is let in; what it answers is judged by the Pod's egress rules, seldom anew.
    exits.push((NodePort, Reason::PolicyEgress, false));
    exits.extend([(Pod, Reason::ArpAnswered, true), (NodePort, Reason::ArpAnswered, true)]);
    exits.extend(silent(
        Overlay,
        &[
            Reason::VtepUnknown,
            Reason::VniUnknown,
            Reason::VxlanHeader,
            Reason::OverlayDestination,
            Reason::Ecn,
            Reason::PmtuUpdate,
        ],
    ));
    // Without a device there is no tunnel key.
    exits.extend(silent(Vxlan, &[Reason::VxlanHeader]));
    exits
}
