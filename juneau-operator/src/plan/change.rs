//! What a plan says.

use crate::view::{Kind, Object};
use core::fmt;
use juneau_api::view::ObjectName;
use k8s_openapi::jiff::Timestamp;

/// What to change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// In the order in which to carry them out. One that fails does not keep the others from being tried.
    pub changes: Vec<Change>,
    /// What users should hear of: each is one Event. A plan repeats a notice as long as its cause lasts; who sends
    /// Events sends one for each object, reason and message.
    pub notices: Vec<Notice>,
    /// When time alone changes the plan: plan again then. Absent: only when the view changes.
    pub wake: Option<Timestamp>,
}

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A POST of the object, without its status. That one of this name exists is not an error: plan again.
    Create(Object),
    /// `metadata.finalizers` and `metadata.ownerReferences` become these lists, nothing else changes. Of finalizers and
    /// owners that others put there, the lists hold what the plan saw.
    Metadata(Object),
    /// The fields of `spec` that the operator owns become these (server-side apply, forced): a hand changed them. What
    /// others own, such as an endpoint's `attachment`, is not in the object and stays.
    Spec(Object),
    /// `status` becomes this one.
    Status(Object),
    /// A DELETE with the uid and the resourceVersion as preconditions.
    Delete(Target),
}

impl Change {
    /// What it is about.
    #[must_use]
    pub fn target(&self) -> Target {
        match self {
            Self::Create(object) | Self::Metadata(object) | Self::Spec(object) | Self::Status(object) => {
                Target::of(object)
            }
            Self::Delete(target) => target.clone(),
        }
    }

    /// What it does, in one word.
    #[must_use]
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Metadata(_) => "metadata",
            Self::Spec(_) => "spec",
            Self::Status(_) => "status",
            Self::Delete(_) => "delete",
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb(), self.target())
    }
}

/// One object as the plan saw it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub name: ObjectName,
    /// `metadata.uid`; empty for an object that is yet to be created.
    pub uid: String,
    /// `metadata.resourceVersion`; empty for an object that is yet to be created.
    pub resource_version: String,
}

impl Target {
    /// Which object this is.
    #[must_use]
    pub fn of(object: &Object) -> Self {
        let metadata = object.metadata();
        Self {
            kind: object.kind(),
            name: object.name(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// What users should hear of: one Event for each cause.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notice {
    /// The object that the Event is about.
    pub object: Target,
    /// Something is wrong; otherwise it is told for information.
    pub warning: bool,
    /// It is about something that is done, which ends by being done; otherwise about what lasts, and is told when it has
    /// lasted a moment.
    pub at_once: bool,
    /// The cause in one CamelCase word, that of the condition where there is one.
    pub reason: &'static str,
    /// What is the matter and what helps.
    pub message: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.object, self.reason, self.message)
    }
}
