//! Objects that come one by one: what a watch tells, made into a view.
//!
//! This is the pure part of [`watch`](super::watch). An object that cannot be decoded keeps its last good version and
//! is a named problem. A list that begins anew takes nothing away before it has ended.

use super::directory::Snapshot;
use crate::view::{Kind, Object, Origin, Text, Texts, View};
use juneau_core::model::Problem;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Namespace and name.
type Name = (Text, Text);

/// What is known of each watched kind.
#[derive(Debug)]
pub struct Objects {
    view: View,
    kinds: BTreeMap<Kind, State>,
    /// Objects whose last version could not be decoded, and why.
    broken: BTreeMap<(Kind, Name), String>,
    texts: Texts,
    origin: Text,
}

#[derive(Debug, Default)]
struct State {
    /// A list has ended at least once.
    known: bool,
    /// What the list that is under way has told.
    listed: Option<BTreeSet<Name>>,
    /// Why the kind cannot be watched just now, and what to do.
    failure: Option<(String, String)>,
}

impl Objects {
    /// Nothing is known of these kinds; of Pods, only those of the node `pods_of` will be, if one is named. `origin`
    /// says where objects are read.
    #[must_use]
    pub fn new(kinds: impl IntoIterator<Item = Kind>, pods_of: Option<Text>, origin: &str) -> Self {
        Self {
            view: View { pods_of, ..View::default() },
            kinds: kinds.into_iter().map(|kind| (kind, State::default())).collect(),
            broken: BTreeMap::new(),
            texts: Texts::default(),
            origin: origin.into(),
        }
    }

    /// A list of a kind begins.
    pub fn begin(&mut self, kind: Kind) {
        self.kinds.entry(kind).or_default().listed = Some(BTreeSet::new());
    }

    /// An object is there: as it is, or why it cannot be decoded.
    pub fn apply(&mut self, kind: Kind, namespace: &str, name: &str, object: Result<Object, String>) {
        let (mut namespace, mut name): Name = (namespace.into(), name.into());
        self.texts.share(&mut namespace);
        self.texts.share(&mut name);
        if let Some(listed) = self.kinds.get_mut(&kind).and_then(|state| state.listed.as_mut()) {
            listed.insert((Arc::clone(&namespace), Arc::clone(&name)));
        }
        match object {
            Ok(mut object) => {
                self.forget_what_is_not_ours(&mut object);
                // What is equal stays the same, so that nobody looks at it again.
                if self.view.get(kind, &namespace, &name).as_ref() != Some(&object) {
                    object.share(&mut self.texts);
                    let origin = Origin { file: Arc::clone(&self.origin), document: 0 };
                    self.view.replace(&namespace, &name, &object, origin);
                }
                self.broken.remove(&(kind, (namespace, name)));
            }
            Err(reason) => {
                self.broken.insert((kind, (namespace, name)), reason);
            }
        }
    }

    /// Whose endpoint it is not has no use for what only its own node reads, and no reason to look when that changes.
    fn forget_what_is_not_ours(&self, object: &mut Object) {
        let (Object::NetworkEndpoint(endpoint), Some(node)) = (object, &self.view.pods_of) else { return };
        if endpoint.node != *node
            && let Some(endpoint) = Arc::get_mut(endpoint)
        {
            endpoint.own = None;
        }
    }

    /// An object is gone.
    pub fn delete(&mut self, kind: Kind, namespace: &str, name: &str) {
        self.view.remove(kind, namespace, name);
        self.broken.remove(&(kind, (namespace.into(), name.into())));
    }

    /// The list of a kind has ended: what it did not tell is gone.
    pub fn end(&mut self, kind: Kind) {
        let state = self.kinds.entry(kind).or_default();
        let Some(listed) = state.listed.take() else { return };
        state.known = true;
        for name in self.view.names(kind).iter().filter(|name| !listed.contains(*name)) {
            self.view.remove(kind, &name.0, &name.1);
        }
        self.broken.retain(|(of, name), _| *of != kind || listed.contains(name));
        self.texts.tidy();
    }

    /// Whether a kind can be watched, or why not and what to do.
    pub fn set_failure(&mut self, kind: Kind, failure: Option<(String, String)>) {
        self.kinds.entry(kind).or_default().failure = failure;
    }

    /// What exists, and what is wrong.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut problems = Vec::new();
        let mut unknown = self.kinds.values().filter(|state| !state.known).count();
        for (kind, state) in &self.kinds {
            if let Some((message, remedy)) = &state.failure {
                problems.push(Problem::new(format!("watch of {kind}"), message.as_str(), remedy.as_str()));
            }
        }
        for ((kind, (namespace, name)), reason) in &self.broken {
            let object = match &**namespace {
                "" => format!("{kind}/{name}"),
                namespace => format!("{kind}/{namespace}/{name}"),
            };
            let mut message = format!("cannot be decoded: {reason}");
            if self.view.get(*kind, namespace, name).is_some() {
                message.push_str("; the last good version stays in force");
            } else {
                unknown += 1;
            }
            let remedy = "correct the object; see that the CRDs are of this release";
            problems.push(Problem::new(object, message, remedy).at(&*self.origin));
        }
        Snapshot { view: self.view.clone(), problems, unknown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use crate::view::Node;

    fn node(address: &str) -> Object {
        Object::Node(Arc::new(Node { internal_ips: vec![address.into()], created: None }))
    }

    fn nodes(snapshot: &Snapshot) -> Vec<(&str, &str)> {
        let all = snapshot.view.nodes.iter();
        all.map(|(name, item)| (&**name, &*item.object.internal_ips[0])).collect()
    }

    fn listed() -> Objects {
        let mut objects = Objects::new([Kind::Node], None, "test");
        objects.begin(Kind::Node);
        objects.apply(Kind::Node, "", "a", Ok(node("192.0.2.1")));
        objects.apply(Kind::Node, "", "b", Ok(node("192.0.2.2")));
        objects
    }

    #[test]
    fn nothing_is_known_before_the_first_list_ends_and_nothing_goes_before_the_next_does() {
        let mut objects = listed();
        assert_eq!(objects.snapshot().unknown, 1);
        objects.end(Kind::Node);
        assert_eq!(objects.snapshot().unknown, 0);
        let before = objects.snapshot();
        objects.begin(Kind::Node);
        objects.apply(Kind::Node, "", "b", Ok(node("192.0.2.2")));
        let during = objects.snapshot();
        assert_eq!(nodes(&during), [("a", "192.0.2.1"), ("b", "192.0.2.2")]);
        assert!(Arc::ptr_eq(&before.view.nodes, &during.view.nodes), "what is equal is the same");
        objects.end(Kind::Node);
        assert_eq!(nodes(&objects.snapshot()), [("b", "192.0.2.2")]);
        objects.delete(Kind::Node, "", "b");
        assert!(objects.snapshot().view.is_empty());
        assert_eq!(nodes(&before).len(), 2, "a view does not change under its holder");
    }

    #[test]
    fn what_cannot_be_decoded_keeps_its_last_good_version() {
        let mut objects = listed();
        objects.end(Kind::Node);
        objects.apply(Kind::Node, "", "b", Err("status: wrong".into()));
        objects.apply(Kind::Node, "", "c", Err("status: wrong".into()));
        let snapshot = objects.snapshot();
        assert_eq!(nodes(&snapshot), [("a", "192.0.2.1"), ("b", "192.0.2.2")]);
        assert_eq!(snapshot.unknown, 1, "c may be anything");
        let texts: Vec<_> = snapshot.problems.iter().map(|problem| (&*problem.object, &*problem.message)).collect();
        let kept = "cannot be decoded: status: wrong; the last good version stays in force";
        assert_eq!(texts, [("Node/b", kept), ("Node/c", "cannot be decoded: status: wrong")]);
        objects.apply(Kind::Node, "", "b", Ok(node("192.0.2.3")));
        objects.delete(Kind::Node, "", "c");
        let snapshot = objects.snapshot();
        assert_eq!((snapshot.problems.len(), snapshot.unknown), (0, 0));
        assert_eq!(nodes(&snapshot), [("a", "192.0.2.1"), ("b", "192.0.2.3")]);
    }

    #[test]
    fn what_only_an_endpoint_s_node_reads_is_held_there_alone() {
        let mut objects = Objects::new([Kind::NetworkEndpoint], Some("n1".into()), "test");
        let mut tell = |node: &str, name: &str, ifindex: u32| {
            let mut endpoint = kinds::NetworkEndpoint::default();
            endpoint.metadata.uid = Some("u".into());
            endpoint.spec.node_name = node.into();
            endpoint.spec.attachment = Some(kinds::Attachment { ifindex, ..Default::default() });
            objects.apply(Kind::NetworkEndpoint, "red", name, Ok(Object::NetworkEndpoint(Arc::new(endpoint.into()))));
            objects.snapshot().view.workloads["red"].clone()
        };
        let first = tell("n1", "a.eth0", 7);
        let own = first.network_endpoints["a.eth0"].object.own.clone().unwrap();
        assert_eq!((own.uid.as_str(), own.attachment.as_ref().unwrap().ifindex), ("u", 7));
        let before = tell("n2", "b.eth0", 7);
        assert_eq!(before.network_endpoints["b.eth0"].object.own, None);
        assert!(Arc::ptr_eq(&before, &tell("n2", "b.eth0", 8)), "another node's business");
        assert!(!Arc::ptr_eq(&before, &tell("n1", "a.eth0", 8)));
    }

    #[test]
    fn a_failure_is_a_problem_until_it_is_over() {
        let mut objects = listed();
        objects.set_failure(Kind::Node, Some(("refused".into(), "grant it".into())));
        assert_eq!(objects.snapshot().problems[0].to_string(), "watch of Node: refused; grant it");
        objects.set_failure(Kind::Node, None);
        assert!(objects.snapshot().problems.is_empty());
    }
}
