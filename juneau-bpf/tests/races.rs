//! Two CPUs at once: records that are recycled while they are read, storms of handshakes while tables change.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Sandbox, ip, sandbox};
use juneau_bpf::{Dataplane, NodeConfig, TestPacket};
use juneau_core::flow::{FlowRead, TCP_ACK, TCP_FIN, TCP_RST, TCP_SYN};
use juneau_core::layout::{EP_POLICY_READY, FlowKey};
use juneau_core::tables::{Diff, Tables, TablesMut};
use juneau_core::testkit::packets::{Frame, Layer4, udp};
use juneau_core::testkit::topology::{self, Pod, pods, vtep};
use juneau_core::time::Now;
use juneau_core::verdict::Hook;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// How long the programs are watched.
const WATCHED: Duration = Duration::from_secs(3);

/// Packets of one system call.
const BURST: u32 = 100_000;

fn dataplane(sandbox: &Sandbox, object: &'static [u8]) -> (Dataplane, Tables) {
    for pod in pods().into_iter().filter(|pod| pod.node() == 0) {
        let index = pod.ifindex();
        ip(&format!("link add pod{index} index {index} type veth peer name peer{index}"));
    }
    let mut options = sandbox.options();
    options.node = NodeConfig { vtep: vtep(0), underlay_ifindex: 1, vxlan_ifindex: 1, vxlan_port: 4789 };
    options.object = object;
    options.sizes.flows = Some(65_536);
    let dataplane = Dataplane::open(options).unwrap();
    let mut tables = topology::tables(0);
    for vpc in tables.vpcs.values_mut() {
        (vpc.flow_limit, vpc.embryonic_limit) = (u32::MAX >> 1, u32::MAX >> 1);
    }
    let diff = Diff::between(&Tables::default(), &tables);
    dataplane.tables().unwrap().apply_diff(&diff).unwrap();
    dataplane.generations().unwrap().advance(diff.generations).unwrap();
    (dataplane, tables)
}

/// The CPUs that this test may use; it needs two.
fn cpus() -> Option<[usize; 2]> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let mut cpus = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
    let found = cpus.next().zip(cpus.next()).map(|(a, b)| [a, b]);
    if found.is_none() {
        eprintln!("SKIPPED: needs two CPUs");
    }
    found
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

/// Packets delivered so far, by VPC index.
fn delivered(dataplane: &Dataplane) -> [u64; 2] {
    let mut packets = [0; 2];
    for count in dataplane.counters().unwrap().traffic().unwrap() {
        packets[usize::from(count.vpc_index)] = count.from_pod.packets + count.from_overlay.packets;
    }
    packets
}

fn dropped(dataplane: &Dataplane) -> u64 {
    dataplane.counters().unwrap().exits().unwrap().iter().map(|exit| exit.packets).sum()
}

fn datagram(from: Pod, to: Pod) -> Vec<u8> {
    Frame::new(from.address(), to.address(), udp(1111, 53, 18)).macs(from.mac(), from.gateway_mac()).build()
}

/// One CPU sends packets of the first tenant; on the other the record of their flow is replaced again and again, and its
/// old memory given to a record of the second tenant, whose addresses are the same. Packets that were counted as the
/// second tenant's were decided by its record. Returns {packets, foreign ones}.
fn recycle(object: &'static [u8], enough: impl Fn(Duration, u64) -> bool + Send + Sync) -> Option<(u64, u64)> {
    let [sender, recycler] = cpus()?;
    let result = std::sync::Mutex::new(None);
    sandbox(|sandbox| {
        let (dataplane, _) = dataplane(&sandbox, object);
        let (from, to) = (Pod::new(0, 1, 10), Pod::new(0, 1, 11));
        let (own, foreign) = (datagram(from, to), datagram(Pod::new(1, 1, 10), Pod::new(1, 1, 11)));
        let load = dataplane.test_load().unwrap();
        // The record of the other tenant's flow, as the programs write it.
        load.run(Hook::Pod, &TestPacket::new(Pod::new(1, 1, 10).ifindex(), &foreign)).unwrap();
        let flows = MapHandle::from_map_id(dataplane.map_id("jn_flows").unwrap()).unwrap();
        let keys: Vec<Vec<u8>> = flows.keys().collect();
        let other_key =
            keys.iter().find(|key| u16::from_be_bytes([key[14], key[15]]) == 53).expect("the forward record").clone();
        let other = flows.lookup(&other_key, MapFlags::ANY).unwrap().unwrap();
        load.run(Hook::Pod, &TestPacket::new(from.ifindex(), &own)).unwrap();
        let own_key: Vec<u8> = flows
            .keys()
            .find(|key| !keys.contains(key) && u16::from_be_bytes([key[14], key[15]]) == 53)
            .expect("the own forward record");
        let own_value = flows.lookup(&own_key, MapFlags::ANY).unwrap().unwrap();

        let [own_before, foreign_before] = delivered(&dataplane);
        let dropped_before = dropped(&dataplane);
        let stop = AtomicBool::new(false);
        let mut sent = 0;
        std::thread::scope(|scope| {
            let recycling = scope.spawn(|| {
                pin(recycler);
                while !stop.load(Ordering::Relaxed) {
                    // A new value for a key takes the element that the last such update on this CPU set free: each
                    // tenant's record is written over the other's old one.
                    flows.update(&own_key, &own_value, MapFlags::ANY).unwrap();
                    flows.update(&other_key, &other, MapFlags::ANY).unwrap();
                }
            });
            pin(sender);
            let start = Instant::now();
            loop {
                load.run_many(Hook::Pod, &TestPacket::new(from.ifindex(), &own), BURST).unwrap();
                sent += u64::from(BURST);
                if enough(start.elapsed(), delivered(&dataplane)[1] - foreign_before) {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
            recycling.join().unwrap();
        });
        let [own_after, foreign_after] = delivered(&dataplane);
        let counted = own_after - own_before + foreign_after - foreign_before + dropped(&dataplane) - dropped_before;
        assert_eq!(counted, sent, "every packet counts once");
        *result.lock().unwrap() = Some((sent, foreign_after - foreign_before));
    });
    result.into_inner().unwrap()
}

#[test]
fn a_record_that_is_recycled_is_never_taken_for_anothers() {
    let Some((sent, foreign)) = recycle(juneau_bpf::OBJECT, |elapsed, _| elapsed > WATCHED) else { return };
    eprintln!("races: {foreign} of {sent} packets were decided by a foreign record");
    assert_eq!(foreign, 0, "of {sent} packets");
}

/// The control: the same without the check of the tags is caught.
#[test]
fn without_tags_a_recycled_record_is_taken_for_anothers() {
    let object = planted(
        "lib/flow.h",
        "return (__u32)(last >> 32) == (__u32)(fold >> 32) && JN_READ(entry->tag) == last;",
        "return last || fold || 1;",
    );
    let caught = |elapsed: Duration, foreign: u64| foreign > 0 || elapsed > WATCHED * 60;
    let Some((sent, foreign)) = recycle(object, caught) else { return };
    eprintln!("races: planted bug: {foreign} of {sent} packets were decided by a foreign record");
    assert!(foreign > 0, "the race was never met in {sent} packets: the test shows nothing here");
}

/// The object with a fault in it, compiled as the build does.
fn planted(file: &str, before: &str, after: &str) -> &'static [u8] {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf-src");
    let copy = std::env::temp_dir().join(format!("juneau-planted-{}", std::process::id()));
    let status = Command::new("cp").arg("-rL").arg(&sources).arg(&copy).status().unwrap();
    assert!(status.success());
    let path = copy.join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches(before).count(), 1, "{file} has changed: plant the fault anew");
    std::fs::write(&path, text.replace(before, after)).unwrap();
    let object = copy.join("planted.bpf.o");
    let include = |directory: &Path| format!("-I{}", directory.display());
    libbpf_cargo::SkeletonBuilder::new()
        .source(copy.join("juneau.bpf.c"))
        .obj(&object)
        .clang_args(["-mcpu=v3".to_owned(), include(&copy.join("include")), include(&copy)])
        .build()
        .unwrap();
    let bytes = std::fs::read(&object).unwrap();
    std::fs::remove_dir_all(&copy).unwrap();
    bytes.leak()
}

/// One CPU opens, answers and ends connections of one tenant, the other those of the other tenant with the same
/// addresses and ports, while a third thread takes policies and endpoints away and gives them back. Afterwards every
/// packet is accounted for, and the sweep leaves neither a record nor a count behind.
#[test]
fn storms_of_handshakes_while_tables_change_lose_no_count() {
    let Some(cpus) = cpus() else { return };
    sandbox(|sandbox| {
        let (dataplane, tables) = dataplane(&sandbox, juneau_bpf::OBJECT);
        let sent = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (tenant, cpu) in (0_u8..).zip(cpus) {
                let (dataplane, sent, stop) = (&dataplane, &sent, &stop);
                scope.spawn(move || {
                    pin(cpu);
                    let load = dataplane.test_load().unwrap();
                    let pods = [Pod::new(tenant, 1, 10), Pod::new(tenant, 2, 11)];
                    let mut round = 0_u16;
                    while !stop.load(Ordering::Relaxed) {
                        round = round.wrapping_add(1);
                        for (from, flags) in [
                            (0, TCP_SYN),
                            (1, TCP_SYN | TCP_ACK),
                            (0, TCP_ACK),
                            (1, if round.is_multiple_of(3) { TCP_RST } else { TCP_FIN | TCP_ACK }),
                        ] {
                            let ports = [40_000 + round % 97, 80];
                            let (source, destination) = (pods[from], pods[1 - from]);
                            let layer4 =
                                Layer4::Tcp { source: ports[from], destination: ports[1 - from], flags, payload: 5 };
                            let frame = Frame::new(source.address(), destination.address(), layer4)
                                .macs(source.mac(), source.gateway_mac())
                                .build();
                            load.run(Hook::Pod, &TestPacket::new(source.ifindex(), &frame)).unwrap();
                            sent.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            let mut kernel = dataplane.tables().unwrap();
            let generations = dataplane.generations().unwrap();
            let mut closed = tables.clone();
            for pod in [Pod::new(0, 2, 11), Pod::new(1, 1, 10)] {
                let interface = closed.interfaces.get_mut(&pod.ifindex()).unwrap();
                interface.flags &= !EP_POLICY_READY;
                closed.endpoints.retain(|_, endpoint| endpoint.ifindex != pod.ifindex());
            }
            let start = Instant::now();
            while start.elapsed() < WATCHED {
                for (have, wanted) in [(&tables, &closed), (&closed, &tables)] {
                    let diff = Diff::between(have, wanted);
                    kernel.apply_diff(&diff).unwrap();
                    generations.advance(diff.generations).unwrap();
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        let counted = delivered(&dataplane).iter().sum::<u64>() + dropped(&dataplane);
        assert_eq!(counted, sent.into_inner(), "every packet counts once");
        assert!(delivered(&dataplane).iter().all(|packets| *packets > 0) && dropped(&dataplane) > 0, "both were met");

        let flows = dataplane.flows().unwrap();
        let mut entries = [0_i64; 2];
        for (key, flow) in flows.dump().unwrap() {
            let key: FlowKey = key;
            assert_eq!(key.id(), 5 + u32::from(flow.vpc_index), "a record of its own VPC");
            entries[usize::from(flow.vpc_index)] += i64::from(!flow.has(juneau_core::layout::FLOW_REPLY));
        }
        for (index, count) in entries.into_iter().enumerate() {
            assert_eq!(flows.vpc_state(index as u16).unwrap().flows, count, "VPC {index}: flows are counted");
        }
        let hz = dataplane.config().hz;
        let now = dataplane.clock().now().unwrap();
        let later = Now { stamp: now.later(now.seconds(10_000)).stamp, hz };
        let mut sweeper = dataplane.sweeper().unwrap();
        for _ in 0..3 {
            sweeper.sweep(later).unwrap();
        }
        assert!(flows.is_empty().unwrap());
        for index in [0, 1] {
            let state = flows.vpc_state(index).unwrap();
            assert_eq!((state.flows, state.embryonic), (0, 0), "VPC {index}");
        }
    });
}
