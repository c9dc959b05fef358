//! What helps, by the reason of a condition.

use crate::snapshot::What;
use juneau_api::kinds::reason;

/// What helps against a condition with this reason and message. `around` is the object next to look at, such as an
/// interface's Subnet.
pub(super) fn remedy(what: What, name: &str, reason: &str, message: &str, around: Option<&str>) -> String {
    let kind = what.as_str().to_lowercase();
    let look = |kind: &str| match around {
        Some(around) => format!("see what is in its way: kubectl juneau describe {kind} {around}"),
        None => "see what it waits for: kubectl juneau status".to_owned(),
    };
    match reason {
        reason::VPC_NOT_FOUND => {
            let vpc = around.map_or_else(|| "the Vpc".to_owned(), |vpc| format!("Vpc/{vpc}"));
            format!("create {vpc}, or delete this one: kubectl delete {kind} {name}")
        }
        reason::VPC_NOT_READY => look("vpc"),
        reason::MAIN_ROUTE_TABLE_MISSING => {
            "wait a moment; it is made by itself when no operator is held up: kubectl juneau status".to_owned()
        }
        reason::MAIN_ROUTE_TABLE_NOT_READY => format!("see what is in its way: kubectl juneau describe routetable {name}"),
        reason::TARGET_NOT_FOUND => {
            "start the Pod that the route leads to, or correct the target in spec.routes".to_owned()
        }
        reason::TARGET_AMBIGUOUS => "write the target as namespace/name in spec.routes".to_owned(),
        reason::TARGET_NOT_READY => "wait until the target has its address, or see why it has none".to_owned(),
        reason::TARGET_IN_ANOTHER_VPC => "name a target in the RouteTable's own Vpc".to_owned(),
        reason::DUPLICATE_DESTINATION => "remove one of the two from spec.routes".to_owned(),
        reason::INVALID_DESTINATION => "correct the destination in spec.routes".to_owned(),
        reason::AUTOMATIC_ROUTE_EXISTS => "remove it from spec.routes; the automatic one is in force".to_owned(),
        reason::NOT_IMPLEMENTED => "take out what asks for it; this version does not have it".to_owned(),
        reason::SUBNET_NOT_FOUND if what == What::ServiceNATAttachment => format!(
            "name a Subnet of the same Vpc in spec.service.provider.natSourceSubnet of Vpc {}",
            around.unwrap_or_default()
        ),
        reason::RANGE_CONFLICT => {
            "take the ranges that it names out of spec.endpointPool, or replace the Subnet that is in their way".to_owned()
        }
        reason::ENDPOINT_POOL_NOT_CONFIGURED => {
            format!("set spec.endpointPool.cidrs of Vpc {} to ranges that are free in it", around.unwrap_or_default())
        }
        reason::VPC_UNAVAILABLE => format!("create Vpc {}", around.unwrap_or_default()),
        reason::ADDRESS_PENDING => {
            "delete VpcEndpoints that are not needed, or add a range to spec.endpointPool.cidrs of the Vpc".to_owned()
        }
        reason::SERVICE_NOT_ACCEPTED => {
            "mend what the message names, or name another Service in spec.service".to_owned()
        }
        reason::SUBNET_NOT_FOUND => {
            "create the Subnet; or name another in the Pod's annotations and create the Pod anew".to_owned()
        }
        reason::INVALID_SUBNET_CIDR => "delete the Subnet and create it with a prefix that can be used".to_owned(),
        reason::INVALID_REQUESTED_IP => {
            "ask for an address of the Subnet behind its first three hosts, and create the Pod anew".to_owned()
        }
        reason::REQUESTED_IP_IN_USE => {
            "delete the Pod that has the address, or create this one anew with another address or none".to_owned()
        }
        reason::SUBNET_EXHAUSTED => {
            "delete Pods of this Subnet that are not needed, or put new ones into another Subnet".to_owned()
        }
        reason::NETWORK_NOT_READY => look("subnet"),
        reason::NAMESPACE_NOT_ALLOWED => {
            "give the Namespace the labels that spec.allowedNamespaces of the Vpc selects, widen that selector, or name a Subnet of another Vpc".to_owned()
        }
        reason::INVALID_POOL => "correct its spec".to_owned(),
        reason::IN_USE | reason::DELETING => {
            "delete those who use it if it shall go; it goes by itself after them".to_owned()
        }
        reason::NOT_READY if what == What::NetworkEndpoint => {
            "see whether the Node is there and has an InternalIP: kubectl get nodes -o wide".to_owned()
        }
        // Another release may say more of it behind this.
        _ if reason.starts_with(reason::RECONCILE_FAILED) => reconcile_failed(what, name, message),
        _ => "wait a moment; if it stays, see whether an operator writes (kubectl juneau status), and its log".to_owned(),
    }
}

/// What helps when waiting does not: the reason is one of many causes, and the message says which.
fn reconcile_failed(what: What, name: &str, message: &str) -> String {
    let kind = what.as_str().to_lowercase();
    // Numbers and addresses, of whatever kind they are for.
    if message.contains("AllocationPool/") || message.contains("AllocationClaim/") {
        return "see who has the values: kubectl get allocationleases; delete what is not needed, or mend the pool, then it goes on by itself".to_owned();
    }
    match what {
        What::Subnet if message.starts_with("RouteTable/") => {
            "name a RouteTable of the Subnet's own Vpc in spec.routeTable, or none".to_owned()
        }
        What::Subnet => format!(
            "change what it collides with; or delete it and create it anew, since its prefix cannot be changed: kubectl delete subnet {name}"
        ),
        _ => format!("correct what the message names; then it goes on by itself: kubectl edit {kind} {name}"),
    }
}

/// What helps against a route of a RouteTable that is rejected for this reason.
pub(super) fn of_route(table: &str, reason: &str, message: &str) -> String {
    if reason.starts_with(reason::RECONCILE_FAILED) {
        return format!("correct the route, or take it out of spec.routes: kubectl edit routetable {table}");
    }
    remedy(What::RouteTable, table, reason, message, None)
}

/// What helps when a node has not made an interface.
pub(super) fn agent(namespace: &str, node: &str) -> String {
    format!(
        "see whether the agent runs on {node}, and its log: kubectl -n {namespace} get pods -l app.kubernetes.io/name={} --field-selector spec.nodeName={node}",
        crate::snapshot::AGENT
    )
}

/// What helps when no operator does its work.
pub(super) fn operator(namespace: &str) -> String {
    format!(
        "see whether one runs, and its log: kubectl -n {namespace} get pods -l app.kubernetes.io/name=juneau-operator"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_done_is_not_waited_for() {
        for (what, reason, message, helps) in [
            (What::Subnet, "ReconcileFailed", "10.0.0.0/25 overlaps Subnet/red", "kubectl delete subnet x"),
            (What::Subnet, "ReconcileFailed", "RouteTable/blue is of Vpc/blue, not of Vpc/red", "spec.routeTable"),
            (What::Subnet, "ReconcileFailed", "AllocationPool/subnet-vni has nothing left", "get allocationleases"),
            (What::Vpc, "ReconcileFailed", "AllocationPool/vpc-id does not exist", "get allocationleases"),
            (What::RouteTable, "ReconcileFailed", "the value belongs to AllocationClaim/y", "get allocationleases"),
            (What::Vpc, "ReconcileFailed", "what another release says", "kubectl edit vpc x"),
            (What::Vpc, "ReconcileFailedByQuota", "no more", "kubectl edit vpc x"),
        ] {
            let remedy = remedy(what, "x", reason, message, None);
            assert!(remedy.contains(helps) && !remedy.contains("wait"), "{what} {message}: {remedy}");
        }
        let route = of_route("x", "ReconcileFailed", "routes of this type are made automatically; remove it");
        assert!(route.contains("spec.routes"), "{route}");
        assert_eq!(of_route("x", reason::DUPLICATE_DESTINATION, ""), "remove one of the two from spec.routes");
    }
}
