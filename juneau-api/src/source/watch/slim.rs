//! Objects that are decoded into what is held of them.

use crate::kinds;
use crate::view::{Kind, Object};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

/// A kind that is watched.
pub(super) trait Lean:
    Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static
{
    /// Which one.
    const KIND: Kind;

    /// What is held of an object.
    fn lean(self) -> Object;
}

macro_rules! lean {
    ($($kind:ident)*) => {$(
        impl Lean for kinds::$kind {
            const KIND: Kind = Kind::$kind;

            fn lean(self) -> Object {
                Object::$kind(Arc::new(self.into()))
            }
        }
    )*};
}
lean!(Namespace Node Pod Vpc Subnet RouteTable NetworkInterface NetworkEndpoint Service EndpointSlice);

/// An object of kind `K`, less what nobody reads.
#[derive(Debug, Clone)]
pub(super) struct Slim<K> {
    /// Name, namespace and version.
    metadata: ObjectMeta,
    object: Object,
    kind: PhantomData<K>,
}

impl<K> Slim<K> {
    pub(super) fn into_object(self) -> Object {
        self.object
    }
}

impl<'de, K: Lean> Deserialize<'de> for Slim<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = K::deserialize(deserializer)?;
        let all = object.meta();
        let metadata = ObjectMeta {
            name: all.name.clone(),
            namespace: all.namespace.clone(),
            resource_version: all.resource_version.clone(),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, object: object.lean(), kind: PhantomData })
    }
}

impl<K: Lean> Resource for Slim<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
