//! Our programs with tables for test runs: devices that lead nowhere, nothing attached.

use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use etherparse::PacketBuilder;
use juneau_bpf::{AttachMode, Dataplane};
use libbpf_rs::Program;

use crate::error::{Context, Error, Result};
use crate::kernel;
use crate::namespace::{Fabric, Mac, Namespace};
use crate::ours::{self, Cluster, GATEWAY_MAC, Member, Place};
use crate::peers::LOCAL_MTU;

/// What a program returns that redirects (`TC_ACT_REDIRECT`).
const REDIRECT: u32 = 7;
/// Index of the first device.
const FIRST_DEVICE: u32 = 100;
pub(super) const PORT: u16 = 5000;
const PAYLOAD: [u8; 18] = [0; 18];

/// A node with pairs of Pods: of each pair the first sends and the second receives, in one namespace for all who send and
/// one for all who receive.
pub(super) struct Devices {
    namespace: Namespace,
    senders: Namespace,
    _receivers: Namespace,
    pairs: u32,
}

impl Devices {
    /// So many pairs.
    pub(super) fn new(fabric: &Fabric, pairs: u32) -> Result<Self> {
        let [namespace, senders, receivers] = [fabric.namespace()?, fabric.namespace()?, fabric.namespace()?];
        // What no socket wants ends there.
        receivers.run(|| fs::write("/proc/sys/net/ipv4/ip_forward", "0").context("setting ip_forward"))?;
        for pair in 0..pairs {
            namespace.pair(&senders, FIRST_DEVICE + 2 * pair)?;
            namespace.pair(&receivers, FIRST_DEVICE + 2 * pair + 1)?;
        }
        Ok(Self { namespace, senders, _receivers: receivers, pairs })
    }

    /// Lets a stage's program see what all first Pods send.
    ///
    /// By clsact: it takes a hundredth of the time that a TCX link takes, and a stage replaces another's program.
    pub(super) fn attach(&self, stage: &Stage) -> Result<()> {
        self.namespace.run(|| {
            (0..self.pairs).try_for_each(|pair| {
                let index = FIRST_DEVICE + 2 * pair;
                stage.dataplane.attach_pod(&format!("device{index}"), index).context("attaching our program")
            })
        })
    }

    /// Runs `work` on a thread where the first Pods are.
    pub(super) fn run_among_senders<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        self.senders.run(work)
    }

    /// Runs `work` on a thread where the devices are.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        self.namespace.run(work)
    }

    /// Our programs over tables in which every pair of devices belongs to two endpoints of a Subnet, and the pairs are
    /// spread evenly over `vpcs` VPCs.
    pub(super) fn stage(&self, vpcs: u32) -> Result<Stage> {
        self.stage_with(vpcs, |_, _| Ok(()))
    }

    /// The same with what `add` adds to it.
    pub(super) fn stage_with(
        &self,
        vpcs: u32,
        add: impl FnOnce(&mut Cluster, &[Member]) -> Result<()>,
    ) -> Result<Stage> {
        let members: Vec<Member> = (0..2 * self.pairs).map(|n| member(n, vpcs)).collect();
        let mut cluster = Cluster::new(Ipv4Addr::new(192, 168, 9, 1), LOCAL_MTU, &members)?;
        add(&mut cluster, &members)?;
        let dataplane = ours::open_for(&self.namespace, 1, 1, &cluster, AttachMode::Clsact)?;
        let path = dataplane.pin_path("jn_pod");
        let program = Program::fd_from_pinned_path(&path).context(format!("opening {}", path.display()))?;
        Ok(Stage { dataplane, program, members })
    }
}

/// All VPCs have the same addresses.
fn member(n: u32, vpcs: u32) -> Member {
    /// Of a Subnet.
    const PAIRS: u32 = 100;
    let (pair, end) = (n / 2, n % 2);
    let inside = pair / vpcs;
    let [_, _, high, low] = n.to_be_bytes();
    let [_, _, subnet_high, subnet_low] = (inside / PAIRS).to_be_bytes();
    let [.., last] = (10 + 2 * (inside % PAIRS) + end).to_be_bytes();
    Member {
        vpc: 2 + pair % vpcs,
        address: Ipv4Addr::new(10, subnet_high, subnet_low, last),
        mac: [2, 1, 0, 0, high, low],
        place: Place::Here(FIRST_DEVICE + n),
    }
}

/// Our programs over filled tables.
pub(super) struct Stage {
    dataplane: Dataplane,
    program: OwnedFd,
    members: Vec<Member>,
}

/// A packet and the device that it arrives on.
pub(super) struct Packet {
    /// That device; in the sender's namespace the other end has the same index.
    pub(super) ifindex: u32,
    /// The packet.
    pub(super) frame: Vec<u8>,
}

/// The direction of a packet between the two endpoints of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forth,
    Back,
}

impl Stage {
    /// The program of a Pod's hook.
    pub(super) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// A UDP packet of a pair's n-th flow.
    pub(super) fn packet(&self, pair: u32, flow: u16, direction: Direction) -> Result<Packet> {
        let index = usize::try_from(2 * pair).unwrap_or(usize::MAX);
        let Some([first, second]) = self.members.get(index..index.saturating_add(2)) else {
            return Err(Error::Missing(format!("pair {pair}")));
        };
        let (from, to, source, destination) = match direction {
            Direction::Forth => (first, second, flow, PORT),
            Direction::Back => (second, first, PORT, flow),
        };
        let Place::Here(ifindex) = from.place else {
            return Err(Error::Missing("device of a Pod".into()));
        };
        udp(ifindex, from.mac, (from.address, source), (to.address, destination))
    }

    /// A UDP packet of the first Pod of a pair to any address.
    pub(super) fn packet_to(&self, pair: u32, source: u16, to: (Ipv4Addr, u16)) -> Result<Packet> {
        let index = usize::try_from(2 * pair).unwrap_or(usize::MAX);
        let from = self.members.get(index).ok_or_else(|| Error::Missing(format!("pair {pair}")))?;
        let Place::Here(ifindex) = from.place else {
            return Err(Error::Missing("device of a Pod".into()));
        };
        udp(ifindex, from.mac, (from.address, source), to)
    }

    /// Packets that the programs delivered so far; an error once they did anything else.
    pub(super) fn delivered(&self) -> Result<u64> {
        let counters = self.dataplane.counters().context("our counters")?;
        if let Some(exit) = counters.exits().context("our counters")?.first() {
            return Err(Error::NotOurs(format!("not all packets were delivered: {exit:?}")));
        }
        Ok(counters.traffic().context("our counters")?.iter().map(|count| count.from_pod.packets).sum())
    }

    /// Runs the program on a packet; it must be delivered.
    pub(super) fn run(&self, packet: &Packet, repeat: u32) -> Result<Duration> {
        let (returned, time) = kernel::test_run(self.program(), packet.ifindex, &packet.frame, repeat)?;
        if returned != REDIRECT {
            let exits = self.dataplane.counters().and_then(|counters| counters.exits());
            return Err(Error::NotOurs(format!("a test packet was not delivered ({returned}): {exits:?}")));
        }
        Ok(time)
    }

    /// Whether the last packet of a flow is a hit, as another load of the same programs over the same tables sees it.
    pub(super) fn expect_hit(&self, packet: &Packet) -> Result<()> {
        let test = juneau_bpf::TestPacket::new(packet.ifindex, &packet.frame);
        let load = self.dataplane.test_load().context("loading our programs once more")?;
        let run = load.run(juneau_core::verdict::Hook::Pod, &test).context("running our program")?;
        if run.verdict.slow != 0 || run.returned != REDIRECT.cast_signed() {
            return Err(Error::NotOurs(format!("the packet is no hit: {:?}", run.verdict)));
        }
        Ok(())
    }
}

fn udp(ifindex: u32, mac: Mac, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Result<Packet> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(mac, GATEWAY_MAC)
        .ipv4(from.0.octets(), to.0.octets(), 64)
        .udp(from.1, to.1)
        .write(&mut frame, &PAYLOAD)
        .map_err(|error| Error::NotOurs(format!("building a packet: {error}")))?;
    Ok(Packet { ifindex, frame })
}

/// Runs a program that looks at nothing on the same packet.
pub(super) fn run_empty(program: BorrowedFd<'_>, packet: &Packet, repeat: u32) -> Result<Duration> {
    Ok(kernel::test_run(program, packet.ifindex, &packet.frame, repeat)?.1)
}
