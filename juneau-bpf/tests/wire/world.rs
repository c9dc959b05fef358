//! Two nodes on an underlay and Pods on each, all of them network namespaces of this process, with the programs
//! attached to real devices.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use juneau_bpf::{Dataplane, NodeConfig};
use juneau_core::layout::*;
use juneau_core::tables::{Diff, Tables, TablesMut};
use juneau_core::testkit::services;
use nix::sched::{CloneFlags, setns, unshare};

use crate::common::{Sandbox, ifindex, ip};

pub const VPC: u32 = 5;
pub const VPC_INDEX: u16 = 3;
pub const VTEPS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
pub const UNDERLAY_MTU: u16 = 1500;

/// A network namespace, as long as it is held.
pub struct Net(File);

impl Net {
    pub fn current() -> Self {
        Self(File::open("/proc/thread-self/ns/net").unwrap())
    }

    fn new() -> Self {
        std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            Self::current()
        })
        .join()
        .unwrap()
    }

    /// Runs `action` inside.
    pub fn enter<R>(&self, action: impl FnOnce() -> R) -> R {
        let outside = Self::current();
        setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
        let result = action();
        setns(&outside.0, CloneFlags::CLONE_NEWNET).unwrap();
        result
    }

    /// For arguments of `ip`.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

pub struct Node {
    pub net: Net,
    pub dataplane: Dataplane,
}

pub struct Pod {
    pub net: Net,
    pub node: usize,
    /// The host's end.
    pub host: String,
    pub ifindex: u32,
    pub address: Ipv4Addr,
    pub mac: [u8; 6],
    vni: u32,
}

impl Pod {
    pub fn gateway(&self) -> Ipv4Addr {
        let [a, b, c, _] = self.address.octets();
        Ipv4Addr::new(a, b, c, 1)
    }

    pub fn gateway_mac(&self) -> [u8; 6] {
        [2, 0xee, 0, 0, 0, self.vni as u8]
    }
}

/// Pods 0 and 1 are on the first node, 2 and 3 on the second; 3 is in a Subnet of its own.
pub struct World {
    pub nodes: [Node; 2],
    pub pods: Vec<Pod>,
    /// What the underlay carries, as the nodes believe.
    pub believed_mtu: u16,
    /// A TCP port that nobody may reach.
    pub closed_port: Option<u16>,
    /// Services of the VPC, at addresses of [`services::RANGE`].
    pub services: Vec<services::Port>,
}

/// What the nodes are joined by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Underlay {
    /// A veth, which hands over what is pending.
    Veth,
    /// A tunnel with checksums of its own, over a veth named `wire` that has no offloads.
    Tunnel,
}

pub fn world(sandbox: &Sandbox) -> World {
    world_over(sandbox, Underlay::Veth)
}

pub fn world_over(sandbox: &Sandbox, underlay: Underlay) -> World {
    let nets = [Net::current(), Net::new()];
    let name = if underlay == Underlay::Veth { "underlay" } else { "wire" };
    ip(&format!("link add {name} type veth peer name other"));
    ip(&format!("link set other netns {} name {name}", nets[1].path()));
    if underlay == Underlay::Tunnel {
        for (index, net) in nets.iter().enumerate() {
            net.enter(|| tunnel(index));
        }
    }
    let nodes = nets.into_iter().enumerate().map(|(index, net)| node(sandbox, index, net));
    let nodes: [Node; 2] = nodes.collect::<Vec<_>>().try_into().ok().unwrap();
    let places = [(0, [10, 0, 1, 2]), (0, [10, 0, 1, 3]), (1, [10, 0, 1, 4]), (1, [10, 0, 2, 5])];
    let pods = places
        .iter()
        .enumerate()
        .map(|(index, (node, address))| pod(&nodes[*node], *node, index, Ipv4Addr::from(*address)));
    let world =
        World { pods: pods.collect(), nodes, believed_mtu: UNDERLAY_MTU, closed_port: None, services: Vec::new() };
    world.program();
    for pod in &world.pods {
        let node = &world.nodes[pod.node];
        node.net.enter(|| node.dataplane.attach_pod(&pod.host, pod.ifindex)).unwrap();
    }
    world
}

fn tunnel(index: usize) {
    let address = |index: usize| Ipv4Addr::new(198, 51, 100, index as u8 + 1);
    ip(&format!("addr add {}/24 dev wire", address(index)));
    ip(&format!("link set wire mtu {} up", UNDERLAY_MTU + 50));
    let (local, remote) = (address(index), address(1 - index));
    ip(&format!("link add underlay type vxlan id 1 local {local} remote {remote} dstport 4790 udpcsum"));
    crate::offloads(&Net::current(), "wire", false);
    // What is put together has sums of another kind.
    crate::offloads(&Net::current(), "underlay", false);
}

fn node(sandbox: &Sandbox, index: usize, net: Net) -> Node {
    let dataplane = net.enter(|| {
        ip("link set lo up");
        ip(&format!("addr add {}/24 dev underlay", VTEPS[index]));
        ip(&format!("link set underlay mtu {UNDERLAY_MTU} up"));
        ip("link add jn-vxlan type vxlan external dstport 4789");
        ip("link set jn-vxlan up");
        let mut options = sandbox.options();
        options.pin_root = sandbox.bpffs.join(format!("node{index}"));
        options.node = NodeConfig {
            vtep: VTEPS[index],
            underlay_ifindex: ifindex("underlay"),
            vxlan_ifindex: ifindex("jn-vxlan"),
            vxlan_port: 4789,
        };
        let dataplane = Dataplane::open(options).unwrap();
        dataplane.attach_underlay(ifindex("underlay")).unwrap();
        dataplane.attach_vxlan(ifindex("jn-vxlan")).unwrap();
        dataplane
    });
    Node { net, dataplane }
}

fn pod(node: &Node, node_index: usize, index: usize, address: Ipv4Addr) -> Pod {
    let net = Net::new();
    let host = format!("pod{index}");
    let mac = [2, 0xaa, 0, 0, 0, index as u8];
    let text = mac.map(|byte| format!("{byte:02x}")).join(":");
    let ifindex = node.net.enter(|| {
        ip(&format!("link add {host} type veth peer name eth0 address {text} netns {}", net.path()));
        ip(&format!("link set {host} up"));
        ifindex(&host)
    });
    let pod = Pod { net, node: node_index, host, ifindex, address, mac, vni: 100 + u32::from(address.octets()[2]) };
    pod.net.enter(|| {
        ip("link set lo up");
        ip(&format!("addr add {address}/24 dev eth0"));
        ip(&format!("link set eth0 mtu {} up", UNDERLAY_MTU - 50));
        ip(&format!("route add default via {}", pod.gateway()));
    });
    pod
}

impl World {
    /// Writes what both nodes know.
    pub fn program(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            let wanted = self.tables(index);
            let mut tables = node.dataplane.tables().unwrap();
            let diff = Diff::between(&tables.snapshot().unwrap(), &wanted);
            tables.apply_diff(&diff).unwrap();
            node.dataplane.generations().unwrap().advance(diff.generations).unwrap();
        }
    }

    fn tables(&self, here: usize) -> Tables {
        let mut tables = Tables::default();
        let vpc = Vpc { vpc: VPC, flow_limit: 1000, embryonic_limit: 1000, icmp_limit: 100 };
        tables.vpcs.insert(VPC_INDEX.into(), vpc);
        for direction in [EGRESS, INGRESS] {
            let key = PolicyKey { identity: 1, policy: 2, peer: IDENTITY_ANY, direction, ..PolicyKey::default() };
            tables.policies.insert(key, Policy { action: POLICY_ALLOW, rule: 7 });
        }
        if let Some(port) = self.closed_port {
            for direction in [EGRESS, INGRESS] {
                let port = port.into();
                let (identity, policy, peer) = (1, 2, IDENTITY_ANY);
                let key = PolicyKey { identity, policy, peer, direction, protocol: 6, port };
                tables.policies.insert(key, Policy { action: POLICY_DENY, rule: 8 });
            }
        }
        let other = be32(VTEPS[1 - here]);
        tables.vteps.insert(other, Vtep { next_hop: other, mtu: self.believed_mtu, zero: 0 });
        for pod in &self.pods {
            self.pod_tables(here, pod, &mut tables);
        }
        let route = Route { kind: ROUTE_SERVICE, ..Route::default() };
        tables.routes.insert(RouteKey::new(9, services::RANGE, 16), route);
        services::add(&mut tables, &self.services);
        tables
    }

    fn pod_tables(&self, here: usize, pod: &Pod, tables: &mut Tables) {
        let local = pod.node == here;
        let address = be32(pod.address);
        let (gateway, gateway_mac) = (be32(pod.gateway()), pod.gateway_mac());
        let mtu = UNDERLAY_MTU - 50;
        let generation = endpoint_generation(VPC, address);
        let route = Route { kind: ROUTE_CONNECTED, vni: pod.vni, ..Route::default() };
        tables.routes.insert(RouteKey::new(9, pod.address, 24), route);
        tables.endpoints.insert(
            EndpointKey { vpc: VPC, address },
            Endpoint {
                flags: EP_POLICY_READY | if local { EP_LOCAL } else { 0 },
                ifindex: if local { pod.ifindex } else { 0 },
                vtep: be32(if local { Ipv4Addr::UNSPECIFIED } else { VTEPS[pod.node] }),
                vni: pod.vni,
                mac: pod.mac,
                gateway_mac,
                mtu,
                kind: KIND_POD,
                identity: 1,
                policy: 2,
                generation,
                table: 9,
                ..Endpoint::default()
            },
        );
        if !local {
            return;
        }
        tables.segments.insert(
            pod.vni,
            Segment { vpc: VPC, vpc_index: VPC_INDEX, mtu, gateway, gateway_mac, prefix_length: 24, zero: 0, table: 9 },
        );
        tables.macs.insert(MacKey::new(pod.vni, pod.mac), Mac { address, ifindex: pod.ifindex });
        tables.interfaces.insert(
            pod.ifindex,
            Interface {
                vpc: VPC,
                vni: pod.vni,
                table: 9,
                flags: EP_POLICY_READY,
                address,
                gateway,
                mac: pod.mac,
                gateway_mac,
                mtu,
                vpc_index: VPC_INDEX,
                kind: KIND_POD,
                prefix_length: 24,
                identity: 1,
                policy: 2,
                generation,
                ..Interface::default()
            },
        );
    }

    /// Without the VXLAN devices, what arrives went the fast way.
    pub fn vxlan_devices(&self, state: &str) {
        for node in &self.nodes {
            node.net.enter(|| ip(&format!("link set jn-vxlan {state}")));
        }
    }

    /// How often a node's packets left by the VXLAN device, by cause.
    pub fn devices(&self, node: usize, cause: u32) -> u64 {
        let counts = self.nodes[node].dataplane.counters().unwrap().devices().unwrap();
        counts.into_iter().find(|(found, _)| *found == cause).map_or(0, |(_, count)| count)
    }

    /// Exits of both nodes by reason's name.
    pub fn exits(&self, reason: juneau_core::verdict::Reason) -> u64 {
        let all = self.nodes.iter().flat_map(|node| node.dataplane.counters().unwrap().exits().unwrap());
        all.filter(|exit| exit.reason == reason).map(|exit| exit.packets).sum()
    }
}
