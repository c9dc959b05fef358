//! What stacks make of the network: sizes, errors, streams, next hops. Real sockets in real Pods.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Lab, eventually, pod, text};
use juneau_lab::namespace::within;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

const RESPONDER: u16 = 7777;
const PATIENCE: Duration = Duration::from_secs(5);

fn netns(lab: &Lab, name: &str) -> PathBuf {
    lab.dir().join("netns").join(name.replace('/', "_"))
}

fn ping(lab: &Lab, from: &str, arguments: &str) -> (bool, String) {
    let output = lab.exec(from, &format!("ping {arguments}"));
    (output.status.success(), text(&output))
}

/// Packets that a node's agent counted for a reason.
fn dropped(lab: &Lab, node: &str, reason: &str) -> u64 {
    let output = lab.exec(node, "juneau-agent drops -o json");
    let drops: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)));
    let of_reason = drops["drops"].as_array().unwrap().iter().filter(|drop| drop["reason"] == reason);
    of_reason.map(|drop| drop["packets"].as_u64().unwrap()).sum()
}

/// Sends a datagram of `size` bytes to a responder; whether its answer came.
fn datagram(lab: &Lab, from: &str, port: u16, to: &str, size: usize) -> Option<String> {
    within(&netns(lab, from), || {
        let socket = UdpSocket::bind(("0.0.0.0", port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = [0; 128];
        let sent = socket.send_to(&vec![b'x'; size], (to, RESPONDER));
        Ok(sent
            .and_then(|_| socket.recv(&mut answer))
            .ok()
            .map(|n| String::from_utf8_lossy(&answer[..n]).trim().to_owned()))
    })
    .unwrap()
}

#[test]
fn errors_come_from_the_tenants_gateway() {
    let lab = Lab::two_tenants("errors");
    let (_, routed) = ping(&lab, "red/a1", "-c 1 -W 2 -t 1 10.0.2.20");
    assert!(routed.contains("From 10.0.1.1 ") && routed.contains("Time to live exceeded"), "{routed}");
    assert!(ping(&lab, "red/a1", "-c 1 -W 2 -t 2 10.0.2.20").0, "two is enough: one router");
    assert!(ping(&lab, "red/a1", "-c 1 -W 2 -t 1 10.0.1.20").0, "in the same Subnet nothing is routed");
    let (_, nowhere) = ping(&lab, "red/a1", "-c 1 -W 2 192.0.2.1");
    assert!(nowhere.contains("From 10.0.1.1 ") && nowhere.contains("Net Unreachable"), "{nowhere}");
    let (_, nobody) = ping(&lab, "red/a1", "-c 1 -W 2 10.0.2.222");
    assert!(nobody.contains("From 10.0.1.1 ") && nobody.contains("Host Unreachable"), "{nobody}");
}

#[test]
fn what_is_too_large_is_told_and_learned() {
    let lab = Lab::two_tenants("mtu");
    for to in ["10.0.2.10", "10.0.2.20"] {
        // 1450 is the underlay's 1500 less 50; ICMP and IPv4 take 28.
        assert!(ping(&lab, "red/a1", &format!("-c 1 -W 2 -M do -s 1422 {to}")).0, "{to}");
    }
    // A Pod that does not believe its interface.
    assert!(lab.exec("red/a1", "ip link set eth0 mtu 9000").status.success());
    for to in ["10.0.2.10", "10.0.2.20"] {
        let (_, told) = ping(&lab, "red/a1", &format!("-c 1 -W 2 -M do -s 1423 {to}"));
        assert!(told.contains("From 10.0.1.1 ") && told.contains("mtu = 1450"), "{to}: {told}");
        let route = text(&lab.exec("red/a1", &format!("ip route get {to}")));
        assert!(route.contains("mtu 1450"), "the Pod's stack learns it: {route}");
    }
    // Without "don't fragment" it is cut on the way to another node, since nobody else can do it. (The other end of the
    // Pod's link takes four bytes more than its MTU, and drops what is larger still.)
    assert!(ping(&lab, "blue/a1", "-c 1 -W 2 10.0.2.20").0);
    assert!(lab.exec("blue/a1", "ip link set eth0 mtu 9000").status.success());
    assert!(
        ping(&lab, "blue/a1", "-c 1 -W 2 -M dont -s 1425 10.0.2.20").0,
        "{}",
        text(&lab.exec("node-1", "juneau-agent drops"))
    );
}

#[test]
fn datagrams_of_every_size_arrive_whole() {
    let lab = Lab::two_tenants("sizes");
    // Around one packet of the Pod's MTU (1450 less 28), of Ethernet's, and around a last fragment of one byte.
    let sizes = [0, 1, 1421, 1422, 1423, 1424, 1425, 1426, 1472, 1473, 1474, 1475, 1476, 1999];
    for (to, owner) in [("10.0.1.20", "red/a2"), ("10.0.2.10", "red/b1"), ("10.0.2.20", "red/b2")] {
        for (number, size) in sizes.into_iter().enumerate() {
            let answer = datagram(&lab, "red/a1", 20_000 + number as u16, to, size);
            assert_eq!(answer.as_deref(), Some(owner), "{size} bytes to {to}");
        }
    }
    for node in ["node-1", "node-2"] {
        assert_eq!(dropped(&lab, node, "malformed"), 0);
    }
}

/// Sends `length` bytes by TCP from one Pod to another; returns how many came, and whether all were right.
fn stream(lab: &Lab, from: &str, to: &str, address: Ipv4Addr, port: u16, length: usize) -> (usize, bool) {
    let byte = |at: usize| (at.wrapping_mul(2_654_435_761) >> 13) as u8;
    let listener = within(&netns(lab, to), || Ok(TcpListener::bind(("0.0.0.0", port)).unwrap())).unwrap();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE * 4)).unwrap();
            let (mut at, mut right, mut buffer) = (0, true, vec![0; 1 << 16]);
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                right &= buffer[..count].iter().enumerate().all(|(offset, found)| *found == byte(at + offset));
                at += count;
            }
            (at, right)
        });
        let mut sender = within(&netns(lab, from), || Ok(TcpStream::connect((address, port)).unwrap())).unwrap();
        let bytes: Vec<u8> = (0..length).map(byte).collect();
        sender.write_all(&bytes).unwrap();
        drop(sender);
        receiver.join().unwrap()
    })
}

/// A counter of /proc/net/snmp.
fn counter(lab: &Lab, name: &str, protocol: &str, field: &str) -> u64 {
    let output = lab.exec(name, "cat /proc/net/snmp");
    let text = text(&output);
    let mut lines = text.lines().filter(|line| line.starts_with(&format!("{protocol}: ")));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|name| name == field).unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

#[test]
fn streams_keep_their_bytes_with_and_without_offloads() {
    let lab = Lab::two_tenants("streams");
    let length = 24 << 20;
    for (round, offloads) in ["on", "off"].into_iter().enumerate() {
        if offloads == "off" {
            for name in ["red/a1", "red/b1", "red/b2", "node-1", "node-2"] {
                let output = lab.exec(name, "ethtool -K eth0 tx off rx off tso off gso off gro off");
                assert!(output.status.success(), "{name}: {}", text(&output));
            }
        }
        for (to, address, port) in
            [("red/b1", Ipv4Addr::new(10, 0, 2, 10), 5000), ("red/b2", Ipv4Addr::new(10, 0, 2, 20), 5001)]
        {
            let result = stream(&lab, "red/a1", to, address, port + 10 * round as u16, length);
            assert_eq!(result, (length, true), "to {to}, offloads {offloads}");
            let answer = datagram(&lab, "red/a1", 21_000 + round as u16, &address.to_string(), 1000);
            assert_eq!(answer.as_deref(), Some(to), "offloads {offloads}");
        }
    }
    for name in ["red/a1", "red/b1", "red/b2", "node-1", "node-2"] {
        for (protocol, field) in [("Tcp", "InCsumErrors"), ("Udp", "InCsumErrors"), ("Icmp", "InCsumErrors")] {
            assert_eq!(counter(&lab, name, protocol, field), 0, "{protocol} {field} of {name}");
        }
    }
    assert!(counter(&lab, "red/b2", "Tcp", "InSegs") > 100, "a positive control of the counters");
}

#[test]
fn ipv6_is_dropped_and_counted() {
    let lab = Lab::two_tenants("ipv6");
    lab.exec("red/a1", "sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0");
    let before = dropped(&lab, "node-1", "ipv6");
    lab.exec("red/a1", "ping -6 -c 3 -W 1 -I eth0 ff02::1");
    eventually("IPv6 is counted", PATIENCE, || dropped(&lab, "node-1", "ipv6") >= before + 3);
    assert!(ping(&lab, "red/a1", "-c 1 -W 2 10.0.2.20").0, "and IPv4 goes on");
}

/// A Subnet with a table of its own for a Pod that forwards, and red's table with the given routes beside the usual.
fn routes(more: &str) -> String {
    let connected: String = ["10.0.1.0/24, a", "10.0.2.0/24, b", "10.0.3.0/24, r"]
        .map(|route| route.split_once(", ").unwrap())
        .map(|(prefix, subnet)| format!("    - {{dst: {prefix}, via: {{type: connected}}, subnet: red-{subnet}}}\n"))
        .concat();
    format!(
        "\
apiVersion: juneau.loutres.me/v1alpha1
kind: Subnet
metadata: {{name: red-r}}
spec: {{vpc: red, cidr: 10.0.3.0/24, routeTable: red-r}}
status: {{vni: 203, gateway: 10.0.3.1, gatewayMAC: '02:00:0a:00:03:01'}}
---
apiVersion: juneau.loutres.me/v1alpha1
kind: RouteTable
metadata: {{name: red-r}}
spec: {{vpc: red}}
status:
  tableID: 21
  routes:
{connected}---
apiVersion: juneau.loutres.me/v1alpha1
kind: RouteTable
metadata: {{name: red}}
spec: {{vpc: red}}
status:
  tableID: 20
  routes:
{connected}{more}"
    )
}

#[test]
fn a_pod_as_next_hop_stands_between_pods_of_other_nodes() {
    let lab = Lab::two_tenants("router");
    lab.expect(&["add-node", "node-3"]);
    let to_router = "    - {dst: 10.0.2.20/32, via: {type: endpoint, endpointName: router.eth0}}\n";
    lab.apply(&[pod("red", "router", "node-3", "red-r", "10.0.3.50", "u-router"), routes(to_router)].join("---\n"));
    // It does not forward yet: the way leads through it.
    assert!(!ping(&lab, "red/a1", "-c 1 -W 1 10.0.2.20").0);
    assert!(
        lab.exec(
            "red/router",
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.eth0.send_redirects=0"
        )
        .status
        .success()
    );
    // From another node, and from the node of the destination: the router is on neither.
    for from in ["red/a1", "red/a2"] {
        let (ok, told) = ping(&lab, from, "-c 3 -i 0.2 -W 2 10.0.2.20");
        assert!(ok && told.contains(" 0% packet loss"), "{from}: {told}\n{}", lab.logs());
    }
    let (_, router) = ping(&lab, "red/a1", "-c 1 -W 2 -t 2 10.0.2.20");
    assert!(router.contains("From 10.0.3.50 ") && router.contains("Time to live exceeded"), "{router}");
    let (length, right) = stream(&lab, "red/a1", "red/b2", Ipv4Addr::new(10, 0, 2, 20), 5000, 4 << 20);
    assert_eq!((length, right), (4 << 20, true));
    // Others of the VPC and the other tenant go straight.
    assert!(ping(&lab, "red/a1", "-c 1 -W 2 10.0.2.10").0);
    assert!(ping(&lab, "blue/a1", "-c 1 -W 2 10.0.2.20").0);
}

#[test]
fn a_route_whose_target_does_not_exist_is_unreachable() {
    let lab = Lab::two_tenants("gone");
    lab.apply(&routes("    - {dst: 10.50.0.0/16, via: {type: endpoint, endpointName: nobody.eth0}}\n"));
    let before = dropped(&lab, "node-1", "route-unreachable");
    let (_, told) = ping(&lab, "red/a1", "-c 1 -W 2 10.50.0.1");
    assert!(told.contains("From 10.0.1.1 ") && told.contains("Host Unreachable"), "{told}");
    assert!(dropped(&lab, "node-1", "route-unreachable") > before);
    assert!(
        text(&lab.run(&["status"])).contains("nobody.eth0"),
        "the object is named: {}",
        text(&lab.run(&["status"]))
    );
    assert!(ping(&lab, "red/a1", "-c 1 -W 2 10.0.2.20").0, "the table's other routes stay");
}

#[test]
fn an_address_that_moves_takes_its_flows_along() {
    let lab = Lab::two_tenants("move");
    let place = |node: &str, uid: &str| pod("red", "c1", node, "red-a", "10.0.1.77", uid);
    lab.apply(&place("node-2", "u-1"));
    assert_eq!(datagram(&lab, "red/a1", 22_000, "10.0.1.77", 10).as_deref(), Some("red/c1"));
    lab.apply(&place("node-1", "u-2"));
    assert_eq!(lab.status()["pods"]["red/c1"]["node"], "node-1");
    assert_eq!(datagram(&lab, "red/a1", 22_000, "10.0.1.77", 10).as_deref(), Some("red/c1"), "the same five-tuple");
    lab.delete(&place("node-1", "u-2"));
    assert_eq!(datagram(&lab, "red/a1", 22_000, "10.0.1.77", 10), None);
    lab.expect_green();
}

#[test]
fn pods_that_come_and_go_leave_nothing() {
    let lab = Lab::two_tenants("leak");
    let agent = lab.pid("/nodes/node-1/agent/pid");
    let count = |dir: String| std::fs::read_dir(dir).unwrap().count();
    let links = || text(&lab.exec("node-1", "ls /sys/class/net")).lines().count();
    let endpoints = || text(&lab.exec("node-1", "juneau-agent endpoints")).lines().count();
    let cgroups = || text(&lab.exec("node-1", "find /sys/fs/cgroup -type d")).lines().count();
    let pins = || text(&lab.exec("node-1", "find /sys/fs/bpf")).lines().count();
    let all = || {
        let dir = lab.dir().display();
        let of_lab = (count(format!("{dir}/netns")), count(format!("{dir}/pods")));
        (links(), endpoints(), cgroups(), pins(), of_lab, count(format!("/proc/{agent}/fd")))
    };
    let manifests = pod("red", "c1", "node-1", "red-a", "10.0.1.77", "u-c1");
    let cycle = || {
        lab.apply(&manifests);
        lab.delete(&manifests);
    };
    cycle();
    let before = all();
    for _ in 0..10 {
        cycle();
    }
    let mut after = all();
    eventually("everything is given back", PATIENCE, || {
        after = all();
        after == before
    });
}
