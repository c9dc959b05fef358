//! What the operator may do at the API server: all that it asks for, and nothing else.
//!
//! Its watches and writes are made from these tables, and a test compares them with the roles in `deploy/`. What agents
//! may do is in `juneau_agent::rights`.

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
    /// In `default`: a Role.
    Default,
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

/// The name of the ValidatingWebhookConfiguration, and of the MutatingWebhookConfiguration.
pub const WEBHOOK: &str = "juneau";

const fn cluster(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Right {
    Right { scope: Scope::Cluster, group, resource, name: "", verbs }
}

const READ: &[&str] = &["list", "watch"];

/// The kinds that the operator watches.
pub const WATCHED: [Kind; Kind::ALL.len()] = Kind::ALL;

/// The kinds of which the operator gets one by its name: those that another object names in a way that admission
/// refuses when they are missing.
pub const ASKED: [Kind; 4] = [Kind::Namespace, Kind::Vpc, Kind::Subnet, Kind::RouteTable];

/// The kinds that the operator writes, and how.
pub const WRITTEN: &[(Kind, &[&str])] = &[
    (Kind::Vpc, &["create", "metadata", "status"]),
    (Kind::Subnet, &["create", "metadata", "status"]),
    (Kind::RouteTable, &["create", "delete", "metadata", "status"]),
    (Kind::NetworkInterface, &["create", "delete", "metadata", "spec", "status"]),
    (Kind::NetworkEndpoint, &["create", "delete", "spec", "status"]),
    (Kind::ServiceNATAttachment, &["create", "delete", "status"]),
    (Kind::VpcEndpoint, &["status"]),
    (Kind::AllocationPool, &["create", "delete", "spec", "status"]),
    (Kind::AllocationClaim, &["create", "delete", "status"]),
    (Kind::AllocationLease, &["create", "delete", "spec", "status"]),
];

/// What the operator asks for beside the kinds that it watches and writes.
pub const OPERATOR: &[Right] = &[
    // Events about what is wrong.
    cluster("events.k8s.io", "events", &["create"]),
    // Who reads metrics.
    cluster("authentication.k8s.io", "tokenreviews", &["create"]),
    cluster("authorization.k8s.io", "subjectaccessreviews", &["create"]),
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
    Right {
        scope: Scope::Cluster,
        group: "admissionregistration.k8s.io",
        resource: "mutatingwebhookconfigurations",
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
    // The Service that every API server has an address of.
    Right { scope: Scope::Default, group: "", resource: "services", name: "kubernetes", verbs: &["get"] },
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
