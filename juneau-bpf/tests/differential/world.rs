//! Node 0 twice: in the kernel's maps and in memory.

use std::collections::BTreeSet;

use juneau_bpf::{
    Counters, Dataplane, Flows, Generations, HotLine, KernelTables, NodeConfig, PrivateLoad, Sweeper, TestPacket,
};
use juneau_core::layout::{
    EGRESS, EP_EGRESS_ANY, EP_INGRESS_ANY, EndpointKey, GEN_MAX, INGRESS, POLICY_DENY, Policy, PolicyKey, be32,
};
use juneau_core::pipeline::{Generations as _, Limits, Packet, Pipeline};
use juneau_core::tables::{Diff, Tables, TablesMut};
use juneau_core::testkit::topology::{self, Pod, pods, vtep};
use juneau_core::time::Now;
use juneau_core::verdict::{Action, Hook, Reason};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::changes;
use crate::common::{Sandbox, ip};
use crate::compare;
use crate::generate::{self, Input, Sent};
use crate::random::Random;

const UNDERLAY: u32 = 50;
const UNDERLAY_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x50];

/// See the module.
pub struct World {
    // Its pins live as long as this does.
    _dataplane: Dataplane,
    load: PrivateLoad,
    kernel_tables: KernelTables,
    kernel_generations: Generations,
    hot: HotLine,
    flows: Flows,
    counters: Counters,
    sweeper: Sweeper,
    fragments: MapHandle,
    path_mtus: MapHandle,
    affinities: MapHandle,
    reference: Pipeline,
    tables: Tables,
    beginning: Tables,
    suspended: Option<u32>,
    now: Now,
    thorough: bool,
    last: String,
    sent: Vec<Sent>,
    /// Exits that both sides agreed on.
    pub reached: BTreeSet<(Hook, Reason, bool)>,
    /// Packets that both sides saw.
    pub packets: u64,
}

impl World {
    pub fn new(sandbox: &Sandbox, random: &mut Random, thorough: bool) -> Self {
        for pod in pods().into_iter().filter(|pod| pod.node() == 0).chain([Pod::node_port(0)]) {
            let index = pod.ifindex();
            ip(&format!("link add pod{index} index {index} type veth peer name peer{index}"));
        }
        ip(&format!("link add under index {UNDERLAY} address 02:00:00:00:00:50 type veth peer name over"));
        // A full table is reached in some sessions and out of reach in others.
        let entries = random.pick(&[16_u32, 40, 4096]);
        let fragments = random.pick(&[2_u32, 64]);
        let affinities = random.pick(&[3_u32, 64]);
        let mut options = sandbox.options();
        options.node =
            NodeConfig { vtep: vtep(0), underlay_ifindex: UNDERLAY, vxlan_ifindex: UNDERLAY, vxlan_port: 4789 };
        options.test_clock = true;
        // The same packets take the same slots in every run.
        options.seeds = Some(topology::config(0).seeds);
        options.sizes.flows = Some(entries);
        options.sizes.fragments = Some(fragments);
        options.sizes.affinities = Some(affinities);
        let dataplane = Dataplane::open(options).unwrap();
        let config = topology::config(0);
        let limits = Limits {
            flows: entries as usize,
            fragments: fragments as usize,
            pmtus: 256,
            affinities: affinities as usize,
            ..Limits::default()
        };
        let mut reference = Pipeline::new(config, &limits);
        let kernel_generations = dataplane.generations().unwrap();
        for slot in 0..GEN_MAX {
            let number = kernel_generations.get(slot).unwrap();
            if number != 0 {
                reference.state.set_generation(slot, number);
            }
        }
        let mut world = Self {
            load: dataplane.test_load().unwrap(),
            kernel_tables: dataplane.tables().unwrap(),
            kernel_generations,
            hot: dataplane.hot().unwrap(),
            flows: dataplane.flows().unwrap(),
            counters: dataplane.counters().unwrap(),
            sweeper: dataplane.sweeper().unwrap(),
            fragments: MapHandle::from_map_id(dataplane.map_id("jn_fragments").unwrap()).unwrap(),
            path_mtus: MapHandle::from_map_id(dataplane.map_id("jn_pmtu").unwrap()).unwrap(),
            affinities: MapHandle::from_map_id(dataplane.map_id("jn_affinity").unwrap()).unwrap(),
            reference,
            tables: Tables::default(),
            beginning: topology::tables(0),
            suspended: None,
            now: Now { stamp: 1000, hz: dataplane.config().hz },
            thorough,
            last: String::new(),
            sent: Vec::new(),
            reached: BTreeSet::new(),
            packets: 0,
            _dataplane: dataplane,
        };
        world.hot.set_clock(world.now.stamp).unwrap();
        let beginning = world.beginning.clone();
        world.apply(&beginning);
        world
    }

    fn apply(&mut self, wanted: &Tables) {
        self.resume();
        let diff = Diff::between(&self.tables, wanted);
        self.kernel_tables.apply_diff(&diff).unwrap();
        self.kernel_generations.advance(diff.generations.iter().copied()).unwrap();
        self.reference.apply(&diff).unwrap();
        self.tables = wanted.clone();
    }

    /// A change that goes on: nothing is cached under its generation.
    fn suspend(&mut self, random: &mut Random) {
        self.resume();
        let endpoints: Vec<u32> = self.tables.endpoints.values().map(|endpoint| endpoint.generation).collect();
        if endpoints.is_empty() {
            return;
        }
        let slot = random.pick(&endpoints);
        self.kernel_generations.suspend([slot]).unwrap();
        let number = self.reference.state.generation(slot).unwrap();
        self.reference.state.set_generation(slot, number | 1);
        self.suspended = Some(slot);
    }

    fn resume(&mut self) {
        if let Some(slot) = self.suspended.take() {
            self.kernel_generations.advance([slot]).unwrap();
            let number = self.reference.state.generation(slot).unwrap();
            self.reference.state.set_generation(slot, (number | 1).wrapping_add(1));
        }
    }

    fn leap(&mut self, units: u32) {
        self.now = self.now.later(units);
        self.hot.set_clock(self.now.stamp).unwrap();
    }

    pub fn step(&mut self, step: u32, seed: u64, random: &mut Random) {
        match random.below(100) {
            0..4 => {
                let mut wanted = self.tables.clone();
                changes::change(&mut wanted, &self.beginning, random);
                rules_are_wide(&mut wanted, random);
                self.apply(&wanted);
            }
            4 => self.suspend(random),
            5 => self.leap(random.pick(&[1, 1, 2, 16, 40, 700])),
            6 if random.chance(15) => {
                self.compare_state(seed);
                self.expire();
                self.compare_state(seed);
            }
            6 | 7 => self.backend_leaves(step, seed, random),
            8..55 => {
                let (input, about) = generate::from_pod(random, self.reference.config.seeds, &self.sent, &self.tables);
                self.packet(step, seed, &input, about);
            }
            _ => {
                let seeds = self.reference.config.seeds;
                let (input, about) =
                    generate::from_underlay(UNDERLAY, UNDERLAY_MAC, random, seeds, &self.sent, &self.tables);
                self.packet(step, seed, &input, about);
            }
        }
        if self.thorough || step % 100 == 99 {
            self.compare_state(seed);
        }
    }

    /// The backend of a flow that was just seen serves no more, and is chosen no more; and the flow goes on.
    fn backend_leaves(&mut self, step: u32, seed: u64, random: &mut Random) {
        let bound: Vec<_> = self.sent.iter().rev().take(40).filter(|sent| sent.goes_on()).cloned().collect();
        if bound.is_empty() {
            return;
        }
        let about = bound[random.below(bound.len())].clone();
        let mut wanted = self.tables.clone();
        changes::backend_leaves(&mut wanted, &about, random);
        self.apply(&wanted);
        let (input, about) = generate::goes_on(&about, random);
        self.packet(step, seed, &input, about);
    }

    /// What is idle goes: in the kernel at two sweeps in a row, in memory at once.
    fn expire(&mut self) {
        self.last = "a sweep".to_owned();
        self.sweeper.sweep(self.now).unwrap();
        self.sweeper.sweep(self.now).unwrap();
        self.reference.expire(self.now, usize::MAX);
    }

    fn packet(&mut self, step: u32, seed: u64, input: &Input, about: Option<Sent>) {
        let packet = TestPacket {
            gso_size: input.gso_size,
            gso_segments: u32::from(input.gso_size != 0) * 3,
            ..TestPacket::new(input.ifindex, &input.frame)
        };
        // The kernel refuses frames without a whole network header.
        let Ok(run) = self.load.run(input.hook, &packet) else {
            assert!(input.frame.len() < 54, "seed {seed} step {step}: {input:?}");
            return;
        };
        let to_host = input.hook != Hook::Overlay || input.frame.starts_with(&UNDERLAY_MAC);
        let outcome = self
            .reference
            .handle(
                &Packet { gso_size: input.gso_size, to_host, ..Packet::new(input.hook, input.ifindex, &input.frame) },
                self.now,
            )
            .unwrap();
        if let Err(difference) = compare::packet(&run, &outcome) {
            panic!(
                "seed {seed} step {step}: {difference}\ninput {:?} ifindex {} gso {}\n  {}\nprograms  {:?}\n  {}\nreference {:?}\n  {}\ntrail {:?}",
                input.hook,
                input.ifindex,
                input.gso_size,
                compare::hex(&input.frame),
                run.verdict.decode(),
                compare::hex(&run.packet),
                outcome.verdict,
                compare::hex(&outcome.frame),
                outcome.trail,
            );
        }
        self.packets += 1;
        self.last = format!("step {step}, {:?} at {}: {:?}", input.hook, input.ifindex, outcome.verdict);
        if outcome.count != juneau_core::pipeline::Count::None {
            self.reached.insert((input.hook, outcome.verdict.reason, outcome.verdict.answered));
        }
        if outcome.verdict.is_delivered() {
            let begin = if outcome.verdict.action == Action::Encap { 50 } else { 0 };
            self.sent.extend(about.map(|about| about.delivered(&outcome.frame[begin..])));
            if self.sent.len() > 200 {
                self.sent.drain(..100);
            }
        }
    }

    /// Everything that packets leave behind is the same.
    pub fn compare_state(&self, seed: u64) {
        let learned = [&self.fragments, &self.path_mtus, &self.affinities].map(|map| {
            map.keys().map(|key| (key.clone(), map.lookup(&key, MapFlags::ANY).unwrap().unwrap())).collect::<Vec<_>>()
        });
        let outcome = compare::flows(&self.flows, &self.reference)
            .and_then(|()| compare::learned([&learned[0], &learned[1], &learned[2]], &self.reference))
            .and_then(|()| compare::counters(&self.counters, &self.reference.counters));
        if let Err(difference) = outcome {
            panic!("seed {seed}, after {}: {difference}", self.last);
        }
    }
}

/// Now and then an endpoint says of its rules how wide they are, true or not: both sides must believe it alike.
fn rules_are_wide(tables: &mut Tables, random: &mut Random) {
    if !random.chance(30) {
        return;
    }
    let local: Vec<_> = pods().into_iter().filter(|pod| pod.node() == 0).collect();
    let pod = random.pick(&local);
    let flags = random.pick(&[EP_EGRESS_ANY, EP_INGRESS_ANY, EP_EGRESS_ANY | EP_INGRESS_ANY]);
    if random.chance(50) {
        // A narrower one, which the flag of its direction hides.
        let (identity, direction) = (pod.identity(), random.pick(&[EGRESS, INGRESS]));
        let key = PolicyKey { identity, policy: 1, peer: identity, direction, ..PolicyKey::default() };
        tables.policies.insert(key, Policy { action: POLICY_DENY, rule: 8 });
    }
    if let Some(interface) = tables.interfaces.get_mut(&pod.ifindex()) {
        interface.flags ^= flags;
    }
    if let Some(endpoint) = tables.endpoints.get_mut(&EndpointKey { vpc: pod.vpc(), address: be32(pod.address()) }) {
        endpoint.flags ^= flags;
    }
}
