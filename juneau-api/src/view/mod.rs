//! What exists, typed: every object by kind, namespace and name, with the place where it was read.

use crate::kinds;
use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

mod object;
mod service;
mod text;

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
pub use object::{
    Namespace, NetworkEndpoint, NetworkInterface, Node, Object, OwnEndpoint, Pod, PodReference, RouteTable, Subnet, Vpc,
};
pub use service::{Address, EndpointSlice, Hints, Service, ServicePort, SliceEndpoint, SlicePort, Transport};
pub use text::{Text, Texts};

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
    /// v1 Service.
    Service,
    /// discovery.k8s.io/v1 EndpointSlice.
    EndpointSlice,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Namespace,
        Self::Node,
        Self::Pod,
        Self::Vpc,
        Self::Subnet,
        Self::RouteTable,
        Self::NetworkInterface,
        Self::NetworkEndpoint,
        Self::Service,
        Self::EndpointSlice,
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
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
        }
    }

    /// `apiVersion` as manifests write it.
    #[must_use]
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::Namespace | Self::Node | Self::Pod | Self::Service => "v1",
            Self::EndpointSlice => "discovery.k8s.io/v1",
            _ => kinds::API_VERSION,
        }
    }

    /// Whether objects of the kind have a namespace.
    #[must_use]
    pub const fn is_namespaced(self) -> bool {
        matches!(self, Self::Pod | Self::NetworkInterface | Self::NetworkEndpoint | Self::Service | Self::EndpointSlice)
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
            "svc" => return Some(Self::Service),
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
    /// The file's name, or what else it is.
    pub file: Text,
    /// The document in it, counted from 1; 0 where there are no documents.
    pub document: u32,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        match self.document {
            0 => Ok(()),
            document => write!(f, ", document {document}"),
        }
    }
}

/// An object and where it was read.
#[derive(Debug, PartialEq, Eq)]
pub struct Item<T> {
    /// The object.
    pub object: Arc<T>,
    /// Where it was read.
    pub origin: Origin,
}

impl<T> Clone for Item<T> {
    fn clone(&self) -> Self {
        Self { object: Arc::clone(&self.object), origin: self.origin.clone() }
    }
}

impl<T> Item<T> {
    /// Whether this is the very same object from the same place. Equal objects that were read apart may be others.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.object, &other.object) && self.origin == other.origin
    }
}

/// Objects of one kind by name.
pub type Items<T> = BTreeMap<Text, Item<T>>;

/// What a Kubernetes namespace holds: Pods, what describes their interfaces under the Pods' own names, and Services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workloads {
    /// By name.
    pub pods: Items<Pod>,
    /// By name.
    pub network_interfaces: Items<NetworkInterface>,
    /// By name.
    pub network_endpoints: Items<NetworkEndpoint>,
    /// By name. Shared, as there are many, and Pods change without them.
    pub services: Arc<Items<Service>>,
    /// By name; shared for the same reason.
    pub endpoint_slices: Arc<Items<EndpointSlice>>,
}

impl Workloads {
    /// Objects of all kinds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pods.len()
            + self.network_interfaces.len()
            + self.network_endpoints.len()
            + self.services.len()
            + self.endpoint_slices.len()
    }

    /// Whether the namespace holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn services_mut(&mut self) -> &mut Items<Service> {
        Arc::make_mut(&mut self.services)
    }

    fn slices_mut(&mut self) -> &mut Items<EndpointSlice> {
        Arc::make_mut(&mut self.endpoint_slices)
    }
}

/// Everything that exists.
///
/// A clone is cheap, since it shares every part; two views whose parts are the same allocation agree about them, which
/// is how whoever follows a source finds what changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct View {
    /// By name.
    pub namespaces: Arc<Items<Namespace>>,
    /// By name.
    pub nodes: Arc<Items<Node>>,
    /// By name.
    pub vpcs: Arc<Items<Vpc>>,
    /// By name.
    pub subnets: Arc<Items<Subnet>>,
    /// By name.
    pub route_tables: Arc<Items<RouteTable>>,
    /// What has a namespace, by its name. None is empty.
    pub workloads: BTreeMap<Text, Arc<Workloads>>,
    /// Only what this node needs is known: its Pods, and interfaces and endpoints of VPCs that something on it is in.
    /// Everything otherwise.
    pub pods_of: Option<Text>,
}

/// A part of a view that changes as one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// All objects of a kind without namespaces.
    Kind(Kind),
    /// All objects of a namespace.
    Namespace(Text),
}

impl View {
    /// Adds an object, unless one of that kind and name is there: its origin is returned then.
    ///
    /// # Errors
    /// The origin of the object that is there already.
    pub fn insert(&mut self, name: &ObjectName, object: &Object, origin: Origin) -> Result<(), Origin> {
        self.put(&name.namespace.as_str().into(), &name.name.as_str().into(), object, origin)
    }

    /// The same with texts that are shared already.
    pub(crate) fn put(&mut self, namespace: &Text, name: &Text, object: &Object, origin: Origin) -> Result<(), Origin> {
        fn put<T>(map: &mut Items<T>, name: &Text, object: &Arc<T>, origin: Origin) -> Result<(), Origin> {
            match map.entry(Arc::clone(name)) {
                std::collections::btree_map::Entry::Occupied(first) => Err(first.get().origin.clone()),
                std::collections::btree_map::Entry::Vacant(free) => {
                    free.insert(Item { object: Arc::clone(object), origin });
                    Ok(())
                }
            }
        }
        match object {
            Object::Namespace(object) => put(Arc::make_mut(&mut self.namespaces), name, object, origin),
            Object::Node(object) => put(Arc::make_mut(&mut self.nodes), name, object, origin),
            Object::Vpc(object) => put(Arc::make_mut(&mut self.vpcs), name, object, origin),
            Object::Subnet(object) => put(Arc::make_mut(&mut self.subnets), name, object, origin),
            Object::RouteTable(object) => put(Arc::make_mut(&mut self.route_tables), name, object, origin),
            Object::Pod(object) => put(&mut self.inside(namespace).pods, name, object, origin),
            Object::NetworkInterface(object) => {
                put(&mut self.inside(namespace).network_interfaces, name, object, origin)
            }
            Object::NetworkEndpoint(object) => put(&mut self.inside(namespace).network_endpoints, name, object, origin),
            Object::Service(object) => put(self.inside(namespace).services_mut(), name, object, origin),
            Object::EndpointSlice(object) => put(self.inside(namespace).slices_mut(), name, object, origin),
        }
    }

    /// Puts an object in the place of the one that is there, if any.
    pub(crate) fn replace(&mut self, namespace: &Text, name: &Text, object: &Object, origin: Origin) {
        fn set<T>(map: &mut Items<T>, name: &Text, object: &Arc<T>, origin: Origin) {
            map.insert(Arc::clone(name), Item { object: Arc::clone(object), origin });
        }
        match object {
            Object::Namespace(object) => set(Arc::make_mut(&mut self.namespaces), name, object, origin),
            Object::Node(object) => set(Arc::make_mut(&mut self.nodes), name, object, origin),
            Object::Vpc(object) => set(Arc::make_mut(&mut self.vpcs), name, object, origin),
            Object::Subnet(object) => set(Arc::make_mut(&mut self.subnets), name, object, origin),
            Object::RouteTable(object) => set(Arc::make_mut(&mut self.route_tables), name, object, origin),
            Object::Pod(object) => set(&mut self.inside(namespace).pods, name, object, origin),
            Object::NetworkInterface(object) => {
                set(&mut self.inside(namespace).network_interfaces, name, object, origin);
            }
            Object::NetworkEndpoint(object) => {
                set(&mut self.inside(namespace).network_endpoints, name, object, origin);
            }
            Object::Service(object) => set(self.inside(namespace).services_mut(), name, object, origin),
            Object::EndpointSlice(object) => set(self.inside(namespace).slices_mut(), name, object, origin),
        }
    }

    /// Takes an object away.
    pub(crate) fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        if self.get(kind, namespace, name).is_none() {
            return;
        }
        match kind {
            Kind::Namespace => drop(Arc::make_mut(&mut self.namespaces).remove(name)),
            Kind::Node => drop(Arc::make_mut(&mut self.nodes).remove(name)),
            Kind::Vpc => drop(Arc::make_mut(&mut self.vpcs).remove(name)),
            Kind::Subnet => drop(Arc::make_mut(&mut self.subnets).remove(name)),
            Kind::RouteTable => drop(Arc::make_mut(&mut self.route_tables).remove(name)),
            Kind::Pod | Kind::NetworkInterface | Kind::NetworkEndpoint | Kind::Service | Kind::EndpointSlice => {
                let Some(inside) = self.workloads.get_mut(namespace) else { return };
                let inside = Arc::make_mut(inside);
                match kind {
                    Kind::Pod => drop(inside.pods.remove(name)),
                    Kind::NetworkInterface => drop(inside.network_interfaces.remove(name)),
                    Kind::Service => drop(inside.services_mut().remove(name)),
                    Kind::EndpointSlice => drop(inside.slices_mut().remove(name)),
                    _ => drop(inside.network_endpoints.remove(name)),
                }
                if inside.is_empty() {
                    self.workloads.remove(namespace);
                }
            }
        }
    }

    /// An object of any kind.
    #[must_use]
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Object> {
        let inside = || self.workloads.get(namespace);
        Some(match kind {
            Kind::Namespace => Object::Namespace(Arc::clone(&self.namespaces.get(name)?.object)),
            Kind::Node => Object::Node(Arc::clone(&self.nodes.get(name)?.object)),
            Kind::Vpc => Object::Vpc(Arc::clone(&self.vpcs.get(name)?.object)),
            Kind::Subnet => Object::Subnet(Arc::clone(&self.subnets.get(name)?.object)),
            Kind::RouteTable => Object::RouteTable(Arc::clone(&self.route_tables.get(name)?.object)),
            Kind::Pod => Object::Pod(Arc::clone(&inside()?.pods.get(name)?.object)),
            Kind::NetworkInterface => {
                Object::NetworkInterface(Arc::clone(&inside()?.network_interfaces.get(name)?.object))
            }
            Kind::NetworkEndpoint => {
                Object::NetworkEndpoint(Arc::clone(&inside()?.network_endpoints.get(name)?.object))
            }
            Kind::Service => Object::Service(Arc::clone(&inside()?.services.get(name)?.object)),
            Kind::EndpointSlice => Object::EndpointSlice(Arc::clone(&inside()?.endpoint_slices.get(name)?.object)),
        })
    }

    /// Namespaces and names of all objects of a kind.
    pub(crate) fn names(&self, kind: Kind) -> Vec<(Text, Text)> {
        fn plain<T>(items: &Items<T>) -> Vec<(Text, Text)> {
            items.keys().map(|name| (Text::default(), Arc::clone(name))).collect()
        }
        fn inside<'v, T: 'v>(view: &'v View, items: impl Fn(&'v Workloads) -> &'v Items<T>) -> Vec<(Text, Text)> {
            let all = view.workloads.iter();
            all.flat_map(|(namespace, inside)| {
                items(inside).keys().map(|name| (Arc::clone(namespace), Arc::clone(name)))
            })
            .collect()
        }
        match kind {
            Kind::Namespace => plain(&self.namespaces),
            Kind::Node => plain(&self.nodes),
            Kind::Vpc => plain(&self.vpcs),
            Kind::Subnet => plain(&self.subnets),
            Kind::RouteTable => plain(&self.route_tables),
            Kind::Pod => inside(self, |inside| &inside.pods),
            Kind::NetworkInterface => inside(self, |inside| &inside.network_interfaces),
            Kind::NetworkEndpoint => inside(self, |inside| &inside.network_endpoints),
            Kind::Service => inside(self, |inside| &inside.services),
            Kind::EndpointSlice => inside(self, |inside| &inside.endpoint_slices),
        }
    }

    fn inside(&mut self, namespace: &Text) -> &mut Workloads {
        Arc::make_mut(self.workloads.entry(Arc::clone(namespace)).or_default())
    }

    /// Empties a part.
    pub fn clear(&mut self, part: &Part) {
        match part {
            Part::Namespace(name) => drop(self.workloads.remove(name)),
            Part::Kind(Kind::Namespace) => self.namespaces = Arc::default(),
            Part::Kind(Kind::Node) => self.nodes = Arc::default(),
            Part::Kind(Kind::Vpc) => self.vpcs = Arc::default(),
            Part::Kind(Kind::Subnet) => self.subnets = Arc::default(),
            Part::Kind(Kind::RouteTable) => self.route_tables = Arc::default(),
            // These have namespaces.
            Part::Kind(
                Kind::Pod | Kind::NetworkInterface | Kind::NetworkEndpoint | Kind::Service | Kind::EndpointSlice,
            ) => {}
        }
    }

    /// A Pod.
    #[must_use]
    pub fn pod(&self, namespace: &str, name: &str) -> Option<&Item<Pod>> {
        self.workloads.get(namespace)?.pods.get(name)
    }

    /// A NetworkEndpoint.
    #[must_use]
    pub fn network_endpoint(&self, namespace: &str, name: &str) -> Option<&Item<NetworkEndpoint>> {
        self.workloads.get(namespace)?.network_endpoints.get(name)
    }

    /// Objects of a kind.
    #[must_use]
    pub fn count(&self, kind: Kind) -> usize {
        let inside = |count: fn(&Workloads) -> usize| self.workloads.values().map(|inside| count(inside)).sum();
        match kind {
            Kind::Namespace => self.namespaces.len(),
            Kind::Node => self.nodes.len(),
            Kind::Vpc => self.vpcs.len(),
            Kind::Subnet => self.subnets.len(),
            Kind::RouteTable => self.route_tables.len(),
            Kind::Pod => inside(|inside| inside.pods.len()),
            Kind::NetworkInterface => inside(|inside| inside.network_interfaces.len()),
            Kind::NetworkEndpoint => inside(|inside| inside.network_endpoints.len()),
            Kind::Service => inside(|inside| inside.services.len()),
            Kind::EndpointSlice => inside(|inside| inside.endpoint_slices.len()),
        }
    }

    /// Objects of all kinds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.namespaces.len()
            + self.nodes.len()
            + self.vpcs.len()
            + self.subnets.len()
            + self.route_tables.len()
            + self.workloads.values().map(|workloads| workloads.len()).sum::<usize>()
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
        assert_eq!(Kind::from_argument("svc"), Some(Kind::Service));
        assert_eq!(Kind::from_argument("secret"), None);
        assert_eq!(Kind::find("v1", "Vpc"), None);
    }
}
