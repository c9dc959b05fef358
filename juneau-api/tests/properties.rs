//! Whatever stands in the files: no panic, one result, and no harm to another tenant.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Files, Node, Run, example, node};
use juneau_api::source::decode::documents;
use juneau_api::source::directory::{Change, Directory};
use juneau_core::compile::vpc_indices;
use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

/// What a field may be turned into: near misses, other tenants' values, and noise.
fn replacement() -> impl Strategy<Value = Value> {
    let texts = [
        "",
        "red",
        "blue",
        "red-a",
        "red-b",
        "blue-a",
        "blue-b",
        "node-1",
        "node-2",
        "a1",
        "a1.eth0",
        "blue/a1.eth0",
        "10.0.1.0/24",
        "10.0.1.10/24",
        "10.0.1.10",
        "10.0.1.20/24",
        "10.0.2.10/24",
        "10.0.1.1",
        "10.0.1.2",
        "10.0.1.255",
        "10.0.0.0/16",
        "0.0.0.0/0",
        "::/0",
        "2001:db8::1/64",
        "255.255.255.255/32",
        "10.0.1.7/24",
        "/24",
        "10.0.1.0/99",
        "02:00:0a:00:01:0a",
        "02:00:0a:00:01:14",
        "ff:ff:ff:ff:ff:ff",
        "00:00:00:00:00:00",
        "192.168.77.11",
        "connected",
        "Pod",
        "Node",
        "ServiceNAT",
        "InternalIP",
        "blue-a1-0001",
        "red-a1-0001",
    ];
    let numbers = [0_i64, 1, 2, 3, 20, 30, 201, 202, 301, 0x00ff_ffff, 0x0100_0000, i64::from(u32::MAX), -1, i64::MAX];
    prop_oneof![
        6 => prop::sample::select(texts.to_vec()).prop_map(Value::from),
        3 => prop::sample::select(numbers.to_vec()).prop_map(Value::from),
        1 => any::<String>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => Just(Value::from(true)),
        1 => Just(Value::Array(vec![])),
        1 => Just(serde_json::json!({"a": [1]})),
    ]
}

/// Every place of a value that may be turned into something else, except the object's own name.
fn places(value: &Value, at: String, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                places(field, format!("{at}/{name}"), out);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, format!("{at}/{index}"), out);
            }
        }
        _ => {}
    }
    if !at.is_empty() && at != "/metadata/name" && at != "/metadata" {
        out.push(at);
    }
}

/// Red's documents with some fields turned into something else; half of the time into what blue has there.
fn mutated_red() -> impl Strategy<Value = (Vec<Value>, Vec<String>)> {
    let all = documents(&example()["red.yaml"]).unwrap();
    let blue = documents(&example()["blue.yaml"]).unwrap();
    let all_places: Vec<(usize, String)> = all
        .iter()
        .enumerate()
        .flat_map(|(index, document)| {
            let mut found = Vec::new();
            places(document, String::new(), &mut found);
            found.into_iter().map(move |place| (index, place))
        })
        .collect();
    let change = (prop::sample::select(all_places), prop::option::of(replacement()));
    prop::collection::vec(change, 1..6).prop_map(move |changes| {
        let mut documents = all.clone();
        let mut told = Vec::new();
        for ((index, place), value) in changes {
            let value = value.or_else(|| blue[index].pointer(&place).cloned()).unwrap_or_default();
            if let Some(field) = documents[index].pointer_mut(&place) {
                told.push(format!("document {}: {place} = {value}", index + 1));
                *field = value;
            }
        }
        (documents, told)
    })
}

/// A node that ran the example, and a directory of all but red's file, which is read anew each time.
struct Settled {
    node: Node,
    others: Directory,
    before: Run,
}

fn settled() -> &'static Settled {
    static SETTLED: OnceLock<Settled> = OnceLock::new();
    SETTLED.get_or_init(|| {
        let mut node = node(1);
        let before = node.run(&example());
        node.context.vpc_indices = vpc_indices(&before.tables);
        let mut files = example();
        files.remove("red.yaml");
        let mut others = Directory::new();
        node.follow(&mut others, &files);
        Settled { node, others, before }
    })
}

impl Settled {
    fn run(&self, red: &[Value]) -> Run {
        let text: Vec<String> = red.iter().map(|value| serde_json::to_string(value).unwrap()).collect();
        let files = Files::from([("red.yaml".to_owned(), text.join("\n---\n"))]);
        self.node.follow(&mut self.others.clone(), &files)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// A tenant's slips, and its greed: whatever red's manifests claim, all of blue's elements stand as before. (Blue is
    /// first by name, as the older tenant is by age.)
    #[test]
    fn no_manifest_of_one_tenant_changes_what_another_has((red, told) in mutated_red()) {
        let run = settled().run(&red);
        let (found, wanted) = (run.of(3), settled().before.of(3));
        macro_rules! stands {
            ($($table:ident)*) => {$(
                for (key, value) in &wanted.$table {
                    prop_assert_eq!(found.$table.get(key), Some(value), "{} {:?}\n{:#?}", stringify!($table), key, told);
                }
            )*};
        }
        stands!(interfaces endpoints macs segments routes vpcs vteps);
        // Twice the same.
        let again = settled().run(&red);
        prop_assert_eq!(&again.tables, &run.tables);
        prop_assert_eq!(&again.problems, &run.problems);
        // Every problem says what it is about and what to do.
        for problem in &run.problems {
            prop_assert!(!problem.object.is_empty() && !problem.message.is_empty() && !problem.remedy.is_empty());
        }
    }

    /// No element of one tenant's scope points into another's, whatever the manifests say.
    #[test]
    fn no_record_crosses_from_one_vpc_into_another((red, _) in mutated_red()) {
        let run = settled().run(&red);
        let tables = &run.tables;
        for interface in tables.interfaces.values() {
            let key = juneau_core::layout::EndpointKey { vpc: interface.vpc, address: interface.address };
            let endpoint = tables.endpoints.get(&key);
            prop_assert_eq!(endpoint.map(|e| (e.vni, e.mac, e.table)), Some((interface.vni, interface.mac, interface.table)));
            prop_assert_eq!(tables.segments.get(&interface.vni).map(|s| s.vpc), Some(interface.vpc));
            prop_assert_eq!(tables.vpcs.get(&u32::from(interface.vpc_index)).map(|v| v.vpc), Some(interface.vpc));
            // Every connected route of the interface's table leads into a Subnet of the interface's VPC.
            for route in tables.routes.iter().filter(|(key, route)| key.table == interface.table && route.kind == 1) {
                if let Some(segment) = tables.segments.get(&route.1.vni) {
                    prop_assert_eq!(segment.vpc, interface.vpc);
                }
            }
        }
        for (key, mac) in &tables.macs {
            prop_assert_eq!(tables.interfaces.get(&mac.ifindex).map(|i| (i.vni, i.mac, i.address)), Some((key.vni, key.mac, mac.address)));
        }
    }

    /// Any bytes as a file, over a good one: what was good stands.
    #[test]
    fn any_bytes_are_a_file(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[-a-z:{}\\[\\]&*!|>' \n#]{0,80}") {
        let mut directory = Directory::new();
        for content in [bytes, text.into_bytes()] {
            directory.update(BTreeMap::from([(PathBuf::from("a.yaml"), Change::Content(content))]));
            let snapshot = directory.snapshot();
            prop_assert!(snapshot.view.is_empty());
        }
    }
}
