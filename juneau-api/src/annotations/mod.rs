//! What a Pod or a Service asks for: annotations of Pods, Namespaces and Services.

mod list;
mod service;

pub use list::MAX_INTERFACES;
pub use service::{ALLOWED_CONSUMERS, SERVICE_KEYS, SHARED_SERVICE, ServiceOffer, VPC, service};

use crate::kinds::Pod;
use crate::names;
use core::net::Ipv4Addr;
use std::collections::BTreeMap;
use std::fmt;

/// Pod: the Subnet of `eth0`. Namespace: the same for Pods that do not say.
pub const SUBNET: &str = "juneau.loutres.me/subnet";
/// Pod: the address of `eth0`.
pub const ADDRESS: &str = "juneau.loutres.me/address";
/// Pod: SecurityGroups of `eth0`, with commas between them.
pub const SECURITY_GROUPS: &str = "juneau.loutres.me/security-groups";
/// Pod: the ElasticIP that `eth0` carries itself.
pub const ELASTIC_IP: &str = "juneau.loutres.me/elastic-ip";
/// Pod: more interfaces, or all of them, as JSON.
pub const NETWORKS: &str = "juneau.loutres.me/networks";
/// Pod: its kubelet mirrors it from a file.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// The interface that every Pod has.
pub const PRIMARY: &str = "eth0";
/// Most SecurityGroups of an interface.
pub const MAX_SECURITY_GROUPS: usize = 2;

/// An interface that a Pod asks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceRequest {
    /// Its name inside the Pod.
    pub interface: String,
    /// The network that it is in.
    pub network: NetworkRef,
    /// The address that is asked for; absent: any.
    pub address: Option<Ipv4Addr>,
    /// SecurityGroups, sorted and each once.
    pub security_groups: Vec<String>,
    /// Who says so.
    pub source: Source,
}

/// Names the network of an interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NetworkRef {
    /// A Subnet.
    Subnet(String),
    /// An L2Network.
    L2Network(String),
    /// An ElasticIP of the Pod's namespace.
    ElasticIp(String),
}

impl NetworkRef {
    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Subnet(_) => "Subnet",
            Self::L2Network(_) => "L2Network",
            Self::ElasticIp(_) => "ElasticIP",
        }
    }

    /// The object's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Subnet(name) | Self::L2Network(name) | Self::ElasticIp(name) => name,
        }
    }
}

impl fmt::Display for NetworkRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind(), self.name())
    }
}

/// Who says which network an interface is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// An annotation of the Pod.
    Pod(&'static str),
    /// [`SUBNET`] of its Namespace.
    Namespace,
    /// Nobody: the Subnet `default`.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(key) => write!(f, "annotation {key}"),
            Self::Namespace => write!(f, "annotation {SUBNET} of the Namespace"),
            Self::Default => f.write_str("no annotation"),
        }
    }
}

/// Why annotations cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{annotation}{}: {message}; {remedy}", if *.of_namespace { "Namespace: " } else { "" }, .element.map(|index| format!("[{index}]")).unwrap_or_default())]
pub struct AnnotationError {
    /// The annotation's key.
    pub annotation: &'static str,
    /// It is the Namespace's, not the Pod's.
    pub of_namespace: bool,
    /// Of [`NETWORKS`]: which element, from 0 on.
    pub element: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl AnnotationError {
    fn new(annotation: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { annotation, of_namespace: false, element: None, message: message.into(), remedy: remedy.into() }
    }

    const fn at(mut self, element: usize) -> Self {
        self.element = Some(element);
        self
    }
}

/// Whether a Pod has interfaces at all: not with the node's network, not as a mirror of a file, and not when it has
/// finished.
#[must_use]
pub fn has_interfaces(pod: &Pod) -> bool {
    let host_network = pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default();
    let mirror = pod.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MIRROR));
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !host_network && !mirror && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// The interfaces of a Pod, [`PRIMARY`] first, then in the order of [`NETWORKS`]; none for a Pod that has none
/// ([`has_interfaces`]). `of_namespace` are the annotations of its Namespace.
///
/// Whether the networks exist, whether the Pod may use them, and whether the address is one of theirs, is for the caller
/// to see.
///
/// # Errors
/// [`AnnotationError`], the first that is found.
pub fn interfaces(
    pod: &Pod,
    of_namespace: Option<&BTreeMap<String, String>>,
) -> Result<Vec<InterfaceRequest>, AnnotationError> {
    if !has_interfaces(pod) {
        return Ok(Vec::new());
    }
    requests(pod.metadata.annotations.as_ref().unwrap_or(&NONE), of_namespace)
}

static NONE: BTreeMap<String, String> = BTreeMap::new();

/// [`interfaces`] of a Pod that has some, from its annotations alone.
///
/// # Errors
/// [`AnnotationError`], the first that is found.
pub fn requests(
    of_pod: &BTreeMap<String, String>,
    of_namespace: Option<&BTreeMap<String, String>>,
) -> Result<Vec<InterfaceRequest>, AnnotationError> {
    let mut interfaces = match filled(of_pod, NETWORKS) {
        Some(text) => list::parse(text)?,
        None => Vec::new(),
    };
    if let Some(place) = interfaces.iter().position(|request| request.interface == PRIMARY) {
        if let Some(key) =
            [SUBNET, ADDRESS, SECURITY_GROUPS, ELASTIC_IP].into_iter().find(|key| of_pod.contains_key(*key))
        {
            return Err(AnnotationError::new(
                key,
                format!("{NETWORKS} describes {PRIMARY} already"),
                format!("remove this annotation, or the element {PRIMARY}"),
            ));
        }
        interfaces[..=place].rotate_right(1);
    } else {
        let primary = primary(of_pod, of_namespace.unwrap_or(&NONE))?;
        list::elastic_ip_once(&primary, &interfaces)?;
        interfaces.insert(0, primary);
    }
    Ok(interfaces)
}

/// The value of an annotation that says something. An empty one counts as absent, as templates write it.
fn filled<'a>(annotations: &'a BTreeMap<String, String>, key: &str) -> Option<&'a str> {
    annotations.get(key).map(|text| text.trim()).filter(|text| !text.is_empty())
}

/// The interface `eth0` as the single-purpose annotations describe it.
fn primary(
    of_pod: &BTreeMap<String, String>,
    of_namespace: &BTreeMap<String, String>,
) -> Result<InterfaceRequest, AnnotationError> {
    let interface = PRIMARY.to_owned();
    if let Some(name) = filled(of_pod, ELASTIC_IP) {
        if let Some(key) = [SUBNET, ADDRESS, SECURITY_GROUPS].into_iter().find(|key| of_pod.contains_key(*key)) {
            return Err(AnnotationError::new(
                key,
                format!("cannot be combined with {ELASTIC_IP}, not even empty"),
                "remove one of the two annotations",
            ));
        }
        let network = NetworkRef::ElasticIp(object_name(ELASTIC_IP, "an ElasticIP", name)?);
        let source = Source::Pod(ELASTIC_IP);
        return Ok(InterfaceRequest { interface, network, address: None, security_groups: Vec::new(), source });
    }
    let (subnet, source) = match (filled(of_pod, SUBNET), filled(of_namespace, SUBNET)) {
        (Some(name), _) => (object_name(SUBNET, "a Subnet", name)?, Source::Pod(SUBNET)),
        (None, Some(name)) => {
            let name = object_name(SUBNET, "a Subnet", name);
            (name.map_err(|error| AnnotationError { of_namespace: true, ..error })?, Source::Namespace)
        }
        (None, None) => (names::DEFAULT.to_owned(), Source::Default),
    };
    let address = filled(of_pod, ADDRESS).map(|text| address(ADDRESS, text)).transpose()?;
    let groups = filled(of_pod, SECURITY_GROUPS).unwrap_or_default();
    let groups = groups.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let security_groups = security_groups(SECURITY_GROUPS, groups)?;
    Ok(InterfaceRequest { interface, network: NetworkRef::Subnet(subnet), address, security_groups, source })
}

/// A name that an object can have.
fn object_name(annotation: &'static str, what: &str, name: &str) -> Result<String, AnnotationError> {
    if names::is_subdomain(name) {
        Ok(name.to_owned())
    } else {
        Err(AnnotationError::new(
            annotation,
            format!("{name:?} cannot be the name of {what}"),
            "write a name of lower-case letters, digits, '-' and '.'",
        ))
    }
}

/// An address that a Pod can have.
fn address(annotation: &'static str, text: &str) -> Result<Ipv4Addr, AnnotationError> {
    text.parse().map_err(|_| {
        AnnotationError::new(
            annotation,
            format!("{text:?} is not an IPv4 address"),
            "write it without a prefix length, as in 10.0.1.20",
        )
    })
}

/// Names of SecurityGroups, sorted and each once.
fn security_groups(annotation: &'static str, mut groups: Vec<String>) -> Result<Vec<String>, AnnotationError> {
    for name in &groups {
        object_name(annotation, "a SecurityGroup", name)?;
    }
    groups.sort_unstable();
    groups.dedup();
    if groups.len() > MAX_SECURITY_GROUPS {
        return Err(AnnotationError::new(
            annotation,
            format!("names {} SecurityGroups", groups.len()),
            format!("name at most {MAX_SECURITY_GROUPS}"),
        ));
    }
    Ok(groups)
}

#[cfg(test)]
mod tests;
