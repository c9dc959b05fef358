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
        selectable = ".spec.subnet",
        selectable = ".spec.nodeName",
        printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterfaceSpec {
    /// The Pod, and which of its interfaces. Cannot be changed.
    pub pod_ref: InterfacePodRef,
    /// The node that the Pod runs on. Cannot be changed.
    pub node_name: String,
    /// The Subnet that the interface is in; one of subnet, l2Network and elasticIP is set. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// The L2Network that the interface is in; one of subnet, l2Network and elasticIP is set. Cannot be changed.
    #[serde(default, rename = "l2Network", skip_serializing_if = "Option::is_none")]
    pub l2_network: Option<String>,
    /// The ElasticIP, of the same namespace, that the interface carries itself; one of subnet, l2Network and elasticIP is
    /// set. Cannot be changed.
    #[serde(default, rename = "elasticIP", skip_serializing_if = "Option::is_none")]
    pub elastic_ip: Option<String>,
    /// The IPv4 address that the Pod asks for, inside the network. Absent: any. Cannot be changed. Example: `10.0.1.20`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// SecurityGroups of the same Vpc, at most two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<String>,
    /// Makes the address follow this identity instead of the Pod's name. Cannot be changed. Example: `vmi.db`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_identity: Option<String>,
    /// Keeps the address while this object exists. Cannot be changed.
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
    /// The interface's name inside the Pod. Example: `eth0`.
    pub interface: String,
}

/// An object whose existence keeps an address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RetainWhile {
    /// The object's group and version. Example: `kubevirt.io/v1`.
    pub api_version: String,
    /// The object's kind. Example: `VirtualMachine`.
    pub kind: String,
    /// The object's namespace; empty when it has none.
    pub namespace: String,
    /// The object's name.
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
    /// How far it is: Pending without an address, Allocated with one, Ready when its endpoint exists too, Failed when it
    /// cannot have an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<InterfacePhase>,
    /// Allocated: it has its address. Ready: its endpoint exists; that has `spec.attachment` once the node made the interface. The reasons say what is in the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The AllocationClaim that its address comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_claim: Option<String>,
    /// Its address with the network's prefix length; /32 for an ElasticIP. Example: `10.0.1.20/24`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Routes that the Pod gets with the interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<InterfaceRoute>,
    /// Routing rules that the Pod gets with the interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<InterfaceRule>,
    /// The SecurityGroups in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effective_security_groups: Vec<EffectiveSecurityGroup>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// A route inside the Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InterfaceRoute {
    /// The destination prefix. Example: `0.0.0.0/0`.
    pub dst: String,
    /// The next hop. Absent: the destination is on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<String>,
    /// Whether the next hop is on the link though no prefix says so.
    #[serde(default)]
    pub on_link: bool,
    /// The routing table. Absent: main.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
}

/// A routing rule inside the Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InterfaceRule {
    /// The source prefix that the rule is about.
    pub from: String,
    /// The routing table that is asked.
    pub table: u32,
    /// The rule's place: smaller ones are asked first.
    pub priority: u32,
}

/// A SecurityGroup in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct EffectiveSecurityGroup {
    /// The SecurityGroup's name.
    pub name: String,
    /// The SecurityGroup's number.
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
