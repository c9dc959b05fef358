//! Endpoints: only those that Pod, NetworkInterface, Node and Subnet agree about.

use super::networks::Usable;
use super::{Normaliser, Wrong, by_age, missing, parse, wrong};
use crate::kinds::{self, EndpointKind};
use crate::view::{Item, ObjectName};
use core::net::IpAddr;
use juneau_core::id::{IdError, Identity, MacAddr, Vni};
use juneau_core::model::Endpoint;
use std::collections::BTreeMap;

impl Normaliser<'_> {
    pub(super) fn endpoints(&mut self) {
        let view = self.view;
        let mut macs: BTreeMap<(Vni, MacAddr), &ObjectName> = BTreeMap::new();
        for (name, item) in by_age(&view.network_endpoints, |e| e.metadata.creation_timestamp.as_ref()) {
            if matches!(item.object.spec.kind, EndpointKind::Node | EndpointKind::ServiceNAT) {
                continue;
            }
            let endpoint = self.endpoint(name, item).and_then(|endpoint| {
                if let Some(holder) = self.model.endpoints.get(&(endpoint.vpc, endpoint.address)) {
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
            match endpoint {
                Ok(endpoint) => {
                    if !endpoint.policy_ready && !self.is_closed(item) {
                        let wrong = wrong(
                            "SecurityGroups are not programmed yet; the endpoint is closed",
                            "remove spec.securityGroups of its NetworkInterface, or wait for a version that knows them",
                        );
                        self.problem(format!("NetworkEndpoint/{name}"), item, wrong);
                    }
                    macs.insert((endpoint.subnet, endpoint.mac), name);
                    self.model.endpoints.insert((endpoint.vpc, endpoint.address), endpoint);
                }
                Err(wrong) => self.problem(format!("NetworkEndpoint/{name}"), item, wrong),
            }
        }
    }

    /// Whether its Subnet is closed, which is told there.
    fn is_closed(&self, item: &Item<kinds::NetworkEndpoint>) -> bool {
        let subnet = item.object.spec.subnet.as_deref().unwrap_or_default();
        self.subnets.get(subnet).is_some_and(|subnet| subnet.closed)
    }

    fn endpoint(&self, name: &ObjectName, item: &Item<kinds::NetworkEndpoint>) -> Result<Endpoint, Wrong> {
        let spec = &item.object.spec;
        if spec.kind == EndpointKind::Unknown {
            return Err(wrong("spec.kind is none that is known", "use Pod, Node or ServiceNAT"));
        }
        let subnet_name = network(spec)?;
        let subnet =
            *self.subnets.get(subnet_name).ok_or_else(|| missing("Subnet", subnet_name, &self.view.subnets))?;
        let address = endpoint_address(spec.address.as_deref(), subnet_name, subnet)?;
        let mac = spec.mac_address.as_deref().ok_or_else(|| wrong("has no MAC address", "set spec.macAddress"))?;
        let mac: MacAddr = mac.parse().map_err(|error: IdError| {
            wrong(format!("spec.macAddress: {error}"), "set a locally administered one, as in 02:00:0a:00:01:0a")
        })?;
        if mac == subnet.gateway_mac {
            return Err(wrong(
                format!("MAC address {mac} is the gateway's of Subnet/{subnet_name}"),
                "give the endpoint a MAC address of its own",
            ));
        }
        let pod = spec.pod_ref.as_ref().ok_or_else(|| wrong("has no podRef", "set spec.podRef"))?;
        self.check_pod(name, &spec.node_name, pod)?;
        let interface = self.check_interface(name, spec, pod, subnet_name, address)?;
        if !self.model.nodes.contains_key(&spec.node_name) {
            return Err(missing("Node", &spec.node_name, &self.view.nodes));
        }
        Ok(Endpoint {
            name: name.to_string(),
            vpc: subnet.vpc,
            subnet: subnet.vni,
            address,
            mac,
            node: spec.node_name.clone(),
            identity: Identity::NO_GROUPS,
            policy_ready: interface.security_groups.is_empty() && !subnet.closed,
            pod: pod.uid.clone(),
            origin: item.origin.to_string(),
        })
    }

    fn check_pod(&self, name: &ObjectName, node: &str, wanted: &kinds::EndpointPodRef) -> Result<(), Wrong> {
        let derived = format!("{}.{}", wanted.name, wanted.interface);
        if name.name != derived {
            return Err(wrong(
                format!("is not named after its Pod and interface, {derived}"),
                format!("name it {derived}, or correct spec.podRef"),
            ));
        }
        let pod_name = ObjectName::new(name.namespace.as_str(), wanted.name.as_str());
        let create = format!("create Pod/{pod_name}, or remove the endpoint");
        let pod = self.view.pods.get(&pod_name);
        let pod = &pod.ok_or_else(|| wrong(format!("Pod/{pod_name} does not exist"), create))?.object;
        if pod.host_network {
            return Err(wrong(
                format!("Pod/{pod_name} is in its node's own network"),
                "remove the endpoint, or hostNetwork of the Pod",
            ));
        }
        let pairs = [
            ("uid", "podRef.uid", pod.uid.as_str(), wanted.uid.as_str()),
            ("node", "nodeName", pod.node_name.as_deref().unwrap_or_default(), node),
        ];
        agree(&format!("Pod/{pod_name}"), pairs)
    }

    fn check_interface(
        &self,
        name: &ObjectName,
        spec: &kinds::NetworkEndpointSpec,
        pod: &kinds::EndpointPodRef,
        subnet: &str,
        address: IpAddr,
    ) -> Result<&kinds::NetworkInterfaceSpec, Wrong> {
        let interface = self.view.network_interfaces.get(name).ok_or_else(|| {
            wrong(
                format!("NetworkInterface/{name} does not exist"),
                format!("create NetworkInterface/{name}, or remove the endpoint"),
            )
        })?;
        let interface = &interface.object;
        let other = &interface.spec;
        let pairs = [
            ("Pod's uid", "podRef.uid", other.pod_ref.uid.as_str(), pod.uid.as_str()),
            ("Pod", "podRef.name", other.pod_ref.name.as_str(), pod.name.as_str()),
            ("interface", "podRef.interface", other.pod_ref.interface.as_str(), pod.interface.as_str()),
            ("node", "nodeName", other.node_name.as_str(), spec.node_name.as_str()),
            ("Subnet", "subnet", other.subnet.as_deref().unwrap_or_default(), subnet),
        ];
        agree(&format!("NetworkInterface/{name}"), pairs)?;
        let status = interface.status.as_ref().and_then(|status| status.address.as_deref());
        let allocated = status.ok_or_else(|| {
            wrong(
                format!("NetworkInterface/{name} has no address"),
                format!("set status.address of NetworkInterface/{name}"),
            )
        })?;
        let (allocated, _) = parse::address(allocated)
            .map_err(|(message, remedy)| wrong(format!("NetworkInterface/{name} status.address: {message}"), remedy))?;
        if allocated != address {
            return Err(wrong(
                format!("NetworkInterface/{name} has the address {allocated}, not {address}"),
                "give both the same address",
            ));
        }
        Ok(other)
    }
}

/// The Subnet, which is the only network that is programmed.
fn network(spec: &kinds::NetworkEndpointSpec) -> Result<&str, Wrong> {
    let set = |text: &'_ Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    match (spec.subnet.as_deref().filter(|name| !name.is_empty()), set(&spec.l2_network), set(&spec.external_network)) {
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
fn agree<const N: usize>(object: &str, pairs: [(&str, &str, &str, &str); N]) -> Result<(), Wrong> {
    for (what, field, theirs, ours) in pairs {
        if theirs.is_empty() {
            return Err(wrong(format!("{object} has no {what}"), format!("set it in {object}")));
        }
        if theirs != ours {
            return Err(wrong(
                format!("{object} has the {what} {theirs:?}, not {ours:?}"),
                format!("correct spec.{field}, or {object}"),
            ));
        }
    }
    Ok(())
}
