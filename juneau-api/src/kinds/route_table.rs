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
        doc = "The routes of a VPC's Subnets.",
        printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct RouteTableSpec {
    /// The VPC that it belongs to.
    pub vpc: String,
    /// The routes that users want; those of the data path are in the status.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

/// One route.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// The destination prefix, without host bits.
    pub dst: String,
    /// Where packets for it go.
    pub via: Via,
    /// Of a connected route in a status: the Subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// Of a connected route in a status: the L2Network.
    #[serde(default, rename = "l2Network", skip_serializing_if = "Option::is_none")]
    pub l2_network: Option<String>,
    /// Of a transit gateway's route in a status: its table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transit_gateway_route_table: Option<String>,
}

/// A route's target. The field of its own type is set, the others are not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Via {
    /// What kind of target.
    #[serde(rename = "type")]
    pub kind: ViaType,
    /// A NetworkEndpoint: its name, or `namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_name: Option<String>,
    /// A NATGateway of the same VPC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat_gateway: Option<String>,
    /// A VpcPeering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vpc_peering: Option<String>,
    /// A TransitGateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transit_gateway: Option<String>,
    /// A VPN of the same VPC.
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
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A route that is left out. It costs itself alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "kube", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RejectedRoute {
    /// Its destination, as the spec has it.
    pub dst: String,
    /// Why, in one word.
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
    /// Routes of the spec that are left out, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected_routes: Vec<RejectedRoute>,
    /// The table's number.
    #[serde(default, rename = "tableID", skip_serializing_if = "Option::is_none")]
    pub table_id: Option<u32>,
    /// A VPN that a route waits for, as `namespace/name`.
    #[serde(default, rename = "pendingVPN", skip_serializing_if = "Option::is_none")]
    pub pending_vpn: Option<String>,
    /// VPNs that routes wait for.
    #[serde(default, rename = "pendingVPNs", skip_serializing_if = "Vec::is_empty")]
    pub pending_vpns: Vec<String>,
    /// `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation that the status is about.
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
