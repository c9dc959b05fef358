//! What the operator and the agents may do at the API server: all that they ask for, and nothing else.
//!
//! The watches and the writes of the operator are made from these tables, and a test compares them with the roles in
//! `deploy/`.

use crate::view::Kind;

/// Where a right holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Everywhere: a ClusterRole.
    Cluster,
    /// In the component's own namespace: a Role.
    Own,
    /// In `kube-system`: a Role.
    KubeSystem,
}

/// Verbs on one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// Where.
    pub scope: Scope,
    /// The group; empty for Kubernetes' first kinds.
    pub group: &'static str,
    /// The resource, with its part: `vpcs/status`.
    pub resource: &'static str,
    /// Only the object of this name; empty: all.
    pub name: &'static str,
    /// Verbs, sorted.
    pub verbs: &'static [&'static str],
}

const GROUP: &str = juneau_api::kinds::GROUP;
/// The name of the ValidatingWebhookConfiguration.
pub const WEBHOOK: &str = "juneau";

const fn cluster(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Right {
    Right { scope: Scope::Cluster, group, resource, name: "", verbs }
}

const READ: &[&str] = &["list", "watch"];

/// The kinds that the operator watches.
pub const WATCHED: [Kind; Kind::ALL.len()] = Kind::ALL;

/// The kinds that the operator writes, and how.
pub const WRITTEN: &[(Kind, &[&str])] = &[
    (Kind::Vpc, &["create", "metadata", "status"]),
    (Kind::Subnet, &["create", "metadata", "status"]),
    (Kind::RouteTable, &["create", "delete", "metadata", "status"]),
    (Kind::NetworkInterface, &["create", "delete", "metadata", "spec", "status"]),
    (Kind::NetworkEndpoint, &["create", "delete", "spec", "status"]),
    (Kind::AllocationPool, &["create", "delete", "spec", "status"]),
    (Kind::AllocationClaim, &["create", "delete", "status"]),
    (Kind::AllocationLease, &["create", "delete", "spec", "status"]),
];

/// What the operator asks for beside the kinds that it watches and writes.
pub const OPERATOR: &[Right] = &[
    // Events about what is wrong.
    cluster("events.k8s.io", "events", &["create"]),
    // The ranges of Services.
    cluster("networking.k8s.io", "servicecidrs", READ),
    // Whether the virtual machine is there that an address is kept for, and whether there can be one.
    cluster("kubevirt.io", "virtualmachines", READ),
    Right {
        scope: Scope::Cluster,
        group: "apiextensions.k8s.io",
        resource: "customresourcedefinitions",
        name: crate::run::machines::DEFINITION,
        verbs: READ,
    },
    // Whom API servers trust when they ask the webhook.
    Right {
        scope: Scope::Cluster,
        group: "admissionregistration.k8s.io",
        resource: "validatingwebhookconfigurations",
        name: WEBHOOK,
        verbs: &["get", "list", "patch", "watch"],
    },
    // The webhook's certificate. A creation cannot be bound to a name.
    Right { scope: Scope::Own, group: "", resource: "secrets", name: "", verbs: &["create"] },
    Right {
        scope: Scope::Own,
        group: "",
        resource: "secrets",
        name: crate::certificates::SECRET,
        verbs: &["get", "list", "update", "watch"],
    },
    // Who writes.
    Right { scope: Scope::Own, group: "coordination.k8s.io", resource: "leases", name: "", verbs: &["create"] },
    Right {
        scope: Scope::Own,
        group: "coordination.k8s.io",
        resource: "leases",
        name: crate::leader::LEASE,
        verbs: &["get", "update"],
    },
    // The ranges that kubeadm was told.
    Right { scope: Scope::KubeSystem, group: "", resource: "configmaps", name: "kubeadm-config", verbs: &["get"] },
];

/// What an agent asks for.
pub const AGENT: &[Right] = &[
    cluster("", "namespaces", READ),
    cluster("", "nodes", READ),
    cluster("", "pods", READ),
    cluster(GROUP, "vpcs", READ),
    cluster(GROUP, "subnets", READ),
    cluster(GROUP, "routetables", READ),
    cluster(GROUP, "networkinterfaces", READ),
    // A ValidatingAdmissionPolicy binds the writes to the agent's node and to `spec.attachment`.
    cluster(GROUP, "networkendpoints", &["list", "patch", "watch"]),
    cluster("events.k8s.io", "events", &["create"]),
];

/// The resource and the verb behind a way of writing.
#[must_use]
pub fn of_write(kind: Kind, way: &str) -> Option<(String, &'static str)> {
    let plain = kind.plural().to_owned();
    Some(match way {
        "create" => (plain, "create"),
        "metadata" | "spec" => (plain, "patch"),
        "status" => (plain + "/status", "update"),
        "delete" => (plain, "delete"),
        _ => return None,
    })
}

/// Whether the operator writes this kind in this way.
#[must_use]
pub fn is_written(kind: Kind, way: &str) -> bool {
    WRITTEN.iter().any(|(written, ways)| *written == kind && ways.contains(&way))
}
