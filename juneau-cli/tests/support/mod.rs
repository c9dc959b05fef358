//! A cluster in memory with the operator's plans carried out, and what a report sees of it.

#![allow(unreachable_pub, dead_code)]

use juneau_api::view::ObjectName;
use juneau_cli::snapshot::{LEASE, Snapshot, What};
use juneau_operator::certificates::Bundle;
use juneau_operator::plan::{Change, Config, Notice, plan};
use juneau_operator::sink::Objects;
use juneau_operator::view::{Kind, Object};
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod};
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

pub const API_VERSION: &str = "juneau.loutres.me/v1alpha1";
const START: i64 = 1_800_000_000;

pub struct World {
    objects: Objects,
    config: Config,
    pub now: Timestamp,
    /// Kubernetes' own objects whole, as an API server gives them.
    core: BTreeMap<(String, ObjectName), Value>,
    /// What the operator would send as Events, and when it would have begun.
    pub events: Vec<(Notice, Timestamp)>,
    pub webhook: Option<Value>,
    pub lease: Option<Value>,
}

impl World {
    /// Two nodes, an operator that writes and a webhook with a certificate.
    pub fn new() -> Self {
        let now = Timestamp::from_second(START).unwrap();
        let mut world = Self {
            objects: Objects::new(),
            config: Config { main_table_grace: Duration::ZERO, settle: Duration::ZERO, ..Config::default() },
            now,
            core: BTreeMap::new(),
            events: Vec::new(),
            webhook: None,
            lease: None,
        };
        for (node, address) in [("node-1", "192.0.2.1"), ("node-2", "192.0.2.2")] {
            world.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node},
                "status": {"addresses": [{"type": "InternalIP", "address": address}]}}));
        }
        world.certificate(0);
        world.renew();
        world
    }

    /// A webhook whose certificate was made so many days ago.
    pub fn certificate(&mut self, days: u64) {
        let made = UNIX_EPOCH + Duration::from_secs(START.cast_unsigned() - days * 86_400);
        let bundle = Bundle::make(&BTreeSet::from(["127.0.0.1".to_owned()]), made, None).unwrap();
        let bytes = k8s_openapi::ByteString(bundle.authorities.into_bytes());
        self.webhook = Some(json!({"metadata": {"name": "juneau"}, "webhooks": [{
            "name": "vpc.juneau.loutres.me", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:9443/x", "caBundle": serde_json::to_value(bytes).unwrap()}}]}));
    }

    /// The operator renews its Lease.
    pub fn renew(&mut self) {
        let renewed = format!("{:.6}", self.now);
        self.lease = Some(json!({"metadata": {"name": LEASE, "namespace": "juneau-system"},
            "spec": {"holderIdentity": "juneau-operator_1", "leaseDurationSeconds": 15, "renewTime": renewed}}));
    }

    pub fn manifests(&mut self, text: &str) {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            self.put(document);
        }
    }

    pub fn put(&mut self, document: Value) {
        let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == document["kind"]).unwrap();
        let mut object = Object::from_json(kind, document.clone()).unwrap();
        let metadata = object.metadata_mut();
        metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.now));
        metadata.generation.get_or_insert(1);
        let mut whole = document;
        whole["metadata"] = serde_json::to_value(&*metadata).unwrap();
        if whole["apiVersion"] == "v1" {
            self.core.insert((kind.as_str().to_owned(), object.name()), whole);
        } else if let Some(before) = self.objects.view().get(kind, &object.name()) {
            // What is there keeps its status, its uid and its finalizers.
            let mut stored = stored(&before);
            stored["spec"] = whole["spec"].clone();
            stored["metadata"]["generation"] = (before.metadata().generation.unwrap_or(1) + 1).into();
            object = Object::from_json(kind, stored).unwrap();
        }
        self.objects.put(object);
    }

    pub fn juneau(&mut self, kind: &str, name: &str, spec: Value) {
        self.put(json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}));
    }

    pub fn namespace(&mut self, name: &str) {
        self.put(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}));
    }

    pub fn pod(&mut self, namespace: &str, name: &str, annotations: Value) {
        self.put(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": namespace, "name": name, "annotations": annotations},
            "spec": {"nodeName": "node-1", "containers": []}, "status": {"phase": "Pending"}}));
    }

    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        let name = ObjectName::new(namespace, name);
        self.core.remove(&(kind.as_str().to_owned(), name.clone()));
        assert!(self.objects.remove(kind, &name));
    }

    /// A user deletes an object, which its finalizers may hold.
    pub fn delete(&mut self, kind: Kind, name: &str) {
        let object = self.objects.view().get(kind, &ObjectName::new("", name)).unwrap();
        let change = Change::Delete(juneau_operator::plan::Target::of(&object));
        self.objects.apply(&change, self.now).unwrap();
    }

    /// The operator plans until nothing is left to do.
    pub fn settle(&mut self) {
        for _ in 0..40 {
            let plan = plan(self.objects.view(), &self.config, self.now);
            for notice in plan.notices {
                if !self.events.iter().any(|(known, _)| *known == notice) {
                    self.events.push((notice, self.now));
                }
            }
            if plan.changes.is_empty() {
                return;
            }
            for change in &plan.changes {
                self.objects.apply(change, self.now).unwrap_or_else(|refusal| panic!("{change}: {refusal}"));
            }
        }
        panic!("it does not end");
    }

    /// The agents attach all that is there.
    pub fn attach(&mut self) {
        let all: Vec<_> = self.objects.view().network_endpoints.values().cloned().collect();
        for (place, endpoint) in all.iter().enumerate() {
            let mut endpoint = juneau_api::kinds::NetworkEndpoint::clone(endpoint);
            endpoint.spec.attachment = Some(juneau_api::kinds::Attachment {
                ifindex: u32::try_from(place).unwrap() + 7,
                host_mac_address: None,
                container_id: Some(format!("{place:08}")),
            });
            self.objects.put(endpoint.into());
        }
    }

    pub fn sleep(&mut self, seconds: i64) {
        self.now = Timestamp::from_second(self.now.as_second() + seconds).unwrap();
    }

    /// What an administrator sees.
    pub fn snapshot(&self) -> Snapshot {
        let view = self.objects.view();
        let mut snapshot = Snapshot {
            now: self.now,
            system_namespace: "juneau-system".to_owned(),
            namespaces: self
                .core("Namespace")
                .into_iter()
                .map(|(name, object)| (name.name, object))
                .collect::<BTreeMap<_, Namespace>>(),
            nodes: self
                .core("Node")
                .into_iter()
                .map(|(name, object)| (name.name, object))
                .collect::<BTreeMap<_, Node>>(),
            pods: self.core::<Pod>("Pod").into_iter().collect(),
            events: self.events.iter().map(|(notice, at)| event(notice, *at)).collect(),
            lease: self.lease.clone().map(|lease| serde_json::from_value(lease).unwrap()),
            webhook: self.webhook.clone().map(|webhook| serde_json::from_value(webhook).unwrap()),
            ..Snapshot::default()
        };
        macro_rules! copy {
            ($($to:ident $from:ident;)*) => {
                $(snapshot.$to = view.$from.iter().map(|(name, object)| (name.clone(), (**object).clone())).collect();)*
            };
        }
        copy! {
            vpcs vpcs;
            subnets subnets;
            route_tables route_tables;
            interfaces network_interfaces;
            endpoints network_endpoints;
            pools pools;
            claims claims;
            leases leases;
        }
        snapshot.read.extend(What::OWN);
        snapshot.read.extend([What::Namespace, What::Node, What::Pod, What::Event, What::Agent, What::Lease]);
        snapshot.read.insert(What::Webhook);
        snapshot
    }

    fn core<T: DeserializeOwned>(&self, kind: &str) -> Vec<(ObjectName, T)> {
        let all = self.core.iter().filter(|((of, _), _)| of == kind);
        all.map(|((_, name), object)| (name.clone(), serde_json::from_value(object.clone()).unwrap())).collect()
    }
}

fn stored(object: &Object) -> Value {
    match object {
        Object::Vpc(object) => serde_json::to_value(&**object),
        Object::Subnet(object) => serde_json::to_value(&**object),
        Object::RouteTable(object) => serde_json::to_value(&**object),
        other => panic!("{} is not put twice in these tests", other.kind()),
    }
    .unwrap()
}

/// An Event the way the first API shows what was written by the newer one.
fn event(notice: &Notice, at: Timestamp) -> Event {
    let new = juneau_operator::events::event(notice, at, "test");
    serde_json::from_value(json!({
        "metadata": new["metadata"], "eventTime": new["eventTime"], "type": new["type"], "reason": new["reason"],
        "message": new["note"], "involvedObject": new["regarding"],
    }))
    .unwrap()
}

/// Compares with a file in `tests/snapshots`; with UPDATE_SNAPSHOTS set it is written instead.
pub fn compare(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == text,
        "{name} differs; run with UPDATE_SNAPSHOTS=1 and look at the difference. It is now:\n{text}"
    );
}
