//! One object of any kind.

use super::{Namespace, Node, Pod, Service};
use core::fmt;
use juneau_api::kinds;
use juneau_api::view::ObjectName;
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident($type:ty as $wire:ty), $plural:literal, $api_version:expr, $namespaced:literal;)*) => {
        /// The kinds that a view holds.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: [Self; [$(Self::$kind),*].len()] = [$(Self::$kind),*];

            /// The kind as manifests write it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$kind => stringify!($kind),)* }
            }

            /// The kind's name in paths of the API.
            #[must_use]
            pub const fn plural(self) -> &'static str {
                match self { $(Self::$kind => $plural,)* }
            }

            /// `apiVersion` as manifests write it.
            #[must_use]
            pub const fn api_version(self) -> &'static str {
                match self { $(Self::$kind => $api_version,)* }
            }

            /// Whether objects of the kind have a namespace.
            #[must_use]
            pub const fn is_namespaced(self) -> bool {
                match self { $(Self::$kind => $namespaced,)* }
            }
        }

        /// One object of any kind.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Object {
            $($(#[$doc])* $kind(Arc<$type>),)*
        }

        impl Object {
            /// Its kind.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind,)* }
            }

            /// Its metadata.
            #[must_use]
            pub fn metadata(&self) -> &ObjectMeta {
                match self { $(Self::$kind(object) => &object.metadata,)* }
            }

            /// Its metadata, to be changed.
            pub fn metadata_mut(&mut self) -> &mut ObjectMeta {
                match self { $(Self::$kind(object) => &mut Arc::make_mut(object).metadata,)* }
            }

            /// The object of this kind that a document holds. Fields that are not known are passed over, and who owns
            /// which field as well, which is half of a document.
            ///
            /// # Errors
            /// When a field that is known has a wrong type, or one that is required is missing.
            pub fn from_json(kind: Kind, mut document: Value) -> Result<Self, serde_json::Error> {
                if let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("managedFields");
                }
                fn read<W: DeserializeOwned>(document: Value) -> Result<W, serde_json::Error> {
                    serde_json::from_value(document)
                }
                Ok(match kind {
                    $(Kind::$kind => Self::$kind(Arc::new(read::<$wire>(document)?.into())),)*
                })
            }
        }

        $(impl From<$type> for Object {
            fn from(object: $type) -> Self {
                Self::$kind(Arc::new(object))
            }
        })*
    };
}

kinds! {
    /// v1 Namespace.
    Namespace(Namespace as v1::Namespace), "namespaces", "v1", false;
    /// v1 Node.
    Node(Node as v1::Node), "nodes", "v1", false;
    /// v1 Pod.
    Pod(Pod as v1::Pod), "pods", "v1", true;
    /// v1 Service.
    Service(Service as v1::Service), "services", "v1", true;
    /// A tenant's network.
    Vpc(kinds::Vpc as kinds::Vpc), "vpcs", kinds::API_VERSION, false;
    /// A prefix of a VPC.
    Subnet(kinds::Subnet as kinds::Subnet), "subnets", kinds::API_VERSION, false;
    /// The routes of Subnets.
    RouteTable(kinds::RouteTable as kinds::RouteTable), "routetables", kinds::API_VERSION, false;
    /// An interface of a Pod.
    NetworkInterface(kinds::NetworkInterface as kinds::NetworkInterface), "networkinterfaces", kinds::API_VERSION, true;
    /// What holds an address.
    NetworkEndpoint(kinds::NetworkEndpoint as kinds::NetworkEndpoint), "networkendpoints", kinds::API_VERSION, true;
    /// A node's source address for shared Services of a VPC.
    ServiceNATAttachment(kinds::ServiceNATAttachment as kinds::ServiceNATAttachment), "servicenatattachments", kinds::API_VERSION, false;
    /// An address of a VPC in front of a Service.
    VpcEndpoint(kinds::VpcEndpoint as kinds::VpcEndpoint), "vpcendpoints", kinds::API_VERSION, false;
    /// What numbers and addresses are handed out of.
    AllocationPool(kinds::AllocationPool as kinds::AllocationPool), "allocationpools", kinds::API_VERSION, false;
    /// A wish for a number or an address.
    AllocationClaim(kinds::AllocationClaim as kinds::AllocationClaim), "allocationclaims", kinds::API_VERSION, false;
    /// A value that is taken.
    AllocationLease(kinds::AllocationLease as kinds::AllocationLease), "allocationleases", kinds::API_VERSION, false;
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Object {
    /// Its namespace and name; the namespace of cluster-wide kinds is empty.
    #[must_use]
    pub fn name(&self) -> ObjectName {
        let metadata = self.metadata();
        ObjectName::new(metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
    }
}
