//! A node without packets of its own: devices in a namespace, the object over maps of its own, two VPCs with the same
//! addresses in the maps, and test runs.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex};

use juneau_core::layout::*;
use juneau_core::verdict::{Action, Hook, Reason};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput};
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, unshare};
use nix::unistd::Pid;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::packet::{Outer, Packet};
use crate::run::Run;
use crate::topology::Pod;

pub const VTEP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub const OTHER_VTEP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
pub const THIRD_VTEP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);
/// The router towards the other nodes.
pub const NEXT_HOP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
pub const UNDERLAY_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x11];

pub const RED: u32 = 7;
pub const BLUE: u32 = 8;
pub const RED_INDEX: u32 = 3;
pub const BLUE_INDEX: u32 = 4;
pub const IDENTITY: u32 = 1001;
/// VNIs of 10.0.1.0/24 and 10.0.2.0/24 in red.
pub const FIRST: u32 = 101;
pub const SECOND: u32 = 102;
/// Of 10.0.1.0/24 in blue.
pub const BLUE_FIRST: u32 = 201;
pub const TABLE: u32 = 21;
pub const BLUE_TABLE: u32 = 22;
pub const POD_MTU: u16 = 1400;

pub const SHOT: u32 = 2;
pub const REDIRECT: u32 = 7;
pub const UNSPEC: u32 = u32::MAX;

static SKIPPED: AtomicU32 = AtomicU32::new(0);

/// The object, loaded, with the lab's tables.
pub struct Lab {
    object: Object,
    maps: BTreeMap<String, MapHandle>,
    /// What the counters shall be.
    expected: RefCell<Counts>,
    /// Generations that a test moved.
    moved: RefCell<BTreeSet<u32>>,
    pods: Vec<Pod>,
    pub underlay: u32,
    pub seeds: Seeds,
}

/// Everything that counts packets: {hook, reason, answered}; delivered ones {`u32::MAX`, direction, 0}. No zeros.
type Counts = BTreeMap<(u32, u32, u32), u64>;

/// How a lab differs from the usual one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Variant {
    pub dry_run: bool,
    /// Elements of `jn_flows`; 0 is 1024.
    pub flows: u32,
    /// Elements of `jn_fragments`; 0 is 64.
    pub fragments: u32,
}

type Outcome = std::thread::Result<()>;
type Test = (Box<dyn FnOnce(&Lab) + Send>, Sender<Outcome>);

/// Runs a test in the lab that all share, one after the other: loading takes longer than running.
pub fn lab(test: impl FnOnce(&Lab) + Send + 'static) {
    static SHARED: LazyLock<Mutex<Sender<Test>>> = LazyLock::new(|| {
        let (sender, tests) = channel::<Test>();
        std::thread::spawn(move || {
            namespace(|| {
                let lab = Lab::new(Variant::default(), None);
                for (test, outcome) in tests {
                    lab.reset();
                    let run = AssertUnwindSafe(|| {
                        test(&lab);
                        lab.account();
                    });
                    // A test that gave up waiting has failed already.
                    let _ = outcome.send(catch_unwind(run));
                }
            });
        });
        Mutex::new(sender)
    });
    if skipped() {
        return;
    }
    let (sender, outcome) = channel();
    let _ = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).send((Box::new(test), sender));
    match outcome.recv() {
        Ok(Ok(())) => {}
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => panic!("the lab did not come up: see its thread's panic"),
    }
}

/// Runs `test` in a lab of its own.
pub fn variant(variant: Variant, test: impl FnOnce(&Lab) + Send) {
    namespace(|| {
        let lab = Lab::new(variant, None);
        test(&lab);
        lab.account();
    });
}

/// Whether namespaces are out of reach. It says so, loudly, and counts.
fn skipped() -> bool {
    static REFUSED: LazyLock<Option<nix::Error>> =
        LazyLock::new(|| std::thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET).err()).join().unwrap());
    if let Some(error) = *REFUSED {
        let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
        eprintln!("SKIPPED {count}: needs root and a network namespace ({error})");
    }
    REFUSED.is_some()
}

/// Runs `test` on a pinned thread in a network namespace of its own.
pub fn namespace(test: impl FnOnce() + Send) {
    if skipped() {
        return;
    }
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let mut cpus = CpuSet::new();
            cpus.set(0).unwrap();
            sched_setaffinity(Pid::from_raw(0), &cpus).unwrap();
            test();
        });
        thread.join()
    });
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

/// Devices by pairs: what is sent into them matters to nobody.
const DEVICES: [(&str, &str); 4] =
    [("underlay", "vxlan"), ("pod-a", "pod-b"), ("pod-c", "router"), ("blue-a", "blue-b")];

fn devices() {
    let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut commands = String::new();
    for (one, other) in DEVICES {
        commands += &format!("link add {one} type veth peer {other}\n");
    }
    commands += "link set underlay address 02:00:00:00:00:11\n";
    ip.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    assert!(ip.wait().unwrap().success());
}

pub fn ifindex(name: &str) -> u32 {
    nix::net::if_::if_nametoindex(name).unwrap()
}

impl Lab {
    /// `shared`: a lab whose maps this one uses, too.
    pub fn new(variant: Variant, shared: Option<&Self>) -> Self {
        if shared.is_none() {
            devices();
        }
        let seeds = Seeds { first: 0x9e37_79b9_7f4a_7c15, second: 0xc2b2_ae3d_27d4_eb4f };
        let underlay = ifindex("underlay");
        let config = Config {
            abi: ABI,
            dry_run: variant.dry_run.into(),
            vtep: be32(VTEP),
            underlay_ifindex: underlay,
            vxlan_ifindex: ifindex("vxlan"),
            vxlan_port: 4789.into(),
            vpc_capacity: 4096,
            hz: 250,
            flags: CONFIG_TEST_CLOCK,
            seed1: seeds.first,
            seed2: seeds.second,
            netns_cookie: 0,
        };
        let mut open = ObjectBuilder::default().open_memory(juneau_bpf::OBJECT).unwrap();
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            match name.as_str() {
                "jn_flows" => map.set_max_entries(if variant.flows == 0 { 1024 } else { variant.flows }).unwrap(),
                "jn_fragments" => {
                    map.set_max_entries(if variant.fragments == 0 { 64 } else { variant.fragments }).unwrap();
                }
                "jn_endpoints" | "jn_routes" | "jn_policies" | "jn_macs" => map.set_max_entries(1024).unwrap(),
                _ => {}
            }
            if name.ends_with(".rodata") {
                let value = map.initial_value_mut().unwrap();
                assert_eq!(value.len(), size_of::<Config>(), "the configuration is all there is in .rodata");
                value.copy_from_slice(config.as_bytes());
            }
            let own = ["jn_scratch", "jn_trail", "jn_tails"].contains(&name.as_str())
                || name.ends_with(".rodata")
                || name.ends_with(".bss");
            if let Some(other) = shared.filter(|_| !own) {
                map.reuse_fd(other.map(&name).as_fd()).unwrap();
            }
        }
        let object = open.load().unwrap();
        let mut lab = Self {
            maps: object
                .maps()
                .map(|map| (map.name().to_string_lossy().into_owned(), MapHandle::try_from(&map).unwrap()))
                .collect(),
            object,
            expected: Counts::new().into(),
            moved: BTreeSet::new().into(),
            pods: Vec::new(),
            underlay,
            seeds,
        };
        lab.pods = if let Some(other) = shared { other.pods.clone() } else { lab.tables() };
        lab
    }

    /// Everything as it was when the lab was made.
    fn reset(&self) {
        for map in [
            "jn_flows",
            "jn_fragments",
            "jn_pmtu",
            "jn_endpoints",
            "jn_macs",
            "jn_segments",
            "jn_routes",
            "jn_vteps",
            "jn_policies",
        ] {
            let map = self.map(map);
            for key in map.keys().collect::<Vec<_>>() {
                map.delete(&key).unwrap();
            }
        }
        for index in [RED_INDEX, BLUE_INDEX] {
            self.put("jn_vpc_states", &index, &VpcState::default());
        }
        let vteps = [OTHER_VTEP, THIRD_VTEP].map(|vtep| vtep_generation(be32(vtep)));
        for slot in std::mem::take(&mut *self.moved.borrow_mut()).into_iter().chain(vteps) {
            self.put("jn_generations", &slot, &0_u32);
        }
        self.put(".data.hot", &0_u32, &Hot::default());
        self.tables();
        self.forget();
    }

    pub fn pod(&self, name: &str) -> Pod {
        *self.pods.iter().find(|pod| pod.name == name).unwrap()
    }

    // ---- maps ----

    pub fn map(&self, name: &str) -> &MapHandle {
        self.maps.get(name).unwrap_or_else(|| panic!("no map {name}"))
    }

    pub fn put<K: IntoBytes + Immutable, V: IntoBytes + Immutable>(&self, map: &str, key: &K, value: &V) {
        self.map(map).update(key.as_bytes(), value.as_bytes(), MapFlags::ANY).unwrap();
    }

    pub fn get<K: IntoBytes + Immutable, V: FromBytes>(&self, map: &str, key: &K) -> Option<V> {
        let bytes = self.map(map).lookup(key.as_bytes(), MapFlags::ANY).unwrap()?;
        Some(V::read_from_bytes(&bytes).unwrap())
    }

    pub fn remove<K: IntoBytes + Immutable>(&self, map: &str, key: &K) {
        self.map(map).delete(key.as_bytes()).unwrap();
    }

    pub fn flow(&self, key: &FlowKey) -> Option<Flow> {
        self.get("jn_flows", key)
    }

    pub fn flows(&self) -> usize {
        self.map("jn_flows").keys().count()
    }

    pub fn quota(&self, index: u32) -> (i64, i64) {
        let state: VpcState = self.get("jn_vpc_states", &index).unwrap();
        (state.flows, state.embryonic)
    }

    pub fn hot(&self) -> Hot {
        self.get(".data.hot", &0_u32).unwrap()
    }

    pub fn set_hot(&self, change: impl FnOnce(&mut Hot)) {
        let mut hot = self.hot();
        change(&mut hot);
        self.put(".data.hot", &0_u32, &hot);
    }

    /// What the agent does after it wrote tables.
    pub fn advance(&self, slot: u32, by: u32) {
        let value: u32 = self.generation(slot);
        self.moved.borrow_mut().insert(slot);
        self.put("jn_generations", &slot, &(value + by));
        self.set_hot(|hot| hot.epoch += 1);
    }

    pub fn generation(&self, slot: u32) -> u32 {
        self.get("jn_generations", &slot).unwrap()
    }

    /// Sum over the CPUs.
    pub fn per_cpu(&self, map: &str, index: u32, word: usize) -> u64 {
        let values = self.map(map).lookup_percpu(index.as_bytes(), MapFlags::ANY).unwrap().unwrap();
        values.iter().map(|v| u64::read_from_bytes(&v[word * 8..word * 8 + 8]).unwrap()).sum()
    }

    pub fn devices(&self, cause: u32) -> u64 {
        self.per_cpu("jn_devices", cause, 0)
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for hook in [Hook::Pod, Hook::Overlay, Hook::Vxlan] {
            for reason in Reason::ALL {
                for answered in 0..2 {
                    let index = (hook.number() * REASON_MAX + reason.number()) * 2 + answered;
                    counts.insert((hook.number(), reason.number(), answered), self.per_cpu("jn_counters", index, 0));
                }
            }
        }
        for direction in [FROM_POD, FROM_OVERLAY] {
            let packets = |index: u32| self.per_cpu("jn_traffic", index * 2 + direction, 0);
            counts.insert((u32::MAX, direction, 0), packets(RED_INDEX) + packets(BLUE_INDEX));
        }
        counts.retain(|_, count| *count != 0);
        counts
    }

    // ---- runs ----

    /// The programs' names, and how many instructions the verifier walked through.
    pub fn programs(&self) -> Vec<(String, u32)> {
        self.object
            .progs()
            .map(|program| {
                let path = format!("/proc/thread-self/fdinfo/{}", program.as_fd().as_raw_fd());
                let info = std::fs::read_to_string(path).unwrap();
                let verified = info.lines().find_map(|line| line.strip_prefix("verified_insns:")).unwrap();
                (program.name().to_string_lossy().into_owned(), verified.trim().parse().unwrap())
            })
            .collect()
    }

    /// One packet. It shall count exactly once, where its verdict says: the lab's end looks at the counters.
    pub fn run(&self, program: &str, ifindex: u32, gso_size: u32, packet: &[u8]) -> Run {
        let run = self.dry(program, ifindex, gso_size, packet);
        match run.action {
            Action::Drop => assert_eq!(run.code, SHOT),
            Action::Pass => assert_eq!(run.code, UNSPEC),
            _ => assert_eq!(run.code, REDIRECT),
        }
        let place = match run.action {
            Action::Pass if run.reason == Reason::Ok => return run,
            Action::Peer | Action::Encap | Action::Device => {
                let direction = if run.verdict.hook == Hook::Pod.number() { FROM_POD } else { FROM_OVERLAY };
                (u32::MAX, direction, 0)
            }
            _ => (run.verdict.hook, run.reason.number(), run.verdict.answered),
        };
        *self.expected.borrow_mut().entry(place).or_default() += 1;
        run
    }

    /// Packets in = delivered + dropped + answered.
    pub fn account(&self) {
        assert_eq!(self.counts(), *self.expected.borrow());
    }

    /// What was sent otherwise is not accounted for.
    pub fn forget(&self) {
        *self.expected.borrow_mut() = self.counts();
    }

    /// The steps of the explanation.
    pub fn trail(&self) -> Vec<Step> {
        let scratch = self.map("jn_scratch").lookup_percpu(&[0; 4], MapFlags::ANY).unwrap().unwrap();
        let steps = u32::read_from_bytes(&scratch[0][32..36]).unwrap();
        (0..steps).map(|index| self.get("jn_trail", &index).unwrap()).collect()
    }

    /// A packet that shall count nowhere.
    pub fn dry(&self, program: &str, ifindex: u32, gso_size: u32, packet: &[u8]) -> Run {
        let cleared = [0xee_u8; 32];
        let mut scratch = self.map("jn_scratch").lookup_percpu(&[0; 4], MapFlags::ANY).unwrap().unwrap();
        for cpu in &mut scratch {
            cpu[..32].copy_from_slice(&cleared);
        }
        self.map("jn_scratch").update_percpu(&[0; 4], &scratch, MapFlags::ANY).unwrap();
        let (code, bytes, _) = self.repeat(program, ifindex, gso_size, packet, 1);
        let scratch = self.map("jn_scratch").lookup_percpu(&[0; 4], MapFlags::ANY).unwrap().unwrap();
        let verdict = Verdict::read_from_bytes(&scratch[0][..32]).unwrap();
        Run {
            code,
            action: Action::from_number(verdict.action).unwrap(),
            reason: Reason::from_number(verdict.reason).unwrap(),
            verdict,
            bytes,
        }
    }

    /// Return value, packet and mean time of a run.
    pub fn repeat(
        &self,
        program: &str,
        ifindex: u32,
        gso_size: u32,
        packet: &[u8],
        repeat: u32,
    ) -> (u32, Vec<u8>, std::time::Duration) {
        // struct __sk_buff: ifindex at 40, gso_segs at 164, gso_size at 176.
        let mut context = [0_u8; 192];
        context[40..44].copy_from_slice(&ifindex.to_ne_bytes());
        if gso_size != 0 {
            context[164..168].copy_from_slice(&2_u32.to_ne_bytes());
            context[176..180].copy_from_slice(&gso_size.to_ne_bytes());
        }
        let mut out = vec![0; packet.len() + 256];
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(packet),
            data_out: Some(&mut out),
            repeat,
            ..ProgramInput::default()
        };
        let program = self.object.progs_mut().find(|p| p.name().to_string_lossy() == program).unwrap();
        let output = program.test_run(input).unwrap();
        (output.return_value, output.data.unwrap().to_vec(), output.duration)
    }

    /// A packet that a Pod sends.
    pub fn send(&self, pod: Pod, packet: &[u8]) -> Run {
        self.run("jn_pod", pod.ifindex, 0, packet)
    }

    /// A packet from the underlay.
    pub fn receive(&self, packet: &[u8]) -> Run {
        self.run("jn_overlay", self.underlay, 0, packet)
    }

    /// The outer header of the other node's packets.
    pub fn outer(&self, vni: u32) -> Outer {
        Outer {
            mac: UNDERLAY_MAC,
            source: OTHER_VTEP,
            destination: VTEP,
            vni,
            tos: 0,
            fragment: 0x4000,
            port: 4789,
            flags: 8,
        }
    }

    /// From one Pod to another, by way of the gateway where that is so.
    pub fn packet(&self, from: &str, to: &str, protocol: u8, l4: Vec<u8>) -> Packet {
        let (from, to) = (self.pod(from), self.pod(to));
        let mac = if from.vni == to.vni { to.mac } else { from.gateway_mac() };
        Packet::new(protocol, from.at(), (mac, to.address), l4)
    }

    /// The key of a packet of these Pods. `scope` is without protocol.
    pub fn key(&self, scope: u32, from: &str, to: &str, protocol: u8, ports: (u16, u16)) -> FlowKey {
        FlowKey {
            scope: scope | proto(protocol) << SCOPE_PROTO_SHIFT,
            source: be32(self.pod(from).address),
            destination: be32(self.pod(to).address),
            source_port: ports.0.into(),
            destination_port: ports.1.into(),
        }
    }
}

/// Removes the lab's devices, for another lab in the same namespace.
pub fn clear() {
    for (one, _) in DEVICES {
        assert!(Command::new("ip").args(["link", "del", one]).status().unwrap().success());
    }
}
