//! Rules of the plan, each on a cluster in memory.

mod allocation;
mod clocks;
mod deletion;
mod memory;
mod names;
mod nat;
mod nodes;
mod pods;
mod random;
mod routes;
mod scale;
mod services;
mod unreadable;
mod vpc_endpoints;

use super::{Change, Config, Memory, Notice, Plan, plan};
use crate::sink::{Objects, Refusal};
use crate::view::{Kind, Object, View};
use core::time::Duration;
use juneau_api::kinds;
use juneau_api::view::ObjectName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A cluster in memory, and what an operator does with it.
#[derive(Clone)]
struct Cluster {
    objects: Objects,
    config: Config,
    now: Timestamp,
    /// Writes of the operator's that succeeded, by verb and object.
    writes: Vec<String>,
    memory: Memory,
}

const JUNEAU: &str = kinds::API_VERSION;

impl Cluster {
    fn new() -> Self {
        let config = Config { main_table_grace: Duration::ZERO, settle: Duration::ZERO, ..Config::default() };
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let mut cluster = Self { objects: Objects::new(), config, now, writes: Vec::new(), memory: Memory::default() };
        for (node, address) in [("n1", "192.0.2.1"), ("n2", "192.0.2.2")] {
            cluster.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node},
                "status": {"addresses": [{"type": "InternalIP", "address": address}]}}));
        }
        cluster
    }

    /// A cluster with a Vpc, a Subnet of it and a Namespace, all of this name.
    fn with(name: &str, cidr: &str) -> Self {
        let mut cluster = Self::new();
        cluster.tenant(name, cidr);
        cluster.settle();
        cluster
    }

    fn tenant(&mut self, name: &str, cidr: &str) {
        self.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        self.put(json!({"apiVersion": JUNEAU, "kind": "Vpc", "metadata": {"name": name}, "spec": {}}));
        self.subnet(name, name, cidr);
    }

    fn subnet(&mut self, name: &str, vpc: &str, cidr: &str) {
        let spec = json!({"vpc": vpc, "cidr": cidr});
        self.put(json!({"apiVersion": JUNEAU, "kind": "Subnet", "metadata": {"name": name}, "spec": spec}));
    }

    /// A Pod on node n1, in the Subnet that is named like its Namespace.
    fn pod(&mut self, namespace: &str, name: &str) {
        self.pod_with(namespace, name, json!({"juneau.loutres.me/subnet": namespace}));
    }

    fn pod_with(&mut self, namespace: &str, name: &str, annotations: Value) {
        self.pod_of(namespace, name, &format!("uid-{namespace}-{name}"), annotations, json!([]));
    }

    fn pod_of(&mut self, namespace: &str, name: &str, uid: &str, annotations: Value, owners: Value) {
        self.put(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": namespace, "name": name, "uid": uid, "annotations": annotations, "ownerReferences": owners},
            "spec": {"nodeName": "n1", "containers": []}}));
    }

    /// Somebody writes an object: what is there keeps its uid, its metadata and its status.
    fn put(&mut self, document: Value) {
        let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == document["kind"]).unwrap();
        let mut object = Object::from_json(kind, document.clone()).unwrap();
        if object.metadata().uid.is_none() {
            object.metadata_mut().generation.get_or_insert(1);
            if let Some(before) = self.objects.view().get(kind, &object.name()) {
                let mut merged = serde_json::to_value(&document).unwrap();
                let said = std::mem::replace(&mut merged["metadata"], serde_json::to_value(before.metadata()).unwrap());
                for (field, value) in said.as_object().unwrap() {
                    merged["metadata"][field] = value.clone();
                }
                if let Some(status) = status(&before) {
                    merged["status"] = status;
                }
                object = Object::from_json(kind, merged).unwrap();
            }
        }
        self.objects.put(object);
    }

    /// A user deletes an object.
    fn delete(&mut self, kind: Kind, name: &str) {
        let name = key(name);
        let object = self.objects.view().get(kind, &name).unwrap_or_else(|| panic!("{kind}/{name} is not there"));
        let change = Change::Delete(super::Target::of(&object));
        self.objects.apply(&change, self.now).unwrap();
    }

    /// A user takes an object away with all that guards it.
    fn remove(&mut self, kind: Kind, name: &str) {
        assert!(self.objects.remove(kind, &key(name)), "{kind}/{name} is not there");
    }

    /// Plans once and makes all changes.
    fn step(&mut self) -> usize {
        let plan = planned(&mut self.memory, self.objects.view(), &self.config, self.now);
        for change in &plan.changes {
            self.apply(change).unwrap_or_else(|refusal| panic!("{change}: {refusal}"));
        }
        plan.changes.len()
    }

    fn apply(&mut self, change: &Change) -> Result<(), Refusal> {
        self.objects.apply(change, self.now)?;
        self.writes.push(change.to_string());
        Ok(())
    }

    /// Plans until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..40 {
            if self.step() == 0 {
                return;
            }
        }
        let plan = plan(self.objects.view(), &self.config, self.now);
        panic!("it does not end: {:?}", plan.changes.iter().map(ToString::to_string).collect::<Vec<_>>());
    }

    fn sleep(&mut self, seconds: i64) {
        self.now = Timestamp::from_second(self.now.as_second() + seconds).unwrap();
    }

    fn notices(&self) -> Vec<Notice> {
        plan(self.objects.view(), &self.config, self.now).notices
    }

    fn get(&self, kind: Kind, name: &str) -> Object {
        self.objects.view().get(kind, &key(name)).unwrap_or_else(|| panic!("{kind}/{name} is not there"))
    }

    fn exists(&self, kind: Kind, name: &str) -> bool {
        self.objects.view().get(kind, &key(name)).is_some()
    }

    fn vpc(&self, name: &str) -> Arc<kinds::Vpc> {
        Arc::clone(&self.objects.view().vpcs[name])
    }

    fn subnet_of(&self, name: &str) -> Arc<kinds::Subnet> {
        Arc::clone(&self.objects.view().subnets[name])
    }

    fn nic(&self, name: &str) -> Arc<kinds::NetworkInterface> {
        Arc::clone(&self.objects.view().network_interfaces[&key(name)])
    }

    /// The address of an interface, without its length; empty if it has none.
    fn address(&self, name: &str) -> String {
        let nic = self.nic(name);
        let address = nic.status.as_ref().and_then(|status| status.address.clone()).unwrap_or_default();
        address.split('/').next().unwrap_or_default().to_owned()
    }

    /// Status, reason and message of an object's condition Ready.
    fn ready(&self, kind: Kind, name: &str) -> (bool, String, String) {
        let status = status(&self.get(kind, name)).unwrap_or_default();
        let conditions: Vec<Condition> = serde_json::from_value(status["conditions"].clone()).unwrap_or_default();
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
        ready.map(|ready| (ready.status == "True", ready.reason, ready.message)).unwrap_or_default()
    }

    /// Leases by value, with the claim that each names.
    fn leases(&self, pool: &str) -> BTreeMap<String, String> {
        let leases = self.objects.view().leases.values().filter(|lease| lease.spec.pool_ref.name == pool);
        leases
            .map(|lease| {
                let value = &lease.spec.value;
                let text = value.ip.clone().unwrap_or_else(|| value.number.unwrap().to_string());
                (text, lease.spec.claim_ref.name.clone())
            })
            .collect()
    }

    /// No number and no address has two holders.
    fn assert_unique(&self) {
        let view = self.objects.view();
        let mut seen = BTreeMap::new();
        for claim in view.claims.values() {
            if let Some(value) = claim.status.as_ref().and_then(|status| status.value.clone()) {
                let place = (claim.spec.pool_refs[0].name.clone(), value);
                let name = claim.metadata.name.clone();
                if let Some(other) = seen.insert(place.clone(), name.clone()) {
                    panic!("{place:?} belongs to {other:?} and {name:?}");
                }
            }
        }
        for lease in view.leases.values() {
            // What a value is written as is in the name of its lock.
            let kind = view.pools.get(&lease.spec.pool_ref.name).map(|pool| pool.spec.kind);
            assert!(
                kind.is_none_or(|kind| (kind == kinds::PoolType::Ip) == lease.spec.value.ip.is_some()),
                "{lease:?}"
            );
        }
        let mut addresses = BTreeMap::new();
        for (key, endpoint) in view.network_endpoints.iter() {
            let place = (endpoint.spec.subnet.clone(), endpoint.spec.address.clone());
            if let Some(other) = addresses.insert(place.clone(), key) {
                panic!("{place:?} belongs to {other} and {key}");
            }
        }
        let mut numbers = BTreeMap::new();
        let vpcs = view.vpcs.iter().map(|(name, vpc)| ("vpc", name, vpc.status.as_ref().and_then(|s| s.vpc_id)));
        let subnets =
            view.subnets.iter().map(|(name, subnet)| ("vni", name, subnet.status.as_ref().and_then(|s| s.vni)));
        let tables = view
            .route_tables
            .iter()
            .map(|(name, table)| ("table", name, table.status.as_ref().and_then(|s| s.table_id)));
        for (what, name, number) in vpcs.chain(subnets).chain(tables) {
            if let Some(number) = number
                && let Some(other) = numbers.insert((what, number), name)
            {
                panic!("{what} {number} belongs to {other} and {name}");
            }
        }
    }
}

/// A plan, which is the same with what the plans before remember and without.
fn planned(memory: &mut Memory, view: &View, config: &Config, now: Timestamp) -> Plan {
    let anew = plan(view, config, now);
    let shown = |plan: &Plan| plan.changes.iter().map(ToString::to_string).collect::<Vec<_>>();
    let with = memory.plan(view, config, now);
    assert_eq!(shown(&with), shown(&anew), "with memory, and without");
    assert!(with == anew, "{with:?}\nwithout memory: {anew:?}");
    anew
}

fn key(text: &str) -> ObjectName {
    match text.split_once('/') {
        Some((namespace, name)) => ObjectName::new(namespace, name),
        None => ObjectName::new("", text),
    }
}

fn status(object: &Object) -> Option<Value> {
    let value = match object {
        Object::Vpc(object) => serde_json::to_value(&object.status),
        Object::Subnet(object) => serde_json::to_value(&object.status),
        Object::RouteTable(object) => serde_json::to_value(&object.status),
        Object::NetworkInterface(object) => serde_json::to_value(&object.status),
        Object::NetworkEndpoint(object) => serde_json::to_value(&object.status),
        Object::ServiceNATAttachment(object) => serde_json::to_value(&object.status),
        Object::VpcEndpoint(object) => serde_json::to_value(&object.status),
        Object::AllocationPool(object) => serde_json::to_value(&object.status),
        Object::AllocationClaim(object) => serde_json::to_value(&object.status),
        Object::AllocationLease(object) => serde_json::to_value(&object.status),
        _ => return None,
    };
    Some(value.unwrap()).filter(|status| !status.is_null())
}

#[test]
fn an_empty_cluster_gets_the_default_network_and_the_pools() {
    let mut cluster = Cluster::new();
    cluster.settle();
    let vpc = cluster.vpc("default");
    assert_eq!(vpc.status.as_ref().unwrap().vpc_id, Some(1));
    assert!(vpc.spec.service.as_ref().unwrap().consume);
    let subnet = cluster.subnet_of("default");
    assert_eq!(subnet.spec.cidr, "10.16.0.0/16");
    let status = subnet.status.as_ref().unwrap();
    assert_eq!((status.vni, status.gateway.as_deref()), (Some(2), Some("10.16.0.1")));
    assert_eq!((status.dns.as_deref(), status.mtu), (Some("10.16.0.2"), Some(1450)));
    assert_ne!(status.gateway_mac, status.dns_mac);
    for (kind, name) in [(Kind::Vpc, "default"), (Kind::Subnet, "default"), (Kind::RouteTable, "default")] {
        assert_eq!(cluster.ready(kind, name), (true, "ReconcileSucceeded".to_owned(), String::new()), "{kind}");
    }
    for pool in ["subnet-vni", "vpc-id", "route-table-id", "subnet-ip-default"] {
        assert!(cluster.ready(Kind::AllocationPool, pool).0, "{pool}");
    }
    assert_eq!(cluster.notices(), []);
}

#[test]
fn the_default_subnet_is_made_when_its_vpc_is_seen_and_nothing_is_complained_about() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.notices(), []);
    assert!(cluster.step() > 0);
    assert!(cluster.exists(Kind::Vpc, "default") && !cluster.exists(Kind::Subnet, "default"));
    assert_eq!(cluster.notices(), []);
    assert!(cluster.step() > 0);
    assert!(cluster.exists(Kind::Subnet, "default"));
    assert_eq!(cluster.notices(), []);
}

#[test]
fn what_users_made_of_the_default_network_stays() {
    let mut cluster = Cluster::new();
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "Vpc", "metadata": {"name": "default"}, "spec": {}}));
    cluster.subnet("default", "default", "10.99.0.0/20");
    cluster.settle();
    assert_eq!(cluster.vpc("default").spec.service, None);
    assert_eq!(cluster.subnet_of("default").spec.cidr, "10.99.0.0/20");
}

#[test]
fn a_main_table_is_made_a_moment_later_or_taken_as_it_is() {
    let mut cluster = Cluster::new();
    cluster.config.main_table_grace = Duration::from_secs(1);
    let created = cluster.now.to_string();
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "Vpc", "metadata": {"name": "red", "creationTimestamp": created}, "spec": {}}));
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "Vpc", "metadata": {"name": "blue", "creationTimestamp": created}, "spec": {}}));
    cluster.settle();
    assert_eq!(cluster.ready(Kind::Vpc, "red").1, "MainRouteTableMissing");
    let wake = plan(cluster.objects.view(), &cluster.config, cluster.now).wake;
    assert_eq!(wake, Some(Timestamp::from_second(cluster.now.as_second() + 1).unwrap()));
    let routes = json!([{"dst": "0.0.0.0/0", "via": {"type": "endpoint", "endpointName": "a.eth0"}}]);
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "RouteTable", "metadata": {"name": "red"}, "spec": {"vpc": "red", "routes": routes}}));
    cluster.sleep(1);
    cluster.settle();
    let red = &cluster.objects.view().route_tables["red"];
    assert_eq!(red.spec.routes.len(), 1, "the user's routes stay");
    for table in ["red", "blue"] {
        let owners = cluster.get(Kind::RouteTable, table).metadata().owner_references.clone().unwrap();
        assert_eq!((owners.len(), owners[0].name.as_str()), (1, table));
        assert!(cluster.ready(Kind::Vpc, table).0);
    }
}

#[test]
fn subnets_that_cannot_be_cost_nobody_else_anything() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    let before = cluster.subnet_of("red");
    for (name, vpc, cidr, reason, message) in [
        ("inside", "red", "10.0.0.128/25", "ReconcileFailed", "10.0.0.128/25 overlaps Subnet/red"),
        ("around", "red", "10.0.0.0/16", "ReconcileFailed", "10.0.0.0/16 overlaps Subnet/red"),
        ("hosts", "red", "10.0.0.5/24", "ReconcileFailed", "10.0.0.0/24 overlaps Subnet/red"),
        ("empty", "red", "", "ReconcileFailed", "spec.cidr \"\" is not an IPv4 prefix"),
        ("six", "red", "fd00::/64", "ReconcileFailed", "spec.cidr \"fd00::/64\" is not an IPv4 prefix"),
        (
            "zero",
            "red",
            "010.0.1.0/24",
            "ReconcileFailed",
            "spec.cidr 010.0.1.0/24 is not in its plain form; write 10.0.1.0/24",
        ),
        ("small", "red", "10.9.0.0/29", "ReconcileFailed", "spec.cidr 10.9.0.0/29 is not of /16 to /28"),
        ("large", "red", "10.0.0.0/8", "ReconcileFailed", "spec.cidr 10.0.0.0/8 is not of /16 to /28"),
        ("lost", "green", "10.9.0.0/24", "VpcNotFound", "Vpc/green does not exist"),
        (
            "second",
            "default",
            "10.9.0.0/24",
            "ReconcileFailed",
            "only Subnet/default is in Vpc/default, and in no other",
        ),
    ] {
        cluster.subnet(name, vpc, cidr);
        cluster.settle();
        assert_eq!(cluster.ready(Kind::Subnet, name), (false, reason.to_owned(), message.to_owned()));
        assert!(!cluster.exists(Kind::AllocationPool, &format!("subnet-ip-{name}")));
        assert_eq!(cluster.notices().len(), 1, "{name}");
        assert_eq!(cluster.subnet_of("red"), before);
        cluster.delete(Kind::Subnet, name);
        cluster.settle();
    }
    // The same prefix in another Vpc is nobody's business.
    cluster.tenant("blue", "10.0.0.0/24");
    cluster.settle();
    assert!(cluster.ready(Kind::Subnet, "blue").0);
    cluster.assert_unique();
}

#[test]
fn a_subnet_that_was_refused_comes_into_force_when_the_other_goes() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    cluster.subnet("a-second", "red", "10.0.0.0/25");
    cluster.settle();
    assert!(!cluster.ready(Kind::Subnet, "a-second").0);
    cluster.delete(Kind::Subnet, "red");
    cluster.settle();
    assert!(cluster.ready(Kind::Subnet, "a-second").0);
}

#[test]
fn a_subnet_keeps_clear_of_services_where_its_vpc_has_them() {
    let mut cluster = Cluster::new();
    cluster.config.service_cidrs = vec!["10.96.0.0/12".parse().unwrap()];
    let spec = json!({"service": {"consume": true}, "endpointPool": {"cidrs": ["10.50.0.0/24"]}});
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "Vpc", "metadata": {"name": "red"}, "spec": spec}));
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "Vpc", "metadata": {"name": "blue"}, "spec": {}}));
    cluster.subnet("red-services", "red", "10.100.0.0/24");
    cluster.subnet("red-endpoints", "red", "10.50.0.0/16");
    cluster.subnet("blue", "blue", "10.100.0.0/24");
    cluster.settle();
    assert_eq!(cluster.ready(Kind::Subnet, "red-services").2, "10.100.0.0/24 overlaps the Services' 10.96.0.0/12");
    assert_eq!(
        cluster.ready(Kind::Subnet, "red-endpoints").2,
        "10.50.0.0/16 overlaps spec.endpointPool's 10.50.0.0/24"
    );
    assert!(cluster.ready(Kind::Subnet, "blue").0);
}

#[test]
fn a_pool_that_a_hand_changed_is_put_right() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    let spec = json!({"type": "number", "number": {"min": 7, "max": 3}});
    for pool in ["subnet-vni", "subnet-ip-red"] {
        cluster.put(json!({"apiVersion": JUNEAU, "kind": "AllocationPool", "metadata": {"name": pool}, "spec": spec}));
    }
    cluster.settle();
    assert_eq!(cluster.objects.view().pools["subnet-vni"].spec.number.unwrap().max, 0xff_ffff);
    assert_eq!(cluster.objects.view().pools["subnet-ip-red"].spec.ip.as_ref().unwrap().cidrs, ["10.0.0.0/24"]);
    cluster.put(json!({"apiVersion": JUNEAU, "kind": "AllocationPool", "metadata": {"name": "mine"}, "spec": spec}));
    cluster.settle();
    assert_eq!(cluster.ready(Kind::AllocationPool, "mine").1, "InvalidPool");
}

#[test]
fn mac_addresses_stay_and_nonsense_is_replaced() {
    let mut cluster = Cluster::with("red", "10.0.0.0/24");
    let mut subnet = kinds::Subnet::clone(&cluster.subnet_of("red"));
    let derived = subnet.status.as_ref().unwrap().gateway_mac.clone();
    subnet.status.as_mut().unwrap().gateway_mac = Some("02:00:00:00:00:07".to_owned());
    subnet.status.as_mut().unwrap().dns_mac = Some("nonsense".to_owned());
    cluster.objects.put(subnet.into());
    cluster.settle();
    let status = cluster.subnet_of("red").status.clone().unwrap();
    assert_eq!(status.gateway_mac.as_deref(), Some("02:00:00:00:00:07"));
    assert_ne!(status.gateway_mac, derived);
    assert_ne!(status.dns_mac.as_deref(), Some("nonsense"));
}
