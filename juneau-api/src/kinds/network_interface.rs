//! One network interface of one Pod, as the allocator sees it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

/// What an interface shall be. Written by the operator, never by tenants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "kube",
    derive(schemars::JsonSchema, kube::CustomResource),
    kube(
        group = "juneau.loutres.me",
        version = "v1alpha1",
        kind = "NetworkInterface",
        plural = "networkinterfaces",
        namespaced,
        shortname = "interface",
        shortname = "iface",
        shortname = "nwinterface",
        shortname = "nwiface",
        shortname = "nic",
        status = "NetworkInterfaceStatus",
        derive = "Default",
        derive = "PartialEq",
        doc = "One network interface of one Pod, named <pod>.<nic>.",
        printcolumn = r#"{"name":"Node","type":"string","jsonPath":".spec.nodeName"}"#,
        printcolumn = r#"{"name":"Subnet","type":"string","jsonPath":".spec.subnet"}"#,
        printcolumn = r#"{"name":"L2Network","type":"string","jsonPath":".spec.l2Network"}"#,
        printcolumn = r#"{"name":"ElasticIP","type":"string","jsonPath":".spec.elasticIP"}"#,
        printcolumn = r#"{"name":"Address","type":"string","jsonPath":".status.address"}"#,
        printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterfaceSpec {
    /// Whose interface.
    pub pod_ref: InterfacePodRef,
    /// The Pod's node.
    pub node_name: String,
    /// The network, one of three: a Subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// The network, one of three: an L2Network.
    #[serde(default, rename = "l2Network", skip_serializing_if = "Option::is_none")]
    pub l2_network: Option<String>,
    /// The network, one of three: an ElasticIP carried by the Pod itself.
    #[serde(default, rename = "elasticIP", skip_serializing_if = "Option::is_none")]
    pub elastic_ip: Option<String>,
    /// The address that is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// SecurityGroups of the same VPC.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<String>,
    /// Makes the address follow this identity, not the Pod's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_identity: Option<String>,
    /// Keeps the address while that object exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain_while: Option<RetainWhile>,
}

/// The Pod of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InterfacePodRef {
    /// The Pod's uid.
    pub uid: String,
    /// The Pod's name.
    pub name: String,
    /// The interface's name inside the Pod.
    pub interface: String,
}

/// An object whose existence keeps an address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RetainWhile {
    /// Its group and version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// How far an interface is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
pub enum InterfacePhase {
    /// No address yet.
    #[default]
    Pending,
    /// It has an address.
    Allocated,
    /// Its endpoint exists.
    Ready,
    /// It cannot have an address.
    Failed,
    /// A phase that this version does not know.
    #[serde(other)]
    #[cfg_attr(feature = "kube", schemars(skip))]
    Unknown,
}

/// What an interface is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterfaceStatus {
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<InterfacePhase>,
    /// `Allocated`, `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The AllocationClaim behind the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_claim: Option<String>,
    /// The address with the network's prefix length; `/32` for an ElasticIP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Routes for the Pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<InterfaceRoute>,
    /// Routing rules for the Pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<InterfaceRule>,
    /// SecurityGroups in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effective_security_groups: Vec<EffectiveSecurityGroup>,
    /// The generation that the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// A route inside the Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InterfaceRoute {
    /// Destination prefix.
    pub dst: String,
    /// Next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<String>,
    /// The next hop is on the link though no prefix says so.
    #[serde(default)]
    pub on_link: bool,
    /// Routing table; absent: main.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
}

/// A routing rule inside the Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InterfaceRule {
    /// Source prefix.
    pub from: String,
    /// Routing table.
    pub table: u32,
    /// Smaller is asked first.
    pub priority: u32,
}

/// A SecurityGroup in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EffectiveSecurityGroup {
    /// Its name.
    pub name: String,
    /// Its number.
    #[serde(rename = "groupID")]
    pub group_id: u32,
}

#[cfg(not(feature = "kube"))]
super::plain_root!(
    /// One network interface of one Pod, named `<pod>.<nic>`.
    NetworkInterface,
    NetworkInterfaceSpec,
    NetworkInterfaceStatus
);
