//! Who is where: endpoints, and for those of this node interfaces, MAC addresses and Subnets.

use super::{Compilation, NodeContext, POLICY_GENERATION, Segments, endpoints_of, ipv4_of};
use crate::id::{MacAddr, Vni, VpcId, VpcIndex};
use crate::layout::{
    self, Be32, EP_LOCAL, EP_POLICY_READY, EP_ROUTER, EndpointKey, Interface, KIND_POD, Mac, MacKey, Segment, be32,
    endpoint_generation,
};
use crate::model::{Attachments, Endpoint, Model, Problem, RouteTarget, Subnet};
use core::net::{IpAddr, Ipv4Addr};
use std::collections::{BTreeMap, BTreeSet};

/// Where an endpoint is.
enum Place {
    /// On this node, behind this interface.
    Here(u32),
    /// On this node, but not attached yet.
    Waiting,
    /// On another node.
    There(Ipv4Addr),
}

/// An endpoint that can be programmed.
struct Placed<'m> {
    subnet: &'m Subnet,
    prefix_length: u8,
    gateway: Ipv4Addr,
    address: Be32,
    place: Place,
}

impl Compilation<'_> {
    /// Endpoints of the VPCs with a number. Yields the Subnets with one on this node.
    pub(super) fn endpoints(&mut self, vpcs: &BTreeMap<VpcId, VpcIndex>) -> Segments {
        let model = self.model;
        let pods = pod_numbers(model, vpcs);
        let routers = routers(model, vpcs);
        let mut segments = Segments::new();
        let mut macs: BTreeSet<(Vni, MacAddr)> = BTreeSet::new();
        for (vpc, index) in vpcs {
            for endpoint in endpoints_of(model, *vpc) {
                let placed = place(model, self.node, self.attachments, endpoint).and_then(|placed| {
                    if macs.insert((endpoint.subnet, endpoint.mac)) {
                        return Ok(placed);
                    }
                    let name = &placed.subnet.name;
                    Err((
                        format!("MAC address {} is another endpoint's of Subnet/{name} as well", endpoint.mac),
                        "give each endpoint of a Subnet a MAC address of its own",
                    ))
                });
                let placed = match placed {
                    Ok(placed) => placed,
                    Err((message, remedy)) => {
                        self.problem(endpoint, message, remedy);
                        continue;
                    }
                };
                let router = routers.contains(&(*vpc, endpoint.address));
                let pod = pods.get(endpoint.pod.as_str()).copied().unwrap_or_default();
                let record = self.record(endpoint, &placed, router, pod);
                let key = EndpointKey { vpc: vpc.get(), address: placed.address };
                if !matches!(placed.place, Place::There(_)) {
                    segments.insert(endpoint.subnet);
                }
                match placed.place {
                    Place::Waiting => {}
                    Place::There(_) => {
                        self.tables.endpoints.insert(key, record);
                    }
                    Place::Here(ifindex) if self.tables.interfaces.contains_key(&ifindex) => self.problem(
                        endpoint,
                        format!("interface {ifindex} is another endpoint's"),
                        "detach one of the two, and attach it again",
                    ),
                    Place::Here(ifindex) => {
                        self.tables.interfaces.insert(ifindex, interface(&record, key, &placed, *index));
                        self.tables.endpoints.insert(key, record);
                        let mac = Mac { address: placed.address, ifindex };
                        self.tables.macs.insert(MacKey::new(record.vni, record.mac), mac);
                    }
                }
            }
        }
        for vni in &segments {
            self.segment(*vni, vpcs);
        }
        segments
    }

    fn problem(&mut self, endpoint: &Endpoint, message: String, remedy: &str) {
        let object = format!("NetworkEndpoint/{}", endpoint.name);
        self.problems.push(Problem::new(object, message, remedy).at(&endpoint.origin));
    }

    fn record(&self, endpoint: &Endpoint, placed: &Placed<'_>, router: bool, pod: u32) -> layout::Endpoint {
        let mut flags = 0;
        for (set, flag) in [
            (endpoint.policy_ready, EP_POLICY_READY),
            (router, EP_ROUTER),
            (matches!(placed.place, Place::Here(_)), EP_LOCAL),
        ] {
            flags |= if set { flag } else { 0 };
        }
        let (ifindex, vtep) = match placed.place {
            Place::Here(ifindex) => (ifindex, Be32::ZERO),
            Place::There(vtep) => (0, be32(vtep)),
            Place::Waiting => (0, Be32::ZERO),
        };
        layout::Endpoint {
            flags,
            ifindex,
            vtep,
            vni: endpoint.subnet.get(),
            mac: endpoint.mac.octets(),
            gateway_mac: placed.subnet.gateway_mac.octets(),
            mtu: self.node.pod_mtu,
            kind: KIND_POD,
            zero1: 0,
            identity: endpoint.identity.get(),
            policy: POLICY_GENERATION,
            generation: endpoint_generation(endpoint.vpc.get(), placed.address),
            table: table_of(placed.subnet),
            pod,
            zero2: 0,
        }
    }

    fn segment(&mut self, vni: Vni, vpcs: &BTreeMap<VpcId, VpcIndex>) {
        let Some(subnet) = self.model.subnets.get(&vni) else { return };
        let Some(index) = vpcs.get(&subnet.vpc) else { return };
        let Some((prefix_length, gateway)) = ipv4_of(subnet) else { return };
        let segment = Segment {
            vpc: subnet.vpc.get(),
            vpc_index: index_of(*index),
            mtu: self.node.pod_mtu,
            gateway: be32(gateway),
            gateway_mac: subnet.gateway_mac.octets(),
            prefix_length,
            zero: 0,
            table: table_of(subnet),
        };
        self.tables.segments.insert(vni.get(), segment);
    }

    /// What is attached here without being described is closed; say so.
    pub(super) fn stray_attachments(&mut self) {
        let described: BTreeMap<&str, &Endpoint> = self
            .model
            .endpoints
            .values()
            .filter(|endpoint| self.attachments.contains_key(&endpoint.name))
            .map(|endpoint| (endpoint.name.as_str(), endpoint))
            .collect();
        let mut problems = Vec::new();
        for name in self.attachments.keys() {
            match described.get(name.as_str()) {
                None => problems.push(Problem::new(
                    format!("NetworkEndpoint/{name}"),
                    "is attached to this node, but does not exist or cannot be used; it reaches nothing",
                    "create it, or mend what is wrong with it",
                )),
                Some(endpoint) if endpoint.node != self.node.name => problems.push(
                    Problem::new(
                        format!("NetworkEndpoint/{name}"),
                        format!("is attached to this node, but is on Node/{}; it reaches nothing", endpoint.node),
                        "set spec.nodeName to the node that the Pod runs on",
                    )
                    .at(&endpoint.origin),
                ),
                Some(_) => {}
            }
        }
        self.problems.append(&mut problems);
    }
}

fn table_of(subnet: &Subnet) -> u32 {
    subnet.table.map_or(0, |table| table.get())
}

fn index_of(index: VpcIndex) -> u16 {
    u16::try_from(index.get()).unwrap_or_default()
}

fn interface(record: &layout::Endpoint, key: EndpointKey, placed: &Placed<'_>, index: VpcIndex) -> Interface {
    Interface {
        vpc: key.vpc,
        vni: record.vni,
        table: record.table,
        flags: record.flags,
        address: key.address,
        gateway: be32(placed.gateway),
        mac: record.mac,
        gateway_mac: record.gateway_mac,
        mtu: record.mtu,
        vpc_index: index_of(index),
        kind: record.kind,
        prefix_length: placed.prefix_length,
        zero1: 0,
        identity: record.identity,
        policy: record.policy,
        generation: record.generation,
        zero2: [0; 2],
    }
}

/// Where an endpoint is, and what of its Subnet goes into its record; else a message and a remedy.
fn place<'m>(
    model: &'m Model,
    node: &NodeContext,
    attachments: &Attachments,
    endpoint: &Endpoint,
) -> Result<Placed<'m>, (String, &'static str)> {
    let subnet = model
        .subnets
        .get(&endpoint.subnet)
        .filter(|subnet| subnet.vpc == endpoint.vpc)
        .ok_or_else(|| (format!("VPC {} has no Subnet with VNI {}", endpoint.vpc, endpoint.subnet), "create it"))?;
    let (Some((prefix_length, gateway)), IpAddr::V4(address)) = (ipv4_of(subnet), endpoint.address) else {
        return Err((format!("{} is IPv6, which is not programmed yet", endpoint.address), "use an IPv4 Subnet"));
    };
    if !subnet.prefix.contains(&endpoint.address) {
        return Err((
            format!("{address} is outside Subnet/{} ({})", subnet.name, subnet.prefix),
            "give it an address of its Subnet",
        ));
    }
    let place = if endpoint.node == node.name {
        attachments.get(&endpoint.name).map_or(Place::Waiting, |attachment| Place::Here(attachment.ifindex.get()))
    } else {
        match model.nodes.get(&endpoint.node).map(|node| node.internal_ip) {
            Some(IpAddr::V4(vtep)) if vtep != node.vtep => Place::There(vtep),
            _ => {
                return Err((
                    format!("Node/{} has no InternalIP that can be used", endpoint.node),
                    "give the node an IPv4 InternalIP of its own, or correct spec.nodeName",
                ));
            }
        }
    };
    Ok(Placed { subnet, prefix_length, gateway, address: be32(address), place })
}

/// Endpoints that an endpoint route of their VPC names, whichever table it stands in.
fn routers(model: &Model, vpcs: &BTreeMap<VpcId, VpcIndex>) -> BTreeSet<(VpcId, IpAddr)> {
    let tables = model.tables.values().filter(|table| vpcs.contains_key(&table.vpc));
    tables
        .flat_map(|table| table.routes.iter().map(|route| (table.vpc, &route.target)))
        .filter_map(|(vpc, target)| match target {
            RouteTarget::Endpoint(address) => Some((vpc, *address)),
            RouteTarget::Connected(_) | RouteTarget::Gone(_) => None,
        })
        .collect()
}

/// A number for each Pod: a hash of its uid, so that it does not move when others come and go. Of two with one hash,
/// the later by uid takes the next number.
fn pod_numbers<'m>(model: &'m Model, vpcs: &BTreeMap<VpcId, VpcIndex>) -> BTreeMap<&'m str, u32> {
    let uids: BTreeSet<&str> = vpcs
        .keys()
        .flat_map(|vpc| endpoints_of(model, *vpc))
        .map(|endpoint| endpoint.pod.as_str())
        .filter(|uid| !uid.is_empty())
        .collect();
    let mut taken = BTreeSet::from([0]);
    let mut numbers = BTreeMap::new();
    for uid in uids {
        let mut number = fnv1a(uid);
        while !taken.insert(number) {
            number = number.wrapping_add(1);
        }
        numbers.insert(uid, number);
    }
    numbers
}

/// FNV-1a in 32 bits.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
