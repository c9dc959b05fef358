//! What was fetched: the objects, and what could not be read. Reports are made of this and of nothing else.

use core::fmt;
use juneau_api::kinds;
use juneau_api::view::ObjectName;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Namespace of the operator and the agents, unless told otherwise.
pub const SYSTEM_NAMESPACE: &str = "juneau-system";
/// The operators' Lease: who holds it writes.
pub const LEASE: &str = "e810463e.juneau.loutres.me";
/// The ValidatingWebhookConfiguration.
pub const WEBHOOK: &str = "juneau";
/// Value of the label `app.kubernetes.io/name` of the agents' Pods.
pub const AGENT: &str = "juneau-agent";

/// What is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[expect(missing_docs, reason = "the names of the kinds")]
pub enum What {
    Vpc,
    Subnet,
    RouteTable,
    NetworkInterface,
    NetworkEndpoint,
    ServiceNATAttachment,
    VpcEndpoint,
    AllocationPool,
    AllocationClaim,
    AllocationLease,
    Namespace,
    Node,
    Pod,
    Event,
    /// Pods of the agents.
    Agent,
    /// The operators' Lease.
    Lease,
    /// The webhook configuration.
    Webhook,
}

impl What {
    /// Juneau's own kinds.
    pub const OWN: [Self; 10] = [
        Self::Vpc,
        Self::Subnet,
        Self::RouteTable,
        Self::NetworkInterface,
        Self::NetworkEndpoint,
        Self::ServiceNATAttachment,
        Self::VpcEndpoint,
        Self::AllocationPool,
        Self::AllocationClaim,
        Self::AllocationLease,
    ];

    /// The kind as manifests write it, or what else it is.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Vpc => "Vpc",
            Self::Subnet => "Subnet",
            Self::RouteTable => "RouteTable",
            Self::NetworkInterface => "NetworkInterface",
            Self::NetworkEndpoint => "NetworkEndpoint",
            Self::ServiceNATAttachment => "ServiceNATAttachment",
            Self::VpcEndpoint => "VpcEndpoint",
            Self::AllocationPool => "AllocationPool",
            Self::AllocationClaim => "AllocationClaim",
            Self::AllocationLease => "AllocationLease",
            Self::Namespace => "Namespace",
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::Event => "Event",
            Self::Agent => "Pod of the agents",
            Self::Lease => "Lease of the operator",
            Self::Webhook => "ValidatingWebhookConfiguration",
        }
    }

    /// Several of them.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Vpc => "Vpcs",
            Self::Subnet => "Subnets",
            Self::RouteTable => "RouteTables",
            Self::NetworkInterface => "NetworkInterfaces",
            Self::NetworkEndpoint => "NetworkEndpoints",
            Self::ServiceNATAttachment => "ServiceNATAttachments",
            Self::VpcEndpoint => "VpcEndpoints",
            Self::AllocationPool => "AllocationPools",
            Self::AllocationClaim => "AllocationClaims",
            Self::AllocationLease => "AllocationLeases",
            Self::Namespace => "Namespaces",
            Self::Node => "Nodes",
            Self::Pod => "Pods",
            Self::Event => "Events",
            Self::Agent => "the agents' Pods",
            Self::Lease => "the operator's Lease",
            Self::Webhook => "the webhook configuration",
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something that was not read, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Hidden {
    /// What.
    pub what: What,
    /// Why, and what is shown in its place.
    pub why: String,
    /// It should have been answered, and was not; otherwise whoever asks has not the right.
    pub failed: bool,
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// An object of a known kind that this version cannot read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Undecodable {
    /// Its kind.
    pub what: What,
    /// Its namespace and name.
    pub name: ObjectName,
    /// Why.
    pub error: String,
}

/// How the webhook answered when it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// It answered.
    Answers,
    /// It did not; what the API server says.
    Silent(String),
    /// It was not asked; why.
    NotAsked(String),
}

/// Everything that was fetched. Objects that have no namespace are kept by name, the others by namespace and name.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(missing_docs, reason = "the names of the kinds")]
pub struct Snapshot {
    /// The moment, by the API server's clock.
    pub now: Timestamp,
    /// The only namespace that is shown. Absent: all.
    pub namespace: Option<String>,
    /// Namespace of the operator and the agents.
    pub system_namespace: String,
    pub vpcs: BTreeMap<String, kinds::Vpc>,
    pub subnets: BTreeMap<String, kinds::Subnet>,
    pub route_tables: BTreeMap<String, kinds::RouteTable>,
    pub interfaces: BTreeMap<ObjectName, kinds::NetworkInterface>,
    pub endpoints: BTreeMap<ObjectName, kinds::NetworkEndpoint>,
    pub nat_attachments: BTreeMap<String, kinds::ServiceNATAttachment>,
    pub vpc_endpoints: BTreeMap<String, kinds::VpcEndpoint>,
    pub pools: BTreeMap<String, kinds::AllocationPool>,
    pub claims: BTreeMap<String, kinds::AllocationClaim>,
    pub leases: BTreeMap<String, kinds::AllocationLease>,
    pub namespaces: BTreeMap<String, Namespace>,
    pub nodes: BTreeMap<String, Node>,
    pub pods: BTreeMap<ObjectName, Pod>,
    /// Pods of the agents.
    pub agents: BTreeMap<ObjectName, Pod>,
    pub events: Vec<Event>,
    /// The operators' Lease.
    pub lease: Option<Lease>,
    /// The webhook configuration.
    pub webhook: Option<ValidatingWebhookConfiguration>,
    /// How the webhook answered.
    pub probe: Option<Probe>,
    /// What was asked for and answered.
    pub read: BTreeSet<What>,
    /// What was asked for and not, or not wholly, answered.
    pub hidden: Vec<Hidden>,
    /// Objects that this version cannot read.
    pub undecodable: Vec<Undecodable>,
}

impl Snapshot {
    /// Whether all objects of a kind were read, so that one that is not here does not exist.
    #[must_use]
    pub fn knows_all(&self, what: What) -> bool {
        self.read.contains(&what) && !self.hidden.iter().any(|hidden| hidden.what == what)
    }

    /// Seconds since a moment, at least 0.
    #[must_use]
    pub fn seconds_since(&self, moment: Timestamp) -> i64 {
        (self.now.as_second() - moment.as_second()).max(0)
    }

    /// Seconds since an object was made; one that does not say it counts as old.
    #[must_use]
    pub fn age(&self, metadata: &ObjectMeta) -> i64 {
        metadata.creation_timestamp.as_ref().map_or(i64::MAX, |time| self.seconds_since(time.0))
    }

    /// Endpoints of Pods: the others are the operator's alone, and no node makes an interface for them.
    pub fn pod_endpoints(&self) -> impl Iterator<Item = &kinds::NetworkEndpoint> {
        self.endpoints.values().filter(|endpoint| endpoint.spec.kind == kinds::EndpointKind::Pod)
    }

    /// The Vpc of a Subnet.
    #[must_use]
    pub fn vpc_of(&self, subnet: &str) -> Option<&str> {
        self.subnets.get(subnet).map(|subnet| subnet.spec.vpc.as_str())
    }
}

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: String,
    /// Its namespace. Absent: it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl ObjectRef {
    /// An object without a namespace.
    #[must_use]
    pub fn new(kind: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind: kind.into(), namespace: None, name: name.into() }
    }

    /// An object by its namespace, which may be empty, and name.
    #[must_use]
    pub fn named(kind: impl Into<String>, name: &ObjectName) -> Self {
        let namespace = Some(name.namespace.clone()).filter(|namespace| !namespace.is_empty());
        Self { kind: kind.into(), namespace, name: name.name.clone() }
    }

    /// Its namespace, or nothing, and its name.
    #[must_use]
    pub fn object_name(&self) -> ObjectName {
        ObjectName::new(self.namespace.clone().unwrap_or_default(), self.name.as_str())
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}
