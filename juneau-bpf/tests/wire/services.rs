//! Services between real stacks: each checksum that a translation touches, pending or not, is looked at by the receiver.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use juneau_core::packet::{IP_TCP, IP_UDP};
use juneau_core::testkit::services::{Port, WEB};

use crate::common::sandbox;
use crate::world::{Pod, World, world};
use crate::{PATIENCE, content, may_be_cut, offloads, snmp};

const PORT: u16 = 80;
/// Not the Service's, so that ports are translated, too.
const TARGET: u16 = 8080;
const SERVICE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(WEB), PORT);

fn lead_to(world: &mut World, backend: Ipv4Addr) {
    let port = |protocol| Port {
        tenant: 0,
        address: WEB,
        port: PORT,
        protocol,
        backends: vec![(backend, TARGET)],
        local_only: false,
        affinity: 0,
    };
    world.services = vec![port(IP_TCP), port(IP_UDP)];
    world.program();
}

/// A connection to the Service, with content in both directions; the backend sees `source`.
#[track_caller]
fn stream(client: &Pod, backend: &Pod, source: Ipv4Addr) {
    let listener = backend.net.enter(|| TcpListener::bind((backend.address, TARGET)).unwrap());
    let sent = content(1_000_000);
    let expected = sent.clone();
    let server = std::thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut received = vec![0; expected.len()];
        stream.read_exact(&mut received).unwrap();
        assert!(received == expected, "what arrived is not what was sent");
        stream.write_all(&received).unwrap();
        peer
    });
    let mut stream = client.net.enter(|| TcpStream::connect_timeout(&SERVICE, PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&sent).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert!(back == sent, "{} bytes came back, or others", back.len());
    assert_eq!(server.join().unwrap().ip(), source);
}

/// A datagram to the Service and back, by a socket that takes answers of the Service alone.
#[track_caller]
fn exchange(client: &Pod, backend: &Pod, length: usize) {
    let server = backend.net.enter(|| UdpSocket::bind((backend.address, TARGET)).unwrap());
    let socket = client.net.enter(|| UdpSocket::bind((client.address, 0)).unwrap());
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(SERVICE).unwrap();
    let sent = content(length);
    let mut buffer = vec![0; length + 1];
    socket.send(&sent).unwrap();
    let (received, source) = server.recv_from(&mut buffer).unwrap();
    assert!(buffer[..received] == sent, "{received} of {length} bytes");
    server.send_to(&buffer[..received], source).unwrap();
    let received = socket.recv(&mut buffer).unwrap();
    assert!(buffer[..received] == sent, "{received} of {length} bytes back");
}

/// Checksums that a namespace found wrong.
fn wrong(pod: &Pod) -> u64 {
    snmp(&pod.net, "Tcp", "InCsumErrors") + snmp(&pod.net, "Udp", "InCsumErrors")
}

/// From the first Pod to a Service of one backend, which sees it as `source`: whole streams, datagrams in one piece and
/// in several.
fn every_way(world: &mut World, backend: usize, source: Ipv4Addr) {
    lead_to(world, world.pods[backend].address);
    let (client, backend) = (&world.pods[0], &world.pods[backend]);
    stream(client, backend, source);
    for length in [1, 1_300, 4_000] {
        exchange(client, backend, length);
    }
    assert_eq!((wrong(client), wrong(backend)), (0, 0));
}

#[test]
fn a_service_between_real_stacks() {
    sandbox(|sandbox| {
        let mut world = world(&sandbox);
        world.pods.iter().for_each(may_be_cut);
        let client = world.pods[0].address;
        // On the same node; on the other one, in the client's Subnet and in another.
        for backend in [1, 2, 3] {
            every_way(&mut world, backend, client);
        }
        // The Pod itself, which its Subnet's gateway seems to speak to.
        let gateway = world.pods[0].gateway();
        every_way(&mut world, 0, gateway);
    });
}

/// Without offload on the underlay, what is pending is summed up before it leaves the node: a sum that was changed
/// otherwise than its packet shows here, and here alone.
#[test]
fn a_service_of_another_node_without_offload() {
    sandbox(|sandbox| {
        let mut world = world(&sandbox);
        for node in &world.nodes {
            offloads(&node.net, "underlay", false);
        }
        world.pods.iter().for_each(may_be_cut);
        let client = world.pods[0].address;
        for backend in [2, 3] {
            every_way(&mut world, backend, client);
        }
        // Nor where Pods sum up themselves.
        for pod in [0, 2] {
            offloads(&world.pods[pod].net, "eth0", false);
        }
        every_way(&mut world, 2, client);
    });
}
