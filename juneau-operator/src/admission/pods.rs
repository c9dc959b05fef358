//! Pods and Namespaces: which networks they ask for, and whether they may.

use super::{Denial, Operation, Request, Verdict, Versions, is_deleting, prefix};
use crate::plan::Config;
use crate::view::{Kind, View};
use ipnet::Ipv4Net;
use juneau_api::access::may_enter;
use juneau_api::annotations::{
    ADDRESS, ELASTIC_IP, InterfaceRequest, NETWORKS, NetworkRef, SUBNET, Source, interfaces,
};
use juneau_api::kinds::{Namespace, Pod, Vpc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Annotations that say which interfaces a Pod has. They are read once: an interface does not move.
const FIXED: [&str; 4] = [SUBNET, ADDRESS, ELASTIC_IP, NETWORKS];

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

pub(super) fn pod(view: &View, config: &Config, request: &Request) -> Verdict {
    if request.operation == Operation::Delete {
        return Ok(Vec::new());
    }
    let versions = Versions::<Pod>::of(request)?;
    let Some(pod) = versions.new.filter(|pod| !is_deleting(&pod.metadata)) else { return Ok(Vec::new()) };
    let generated = || pod.metadata.generate_name.as_ref().map(|prefix| format!("{prefix}*"));
    let name = pod.metadata.name.clone().or_else(generated).unwrap_or_default();
    let what = format!("Pod {}/{name}", request.namespace);
    if let Some(old) = versions.old {
        let changed = FIXED.iter().find(|key| annotation(&old.metadata, key) != annotation(&pod.metadata, key));
        return match changed {
            Some(key) => Err(Denial::firm(format!(
                "{what}: annotation {key} cannot change: a Pod keeps the interfaces that it was made with; delete the \
                 Pod and create it anew"
            ))),
            None => Ok(Vec::new()),
        };
    }
    let namespace = view.namespaces.get(&request.namespace);
    let of_namespace = namespace.and_then(|namespace| namespace.metadata.annotations.as_ref());
    let wanted = interfaces(&pod, of_namespace).map_err(|error| Denial {
        message: format!("{what}: {error}"),
        lag: error.of_namespace,
        missing: None,
    })?;
    let none = BTreeMap::new();
    let labels = namespace.and_then(|namespace| namespace.metadata.labels.as_ref()).unwrap_or(&none);
    let mut warnings = Vec::new();
    for interface in &wanted {
        let place = format!("{what}: interface {} ({})", interface.interface, interface.source);
        match &interface.network {
            NetworkRef::Subnet(subnet) => {
                let vpc = enters(view, config, &place, &request.namespace, labels, subnet, interface)?;
                if let Some(vpc) = vpc.filter(|vpc| vpc.spec.enforce_security_groups)
                    && interface.security_groups.is_empty()
                {
                    return Err(Denial::of_others(format!(
                        "{place}: Vpc {} enforces SecurityGroups; name at least one",
                        vpc.metadata.name.as_deref().unwrap_or_default()
                    )));
                }
            }
            other => warnings.push(format!("{place}: {other}: networks of this kind are not implemented yet")),
        }
    }
    Ok(warnings)
}

/// Whether the Subnet exists, its Vpc lets the Namespace in, and the address is one of it. The Vpc, if it is known.
fn enters<'a>(
    view: &'a View,
    config: &Config,
    place: &str,
    namespace: &str,
    labels: &BTreeMap<String, String>,
    subnet: &str,
    interface: &InterfaceRequest,
) -> Result<Option<&'a Vpc>, Denial> {
    let Some(found) = view.subnets.get(subnet) else {
        // Before the operator made it, at the very start.
        if interface.source == Source::Default {
            return Ok(None);
        }
        let message = format!("{place}: Subnet {subnet} does not exist; create it first, or name another");
        return Err(Denial::of_missing(Kind::Subnet, subnet, message));
    };
    if is_deleting(&found.metadata) {
        return Err(Denial::of_others(format!("{place}: Subnet {subnet} is being deleted; name another")));
    }
    let Some(vpc) = view.vpcs.get(&found.spec.vpc) else {
        let message = format!("{place}: Vpc {} of Subnet {subnet} does not exist; create it first", found.spec.vpc);
        return Err(Denial::of_missing(Kind::Vpc, &found.spec.vpc, message));
    };
    may_enter(vpc, namespace, labels, config.require_namespace_binding).map_err(|refused| {
        let message = format!("{place}: Subnet {subnet}: {refused}");
        // One that was made a moment ago has labels that nobody here has seen.
        if view.namespaces.contains_key(namespace) {
            Denial::of_others(message)
        } else {
            Denial::of_missing(Kind::Namespace, namespace, message)
        }
    })?;
    if let (Some(address), Some(cidr)) = (interface.address, prefix(&found.spec.cidr)) {
        usable(cidr, address).map_err(|why| {
            Denial::of_others(format!("{place}: address {address} {why} of Subnet {subnet} ({cidr}); choose another"))
        })?;
    }
    Ok(Some(vpc))
}

/// Whether a Pod may have this address of a Subnet: `.1` is the gateway, `.2` DNS, `.3` kept for later.
fn usable(cidr: Ipv4Net, address: Ipv4Addr) -> Result<(), &'static str> {
    if !cidr.contains(&address) {
        return Err("is not one");
    }
    match u32::from(address) - u32::from(cidr.network()) {
        0 => Err("is the network's, not a Pod's, one"),
        1 => Err("is the gateway"),
        2 => Err("is the DNS server"),
        3 => Err("is a reserved one"),
        _ if address == cidr.broadcast() => Err("is the broadcast address"),
        _ => Ok(()),
    }
}

/// The annotation that names the Subnet of a Namespace's Pods.
pub(super) fn namespace(view: &View, config: &Config, request: &Request) -> Verdict {
    if request.operation == Operation::Delete {
        return Ok(Vec::new());
    }
    let versions = Versions::<Namespace>::of(request)?;
    let Some(new) = versions.new.filter(|new| !is_deleting(&new.metadata)) else { return Ok(Vec::new()) };
    let subnet = annotation(&new.metadata, SUBNET).map(str::trim).filter(|subnet| !subnet.is_empty());
    let Some(subnet) = subnet else { return Ok(Vec::new()) };
    // What is there already must not keep somebody from changing other labels.
    let before = versions.old.as_ref().and_then(|old| annotation(&old.metadata, SUBNET)).map(str::trim);
    if before == Some(subnet) {
        return Ok(Vec::new());
    }
    let what = format!("Namespace {}: annotation {SUBNET}", request.name);
    let Some(found) = view.subnets.get(subnet) else {
        return Ok(vec![format!("{what}: Subnet {subnet} does not exist; Pods are refused until it does")]);
    };
    let Some(vpc) = view.vpcs.get(&found.spec.vpc) else { return Ok(Vec::new()) };
    let none = BTreeMap::new();
    let labels = new.metadata.labels.as_ref().unwrap_or(&none);
    match may_enter(vpc, &request.name, labels, config.require_namespace_binding) {
        Ok(()) => Ok(Vec::new()),
        Err(refused) => Err(Denial::of_others(format!("{what}: Subnet {subnet}: {refused}"))),
    }
}
