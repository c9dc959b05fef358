//! What arrives from another node: packets of which the device has summed up the whole, and packets that the receiving
//! side puts together again.

use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

use juneau_core::packet::checksum;
use libbpf_rs::{MapCore, MapHandle, Object, ObjectBuilder, TC_INGRESS, TcHookBuilder};

use crate::common::{self, sandbox};
use crate::frames::{Frames, Offloads, Sum};
use crate::world::{Pod, Underlay, World, world, world_over};
use crate::{ethtool, exchange, offloads, received, socket, stream};

/// Pairs of Pods on two nodes.
const PAIRS: [(usize, usize); 4] = [(0, 2), (2, 0), (0, 3), (3, 1)];

/// Sums of what a Pod gets: as the kernel holds them, and of the bytes.
struct Sums {
    frames: Frames,
    told: MapHandle,
    mac: [u8; 6],
    _program: Object,
}

impl Sums {
    fn open(pod: &Pod) -> Self {
        let object = std::env::temp_dir().join(format!("juneau-{}-{}.o", std::process::id(), pod.host));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/sum.bpf.c");
        let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
        let arguments = ["-target", "bpf", "-O2", "-g", "-c", source, "-o"];
        assert!(Command::new(clang).args(arguments).arg(&object).status().unwrap().success());
        let program = ObjectBuilder::default().open_file(&object).unwrap().load().unwrap();
        std::fs::remove_file(&object).unwrap();
        pod.net.enter(|| {
            let tell = program.progs().find(|program| program.name() == "tell").unwrap();
            let mut hook = TcHookBuilder::new(tell.as_fd());
            let mut hook = hook.ifindex(common::ifindex("eth0") as i32).handle(1).priority(1).hook(TC_INGRESS);
            hook.create().unwrap().attach().unwrap();
        });
        let told = program.maps().find(|map| map.name() == "sums").unwrap();
        Self {
            told: MapHandle::try_from(&told).unwrap(),
            frames: Frames::open(&pod.net, "eth0"),
            mac: pod.mac,
            _program: program,
        }
    }

    /// Since the last time, how many packets came with the sum of the whole; each was right.
    #[track_caller]
    fn check(&self) -> usize {
        self.frames.patience(Duration::from_millis(50));
        let frames = std::iter::from_fn(|| self.frames.next());
        let whole = frames.filter(|frame| frame.sum == Sum::Whole && frame.bytes.starts_with(&self.mac));
        // Modulo 0xffff, in which a sum's carries do not matter; in the host's byte order, as the kernel has it.
        let mut expected: Vec<_> = whole.map(|frame| (!checksum(&frame.bytes[14..])).swap_bytes() % 0xffff).collect();
        let told = std::iter::from_fn(|| self.told.lookup_and_delete(&[]).unwrap());
        let told = told.map(|value| i64::from_ne_bytes(value.try_into().unwrap()));
        let mut told: Vec<_> = told.filter(|sum| *sum >= 0).map(|sum| (sum % 0xffff) as u16).collect();
        // Packets on two CPUs may pass each other between the two places.
        expected.sort_unstable();
        told.sort_unstable();
        assert_eq!(told, expected);
        told.len()
    }
}

/// A device with a checksum engine gives the sum of the whole packet, and every change of bytes and every header that is
/// taken off has to keep it: otherwise the kernel complains of the device ("hw csum failure") and sums up once more. A
/// tunnel with checksums gives the same when it arrives without any offload: it is the underlay here.
#[test]
fn the_sum_of_a_whole_packet_stays_right() {
    sandbox(|sandbox| {
        let world = world_over(&sandbox, Underlay::Tunnel);
        world.vxlan_devices("down");
        let sums: Vec<_> = world.pods.iter().map(Sums::open).collect();
        // The control: what comes from the wire has none, and the hook gets one.
        let devices = ["wire", "underlay"].map(|name| Frames::open(&world.nodes[1].net, name));
        exchange(&world.pods[0], &world.pods[2], 321);
        let held =
            devices.map(|frames| std::iter::from_fn(|| frames.next()).find(|f| f.bytes.len() > 321).unwrap().sum);
        assert_eq!(held, [Sum::Unknown, Sum::Whole]);
        for (from, to) in PAIRS {
            for length in [0, 1, 2, 17, 500, 1421, 1422, 4000] {
                exchange(&world.pods[from], &world.pods[to], length);
                assert!(sums[from].check() > 0 && sums[to].check() > 0, "{length} bytes from {from} to {to}");
            }
            stream(&world.pods[from], &world.pods[to], 100_000);
            assert!(sums[from].check() > 0 && sums[to].check() > 70);
        }
        padding_is_cut_off(&world);
        assert_eq!(sums[2].check(), PADDINGS.len());
    });
}

const PADDINGS: [usize; 4] = [1, 2, 17, 100];

/// Ethernet's padding is in the sum, too, and the stack takes it out again.
fn padding_is_cut_off(world: &World) {
    let (from, to) = (&world.pods[0], &world.pods[2]);
    let ((client, source), (server, address)) = (socket(from), socket(to));
    drop(client);
    let frames = Frames::open(&from.net, "eth0");
    for padding in PADDINGS {
        let mut frame = Vec::new();
        let step = etherparse::PacketBuilder::ethernet2(from.mac, to.mac);
        let step = step.ipv4(from.address.octets(), to.address.octets(), 64).udp(source.port(), address.port());
        step.write(&mut frame, b"odd").unwrap();
        frame.resize(frame.len() + padding, 0xa5);
        frames.send(&frame, Offloads::default());
        assert_eq!(server.recv(&mut [0; 200]).unwrap(), 3);
    }
}

/// The outer packet has no checksum, and what was cut for it is put together again nevertheless.
#[test]
fn segments_are_put_together_on_arrival() {
    sandbox(|sandbox| {
        let world = world(&sandbox);
        let length = 1_500_000;
        // The sender's device cuts nothing and sums up nothing.
        offloads(&world.nodes[0].net, "underlay", false);
        let arrived = |together| {
            ethtool(&world.nodes[1].net, "underlay", "gro", together);
            let before = received(&world.pods[2].net, "eth0");
            stream(&world.pods[0], &world.pods[2], length);
            received(&world.pods[2].net, "eth0") - before
        };
        let (apart, together) = (arrived(false), arrived(true));
        assert!(apart > length as u64 / 1400, "{apart} packets");
        assert!(together < apart / 2, "{together} packets, without aggregation {apart}");
    });
}
