//! Packets: mostly what Pods and nodes send, often what they should not.

use core::net::Ipv4Addr;

use juneau_core::flow::{TCP_ACK, TCP_FIN, TCP_RST, TCP_SYN};
use juneau_core::layout::{EP_LOCAL, EndpointKey, Seeds, be32};
use juneau_core::tables::Tables;
use juneau_core::testkit::packets::{Frame, Layer4, arp_request, icmp_error, vxlan};
use juneau_core::testkit::services;
use juneau_core::testkit::topology::{Pod, node_addresses, own_address, pods, vtep};
use juneau_core::verdict::Hook;

use crate::random::Random;

/// A packet at a hook of node 0.
#[derive(Debug, Clone)]
pub struct Input {
    pub hook: Hook,
    pub ifindex: u32,
    pub frame: Vec<u8>,
    pub gso_size: u32,
}

/// A packet that was delivered: what answers and ICMP errors are about.
#[derive(Debug, Clone)]
pub struct Sent {
    pub from: Pod,
    /// The Pod with the destination's address, if there is one.
    pub to: Option<Pod>,
    pub inner: Vec<u8>,
    pub layer4: Layer4,
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    /// Source, destination and layer 4 as they were delivered, where those were translated.
    pub seen: Option<(Ipv4Addr, Ipv4Addr, Layer4)>,
}

impl Sent {
    /// Takes in what was delivered: who gets it answers what he sees.
    pub fn delivered(mut self, frame: &[u8]) -> Self {
        let Some(header) = frame.get(14..38) else { return self };
        let address = |at: usize| Ipv4Addr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (source, destination) = (address(12), address(16));
        let mut layer4 = self.layer4.clone();
        match &mut layer4 {
            Layer4::Tcp { source, destination, .. } | Layer4::Udp { source, destination, .. } => {
                (*source, *destination) = (port(20), port(22));
            }
            _ => {}
        }
        if (source, destination, &layer4) != (self.source, self.destination, &self.layer4) {
            self.to = holder(self.from.tenant, destination);
            self.inner = frame.to_vec();
            self.seen = Some((source, destination, layer4));
        }
        self
    }

    /// A Pod of node 0, or the node, sent it to a Service.
    pub fn goes_on(&self) -> bool {
        let (_, destination, _) = self.as_seen();
        self.seen.is_some() && destination != self.destination && self.from.node() == 0
    }

    /// Source, destination and layer 4 as they were delivered.
    pub fn as_seen(&self) -> (Ipv4Addr, Ipv4Addr, &Layer4) {
        match &self.seen {
            Some((source, destination, layer4)) => (*source, *destination, layer4),
            None => (self.source, self.destination, &self.layer4),
        }
    }
}

const PORTS: [u16; 5] = [53, 80, 1111, 1112, 8080];
const FLAGS: [u8; 12] = [
    TCP_SYN,
    TCP_SYN,
    TCP_SYN | TCP_ACK,
    TCP_ACK,
    TCP_ACK,
    TCP_ACK | 8,
    TCP_FIN | TCP_ACK,
    TCP_RST,
    TCP_RST | TCP_ACK,
    0,
    TCP_SYN | TCP_FIN,
    TCP_FIN,
];
const SERVICES: [Ipv4Addr; 11] = [
    services::STICKY,
    services::STICKY,
    services::WEB,
    services::WEB,
    services::EMPTY,
    services::SCTP,
    services::LOCAL,
    services::HOST,
    services::SELF,
    services::SAME,
    services::NOBODY,
];
const ODD_DESTINATIONS: [Ipv4Addr; 16] = [
    Ipv4Addr::new(10, 0, 1, 1),
    Ipv4Addr::new(10, 0, 2, 1),
    Ipv4Addr::new(10, 0, 1, 99),
    Ipv4Addr::new(10, 0, 1, 255),
    Ipv4Addr::new(10, 9, 1, 1),
    Ipv4Addr::new(10, 9, 2, 2),
    Ipv4Addr::new(10, 9, 3, 3),
    Ipv4Addr::new(10, 9, 4, 4),
    Ipv4Addr::new(10, 8, 0, 1),
    Ipv4Addr::new(172, 16, 0, 1),
    Ipv4Addr::new(0, 0, 0, 1),
    Ipv4Addr::new(127, 0, 0, 1),
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(224, 0, 0, 1),
    Ipv4Addr::new(240, 0, 0, 1),
    Ipv4Addr::BROADCAST,
];

/// Mostly short; often just what fits an MTU of 1450 or 800, or one byte more, behind the headers of TCP, UDP or ICMP.
fn payload(random: &mut Random) -> usize {
    match random.below(12) {
        0 => 1400 + random.below(120),
        1 => random.pick(&[1450, 1350, 800]) - random.pick(&[40, 28, 20]) + random.below(2),
        2 => 1450 - random.pick(&[40, 28]),
        _ => random.below(40),
    }
}

/// The same flow once more, otherwise.
fn again(about: &Sent, random: &mut Random) -> Layer4 {
    let mut layer4 = about.layer4.clone();
    match &mut layer4 {
        Layer4::Tcp { flags, payload: bytes, .. } => (*flags, *bytes) = (random.pick(&FLAGS), payload(random)),
        Layer4::Udp { payload: bytes, .. } => *bytes = payload(random),
        Layer4::Icmp { kind: 0 | 8, payload: bytes, .. } => bytes.resize(payload(random), 7),
        _ => {}
    }
    layer4
}

/// Another identification whose first fragment lies in the same slot.
fn collide(frame: &mut Frame, seeds: Seeds, random: &mut Random) {
    let protocol = match &frame.layer4 {
        Layer4::Tcp { .. } => 6,
        Layer4::Udp { .. } => 17,
        Layer4::Icmp { .. } => 1,
        Layer4::Raw { protocol, .. } => *protocol,
    };
    let slot = |id: u16| seeds.fragment_slot(be32(frame.source), be32(frame.destination), id.into(), protocol);
    if frame.fragment & 0x3fff != 0 && random.chance(25) {
        let own = slot(frame.id);
        frame.id = (4..u16::MAX).find(|id| slot(*id) == own).unwrap_or(frame.id);
    }
}

/// Another identification with which a header checksum that is changed in place carries into its last bit, or just does
/// not. 0xfeff becomes 0 when the TTL goes down by one (RFC 1624, section 3); with 0xff00 and 0xff01 the sum of a
/// congestion mark on ECT(0) and ECT(1) has to be folded twice.
fn carry(frame: &mut Frame, random: &mut Random) {
    const CHECKSUM: usize = 14 + 10;
    if frame.fragment & 0x3fff != 0 || !random.chance(6) {
        return;
    }
    let wanted: u32 = random.pick(&[0xfeff, 0xfeff, 0xfeff, 0xff00, 0xff01, 0xfefe, 0xfffe, 0]);
    let bytes = frame.build();
    let own = u32::from(u16::from_be_bytes([bytes[CHECKSUM], bytes[CHECKSUM + 1]]));
    // In one's complement: what the checksum loses the identification gains.
    frame.id = ((u32::from(frame.id) + own + (0xffff - wanted)) % 0xffff) as u16;
}

fn layer4(random: &mut Random, sent: &[Sent]) -> Layer4 {
    let (source, destination) = (random.pick(&PORTS), random.pick(&PORTS));
    let payload = payload(random);
    match random.below(12) {
        0..5 => Layer4::Tcp { source, destination, flags: random.pick(&FLAGS), payload },
        5..8 => Layer4::Udp { source, destination, payload },
        8 | 9 => Layer4::Icmp {
            kind: random.pick(&[8, 8, 8, 0, 0, 5, 13]),
            code: 0,
            id: source,
            sequence: 1,
            payload: vec![7; payload],
        },
        10 if !sent.is_empty() => {
            let about = &sent[random.below(sent.len())].inner;
            icmp_error(random.pick(&[3, 3, 11, 12]), random.below(5) as u8, about)
        }
        _ if random.chance(50) => sctp(source, random.pick(&[2905, 2906]), payload),
        _ => Layer4::Raw { protocol: random.pick(&[47, 50, 4, 2]), payload: vec![9; payload] },
    }
}

/// SCTP's ports, and something behind them; sometimes less than its header.
fn sctp(source: u16, destination: u16, bytes: usize) -> Layer4 {
    let ports = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    Layer4::Raw { protocol: 132, payload: [ports, vec![9; bytes]].concat() }
}

/// Mostly what a Service has a port for.
fn to_service(address: Ipv4Addr, random: &mut Random, sent: &[Sent]) -> Layer4 {
    let ports: Vec<_> = services::all().into_iter().filter(|port| port.address == address).collect();
    if ports.is_empty() || random.chance(10) {
        return layer4(random, sent);
    }
    let (source, port) = (random.pick(&PORTS), &ports[random.below(ports.len())]);
    let payload = payload(random);
    let flags = if random.chance(60) { TCP_SYN } else { random.pick(&FLAGS) };
    match port.protocol {
        6 => Layer4::Tcp { source, destination: port.port, flags, payload },
        17 => Layer4::Udp { source, destination: port.port, payload },
        _ => sctp(source, port.port, payload),
    }
}

fn vary(frame: &mut Frame, random: &mut Random) {
    frame.ttl = random.pick(&[64, 64, 64, 64, 64, 2, 1, 0]);
    frame.tos = random.pick(&[0, 0, 0, 2, 1, 3, 0xb8]);
    frame.id = random.pick(&[1, 2, 3]);
    frame.fragment = match random.below(14) {
        0 | 1 => 0,
        2 => 0x2000,
        3 => 3,
        4 => 0x2000 | 185,
        5 => 185,
        _ => 0x4000,
    };
}

/// Breaks a frame from `start` on; often not at all.
fn damage(frame: &mut Vec<u8>, start: usize, random: &mut Random) {
    if random.chance(82) || frame.len() <= start + 14 {
        return;
    }
    match random.below(9) {
        0 => frame.truncate(start + 14 + random.below(frame.len() - start - 14)),
        1 => frame.extend(vec![0xaa; random.below(20)]),
        2 => {
            let ethertype = random.pick(&[0x8100_u16, 0x88a8, 0x86dd, 0x8847, 0x0806]);
            frame[start + 12..start + 14].copy_from_slice(&ethertype.to_be_bytes());
        }
        3 => frame[start + 14] = random.pick(&[0x46, 0x44, 0x65, 0x4f, 0x40]),
        4 => {
            let at = start + 6 + random.below(6);
            frame[at] ^= 1 << random.below(8);
        }
        _ => {
            let span = (frame.len() - start).min(62);
            let at = start + random.below(span);
            frame[at] = random.next() as u8;
        }
    }
}

/// UDP without a checksum, or with one that a translation may turn into the number that stands for none.
fn absent_checksum(frame: &mut [u8], layer4: &Layer4, random: &mut Random) {
    if let (Layer4::Udp { .. }, Some(checksum)) = (layer4, frame.get_mut(40..42))
        && random.chance(10)
    {
        checksum.fill(random.pick(&[0, 0, 0xff]));
    }
}

/// Acknowledges some byte, which a reset begins with.
fn acknowledge(frame: &mut [u8], layer4: &Layer4, random: &mut Random) {
    if let (Layer4::Tcp { .. }, Some(number)) = (layer4, frame.get_mut(42..46)) {
        number.copy_from_slice(&(random.next() as u32).to_be_bytes());
    }
}

/// Addresses that node 0 may send from.
fn own_addresses() -> [Ipv4Addr; 3] {
    [Pod::node_port(0).address(), vtep(0), own_address(0)]
}

/// An address of some node.
fn of_a_node(random: &mut Random) -> Ipv4Addr {
    random.pick(&[Pod::node_port(0).address(), Pod::node_port(1).address(), vtep(0), vtep(1), own_address(0)])
}

/// Pods and node ports.
pub fn everybody() -> Vec<Pod> {
    pods().into_iter().chain([Pod::node_port(0), Pod::node_port(1)]).collect()
}

/// Whether the tables say that it is on this node: what leaves it must not be GSO in a test run.
fn is_here(pod: Pod, tables: &Tables) -> bool {
    let key = EndpointKey { vpc: pod.vpc(), address: be32(pod.address()) };
    tables.endpoints.get(&key).is_some_and(|endpoint| endpoint.flags & EP_LOCAL != 0)
}

/// Who holds an address in a tenant's VPC.
fn holder(tenant: u8, address: Ipv4Addr) -> Option<Pod> {
    let node = node_addresses(0).into_iter().find(|(own, _)| tenant == 0 && *own == address);
    let pod = || everybody().into_iter().find(|pod| pod.tenant == tenant && pod.address() == address);
    node.map_or_else(pod, |(_, node)| Some(Pod::node_port(node)))
}

fn destination(from: Pod, random: &mut Random) -> Ipv4Addr {
    if random.chance(if from.tenant == 0 { 15 } else { 3 }) {
        of_a_node(random)
    } else if random.chance(25) {
        random.pick(&SERVICES)
    } else if random.chance(72) {
        let all: Vec<Pod> = pods().into_iter().filter(|pod| pod.tenant == from.tenant).collect();
        random.pick(&all).address()
    } else {
        random.pick(&ODD_DESTINATIONS)
    }
}

fn arp(pod: Pod, random: &mut Random) -> Vec<u8> {
    let target = match random.below(6) {
        0 => pod.gateway(),
        1 => Ipv4Addr::new(10, 0, pod.subnet, 2),
        2 => pod.address(),
        3 => Ipv4Addr::new(10, 0, pod.subnet, 77),
        _ => Ipv4Addr::new(10, 0, random.pick(&[1, 2]), random.pick(&[10, 11, 20, 21, 30])),
    };
    let sender = random.pick(&[pod.address(), pod.address(), Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(10, 0, 1, 66)]);
    let sender = if random.chance(if pod.is_node() { 50 } else { 2 }) { of_a_node(random) } else { sender };
    let mut frame = arp_request(pod.mac(), sender, target);
    if random.chance(10) {
        // A reply, or an operation that does not exist.
        frame[21] = random.pick(&[2, 3]);
    }
    frame
}

/// A packet that a Pod of node 0 sends, or the node itself, and what it was about.
pub fn from_pod(random: &mut Random, seeds: Seeds, sent: &[Sent], tables: &Tables) -> (Input, Option<Sent>) {
    let local: Vec<Pod> = pods().into_iter().filter(|pod| pod.node() == 0).collect();
    let pod = if random.chance(25) { Pod::node_port(0) } else { random.pick(&local) };
    let hook = if pod.is_node() { Hook::NodePort } else { Hook::Pod };
    // Rarely the one's program sees the other's packets.
    let hook = if random.chance(1) { random.pick(&[Hook::NodePort, Hook::Pod]) } else { hook };
    let input = |frame, gso_size| Input { hook, ifindex: pod.ifindex(), frame, gso_size };
    if random.chance(8) {
        let mut frame = arp(pod, random);
        damage(&mut frame, 0, random);
        return (input(frame, 0), None);
    }
    let answer = sent.iter().rev().take(40).filter(|s| s.to == Some(pod)).nth(random.below(4));
    let (source, destination, l4) = match answer {
        Some(about) if random.chance(50) => {
            let (source, destination, _) = about.as_seen();
            (destination, source, turned_round(about, random))
        }
        _ if random.chance(40)
            && let Some(about) = sent.iter().rev().take(40).filter(|s| s.from == pod).nth(random.below(3)) =>
        {
            (about.source, about.destination, again(about, random))
        }
        // A Service and one of its backends, from one port: SCTP cannot be given another.
        _ if random.chance(5) => {
            let to = [services::SCTP, Pod::new(0, 1, 11).address(), Pod::new(0, 2, 21).address()];
            (pod.address(), random.pick(&to), sctp(1111, 2905, 20))
        }
        _ => {
            let source = if pod.is_node() { random.pick(&own_addresses()) } else { pod.address() };
            let to = destination(pod, random);
            let l4 = if SERVICES.contains(&to) { to_service(to, random, sent) } else { layer4(random, sent) };
            (source, to, l4)
        }
    };
    let source = if pod.is_node() && random.chance(8) {
        random.pick(&[Ipv4Addr::new(10, 9, 1, 1), Pod::new(0, 1, 10).address(), vtep(1), own_address(1)])
    } else if source == pod.address() && pod == Pod::router(pod.tenant) && random.chance(60) || random.chance(2) {
        random.pick(&[Ipv4Addr::new(10, 9, 1, 1), Ipv4Addr::new(10, 0, 1, 20), Ipv4Addr::new(224, 0, 0, 9), vtep(0)])
    } else {
        source
    };
    let mut frame = Frame::new(source, destination, l4.clone()).macs(pod.mac(), pod.gateway_mac());
    vary(&mut frame, random);
    collide(&mut frame, seeds, random);
    carry(&mut frame, random);
    let mut bytes = frame.build();
    acknowledge(&mut bytes, &l4, random);
    absent_checksum(&mut bytes, &l4, random);
    let to = holder(pod.tenant, destination);
    let about = Sent { from: pod, to, inner: bytes.clone(), layer4: l4, source, destination, seen: None };
    let gso_size = match (&about.layer4, to) {
        (Layer4::Tcp { payload: 900.., .. }, Some(to)) if is_here(to, tables) && random.chance(50) => 500,
        _ => 0,
    };
    damage(&mut bytes, 0, random);
    (input(bytes, gso_size), Some(about))
}

fn turned_round(about: &Sent, random: &mut Random) -> Layer4 {
    match about.as_seen().2 {
        Layer4::Tcp { source, destination, .. } => Layer4::Tcp {
            source: *destination,
            destination: *source,
            flags: random.pick(&[TCP_SYN | TCP_ACK, TCP_ACK, TCP_FIN | TCP_ACK, TCP_RST]),
            payload: random.below(30),
        },
        Layer4::Udp { source, destination, .. } => {
            if random.chance(25) {
                return icmp_error(3, 3, &about.inner);
            }
            Layer4::Udp { source: *destination, destination: *source, payload: random.below(30) }
        }
        Layer4::Icmp { id, .. } => Layer4::Icmp { kind: 0, code: 0, id: *id, sequence: 1, payload: vec![7; 8] },
        Layer4::Raw { protocol: 132, payload } if payload.len() >= 4 => {
            let turned = [&payload[2..4], &payload[..2], &payload[4..]].concat();
            Layer4::Raw { protocol: 132, payload: turned }
        }
        other => other.clone(),
    }
}

/// A packet at the underlay of node 0, and what it was about.
pub fn from_underlay(
    ifindex: u32,
    mac: [u8; 6],
    random: &mut Random,
    seeds: Seeds,
    sent: &[Sent],
    tables: &Tables,
) -> (Input, Option<Sent>) {
    let (here, there) = (vtep(0), vtep(1));
    let input = |mut frame: Vec<u8>, hook| {
        if frame.len() >= 6 {
            frame[..6].copy_from_slice(&mac);
        }
        Input { hook, ifindex, frame, gso_size: 0 }
    };
    if random.chance(5) {
        return (input(underlay_icmp(random), Hook::Overlay), None);
    }
    let all = everybody();
    let moved = |pod: &Pod| {
        let key = EndpointKey { vpc: pod.vpc(), address: be32(pod.address()) };
        tables.endpoints.get(&key).is_some_and(|endpoint| endpoint.vtep == be32(there))
    };
    let remote: Vec<Pod> = all.iter().copied().filter(|pod| pod.node() == 1 || moved(pod)).collect();
    let from = random.pick(&remote);
    let local: Vec<Pod> = all.iter().copied().filter(|pod| pod.node() == 0 && pod.tenant == from.tenant).collect();
    let answer = sent.iter().rev().take(40).filter(|s| s.to == Some(from)).nth(random.below(4));
    let (to, source, destination, l4) = match answer {
        Some(about) if random.chance(60) => {
            let (source, destination, _) = about.as_seen();
            (about.from, destination, source, turned_round(about, random))
        }
        _ => {
            let to = random.pick(&local);
            let odd = to == Pod::router(to.tenant) && random.chance(60) || random.chance(4);
            let destination = match to {
                _ if odd => destination(from, random),
                node if node.is_node() => random.pick(&own_addresses()),
                pod => pod.address(),
            };
            let source = if random.chance(6) {
                random.pick(&[Ipv4Addr::new(10, 9, 3, 3), vtep(0)])
            } else if from.is_node() {
                random.pick(&[from.address(), vtep(1)])
            } else {
                from.address()
            };
            (to, source, destination, layer4(random, sent))
        }
    };
    let source_mac = if from.vni() == to.vni() { from.mac() } else { to.gateway_mac() };
    let mut frame = Frame::new(source, destination, l4.clone()).macs(source_mac, to.mac());
    vary(&mut frame, random);
    collide(&mut frame, seeds, random);
    carry(&mut frame, random);
    let mut inner = frame.build();
    absent_checksum(&mut inner, &l4, random);
    let about = Sent {
        from,
        to: holder(from.tenant, destination),
        inner: inner.clone(),
        layer4: l4,
        source,
        destination,
        seen: None,
    };
    damage(&mut inner, 0, random);
    if random.chance(3) {
        inner[0] ^= 0x10;
    }
    let vni = match random.below(20) {
        0 => random.pick(&[101, 102, 201, 202]),
        1 => 999,
        _ => to.vni(),
    };
    let outer_source = if random.chance(4) { Ipv4Addr::new(192, 0, 2, 99) } else { there };
    let mut outer = vxlan(outer_source, here, vni, random.pick(&[0, 0, 2, 3, 3]), &inner);
    if random.chance(8) {
        match random.below(7) {
            // VXLAN flags, UDP length, outer fragment, another port, another node, options.
            0 => outer[42] = random.pick(&[0, 0x0c, 0x18]),
            1 => outer[38] ^= 1,
            2 => outer[20] = random.pick(&[0x20, 0x01]),
            3 => outer[37] ^= 1,
            4 => outer[33] ^= 4,
            5 => outer[14] = 0x46,
            _ => outer.truncate(42 + random.below(30)),
        }
    }
    damage(&mut outer, 0, random);
    if random.chance(2) {
        return (Input { hook: Hook::Overlay, ifindex, frame: outer, gso_size: 0 }, None);
    }
    if random.chance(2) {
        return (input(inner, Hook::Vxlan), None);
    }
    (input(outer, Hook::Overlay), Some(about))
}

/// An ICMP error of the underlay, mostly 3/4 about our own tunnel.
fn underlay_icmp(random: &mut Random) -> Vec<u8> {
    let quoted = vxlan(vtep(0), vtep(1), 101, 0, &[0; 60]);
    let mtu = random.pick(&[1400_u16, 1300, 626, 500, 0, 1500]);
    let payload = quoted[14..14 + 28 - random.pick(&[0, 0, 0, 0, 9])].to_vec();
    let kind = random.pick(&[3, 3, 3, 11]);
    let code = random.pick(&[4, 4, 4, 1]);
    let router = Ipv4Addr::new(192, 0, 2, 254);
    let layer4 = Layer4::Icmp { kind, code, id: 0, sequence: mtu, payload };
    let mut frame = Frame::new(router, vtep(0), layer4).build();
    damage(&mut frame, 0, random);
    frame
}

/// The same flow's next packet.
pub fn goes_on(about: &Sent, random: &mut Random) -> (Input, Option<Sent>) {
    let pod = about.from;
    let hook = if pod.is_node() { Hook::NodePort } else { Hook::Pod };
    let mut layer4 = again(about, random);
    if let Layer4::Tcp { flags, .. } = &mut layer4 {
        *flags = random.pick(&[TCP_ACK, TCP_ACK, TCP_ACK | 8, TCP_SYN, TCP_FIN | TCP_ACK]);
    }
    let frame = Frame::new(about.source, about.destination, layer4.clone()).macs(pod.mac(), pod.gateway_mac());
    let frame = frame.build();
    let about = Sent { inner: frame.clone(), layer4, seen: None, ..about.clone() };
    (Input { hook, ifindex: pod.ifindex(), frame, gso_size: 0 }, Some(about))
}
