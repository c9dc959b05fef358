//! Manifests written for the Go implementation, and objects of earlier releases, are taken as they are.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/contains.rs"]
mod contains;

use contains::assert_contains;
use juneau_api::crd::validate;
use juneau_api::kinds;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::PathBuf;

fn documents() -> Vec<(String, Value)> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/compat");
    let mut documents = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let read: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        documents.extend(read.into_iter().map(|document| (name.clone(), document)));
    }
    documents
}

/// Through the type and back.
fn round_trip<T: Serialize + DeserializeOwned>(value: &Value) -> Value {
    let object: T = serde_json::from_value(value.clone()).unwrap();
    serde_json::to_value(object).unwrap()
}

#[test]
fn manifests_are_accepted_and_nothing_of_them_is_lost() {
    let mut kinds_seen = std::collections::BTreeSet::new();
    for (file, document) in documents() {
        let kind = document["kind"].as_str().unwrap().to_owned();
        let of = format!("{file}: {kind}/{}", document["metadata"]["name"]);
        validate(&document, None).unwrap_or_else(|error| panic!("{of}: {error}"));
        let read = match kind.as_str() {
            "Vpc" => round_trip::<kinds::Vpc>(&document),
            "Subnet" => round_trip::<kinds::Subnet>(&document),
            "RouteTable" => round_trip::<kinds::RouteTable>(&document),
            "NetworkInterface" => round_trip::<kinds::NetworkInterface>(&document),
            "NetworkEndpoint" => round_trip::<kinds::NetworkEndpoint>(&document),
            "ServiceNATAttachment" => round_trip::<kinds::ServiceNATAttachment>(&document),
            "VpcEndpoint" => round_trip::<kinds::VpcEndpoint>(&document),
            "AllocationPool" => round_trip::<kinds::AllocationPool>(&document),
            "AllocationClaim" => round_trip::<kinds::AllocationClaim>(&document),
            "AllocationLease" => round_trip::<kinds::AllocationLease>(&document),
            _ => panic!("{of} is of no known kind"),
        };
        assert_contains(&read, &document, &of);
        // Applied again it changes nothing that may not change.
        validate(&document, Some(&document)).unwrap_or_else(|error| panic!("{of}, again: {error}"));
        kinds_seen.insert(kind);
    }
    assert_eq!(kinds_seen.len(), 10, "{kinds_seen:?}");
}

#[test]
fn values_of_a_later_release_cost_no_object() {
    let condition = json!({"type": "Later", "status": "True", "reason": "Later", "message": "",
                           "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let metadata = json!({"name": "a"});
    let interface: kinds::NetworkInterface = serde_json::from_value(json!({
        "apiVersion": kinds::API_VERSION, "kind": "NetworkInterface", "metadata": metadata,
        "spec": {"podRef": {"uid": "u", "name": "p", "interface": "eth0"}, "nodeName": "n", "later": 1},
        "status": {"phase": "Migrating", "conditions": [condition], "later": {}},
    }))
    .unwrap();
    assert_eq!(interface.status.unwrap().phase, Some(kinds::InterfacePhase::Unknown));
    let endpoint: kinds::NetworkEndpoint = serde_json::from_value(json!({
        "apiVersion": kinds::API_VERSION, "kind": "NetworkEndpoint", "metadata": metadata,
        "spec": {"kind": "Later", "nodeName": "n"},
    }))
    .unwrap();
    assert_eq!(endpoint.spec.kind, kinds::EndpointKind::Unknown);
    let pool: kinds::AllocationPool = serde_json::from_value(json!({
        "apiVersion": kinds::API_VERSION, "kind": "AllocationPool", "metadata": metadata,
        "spec": {"type": "mac", "strategy": "random"},
    }))
    .unwrap();
    assert_eq!((pool.spec.kind, pool.spec.strategy), (kinds::PoolType::Unknown, kinds::PoolStrategy::Unknown));
    let claim: kinds::AllocationClaimStatus = serde_json::from_value(json!({"phase": "Later"})).unwrap();
    assert_eq!(claim.phase, Some(kinds::ClaimPhase::Unknown));
    let lease: kinds::AllocationLeaseStatus = serde_json::from_value(json!({"phase": "Later"})).unwrap();
    assert_eq!(lease.phase, Some(kinds::LeasePhase::Unknown));
}

/// What later releases added is optional, so what an earlier one stored is read and still valid.
#[test]
fn objects_of_an_earlier_release_are_read() {
    for object in [
        json!({"apiVersion": kinds::API_VERSION, "kind": "Vpc", "metadata": {"name": "a"}, "spec": {}, "status": {}}),
        json!({"apiVersion": kinds::API_VERSION, "kind": "Subnet", "metadata": {"name": "a"},
               "spec": {"vpc": "a", "cidr": "10.0.0.0/24"}, "status": {"vni": 2}}),
        json!({"apiVersion": kinds::API_VERSION, "kind": "RouteTable", "metadata": {"name": "a"},
               "spec": {"vpc": "a"}, "status": {"tableID": 1, "routes": [{"dst": "10.0.0.0/24", "via": {"type": "connected"}}]}}),
    ] {
        validate(&object, None).unwrap();
        match object["kind"].as_str().unwrap() {
            "Vpc" => drop(serde_json::from_value::<kinds::Vpc>(object).unwrap()),
            "Subnet" => drop(serde_json::from_value::<kinds::Subnet>(object).unwrap()),
            _ => drop(serde_json::from_value::<kinds::RouteTable>(object).unwrap()),
        }
    }
}
