//! What is off: each with the object, a reason, a message and what helps. A pure function of what was fetched.

mod cluster;
mod remedy;

pub(crate) use cluster::{AGENT_SILENT, Authority, authority, is_ready, leaderless, lease, node_of};

use crate::snapshot::{ObjectRef, Snapshot, What};
use juneau_api::kinds::{self, ViaType, reason};
use juneau_api::view::ObjectName;
use juneau_api::{access, annotations, conditions, names};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use remedy::remedy;
use serde::Serialize;

/// An object may be without a status for so many seconds after it was made or changed.
const STATUS_GRACE: i64 = 10;
/// An interface may be without its node's end for so many seconds.
const ATTACH_GRACE: i64 = 30;
/// An object that is being deleted may be there for so many seconds more.
const DELETE_GRACE: i64 = 30;

/// Nobody has written a status yet.
pub(crate) const NO_STATUS: &str = "NoStatus";
/// The status is about an earlier spec.
pub(crate) const STALE_STATUS: &str = "StaleStatus";
/// A Pod asks for an interface that does not exist yet.
pub(crate) const NO_INTERFACE: &str = "NoInterface";
/// It cannot be read by this version.
pub(crate) const UNDECODABLE: &str = "Undecodable";

/// Something that is off.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// What it is about.
    pub object: ObjectRef,
    /// The cause in one word, that of the condition where there is one.
    pub reason: String,
    /// What is the matter.
    pub message: String,
    /// What helps.
    pub remedy: String,
}

/// All that is off with objects, in the order of kinds and names.
#[must_use]
pub fn of_objects(snapshot: &Snapshot) -> Vec<Problem> {
    let mut all = Vec::new();
    for object in &snapshot.undecodable {
        all.push(Problem {
            object: ObjectRef::named(object.what.as_str(), &object.name),
            reason: UNDECODABLE.to_owned(),
            message: format!("this version of kubectl-juneau cannot read it: {}", object.error),
            remedy: "use the kubectl-juneau of the release that is installed, or correct the object".to_owned(),
        });
    }
    for (name, vpc) in &snapshot.vpcs {
        let seen = vpc.status.as_ref().map(|s| (s.conditions.as_slice(), s.observed_generation));
        all.extend(judge(snapshot, What::Vpc, &at(name), &vpc.metadata, seen, Some(name)));
    }
    for (name, subnet) in &snapshot.subnets {
        let seen = subnet.status.as_ref().map(|s| (s.conditions.as_slice(), s.observed_generation));
        all.extend(judge(snapshot, What::Subnet, &at(name), &subnet.metadata, seen, Some(&subnet.spec.vpc)));
    }
    for (name, table) in &snapshot.route_tables {
        all.extend(of_table(snapshot, name, table));
    }
    for (name, attachment) in &snapshot.nat_attachments {
        let seen = attachment.status.as_ref().map(|s| (s.conditions.as_slice(), s.observed_generation));
        let vpc = Some(attachment.spec.vpc.as_str());
        all.extend(judge(snapshot, What::ServiceNATAttachment, &at(name), &attachment.metadata, seen, vpc));
    }
    for (name, endpoint) in &snapshot.vpc_endpoints {
        let seen = endpoint.status.as_ref().map(|s| (s.conditions.as_slice(), s.observed_generation));
        let vpc = Some(endpoint.spec.vpc.as_str());
        all.extend(judge(snapshot, What::VpcEndpoint, &at(name), &endpoint.metadata, seen, vpc));
    }
    for (name, pool) in &snapshot.pools {
        let seen = pool.status.as_ref().map(|s| (s.conditions.as_slice(), s.observed_generation));
        all.extend(judge(snapshot, What::AllocationPool, &at(name), &pool.metadata, seen, None));
    }
    for (name, namespace) in &snapshot.namespaces {
        let of_namespace = namespace.metadata.annotations.as_ref();
        all.extend(of_namespaces_subnet(snapshot, name, of_namespace.and_then(|all| all.get(annotations::SUBNET))));
    }
    for (name, pod) in &snapshot.pods {
        all.extend(of_pod(snapshot, name, pod));
    }
    for (name, nic) in &snapshot.interfaces {
        all.extend(of_interface(snapshot, name, nic));
    }
    for (name, endpoint) in &snapshot.endpoints {
        let Some(status) = &endpoint.status else { continue };
        // The node's own part of the spec moves its generation on.
        let seen = Some((status.conditions.as_slice(), None));
        all.extend(judge(snapshot, What::NetworkEndpoint, name, &endpoint.metadata, seen, None));
    }
    all
}

fn at(name: &str) -> ObjectName {
    ObjectName::new("", name)
}

/// What is off with an object by its condition Ready, or by having none.
fn judge(
    snapshot: &Snapshot,
    what: What,
    name: &ObjectName,
    metadata: &ObjectMeta,
    seen: Option<(&[Condition], Option<i64>)>,
    around: Option<&str>,
) -> Option<Problem> {
    let problem = |reason: &str, message: String| Problem {
        object: ObjectRef::named(what.as_str(), name),
        reason: reason.to_owned(),
        remedy: remedy(what, &name.name, reason, &message, around),
        message,
    };
    let (all, observed) = seen.unwrap_or_default();
    let ready = conditions::find(all, conditions::READY);
    if let Some(deleted) = &metadata.deletion_timestamp {
        if let Some(ready) = ready.filter(|ready| ready.reason == reason::IN_USE) {
            return Some(problem(reason::IN_USE, ready.message.clone()));
        }
        let since = snapshot.seconds_since(deleted.0);
        let held = metadata.finalizers.clone().unwrap_or_default().join(", ");
        let message = format!("is being deleted for {}; held by {held}", crate::render::span(since));
        return (since > DELETE_GRACE).then(|| problem(reason::DELETING, message));
    }
    let Some(ready) = ready else {
        let message = "no operator has looked at it yet".to_owned();
        return (snapshot.age(metadata) > STATUS_GRACE).then(|| problem(NO_STATUS, message));
    };
    if ready.status != conditions::Status::True.as_str() {
        let message = if ready.message.is_empty() { "is not ready" } else { ready.message.as_str() };
        let mut problem = problem(&ready.reason, message.to_owned());
        // Who may not enter is told what helps already.
        if ready.reason == reason::NAMESPACE_NOT_ALLOWED
            && let Some((message, remedy)) = message.rsplit_once("; ")
        {
            (problem.message, problem.remedy) = (message.to_owned(), remedy.to_owned());
        }
        return Some(problem);
    }
    let (Some(observed), Some(generation)) = (observed, metadata.generation) else { return None };
    // When the spec changed is not told; the status before it is as old as the condition at most.
    let message = format!("its status is about generation {observed}, it is at {generation}");
    (observed < generation && snapshot.age(metadata) > STATUS_GRACE).then(|| problem(STALE_STATUS, message))
}

fn of_table(snapshot: &Snapshot, name: &str, table: &kinds::RouteTable) -> Vec<Problem> {
    let seen = table.status.as_ref().map(|s| (s.conditions.as_slice(), s.observed_generation));
    let whole = judge(snapshot, What::RouteTable, &at(name), &table.metadata, seen, Some(&table.spec.vpc));
    let rejected = table.status.iter().flat_map(|status| &status.rejected_routes);
    let mut routes: Vec<Problem> = rejected
        .filter(|route| route.reason != reason::AUTOMATIC_ROUTE_EXISTS)
        .map(|route| Problem {
            object: ObjectRef::new("RouteTable", name),
            reason: route.reason.clone(),
            message: format!("route {}: {}", route.dst, route.message),
            remedy: remedy::of_route(name, &route.reason, &route.message),
        })
        .collect();
    // Its condition repeats its routes.
    if let Some(whole) = whole.filter(|whole| whole.reason != reason::ROUTES_REJECTED || routes.is_empty()) {
        routes.insert(0, whole);
    }
    routes
}

/// What is off with the Subnet that a Namespace names for its Pods.
fn of_namespaces_subnet(snapshot: &Snapshot, namespace: &str, subnet: Option<&String>) -> Option<Problem> {
    let subnet = subnet.filter(|subnet| !subnet.is_empty())?;
    let problem = |reason: &str, message: String, remedy: String| Problem {
        object: ObjectRef::new("Namespace", namespace),
        reason: reason.to_owned(),
        message: format!("annotation {}: {message}", annotations::SUBNET),
        remedy,
    };
    let Some(object) = snapshot.subnets.get(subnet) else {
        let remedy = format!("create the Subnet, or correct the annotation of Namespace/{namespace}");
        return snapshot
            .knows_all(What::Subnet)
            .then(|| problem(reason::SUBNET_NOT_FOUND, format!("Subnet/{subnet} does not exist"), remedy));
    };
    let vpc = snapshot.vpcs.get(&object.spec.vpc)?;
    let refused = access::namespace_may_enter(vpc, namespace, snapshot.namespaces.get(namespace), false).err()?;
    let remedy = refused.why.remedy().to_owned();
    let message = format!("Namespace/{namespace} may not enter Vpc/{}: {}", refused.vpc, refused.why);
    Some(problem(reason::NAMESPACE_NOT_ALLOWED, message, remedy))
}

/// What is off with what a Pod asks for. Interfaces that exist speak for themselves.
fn of_pod(snapshot: &Snapshot, name: &ObjectName, pod: &Pod) -> Vec<Problem> {
    let scheduled = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|node| !node.is_empty());
    if !scheduled || pod.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let of_namespace = snapshot.namespaces.get(&name.namespace).and_then(|object| object.metadata.annotations.as_ref());
    let problem = |reason: &str, message: String, remedy: String| Problem {
        object: ObjectRef::named("Pod", name),
        reason: reason.to_owned(),
        message,
        remedy,
    };
    match annotations::interfaces(pod, of_namespace) {
        Err(error) => {
            let remedy = error.remedy.clone();
            let message = error.to_string();
            let message = message.strip_suffix(&format!("; {remedy}")).unwrap_or(&message).to_owned();
            vec![problem(reason::INVALID_ANNOTATION, message, remedy)]
        }
        Ok(wanted) => {
            if !snapshot.knows_all(What::NetworkInterface) && snapshot.namespace.is_none() {
                return Vec::new();
            }
            let names = wanted.iter().map(|wish| names::interface(&name.name, &wish.interface));
            let missing =
                names.filter(|nic| !snapshot.interfaces.contains_key(&ObjectName::new(name.namespace.as_str(), nic)));
            if snapshot.age(&pod.metadata) <= STATUS_GRACE {
                return Vec::new();
            }
            missing
                .map(|nic| {
                    let message = format!("NetworkInterface/{}/{nic} does not exist yet", name.namespace);
                    problem(NO_INTERFACE, message, remedy::operator(&snapshot.system_namespace))
                })
                .collect()
        }
    }
}

fn of_interface(snapshot: &Snapshot, name: &ObjectName, nic: &kinds::NetworkInterface) -> Option<Problem> {
    let seen = nic.status.as_ref().map(|s| (s.conditions.as_slice(), s.observed_generation));
    let subnet = nic.spec.subnet.as_deref();
    if let Some(problem) = judge(snapshot, What::NetworkInterface, name, &nic.metadata, seen, subnet) {
        return Some(problem);
    }
    let endpoint = snapshot.endpoints.get(name)?;
    let waits = endpoint.spec.attachment.is_none()
        && nic.metadata.deletion_timestamp.is_none()
        && snapshot.age(&endpoint.metadata) > ATTACH_GRACE;
    waits.then(|| Problem {
        object: ObjectRef::named("NetworkInterface", name),
        reason: reason::WAITING_FOR_INTERFACE.to_owned(),
        message: format!("has its address, but its node {} has not made the interface", endpoint.spec.node_name),
        remedy: remedy::agent(&snapshot.system_namespace, &endpoint.spec.node_name),
    })
}

/// All that is off with what runs: operator, webhook, agents.
#[must_use]
pub fn of_components(snapshot: &Snapshot) -> Vec<Problem> {
    cluster::problems(snapshot)
}

/// A route's target as people write it.
#[must_use]
pub fn target(via: &kinds::Via, subnet: Option<&str>) -> String {
    match via.kind {
        ViaType::Connected => subnet.map_or_else(|| "connected".to_owned(), |subnet| format!("Subnet/{subnet}")),
        ViaType::Endpoint => format!("NetworkEndpoint/{}", via.endpoint_name.as_deref().unwrap_or_default()),
        ViaType::InternetGateway => "the internet".to_owned(),
        ViaType::Service => "Services".to_owned(),
        ViaType::NatGateway => format!("NATGateway/{}", via.nat_gateway.as_deref().unwrap_or_default()),
        ViaType::VpcPeering => format!("VpcPeering/{}", via.vpc_peering.as_deref().unwrap_or_default()),
        ViaType::TransitGateway => format!("TransitGateway/{}", via.transit_gateway.as_deref().unwrap_or_default()),
        ViaType::VpcEndpoint => "VpcEndpoint".to_owned(),
        ViaType::Vpn => {
            via.vpn.as_ref().map_or_else(|| "VPN".to_owned(), |vpn| format!("VPN/{}/{}", vpn.namespace, vpn.name))
        }
        ViaType::Unknown => "a target of a later version".to_owned(),
    }
}
