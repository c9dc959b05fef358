//! Objects in memory, changed by the rules of the API: a name is made once, a change names the version that it is about,
//! and an object with finalizers outlives its deletion.

use crate::plan::{Change, Target};
use crate::view::{Kind, Object, View};
use juneau_api::kinds::{AllocationLeaseStatus, Attachment};
use juneau_api::source::planned::{stable_uid, uuid};
use juneau_api::view::{ObjectName, Time};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

/// Why a change was not made. None is an error of the planner's: it plans again with what is there now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// An object of that kind and name is there already.
    #[error("exists already")]
    AlreadyExists,
    /// The object is not there, or another one of its name is.
    #[error("is not there any more")]
    NotFound,
    /// The object changed since.
    #[error("changed meanwhile")]
    Conflict,
}

/// All objects, and the version of the last change.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    view: View,
    version: u64,
}

impl Objects {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What is there.
    #[must_use]
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// Puts an object there as it is, with a version of its own: somebody else wrote it. One without a uid gets
    /// [`stable_uid`]'s.
    pub fn put(&mut self, mut object: Object) {
        self.version += 1;
        let (kind, name) = (object.kind(), object.name());
        let version = self.version.to_string();
        let metadata = object.metadata_mut();
        metadata.resource_version = Some(version);
        metadata.uid.get_or_insert_with(|| stable_uid(kind.as_str(), &name.namespace, &name.name));
        self.view.insert(object);
    }

    /// Takes an object away, whatever it is guarded by.
    pub fn remove(&mut self, kind: Kind, name: &ObjectName) -> bool {
        self.view.remove(kind, name)
    }

    /// Makes a change. What it leaves behind: the object, or nothing if it is gone.
    ///
    /// # Errors
    /// [`Refusal`], as an API server would refuse.
    pub fn apply(&mut self, change: &Change, now: Timestamp) -> Result<Option<Object>, Refusal> {
        let target = change.target();
        if let Change::Create(object) = change {
            if self.view.get(target.kind, &target.name).is_some() {
                return Err(Refusal::AlreadyExists);
            }
            return Ok(Some(self.create(object.clone(), now)));
        }
        let mut stored = self.stored(&target)?;
        match change {
            Change::Create(_) => {}
            Change::Metadata(wanted) => {
                let metadata = stored.metadata_mut();
                metadata.finalizers.clone_from(&wanted.metadata().finalizers);
                metadata.owner_references.clone_from(&wanted.metadata().owner_references);
            }
            Change::Spec(wanted) => {
                copy_spec(&mut stored, wanted);
                let metadata = stored.metadata_mut();
                metadata.generation = Some(metadata.generation.unwrap_or(0) + 1);
            }
            Change::Status(wanted) => copy_status(&mut stored, wanted),
            Change::Delete(_) => {
                let metadata = stored.metadata_mut();
                metadata.deletion_timestamp.get_or_insert(Time(now));
            }
        }
        if is_over(stored.metadata()) {
            self.view.remove(target.kind, &target.name);
            return Ok(None);
        }
        self.version += 1;
        stored.metadata_mut().resource_version = Some(self.version.to_string());
        self.view.insert(stored.clone());
        Ok(Some(stored))
    }

    fn create(&mut self, mut object: Object, now: Timestamp) -> Object {
        self.version += 1;
        let (kind, name, version) = (object.kind(), object.name(), self.version);
        clear_status(&mut object);
        // What its definition has for it.
        if let Object::AllocationLease(lease) = &mut object {
            Arc::make_mut(lease).status = Some(AllocationLeaseStatus::active());
        }
        let metadata = object.metadata_mut();
        let moment = now.as_nanosecond().to_string();
        metadata.uid = Some(uuid(&[kind.as_str(), &name.namespace, &name.name, &moment, &version.to_string()]));
        metadata.resource_version = Some(version.to_string());
        metadata.generation = Some(1);
        metadata.creation_timestamp = Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now)));
        self.view.insert(object.clone());
        object
    }

    /// The object that a change is about, as long as it is the one that the plan saw.
    fn stored(&self, target: &Target) -> Result<Object, Refusal> {
        let stored = self.view.get(target.kind, &target.name).ok_or(Refusal::NotFound)?;
        let metadata = stored.metadata();
        if metadata.uid.as_deref().unwrap_or_default() != target.uid {
            return Err(Refusal::NotFound);
        }
        if metadata.resource_version.as_deref().unwrap_or_default() != target.resource_version {
            return Err(Refusal::Conflict);
        }
        Ok(stored)
    }
}

impl From<View> for Objects {
    /// Objects that are there already; the next change has a version that none of them has.
    fn from(view: View) -> Self {
        let mut version = 0;
        for kind in Kind::ALL {
            for object in view.all(kind) {
                let text = object.metadata().resource_version.as_deref().unwrap_or_default();
                version = version.max(text.parse().unwrap_or_default());
            }
        }
        Self { view, version }
    }
}

/// Whether an object's deletion is complete.
fn is_over(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some() && metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
}

macro_rules! parts {
    ($($kind:ident),*) => {
        fn copy_spec(stored: &mut Object, wanted: &Object) {
            match (stored, wanted) {
                // The agent's part is not the operator's to write.
                (Object::NetworkEndpoint(stored), Object::NetworkEndpoint(wanted)) => {
                    let attachment: Option<Attachment> = stored.spec.attachment.clone();
                    let stored = Arc::make_mut(stored);
                    stored.spec = wanted.spec.clone();
                    stored.spec.attachment = attachment;
                }
                $((Object::$kind(stored), Object::$kind(wanted)) => Arc::make_mut(stored).spec = wanted.spec.clone(),)*
                _ => {}
            }
        }

        fn copy_status(stored: &mut Object, wanted: &Object) {
            match (stored, wanted) {
                (Object::NetworkEndpoint(stored), Object::NetworkEndpoint(wanted)) => {
                    Arc::make_mut(stored).status = wanted.status.clone();
                }
                $((Object::$kind(stored), Object::$kind(wanted)) => Arc::make_mut(stored).status = wanted.status.clone(),)*
                _ => {}
            }
        }

        /// An object of Juneau's kinds as a manifest; nothing for Kubernetes' own, which the operator never writes.
        pub(crate) fn to_json(object: &Object) -> Option<Value> {
            let written = match object {
                Object::NetworkEndpoint(object) => serde_json::to_value(object.as_ref()),
                $(Object::$kind(object) => serde_json::to_value(object.as_ref()),)*
                Object::Namespace(_) | Object::Node(_) | Object::Pod(_) | Object::Service(_) => return None,
            };
            let mut value = written.ok()?;
            value["apiVersion"] = object.kind().api_version().into();
            value["kind"] = object.kind().as_str().into();
            Some(value)
        }

        /// Gives an object the status of another of its kind.
        pub(crate) fn take_status(object: &mut Object, from: &Object) {
            copy_status(object, from);
        }

        /// Whether two objects want the same.
        pub(crate) fn has_same_spec(one: &Object, other: &Object) -> bool {
            match (one, other) {
                (Object::NetworkEndpoint(one), Object::NetworkEndpoint(other)) => one.spec == other.spec,
                $((Object::$kind(one), Object::$kind(other)) => one.spec == other.spec,)*
                _ => one == other,
            }
        }

        fn clear_status(object: &mut Object) {
            match object {
                Object::NetworkEndpoint(object) => Arc::make_mut(object).status = None,
                $(Object::$kind(object) => Arc::make_mut(object).status = None,)*
                Object::Namespace(_) | Object::Node(_) | Object::Pod(_) | Object::Service(_) => {}
            }
        }
    };
}

parts!(
    Vpc,
    Subnet,
    RouteTable,
    NetworkInterface,
    ServiceNATAttachment,
    VpcEndpoint,
    AllocationPool,
    AllocationClaim,
    AllocationLease
);
