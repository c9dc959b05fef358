//! What of an object may leave the cluster: what is listed here, and nothing else. A value that nobody thought of stays
//! where it is.

use serde_json::{Map, Value, json};

/// Annotations of other names may hold anything: what was applied last, tokens, notes.
const OWN: &str = "juneau.loutres.me/";

/// Copies these members, if they are there.
fn pick(from: &Value, members: &[&str]) -> Value {
    let found = members.iter().filter_map(|name| Some(((*name).to_owned(), from.get(*name)?.clone())));
    Value::Object(found.collect::<Map<_, _>>())
}

fn list(from: &Value, members: &[&str]) -> Value {
    let items = from.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| pick(item, members)).collect()
}

/// Names, times, labels, and the annotations that are ours.
fn metadata(object: &Value) -> Value {
    let from = &object["metadata"];
    let members = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "finalizers",
        "labels",
        "ownerReferences",
    ];
    let mut kept = pick(from, &members);
    let annotations = from["annotations"].as_object().into_iter().flatten();
    let annotations: Map<_, _> = annotations
        .filter(|(name, _)| name.starts_with(OWN))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if !annotations.is_empty() {
        kept["annotations"] = Value::Object(annotations);
    }
    kept
}

/// One of Juneau's own kinds: their specs and statuses have no place for a secret.
pub(super) fn own(object: &Value) -> Value {
    let mut kept = json!({"metadata": metadata(object)});
    for part in ["spec", "status"] {
        if let Some(value) = object.get(part) {
            kept[part] = value.clone();
        }
    }
    kept
}

/// A Node: where it is, and what it runs.
pub(super) fn node(object: &Value) -> Value {
    let mut status = pick(&object["status"], &["addresses", "nodeInfo", "capacity"]);
    status["conditions"] = list(&object["status"]["conditions"], &["type", "status", "reason", "lastTransitionTime"]);
    let mut spec = pick(&object["spec"], &["podCIDR", "podCIDRs", "unschedulable"]);
    spec["taints"] = list(&object["spec"]["taints"], &["key", "effect"]);
    json!({"metadata": metadata(object), "spec": spec, "status": status})
}

/// A Namespace: its labels and our annotations.
pub(super) fn namespace(object: &Value) -> Value {
    json!({"metadata": metadata(object), "status": pick(&object["status"], &["phase"])})
}

/// A Pod: where it is and how far, without what runs in it, its environment and its volumes.
pub(super) fn pod(object: &Value) -> Value {
    let status = &object["status"];
    let mut kept = pick(status, &["phase", "podIP", "podIPs", "hostIP", "startTime", "reason"]);
    kept["conditions"] = list(&status["conditions"], &["type", "status", "reason", "lastTransitionTime"]);
    for name in ["initContainerStatuses", "containerStatuses"] {
        let all = status[name].as_array().map(Vec::as_slice).unwrap_or_default();
        let all: Value = all.iter().map(container).collect();
        kept[name] = all;
    }
    let spec = pick(&object["spec"], &["nodeName", "hostNetwork", "priorityClassName", "restartPolicy"]);
    json!({"metadata": metadata(object), "spec": spec, "status": kept})
}

/// How a container fares, without what it said at its end.
fn container(status: &Value) -> Value {
    let mut kept = pick(status, &["name", "ready", "started", "restartCount", "image", "imageID"]);
    let facts = ["reason", "exitCode", "signal", "startedAt", "finishedAt"];
    for name in ["state", "lastState"] {
        let states = status[name].as_object().into_iter().flatten();
        let states: Map<_, _> = states.map(|(state, value)| (state.clone(), pick(value, &facts))).collect();
        kept[name] = Value::Object(states);
    }
    kept
}

/// An Event about one of our objects.
pub(super) fn event(object: &Value) -> Value {
    let members = [
        "type",
        "reason",
        "message",
        "count",
        "series",
        "eventTime",
        "firstTimestamp",
        "lastTimestamp",
        "reportingComponent",
        "reportingInstance",
    ];
    let mut kept = pick(object, &members);
    kept["involvedObject"] = pick(&object["involvedObject"], &["kind", "namespace", "name", "uid"]);
    kept["metadata"] = pick(&object["metadata"], &["namespace", "name"]);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "hunter2";

    /// An object in which every member that is not known holds a secret.
    fn planted() -> Value {
        let container = json!({"name": "c", "image": "i", "env": [{"name": "P", "value": SECRET}], "args": [SECRET]});
        let state = json!({"terminated": {"reason": "Error", "exitCode": 1, "message": SECRET}});
        json!({
            "metadata": {
                "name": "a", "namespace": "red", "labels": {"app": "a"},
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": SECRET, "token": SECRET,
                    "juneau.loutres.me/subnet": "red-a",
                },
                "managedFields": [{"manager": SECRET}],
            },
            "spec": {
                "nodeName": "node-1", "containers": [container], "initContainers": [SECRET], "volumes": [SECRET],
                "imagePullSecrets": [SECRET], "taints": [{"key": "k", "effect": "NoSchedule", "value": SECRET}],
                "configSource": SECRET, "providerID": SECRET,
            },
            "status": {
                "phase": "Running", "message": SECRET,
                "conditions": [{"type": "Ready", "status": "True", "message": SECRET}],
                "containerStatuses": [{"name": "c", "restartCount": 3, "state": state, "lastState": state}],
                "images": [SECRET],
            },
            "data": {"password": SECRET}, "stringData": {"password": SECRET},
            "type": "Warning", "reason": "Rejected", "involvedObject": {"kind": "Pod", "name": "a", "fieldPath": SECRET},
            "related": SECRET, "action": SECRET,
        })
    }

    #[test]
    fn what_is_not_listed_stays_where_it_is() {
        let object = planted();
        for kept in [node(&object), namespace(&object), pod(&object), event(&object)] {
            let text = kept.to_string();
            assert!(!text.contains(SECRET), "{kept:#}");
            assert!(text.contains("red"), "{kept:#}");
        }
        let kept = pod(&object);
        assert_eq!(kept["metadata"]["annotations"], json!({"juneau.loutres.me/subnet": "red-a"}));
        assert_eq!(kept["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 1);
        assert_eq!(kept["status"]["conditions"][0]["status"], "True");
        assert!(!own(&object)["metadata"].to_string().contains(SECRET));
        assert!(own(&object).get("data").is_none());
    }
}
