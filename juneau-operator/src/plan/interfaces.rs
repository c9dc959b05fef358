//! NetworkInterfaces: from the wish for an address to the endpoint that holds it, and back.

use super::allocate::{Allocation, Allocations, Failure};
use super::claim::Want;
use super::memory::{CalmInterface, Entry};
use super::networks::{self, Networks};
use super::planner::{FastSet, Planner, has_finalizer, is_owned_by, name, object_name, owner, set_finalizer, uid};
use super::pods::pod_target;
use super::{Target, mac, text};
use crate::view::{Kind, Object};
use core::net::Ipv4Addr;
use ipnet::Ipv4Net;
use juneau_api::kinds::{
    EndpointKind, EndpointPodRef, InterfacePhase, InterfaceRoute, NetworkEndpoint, NetworkEndpointSpec,
    NetworkInterface, NetworkInterfaceStatus, Subnet, Vpc, reason,
};
use juneau_api::view::ObjectName;
use juneau_api::{access, annotations, conditions, names};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Finalizer of a NetworkInterface: it stays until its endpoint and its claim are gone.
pub const FINALIZER: &str = "networkinterface.juneau.loutres.me/allocation-claim";

static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// Why an interface has no address: how far it is, reason, message.
type Obstacle = (InterfacePhase, &'static str, String);

impl<'v> Planner<'v> {
    pub(super) fn interfaces(
        &mut self,
        kept: &FastSet<&'v ObjectName>,
        networks: &Networks<'v>,
        allocations: &Allocations<'v>,
    ) {
        // An endpoint has its interface's name, and both are in that order.
        let active = Rc::clone(&self.active);
        let mut endpoints = active.endpoints.iter().peekable();
        let mut left_over = Vec::new();
        for nic in &active.interfaces {
            let mut endpoint = None;
            while let Some(found) = endpoints.next_if(|endpoint| endpoint.name <= nic.name) {
                if found.name == nic.name {
                    endpoint = Some(found);
                } else {
                    left_over.push(found);
                }
            }
            let (key, nic, place) = (nic.name, nic.object, nic.place);
            if nic.metadata.deletion_timestamp.is_some() {
                self.take_down(nic, endpoint.map(|endpoint| endpoint.object));
            } else if kept.contains(key) {
                let said = self.said();
                let claim = self.interface(key, nic, endpoint.map(|endpoint| endpoint.object), networks, allocations);
                if self.said() == said
                    && let (Some(claim), Some(endpoint), Some(calm)) = (claim, endpoint, &mut self.calm)
                {
                    let (uid, endpoint) = (uid(&nic.metadata), endpoint.place);
                    calm.interfaces.insert(key, CalmInterface { place, endpoint, uid, claim });
                }
            } else if !self.is_unreadable(Kind::Pod, &key.namespace, &nic.spec.pod_ref.name)
                && self.is_settled(&nic.metadata)
            {
                self.delete(nic);
            }
        }
        left_over.extend(endpoints);
        for Entry { name, object: endpoint, .. } in left_over {
            if endpoint.spec.kind == EndpointKind::Pod
                && !self.is_unreadable(Kind::NetworkInterface, &name.namespace, &name.name)
                && self.is_settled(&endpoint.metadata)
            {
                self.delete(endpoint);
            }
        }
    }

    /// The end of an interface: first what carries packets, then the address, then the interface.
    fn take_down(&mut self, nic: &'v Arc<NetworkInterface>, endpoint: Option<&'v Arc<NetworkEndpoint>>) {
        if let Some(endpoint) = endpoint
            && is_of(endpoint, nic)
        {
            self.delete(endpoint);
        } else if let Some(claim) = self.index.claim(uid(&nic.metadata), names::Attribute::Address) {
            // The lock is marked first, while it is certain that its holder goes: from then on it can be had.
            if !self.mark_leases(claim) {
                self.delete(claim);
            }
        } else if has_finalizer(&nic.metadata, FINALIZER) {
            let mut nic = NetworkInterface::clone(nic);
            set_finalizer(&mut nic.metadata, FINALIZER, false);
            self.metadata(nic);
        }
    }

    /// Whether an interface has all that it shall have: then the uid of its claim.
    fn interface(
        &mut self,
        key: &'v ObjectName,
        nic: &'v Arc<NetworkInterface>,
        endpoint: Option<&'v Arc<NetworkEndpoint>>,
        networks: &Networks<'v>,
        allocations: &Allocations<'v>,
    ) -> Option<&'v str> {
        if !has_finalizer(&nic.metadata, FINALIZER) {
            let mut nic = NetworkInterface::clone(nic);
            set_finalizer(&mut nic.metadata, FINALIZER, true);
            self.metadata(nic);
        }
        match self.address(key, nic, networks, allocations) {
            Ok(Some((address, prefix))) => {
                if self.endpoint(key, nic, endpoint, address, prefix) {
                    self.interface_ready(key, nic, address, prefix);
                    let claim = self.index.claim(uid(&nic.metadata), names::Attribute::Address);
                    return claim.map(|claim| uid(&claim.metadata));
                }
            }
            // Under way: a status for each step would be a write for each step.
            Ok(None) => {}
            Err(obstacle) => self.interface_waits(key, nic, obstacle),
        }
        None
    }

    /// The address of an interface, once it is certain.
    fn address(
        &mut self,
        key: &ObjectName,
        nic: &NetworkInterface,
        networks: &Networks<'v>,
        allocations: &Allocations<'v>,
    ) -> Result<Option<(Ipv4Addr, Ipv4Net)>, Obstacle> {
        let failed = |reason: &'static str, message: String| (InterfacePhase::Failed, reason, message);
        let waits = |message: String| (InterfacePhase::Pending, reason::NETWORK_NOT_READY, message);
        let Some(subnet_name) = nic.spec.subnet.as_deref() else {
            let message = "only Subnets are implemented yet; name one".to_owned();
            return Err(failed(reason::NOT_IMPLEMENTED, message));
        };
        let Some(subnet) = self.view.subnets.get(subnet_name) else {
            if self.is_unreadable(Kind::Subnet, "", subnet_name) {
                return Err(waits(format!("Subnet/{subnet_name} cannot be decoded")));
            }
            return Err(failed(reason::SUBNET_NOT_FOUND, format!("Subnet/{subnet_name} does not exist")));
        };
        let claim = self.index.claim(uid(&nic.metadata), names::Attribute::Address);
        let Some(prefix) = networks.subnets.get(subnet_name).copied() else {
            let why = networks.refused.get(subnet_name).map(|(_, why)| why.as_str()).unwrap_or_default();
            return Err(waits(format!("Subnet/{subnet_name} is not in force: {why}")));
        };
        if subnet.metadata.deletion_timestamp.is_some() && claim.is_none() {
            return Err(waits(format!("Subnet/{subnet_name} is being deleted")));
        }
        let has_address = nic.status.as_ref().is_some_and(|status| status.address.is_some());
        if let Err(refused) = self.may_enter(&key.namespace, subnet) {
            if !has_address {
                return Err(failed(reason::NAMESPACE_NOT_ALLOWED, refused));
            }
            // Who is in stays in until the Pod goes; a label must not cut a running tenant off.
            self.warn_of(key, nic, reason::NAMESPACE_NOT_ALLOWED, refused);
        }
        let requested = nic.spec.address.as_deref().map(|text| requested(text, prefix, subnet_name)).transpose();
        let requested = requested.map_err(|message| failed(reason::INVALID_REQUESTED_IP, message))?;
        let allocation = if let Some(claim) = claim {
            allocations.get(uid(&claim.metadata)).cloned().unwrap_or(Allocation::Pending)
        } else {
            self.is_network_ready(subnet, allocations).map_err(waits)?;
            let (identity, is_stable) = self.identity(key, nic);
            let retain = self.config.retain.as_secs();
            let want = Want {
                kind: Kind::NetworkInterface,
                metadata: &nic.metadata,
                owner: names::Owner::NetworkInterface { namespace: &key.namespace, name: &key.name },
                attribute: names::Attribute::Address,
                pool: &names::subnet_pool(subnet_name),
            };
            self.claim(allocations, &want, |claim| {
                claim.requested_ip = requested.map(|address| address.to_string());
                claim.release_after = is_stable.then(|| format!("{retain}s"));
                claim.reuse_key = identity;
                claim.retain_while.clone_from(&nic.spec.retain_while);
            })
        };
        match allocation {
            Allocation::Value(value) => {
                let address = Ipv4Addr::from_bits(value);
                if prefix.contains(&address) {
                    return Ok(Some((address, prefix)));
                }
                // Somebody took the Subnet away by force and made another one of its name.
                let message = format!(
                    "its address {address} is outside Subnet/{subnet_name} ({prefix}), which is another one than when it \
                     was given; delete the Pod and create it anew"
                );
                Err(failed(reason::ALLOCATION_FAILED, message))
            }
            Allocation::Pending => Ok(None),
            Allocation::Failed(failure) => {
                let message = failure.message().to_owned();
                Err(match failure {
                    Failure::Exhausted(_) => (
                        InterfacePhase::Pending,
                        reason::SUBNET_EXHAUSTED,
                        format!("Subnet/{subnet_name} ({prefix}) has no free address"),
                    ),
                    Failure::InUse(_) => failed(reason::REQUESTED_IP_IN_USE, message),
                    Failure::Outside(_) => failed(reason::INVALID_REQUESTED_IP, message),
                    Failure::Lost(_) | Failure::Pool(_) => failed(reason::ALLOCATION_FAILED, message),
                })
            }
        }
    }

    /// Whether Pods of a Namespace may enter the Vpc of a Subnet.
    fn may_enter(&self, namespace: &str, subnet: &Subnet) -> Result<(), String> {
        let Some(vpc) = self.view.vpcs.get(&subnet.spec.vpc) else { return Ok(()) };
        self.namespace_may_enter(namespace, vpc)
    }

    /// Whether Pods and Services of a Namespace may enter a Vpc.
    pub(super) fn namespace_may_enter(&self, namespace: &str, vpc: &Vpc) -> Result<(), String> {
        let object = self.view.namespaces.get(namespace);
        if object.is_none() && vpc.spec.allowed_namespaces.is_some() {
            return Err(format!("Namespace/{namespace} is not known, and Vpc/{} is not open", name(&vpc.metadata)));
        }
        let labels = object.and_then(|object| object.metadata.labels.as_ref()).unwrap_or(&NO_LABELS);
        access::may_enter(vpc, namespace, labels, self.config.require_namespace_binding)
            .map_err(|refused| refused.to_string())
    }

    /// Whether addresses of a Subnet can be handed out.
    pub(super) fn is_network_ready(&self, subnet: &Subnet, allocations: &Allocations<'_>) -> Result<(), String> {
        let subnet_name = subnet.metadata.name.as_deref().unwrap_or_default();
        let vpc = self.view.vpcs.get(&subnet.spec.vpc);
        if vpc.and_then(|vpc| self.vpc_id(allocations, vpc)).is_none() {
            return Err(format!("Vpc/{} has no number yet", subnet.spec.vpc));
        }
        if self.vni(allocations, subnet).is_none() {
            return Err(format!("Subnet/{subnet_name} has no number yet"));
        }
        let pool = self.view.pools.get(&names::subnet_pool(subnet_name));
        if pool.is_none_or(|pool| !is_owned_by(&pool.metadata, Kind::Subnet, uid(&subnet.metadata))) {
            return Err(format!("Subnet/{subnet_name} has no AllocationPool yet"));
        }
        Ok(())
    }

    /// Whom an address is kept for, if not for the claim's name, and whether it is kept at all.
    fn identity(&self, key: &ObjectName, nic: &NetworkInterface) -> (Option<String>, bool) {
        if let Some(identity) = &nic.spec.allocation_identity {
            let whole = format!("{}.{identity}.{}", key.namespace, nic.spec.pod_ref.interface);
            return (Some(names::label_value(&whole)), true);
        }
        let pod = self.view.pods.get(&ObjectName::new(key.namespace.as_str(), nic.spec.pod_ref.name.as_str()));
        let stable = pod.and_then(|pod| pod.controller()).is_some_and(|owner| owner.kind == "StatefulSet");
        (None, stable || nic.spec.retain_while.is_some())
    }

    /// Makes the endpoint, or puts it right; whether it is there.
    fn endpoint(
        &mut self,
        key: &ObjectName,
        nic: &NetworkInterface,
        endpoint: Option<&'v Arc<NetworkEndpoint>>,
        address: Ipv4Addr,
        prefix: Ipv4Net,
    ) -> bool {
        let of = &nic.spec.pod_ref;
        let mac = mac::derive(&[&of.uid, &of.interface]);
        let wanted = |mac| NetworkEndpointSpec {
            kind: EndpointKind::Pod,
            node_name: nic.spec.node_name.clone(),
            subnet: nic.spec.subnet.clone(),
            address: Some(format!("{address}/{}", prefix.prefix_len())),
            mac_address: Some(mac),
            pod_ref: Some(EndpointPodRef {
                name: of.name.clone(),
                interface: of.interface.clone(),
                uid: of.uid.clone(),
            }),
            ..NetworkEndpointSpec::default()
        };
        let Some(endpoint) = endpoint else {
            let mut endpoint = NetworkEndpoint::new(&key.name, wanted(mac));
            endpoint.metadata.namespace = Some(key.namespace.clone());
            endpoint.metadata.owner_references = Some(vec![owner(Kind::NetworkInterface, &nic.metadata)]);
            self.create(endpoint);
            return false;
        };
        if endpoint.metadata.deletion_timestamp.is_some() {
            return false;
        }
        if !is_of(endpoint, nic) {
            if self.is_settled(&endpoint.metadata) {
                self.warn_at_once(
                    Target::of(&Object::NetworkEndpoint(Arc::clone(endpoint))),
                    reason::ENDPOINT_MISMATCH,
                    format!("its Pod is not that of NetworkInterface/{key}; it is made anew"),
                );
                self.delete(endpoint);
            }
            return false;
        }
        let spec = &endpoint.spec;
        let is_right = spec.kind == EndpointKind::Pod
            && spec.node_name == nic.spec.node_name
            && spec.subnet == nic.spec.subnet
            && spec.l2_network.is_none()
            && spec.external_network.is_none()
            && spec.address.as_deref().is_some_and(|text| is_address(text, address, prefix))
            && spec.mac_address.as_ref() == Some(&mac)
            && spec.pod_ref.as_ref().is_some_and(|pod| pod.name == of.name && pod.interface == of.interface);
        if is_right {
            self.endpoint_status(endpoint);
            return true;
        }
        self.warn_at_once(
            Target::of(&Object::NetworkEndpoint(Arc::clone(endpoint))),
            reason::ENDPOINT_MISMATCH,
            format!("its node, network or address is not that of NetworkInterface/{key}; it is put right"),
        );
        let mut endpoint = NetworkEndpoint::clone(endpoint);
        endpoint.spec = wanted(mac);
        self.spec(endpoint);
        false
    }

    pub(super) fn endpoint_status(&mut self, endpoint: &Arc<NetworkEndpoint>) {
        let node = self.view.nodes.get(&endpoint.spec.node_name);
        let node_ip = node.and_then(|node| node.internal_ips.first());
        if node_ip.is_some() && says_ready(endpoint, node_ip) {
            return;
        }
        let mut status = endpoint.status.clone().unwrap_or_default();
        status.node_ip = node_ip.cloned();
        let (reason, message) = match (node, &status.node_ip) {
            (Some(_), Some(_)) => (reason::RECONCILE_SUCCEEDED, String::new()),
            (Some(_), None) => (reason::NOT_READY, format!("Node/{} has no InternalIP", endpoint.spec.node_name)),
            (None, _) => (reason::NOT_READY, format!("Node/{} does not exist", endpoint.spec.node_name)),
        };
        // The agent's part of the spec moves the generation on; that is no reason to write.
        let known = conditions::find(&status.conditions, conditions::READY);
        let generation = match known {
            Some(known) if known.reason == reason && known.message == message => known.observed_generation,
            _ => endpoint.metadata.generation,
        };
        let ready = status.node_ip.is_some();
        conditions::set_ready(&mut status.conditions, ready, reason, &message, generation, &self.time());
        status.observed_generation = generation;
        self.status(endpoint, NetworkEndpoint { status: Some(status), ..NetworkEndpoint::clone(endpoint) });
    }

    fn interface_ready(&mut self, key: &ObjectName, nic: &Arc<NetworkInterface>, address: Ipv4Addr, prefix: Ipv4Net) {
        let claim = self.index.claim(uid(&nic.metadata), names::Attribute::Address);
        let claim = claim.and_then(|claim| claim.metadata.name.as_ref());
        if says_allocated(nic, claim, address, prefix) {
            return;
        }
        let mut status = nic.status.clone().unwrap_or_default();
        status.phase = Some(InterfacePhase::Ready);
        status.allocation_claim = claim.cloned();
        status.address = Some(format!("{address}/{}", prefix.prefix_len()));
        status.routes = if nic.spec.pod_ref.interface == annotations::PRIMARY {
            let gw = Some(networks::gateway(prefix).to_string());
            vec![InterfaceRoute { dst: "0.0.0.0/0".to_owned(), gw, on_link: false, table: None }]
        } else {
            Vec::new()
        };
        status.rules = Vec::new();
        let (generation, time) = (nic.metadata.generation, self.time());
        let allocated = reason::ALLOCATION_SUCCEEDED;
        let ready = reason::RECONCILE_SUCCEEDED;
        let all = &mut status.conditions;
        conditions::set(all, conditions::ALLOCATED, true.into(), allocated, "", generation, &time);
        conditions::set_ready(all, true, ready, "", generation, &time);
        status.observed_generation = generation;
        debug_assert_eq!(object_name(&nic.metadata), *key);
        self.interface_status(nic, status);
    }

    fn interface_waits(&mut self, key: &ObjectName, nic: &Arc<NetworkInterface>, obstacle: Obstacle) {
        let (phase, reason, message) = obstacle;
        if reason != reason::NETWORK_NOT_READY {
            self.warn_of(key, nic, reason, message.clone());
        }
        let mut status = nic.status.clone().unwrap_or_default();
        status.phase = Some(phase);
        let (generation, time) = (nic.metadata.generation, self.time());
        if status.address.is_none() {
            let all = &mut status.conditions;
            conditions::set(all, conditions::ALLOCATED, false.into(), reason, &message, generation, &time);
        }
        conditions::set_ready(&mut status.conditions, false, reason, &message, generation, &time);
        status.observed_generation = generation;
        self.interface_status(nic, status);
    }

    fn interface_status(&mut self, nic: &Arc<NetworkInterface>, status: NetworkInterfaceStatus) {
        self.status(nic, NetworkInterface { status: Some(status), ..NetworkInterface::clone(nic) });
    }

    /// An Event where a user looks first: at the Pod.
    fn warn_of(&mut self, key: &ObjectName, nic: &NetworkInterface, reason: &'static str, message: String) {
        let pod = self.view.pods.get(&ObjectName::new(key.namespace.as_str(), nic.spec.pod_ref.name.as_str()));
        if let Some(pod) = pod {
            self.warn(pod_target(pod), reason, format!("interface {}: {message}", nic.spec.pod_ref.interface));
        }
    }
}

/// Whether an endpoint's status says that it is ready and that its node has this address, as all do but a few.
fn says_ready(endpoint: &NetworkEndpoint, node_ip: Option<&String>) -> bool {
    let Some(status) = &endpoint.status else { return false };
    let (ready, generation) = (conditions::READY, status.observed_generation);
    status.node_ip.as_ref() == node_ip
        && conditions::is_set(&status.conditions, ready, true.into(), reason::RECONCILE_SUCCEEDED, "", generation)
}

/// Whether an interface's status says already what it would be told once it has this address.
fn says_allocated(nic: &NetworkInterface, claim: Option<&String>, address: Ipv4Addr, prefix: Ipv4Net) -> bool {
    let Some(status) = &nic.status else { return false };
    let generation = nic.metadata.generation;
    let is_set = |kind, reason| conditions::is_set(&status.conditions, kind, true.into(), reason, "", generation);
    let has_routes = match status.routes.as_slice() {
        [] => nic.spec.pod_ref.interface != annotations::PRIMARY,
        [InterfaceRoute { dst, gw: Some(gw), on_link: false, table: None }] => {
            nic.spec.pod_ref.interface == annotations::PRIMARY
                && dst == "0.0.0.0/0"
                && text::is(gw, format_args!("{}", networks::gateway(prefix)))
        }
        _ => false,
    };
    has_routes
        && status.phase == Some(InterfacePhase::Ready)
        && status.allocation_claim.as_ref() == claim
        && status.address.as_deref().is_some_and(|text| is_address(text, address, prefix))
        && status.rules.is_empty()
        && status.observed_generation == generation
        && is_set(conditions::ALLOCATED, reason::ALLOCATION_SUCCEEDED)
        && is_set(conditions::READY, reason::RECONCILE_SUCCEEDED)
}

fn is_address(text: &str, address: Ipv4Addr, prefix: Ipv4Net) -> bool {
    text::is(text, format_args!("{address}/{}", prefix.prefix_len()))
}

/// Whether an endpoint is of this very interface.
fn is_of(endpoint: &NetworkEndpoint, nic: &NetworkInterface) -> bool {
    endpoint.spec.pod_ref.as_ref().is_some_and(|of| of.uid == nic.spec.pod_ref.uid)
}

/// An address that a Pod of the Subnet may ask for.
fn requested(text: &str, prefix: Ipv4Net, subnet: &str) -> Result<Ipv4Addr, String> {
    let address: Ipv4Addr = text.parse().map_err(|_| format!("{text:?} is not an IPv4 address"))?;
    if !prefix.contains(&address) {
        return Err(format!("{address} is outside Subnet/{subnet} ({prefix})"));
    }
    if address == prefix.network() || address == prefix.broadcast() || networks::reserved(prefix).contains(&address) {
        return Err(format!("{address} is reserved in Subnet/{subnet} ({prefix})"));
    }
    Ok(address)
}
