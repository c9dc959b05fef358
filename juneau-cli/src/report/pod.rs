//! A Pod: what it asks for, what it has, and why it is not up.

use super::{EventPart, Index, InterfacePart, event};
use crate::problems::{Problem, is_ready, node_of};
use crate::snapshot::ObjectRef;
use juneau_api::annotations::{self, InterfaceRequest};
use juneau_api::names;
use juneau_api::view::ObjectName;
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use std::collections::BTreeSet;

/// A Pod and its interfaces.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its phase, as its node tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The node that it is scheduled on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its address, as its node tells it.
    #[serde(rename = "podIP", skip_serializing_if = "Option::is_none")]
    pub pod_ip: Option<String>,
    /// The agent of its node. Absent: there is none to be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentPart>,
    /// Why it has no interfaces of Juneau's. Absent: it has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_interfaces: Option<String>,
    /// The interfaces that it asks for.
    pub interfaces: Vec<Wish>,
    /// What is off with itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// The newest Events about it and its interfaces.
    pub events: Vec<EventPart>,
    /// What could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_shown: Vec<String>,
}

/// The agent of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentPart {
    /// Its Pod, in the system's Namespace.
    pub pod: String,
    /// It can attach Pods.
    pub ready: bool,
}

/// An interface that a Pod asks for.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wish {
    /// Its name inside the Pod.
    pub interface: String,
    /// The network, as `Subnet/red-a`.
    pub network: String,
    /// Who says so.
    pub source: String,
    /// The Vpc of the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpc: Option<String>,
    /// The NetworkInterface. Absent: it does not exist yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_interface: Option<InterfacePart>,
}

impl Index<'_> {
    pub(super) fn pod_report(&self, name: &ObjectName, pod: &Pod) -> PodReport {
        let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
        let of_namespace = self.snapshot.namespaces.get(&name.namespace);
        let of_namespace = of_namespace.and_then(|namespace| namespace.metadata.annotations.as_ref());
        let wanted = annotations::interfaces(pod, of_namespace).unwrap_or_default();
        let node = spec.and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty());
        let without_interfaces = if !annotations::has_interfaces(pod) {
            Some("it uses its node's network, or has ended".to_owned())
        } else if node.is_none() {
            Some("it is not scheduled on a node yet; Events about it say why".to_owned())
        } else {
            None
        };
        let mut about: BTreeSet<ObjectRef> = [ObjectRef::named("Pod", name)].into();
        for wish in &wanted {
            let nic = ObjectName::new(name.namespace.as_str(), names::interface(&name.name, &wish.interface));
            about.insert(ObjectRef::named("NetworkInterface", &nic));
            about.insert(ObjectRef::named("NetworkEndpoint", &nic));
        }
        let agents = self.snapshot.agents.iter();
        let agent = node.as_deref().and_then(|node| agents.clone().find(|(_, agent)| node_of(agent) == Some(node)));
        PodReport {
            agent: agent.map(|(name, pod)| AgentPart { pod: name.name.clone(), ready: is_ready(pod) }),
            namespace: name.namespace.clone(),
            name: name.name.clone(),
            phase: status.and_then(|status| status.phase.clone()),
            node,
            pod_ip: status.and_then(|status| status.pod_ip.clone()).filter(|ip| !ip.is_empty()),
            without_interfaces,
            interfaces: wanted.iter().map(|wish| self.wish(name, wish)).collect(),
            problems: self.problems_of(&ObjectRef::named("Pod", name)),
            events: event::about(self.snapshot, &about),
            not_shown: self.not_shown(),
        }
    }

    fn wish(&self, pod: &ObjectName, wish: &InterfaceRequest) -> Wish {
        let name = ObjectName::new(pod.namespace.as_str(), names::interface(&pod.name, &wish.interface));
        let nic = self.snapshot.interfaces.get(&name);
        Wish {
            interface: wish.interface.clone(),
            network: format!("{}/{}", wish.network.kind(), wish.network.name()),
            source: wish.source.to_string(),
            vpc: self.snapshot.vpc_of(wish.network.name()).map(str::to_owned),
            network_interface: nic.map(|nic| self.interface(&name, nic)),
        }
    }
}
