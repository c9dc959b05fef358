//! Who is where: endpoints, and for those of this node interfaces, MAC addresses and Subnets.

use super::nodes::NodePort;
use super::{Compilation, POLICY_GENERATION, Segments, endpoints_of, ipv4_of};
use crate::id::{MacAddr, Vni, VpcId, VpcIndex};
use crate::layout::{
    self, Be32, EP_EGRESS_ANY, EP_INGRESS_ANY, EP_LOCAL, EP_NODE, EP_POLICY_READY, EP_ROUTER, EndpointKey, Interface,
    KIND_NODE, KIND_POD, Mac, MacKey, Segment, be32, endpoint_generation, fnv1a,
};
use crate::model::{Endpoint, EndpointKind, Model, Problem, RouteTarget, Subnet};
use core::net::{IpAddr, Ipv4Addr};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

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

impl<'a> Compilation<'a> {
    /// Endpoints of the VPCs with a number. Yields the Subnets with one on this node.
    pub(super) fn endpoints(&mut self, vpcs: &BTreeMap<VpcId, VpcIndex>) -> Segments {
        let model = self.model;
        let vteps = self.vteps_of_nodes();
        let pods = PodNumbers::new(vpcs.keys().flat_map(|vpc| endpoints_of(model, *vpc)));
        let routers = routers(model, vpcs);
        let mut segments = Segments::new();
        let mut records = Vec::new();
        let mut macs: HashSet<(Vni, MacAddr)> = HashSet::new();
        let mut nodes = Vec::new();
        let mut stray: BTreeSet<&str> = self.attachments.keys().map(String::as_str).collect();
        for (vpc, index) in vpcs {
            macs.clear();
            for endpoint in endpoints_of(model, *vpc) {
                if endpoint.node == self.node.name {
                    stray.remove(endpoint.name.as_str());
                }
                let placed = self.place(endpoint, &vteps).and_then(|placed| {
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
                let record = self.record(endpoint, &placed, router, pods.get(&endpoint.pod));
                let key = EndpointKey { vpc: vpc.get(), address: placed.address };
                match placed.place {
                    Place::There(vtep) => {
                        records.push((key, record));
                        if endpoint.kind == EndpointKind::Node {
                            nodes.push(NodePort { endpoint, record, vtep: Some(vtep) });
                        }
                        continue;
                    }
                    Place::Waiting => {}
                    Place::Here(ifindex) if self.tables.interfaces.contains_key(&ifindex) => self.problem(
                        endpoint,
                        format!("interface {ifindex} is another endpoint's"),
                        "detach one of the two, and attach it again",
                    ),
                    Place::Here(ifindex) => {
                        records.push((key, record));
                        self.tables.interfaces.insert(ifindex, interface(&record, key, &placed, *index));
                        let mac = Mac { address: placed.address, ifindex };
                        self.tables.macs.insert(MacKey::new(record.vni, record.mac), mac);
                        if endpoint.kind == EndpointKind::Node {
                            nodes.push(NodePort { endpoint, record, vtep: None });
                        }
                    }
                }
                segments.insert(endpoint.subnet);
            }
        }
        self.behind_nodes(nodes, &mut records);
        // Built at once, which is several times faster than one by one.
        self.tables.endpoints = records.into_iter().collect();
        for vni in &segments {
            self.segment(*vni, vpcs);
        }
        self.stray_attachments(&stray);
        segments
    }

    /// The other nodes' addresses; nodes without one that can be used are left out.
    fn vteps_of_nodes(&self) -> HashMap<&'a str, Ipv4Addr> {
        let others = self.model.nodes.iter().filter_map(|(name, node)| match node.internal_ip {
            IpAddr::V4(address) if address != self.node.vtep => Some((name.as_str(), address)),
            _ => None,
        });
        others.collect()
    }

    /// Where an endpoint is, and what of its Subnet goes into its record; else a message and a remedy.
    fn place(
        &self,
        endpoint: &Endpoint,
        vteps: &HashMap<&str, Ipv4Addr>,
    ) -> Result<Placed<'a>, (String, &'static str)> {
        let subnet =
            self.model.subnets.get(&endpoint.subnet).filter(|subnet| subnet.vpc == endpoint.vpc).ok_or_else(|| {
                (format!("VPC {} has no Subnet with VNI {}", endpoint.vpc, endpoint.subnet), "create it")
            })?;
        let (Some((prefix_length, gateway)), IpAddr::V4(address)) = (ipv4_of(subnet), endpoint.address) else {
            return Err((format!("{} is IPv6, which is not programmed yet", endpoint.address), "use an IPv4 Subnet"));
        };
        if !subnet.prefix.contains(&endpoint.address) {
            return Err((
                format!("{address} is outside Subnet/{} ({})", subnet.name, subnet.prefix),
                "give it an address of its Subnet",
            ));
        }
        let place = if endpoint.node == self.node.name {
            self.attachments
                .get(&endpoint.name)
                .map_or(Place::Waiting, |attachment| Place::Here(attachment.ifindex.get()))
        } else {
            let vtep = vteps.get(endpoint.node.as_str()).ok_or_else(|| {
                (
                    format!("Node/{} has no InternalIP that can be used", endpoint.node),
                    "give the node an IPv4 InternalIP of its own, or correct spec.nodeName",
                )
            })?;
            Place::There(*vtep)
        };
        Ok(Placed { subnet, prefix_length, gateway, address: be32(address), place })
    }

    fn problem(&mut self, endpoint: &Endpoint, message: String, remedy: &str) {
        let object = format!("NetworkEndpoint/{}", endpoint.name);
        self.problems.push(Problem::new(object, message, remedy).at(&endpoint.origin));
    }

    fn record(&self, endpoint: &Endpoint, placed: &Placed<'_>, router: bool, pod: u32) -> layout::Endpoint {
        let is_node = endpoint.kind == EndpointKind::Node;
        let mut flags = 0;
        for (set, flag) in [
            (endpoint.policy_ready, EP_POLICY_READY),
            // What a node forwards has no way in, and routes to it are refused.
            (router && !is_node, EP_ROUTER),
            (is_node, EP_NODE),
            // No narrower rules are compiled.
            (matches!(placed.place, Place::Here(_)), EP_LOCAL | EP_EGRESS_ANY | EP_INGRESS_ANY),
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
            kind: if is_node { KIND_NODE } else { KIND_POD },
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

    /// What is attached here without being described as here is closed; say so.
    fn stray_attachments(&mut self, names: &BTreeSet<&str>) {
        for name in names {
            let object = format!("NetworkEndpoint/{name}");
            let problem = match self.model.endpoints.values().find(|endpoint| endpoint.name == *name) {
                Some(endpoint) if endpoint.node != self.node.name => Problem::new(
                    object,
                    format!("is attached to this node, but is on Node/{}; it reaches nothing", endpoint.node),
                    "set spec.nodeName to the node that the Pod runs on",
                )
                .at(&endpoint.origin),
                // Its VPC has no number, which is told there.
                Some(_) => continue,
                None => Problem::new(
                    object,
                    "is attached to this node, but does not exist or cannot be used; it reaches nothing",
                    "create it, or mend what is wrong with it",
                ),
            };
            self.problems.push(problem);
        }
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
        pod: record.pod,
        zero2: 0,
    }
}

/// Endpoints that an endpoint route of their VPC names, whichever table it stands in.
fn routers(model: &Model, vpcs: &BTreeMap<VpcId, VpcIndex>) -> BTreeSet<(VpcId, IpAddr)> {
    let tables = model.tables.values().filter(|table| vpcs.contains_key(&table.vpc));
    tables
        .flat_map(|table| table.routes.iter().map(|route| (table.vpc, &route.target)))
        .filter_map(|(vpc, target)| match target {
            RouteTarget::Endpoint(address) => Some((vpc, *address)),
            RouteTarget::Connected(_) | RouteTarget::Service | RouteTarget::Gone(_) => None,
        })
        .collect()
}

/// A number for each Pod: a hash of its uid, so that it does not move when others come and go. Of several with one
/// hash, the first by uid has it; the others are given numbers that nobody's hash is.
struct PodNumbers<'m> {
    others: BTreeMap<&'m str, u32>,
}

impl<'m> PodNumbers<'m> {
    fn new(endpoints: impl Iterator<Item = &'m Endpoint>) -> Self {
        let mut pods: Vec<(u32, &str)> =
            endpoints.map(|endpoint| (fnv1a(endpoint.pod.as_bytes()), &*endpoint.pod)).collect();
        pods.sort_unstable();
        pods.dedup();
        let holds = |number: u32| pods.binary_search_by_key(&number, |(hash, _)| *hash).is_ok();
        let mut others = BTreeMap::new();
        let mut given = BTreeSet::from([0]);
        for (position, (hash, uid)) in pods.iter().enumerate() {
            let is_first = position.checked_sub(1).and_then(|before| pods.get(before)).is_none_or(|(h, _)| h != hash);
            if is_first && *hash != 0 {
                continue;
            }
            let mut number = *hash;
            while holds(number) || !given.insert(number) {
                number = number.wrapping_add(1);
            }
            others.insert(*uid, number);
        }
        Self { others }
    }

    /// The number of the Pod with this uid; 0 without a uid.
    fn get(&self, uid: &str) -> u32 {
        if uid.is_empty() {
            return 0;
        }
        self.others.get(uid).copied().unwrap_or_else(|| fnv1a(uid.as_bytes()))
    }
}
