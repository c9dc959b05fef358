//! Who follows one view after another has the model that whoever sees only the last one has.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Files, example};
use juneau_api::normalise::{Normaliser, normalise};
use juneau_api::source::decode::documents;
use juneau_api::source::directory::{Change, Directory};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// One step in the life of the documents.
#[derive(Debug, Clone)]
enum Edit {
    Remove(usize),
    Restore(usize),
    /// Into what another document has at the same place.
    Copy(usize, &'static str, usize),
    Set(usize, &'static str, Value),
    /// The same object in a second file, as another document has it.
    Double(usize, usize),
    Single(usize),
}

/// Fields that matter, of any kind.
const PLACES: [&str; 33] = [
    "/metadata/labels",
    "/metadata/annotations",
    "/spec/allowedNamespaces",
    "/spec/service",
    "/spec/clusterIP",
    "/spec/externalIPs",
    "/spec/ports",
    "/spec/internalTrafficPolicy",
    "/endpoints",
    "/metadata/creationTimestamp",
    "/metadata/uid",
    "/spec/nodeName",
    "/spec/hostNetwork",
    "/spec/vpc",
    "/spec/cidr",
    "/spec/routeTable",
    "/spec/networkACL",
    "/spec/subnet",
    "/spec/l2Network",
    "/spec/address",
    "/spec/macAddress",
    "/spec/kind",
    "/spec/podRef/name",
    "/spec/podRef/uid",
    "/spec/securityGroups",
    "/status/vpcID",
    "/status/mainRouteTable",
    "/status/vni",
    "/status/gateway",
    "/status/tableID",
    "/status/routes",
    "/status/address",
    "/status/addresses",
];

fn values() -> Vec<Value> {
    let routes = |name: &str| {
        json!([
            {"dst": "10.0.1.0/24", "via": {"type": "connected"}, "subnet": "red-a"},
            {"dst": "172.16.0.0/12", "via": {"type": "endpoint", "endpointName": name}},
        ])
    };
    vec![
        json!("2026-01-01T00:00:00Z"),
        json!("2026-01-02T00:00:00Z"),
        json!("red"),
        json!("blue"),
        json!("red-a"),
        json!("blue-b"),
        json!("nobody"),
        json!("node-1"),
        json!("node-2"),
        json!("10.0.1.10/24"),
        json!("10.0.2.20/24"),
        json!("10.0.1.77/24"),
        json!("10.0.1.0/24"),
        json!("10.0.3.0/24"),
        json!("02:00:0a:00:01:0a"),
        json!("ServiceNAT"),
        json!("a1"),
        json!(2),
        json!(3),
        json!(20),
        json!(201),
        json!(true),
        json!(["web"]),
        json!({"tenant": "red"}),
        json!({"juneau.loutres.me/vpc": "red"}),
        json!({"juneau.loutres.me/vpc": "blue"}),
        json!({"kubernetes.io/service-name": "web"}),
        json!({"kubernetes.io/service-name": "db"}),
        json!({"topology.kubernetes.io/zone": "z1"}),
        json!({"consume": true}),
        json!("10.96.0.10"),
        json!("Local"),
        json!(["10.96.0.10"]),
        json!([{"port": 80}]),
        json!([{"addresses": ["10.0.1.10"], "nodeName": "node-1"}, {"addresses": ["10.0.9.9"]}]),
        json!([{"addresses": ["10.0.2.20"], "hints": {"forZones": [{"name": "z1"}]}}, {"addresses": ["192.168.77.12"]}]),
        json!({"matchLabels": {"tenant": "red"}}),
        json!([{"type": "InternalIP", "address": "192.168.77.12"}]),
        routes("a1.eth0"),
        routes("b2.eth0"),
        routes("red/b1.eth0"),
        routes("blue/a1.eth0"),
        routes("nobody.eth0"),
        Value::Null,
    ]
}

fn edits() -> impl Strategy<Value = Vec<Vec<Edit>>> {
    let original = World::new().original;
    let index = 0..original.len();
    // Mostly fields that an object has.
    let fields: Vec<(usize, &str)> = original
        .iter()
        .enumerate()
        .flat_map(|(index, document)| {
            PLACES.into_iter().filter(|place| document.pointer(place).is_some()).map(move |place| (index, place))
        })
        .collect();
    let of_kind = |kind: &str| -> Vec<usize> {
        original.iter().enumerate().filter(|(_, document)| document["kind"] == kind).map(|(index, _)| index).collect()
    };
    let (nodes, vpcs) = (of_kind("Node"), of_kind("Vpc"));
    let edit = prop_oneof![
        2 => index.clone().prop_map(Edit::Remove),
        4 => index.clone().prop_map(Edit::Restore),
        6 => (prop::sample::select(fields.clone()), index.clone())
            .prop_map(|((document, place), other)| Edit::Copy(document, place, other)),
        6 => (prop::sample::select(fields), prop::sample::select(values()))
            .prop_map(|((document, place), value)| Edit::Set(document, place, value)),
        2 => (index.clone(), prop::sample::select(PLACES.to_vec()), prop::sample::select(values()))
            .prop_map(|(document, place, value)| Edit::Set(document, place, value)),
        1 => (prop::sample::select(nodes.clone()), prop::sample::select(nodes))
            .prop_map(|(document, other)| Edit::Copy(document, "/status/addresses", other)),
        1 => (prop::sample::select(vpcs.clone()), prop::sample::select(vpcs))
            .prop_map(|(document, other)| Edit::Copy(document, "/status/vpcID", other)),
        2 => (prop::sample::select(of_kind("Vpc")), prop::bool::ANY).prop_map(|(document, closed)| {
            let selector = if closed { json!({"matchLabels": {"tenant": "red"}}) } else { Value::Null };
            Edit::Set(document, "/spec/allowedNamespaces", selector)
        }),
        2 => (prop::sample::select(of_kind("Namespace")), prop::sample::select(vec!["red", "blue"]))
            .prop_map(|(document, tenant)| Edit::Set(document, "/metadata/labels", json!({"tenant": tenant}))),
        1 => (index.clone(), index.clone()).prop_map(|(document, other)| Edit::Double(document, other)),
        1 => index.prop_map(Edit::Single),
    ];
    prop::collection::vec(prop::collection::vec(edit, 1..4), 1..16)
}

fn set(document: &mut Value, place: &str, value: Value) {
    let mut at = document;
    let mut names = place.split('/').skip(1).peekable();
    while let Some(name) = names.next() {
        let Some(fields) = at.as_object_mut() else { return };
        if names.peek().is_none() {
            fields.insert(name.to_owned(), value);
            return;
        }
        at = fields.entry(name).or_insert_with(|| json!({}));
    }
}

/// Services of both tenants that claim some of the same, and what is behind them.
fn services() -> Vec<Value> {
    let mut all = Vec::new();
    for (namespace, name, address) in [
        ("red", "web", "10.96.0.10"),
        ("red", "db", "10.96.0.11"),
        ("blue", "web", "10.96.0.10"),
        ("blue", "db", "10.96.0.12"),
    ] {
        let annotations = json!({"juneau.loutres.me/vpc": namespace});
        all.push(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
            "spec": {"clusterIP": address, "externalIPs": ["192.0.2.80"], "ports": [{"port": 80}]},
        }));
        for (slice, endpoint, node) in [("1", "10.0.1.10", "node-1"), ("2", "10.0.2.20", "node-2")] {
            all.push(json!({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                "metadata": {
                    "name": format!("{name}-{slice}"), "namespace": namespace,
                    "labels": {"kubernetes.io/service-name": name},
                },
                "ports": [{"name": "", "port": 8080}],
                "endpoints": [{"addresses": [endpoint], "nodeName": node}],
            }));
        }
    }
    all
}

/// Documents, some to a file, and what is to be read of them.
struct World {
    original: Vec<Value>,
    documents: BTreeMap<usize, Value>,
    /// In files before the others by name, so that they are the ones in force.
    doubles: BTreeMap<usize, Value>,
}

impl World {
    fn new() -> Self {
        let mut original: Vec<Value> = example().values().flat_map(|text| documents(text).unwrap()).collect();
        // Routes to what another VPC has.
        for table in original.iter_mut().filter(|document| document["kind"] == "RouteTable") {
            let routes = table["status"]["routes"].as_array_mut().unwrap();
            for (dst, name) in [("172.16.0.0/16", "blue/a1.eth0"), ("172.17.0.0/16", "red/b1.eth0")] {
                routes.push(json!({"dst": dst, "via": {"type": "endpoint", "endpointName": name}}));
            }
        }
        for vpc in original.iter_mut().filter(|document| document["kind"] == "Vpc") {
            vpc["spec"]["service"] = json!({});
        }
        original.extend(services());
        let documents = original.iter().cloned().enumerate().collect();
        Self { original, documents, doubles: BTreeMap::new() }
    }

    fn files(&self) -> Files {
        let mut files = Files::new();
        for (prefix, documents) in [("a", &self.doubles), ("b", &self.documents)] {
            for (index, document) in documents {
                let file = files.entry(format!("{prefix}{}.yaml", index / 3)).or_default();
                file.push_str(&format!("---\n{document}\n"));
            }
        }
        files
    }

    fn edit(&mut self, edit: &Edit) {
        match edit {
            Edit::Remove(index) => drop(self.documents.remove(index)),
            Edit::Restore(index) => drop(self.documents.insert(*index, self.original[*index].clone())),
            Edit::Copy(index, place, other) => {
                let value = self.original[*other].pointer(place).cloned().unwrap_or_default();
                self.documents.entry(*index).and_modify(|document| set(document, place, value));
            }
            Edit::Set(index, place, value) => {
                self.documents.entry(*index).and_modify(|document| set(document, place, value.clone()));
            }
            Edit::Double(index, other) => {
                let mut double = self.original[*index].clone();
                if double["kind"] == self.original[*other]["kind"] {
                    double["spec"] = self.original[*other]["spec"].clone();
                }
                self.doubles.insert(*index, double);
            }
            Edit::Single(index) => drop(self.doubles.remove(index)),
        }
    }
}

/// What a directory that was read before has to be told.
fn changes(before: &Files, after: &Files) -> BTreeMap<PathBuf, Change> {
    let gone = before.keys().filter(|name| !after.contains_key(*name)).map(|name| (name.into(), Change::Removed));
    let there = after.iter().map(|(name, text)| (name.into(), Change::Content(text.clone().into_bytes())));
    gone.chain(there).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_model_that_follows_is_the_one_that_is_made_at_once(steps in edits()) {
        let mut world = World::new();
        let mut directory = Directory::new();
        directory.update(changes(&Files::new(), &world.files()));
        let mut following = Normaliser::new("node-1");
        following.update(&directory.snapshot().view);
        prop_assert_eq!(following.model().endpoints.len(), 8);
        prop_assert_eq!(following.model().services.len(), 4);
        for step in steps {
            let before = world.files();
            step.iter().for_each(|edit| world.edit(edit));
            directory.update(changes(&before, &world.files()));
            let snapshot = directory.snapshot();

            let earlier = following.model().clone();
            let changed = following.update(&snapshot.view);
            let (model, problems) = normalise(&snapshot.view, "node-1");
            prop_assert_eq!(following.model(), &model, "{:?}", step);
            prop_assert_eq!(following.problems(), problems.as_slice(), "{:?}", step);
            prop_assert!(changed || earlier == model);
            prop_assert!(!following.update(&snapshot.view));
        }
        let mut fresh = Directory::new();
        fresh.update(changes(&Files::new(), &world.files()));
        let at_once = fresh.snapshot();
        // Otherwise a good version from before is in force.
        if at_once.unknown == 0 {
            prop_assert_eq!(&directory.snapshot().view, &at_once.view);
        }
    }
}
