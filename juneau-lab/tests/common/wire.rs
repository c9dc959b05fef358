//! Frames sent and seen by packet sockets inside namespaces.
#![allow(unreachable_pub, reason = "a part of a test")]

use etherparse::{ArpHardwareId, ArpOperation, ArpPacket, EtherType, PacketBuilder, VlanId};
use juneau_lab::namespace::within;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{LinkAddr, MsgFlags, sendto};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const MARK: &[u8] = b"JNPROBE:";
const ARP_REPLY: [u8; 2] = [0, 2];

/// Bytes by which a frame is known wherever it comes out.
pub fn mark(number: u32) -> Vec<u8> {
    format!("JNPROBE:{number:08x}").into_bytes()
}

fn find_mark(frame: &[u8]) -> Option<u32> {
    let at = frame.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    u32::from_str_radix(std::str::from_utf8(frame.get(at..at + 8)?).ok()?, 16).ok()
}

/// Who speaks: addresses of a Pod's or node's interface.
#[derive(Debug, Clone, Copy)]
pub struct Party {
    pub mac: [u8; 6],
    pub ip: Ipv4Addr,
}

/// The kinds of frames that are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Icmp,
    Tcp,
    Udp,
    Arp,
    Fragments,
    Vlan,
    SpoofedSource,
    ForgedVxlan,
}

impl Kind {
    pub const ALL: [Self; 8] = [
        Self::Icmp,
        Self::Tcp,
        Self::Udp,
        Self::Arp,
        Self::Fragments,
        Self::Vlan,
        Self::SpoofedSource,
        Self::ForgedVxlan,
    ];
}

/// A datagram of UDP in IPv4 in Ethernet.
pub fn udp(from: Party, to_mac: [u8; 6], to: Ipv4Addr, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(from.mac, to_mac).ipv4(from.ip.octets(), to.octets(), 64);
    builder.udp(ports.0, ports.1).write(&mut frame, payload).unwrap();
    frame
}

/// The same with a VLAN tag.
pub fn tagged_udp(from: Party, to_mac: [u8; 6], to: Ipv4Addr, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(from.mac, to_mac).single_vlan(VlanId::try_new(7).unwrap());
    let builder = builder.ipv4(from.ip.octets(), to.octets(), 64).udp(ports.0, ports.1);
    builder.write(&mut frame, payload).unwrap();
    frame
}

pub fn tcp_syn(from: Party, to_mac: [u8; 6], to: Ipv4Addr, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(from.mac, to_mac).ipv4(from.ip.octets(), to.octets(), 64);
    builder.tcp(port, 7777, 1, 64_000).syn().write(&mut frame, payload).unwrap();
    frame
}

pub fn echo_request(from: Party, to_mac: [u8; 6], to: Ipv4Addr, id: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(from.mac, to_mac).ipv4(from.ip.octets(), to.octets(), 64);
    builder.icmpv4_echo_request(id, 1).write(&mut frame, payload).unwrap();
    frame
}

/// A request with the mark behind it, where Ethernet has padding.
pub fn arp_request(from: Party, to: Ipv4Addr, mark: &[u8]) -> Vec<u8> {
    let packet = ArpPacket::new(
        ArpHardwareId::ETHERNET,
        EtherType::IPV4,
        ArpOperation::REQUEST,
        &from.mac,
        &from.ip.octets(),
        &[0; 6],
        &to.octets(),
    )
    .unwrap();
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(from.mac, [0xff; 6]).arp(packet).write(&mut frame).unwrap();
    frame.extend_from_slice(mark);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// A UDP datagram in two fragments, each with the mark.
pub fn fragments(from: Party, to_mac: [u8; 6], to: Ipv4Addr, ports: (u16, u16), id: u16, mark: &[u8]) -> Vec<Vec<u8>> {
    let mut payload = mark.to_vec();
    payload.resize(24, 0);
    payload.extend_from_slice(mark);
    let whole = udp(from, to_mac, to, ports, &payload);
    // Ethernet 14, IPv4 20, UDP 8, and the first 24 bytes of the payload make the first one.
    let cut = 14 + 20 + 8 + 24;
    let mut first = whole[..cut].to_vec();
    let mut later = whole[..34].to_vec();
    later.extend_from_slice(&whole[cut..]);
    for (frame, flags_and_offset) in [(&mut first, 0x2000_u16), (&mut later, 32 / 8)] {
        let length = u16::try_from(frame.len() - 14).unwrap();
        frame[16..18].copy_from_slice(&length.to_be_bytes());
        frame[18..20].copy_from_slice(&id.to_be_bytes());
        frame[20..22].copy_from_slice(&flags_and_offset.to_be_bytes());
        let header = etherparse::Ipv4Header::from_slice(&frame[14..34]).unwrap().0;
        frame[24..26].copy_from_slice(&header.calc_header_checksum().to_be_bytes());
    }
    vec![first, later]
}

/// VXLAN's eight bytes and a frame.
pub fn vxlan(vni: u32, inner: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x08, 0, 0, 0];
    bytes.extend_from_slice(&(vni << 8).to_be_bytes());
    bytes.extend_from_slice(inner);
    bytes
}

/// Sends frames from a device of the network namespace at `netns`.
pub fn send(netns: &Path, device: &str, frames: &[Vec<u8>]) {
    within(netns, || {
        let socket = Socket::new(Domain::PACKET, Type::RAW, None).unwrap();
        let address = link(device);
        for frame in frames {
            let sent = sendto(socket.as_raw_fd(), frame, &address, MsgFlags::empty()).unwrap();
            assert_eq!(sent, frame.len());
        }
        Ok(())
    })
    .unwrap();
}

/// The MAC address of a device of the network namespace at `netns`.
pub fn mac(netns: &Path, device: &str) -> [u8; 6] {
    within(netns, || Ok(link(device).addr().unwrap())).unwrap()
}

fn link(device: &str) -> LinkAddr {
    let found = getifaddrs().unwrap().find_map(|entry| {
        (entry.interface_name == device).then(|| entry.address.and_then(|address| address.as_link_addr().copied()))?
    });
    found.unwrap_or_else(|| panic!("no device {device}"))
}

/// What a place saw: marks, and marks that came back as ARP replies.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub marks: BTreeSet<u32>,
    pub arp_replies: BTreeSet<u32>,
}

/// Packet sockets in many namespaces that look for marks.
pub struct Watch {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<BTreeMap<String, Seen>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Watch {
    /// Begins to look; returns when all sockets are open.
    pub fn start(places: &BTreeMap<String, PathBuf>) -> Self {
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<BTreeMap<String, Seen>>>::default());
        let open = Arc::new(Barrier::new(places.len() + 1));
        let threads = places
            .iter()
            .map(|(name, netns)| {
                let (name, netns, stop, seen, open) =
                    (name.clone(), netns.clone(), Arc::clone(&stop), Arc::clone(&seen), Arc::clone(&open));
                std::thread::spawn(move || {
                    let found = within(&netns, || Ok(look(&stop, &open))).unwrap();
                    seen.lock().unwrap().insert(name, found);
                })
            })
            .collect();
        open.wait();
        Self { stop, seen, threads }
    }

    /// Stops looking, after `linger` without a change; what was seen.
    pub fn finish(self, linger: Duration) -> BTreeMap<String, Seen> {
        std::thread::sleep(linger);
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

fn look(stop: &AtomicBool, open: &Barrier) -> Seen {
    let all = i32::from((nix::libc::ETH_P_ALL as u16).to_be());
    let mut socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(all))).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    socket.set_recv_buffer_size(4 << 20).unwrap();
    open.wait();
    let mut seen = Seen::default();
    let mut buffer = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        let Ok(length) = socket.read(&mut buffer) else { continue };
        let frame = &buffer[..length];
        let Some(number) = find_mark(frame) else { continue };
        seen.marks.insert(number);
        if frame[12..14] == [0x08, 0x06] && frame[20..22] == ARP_REPLY {
            seen.arp_replies.insert(number);
        }
    }
    seen
}
