//! Replays a capture through the reference data path: what a node of the testkit's two tenants would do with each
//! packet, and why.
//!
//! ```text
//! cargo run -p juneau-examples --bin replay-pcap [FILE]
//! ```
//! Without a file a small capture is made first. A frame is taken as sent by the Pod of tenant 0 that has its source
//! MAC address; frames of others end in `no-interface`.
#![allow(clippy::print_stdout)]

use juneau_core::packet::{Ethernet, view};
use juneau_core::pipeline::Packet;
use juneau_core::testkit::packets::{Frame, arp_request, data, echo, syn, syn_ack, udp};
use juneau_core::testkit::pcap;
use juneau_core::testkit::topology::{self, Pod, pods};
use juneau_core::time::Now;
use juneau_core::verdict::Hook;
use std::error::Error;
use std::net::Ipv4Addr;

fn main() -> Result<(), Box<dyn Error>> {
    let capture = match std::env::args_os().nth(1) {
        Some(path) => std::fs::read(path)?,
        None => pcap::write(&sample()),
    };
    let frames = pcap::read(&capture).ok_or("not a capture of Ethernet in the classic pcap format")?;

    let mut node = topology::node(0);
    for (number, frame) in frames.iter().enumerate() {
        // The path knows no clock: here each packet is a unit of time.
        let now = Now { stamp: number as u32, hz: 250 };
        let packet = Packet::new(Hook::Pod, interface_of(frame), frame);
        let verdict = node.handle(&packet, now)?.verdict;
        let target = match verdict.ifindex {
            0 if verdict.vni != 0 => format!(" to {} in VNI {}", verdict.vtep, verdict.vni),
            0 => String::new(),
            ifindex => format!(" to interface {ifindex}"),
        };
        let way = if verdict.slow { "decided" } else { "at once" };
        println!("{number:3} {}{target}: {}, {way}", verdict.action.name(), verdict.reason.name());
    }

    let delivered: u64 = node.counters.traffic.values().map(|traffic| traffic.packets).sum();
    println!("{} packets, {delivered} delivered", frames.len());
    for ((_, reason, answered), count) in &node.counters.exits {
        println!("{count:3} {}{}: {}", reason.name(), if *answered { ", answered" } else { "" }, reason.text());
    }
    Ok(())
}

/// The host veth of the Pod that has the frame's source MAC address; 0 if nobody has it.
fn interface_of(frame: &[u8]) -> u32 {
    let source = view::<Ethernet>(frame).map(|(ethernet, _)| ethernet.source);
    let pod = pods().into_iter().find(|pod| pod.tenant == 0 && pod.node() == 0 && Some(pod.mac()) == source);
    pod.map_or(0, Pod::ifindex)
}

/// A connection on one node, one to another node, and some that go wrong.
fn sample() -> Vec<Vec<u8>> {
    let (client, server, far) = (Pod::new(0, 1, 10), Pod::new(0, 1, 11), Pod::new(0, 2, 20));
    let between = |from: Pod, to: Pod, layer4| {
        Frame::new(from.address(), to.address(), layer4).macs(from.mac(), to.mac()).build()
    };
    let outwards =
        |to: Ipv4Addr, layer4| Frame::new(client.address(), to, layer4).macs(client.mac(), client.gateway_mac());
    let spoofed = Frame { source: far.address(), ..outwards(server.address(), echo(1)) };
    vec![
        arp_request(client.mac(), client.address(), server.address()),
        between(client, server, syn(40_000, 80)),
        between(server, client, syn_ack(80, 40_000)),
        between(client, server, data(40_000, 80, 100)),
        outwards(far.address(), udp(5000, 53, 30)).build(),
        outwards(far.address(), udp(5000, 53, 30)).build(),
        outwards(Ipv4Addr::new(198, 51, 100, 1), udp(5000, 53, 30)).build(),
        Frame { ttl: 1, ..outwards(far.address(), echo(7)) }.build(),
        spoofed.build(),
    ]
}
