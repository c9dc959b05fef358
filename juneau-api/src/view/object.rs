//! What is held of every object: the fields that the data path reads, and nothing else.
//!
//! A cluster has tens of thousands of these on each of its nodes, and most of what an object says (conditions, managed
//! fields, labels) is nobody's business there. So an object whose other fields change is equal to what it was.

use super::{EndpointSlice, Service, Text, Texts, Time};
use crate::annotations;
use crate::kinds::{self, EndpointKind};
use crate::probes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The label of a Node that names its zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// What is read of a v1 Namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// Its labels.
    pub labels: BTreeMap<Text, Text>,
}

/// What is read of a v1 Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its addresses of type InternalIP, in their order.
    pub internal_ips: Vec<Text>,
    /// The zone that it is in, by its label.
    pub zone: Option<Text>,
    /// When it was made.
    pub created: Option<Time>,
}

/// What is read of a v1 Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its uid; empty if it has none.
    pub uid: Text,
    /// The node that it runs on.
    pub node: Option<Text>,
    /// It runs in the node's own network namespace.
    pub host_network: bool,
    /// Names of the interfaces that it asks for, `eth0` first; none where its annotations cannot be read.
    pub interfaces: Vec<Text>,
    /// The probes that its node's agent executes ([`probes::CONFIGS`]), as they are written.
    pub probes: Option<Text>,
    /// When it was made.
    pub created: Option<Time>,
}

/// What is read of a Vpc.
#[derive(Debug, Clone, PartialEq)]
pub struct Vpc {
    /// Its number.
    pub id: Option<u32>,
    /// The table of Subnets that name none.
    pub main_route_table: Option<Text>,
    /// Namespaces that may enter, by their labels; absent: all.
    pub allowed_namespaces: Option<LabelSelector>,
    /// How it takes part in Services; absent: not at all.
    pub service: Option<kinds::VpcService>,
    /// When it was made.
    pub created: Option<Time>,
}

/// What is read of a Subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subnet {
    /// The Vpc that it belongs to.
    pub vpc: Text,
    /// Its prefix.
    pub cidr: Text,
    /// The route table of its endpoints, if it names one.
    pub route_table: Option<Text>,
    /// It has a NetworkACL.
    pub has_acl: bool,
    /// Its VXLAN network identifier.
    pub vni: Option<u32>,
    /// Its gateway's address.
    pub gateway: Option<Text>,
    /// Its gateway's MAC address.
    pub gateway_mac: Option<Text>,
    /// When it was made.
    pub created: Option<Time>,
}

/// What is read of a RouteTable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteTable {
    /// The Vpc that it belongs to.
    pub vpc: Text,
    /// Its number.
    pub id: Option<u32>,
    /// The routes in force.
    pub routes: Vec<kinds::Route>,
    /// When it was made.
    pub created: Option<Time>,
}

/// The Pod's interface that an object is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodReference {
    /// The Pod's name.
    pub name: Text,
    /// The interface's name inside the Pod.
    pub interface: Text,
    /// The Pod's uid.
    pub uid: Text,
}

/// What is read of a NetworkInterface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkInterface {
    /// Whose interface.
    pub pod: PodReference,
    /// The Pod's node.
    pub node: Text,
    /// Its Subnet.
    pub subnet: Option<Text>,
    /// The address that it got.
    pub address: Option<Text>,
    /// It names SecurityGroups.
    pub has_groups: bool,
}

/// What is read of a NetworkEndpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkEndpoint {
    /// What holds the address.
    pub kind: EndpointKind,
    /// The node that it is on.
    pub node: Text,
    /// Its Subnet.
    pub subnet: Option<Text>,
    /// It names an L2Network.
    pub has_l2_network: bool,
    /// It names an ExternalNetwork.
    pub has_external_network: bool,
    /// Its address.
    pub address: Option<Text>,
    /// Its MAC address.
    pub mac: Option<Text>,
    /// Whose interface.
    pub pod: Option<PodReference>,
    /// When it was made.
    pub created: Option<Time>,
    /// What only its own node reads; nobody else holds it.
    pub own: Option<Arc<OwnEndpoint>>,
}

/// What a node reads of its own endpoints, to know what the API server was told before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnEndpoint {
    /// The endpoint's uid; empty if it has none.
    pub uid: String,
    /// `spec.attachment` as it stands.
    pub attachment: Option<kinds::Attachment>,
}

impl From<kinds::Namespace> for Namespace {
    fn from(object: kinds::Namespace) -> Self {
        let labels = object.metadata.labels.unwrap_or_default();
        Self { labels: labels.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }
}

impl From<kinds::Node> for Node {
    fn from(object: kinds::Node) -> Self {
        let addresses = object.status.and_then(|status| status.addresses).unwrap_or_default();
        let internal = addresses.into_iter().filter(|a| a.type_ == "InternalIP").map(|a| a.address.into());
        let zone = object.metadata.labels.and_then(|mut labels| labels.remove(ZONE_LABEL));
        Self { internal_ips: internal.collect(), zone: some(zone), created: object.metadata.creation_timestamp }
    }
}

impl From<kinds::Pod> for Pod {
    fn from(object: kinds::Pod) -> Self {
        let spec = object.spec.unwrap_or_default();
        // Of which network an interface is when nobody says, its name does not depend on.
        let annotations = object.metadata.annotations.unwrap_or_default();
        let requests = annotations::requests(&annotations, None);
        Self {
            interfaces: requests.into_iter().flatten().map(|request| request.interface.into()).collect(),
            uid: object.metadata.uid.unwrap_or_default().into(),
            node: some(spec.node_name),
            host_network: spec.host_network.unwrap_or_default(),
            probes: annotations.get(probes::CONFIGS).map(|text| text.as_str().into()),
            created: object.metadata.creation_timestamp,
        }
    }
}

impl From<kinds::Vpc> for Vpc {
    fn from(object: kinds::Vpc) -> Self {
        let status = object.status.unwrap_or_default();
        Self {
            id: status.vpc_id,
            main_route_table: some(status.main_route_table),
            allowed_namespaces: object.spec.allowed_namespaces,
            service: object.spec.service,
            created: object.metadata.creation_timestamp,
        }
    }
}

impl From<kinds::Subnet> for Subnet {
    fn from(object: kinds::Subnet) -> Self {
        let (spec, status) = (object.spec, object.status.unwrap_or_default());
        Self {
            vpc: spec.vpc.into(),
            cidr: spec.cidr.into(),
            route_table: some(spec.route_table),
            has_acl: some(spec.network_acl).is_some(),
            vni: status.vni,
            gateway: status.gateway.map(Text::from),
            gateway_mac: status.gateway_mac.map(Text::from),
            created: object.metadata.creation_timestamp,
        }
    }
}

impl From<kinds::RouteTable> for RouteTable {
    fn from(object: kinds::RouteTable) -> Self {
        let status = object.status.unwrap_or_default();
        Self {
            vpc: object.spec.vpc.into(),
            id: status.table_id,
            routes: status.routes,
            created: object.metadata.creation_timestamp,
        }
    }
}

impl From<kinds::NetworkInterface> for NetworkInterface {
    fn from(object: kinds::NetworkInterface) -> Self {
        let spec = object.spec;
        let pod = spec.pod_ref;
        Self {
            pod: PodReference { name: pod.name.into(), interface: pod.interface.into(), uid: pod.uid.into() },
            node: spec.node_name.into(),
            subnet: some(spec.subnet),
            address: object.status.and_then(|status| status.address).map(Text::from),
            has_groups: !spec.security_groups.is_empty(),
        }
    }
}

impl From<kinds::NetworkEndpoint> for NetworkEndpoint {
    fn from(object: kinds::NetworkEndpoint) -> Self {
        let spec = object.spec;
        Self {
            kind: spec.kind,
            node: spec.node_name.into(),
            subnet: some(spec.subnet),
            has_l2_network: some(spec.l2_network).is_some(),
            has_external_network: some(spec.external_network).is_some(),
            address: spec.address.map(Text::from),
            mac: spec.mac_address.map(Text::from),
            pod: spec.pod_ref.map(|pod| PodReference {
                name: pod.name.into(),
                interface: pod.interface.into(),
                uid: pod.uid.into(),
            }),
            created: object.metadata.creation_timestamp,
            own: Some(Arc::new(OwnEndpoint {
                uid: object.metadata.uid.unwrap_or_default(),
                attachment: spec.attachment,
            })),
        }
    }
}

/// A reference; an empty one is none.
pub(super) fn some(text: Option<String>) -> Option<Text> {
    text.filter(|text| !text.is_empty()).map(Text::from)
}

/// An object of any kind.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Object {
    /// v1 Namespace.
    Namespace(Arc<Namespace>),
    /// v1 Node.
    Node(Arc<Node>),
    /// v1 Pod.
    Pod(Arc<Pod>),
    /// A tenant's network.
    Vpc(Arc<Vpc>),
    /// A prefix of a VPC.
    Subnet(Arc<Subnet>),
    /// The routes of Subnets.
    RouteTable(Arc<RouteTable>),
    /// An interface of a Pod.
    NetworkInterface(Arc<NetworkInterface>),
    /// What holds an address.
    NetworkEndpoint(Arc<NetworkEndpoint>),
    /// v1 Service.
    Service(Arc<Service>),
    /// discovery.k8s.io/v1 EndpointSlice.
    EndpointSlice(Arc<EndpointSlice>),
}

impl Object {
    /// Lets the object share its texts with others. An object that somebody else holds as well stays as it is.
    pub fn share(&mut self, texts: &mut Texts) {
        match self {
            Self::Pod(pod) => {
                if let Some(pod) = Arc::get_mut(pod) {
                    texts.share_some(&mut pod.node);
                    texts.share(&mut pod.uid);
                }
            }
            Self::NetworkInterface(interface) => {
                if let Some(interface) = Arc::get_mut(interface) {
                    texts.share_some(&mut interface.subnet);
                    texts.share_some(&mut interface.address);
                    texts.share(&mut interface.node);
                    interface.pod.share(texts);
                }
            }
            Self::NetworkEndpoint(endpoint) => {
                if let Some(endpoint) = Arc::get_mut(endpoint) {
                    texts.share_some(&mut endpoint.subnet);
                    texts.share_some(&mut endpoint.address);
                    texts.share_some(&mut endpoint.mac);
                    texts.share(&mut endpoint.node);
                    if let Some(pod) = &mut endpoint.pod {
                        pod.share(texts);
                    }
                }
            }
            Self::Service(service) => {
                if let Some(service) = Arc::get_mut(service) {
                    service.share(texts);
                }
            }
            Self::EndpointSlice(slice) => {
                if let Some(slice) = Arc::get_mut(slice) {
                    slice.share(texts);
                }
            }
            // There are few of the others, and they have little in common.
            Self::Namespace(_) | Self::Node(_) | Self::Vpc(_) | Self::Subnet(_) | Self::RouteTable(_) => {}
        }
    }
}

impl PodReference {
    fn share(&mut self, texts: &mut Texts) {
        for text in [&mut self.name, &mut self.interface, &mut self.uid] {
            texts.share(text);
        }
    }
}
