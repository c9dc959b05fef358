//! The whole cluster on one screen.

use super::{Addresses, EventPart, Index, event};
use crate::problems::{self, Authority, Problem, lease};
use crate::snapshot::{Probe, Snapshot, What};
use juneau_api::conditions;
use juneau_api::kinds::reason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Pools that are fuller than this are told, in per cent.
const NEARLY_FULL: u64 = 85;
/// Warnings of so many seconds are shown.
const RECENT: i64 = 3600;
/// At most so many warnings.
const WARNINGS: usize = 5;

/// What is to be told by the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Nothing that could be read is off.
    Well,
    /// Something is off.
    Off,
    /// Nothing of Juneau's may be read; or nothing that was read is off, but something could not be read.
    Unknown,
}

/// The whole cluster, or what may be seen of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusReport {
    /// What the exit status tells.
    pub verdict: Verdict,
    /// The only namespace that is shown of kinds that have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Who writes. Absent: it may not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<OperatorStatus>,
    /// Who admits. Absent: it may not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookStatus>,
    /// The nodes, as far as objects tell.
    pub nodes: Vec<NodeStatus>,
    /// Objects of each kind.
    pub kinds: Vec<KindCount>,
    /// Pools that are nearly full.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolStatus>,
    /// All that is off.
    pub problems: Vec<Problem>,
    /// What Events warned of within the last hour. It may be over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<EventPart>,
    /// What could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_shown: Vec<String>,
}

/// Who writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperatorStatus {
    /// The replica that holds the Lease. Absent: none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// Whether it renewed the Lease in time.
    pub writes: bool,
    /// How many seconds ago the Lease was renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewed_seconds_ago: Option<i64>,
}

/// Who admits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookStatus {
    /// Whether API servers are told to ask it.
    pub installed: bool,
    /// Whether every webhook has a caBundle that can be read.
    pub trusted: bool,
    /// In how many seconds the certificate ends; less than 0: it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_ends_in_seconds: Option<i64>,
    /// Whether it answered. Absent: it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<bool>,
    /// Why it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_asked: Option<String>,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Endpoints of Pods there.
    pub endpoints: usize,
    /// Those of which the node made the interface.
    pub attached: usize,
    /// Whether the agent's Pod is ready. Absent: there is none, or it may not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_ready: Option<bool>,
}

/// Objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KindCount {
    /// The kind.
    pub kind: &'static str,
    /// Those that are ready.
    pub ready: usize,
    /// Those that are not.
    pub not_ready: usize,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// How full it is.
    #[serde(flatten)]
    pub values: Addresses,
}

/// The whole cluster, or what may be seen of it.
#[must_use]
pub fn status(snapshot: &Snapshot) -> StatusReport {
    let index = Index::new(snapshot);
    let components = problems::of_components(snapshot);
    // A node without an agent says it once for all its interfaces.
    let silent: BTreeSet<&str> = components
        .iter()
        .filter(|problem| problem.reason == problems::AGENT_SILENT)
        .map(|p| p.object.name.as_str())
        .collect();
    let is_told = |problem: &&Problem| {
        problem.reason != reason::WAITING_FOR_INTERFACE
            || snapshot
                .endpoints
                .get(&problem.object.object_name())
                .is_none_or(|endpoint| !silent.contains(endpoint.spec.node_name.as_str()))
    };
    let of_objects: Vec<Problem> = index.all_problems().filter(is_told).cloned().collect();
    let problems: Vec<Problem> = components.iter().cloned().chain(of_objects).collect();
    let is_known = What::OWN.iter().any(|what| snapshot.read.contains(what));
    let verdict = if !is_known || (problems.is_empty() && snapshot.hidden.iter().any(|hidden| hidden.failed)) {
        Verdict::Unknown
    } else if problems.is_empty() {
        Verdict::Well
    } else {
        Verdict::Off
    };
    StatusReport {
        verdict,
        namespace: snapshot.namespace.clone(),
        operator: snapshot.read.contains(&What::Lease).then(|| operator(snapshot)),
        webhook: snapshot.read.contains(&What::Webhook).then(|| webhook(snapshot)),
        nodes: nodes(snapshot),
        kinds: counts(snapshot),
        pools: pools(&index),
        problems,
        warnings: event::warnings(snapshot, RECENT, WARNINGS),
        not_shown: index.not_shown(),
    }
}

fn operator(snapshot: &Snapshot) -> OperatorStatus {
    let (leader, renewed) = snapshot.lease.as_ref().map(lease).unwrap_or_default();
    OperatorStatus {
        leader: leader.map(str::to_owned),
        writes: problems::leaderless(snapshot).is_none(),
        renewed_seconds_ago: renewed.map(|renewed| snapshot.seconds_since(renewed)),
    }
}

fn webhook(snapshot: &Snapshot) -> WebhookStatus {
    let authority = snapshot.webhook.as_ref().and_then(problems::authority);
    WebhookStatus {
        installed: authority.is_some(),
        trusted: matches!(authority, Some(Authority::Until(_))),
        certificate_ends_in_seconds: match authority {
            Some(Authority::Until(end)) => Some(end - snapshot.now.as_second()),
            _ => None,
        },
        answers: match snapshot.probe {
            Some(Probe::Answers) => Some(true),
            Some(Probe::Silent(_)) => Some(false),
            _ => None,
        },
        not_asked: match &snapshot.probe {
            Some(Probe::NotAsked(why)) => Some(why.clone()),
            _ => None,
        },
    }
}

fn nodes(snapshot: &Snapshot) -> Vec<NodeStatus> {
    let mut nodes: BTreeMap<&str, NodeStatus> =
        snapshot.nodes.keys().map(|name| (name.as_str(), NodeStatus::default())).collect();
    for endpoint in snapshot.pod_endpoints() {
        let node = nodes.entry(endpoint.spec.node_name.as_str()).or_default();
        node.endpoints += 1;
        node.attached += usize::from(endpoint.spec.attachment.is_some());
    }
    for pod in snapshot.agents.values() {
        if let Some(node) = problems::node_of(pod) {
            nodes.entry(node).or_default().agent_ready = Some(problems::is_ready(pod));
        }
    }
    nodes.into_iter().map(|(name, node)| NodeStatus { name: name.to_owned(), ..node }).collect()
}

fn counts(snapshot: &Snapshot) -> Vec<KindCount> {
    fn count<'o>(what: What, all: impl Iterator<Item = Option<&'o [Condition]>>) -> KindCount {
        let mut count = KindCount { kind: what.as_str(), ready: 0, not_ready: 0 };
        for one in all {
            // A lease whose holder is there has no status: one less to write.
            let is_plain_lease = what == What::AllocationLease && one.is_none();
            if is_plain_lease || conditions::is_ready(one.unwrap_or_default()) {
                count.ready += 1;
            } else {
                count.not_ready += 1;
            }
        }
        count
    }
    macro_rules! of {
        ($what:ident, $map:ident) => {
            count(
                What::$what,
                snapshot.$map.values().map(|one| one.status.as_ref().map(|status| status.conditions.as_slice())),
            )
        };
    }
    let all = [
        (What::Vpc, of!(Vpc, vpcs)),
        (What::Subnet, of!(Subnet, subnets)),
        (What::RouteTable, of!(RouteTable, route_tables)),
        (What::NetworkInterface, of!(NetworkInterface, interfaces)),
        (What::NetworkEndpoint, of!(NetworkEndpoint, endpoints)),
        (What::ServiceNATAttachment, of!(ServiceNATAttachment, nat_attachments)),
        (What::VpcEndpoint, of!(VpcEndpoint, vpc_endpoints)),
        (What::AllocationPool, of!(AllocationPool, pools)),
        (What::AllocationClaim, of!(AllocationClaim, claims)),
        (What::AllocationLease, of!(AllocationLease, leases)),
    ];
    all.into_iter().filter(|(what, _)| snapshot.read.contains(what)).map(|(_, count)| count).collect()
}

fn pools(index: &Index<'_>) -> Vec<PoolStatus> {
    if !index.snapshot.knows_all(What::AllocationLease) {
        return Vec::new();
    }
    let all = index.snapshot.pools.iter().filter_map(|(name, pool)| {
        let values = Addresses::of(&pool.spec, index.leases_of(name))?;
        Some(PoolStatus { name: name.clone(), values })
    });
    let mut full: Vec<PoolStatus> = all.filter(|pool| pool.values.percent() >= NEARLY_FULL).collect();
    full.sort_by_key(|pool| core::cmp::Reverse(pool.values.percent()));
    full
}
