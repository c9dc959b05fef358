//! What is read of Kubernetes' own kinds. The rest of them is not kept: ten thousand whole Pods would fill the memory.

use ::core::net::Ipv4Addr;
use juneau_api::annotations::{self, AnnotationError, ServiceOffer};
use juneau_api::kinds;
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

/// What is read of a v1 Namespace: labels and annotations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Namespace {
    /// Name, uid, labels, the group's annotations.
    pub metadata: ObjectMeta,
}

/// What is read of a v1 Node: its addresses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Node {
    /// Name, uid, labels.
    pub metadata: ObjectMeta,
    /// Its addresses of type InternalIP, in their order.
    pub internal_ips: Vec<String>,
}

/// What is read of a v1 Pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pod {
    /// Namespace, name, uid, labels, the group's annotations, owners, deletion.
    pub metadata: ObjectMeta,
    /// The node that it is scheduled on.
    pub node_name: Option<String>,
    /// It runs in the node's own network namespace.
    pub host_network: bool,
    /// It is a static Pod that a kubelet shows.
    pub mirror: bool,
    /// It succeeded or failed, and will not run again.
    pub finished: bool,
}

impl Pod {
    /// The owner that runs it, as its controller or as its only owner says.
    #[must_use]
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.metadata.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
    }
}

/// What is read of a v1 Service.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// Namespace, name, uid, the group's annotations, deletion.
    pub metadata: ObjectMeta,
    /// Whose it is and to whom it is offered, as its annotations say.
    pub offer: Result<ServiceOffer, AnnotationError>,
    /// Its IPv4 address in the range of Services. A headless Service and one of type ExternalName have none.
    pub cluster_ip: Option<Ipv4Addr>,
    /// IPv4 addresses outside of that range that lead to it as well. None where another proxy serves it.
    pub external_ips: Vec<Ipv4Addr>,
}

impl Service {
    /// Whether a plan has to look at it. Nearly all Services say nothing that is not the same for all.
    #[must_use]
    pub fn is_notable(&self) -> bool {
        self.metadata.annotations.is_some() || !self.external_ips.is_empty()
    }
}

/// The label of Services that another proxy serves than the cluster's own.
const SERVICE_PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";

/// The annotation that a kubelet puts on the Pods that it shows.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The parts of metadata that a plan reads. Managed fields and foreign annotations are most of an object's size.
fn metadata(from: ObjectMeta) -> ObjectMeta {
    let annotations = from.annotations.map(|mut annotations| {
        annotations.retain(|key, _| key.split('/').next().is_some_and(|group| group == kinds::GROUP));
        annotations
    });
    ObjectMeta {
        name: from.name,
        namespace: from.namespace,
        uid: from.uid,
        resource_version: from.resource_version,
        generation: from.generation,
        creation_timestamp: from.creation_timestamp,
        deletion_timestamp: from.deletion_timestamp,
        labels: from.labels,
        annotations: annotations.filter(|annotations| !annotations.is_empty()),
        owner_references: from.owner_references,
        finalizers: from.finalizers,
        ..ObjectMeta::default()
    }
}

impl From<v1::Namespace> for Namespace {
    fn from(object: v1::Namespace) -> Self {
        Self { metadata: metadata(object.metadata) }
    }
}

impl From<v1::Node> for Node {
    fn from(object: v1::Node) -> Self {
        let addresses = object.status.and_then(|status| status.addresses).unwrap_or_default();
        Self {
            // A kubelet writes a Node's status every few seconds: the version is no reason to plan again.
            metadata: ObjectMeta { resource_version: None, ..metadata(object.metadata) },
            internal_ips: addresses.into_iter().filter(|a| a.type_ == "InternalIP").map(|a| a.address).collect(),
        }
    }
}

impl From<v1::Pod> for Pod {
    fn from(object: v1::Pod) -> Self {
        let spec = object.spec.unwrap_or_default();
        let phase = object.status.and_then(|status| status.phase);
        let annotated = |key: &str| object.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key));
        Self {
            mirror: annotated(MIRROR),
            // The version changes with each write of a kubelet's: no reason to plan again.
            metadata: ObjectMeta { resource_version: None, ..metadata(object.metadata) },
            node_name: spec.node_name.filter(|name| !name.is_empty()),
            host_network: spec.host_network.unwrap_or_default(),
            finished: matches!(phase.as_deref(), Some("Succeeded" | "Failed")),
        }
    }
}

impl From<v1::Service> for Service {
    fn from(object: v1::Service) -> Self {
        let spec = object.spec.unwrap_or_default();
        let is_foreign = object.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(SERVICE_PROXY_NAME));
        // The version changes with each write of a status, and labels select nothing of ours.
        let metadata = ObjectMeta { resource_version: None, labels: None, ..metadata(object.metadata) };
        let none = Default::default();
        let offer = annotations::service(metadata.annotations.as_ref().unwrap_or(&none));
        let addresses = spec.cluster_ips.unwrap_or_else(|| spec.cluster_ip.into_iter().collect());
        let is_name = spec.type_.as_deref() == Some("ExternalName");
        let cluster_ip = addresses.iter().find_map(|text| text.parse().ok()).filter(|_| !is_name);
        let external_ips = spec.external_ips.unwrap_or_default();
        let external_ips = external_ips.iter().filter(|_| !is_foreign && !is_name);
        Self { offer, cluster_ip, external_ips: external_ips.filter_map(|text| text.parse().ok()).collect(), metadata }
    }
}
