//! Real devices: what a test run cannot show. Redirects that happen, neighbours, checksums that are pending and offloads
//! that are off, segments that stay together, the VXLAN device, VLAN tags in metadata, the Pods' own stacks.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
mod frames;
mod pending;
mod services;
mod sums;
mod world;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use common::sandbox;
use frames::{Frames, Offloads};
use juneau_core::layout::{DEVICE_LENGTH, DEVICE_MAX, DEVICE_MTU, DEVICE_REFUSED};
use juneau_core::verdict::Reason;
use world::{Net, Pod, VPC_INDEX, World, world};

/// Nothing of this takes longer, even in emulation.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes that repeat nowhere near.
fn content(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let step = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(step).collect()
}

/// Sends `length` bytes by TCP and compares what arrives.
#[track_caller]
fn stream(from: &Pod, to: &Pod, length: usize) {
    stream_to(&from.net, &to.net, to.address, length);
}

#[track_caller]
fn stream_to(from: &Net, to: &Net, address: Ipv4Addr, length: usize) {
    let listener = to.enter(|| TcpListener::bind((address, 0)).unwrap());
    let target = listener.local_addr().unwrap();
    let sent = content(length);
    let expected = sent.clone();
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert!(received == expected, "{} bytes of {} arrived, or others", received.len(), expected.len());
    });
    let mut stream = from.enter(|| TcpStream::connect_timeout(&target, PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&sent).unwrap();
    drop(stream);
    receiver.join().unwrap();
}

fn socket(pod: &Pod) -> (UdpSocket, SocketAddr) {
    let socket = pod.net.enter(|| UdpSocket::bind((pod.address, 0)).unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// A datagram there, and it comes back.
#[track_caller]
fn exchange(from: &Pod, to: &Pod, length: usize) {
    let ((client, _), (server, address)) = (socket(from), socket(to));
    let sent = content(length);
    let mut buffer = vec![0; length + 1];
    client.send_to(&sent, address).unwrap();
    let (received, source) = server.recv_from(&mut buffer).unwrap();
    assert!(buffer[..received] == sent, "{received} of {length} bytes");
    server.send_to(&buffer[..received], source).unwrap();
    let received = client.recv(&mut buffer).unwrap();
    assert!(buffer[..received] == sent, "{received} of {length} bytes back");
}

/// Sockets of this Pod leave the don't-fragment bit off.
fn may_be_cut(pod: &Pod) {
    pod.net.enter(|| std::fs::write("/proc/sys/net/ipv4/ip_no_pmtu_disc", "1").unwrap());
}

fn offloads(net: &Net, device: &str, on: bool) {
    for feature in ["rx", "tx", "tso", "gso", "gro"] {
        ethtool(net, device, feature, on);
    }
}

fn ethtool(net: &Net, device: &str, feature: &str, on: bool) {
    let state = if on { "on" } else { "off" };
    // Some devices have some of these fixed.
    let _ = net.enter(|| Command::new("ethtool").args(["-K", device, feature, state]).output().unwrap());
}

/// A counter of a namespace's `/proc/net/snmp`.
fn snmp(net: &Net, protocol: &str, counter: &str) -> u64 {
    let text = net.enter(|| std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
    let mut lines = text.lines().filter(|line| line.starts_with(&format!("{protocol}:")));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.split(' ').position(|name| name == counter).unwrap();
    values.split(' ').nth(place).unwrap().parse().unwrap()
}

/// Packets that a device sent.
fn transmitted(net: &Net, device: &str) -> u64 {
    device_counter(net, device, 9)
}

/// Packets that a device got.
fn received(net: &Net, device: &str) -> u64 {
    device_counter(net, device, 1)
}

/// A column of a namespace's `/proc/net/dev`.
fn device_counter(net: &Net, device: &str, column: usize) -> u64 {
    let text = net.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{device}:")).map(str::to_owned));
    line.unwrap().split_whitespace().nth(column).unwrap().parse().unwrap()
}

/// Same node, other node, other node and Subnet.
const PAIRS: [(usize, usize); 4] = [(0, 1), (0, 2), (2, 0), (0, 3)];

#[test]
fn pods_of_two_nodes() {
    sandbox(|sandbox| {
        let world = world(&sandbox);
        world.vxlan_devices("down");
        every_pair_by_the_fast_way(&world);
        world.vxlan_devices("up");
        fragments_of_a_pods_stack(&world);
        errors_reach_the_sockets(&world);
        tagged_frames_end_at_the_pods_hook(&world);
    });
}

#[test]
fn checksums_and_segments_in_every_offload_setting() {
    sandbox(|sandbox| {
        let world = world(&sandbox);
        world.vxlan_devices("down");
        segments_stay_together_on_the_underlay(&world);
        checksums_in_every_offload_setting(&world);
    });
}

fn every_pair_by_the_fast_way(world: &World) {
    for (from, to) in PAIRS {
        let (from, to) = (&world.pods[from], &world.pods[to]);
        for length in [0, 1, 17, 18, 19, 500, 1422] {
            exchange(from, to, length);
        }
        stream(from, to, 100_000);
        from.net.enter(|| {
            let address = to.address.to_string();
            let output = Command::new("ping").args(["-c", "2", "-i", "0.2", "-W", "5", &address]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        });
    }
    for node in 0..2 {
        assert!((0..DEVICE_MAX).all(|cause| world.devices(node, cause) == 0));
    }
    let traffic = world.nodes[0].dataplane.counters().unwrap().traffic().unwrap();
    assert_eq!((traffic.len(), traffic[0].vpc_index), (1, VPC_INDEX));
    assert!(traffic[0].from_pod.packets > 50 && traffic[0].from_overlay.packets > 50, "{traffic:?}");
}

fn checksums_in_every_offload_setting(world: &World) {
    for (pods, underlay) in [(true, true), (false, true), (true, false), (false, false)] {
        for pod in &world.pods {
            offloads(&pod.net, "eth0", pods);
            offloads(&world.nodes[pod.node].net, &pod.host, pods);
        }
        for node in &world.nodes {
            offloads(&node.net, "underlay", underlay);
        }
        for (from, to) in PAIRS {
            stream(&world.pods[from], &world.pods[to], 100_000);
            exchange(&world.pods[from], &world.pods[to], 1000);
        }
    }
    for pod in &world.pods {
        for (protocol, counter) in [("Tcp", "InCsumErrors"), ("Udp", "InCsumErrors"), ("Ip", "InHdrErrors")] {
            assert_eq!(snmp(&pod.net, protocol, counter), 0, "{protocol} {counter} of {}", pod.host);
        }
    }
}

fn segments_stay_together_on_the_underlay(world: &World) {
    let length = 1_500_000;
    stream(&world.pods[0], &world.pods[2], 10_000);
    let before = transmitted(&world.nodes[0].net, "underlay");
    stream(&world.pods[0], &world.pods[2], length);
    let together = transmitted(&world.nodes[0].net, "underlay") - before;
    assert!(together < length as u64 / 1400 / 4, "{together} packets");
    // The control: cut in the Pod.
    offloads(&world.pods[0].net, "eth0", false);
    stream(&world.pods[0], &world.pods[2], length);
    let apart = transmitted(&world.nodes[0].net, "underlay") - before - together;
    assert!(apart > length as u64 / 1400, "{apart} packets");
}

fn fragments_of_a_pods_stack(world: &World) {
    for (from, to) in PAIRS {
        exchange(&world.pods[from], &world.pods[to], 5000);
        exchange(&world.pods[from], &world.pods[to], 20_000);
    }
}

#[test]
fn what_may_be_cut_goes_by_the_vxlan_device() {
    sandbox(|sandbox| {
        let mut world = world(&sandbox);
        for node in &world.nodes {
            node.net.enter(|| common::ip("link set underlay mtu 1300"));
        }
        world.believed_mtu = 1300;
        world.program();
        may_be_cut(&world.pods[0]);
        for to in [2, 3] {
            let ((client, _), (server, address)) = (socket(&world.pods[0]), socket(&world.pods[to]));
            let before = world.devices(0, DEVICE_MTU);
            for length in [1400, 1200] {
                let sent = content(length);
                client.send_to(&sent, address).unwrap();
                let mut buffer = [0; 2000];
                let received = server.recv(&mut buffer).unwrap();
                assert!(buffer[..received] == sent);
            }
            assert_eq!(world.devices(0, DEVICE_MTU) - before, 1, "only what is too large");
        }
        // Others are told, and adapt.
        let told = || world.exits(Reason::FragmentationNeeded);
        assert_eq!(told(), 0);
        stream(&world.pods[1], &world.pods[2], 300_000);
        assert!(told() > 0);
        let ((client, _), (server, address)) = (socket(&world.pods[1]), socket(&world.pods[3]));
        let before = told();
        client.send_to(&content(1400), address).unwrap();
        while told() == before {
            std::thread::yield_now();
        }
        let mut buffer = [0; 2000];
        while server.set_read_timeout(Some(Duration::from_millis(100))).is_ok() {
            client.send_to(&content(1400), address).unwrap();
            if server.recv(&mut buffer).is_ok() {
                break;
            }
        }
        assert!(buffer[..1400] == content(1400));
    });
}

#[test]
fn a_tunnel_inside_the_tunnel() {
    sandbox(|sandbox| {
        let world = world(&sandbox);
        // The Pods' own VXLAN, on the same port as the overlay's.
        let inner = [Ipv4Addr::new(172, 30, 0, 1), Ipv4Addr::new(172, 30, 0, 2)];
        for (own, other) in [(0, 1), (1, 0)] {
            let (pod, peer) = (&world.pods[[0, 2][own]], &world.pods[[0, 2][other]]);
            pod.net.enter(|| {
                let (local, remote) = (pod.address, peer.address);
                common::ip(&format!("link add tunnel type vxlan id 7 local {local} remote {remote} dstport 4789"));
                common::ip(&format!("addr add {}/24 dev tunnel", inner[own]));
                common::ip("link set tunnel mtu 1400 up");
            });
        }
        stream_to(&world.pods[0].net, &world.pods[2].net, inner[1], 300_000);
        stream_to(&world.pods[2].net, &world.pods[0].net, inner[0], 300_000);
        assert!(world.devices(0, DEVICE_REFUSED) > 0);
        assert_eq!(world.devices(0, DEVICE_LENGTH), 0);
        assert_eq!(world.exits(Reason::Encapsulation) + world.exits(Reason::VxlanHeader), 0);
    });
}

/// A rule that is taken away ends open connections, and both ends learn it at their next word instead of waiting for
/// each other.
#[test]
fn a_refused_connection_is_reset_at_once() {
    sandbox(|sandbox| {
        let mut world = world(&sandbox);
        for (from, to) in PAIRS {
            world.closed_port = None;
            world.program();
            let (client_net, server_net) = (&world.pods[from].net, &world.pods[to].net);
            let listener = server_net.enter(|| TcpListener::bind((world.pods[to].address, 0)).unwrap());
            let target = listener.local_addr().unwrap();
            let mut client = client_net.enter(|| TcpStream::connect_timeout(&target, PATIENCE)).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            for stream in [&client, &server] {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
            }
            // The control.
            client.write_all(b"1").unwrap();
            server.read_exact(&mut [0]).unwrap();
            server.write_all(b"2").unwrap();
            client.read_exact(&mut [0]).unwrap();

            world.closed_port = Some(target.port());
            world.program();
            let before = world.exits(Reason::PolicyEgress);
            for stream in [&mut client, &mut server] {
                let start = std::time::Instant::now();
                stream.write_all(b"3").unwrap();
                assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset, "{from} to {to}");
                // A stack that is not told sends the same again and again, for many minutes.
                assert!(start.elapsed() < PATIENCE / 2);
            }
            assert!(world.exits(Reason::PolicyEgress) > before);
        }
    });
}

fn errors_reach_the_sockets(world: &World) {
    // Nobody listens: the other Pod's stack says so.
    for (from, to) in PAIRS {
        let (client, _) = socket(&world.pods[from]);
        client.connect((world.pods[to].address, 9)).unwrap();
        client.send(b"?").unwrap();
        assert_eq!(client.recv(&mut [0; 9]).unwrap_err().kind(), ErrorKind::ConnectionRefused, "{from} to {to}");
    }
    // Nobody is there, or the TTL ends where we route: the gateway says so.
    let pod = &world.pods[0];
    for (arguments, reason, text) in [
        ("10.0.2.99", Reason::NoEndpoint, "From 10.0.1.1 icmp_seq=1 Destination Host Unreachable"),
        ("8.8.8.8", Reason::NoRoute, "From 10.0.1.1 icmp_seq=1 Destination Net Unreachable"),
        ("-t 1 10.0.2.5", Reason::TtlExceeded, "From 10.0.1.1 icmp_seq=1 Time to live exceeded"),
    ] {
        let arguments = arguments.split(' ').chain(["-n", "-c", "1", "-W", "5"]);
        let output = pod.net.enter(|| Command::new("ping").args(arguments).output().unwrap());
        assert!(String::from_utf8_lossy(&output.stdout).contains(text), "{output:?}");
        assert_eq!(world.exits(reason), 1);
    }
    // A refused TCP connection, whose answer has no checksum yet.
    let refused = pod.net.enter(|| {
        TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::new(10, 0, 2, 98), 80)), PATIENCE).unwrap_err()
    });
    assert_eq!(refused.raw_os_error(), Some(nix::libc::EHOSTUNREACH));
}

fn tagged_frames_end_at_the_pods_hook(world: &World) {
    let (from, to) = (&world.pods[0], &world.pods[1]);
    exchange(from, to, 5);
    assert_eq!(world.exits(Reason::Vlan), 0);
    // Behind a veth the kernel takes the tag into the metadata before the hook.
    let ((client, source), (server, address)) = (socket(from), socket(to));
    let frame = |tag: &[u8]| {
        let mut frame = Vec::new();
        etherparse::PacketBuilder::ethernet2(from.mac, to.mac)
            .ipv4(from.address.octets(), to.address.octets(), 64)
            .udp(source.port(), address.port())
            .write(&mut frame, b"frame")
            .unwrap();
        frame.splice(12..12, tag.iter().copied());
        frame
    };
    drop(client);
    let packets = Frames::open(&from.net, "eth0");
    server.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    for tag in [&[0x81, 0, 0, 7][..], &[0x88, 0xa8, 0, 7], &[0x81, 0, 0, 0], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8]] {
        let before = world.exits(Reason::Vlan);
        packets.send(&frame(tag), Offloads::default());
        assert_eq!(server.recv(&mut [0; 9]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(world.exits(Reason::Vlan), before + 1, "{tag:x?}");
    }
    packets.send(&frame(&[]), Offloads::default());
    assert_eq!(server.recv(&mut [0; 9]).unwrap(), 5);
}

/// The world is used: a failing test shows which exits there were.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for node in &self.nodes {
                for exit in node.dataplane.counters().and_then(|counters| counters.exits()).unwrap_or_default() {
                    let _ = writeln!(std::io::stderr(), "{exit:?}");
                }
            }
        }
    }
}
