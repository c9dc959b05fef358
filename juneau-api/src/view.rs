//! What exists, typed: every object by kind, namespace and name, with the place where it was read.

use crate::kinds;
use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The kinds that a view holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// v1 Namespace.
    Namespace,
    /// v1 Node.
    Node,
    /// v1 Pod.
    Pod,
    /// A tenant's network.
    Vpc,
    /// A prefix of a VPC.
    Subnet,
    /// The routes of Subnets.
    RouteTable,
    /// An interface of a Pod.
    NetworkInterface,
    /// What holds an address.
    NetworkEndpoint,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Namespace,
        Self::Node,
        Self::Pod,
        Self::Vpc,
        Self::Subnet,
        Self::RouteTable,
        Self::NetworkInterface,
        Self::NetworkEndpoint,
    ];

    /// The kind as manifests write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::Vpc => "Vpc",
            Self::Subnet => "Subnet",
            Self::RouteTable => "RouteTable",
            Self::NetworkInterface => "NetworkInterface",
            Self::NetworkEndpoint => "NetworkEndpoint",
        }
    }

    /// `apiVersion` as manifests write it.
    #[must_use]
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::Namespace | Self::Node | Self::Pod => "v1",
            _ => kinds::API_VERSION,
        }
    }

    /// Whether objects of the kind have a namespace.
    #[must_use]
    pub const fn is_namespaced(self) -> bool {
        matches!(self, Self::Pod | Self::NetworkInterface | Self::NetworkEndpoint)
    }

    /// The kind with this `apiVersion` and `kind`.
    #[must_use]
    pub fn find(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == kind && known.api_version() == api_version)
    }

    /// The kind that somebody typed: its name, its plural or a short name, in any case.
    #[must_use]
    pub fn from_argument(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        match text.as_str() {
            "ns" => return Some(Self::Namespace),
            "no" => return Some(Self::Node),
            "po" => return Some(Self::Pod),
            "interface" | "iface" | "nwinterface" | "nwiface" => return Some(Self::NetworkInterface),
            "nwep" => return Some(Self::NetworkEndpoint),
            _ => {}
        }
        Self::ALL.into_iter().find(|kind| {
            let name = kind.as_str().to_ascii_lowercase();
            text == name || text.strip_suffix('s') == Some(&name)
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Namespace and name of an object; the namespace of cluster-wide objects is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Namespace, or empty.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectName {
    /// Both parts.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// Which object: `Subnet/red-a`, `Pod/red/a1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub name: ObjectName,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// The place where an object was read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The file's name.
    pub file: Arc<str>,
    /// The document in it, counted from 1.
    pub document: u32,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file, self.document)
    }
}

/// An object and where it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Item<T> {
    /// The object.
    pub object: Arc<T>,
    /// Where it was read.
    pub origin: Origin,
}

/// What is read of a v1 Namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// What is read of a v1 Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its addresses of type InternalIP, in their order.
    pub internal_ips: Vec<String>,
    /// When it was made.
    pub created: Option<Time>,
}

/// What is read of a v1 Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid; empty if it has none.
    pub uid: String,
    /// The node that it runs on.
    pub node_name: Option<String>,
    /// It runs in the node's own network namespace.
    pub host_network: bool,
}

impl From<kinds::Namespace> for Namespace {
    fn from(object: kinds::Namespace) -> Self {
        Self {
            name: object.metadata.name.unwrap_or_default(),
            labels: object.metadata.labels.unwrap_or_default().into_iter().collect(),
        }
    }
}

impl From<kinds::Node> for Node {
    fn from(object: kinds::Node) -> Self {
        let addresses = object.status.and_then(|status| status.addresses).unwrap_or_default();
        Self {
            name: object.metadata.name.unwrap_or_default(),
            internal_ips: addresses.into_iter().filter(|a| a.type_ == "InternalIP").map(|a| a.address).collect(),
            created: object.metadata.creation_timestamp,
        }
    }
}

impl From<kinds::Pod> for Pod {
    fn from(object: kinds::Pod) -> Self {
        let spec = object.spec.unwrap_or_default();
        Self {
            namespace: object.metadata.namespace.unwrap_or_default(),
            name: object.metadata.name.unwrap_or_default(),
            uid: object.metadata.uid.unwrap_or_default(),
            node_name: spec.node_name.filter(|name| !name.is_empty()),
            host_network: spec.host_network.unwrap_or_default(),
        }
    }
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
    Vpc(Arc<kinds::Vpc>),
    /// A prefix of a VPC.
    Subnet(Arc<kinds::Subnet>),
    /// The routes of Subnets.
    RouteTable(Arc<kinds::RouteTable>),
    /// An interface of a Pod.
    NetworkInterface(Arc<kinds::NetworkInterface>),
    /// What holds an address.
    NetworkEndpoint(Arc<kinds::NetworkEndpoint>),
}

/// Everything that exists.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct View {
    /// By name.
    pub namespaces: BTreeMap<String, Item<Namespace>>,
    /// By name.
    pub nodes: BTreeMap<String, Item<Node>>,
    /// By namespace and name.
    pub pods: BTreeMap<ObjectName, Item<Pod>>,
    /// By name.
    pub vpcs: BTreeMap<String, Item<kinds::Vpc>>,
    /// By name.
    pub subnets: BTreeMap<String, Item<kinds::Subnet>>,
    /// By name.
    pub route_tables: BTreeMap<String, Item<kinds::RouteTable>>,
    /// By namespace and name.
    pub network_interfaces: BTreeMap<ObjectName, Item<kinds::NetworkInterface>>,
    /// By namespace and name.
    pub network_endpoints: BTreeMap<ObjectName, Item<kinds::NetworkEndpoint>>,
}

impl View {
    /// Adds an object, unless one of that kind and name is there: its origin is returned then.
    ///
    /// # Errors
    /// The origin of the object that is there already.
    pub fn insert(&mut self, name: &ObjectName, object: &Object, origin: Origin) -> Result<(), Origin> {
        fn put<K: Ord, T>(
            map: &mut BTreeMap<K, Item<T>>,
            key: K,
            object: &Arc<T>,
            origin: Origin,
        ) -> Result<(), Origin> {
            match map.entry(key) {
                std::collections::btree_map::Entry::Occupied(first) => Err(first.get().origin.clone()),
                std::collections::btree_map::Entry::Vacant(free) => {
                    free.insert(Item { object: Arc::clone(object), origin });
                    Ok(())
                }
            }
        }
        let plain = || name.name.clone();
        match object {
            Object::Namespace(object) => put(&mut self.namespaces, plain(), object, origin),
            Object::Node(object) => put(&mut self.nodes, plain(), object, origin),
            Object::Pod(object) => put(&mut self.pods, name.clone(), object, origin),
            Object::Vpc(object) => put(&mut self.vpcs, plain(), object, origin),
            Object::Subnet(object) => put(&mut self.subnets, plain(), object, origin),
            Object::RouteTable(object) => put(&mut self.route_tables, plain(), object, origin),
            Object::NetworkInterface(object) => put(&mut self.network_interfaces, name.clone(), object, origin),
            Object::NetworkEndpoint(object) => put(&mut self.network_endpoints, name.clone(), object, origin),
        }
    }

    /// Objects of all kinds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.namespaces.len()
            + self.nodes.len()
            + self.pods.len()
            + self.vpcs.len()
            + self.subnets.len()
            + self.route_tables.len()
            + self.network_interfaces.len()
            + self.network_endpoints.len()
    }

    /// Whether nothing exists.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::Kind;

    #[test]
    fn kinds_are_found_as_people_type_them() {
        for kind in Kind::ALL {
            assert_eq!(Kind::find(kind.api_version(), kind.as_str()), Some(kind));
            assert_eq!(Kind::from_argument(kind.as_str()), Some(kind));
            assert_eq!(Kind::from_argument(&format!("{kind}s")), Some(kind));
        }
        assert_eq!(Kind::from_argument("nwep"), Some(Kind::NetworkEndpoint));
        assert_eq!(Kind::from_argument("service"), None);
        assert_eq!(Kind::find("v1", "Vpc"), None);
    }
}
