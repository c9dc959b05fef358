//! The operator, its webhook and the agents, as far as objects tell.

use super::{ATTACH_GRACE, Problem, remedy};
use crate::render::span;
use crate::snapshot::{AGENT, LEASE, ObjectRef, Probe, Snapshot, WEBHOOK, What};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use x509_parser::pem::Pem;

/// None of a node's interfaces is attached.
pub(crate) const AGENT_SILENT: &str = "AgentSilent";
/// How long a Lease is good without a renewal, when it does not say it.
const LEASE_SECONDS: i64 = 15;
/// The operator renews a certificate 30 days before its end: with less than this left, something keeps it.
const RENEWAL_IS_LATE: i64 = 21 * 86_400;

/// Who writes, and when the Lease was renewed last.
pub(crate) fn lease(lease: &Lease) -> (Option<&str>, Option<Timestamp>) {
    let spec = lease.spec.as_ref();
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).filter(|holder| !holder.is_empty());
    // By the API server's clock where it says so: the holder's may be wrong.
    let managed = lease.metadata.managed_fields.iter().flatten().filter_map(|entry| entry.time.as_ref());
    let written = managed.map(|time| time.0).max();
    (holder, written.or_else(|| spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0)))
}

/// Whom API servers trust when they ask the webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Authority {
    /// Nobody: a webhook has no caBundle.
    Missing,
    /// Not certificates.
    Unreadable,
    /// Until then, in seconds since 1970.
    Until(i64),
}

/// What the caBundles of the webhooks say: the worst of them. Absent: there is no webhook.
pub(crate) fn authority(configuration: &ValidatingWebhookConfiguration) -> Option<Authority> {
    let webhooks = configuration.webhooks.as_deref().unwrap_or_default();
    let all = webhooks.iter().map(|webhook| match &webhook.client_config.ca_bundle {
        Some(bundle) if !bundle.0.is_empty() => until(&bundle.0),
        _ => Authority::Missing,
    });
    all.min_by_key(|one| match one {
        Authority::Missing => (0, 0),
        Authority::Unreadable => (1, 0),
        Authority::Until(moment) => (2, *moment),
    })
}

/// The end of the certificate that is trusted longest: the one of before stays beside it for a while.
fn until(bundle: &[u8]) -> Authority {
    let certificates = Pem::iter_from_buffer(bundle);
    let ends = certificates.map(|pem| {
        let pem = pem.ok()?;
        let certificate = pem.parse_x509().ok()?;
        Some(certificate.validity().not_after.timestamp())
    });
    match ends.collect::<Option<Vec<i64>>>().and_then(|ends| ends.into_iter().max()) {
        Some(end) => Authority::Until(end),
        None => Authority::Unreadable,
    }
}

pub(super) fn problems(snapshot: &Snapshot) -> Vec<Problem> {
    let mut all: Vec<Problem> = leaderless(snapshot).into_iter().collect();
    all.extend(webhook(snapshot));
    all.extend(agents(snapshot));
    all
}

/// That no operator writes, if none does.
pub(crate) fn leaderless(snapshot: &Snapshot) -> Option<Problem> {
    if !snapshot.read.contains(&What::Lease) {
        return None;
    }
    let namespace = snapshot.system_namespace.as_str();
    let object = ObjectRef { namespace: Some(namespace.to_owned()), ..ObjectRef::new("Lease", LEASE) };
    let problem = |reason: &str, message: String| Problem {
        object: object.clone(),
        reason: reason.to_owned(),
        message,
        remedy: remedy::operator(namespace),
    };
    let Some(found) = &snapshot.lease else {
        return Some(problem("OperatorMissing", "no operator has ever run here".to_owned()));
    };
    let (holder, renewed) = lease(found);
    let Some(holder) = holder else {
        return Some(problem("NoLeader", "no operator writes: the last one gave the Lease back".to_owned()));
    };
    let limit = found.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).map_or(LEASE_SECONDS, i64::from);
    let since = renewed.map_or(i64::MAX, |renewed| snapshot.seconds_since(renewed));
    // A second each way for rounding.
    (since > limit + 2).then(|| {
        let message = format!("no operator writes: {holder} renewed the Lease {} ago", span(since));
        problem("LeaderGone", message)
    })
}

fn webhook(snapshot: &Snapshot) -> Vec<Problem> {
    let namespace = snapshot.system_namespace.as_str();
    let problem = |reason: &str, message: String, remedy: String| Problem {
        object: ObjectRef::new("ValidatingWebhookConfiguration", WEBHOOK),
        reason: reason.to_owned(),
        message,
        remedy,
    };
    let mut all = Vec::new();
    if snapshot.read.contains(&What::Webhook) {
        let authority = snapshot.webhook.as_ref().map(authority);
        match authority {
            None | Some(None) => all.push(problem(
                "WebhookMissing",
                "objects are admitted unchecked: nobody asks the webhook".to_owned(),
                "apply it: kubectl apply --server-side -k deploy".to_owned(),
            )),
            Some(Some(Authority::Missing)) => all.push(problem(
                "NoCABundle",
                "API servers do not trust the webhook: an operator that runs writes caBundle at its start".to_owned(),
                remedy::operator(namespace),
            )),
            Some(Some(Authority::Unreadable)) => all.push(problem(
                "InvalidCABundle",
                "caBundle holds no certificates that can be read".to_owned(),
                remedy::operator(namespace),
            )),
            Some(Some(Authority::Until(end))) => {
                let left = end - snapshot.now.as_second();
                if left <= 0 {
                    let message = format!("its certificate ended {} ago", span(-left));
                    all.push(problem("CertificateExpired", message, remedy::operator(namespace)));
                } else if left < RENEWAL_IS_LATE {
                    let message =
                        format!("its certificate ends in {}, and should have been renewed by now", span(left));
                    all.push(problem("CertificateExpiring", message, remedy::operator(namespace)));
                }
            }
        }
    }
    if let Some(Probe::Silent(why)) = &snapshot.probe {
        let message = format!("does not answer, so that Vpcs, Subnets and RouteTables cannot be changed: {why}");
        all.push(problem("WebhookSilent", message, remedy::operator(namespace)));
    }
    all
}

/// Agents that do not do their work: of nodes where nothing is attached that should be, and by their own Pods.
fn agents(snapshot: &Snapshot) -> Vec<Problem> {
    let namespace = snapshot.system_namespace.as_str();
    let mut all = Vec::new();
    for (node, (waiting, attached)) in waiting(snapshot) {
        if waiting > 0 && attached == 0 {
            all.push(Problem {
                object: ObjectRef::new("Node", node),
                reason: AGENT_SILENT.to_owned(),
                message: format!("none of its {waiting} interfaces is attached: no agent does its work there"),
                remedy: remedy::agent(namespace, node),
            });
        }
    }
    // Where the agents are no Pods, they show by what they do alone.
    let nodes: BTreeSet<&str> = snapshot.agents.values().filter_map(node_of).collect();
    if !nodes.is_empty() && snapshot.knows_all(What::Agent) {
        for (node, (waiting, attached)) in waiting(snapshot) {
            if attached > 0 && !nodes.contains(node) {
                all.push(Problem {
                    object: ObjectRef::new("Node", node),
                    reason: "AgentMissing".to_owned(),
                    message: format!("no Pod of the agents is there, though {} interfaces are", waiting + attached),
                    remedy: format!("see why none is started: kubectl -n {namespace} describe daemonset {AGENT}"),
                });
            }
        }
    }
    for (name, pod) in &snapshot.agents {
        let node = node_of(pod).unwrap_or("?");
        if !is_ready(pod) && snapshot.age(&pod.metadata) > ATTACH_GRACE {
            all.push(Problem {
                object: ObjectRef::named("Pod", name),
                reason: "AgentNotReady".to_owned(),
                message: format!("the agent of Node/{node} is not ready"),
                remedy: format!("see its log: kubectl -n {} logs {}", name.namespace, name.name),
            });
        }
    }
    all
}

/// Endpoints of each node that should be attached: those that wait too long, and those that are.
fn waiting(snapshot: &Snapshot) -> BTreeMap<&str, (usize, usize)> {
    let mut nodes: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for endpoint in snapshot.pod_endpoints() {
        let counts = nodes.entry(endpoint.spec.node_name.as_str()).or_default();
        if endpoint.spec.attachment.is_some() {
            counts.1 += 1;
        } else if snapshot.age(&endpoint.metadata) > ATTACH_GRACE {
            counts.0 += 1;
        }
    }
    nodes
}

/// The node that a Pod is on.
pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())
}

/// Whether a Pod says that it is ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
