//! Test packets, explanations, flow state, the sweep and events, on two Pods of one node.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::node::{MACS, VPC_INDEX, program, tables, udp};
use common::{Sandbox, sandbox};
use juneau_bpf::{Dataplane, TestPacket};
use juneau_core::flow::FlowRead;
use juneau_core::layout::{
    EVENT_DROP, EVENT_FLOW_OPEN, FLOW_REPLY, Flow, FlowKey, PROTO_UDP, Pmtu, STAGE_COMMIT, STAGE_PARSE, Traffic,
    vtep_generation,
};
use juneau_core::time::Now;
use juneau_core::verdict::{Action, Hook, Reason};

fn two_pods(sandbox: &Sandbox) -> (Dataplane, [u32; 2]) {
    let ifindexes = [sandbox.veth("pod0"), sandbox.veth("pod1")];
    let mut options = sandbox.options();
    options.test_clock = true;
    let dataplane = Dataplane::open(options).unwrap();
    program(&dataplane, &tables(ifindexes));
    dataplane.hot().unwrap().set_clock(1000).unwrap();
    (dataplane, ifindexes)
}

fn key(from: usize, ports: (u16, u16)) -> FlowKey {
    FlowKey {
        scope: FlowKey::scope(common::node::VPC, 0, PROTO_UDP),
        source: juneau_core::layout::be32(common::node::ADDRESSES[from]),
        destination: juneau_core::layout::be32(common::node::ADDRESSES[1 - from]),
        source_port: ports.0.into(),
        destination_port: ports.1.into(),
    }
}

#[test]
fn a_test_packet_leaves_the_traces_of_a_real_one() {
    sandbox(|sandbox| {
        let (dataplane, [pod0, pod1]) = two_pods(&sandbox);
        let load = dataplane.test_load().unwrap();
        let packet = udp(0, (1111, 53));
        let run = load.run(Hook::Pod, &TestPacket::new(pod0, &packet)).unwrap();
        let verdict = run.verdict.decode().unwrap();
        assert_eq!((verdict.action, verdict.reason, verdict.ifindex), (Action::Peer, Reason::Ok, pod1), "{run:?}");
        assert!(verdict.slow);
        assert_eq!(run.packet[..6], MACS[1]);
        assert_eq!(run.steps, []);
        let again = load.run(Hook::Pod, &TestPacket::new(pod0, &packet)).unwrap();
        assert!(!again.verdict.decode().unwrap().slow, "a hit");

        let flows = dataplane.flows().unwrap();
        assert_eq!(flows.len().unwrap(), 2);
        let forward = flows.lookup(&key(0, (1111, 53))).unwrap().unwrap();
        let reverse = flows.lookup(&key(1, (53, 1111))).unwrap().unwrap();
        assert!(!forward.has(FLOW_REPLY) && reverse.has(FLOW_REPLY));
        assert_eq!(flows.lookup(&key(0, (1112, 53))).unwrap(), None);
        let state = flows.vpc_state(VPC_INDEX).unwrap();
        assert_eq!((state.flows, state.embryonic), (1, 1));
        let traffic = dataplane.counters().unwrap().traffic().unwrap();
        assert_eq!((traffic.len(), traffic[0].vpc_index), (1, VPC_INDEX));
        assert_eq!(traffic[0].from_pod, Traffic { packets: 2, bytes: 2 * packet.len() as u64 });

        let spoofed = load.run(Hook::Pod, &TestPacket::new(pod1, &packet)).unwrap();
        assert_eq!(spoofed.verdict.decode().unwrap().reason, Reason::SourceMac);
        let exits = dataplane.counters().unwrap().exits().unwrap();
        assert_eq!(exits.len(), 1, "{exits:?}");
        let exit = exits[0];
        assert_eq!((exit.hook, exit.reason, exit.answered, exit.packets), (Hook::Pod, Reason::SourceMac, false, 1));
    });
}

#[test]
fn an_explanation_changes_nothing() {
    sandbox(|sandbox| {
        let (dataplane, [pod0, pod1]) = two_pods(&sandbox);
        let explainer = dataplane.explainer().unwrap();
        let packet = udp(0, (1111, 53));
        for _ in 0..2 {
            let run = explainer.run(Hook::Pod, &TestPacket::new(pod0, &packet)).unwrap();
            let verdict = run.verdict.decode().unwrap();
            assert_eq!((verdict.action, verdict.ifindex, verdict.slow), (Action::Peer, pod1, true), "{run:?}");
            let stages: Vec<u32> = run.steps.iter().map(|step| step.stage).collect();
            assert_eq!(stages.first(), Some(&STAGE_PARSE), "{stages:?}");
            assert!(stages.contains(&STAGE_COMMIT), "{stages:?}");
        }
        let flows = dataplane.flows().unwrap();
        assert!(flows.is_empty().unwrap());
        assert_eq!(flows.vpc_state(VPC_INDEX).unwrap(), Default::default());
        assert_eq!(dataplane.counters().unwrap().exits().unwrap(), []);
        assert_eq!(dataplane.counters().unwrap().traffic().unwrap(), []);
        // The control: the same packet through programs that write.
        dataplane.test_load().unwrap().run(Hook::Pod, &TestPacket::new(pod0, &packet)).unwrap();
        assert_eq!(flows.len().unwrap(), 2);
        let run = explainer.run(Hook::Pod, &TestPacket::new(pod0, &packet)).unwrap();
        assert!(!run.verdict.decode().unwrap().slow, "an explanation sees the flow");
    });
}

#[test]
fn the_sweep_removes_what_is_idle_at_two_sweeps_in_a_row() {
    sandbox(|sandbox| {
        let (dataplane, [pod0, pod1]) = two_pods(&sandbox);
        let load = dataplane.test_load().unwrap();
        let run = |from: u32, packet: &[u8]| load.run(Hook::Pod, &TestPacket::new(from, packet)).unwrap();
        run(pod0, &udp(0, (1, 53)));
        run(pod0, &udp(0, (2, 53)));
        run(pod1, &udp(1, (53, 2)));
        let flows = dataplane.flows().unwrap();
        let mut sweeper = dataplane.sweeper().unwrap();
        let hz = dataplane.config().hz;
        let now = Now { stamp: 1000, hz };
        let later = |seconds: u32| now.later(now.seconds(seconds) + 1);

        let swept = sweeper.sweep(now).unwrap();
        assert_eq!((swept.examined, swept.marked, swept.removed), (4, 0, 0));
        let swept = sweeper.sweep(later(31)).unwrap();
        assert_eq!((swept.marked, swept.removed), (2, 0), "the unanswered one");
        // It is used once more: the mark is void.
        dataplane.hot().unwrap().set_clock(later(31).stamp).unwrap();
        run(pod0, &udp(0, (1, 53)));
        let swept = sweeper.sweep(later(63)).unwrap();
        assert_eq!((swept.marked, swept.removed), (2, 0), "idle again, but not all the time since");
        assert_eq!(sweeper.sweep(later(64)).unwrap().removed, 2);
        assert_eq!(flows.lookup(&key(0, (1, 53))).unwrap(), None);
        assert!(flows.lookup(&key(0, (2, 53))).unwrap().is_some(), "answered: 180 s");
        let state = flows.vpc_state(VPC_INDEX).unwrap();
        assert_eq!((state.flows, state.embryonic), (1, 0));
        sweeper.sweep(later(300)).unwrap();
        assert_eq!(sweeper.sweep(later(301)).unwrap().removed, 2);
        assert!(flows.is_empty().unwrap());
        assert_eq!(flows.vpc_state(VPC_INDEX).unwrap().flows, 0);
    });
}

#[test]
fn the_sweep_heals_halves_and_counts() {
    sandbox(|sandbox| {
        let (dataplane, [pod0, _]) = two_pods(&sandbox);
        let load = dataplane.test_load().unwrap();
        for port in [1, 2, 3] {
            load.run(Hook::Pod, &TestPacket::new(pod0, &udp(0, (port, 53)))).unwrap();
        }
        let now = Now { stamp: 1000, hz: dataplane.config().hz };
        let mut sweeper = dataplane.sweeper().unwrap();
        sweeper.sweep(now).unwrap();
        // Somebody removed one direction of one flow, and a whole flow without counting it.
        let map = raw_flows(&dataplane);
        for key in [key(1, (53, 1)), key(1, (53, 2)), key(0, (2, 53))] {
            map.delete(zerocopy::IntoBytes::as_bytes(&key)).unwrap();
        }
        let flows = dataplane.flows().unwrap();
        let swept = sweeper.sweep(now).unwrap();
        assert_eq!((swept.halves, swept.corrected), (0, 0), "once is not enough");
        let swept = sweeper.sweep(now).unwrap();
        assert_eq!((swept.halves, swept.corrected), (1, 1));
        assert_eq!(flows.lookup(&key(0, (1, 53))).unwrap(), None);
        assert_eq!(flows.len().unwrap(), 2, "the third is whole");
        let state = flows.vpc_state(VPC_INDEX).unwrap();
        assert_eq!((state.flows, state.embryonic), (1, 1));
        let swept = sweeper.sweep(now).unwrap();
        assert_eq!((swept.halves, swept.corrected), (0, 0));
    });
}

fn raw_flows(dataplane: &Dataplane) -> libbpf_rs::MapHandle {
    libbpf_rs::MapHandle::from_map_id(dataplane.map_id("jn_flows").unwrap()).unwrap()
}

use libbpf_rs::MapCore;

#[test]
fn a_path_mtu_that_ran_out_moves_its_vtep() {
    sandbox(|sandbox| {
        let (dataplane, _) = two_pods(&sandbox);
        let map = libbpf_rs::MapHandle::from_map_id(dataplane.map_id("jn_pmtu").unwrap()).unwrap();
        let vtep = juneau_core::layout::be32([192, 0, 2, 2].into());
        let learned = Pmtu { mtu: 1400, expires: 1010 };
        let bytes = zerocopy::IntoBytes::as_bytes(&learned);
        map.update(vtep.as_ref(), bytes, libbpf_rs::MapFlags::ANY).unwrap();
        let slot = vtep_generation(vtep);
        let generations = dataplane.generations().unwrap();
        let before = generations.get(slot).unwrap();
        let mut sweeper = dataplane.sweeper().unwrap();
        let hz = dataplane.config().hz;
        assert_eq!(sweeper.sweep(Now { stamp: 1009, hz }).unwrap().path_mtus, 0);
        assert_eq!(generations.get(slot).unwrap(), before);
        assert_eq!(sweeper.sweep(Now { stamp: 1010, hz }).unwrap().path_mtus, 1);
        assert_eq!(generations.get(slot).unwrap(), before + 2);
    });
}

#[test]
fn events_tell_of_flows_and_drops() {
    sandbox(|sandbox| {
        let (dataplane, [pod0, pod1]) = two_pods(&sandbox);
        let load = dataplane.test_load().unwrap();
        let mut reader = dataplane.events().unwrap().reader().unwrap();
        let packet = udp(0, (1111, 53));
        load.run(Hook::Pod, &TestPacket::new(pod1, &packet)).unwrap();
        assert_eq!(reader.wait(Duration::ZERO).unwrap(), [], "not asked for");
        dataplane.hot().unwrap().set_events(1 << EVENT_DROP | 1 << EVENT_FLOW_OPEN).unwrap();
        load.run(Hook::Pod, &TestPacket::new(pod1, &packet)).unwrap();
        load.run(Hook::Pod, &TestPacket::new(pod0, &packet)).unwrap();
        let events = reader.wait(Duration::from_secs(5)).unwrap();
        let told: Vec<_> = events.iter().map(|event| (event.kind, event.ifindex)).collect();
        assert_eq!(told, [(EVENT_DROP, pod1), (EVENT_FLOW_OPEN, pod0)]);
        assert_eq!(events[0].reason, Reason::SourceMac.number());
        assert_eq!(events[1].key, key(0, (1111, 53)));
        assert_eq!(dataplane.counters().unwrap().events_lost().unwrap(), 0);
    });
}

#[test]
fn flows_of_a_live_node_are_read_by_their_pins() {
    sandbox(|sandbox| {
        let (dataplane, [pod0, _]) = two_pods(&sandbox);
        let load = dataplane.test_load().unwrap();
        load.run(Hook::Pod, &TestPacket::new(pod0, &udp(0, (1111, 53)))).unwrap();
        let flows = juneau_bpf::Flows::open(&sandbox.root()).unwrap();
        let mut dump: Vec<(FlowKey, Flow)> = flows.dump().unwrap();
        dump.sort_unstable_by_key(|(key, _)| *key);
        let keys: Vec<_> = dump.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, [key(0, (1111, 53)), key(1, (53, 1111))]);
        assert_eq!(juneau_bpf::Counters::open(&sandbox.root()).unwrap().traffic().unwrap().len(), 1);
    });
}
