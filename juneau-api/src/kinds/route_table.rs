//! The routes of a VPC's Subnets.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};

/// What a RouteTable shall be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "kube",
    derive(schemars::JsonSchema, kube::CustomResource),
    kube(
        group = "juneau.loutres.me",
        version = "v1alpha1",
        kind = "RouteTable",
        plural = "routetables",
        status = "RouteTableStatus",
        derive = "Default",
        derive = "PartialEq",
        doc = "Routes of Subnets of one Vpc. Routes to its own Subnets and Services are automatic.",
        printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct RouteTableSpec {
    /// The Vpc that it belongs to. Cannot be changed. The RouteTable with the Vpc's own name is its main one. Example:
    /// `red`.
    pub vpc: String,
    /// The routes that are wanted besides the automatic ones, at most 4096, each destination once. What is in force is in
    /// the status; what cannot be is named in `rejectedRoutes` there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

/// One route.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// The destination: an IPv4 prefix without host bits. The longest one that fits a packet decides. Example:
    /// `172.16.0.0/12`, or `0.0.0.0/0` for everything else.
    pub dst: String,
    /// Where packets for it go. Example: `{type: endpoint, endpointName: firewall.eth0}`.
    pub via: Via,
    /// In a status, of a connected route: the Subnet. Ignored in a spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// In a status, of a connected route: the L2Network. Ignored in a spec.
    #[serde(default, rename = "l2Network", skip_serializing_if = "Option::is_none")]
    pub l2_network: Option<String>,
    /// In a status, of a transit gateway's route: its table. Ignored in a spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transit_gateway_route_table: Option<String>,
}

/// A route's target. The field of its own type is set, the others are not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Via {
    /// What kind of target. `connected` is accepted and ignored in a spec; `service` and `vpcEndpoint` are automatic and
    /// refused there.
    #[serde(rename = "type")]
    pub kind: ViaType,
    /// With type `endpoint`, and only then: a NetworkEndpoint of the same Vpc by its name, or as `namespace/name` where
    /// several have the name. Example: `red/firewall.eth0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_name: Option<String>,
    /// With type `natGateway`, and only then: a NATGateway of the same Vpc.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat_gateway: Option<String>,
    /// With type `vpcPeering`, and only then: a VpcPeering of this Vpc.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vpc_peering: Option<String>,
    /// With type `transitGateway`, and only then: a TransitGateway that the Vpc is attached to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transit_gateway: Option<String>,
    /// With type `vpn`, and only then: a VPN of the same Vpc.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vpn: Option<VpnReference>,
}

/// The kinds of a route's target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum ViaType {
    /// The Subnet itself.
    #[default]
    Connected,
    /// A Pod as next hop.
    Endpoint,
    /// The node's way out.
    InternetGateway,
    /// Service addresses.
    Service,
    /// A NATGateway.
    NatGateway,
    /// Another VPC.
    VpcPeering,
    /// A hub.
    TransitGateway,
    /// A VpcEndpoint's address.
    VpcEndpoint,
    /// A site.
    Vpn,
    /// A kind that this version does not know.
    #[serde(other)]
    #[cfg_attr(feature = "kube", schemars(skip))]
    Unknown,
}

/// Names a VPN.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct VpnReference {
    /// The VPN's namespace.
    pub namespace: String,
    /// The VPN's name.
    pub name: String,
}

/// A route that is left out or leads nowhere. It costs itself alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RejectedRoute {
    /// Its destination, as the spec has it.
    pub dst: String,
    /// Why, in one word. Example: `TargetNotFound`.
    pub reason: String,
    /// Why, and what to do.
    pub message: String,
}

/// What a RouteTable is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RouteTableStatus {
    /// The routes in force, automatic ones among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Routes of the spec that are left out, or that lead nowhere, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected_routes: Vec<RejectedRoute>,
    /// The table's number, from 1 on; no other RouteTable has it.
    #[serde(default, rename = "tableID", skip_serializing_if = "Option::is_none")]
    pub table_id: Option<u32>,
    /// A VPN that a route waits for, as `namespace/name`.
    #[serde(default, rename = "pendingVPN", skip_serializing_if = "Option::is_none")]
    pub pending_vpn: Option<String>,
    /// VPNs that routes wait for.
    #[serde(default, rename = "pendingVPNs", skip_serializing_if = "Vec::is_empty")]
    pub pending_vpns: Vec<String>,
    /// Ready: the table has its number, and every route of the spec is in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

#[cfg(not(feature = "kube"))]
super::plain_root!(
    /// The routes of a VPC's Subnets.
    RouteTable,
    RouteTableSpec,
    RouteTableStatus
);
