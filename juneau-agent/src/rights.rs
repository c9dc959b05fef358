//! What an agent asks of the API server: all of it, and nothing else. `deploy/` grants it, and tests compare the two.

use juneau_api::view::Kind;

/// Verbs on one resource, everywhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The group; empty for Kubernetes' first kinds.
    pub group: &'static str,
    /// The resource.
    pub resource: String,
    /// Verbs.
    pub verbs: &'static [&'static str],
}

/// Every kind is listed and watched ([`WatchSource`](juneau_api::source::watch::WatchSource)).
const READ: &[&str] = &["list", "watch"];

/// All that an agent asks for.
#[must_use]
pub fn rights() -> Vec<Right> {
    let group = |kind: Kind| kind.api_version().split_once('/').map_or("", |(group, _)| group);
    let resource = |kind: Kind| format!("{}s", kind.as_str().to_ascii_lowercase());
    let mut all: Vec<Right> =
        Kind::ALL.iter().map(|kind| Right { group: group(*kind), resource: resource(*kind), verbs: READ }).collect();
    // `spec.attachment`. A ValidatingAdmissionPolicy binds it to the agent's own node.
    let endpoints = Kind::NetworkEndpoint;
    all.push(Right { group: group(endpoints), resource: resource(endpoints), verbs: &["patch"] });
    // Why an endpoint is refused; that it still is, is a change of the Event.
    all.push(Right { group: "events.k8s.io", resource: "events".to_owned(), verbs: &["create", "patch"] });
    all
}
