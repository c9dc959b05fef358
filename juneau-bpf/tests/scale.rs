//! Many tenants on one node: 1 000 VPCs of 10 endpoints and 20 routes each, all with the same prefixes, addresses, MAC
//! addresses and ports, in the kernel's tables at once.
//!
//! Two endpoints of 100 VPCs have devices with programs attached; with `JUNEAU_LONG=1` two of all 1 000.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};

use common::{Sandbox, VTEP, ifindex, sandbox};
use etherparse::PacketBuilder;
use juneau_bpf::{Dataplane, PrivateLoad, TestPacket};
use juneau_core::compile::{NodeContext, compile};
use juneau_core::flow::FlowRead;
use juneau_core::id::{Identity, IfIndex, MacAddr, TableId, Vni, VpcId};
use juneau_core::layout::INTERFACES;
use juneau_core::model::{
    Attachment, Attachments, Endpoint, EndpointKind, Model, Node, Route, RouteTable, RouteTarget, Subnet, Vpc,
};
use juneau_core::tables::{Diff, Table, Tables, TablesMut};
use juneau_core::verdict::{Action, Hook, Reason};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, recvfrom, sendto, setsockopt, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

const VPCS: u32 = 1000;
const ENDPOINTS: u8 = 10;
const ROUTES: u8 = 20;
/// Flows of each VPC that sends.
const FLOWS: u8 = 10;
/// Length of the tests' frames.
const FRAME: usize = 14 + 20 + 8 + 4;

/// VPCs whose first two endpoints have devices.
fn live() -> u32 {
    if std::env::var_os("JUNEAU_LONG").is_some_and(|value| value == "1") { VPCS } else { 100 }
}

/// A VPC: its number, and the prefix of its only Subnet, a /24.
#[derive(Clone, Copy)]
struct Tenant {
    number: u32,
    base: Ipv4Addr,
}

impl Tenant {
    /// One of the many that have everything in common.
    fn of(number: u32) -> Self {
        Self { number, base: Ipv4Addr::new(10, 0, 1, 0) }
    }

    fn id(self) -> u32 {
        self.number + 2
    }

    fn address(self, endpoint: u8) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base.to_bits() + 10 + u32::from(endpoint))
    }

    /// The prefix of a route, and the endpoint that it leads to: another one in the neighbouring VPC.
    fn route(self, route: u8) -> (Ipv4Addr, u8) {
        (Ipv4Addr::new(10, 100 + route, 0, 0), 1 + ((self.number + u32::from(route)) % 9) as u8)
    }

    /// The prefix whose target does not exist.
    fn gone(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, 0, 0)
    }

    fn name(self, endpoint: u8) -> String {
        format!("v{}/p{endpoint}.eth0", self.number)
    }

    fn describe(self, model: &mut Model) {
        let (vpc, vni, table) =
            (VpcId::new(self.id()).unwrap(), Vni::new(self.id()).unwrap(), TableId::new(self.id()).unwrap());
        let (name, origin) = (format!("v{}", self.number), String::new());
        let prefix = format!("{}/24", self.base).parse().unwrap();
        model.vpcs.insert(vpc, Vpc { id: vpc, name: name.clone(), origin: origin.clone() });
        let subnet = Subnet {
            vni,
            name: name.clone(),
            vpc,
            prefix,
            gateway: Ipv4Addr::from_bits(self.base.to_bits() + 1).into(),
            gateway_mac: MacAddr::new(GATEWAY_MAC).unwrap(),
            table: Some(table),
            origin: origin.clone(),
        };
        model.subnets.insert(vni, subnet);
        let mut routes = vec![Route { prefix, target: RouteTarget::Connected(vni) }];
        for route in 0..ROUTES - 2 {
            let (prefix, next_hop) = self.route(route);
            let target = RouteTarget::Endpoint(self.address(next_hop).into());
            routes.push(Route { prefix: format!("{prefix}/16").parse().unwrap(), target });
        }
        let prefix = format!("{}/16", self.gone()).parse().unwrap();
        routes.push(Route { prefix, target: RouteTarget::Gone("it was removed".into()) });
        model.tables.insert(table, RouteTable { id: table, name, vpc, routes, origin: origin.clone() });
        for number in 0..ENDPOINTS {
            let address = self.address(number).into();
            let endpoint = Endpoint {
                name: self.name(number),
                vpc,
                subnet: vni,
                address,
                mac: MacAddr::new(mac(number)).unwrap(),
                node: "here".into(),
                identity: Identity::NO_GROUPS,
                policy_ready: true,
                kind: EndpointKind::Pod,
                pod: self.name(number),
                origin: origin.clone(),
            };
            model.endpoints.insert((vpc, address), endpoint);
        }
    }

    /// A datagram from the first endpoint whose payload is the VPC's number.
    fn frame(self, destination: Ipv4Addr, destination_mac: [u8; 6], ports: (u16, u16)) -> Vec<u8> {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(mac(0), destination_mac)
            .ipv4(self.address(0).octets(), destination.octets(), 64)
            .udp(ports.0, ports.1)
            .write(&mut frame, &self.number.to_be_bytes())
            .unwrap();
        assert_eq!(frame.len(), FRAME);
        frame
    }

    /// A flow's packet and the endpoint that it shall reach: nine go to an endpoint each, one by a route.
    fn flow(self, flow: u8) -> (Vec<u8>, u8) {
        let ports = (1000 + u16::from(flow), 53);
        if flow < ENDPOINTS - 1 {
            let to = 1 + flow;
            return (self.frame(self.address(to), mac(to), ports), to);
        }
        let (prefix, to) = self.route((self.number % u32::from(ROUTES - 2)) as u8);
        (self.frame(Ipv4Addr::from_bits(prefix.to_bits() + 5), GATEWAY_MAC, ports), to)
    }
}

const GATEWAY_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn mac(endpoint: u8) -> [u8; 6] {
    [2, 0, 0, 0, 1, endpoint]
}

/// A node with tenants, whose first two endpoints have devices in as many as are asked for.
struct Host {
    dataplane: Dataplane,
    model: Model,
    context: NodeContext,
    attachments: Attachments,
    /// What the kernel's tables hold.
    tables: Tables,
    pods: Net,
}

/// A network namespace.
struct Net(File);

impl Net {
    fn current() -> Self {
        Self(File::open("/proc/thread-self/ns/net").unwrap())
    }

    fn new() -> Self {
        let thread = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            Self::current()
        });
        thread.join().unwrap()
    }

    fn enter<R>(&self, action: impl FnOnce() -> R) -> R {
        let outside = Self::current();
        setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
        let result = action();
        setns(&outside.0, CloneFlags::CLONE_NEWNET).unwrap();
        result
    }
}

fn ip_batch(commands: &str) {
    let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    ip.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    assert!(ip.wait().unwrap().success());
}

fn without_ipv6() {
    // Where there is none, there is nothing to turn off.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
}

/// The device of one of the first two endpoints, on the host and in the Pods' namespace.
fn device(tenant: Tenant, endpoint: u8) -> String {
    format!("v{}p{endpoint}", tenant.number)
}

impl Host {
    fn new(sandbox: &Sandbox, vtep: Ipv4Addr, tenants: &[Tenant], with_devices: usize) -> Self {
        let pods = Net::new();
        without_ipv6();
        let path = format!("/proc/{}/fd/{}", std::process::id(), pods.0.as_raw_fd());
        let (mut outside, mut inside) = (String::new(), String::new());
        for tenant in &tenants[..with_devices] {
            for name in [device(*tenant, 0), device(*tenant, 1)] {
                let _ =
                    write!(outside, "link add {name} type veth peer name {name} netns {path}\nlink set {name} up\n");
                let _ = writeln!(inside, "link set {name} up");
            }
        }
        pods.enter(without_ipv6);
        ip_batch(&outside);
        pods.enter(|| ip_batch(&inside));

        let mut model = Model::default();
        model.nodes.insert("here".into(), Node { internal_ip: vtep.into(), origin: String::new() });
        let mut attachments = Attachments::new();
        // Of what has no device, the numbers are far from those that devices get here.
        let mut number = 100_000;
        for (place, tenant) in tenants.iter().enumerate() {
            tenant.describe(&mut model);
            for endpoint in 0..ENDPOINTS {
                number += 1;
                let has_device = place < with_devices && endpoint < 2;
                let ifindex = if has_device { ifindex(&device(*tenant, endpoint)) } else { number };
                let attachment = Attachment {
                    ifindex: IfIndex::new(ifindex).unwrap(),
                    host_mac: MacAddr::new([2, 0, 0, 0, 2, 0]).unwrap(),
                    container_id: String::new(),
                };
                attachments.insert(tenant.name(endpoint), attachment);
            }
        }
        let mut options = sandbox.options();
        options.test_clock = true;
        options.node.vtep = vtep;
        let sizes = &mut options.sizes;
        for size in [&mut sizes.endpoints, &mut sizes.macs, &mut sizes.interfaces_high, &mut sizes.segments] {
            *size = Some(16_384);
        }
        (sizes.routes, sizes.flows) = (Some(32_768), Some(65_536));
        let dataplane = Dataplane::open(options).unwrap();
        dataplane.hot().unwrap().set_clock(1000).unwrap();
        let context = NodeContext::new("here", vtep, 1500);
        let mut host = Self { dataplane, model, context, attachments, tables: Tables::default(), pods };
        host.program();
        host
    }

    /// Brings the tables to what the model says; returns the elements that changed, by table.
    fn program(&mut self) -> Vec<usize> {
        self.context.vpc_indices = juneau_core::compile::vpc_indices(&self.tables);
        let (wanted, problems) = compile(&self.model, &self.context, &self.attachments);
        assert_eq!(problems, []);
        let diff = Diff::between(&self.tables, &wanted);
        self.dataplane.tables().unwrap().apply_diff(&diff).unwrap();
        self.dataplane.generations().unwrap().advance(diff.generations.iter().copied()).unwrap();
        self.tables = wanted;
        Table::ALL.iter().map(|table| diff.changes.iter().filter(|change| change.table() == *table).count()).collect()
    }

    fn ifindex(&self, tenant: Tenant, endpoint: u8) -> u32 {
        self.attachments[&tenant.name(endpoint)].ifindex.get()
    }

    /// The number of a tenant on this node.
    fn index(&self, tenant: Tenant) -> u16 {
        let found = self.tables.vpcs.iter().find(|(_, record)| record.vpc == tenant.id());
        (*found.unwrap().0).try_into().unwrap()
    }

    /// One packet of each flow of a tenant; every one must reach its endpoint of that tenant. Returns how many were
    /// decided anew.
    #[track_caller]
    fn flows(&self, load: &PrivateLoad, tenant: Tenant) -> usize {
        let from = self.ifindex(tenant, 0);
        let mut slow = 0;
        for number in 0..FLOWS {
            let (frame, to) = tenant.flow(number);
            let run = load.run(Hook::Pod, &TestPacket::new(from, &frame)).unwrap();
            let verdict = run.verdict.decode().unwrap();
            assert_eq!(
                (verdict.action, verdict.reason, verdict.ifindex),
                (Action::Peer, Reason::Ok, self.ifindex(tenant, to)),
                "flow {number} of VPC {}",
                tenant.number
            );
            assert_eq!(run.packet[..6], mac(to));
            slow += usize::from(verdict.slow);
        }
        slow
    }

    /// Packets and bytes that each tenant sent, by its number on the node.
    fn sent(&self) -> Vec<(u16, u64, u64)> {
        let traffic = self.dataplane.counters().unwrap().traffic().unwrap();
        assert!(traffic.iter().all(|count| count.from_overlay.packets == 0));
        traffic.iter().map(|count| (count.vpc_index, count.from_pod.packets, count.from_pod.bytes)).collect()
    }

    /// What `sent` is when each of these sent as many packets.
    fn expected(&self, tenants: &[Tenant], packets: u64) -> Vec<(u16, u64, u64)> {
        let mut all: Vec<_> =
            tenants.iter().map(|tenant| (self.index(*tenant), packets, packets * FRAME as u64)).collect();
        all.sort_unstable();
        all
    }

    /// What was not delivered, with its reason.
    fn exits(&self) -> Vec<(Reason, bool, u64)> {
        let exits = self.dataplane.counters().unwrap().exits().unwrap();
        exits.iter().map(|exit| (exit.reason, exit.answered, exit.packets)).collect()
    }

    /// Connections of a tenant.
    fn connections(&self, tenant: Tenant) -> i64 {
        self.dataplane.flows().unwrap().vpc_state(self.index(tenant)).unwrap().flows
    }
}

#[test]
fn a_thousand_tenants_with_the_same_addresses_on_one_node() {
    sandbox(|sandbox| {
        let tenants: Vec<Tenant> = (0..VPCS).map(Tenant::of).collect();
        let live = &tenants[..live() as usize];
        let mut host = Host::new(&sandbox, VTEP, &tenants, live.len());
        let lengths: Vec<usize> = Table::ALL.iter().map(|table| host.tables.len(*table)).collect();
        let endpoints = VPCS as usize * usize::from(ENDPOINTS);
        let routes = VPCS as usize * usize::from(ROUTES);
        assert_eq!(lengths, [VPCS as usize, 2, 0, VPCS as usize, endpoints, endpoints, 0, 0, 0, routes, endpoints]);
        assert_eq!(host.dataplane.tables().unwrap().snapshot().unwrap(), host.tables);
        assert!(host.tables.interfaces.keys().any(|ifindex| *ifindex >= INTERFACES));

        // Every flow is decided once and found the second time, though all tenants have the same ones.
        let load = host.dataplane.test_load().unwrap();
        let each = usize::from(FLOWS);
        for tenant in live {
            assert_eq!(host.flows(&load, *tenant), each, "VPC {} has flows already", tenant.number);
        }
        for tenant in live {
            assert_eq!(host.flows(&load, *tenant), 0, "VPC {} lost a flow", tenant.number);
        }
        assert_eq!(host.dataplane.flows().unwrap().len().unwrap(), 2 * each * live.len());
        for (number, tenant) in tenants.iter().enumerate() {
            let connections = if number < live.len() { i64::from(FLOWS) } else { 0 };
            assert_eq!(host.connections(*tenant), connections, "VPC {number}");
        }
        assert_eq!(host.sent(), host.expected(live, 2 * each as u64));
        assert_eq!(host.exits(), []);

        // The route whose target is gone, once in each.
        for tenant in live {
            let frame = tenant.frame(Ipv4Addr::from_bits(tenant.gone().to_bits() + 5), GATEWAY_MAC, (9, 9));
            load.run(Hook::Pod, &TestPacket::new(host.ifindex(*tenant, 0), &frame)).unwrap();
        }
        assert_eq!(host.exits(), [(Reason::RouteUnreachable, true, live.len() as u64)]);
        assert_eq!(host.sent(), host.expected(live, 2 * each as u64));

        // Real packets through real devices: each arrives at the device of its own tenant, and nowhere else.
        for tenant in live {
            for endpoint in 0..2 {
                let name = device(*tenant, endpoint);
                host.dataplane.attach_pod(&name, ifindex(&name)).unwrap();
            }
        }
        let wire = Wire::new(&host.pods);
        for tenant in live {
            let (frame, to) = tenant.flow(0);
            assert_eq!(to, 1);
            wire.send(&device(*tenant, 0), &frame);
            assert_eq!(wire.receive(), (device(*tenant, 1), tenant.number));
        }
        assert_eq!(host.sent(), host.expected(live, 2 * each as u64 + 1));

        // A tenant leaves: what was its, all of it and nothing else, goes, and the others do not notice.
        let [gone, rest @ ..] = live else { panic!("no tenants") };
        let index = host.index(*gone);
        host.model.endpoints.retain(|(vpc, _), _| vpc.get() != gone.id());
        (0..ENDPOINTS).for_each(|endpoint| drop(host.attachments.remove(&gone.name(endpoint))));
        assert_eq!(host.program(), [1, 0, 0, 1, 10, 10, 0, 0, 0, 20, 10]);
        let frame = gone.flow(0).0;
        let orphan = load.run(Hook::Pod, &TestPacket::new(ifindex(&device(*gone, 0)), &frame)).unwrap();
        assert_eq!(orphan.verdict.decode().unwrap().reason, Reason::NoInterface);
        for tenant in rest {
            host.flows(&load, *tenant);
            assert_eq!(host.connections(*tenant), i64::from(FLOWS));
        }
        let mut sent = host.expected(rest, 3 * each as u64 + 1);
        let before = 2 * each as u64 + 1;
        sent.push((index, before, before * FRAME as u64));
        sent.sort_unstable();
        assert_eq!(host.sent(), sent);
    });
}

/// Ranges that a cluster, its nodes or its underlay use are a tenant's to use as well.
#[test]
fn a_tenants_range_may_be_any_of_ours() {
    sandbox(|sandbox| {
        // Shared address space, Services, the underlay of this very node, Pods of the default network.
        let bases = [[100, 64, 0, 0], [10, 96, 0, 0], [192, 0, 2, 0], [10, 244, 0, 0]];
        let tenants: Vec<Tenant> =
            (0..).zip(bases).map(|(number, base)| Tenant { number, base: base.into() }).collect();
        // A Pod of the third has the node's own address.
        let vtep = Ipv4Addr::new(192, 0, 2, 11);
        assert_eq!(tenants[2].address(1), vtep);
        let host = Host::new(&sandbox, vtep, &tenants, tenants.len());
        let load = host.dataplane.test_load().unwrap();
        for tenant in &tenants {
            assert_eq!(host.flows(&load, *tenant), usize::from(FLOWS));
        }
        assert_eq!(host.exits(), []);
        assert_eq!(host.sent(), host.expected(&tenants, FLOWS.into()));
    });
}

/// A socket that sends by and hears every device of the Pods' namespace.
struct Wire {
    socket: OwnedFd,
    devices: Vec<(String, LinkAddr)>,
}

impl Wire {
    fn new(pods: &Net) -> Self {
        let (socket, devices) = pods.enter(|| {
            let all = SockProtocol::EthAll;
            let socket =
                nix::sys::socket::socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), all).unwrap();
            let devices = nix::ifaddrs::getifaddrs().unwrap();
            let devices = devices.filter_map(|d| Some((d.interface_name, *d.address?.as_link_addr()?))).collect();
            (socket, devices)
        });
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::seconds(20)).unwrap();
        Self { socket, devices }
    }

    fn send(&self, device: &str, frame: &[u8]) {
        let (_, address) = self.devices.iter().find(|(name, _)| name == device).unwrap();
        assert_eq!(sendto(self.socket.as_raw_fd(), frame, address, MsgFlags::empty()).unwrap(), frame.len());
    }

    /// The device at which the next datagram arrives, and the tenant that its payload names.
    fn receive(&self) -> (String, u32) {
        /// `PACKET_OUTGOING`: what the namespace's own devices send is heard as well.
        const OUTGOING: u8 = 4;
        let mut frame = [0; 2048];
        loop {
            let (length, from) = recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut frame).unwrap();
            let from = from.unwrap();
            if from.pkttype() == OUTGOING || length != FRAME || frame[12..14] != [8, 0] {
                continue;
            }
            let payload = frame[FRAME - 4..FRAME].try_into().unwrap();
            let device = self.devices.iter().find(|(_, address)| address.ifindex() == from.ifindex()).unwrap();
            return (device.0.clone(), u32::from_be_bytes(payload));
        }
    }
}
