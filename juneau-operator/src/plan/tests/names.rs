//! What is made for a Pod of any name is what the node's own reader takes.

use super::*;
use crate::sink::objects::to_json;
use juneau_api::names::{NAME_MAX, interface};
use juneau_api::normalise::{Normaliser, normalise};
use juneau_api::source::decode;
use juneau_api::source::objects::Objects as Source;
use juneau_api::view;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A Pod's name of exactly this many bytes: a DNS subdomain.
fn pod_name(length: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(b"abz0279-.".to_vec()), length).prop_map(|bytes| {
        let text = String::from_utf8(bytes).unwrap();
        let mut name = String::new();
        for (at, c) in text.char_indices() {
            let ends = at == 0 || at + 1 == text.len() || name.ends_with(['.', '-']);
            name.push(if ends && !c.is_ascii_alphanumeric() { 'a' } else { c });
        }
        name
    })
}

fn any_pod_name() -> impl Strategy<Value = String> {
    let near_the_limit = (230..=NAME_MAX).prop_flat_map(pod_name);
    let any = (1..=NAME_MAX).prop_flat_map(pod_name);
    // What ends like a name with a hash.
    let imitation = pod_name(16).prop_map(|end| format!("a.{end}"));
    prop_oneof![3 => near_the_limit, 2 => any, 1 => imitation]
}

fn any_nic_name() -> impl Strategy<Value = String> {
    "[a-z]([a-z0-9-]{0,6}[a-z0-9])?".prop_filter("taken", |name| name != "eth0" && name != "lo")
}

/// What the node reads of a document.
fn tell(source: &mut Source, document: Value) {
    let (key, object) = decode::object(document).unwrap();
    source.apply(key.kind, &key.name.namespace, &key.name.name, Ok(object));
}

fn node() -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}})
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_interface_is_accepted_and_found(
        names in prop::collection::btree_set(any_pod_name(), 1..5),
        nic in any_nic_name(),
        twin in any::<bool>(),
    ) {
        let mut names: BTreeSet<String> = names;
        if twin {
            // Two names that are the same as far as they are kept.
            names.insert("n".repeat(NAME_MAX));
            names.insert(format!("{}m", "n".repeat(NAME_MAX - 1)));
        }
        let mut cluster = Cluster::with("red", "10.0.0.0/24");
        let networks = json!([{"interface": "eth0", "subnet": "red"}, {"interface": nic, "subnet": "red"}]);
        for name in &names {
            cluster.pod_with("red", name, json!({"juneau.loutres.me/networks": networks.to_string()}));
        }
        cluster.settle();

        let mut source = Source::new(view::Kind::ALL, Some("n1".into()), std::time::Duration::ZERO, "test");
        // The first lists tell what the node needs, the second ones all of that.
        for kind in [view::Kind::ALL, view::Kind::ALL].into_iter().flatten() {
            let Some(of_plan) = Kind::ALL.into_iter().find(|known| known.as_str() == kind.as_str()) else { continue };
            source.begin(kind);
            if kind == view::Kind::Node {
                tell(&mut source, node());
            }
            for object in cluster.objects.view().all(of_plan) {
                if let Some(document) = to_json(&object) {
                    tell(&mut source, document);
                }
            }
            source.end(kind);
        }
        let mut follower = Normaliser::new("n1");
        follower.update(&source.snapshot().view);
        prop_assert_eq!(follower.model().endpoints.len(), 0, "without their Pods");
        for name in &names {
            let metadata = json!({"namespace": "red", "name": name, "uid": format!("uid-red-{name}")});
            tell(&mut source, json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                "spec": {"nodeName": "n1", "containers": []}}));
        }
        let view = source.snapshot().view;
        follower.update(&view);
        let (model, problems) = normalise(&view, "n1");
        prop_assert_eq!(problems, []);
        prop_assert_eq!(follower.model(), &model, "what a change of Pods touches");
        let found: BTreeSet<_> = follower
            .own_interfaces()
            .map(|(namespace, pod, nic, endpoint)| [namespace, pod, nic, endpoint].map(str::to_owned))
            .collect();
        let wanted: BTreeSet<_> = names
            .iter()
            .flat_map(|pod| ["eth0", nic.as_str()].map(|nic| (pod, nic)))
            .map(|(pod, nic)| ["red".to_owned(), pod.clone(), nic.to_owned(), format!("red/{}", interface(pod, nic))])
            .collect();
        prop_assert_eq!(found, wanted);
    }
}
