//! What is held of Services and their EndpointSlices. There are tens of thousands of each, so texts are few and shared,
//! and addresses are numbers.

use super::object::some;
use super::{Text, Texts, Time};
use crate::annotations::{self, AnnotationError};
use crate::kinds;
use core::fmt;
use core::net::IpAddr;

/// Who carries it out, of a Service or an EndpointSlice: not us, if there is any.
const PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// An EndpointSlice of a headless Service.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// The Service that an EndpointSlice is of.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Seconds that a client stays with its backend, where a Service with affinity does not say.
const AFFINITY_SECONDS: u32 = 10_800;

/// An address, or a text that is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// An address.
    Ip(IpAddr),
    /// What stands there instead.
    Invalid(Text),
}

impl Address {
    /// Reads a text.
    fn read(text: String) -> Self {
        text.parse().map_or_else(|_| Self::Invalid(text.into()), Self::Ip)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => write!(f, "{address}"),
            Self::Invalid(text) => write!(f, "{text:?}"),
        }
    }
}

/// A transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
    /// RFC 9260.
    Sctp,
    /// None that Kubernetes has.
    Unknown,
}

impl Transport {
    fn read(text: Option<&str>) -> Self {
        match text {
            None | Some("TCP") => Self::Tcp,
            Some("UDP") => Self::Udp,
            Some("SCTP") => Self::Sctp,
            Some(_) => Self::Unknown,
        }
    }
}

/// What is read of a v1 Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// It has no data path here: it is headless, ExternalName, or another implementation's. Nothing else of it is held.
    pub is_left_alone: bool,
    /// The Vpc that owns it, or why its annotations cannot be met.
    pub vpc: Result<Text, Box<AnnotationError>>,
    /// Its ClusterIP of IPv4; of IPv6 if it has no other; none before it got one.
    pub cluster_ip: Option<Address>,
    /// Further addresses that it is reached at.
    pub external_ips: Box<[Address]>,
    /// Its ports.
    pub ports: Box<[ServicePort]>,
    /// `internalTrafficPolicy: Local`: only backends of the client's node.
    pub is_local: bool,
    /// Seconds that a client stays with its backend, if it does.
    pub affinity: Option<u32>,
    /// When it was made.
    pub created: Option<Time>,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name; empty if it has none.
    pub name: Text,
    /// Its protocol.
    pub transport: Transport,
    /// Its number.
    pub port: i32,
}

/// What is read of a discovery.k8s.io/v1 EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointSlice {
    /// The Service that it is of. None: it is left alone, as one of another implementation, of a headless Service, of
    /// none, or without addresses of IPv4; nothing else of it is held then.
    pub service: Option<Text>,
    /// Its ports; those of every endpoint.
    pub ports: Box<[SlicePort]>,
    /// Its endpoints.
    pub endpoints: Box<[SliceEndpoint]>,
}

/// A port of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicePort {
    /// The name of the Service's port; empty if that has none.
    pub name: Text,
    /// Its protocol.
    pub transport: Transport,
    /// Where endpoints listen.
    pub port: i32,
}

/// An endpoint of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// Its first address; further ones mean nothing (API reference, Endpoint).
    pub address: Address,
    /// It takes new connections.
    pub is_ready: bool,
    /// It answers.
    pub is_serving: bool,
    /// It is about to go.
    pub is_terminating: bool,
    /// The node that it is on.
    pub node: Option<Text>,
    /// Who should use it.
    pub hints: Option<Box<Hints>>,
}

/// Who should use an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// Nodes by name.
    pub nodes: Box<[Text]>,
    /// Zones by name.
    pub zones: Box<[Text]>,
}

impl From<kinds::Service> for Service {
    fn from(object: kinds::Service) -> Self {
        let (metadata, spec) = (object.metadata, object.spec.unwrap_or_default());
        let cluster_ips = spec.cluster_ips.unwrap_or_default().into_iter().chain(spec.cluster_ip);
        let mut cluster_ips: Vec<_> = cluster_ips.filter(|text| !text.is_empty()).collect();
        let is_headless = cluster_ips.first().is_some_and(|first| first == "None");
        let is_ours =
            metadata.labels.is_none_or(|labels| !labels.contains_key(PROXY_NAME) && !labels.contains_key(HEADLESS));
        let is_left_alone = !is_ours || is_headless || spec.type_.as_deref() == Some("ExternalName");
        if is_left_alone {
            return Self {
                is_left_alone,
                vpc: Ok(Text::default()),
                cluster_ip: None,
                external_ips: Box::default(),
                ports: Box::default(),
                is_local: false,
                affinity: None,
                created: None,
            };
        }
        let v4 = cluster_ips.iter().position(|text| text.parse().is_ok_and(|address: IpAddr| address.is_ipv4()));
        let cluster_ip = (!cluster_ips.is_empty()).then(|| cluster_ips.swap_remove(v4.unwrap_or_default()));
        let config = spec.session_affinity_config.and_then(|config| config.client_ip);
        let seconds = config.and_then(|config| config.timeout_seconds).and_then(|seconds| u32::try_from(seconds).ok());
        let ports = spec.ports.unwrap_or_default().into_iter().map(|port| ServicePort {
            name: port.name.unwrap_or_default().into(),
            transport: Transport::read(port.protocol.as_deref()),
            port: port.port,
        });
        Self {
            is_left_alone,
            vpc: annotations::service(&metadata.annotations.unwrap_or_default())
                .map(|offer| offer.vpc.into())
                .map_err(Box::new),
            cluster_ip: cluster_ip.map(Address::read),
            external_ips: spec.external_ips.unwrap_or_default().into_iter().map(Address::read).collect(),
            ports: ports.collect(),
            is_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            affinity: (spec.session_affinity.as_deref() == Some("ClientIP"))
                .then(|| seconds.unwrap_or(AFFINITY_SECONDS)),
            created: metadata.creation_timestamp,
        }
    }
}

impl From<kinds::EndpointSlice> for EndpointSlice {
    fn from(object: kinds::EndpointSlice) -> Self {
        let labels = object.metadata.labels.unwrap_or_default();
        let is_ours =
            object.address_type == "IPv4" && !labels.contains_key(PROXY_NAME) && !labels.contains_key(HEADLESS);
        let service =
            labels.get(SERVICE_NAME).filter(|name| is_ours && !name.is_empty()).map(|name| name.as_str().into());
        if service.is_none() {
            return Self { service, ports: Box::default(), endpoints: Box::default() };
        }
        let ports = object.ports.unwrap_or_default().into_iter().filter_map(|port| {
            Some(SlicePort {
                name: port.name.unwrap_or_default().into(),
                transport: Transport::read(port.protocol.as_deref()),
                // Without a number it means nothing here (API reference, EndpointPort).
                port: port.port?,
            })
        });
        let endpoints = object.endpoints.unwrap_or_default().into_iter().filter_map(|endpoint| {
            let conditions = endpoint.conditions.unwrap_or_default();
            let hints = endpoint.hints.map(|hints| Hints {
                nodes: hints.for_nodes.unwrap_or_default().into_iter().map(|node| node.name.into()).collect(),
                zones: hints.for_zones.unwrap_or_default().into_iter().map(|zone| zone.name.into()).collect(),
            });
            Some(SliceEndpoint {
                address: Address::read(endpoint.addresses.into_iter().next()?),
                // What is not said means ready and serving (API reference, EndpointConditions).
                is_ready: conditions.ready.unwrap_or(true),
                is_serving: conditions.serving.unwrap_or(true),
                is_terminating: conditions.terminating.unwrap_or(false),
                node: some(endpoint.node_name),
                hints: hints.filter(|hints| !hints.nodes.is_empty() || !hints.zones.is_empty()).map(Box::new),
            })
        });
        Self { service, ports: ports.collect(), endpoints: endpoints.collect() }
    }
}

impl Service {
    pub(super) fn share(&mut self, texts: &mut Texts) {
        if let Ok(vpc) = &mut self.vpc {
            texts.share(vpc);
        }
        for port in &mut self.ports {
            texts.share(&mut port.name);
        }
    }
}

impl EndpointSlice {
    pub(super) fn share(&mut self, texts: &mut Texts) {
        texts.share_some(&mut self.service);
        for port in &mut self.ports {
            texts.share(&mut port.name);
        }
        for endpoint in &mut self.endpoints {
            texts.share_some(&mut endpoint.node);
            if let Some(hints) = &mut endpoint.hints {
                hints.nodes.iter_mut().chain(&mut hints.zones).for_each(|text| texts.share(text));
            }
        }
    }
}
