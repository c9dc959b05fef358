//! Nothing of one tenant reaches another: hand-made frames from every Pod towards addresses that only the other tenant
//! has, and from the underlay; each with the same frame where it must pass.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/wire.rs"]
mod wire;

use common::{Lab, pod, text};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;
use wire::{Kind, Party, Watch};

/// How long after the last frame one that got through may still be on its way.
const LINGER: Duration = Duration::from_millis(1500);

const TENANTS: [&str; 2] = ["red", "blue"];
const SUBNETS: [&str; 2] = ["a", "b"];
const NODES: [u8; 2] = [1, 2];
const VXLAN_PORT: u16 = 4789;

/// A Pod as frames see it.
#[derive(Debug, Clone)]
struct Target {
    name: String,
    tenant: &'static str,
    subnet: usize,
    node: u8,
    party: Party,
    netns: PathBuf,
}

impl Target {
    fn gateway_mac(&self) -> [u8; 6] {
        [2, 0, 0x0a, 0, self.subnet as u8 + 1, 1]
    }

    fn vni(&self) -> u32 {
        (if self.tenant == "red" { 200 } else { 300 }) + self.subnet as u32 + 1
    }
}

/// Two tenants, and beside their Pods of equal addresses one Pod a tenant, node and Subnet whose address the other
/// tenant does not have.
struct Scene {
    lab: Lab,
    pods: Vec<Target>,
}

impl Scene {
    fn new(name: &str) -> Self {
        let lab = Lab::two_tenants(name);
        let mut manifests = Vec::new();
        for (index, tenant) in TENANTS.into_iter().enumerate() {
            for (number, subnet) in SUBNETS.into_iter().enumerate() {
                for node in NODES {
                    let address = format!("10.0.{}.{}", number + 1, 100 + 50 * index as u8 + node);
                    let (name, subnet) = (format!("only-{subnet}{node}"), format!("{tenant}-{subnet}"));
                    let uid = format!("u-{tenant}-{name}");
                    manifests.push(pod(tenant, &name, &format!("node-{node}"), &subnet, &address, &uid));
                }
            }
        }
        lab.apply(&manifests.join("---\n"));
        let status = lab.status();
        let mut pods = Vec::new();
        for tenant in TENANTS {
            for (subnet, letter) in SUBNETS.into_iter().enumerate() {
                for node in NODES {
                    for name in [format!("{tenant}/{letter}{node}"), format!("{tenant}/only-{letter}{node}")] {
                        let attached = &status["pods"][&name]["attached"];
                        let address = attached["address"].as_str().unwrap_or_else(|| panic!("{name}: {status:#}"));
                        let netns = lab.dir().join("netns").join(name.replace('/', "_"));
                        let ip = address.split('/').next().unwrap().parse().unwrap();
                        let party = Party { mac: wire::mac(&netns, "eth0"), ip };
                        pods.push(Target { name, tenant, subnet, node, party, netns });
                    }
                }
            }
        }
        Self { lab, pods }
    }

    /// Those with addresses that both tenants have, or those with addresses that only their own has.
    fn of(&self, tenant: &str, only: bool) -> impl Iterator<Item = &Target> {
        let is = move |pod: &&Target| pod.tenant == tenant && pod.name.contains("only") == only;
        self.pods.iter().filter(is)
    }

    fn watch(&self) -> Watch {
        Watch::start(&self.pods.iter().map(|pod| (pod.name.clone(), pod.netns.clone())).collect())
    }
}

/// The frames of one kind from a Pod to another. `foreign` is an address of the other's tenant.
fn frames(kind: Kind, from: &Target, to: &Target, foreign: Ipv4Addr, number: u32) -> Vec<Vec<u8>> {
    let mark = wire::mark(number);
    let (party, ip) = (from.party, to.party.ip);
    let mac = if from.subnet == to.subnet { to.party.mac } else { from.gateway_mac() };
    // A flow of its own each.
    let port = 10_000 + (number % 50_000) as u16;
    match kind {
        Kind::Icmp => vec![wire::echo_request(party, mac, ip, port, &mark)],
        Kind::Tcp => vec![wire::tcp_syn(party, mac, ip, port, &mark)],
        Kind::Udp => vec![wire::udp(party, mac, ip, (port, 9), &mark)],
        Kind::Arp => vec![wire::arp_request(party, ip, &mark)],
        Kind::Fragments => wire::fragments(party, mac, ip, (port, 9), port, &mark),
        Kind::Vlan => vec![wire::tagged_udp(party, mac, ip, (port, 9), &mark)],
        Kind::SpoofedSource => vec![wire::udp(Party { ip: foreign, ..party }, mac, ip, (port, 9), &mark)],
        Kind::ForgedVxlan => {
            let inner = wire::udp(Party { ip: foreign, mac: to.gateway_mac() }, to.party.mac, ip, (port, 9), &mark);
            let vtep = Ipv4Addr::new(192, 168, 77, 10 + to.node);
            let outer = wire::vxlan(to.vni(), &inner);
            vec![wire::udp(party, from.gateway_mac(), vtep, (port, VXLAN_PORT), &outer)]
        }
    }
}

/// What is known of a frame that was sent.
#[derive(Debug)]
struct Sent {
    kind: Kind,
    from: String,
    to: String,
    same_subnet: bool,
    inside: bool,
}

#[test]
fn no_frame_of_one_tenant_reaches_the_other() {
    let scene = Scene::new("isolation");
    let watch = scene.watch();
    let mut sent: BTreeMap<u32, Sent> = BTreeMap::new();
    for tenant in TENANTS {
        for from in scene.of(tenant, false) {
            let mut all = Vec::new();
            for victim_tenant in TENANTS {
                let foreign = scene.of(victim_tenant, true).next().unwrap().party.ip;
                for to in scene.of(victim_tenant, true) {
                    for kind in Kind::ALL {
                        let number = sent.len() as u32;
                        all.extend(frames(kind, from, to, foreign, number));
                        let (same_subnet, inside) = (from.subnet == to.subnet, tenant == victim_tenant);
                        let (from, to) = (from.name.clone(), to.name.clone());
                        sent.insert(number, Sent { kind, from, to, same_subnet, inside });
                    }
                }
            }
            wire::send(&from.netns, "eth0", &all);
        }
    }
    assert_eq!(sent.len(), 2 * 4 * 2 * 4 * 8, "tenants, senders, tenants, targets, kinds");
    let seen = watch.finish(LINGER);
    let mut wrong = Vec::new();
    for (number, sent) in &sent {
        let reached: BTreeSet<&str> = seen
            .iter()
            .filter(|(name, seen)| **name != sent.from && seen.marks.contains(number))
            .map(|(name, _)| name.as_str())
            .collect();
        let passes = sent.inside && matches!(sent.kind, Kind::Icmp | Kind::Tcp | Kind::Udp | Kind::Fragments);
        let expected: BTreeSet<&str> = if passes { [sent.to.as_str()].into() } else { BTreeSet::new() };
        // ARP is answered in place, for the own tenant's addresses in the own Subnet.
        let answered = seen[&sent.from].arp_replies.contains(number);
        let answer = sent.kind == Kind::Arp && sent.inside && sent.same_subnet;
        if reached != expected || answered != answer {
            wrong.push(format!("{sent:?}: reached {reached:?}, ARP answered {answered}"));
        }
    }
    let drops = text(&scene.lab.exec("node-1", "juneau-agent drops"));
    assert!(wrong.is_empty(), "{} of {} wrong:\n{}\n{drops}", wrong.len(), sent.len(), wrong.join("\n"));
    for reason in ["vlan", "source-address", "no-endpoint", "no-route"] {
        assert!(drops.contains(reason), "no {reason} in\n{drops}");
    }
}

#[test]
fn equal_addresses_are_reached_within_the_own_tenant_alone() {
    let scene = Scene::new("equal-frames");
    let watch = scene.watch();
    let mut expected = BTreeMap::new();
    for tenant in TENANTS {
        for from in scene.of(tenant, false) {
            let mut all = Vec::new();
            for to in scene.of(tenant, false).filter(|to| to.name != from.name) {
                for kind in [Kind::Icmp, Kind::Tcp, Kind::Udp, Kind::Fragments] {
                    let number = expected.len() as u32;
                    all.extend(frames(kind, from, to, to.party.ip, number));
                    expected.insert(number, (from.name.clone(), to.name.clone(), kind));
                }
            }
            wire::send(&from.netns, "eth0", &all);
        }
    }
    let seen = watch.finish(LINGER);
    for (number, (from, to, kind)) in expected {
        let reached: Vec<&String> =
            seen.iter().filter(|(name, seen)| **name != from && seen.marks.contains(&number)).map(|(n, _)| n).collect();
        assert_eq!(reached, [&to], "{kind:?} of {from}");
    }
}

#[test]
fn vxlan_counts_from_known_nodes_only() {
    let scene = Scene::new("vxlan");
    let underlay = scene.lab.dir().join("netns/.underlay");
    let node = |node: u8| scene.lab.dir().join("netns").join(format!("node-{node}"));
    let vtep = |node: u8| Ipv4Addr::new(192, 168, 77, 10 + node);
    let watch = scene.watch();
    let mut sent = BTreeMap::new();
    for to in scene.pods.iter().filter(|pod| pod.name.contains("only")) {
        let peer = 3 - to.node;
        let sender = scene.of(to.tenant, false).find(|pod| pod.node == peer && pod.subnet == to.subnet).unwrap();
        let to_mac = wire::mac(&node(to.node), "eth0");
        for known in [false, true] {
            let number = sent.len() as u32;
            let port = 20_000 + number as u16;
            let inner = wire::udp(sender.party, to.party.mac, to.party.ip, (port, 9), &wire::mark(number));
            let (netns, device, ip) = match known {
                true => (node(peer), "eth0", vtep(peer)),
                false => (underlay.clone(), "underlay", Ipv4Addr::new(192, 168, 77, 99)),
            };
            let party = Party { mac: wire::mac(&netns, device), ip };
            let payload = wire::vxlan(to.vni(), &inner);
            wire::send(&netns, device, &[wire::udp(party, to_mac, vtep(to.node), (port, VXLAN_PORT), &payload)]);
            sent.insert(number, (known, to.name.clone()));
        }
    }
    let seen = watch.finish(LINGER);
    for (number, (known, to)) in sent {
        let reached: Vec<&String> =
            seen.iter().filter(|(_, seen)| seen.marks.contains(&number)).map(|(n, _)| n).collect();
        let expected: Vec<&String> = if known { vec![&to] } else { vec![] };
        assert_eq!(reached, expected, "to {to}, from a known node: {known}");
    }
    let drops = text(&scene.lab.exec("node-1", "juneau-agent drops"));
    assert!(drops.contains("vtep-unknown"), "{drops}");
}

#[test]
fn a_socket_of_a_node_cannot_inject_into_the_overlay() {
    let scene = Scene::new("inject");
    let to = scene.of("blue", true).find(|pod| pod.node == 2).unwrap();
    let sender = scene.of("blue", false).find(|pod| pod.node == 1 && pod.subnet == to.subnet).unwrap();
    let datagram = |number: u32| {
        let port = 30_000 + number as u16;
        wire::vxlan(to.vni(), &wire::udp(sender.party, to.party.mac, to.party.ip, (port, 9), &wire::mark(number)))
    };
    let write = |number: u32, port: u16| {
        let bytes: String = datagram(number).iter().map(|byte| format!("\\x{byte:02x}")).collect();
        // One write, one datagram.
        let once = "dd bs=4096 iflag=fullblock status=none";
        let script = format!("printf '{bytes}' | {once} > /dev/udp/192.168.77.12/{port}");
        scene.lab.run(&["exec", "node-1", "--", "bash", "-c", &script])
    };
    let watch = scene.watch();
    let refused = write(0, VXLAN_PORT);
    assert!(write(1, VXLAN_PORT + 1).status.success(), "any other port is free");
    // The same bytes from the same namespace and address, but from outside the node's control group, arrive: what
    // holds the first one back is the program there, and not the datagram.
    let netns = scene.lab.dir().join("netns/node-1");
    juneau_lab::namespace::within(&netns, || {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.send_to(&datagram(2), ("192.168.77.12", VXLAN_PORT)).unwrap();
        Ok(())
    })
    .unwrap();
    let seen = watch.finish(LINGER);
    assert!(text(&refused).contains("Operation not permitted"), "{}", text(&refused));
    assert_eq!(seen[&to.name].marks, BTreeSet::from([2]));
    let drops = text(&scene.lab.exec("node-1", "juneau-agent drops"));
    assert!(drops.contains("vxlan-injection"), "{drops}");
}
