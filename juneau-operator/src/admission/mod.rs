//! What only several objects together can tell: overlaps, references, deletion of what is in use, and who may enter a
//! VPC. What one object tells by itself stands in its definition (CEL).
//!
//! [`review`] is pure: it reads a view, which may be some milliseconds behind the server. A refusal that a newer view
//! could lift says so ([`Denial::lag`]), and the server around it waits a moment before it is given; one because of an
//! object that is not in the view names it ([`Denial::missing`]), and the API server is asked for it. The other way
//! round, two requests at once may both be admitted though they contradict each other; the plan sees both and gives the
//! older one what both want. Admission tells users early; it is not what keeps tenants apart.

mod ask;
mod networks;
mod pods;
mod probes;
mod server;
mod services;

pub use probes::{MUTATED, rewrite};
pub use server::{Admission, Counts, Labels, router};

use crate::plan::Config;
use crate::view::{Kind, View};
use ipnet::Ipv4Net;
use juneau_api::view::ObjectName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// A new object.
    Create,
    /// Another version of one.
    Update,
    /// Its removal.
    Delete,
    /// Anything else; never asked about by the configuration that comes with this program.
    #[serde(other)]
    Other,
}

/// A kind as the server names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct GroupVersionKind {
    /// Its group; empty for Kubernetes' first kinds.
    #[serde(default)]
    pub group: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
    /// Its name.
    #[serde(default)]
    pub kind: String,
}

/// One question of `admission.k8s.io/v1`, as far as it is read.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Goes into the answer.
    pub uid: String,
    /// Of which kind the object is.
    pub kind: GroupVersionKind,
    /// The part of the object, such as `status`; empty: the object itself.
    #[serde(default)]
    pub sub_resource: Option<String>,
    /// Its name; empty while a name is yet to be made.
    #[serde(default)]
    pub name: String,
    /// Its namespace; empty for cluster-wide kinds.
    #[serde(default)]
    pub namespace: String,
    /// What is asked for.
    pub operation: Operation,
    /// The object as it would be.
    #[serde(default)]
    pub object: Value,
    /// The object as it is.
    #[serde(default)]
    pub old_object: Value,
}

/// Why something is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// What is wrong and what helps. Names the objects.
    pub message: String,
    /// What a newer view might show otherwise.
    pub lag: bool,
    /// The object whose absence from the view is the reason.
    pub missing: Option<Reference>,
}

/// One object. Its kind is one of those that may be asked for (`rights::ASKED`), which have no namespace.
pub type Reference = (Kind, ObjectName);

impl Denial {
    /// A refusal that holds whatever else exists.
    fn firm(message: String) -> Self {
        Self { message, lag: false, missing: None }
    }

    /// A refusal because of what other objects are or are not.
    fn of_others(message: String) -> Self {
        Self { message, lag: true, missing: None }
    }

    /// A refusal because an object without a namespace is not in the view.
    fn of_missing(kind: Kind, name: &str, message: String) -> Self {
        Self { message, lag: true, missing: Some((kind, ObjectName::new("", name))) }
    }
}

/// A yes.
#[derive(Debug, Clone, Default, PartialEq)]
struct Said {
    /// What the user is to be told beside it.
    warnings: Vec<String>,
    /// What is to be changed, as a JSON patch (RFC 6902).
    patch: Vec<Value>,
}

/// The answer: what is to be told to the user beside a yes, or why not.
pub type Verdict = Result<Vec<String>, Denial>;

/// The kinds that are reviewed: `(group, kind, path)`. The webhook configuration in `deploy/` has the same.
pub const REVIEWED: [(&str, &str, &str); 7] = [
    (GROUP, "Vpc", "/validate-juneau-loutres-me-v1alpha1-vpc"),
    (GROUP, "Subnet", "/validate-juneau-loutres-me-v1alpha1-subnet"),
    (GROUP, "RouteTable", "/validate-juneau-loutres-me-v1alpha1-routetable"),
    (GROUP, "VpcEndpoint", "/validate-juneau-loutres-me-v1alpha1-vpcendpoint"),
    ("", "Service", "/validate--v1-service"),
    ("", "Pod", "/validate--v1-pod"),
    ("", "Namespace", "/validate--v1-namespace"),
];

const GROUP: &str = juneau_api::kinds::GROUP;

/// Answers one question.
///
/// # Errors
/// Why the answer is no.
pub fn review(view: &View, config: &Config, request: &Request) -> Verdict {
    let known = REVIEWED.iter().any(|(group, kind, _)| *group == request.kind.group && *kind == request.kind.kind);
    if !known {
        return Err(Denial::firm(format!(
            "{} of group \"{}\" is not a kind that this webhook reviews; take it out of the webhook configuration",
            request.kind.kind, request.kind.group
        )));
    }
    if request.sub_resource.as_deref().is_some_and(|part| !part.is_empty()) {
        return Ok(Vec::new());
    }
    match request.kind.kind.as_str() {
        "Vpc" => networks::vpc(view, config, request),
        "Subnet" => networks::subnet(view, config, request),
        "RouteTable" => networks::route_table(view, request),
        "VpcEndpoint" => services::vpc_endpoint(view, request),
        "Service" => services::service(view, config, request),
        "Namespace" => pods::namespace(view, config, request),
        _ => pods::pod(view, config, request),
    }
}

/// The new and the old version of an object, and whether it is being deleted: then only its finalizers change, and
/// nothing is checked, so that no deletion ever hangs on a check.
struct Versions<T> {
    new: Option<T>,
    old: Option<T>,
}

impl<T: DeserializeOwned> Versions<T> {
    fn of(request: &Request) -> Result<Self, Denial> {
        let read = |value: &Value| match value {
            Value::Null => Ok(None),
            value => serde_json::from_value(value.clone()).map(Some),
        };
        let new = read(&request.object)
            .map_err(|error| Denial::firm(format!("{} {}: {error}", request.kind.kind, request.name)))?;
        // What is stored may be of another release. It is replaced all the same.
        Ok(Self { new, old: read(&request.old_object).unwrap_or_default() })
    }
}

fn is_deleting(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some()
}

/// An IPv4 prefix; host bits are cleared, as the API does.
fn prefix(text: &str) -> Option<Ipv4Net> {
    text.parse::<Ipv4Net>().ok().map(|net| net.trunc())
}

fn overlap(a: Ipv4Net, b: Ipv4Net) -> bool {
    a.contains(&b) || b.contains(&a)
}

/// `a, b and 3 more`.
fn listed(mut names: Vec<String>) -> String {
    const SHOWN: usize = 10;
    names.sort();
    let more = names.len().saturating_sub(SHOWN);
    names.truncate(SHOWN);
    let text = names.join(", ");
    if more == 0 { text } else { format!("{text} and {more} more") }
}

#[cfg(test)]
mod tests;
