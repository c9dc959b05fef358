//! The kinds of the group `juneau.loutres.me/v1alpha1`, and those of Kubernetes' own that the data path reads.
//!
//! With the feature `kube` (on by default) each root type implements kube's `Resource` and `CustomResourceExt`;
//! without it they are the same types with serde alone. Names in JSON are those of the API, byte for byte.

mod allocation_claim;
mod allocation_lease;
mod allocation_pool;
mod duration;
mod network_endpoint;
mod network_interface;
pub mod reason;
mod route_table;
mod service_nat_attachment;
mod subnet;
mod vpc;
mod vpc_endpoint;

pub use allocation_claim::{
    AllocationClaim, AllocationClaimSpec, AllocationClaimStatus, AllocationFilter, AllocationValue, ClaimPhase,
    PoolRef, ResourceRef,
};
pub use allocation_lease::{AllocationLease, AllocationLeaseSpec, AllocationLeaseStatus, ClaimRef, LeasePhase};
pub use allocation_pool::{
    AllocationPool, AllocationPoolSpec, AllocationPoolStatus, IpRange, IpSpace, NumberRange, PoolStrategy, PoolType,
};
pub use duration::{DurationError, parse_duration};
pub use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
pub use k8s_openapi::api::discovery::v1::EndpointSlice;
pub use network_endpoint::{
    Attachment, EndpointKind, EndpointPodRef, NetworkEndpoint, NetworkEndpointSpec, NetworkEndpointStatus,
};
pub use network_interface::{
    EffectiveSecurityGroup, InterfacePhase, InterfacePodRef, InterfaceRoute, InterfaceRule, NetworkInterface,
    NetworkInterfaceSpec, NetworkInterfaceStatus, RetainWhile,
};
pub use route_table::{RejectedRoute, Route, RouteTable, RouteTableSpec, RouteTableStatus, Via, ViaType, VpnReference};
pub use service_nat_attachment::{ServiceNATAttachment, ServiceNatAttachmentSpec, ServiceNatAttachmentStatus};
pub use subnet::{Subnet, SubnetNetworkAcl, SubnetSpec, SubnetStatus};
pub use vpc::{EndpointPool, ServiceProvider, Vpc, VpcService, VpcSpec, VpcStatus};
pub use vpc_endpoint::{ServiceReference, VpcEndpoint, VpcEndpointSpec, VpcEndpointStatus};

/// The API group of Juneau's kinds.
pub const GROUP: &str = "juneau.loutres.me";
/// The only version of the group.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of Juneau's kinds.
pub const API_VERSION: &str = "juneau.loutres.me/v1alpha1";

/// The root types without kube's derive: the same fields, the same JSON.
#[cfg(not(feature = "kube"))]
macro_rules! plain_root {
    ($(#[$meta:meta])* $root:ident, $spec:ty, $status:ty) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $root {
            /// Name, namespace, uid.
            #[serde(default)]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// What is wanted.
            pub spec: $spec,
            /// What is.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub status: Option<$status>,
        }

        impl $root {
            /// An object with this name and spec.
            #[must_use]
            pub fn new(name: &str, spec: $spec) -> Self {
                let metadata = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                    name: Some(name.to_owned()),
                    ..Default::default()
                };
                Self { metadata, spec, status: None }
            }
        }
    };
}
#[cfg(not(feature = "kube"))]
pub(crate) use plain_root;

#[cfg(test)]
mod tests;
