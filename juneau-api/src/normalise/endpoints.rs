//! Endpoints: only those that Pod, NetworkInterface, Node and Subnet agree about.

use super::context::Context;
use super::networks::Usable;
use super::{Wrong, by_age, missing, parse, problem, wrong};
use crate::access::namespace_may_enter;
use crate::kinds::{self, EndpointKind};
use crate::names;
use crate::view::{self, Item, PodReference, View, Workloads};
use core::net::IpAddr;
use juneau_core::id::{IdError, Identity, MacAddr, Vni, VpcId};
use juneau_core::model::{self, Endpoint, Node, Problem};
use std::collections::BTreeMap;

/// The VPC whose endpoint something would be; none if its Subnet cannot be used. Endpoints of one owner compete for
/// addresses with each other and with nobody else.
pub(super) type Owner = Option<VpcId>;

/// Who owns an endpoint.
pub(super) fn owner(context: &Context, endpoint: &view::NetworkEndpoint) -> Owner {
    endpoint.subnet.as_ref().and_then(|name| context.subnets.get(name)).map(|subnet| subnet.vpc)
}

/// What endpoints are judged by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judge<'a> {
    pub(super) view: &'a View,
    pub(super) context: &'a Context,
    /// Usable nodes by name.
    pub(super) nodes: &'a BTreeMap<String, Node>,
}

/// Where an endpoint stands.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    namespace: &'a str,
    workloads: &'a Workloads,
    name: &'a str,
    item: &'a Item<view::NetworkEndpoint>,
    /// Why its Namespace may not enter its VPC.
    refused: Option<&'a Wrong>,
}

impl core::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl<'a> Judge<'a> {
    /// All endpoints of an owner that can be used, and what is wrong with the others. `namespaces` are those that may
    /// hold any.
    pub(super) fn endpoints(
        &self,
        owner: Owner,
        namespaces: impl Iterator<Item = &'a str>,
    ) -> (BTreeMap<(VpcId, IpAddr), Endpoint>, Vec<Problem>) {
        let mut places = Vec::new();
        let judged: Vec<_> =
            namespaces.map(|namespace| (namespace, refusal(self.view, self.context, owner, namespace))).collect();
        for (namespace, refused) in &judged {
            let Some(workloads) = self.view.workloads.get(*namespace) else { continue };
            let refused = refused.as_ref();
            for (name, item) in &workloads.network_endpoints {
                let programmed = item.object.kind != EndpointKind::ServiceNAT;
                if programmed && self::owner(self.context, &item.object) == owner {
                    places.push(Place { namespace, workloads, name, item, refused });
                }
            }
        }
        by_age(&mut places, |place| place.item.object.created.as_ref());
        let mut endpoints: BTreeMap<(VpcId, IpAddr), Endpoint> = BTreeMap::new();
        let mut macs: BTreeMap<(Vni, MacAddr), Place<'_>> = BTreeMap::new();
        let mut nodes: BTreeMap<&str, Place<'_>> = BTreeMap::new();
        let mut problems = Vec::new();
        for place in places {
            let endpoint = self.endpoint(place).and_then(|endpoint| {
                if let Some(holder) =
                    nodes.get(&*place.item.object.node).filter(|_| endpoint.kind == model::EndpointKind::Node)
                {
                    return Err(wrong(
                        format!("Node/{} has NetworkEndpoint/{holder} already", endpoint.node),
                        "remove one of the two",
                    ));
                }
                if let Some(holder) = endpoints.get(&(endpoint.vpc, endpoint.address)) {
                    return Err(wrong(
                        format!("address {} is NetworkEndpoint/{}'s already", endpoint.address, holder.name),
                        "give each endpoint of a VPC an address of its own",
                    ));
                }
                match macs.get(&(endpoint.subnet, endpoint.mac)) {
                    Some(holder) => Err(wrong(
                        format!("MAC address {} is NetworkEndpoint/{holder}'s already", endpoint.mac),
                        "give each endpoint of a Subnet a MAC address of its own",
                    )),
                    None => Ok(endpoint),
                }
            });
            let mut complain = |wrong| problems.push(problem(format!("NetworkEndpoint/{place}"), place.item, wrong));
            match endpoint {
                Ok(endpoint) => {
                    if !endpoint.policy_ready && !self.is_closed(place.item) {
                        complain(wrong(
                            "SecurityGroups are not programmed yet; the endpoint is closed",
                            "remove spec.securityGroups of its NetworkInterface, or wait for a version that knows them",
                        ));
                    }
                    macs.insert((endpoint.subnet, endpoint.mac), place);
                    if endpoint.kind == model::EndpointKind::Node {
                        nodes.insert(&place.item.object.node, place);
                    }
                    endpoints.insert((endpoint.vpc, endpoint.address), endpoint);
                }
                Err(wrong) => complain(wrong),
            }
        }
        (endpoints, problems)
    }

    /// Whether its Subnet is closed, which is told there.
    fn is_closed(&self, item: &Item<view::NetworkEndpoint>) -> bool {
        let subnet = item.object.subnet.as_deref().unwrap_or_default();
        self.context.subnets.get(subnet).is_some_and(|subnet| subnet.closed)
    }

    fn endpoint(&self, place: Place<'_>) -> Result<Endpoint, Wrong> {
        let object = &*place.item.object;
        if object.kind == EndpointKind::Unknown {
            return Err(wrong("spec.kind is none that is known", "use Pod, Node or ServiceNAT"));
        }
        let subnet_name = network(object)?;
        let subnet =
            *self.context.subnets.get(subnet_name).ok_or_else(|| missing("Subnet", subnet_name, &self.view.subnets))?;
        let is_node = object.kind == EndpointKind::Node;
        if let Some(refused) = place.refused.filter(|_| !is_node) {
            return Err(refused.clone());
        }
        let address = endpoint_address(object.address.as_deref(), subnet_name, subnet)?;
        let mac = object.mac.as_deref().ok_or_else(|| wrong("has no MAC address", "set spec.macAddress"))?;
        let mac: MacAddr = mac.parse().map_err(|error: IdError| {
            wrong(format!("spec.macAddress: {error}"), "set a locally administered one, as in 02:00:0a:00:01:0a")
        })?;
        if mac == subnet.gateway_mac {
            return Err(wrong(
                format!("MAC address {mac} is the gateway's of Subnet/{subnet_name}"),
                "give the endpoint a MAC address of its own",
            ));
        }
        let (pod, has_groups) = if is_node {
            self.check_node(place, subnet_name, subnet)?;
            (String::new(), false)
        } else {
            let pod = object.pod.as_ref().ok_or_else(|| wrong("has no podRef", "set spec.podRef"))?;
            self.check_pod(place, pod)?;
            let interface = check_interface(place, pod, subnet_name, address)?;
            (pod.uid.to_string(), interface.has_groups)
        };
        if !self.nodes.contains_key(&*object.node) {
            return Err(missing("Node", &object.node, &self.view.nodes));
        }
        Ok(Endpoint {
            name: place.to_string(),
            vpc: subnet.vpc,
            subnet: subnet.vni,
            address,
            mac,
            node: object.node.to_string(),
            identity: Identity::NO_GROUPS,
            policy_ready: !has_groups && !subnet.closed,
            kind: if is_node { model::EndpointKind::Node } else { model::EndpointKind::Pod },
            pod,
            origin: place.item.origin.to_string(),
        })
    }

    /// A node is in the VPC that all nodes are in, and nowhere else.
    fn check_node(&self, place: Place<'_>, name: &str, subnet: Usable) -> Result<(), Wrong> {
        let derived = names::node_endpoint(&place.item.object.node);
        if place.name != derived {
            return Err(wrong(
                format!("is not named after its node, {derived}"),
                format!("name it {derived}, or correct spec.nodeName"),
            ));
        }
        if self.context.nodes_vpc != Some(subnet.vpc) {
            return Err(wrong(
                format!("Subnet/{name} is not of Vpc/{}, which is the only one that nodes are in", names::DEFAULT),
                format!("set spec.subnet to one of Vpc/{}", names::DEFAULT),
            ));
        }
        Ok(())
    }

    fn check_pod(&self, place: Place<'_>, wanted: &PodReference) -> Result<(), Wrong> {
        let derived = names::interface(&wanted.name, &wanted.interface);
        if place.name != derived {
            return Err(wrong(
                format!("is not named after its Pod and interface, {derived}"),
                format!("name it {derived}, or correct spec.podRef"),
            ));
        }
        let object = || format!("Pod/{}/{}", place.namespace, wanted.name);
        let Some(pod) = place.workloads.pods.get(&wanted.name) else {
            return match &self.view.pods_of {
                // Its own node judges it by its Pod.
                Some(node) if *node != place.item.object.node => Ok(()),
                Some(node) => Err(wrong(
                    format!("{} does not exist on Node/{node}", object()),
                    "remove the endpoint, or correct its node",
                )),
                None => Err(wrong(
                    format!("{} does not exist", object()),
                    format!("create {}, or remove the endpoint", object()),
                )),
            };
        };
        let pod = &pod.object;
        if pod.host_network {
            return Err(wrong(
                format!("{} is in its node's own network", object()),
                "remove the endpoint, or hostNetwork of the Pod",
            ));
        }
        let pairs = [
            ("uid", "podRef.uid", &*pod.uid, &*wanted.uid),
            ("node", "nodeName", pod.node.as_deref().unwrap_or_default(), &*place.item.object.node),
        ];
        agree(object, pairs)
    }
}

fn check_interface<'a>(
    place: Place<'a>,
    pod: &PodReference,
    subnet: &str,
    address: IpAddr,
) -> Result<&'a view::NetworkInterface, Wrong> {
    let object = || format!("NetworkInterface/{place}");
    let interface = place.workloads.network_interfaces.get(place.name).ok_or_else(|| {
        wrong(format!("{} does not exist", object()), format!("create {}, or remove the endpoint", object()))
    })?;
    let other = &*interface.object;
    let pairs = [
        ("Pod's uid", "podRef.uid", &*other.pod.uid, &*pod.uid),
        ("Pod", "podRef.name", &*other.pod.name, &*pod.name),
        ("interface", "podRef.interface", &*other.pod.interface, &*pod.interface),
        ("node", "nodeName", &*other.node, &*place.item.object.node),
        ("Subnet", "subnet", other.subnet.as_deref().unwrap_or_default(), subnet),
    ];
    agree(object, pairs)?;
    let allocated = other
        .address
        .as_deref()
        .ok_or_else(|| wrong(format!("{} has no address", object()), format!("set status.address of {}", object())))?;
    let (allocated, _) = parse::address(allocated)
        .map_err(|(message, remedy)| wrong(format!("{} status.address: {message}", object()), remedy))?;
    if allocated != address {
        return Err(wrong(
            format!("{} has the address {allocated}, not {address}", object()),
            "give both the same address",
        ));
    }
    Ok(other)
}

/// Why a Namespace may not enter a VPC.
pub(super) fn refusal(view: &View, context: &Context, owner: Owner, namespace: &str) -> Option<Wrong> {
    let vpc = context.closed.get(&owner?)?;
    let object = view.namespaces.get(namespace).map(|item| {
        let labels = item.object.labels.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let mut object = kinds::Namespace::default();
        object.metadata.labels = Some(labels.collect());
        object
    });
    let refused = namespace_may_enter(vpc, namespace, object.as_ref(), context.require_binding).err()?;
    let message = format!("Namespace/{} may not enter Vpc/{}: {}", refused.namespace, refused.vpc, refused.why);
    Some(wrong(message, refused.why.remedy()))
}

/// The Subnet, which is the only network that is programmed.
fn network(object: &view::NetworkEndpoint) -> Result<&str, Wrong> {
    match (object.subnet.as_deref(), object.has_l2_network, object.has_external_network) {
        (Some(subnet), false, false) => Ok(subnet),
        (None, true, false) => Err(wrong("L2Networks are not programmed yet", "use a Subnet")),
        (None, false, true) => Err(wrong("ExternalNetworks are not programmed yet", "use a Subnet")),
        (None, false, false) => Err(wrong("has no network", "set spec.subnet")),
        _ => Err(wrong("has more than one network", "set one of spec.subnet, spec.l2Network, spec.externalNetwork")),
    }
}

/// An address that a Pod of the Subnet may have.
fn endpoint_address(text: Option<&str>, name: &str, subnet: Usable) -> Result<IpAddr, Wrong> {
    let text = text.ok_or_else(|| wrong("has no address", "set spec.address"))?;
    let (address, length) =
        parse::address(text).map_err(|(message, remedy)| wrong(format!("spec.address: {message}"), remedy))?;
    let prefix = subnet.prefix;
    let free = format!("use a free address of {prefix}");
    if !prefix.contains(&address) {
        return Err(wrong(format!("address {address} is outside Subnet/{name} ({prefix})"), free));
    }
    if length.is_some_and(|length| length != prefix.prefix_len() && length != prefix.max_prefix_len()) {
        let right = format!("write {address}/{}", prefix.prefix_len());
        return Err(wrong(format!("spec.address: the length of {text} is not the Subnet's ({prefix})"), right));
    }
    if !parse::is_host(prefix, address) {
        let what = if address == prefix.network() { "network" } else { "broadcast" };
        return Err(wrong(format!("address {address} is the {what} address of Subnet/{name}"), free));
    }
    if address == subnet.gateway {
        return Err(wrong(format!("address {address} is the gateway of Subnet/{name}"), free));
    }
    if Some(address) == parse::next(subnet.gateway) {
        return Err(wrong(format!("address {address} is the virtual DNS of Subnet/{name}"), free));
    }
    Ok(address)
}

/// Compares fields of another object with those of the endpoint: {what, the endpoint's field, theirs, ours}.
fn agree<const N: usize>(object: impl Fn() -> String, pairs: [(&str, &str, &str, &str); N]) -> Result<(), Wrong> {
    for (what, field, theirs, ours) in pairs {
        if theirs.is_empty() {
            let object = object();
            return Err(wrong(format!("{object} has no {what}"), format!("set it in {object}")));
        }
        if theirs != ours {
            let object = object();
            return Err(wrong(
                format!("{object} has the {what} {theirs:?}, not {ours:?}"),
                format!("correct spec.{field}, or {object}"),
            ));
        }
    }
    Ok(())
}
