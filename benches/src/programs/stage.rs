//! Our programs with tables for test runs: devices that lead nowhere, nothing attached.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use etherparse::PacketBuilder;
use juneau_bpf::Dataplane;
use libbpf_rs::Program;

use crate::error::{Context, Error, Result};
use crate::kernel;
use crate::namespace::{Fabric, Namespace};
use crate::ours::{self, Cluster, GATEWAY_MAC, Member, Place};
use crate::peers::LOCAL_MTU;

/// What a program returns that redirects (`TC_ACT_REDIRECT`).
const REDIRECT: u32 = 7;
/// Index of the first device.
const FIRST_DEVICE: u32 = 100;
const PORT: u16 = 5000;
const PAYLOAD: [u8; 18] = [0; 18];

/// A namespace whose devices programs can be told that packets arrive on.
pub(super) struct Devices {
    namespace: Namespace,
    pairs: u32,
}

impl Devices {
    /// So many pairs of devices.
    pub(super) fn new(fabric: &Fabric, pairs: u32) -> Result<Self> {
        let namespace = fabric.namespace()?;
        for pair in 0..pairs {
            namespace.pair(FIRST_DEVICE + 2 * pair)?;
        }
        Ok(Self { namespace, pairs })
    }

    /// Runs `work` on a thread where the devices are.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        self.namespace.run(work)
    }

    /// Our programs over tables in which every pair of devices belongs to two endpoints of a Subnet, and the pairs are
    /// spread evenly over `vpcs` VPCs.
    pub(super) fn stage(&self, vpcs: u32) -> Result<Stage> {
        let members: Vec<Member> = (0..2 * self.pairs).map(|n| member(n, vpcs)).collect();
        let cluster = Cluster::new(Ipv4Addr::new(192, 168, 9, 1), LOCAL_MTU, &members)?;
        let dataplane = ours::open(&self.namespace, 1, 1, &cluster)?;
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
    ifindex: u32,
    frame: Vec<u8>,
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
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(from.mac, GATEWAY_MAC)
            .ipv4(from.address.octets(), to.address.octets(), 64)
            .udp(source, destination)
            .write(&mut frame, &PAYLOAD)
            .map_err(|error| Error::NotOurs(format!("building a packet: {error}")))?;
        Ok(Packet { ifindex, frame })
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

/// Runs a program that looks at nothing on the same packet.
pub(super) fn run_empty(program: BorrowedFd<'_>, packet: &Packet, repeat: u32) -> Result<Duration> {
    Ok(kernel::test_run(program, packet.ifindex, &packet.frame, repeat)?.1)
}
