//! Objects that come one by one: what a watch tells, made into a view.
//!
//! This is the pure part of [`watch`](super::watch). An object that cannot be decoded keeps its last good version and
//! is a named problem. A list that begins anew takes nothing away before it has ended. For a node only those interfaces
//! and endpoints are held that it needs (`needs.rs`).

use super::directory::Snapshot;
use super::needs::{Name, Needs, PARTIAL, Place};
use crate::view::{Kind, Object, Origin, Text, Texts, View};
use juneau_core::model::Problem;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is known of each watched kind.
#[derive(Debug)]
pub struct Objects {
    view: View,
    kinds: BTreeMap<Kind, State>,
    /// Objects whose last version could not be decoded, and why.
    broken: BTreeMap<(Kind, Name), String>,
    /// What this node needs; all of it if there is no node.
    needs: Option<Needs>,
    /// The last part that could not be read, why, and what to do. It does not count once that was read, or is not
    /// needed.
    unread: Option<(Unread, String, String)>,
    texts: Texts,
    origin: Text,
}

#[derive(Debug, Default)]
struct State {
    /// A list has ended at least once.
    known: bool,
    /// What the list that is under way has told.
    listed: Option<BTreeSet<Name>>,
    /// Subnets of which that list will have told all.
    covered: BTreeSet<Text>,
    /// Lists that began.
    lists: u64,
    /// The newest version that the watch told.
    newest: Option<u64>,
    /// Why the kind cannot be watched just now, and what to do.
    failure: Option<(String, String)>,
}

/// A part that has to be read: what is there of a kind in a Subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// NetworkInterface or NetworkEndpoint.
    pub kind: Kind,
    /// The Subnet's name.
    pub subnet: Text,
    /// Lists of the kind that began before.
    lists: u64,
    newest: Option<u64>,
}

impl Unread {
    /// The newest version of the kind that the watch had told when this had to be read: what is read must be no older.
    /// `None` if it told none that is a number.
    #[must_use]
    pub const fn newest(&self) -> Option<u64> {
        self.newest
    }
}

/// What a read of a part yields: namespaces, names, and the objects or why they cannot be decoded; or why it could not
/// be read, and what to do.
pub type Read = Result<Vec<(Text, Text, Result<Object, String>)>, (String, String)>;

impl Objects {
    /// Nothing is known of these kinds. If a node is named, only its Pods will be, and only the interfaces and endpoints
    /// that it needs; of what it no longer needs, nothing after `keep`. `origin` says where objects are read.
    #[must_use]
    pub fn new(kinds: impl IntoIterator<Item = Kind>, node: Option<Text>, keep: Duration, origin: &str) -> Self {
        Self {
            view: View { pods_of: node.clone(), ..View::default() },
            kinds: kinds.into_iter().map(|kind| (kind, State::default())).collect(),
            broken: BTreeMap::new(),
            needs: node.map(|node| Needs::new(node, keep)),
            unread: None,
            texts: Texts::default(),
            origin: origin.into(),
        }
    }

    /// A list of a kind begins.
    pub fn begin(&mut self, kind: Kind) {
        let covered = self.needs.as_ref().filter(|_| PARTIAL.contains(&kind)).map(Needs::covered).unwrap_or_default();
        let state = self.kinds.entry(kind).or_default();
        (state.listed, state.covered) = (Some(BTreeSet::new()), covered);
        state.lists += 1;
    }

    /// The watch told a version of an object, or of its end. Versions of one kind are numbers that grow (API conventions,
    /// "Resource versions", since Kubernetes 1.35); any others are not remembered.
    pub fn saw(&mut self, kind: Kind, version: &str) {
        let newest = &mut self.kinds.entry(kind).or_default().newest;
        *newest = (*newest).max(version.parse().ok());
    }

    /// An object is there: as it is, or why it cannot be decoded.
    pub fn apply(&mut self, kind: Kind, namespace: &str, name: &str, object: Result<Object, String>) {
        let id = (kind, (Text::from(namespace), Text::from(name)));
        let is_held = match object {
            Ok(mut object) => {
                self.forget_what_is_not_ours(&mut object);
                self.broken.remove(&id);
                let place = match &mut self.needs {
                    Some(needs) => needs.take(&id, object, &mut self.view),
                    None => Place::View(object),
                };
                let is_held = !matches!(place, Place::Nowhere);
                if let Place::View(object) = place {
                    self.put(kind, &id.1, object);
                }
                self.show();
                is_held
            }
            Err(reason) => {
                self.broken.insert(id.clone(), reason);
                true
            }
        };
        if is_held && let Some(listed) = self.kinds.get_mut(&kind).and_then(|state| state.listed.as_mut()) {
            listed.insert(id.1);
        }
    }

    /// Puts an object into the view.
    fn put(&mut self, kind: Kind, name: &Name, mut object: Object) {
        // What is equal stays the same, so that nobody looks at it again.
        if self.view.get(kind, &name.0, &name.1).as_ref() == Some(&object) {
            return;
        }
        let (mut namespace, mut name) = name.clone();
        self.texts.share(&mut namespace);
        self.texts.share(&mut name);
        object.share(&mut self.texts);
        let origin = Origin { file: Arc::clone(&self.origin), document: 0 };
        self.view.replace(&namespace, &name, &object, origin);
        self.subnets_changed(kind);
    }

    /// Which VPC a Subnet is of says which Subnets are needed.
    fn subnets_changed(&mut self, kind: Kind) {
        // The first list is judged once, when it ends: nothing is needed before.
        if kind == Kind::Subnet
            && self.is_known(kind)
            && let Some(needs) = &mut self.needs
        {
            needs.renew(&mut self.view);
            self.show();
        }
    }

    /// Shows what was waited for.
    fn show(&mut self) {
        let shown = self.needs.as_mut().map(Needs::show).unwrap_or_default();
        for ((kind, name), object) in shown {
            self.put(kind, &name, object);
        }
    }

    /// Whether a list of the kind has ended at least once.
    #[must_use]
    pub fn is_known(&self, kind: Kind) -> bool {
        self.kinds.get(&kind).is_some_and(|state| state.known)
    }

    /// What has to be read, apart from the watches; and when to ask again, at the latest. What has not been needed for
    /// long enough is forgotten.
    pub fn tend(&mut self, now: Instant) -> (Vec<Unread>, Option<Instant>) {
        let Some(needs) = &mut self.needs else { return (Vec::new(), None) };
        let forgotten = needs.forget(now, &mut self.view);
        if !forgotten.subnets.is_empty() {
            // What is needed again before a list ends was not held all the time.
            for state in self.kinds.values_mut() {
                state.covered.retain(|subnet| !forgotten.subnets.contains(subnet));
            }
            for ((kind, name), object) in forgotten.own {
                self.put(kind, &name, object);
            }
            self.show();
            self.texts.tidy();
        }
        // A list that is under way may tell of it.
        let is_read = |kind: &Kind| self.kinds.get(kind).filter(|state| state.known && state.listed.is_none());
        let unread = self.needs.iter().flat_map(Needs::unread).filter_map(|(kind, subnet)| {
            let State { lists, newest, .. } = is_read(&kind)?;
            Some(Unread { kind, subnet: Arc::clone(subnet), lists: *lists, newest: *newest })
        });
        (unread.collect(), forgotten.next)
    }

    /// A part was read: all that is there of a kind in a Subnet, as recent as what the watch told when it was asked
    /// for; or why it could not be, and what to do.
    pub fn read(&mut self, part: &Unread, objects: Read) {
        let objects = match objects {
            Ok(objects) => objects,
            Err((message, remedy)) => {
                self.unread = Some((part.clone(), message, remedy));
                return;
            }
        };
        // A list of everything began since: this may be older than what that tells.
        if self.kinds.get(&part.kind).is_none_or(|state| state.lists != part.lists) {
            return;
        }
        for (namespace, name, object) in objects {
            let id = (part.kind, (namespace, name));
            let Some(needs) = &self.needs else { continue };
            if needs.is_news(&id, &part.subnet, object.as_ref().ok(), &self.view) {
                self.apply(id.0, &id.1.0, &id.1.1, object);
            }
        }
        if let Some(needs) = &mut self.needs {
            needs.read(part.kind, &part.subnet);
        }
        self.show();
    }

    /// Whose endpoint it is not has no use for what only its own node reads, and no reason to look when that changes.
    fn forget_what_is_not_ours(&self, object: &mut Object) {
        let (Object::NetworkEndpoint(endpoint), Some(node)) = (object, &self.view.pods_of) else { return };
        if endpoint.node != *node && endpoint.own.is_some() {
            Arc::make_mut(endpoint).own = None;
        }
    }

    /// An object is gone.
    pub fn delete(&mut self, kind: Kind, namespace: &str, name: &str) {
        let id = (kind, (Text::from(namespace), Text::from(name)));
        self.view.remove(kind, namespace, name);
        self.broken.remove(&id);
        if let Some(needs) = &mut self.needs {
            needs.delete(&id, &mut self.view);
        }
        self.subnets_changed(kind);
    }

    /// The list of a kind has ended: what it did not tell is gone.
    pub fn end(&mut self, kind: Kind) {
        let state = self.kinds.entry(kind).or_default();
        let Some(listed) = state.listed.take() else { return };
        state.known = true;
        let covered = std::mem::take(&mut state.covered);
        for name in self.view.names(kind).iter().filter(|name| !listed.contains(*name)) {
            self.view.remove(kind, &name.0, &name.1);
        }
        self.broken.retain(|(of, name), _| *of != kind || listed.contains(name));
        if PARTIAL.contains(&kind)
            && let Some(needs) = &mut self.needs
        {
            needs.listed(kind, &listed, &covered, &mut self.view);
        }
        self.subnets_changed(kind);
        self.show();
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
        let listed = unknown == 0;
        for (kind, state) in &self.kinds {
            if let Some((message, remedy)) = &state.failure {
                problems.push(Problem::new(format!("watch of {kind}"), message.as_str(), remedy.as_str()));
            }
        }
        for (kind, subnet) in self.needs.iter().flat_map(Needs::unread) {
            unknown += 1;
            if let Some((part, message, remedy)) = &self.unread
                && (part.kind, &part.subnet) == (kind, subnet)
            {
                problems.push(Problem::new(format!("list of {kind}"), message.as_str(), remedy.as_str()));
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
        Snapshot { view: self.view.clone(), problems, unknown, listed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Node;

    fn node(address: &str) -> Object {
        Object::Node(Arc::new(Node { internal_ips: vec![address.into()], zone: None, created: None }))
    }

    fn nodes(snapshot: &Snapshot) -> Vec<(&str, &str)> {
        let all = snapshot.view.nodes.iter();
        all.map(|(name, item)| (&**name, &*item.object.internal_ips[0])).collect()
    }

    fn listed() -> Objects {
        let mut objects = Objects::new([Kind::Node], None, Duration::ZERO, "test");
        objects.begin(Kind::Node);
        objects.apply(Kind::Node, "", "a", Ok(node("192.0.2.1")));
        objects.apply(Kind::Node, "", "b", Ok(node("192.0.2.2")));
        objects
    }

    #[test]
    fn nothing_is_known_before_the_first_list_ends_and_nothing_goes_before_the_next_does() {
        let mut objects = listed();
        assert_eq!((objects.snapshot().unknown, objects.snapshot().listed), (1, false));
        objects.end(Kind::Node);
        assert_eq!((objects.snapshot().unknown, objects.snapshot().listed), (0, true));
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
        assert_eq!((snapshot.unknown, snapshot.listed), (1, true), "c may be anything");
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
    fn a_failure_is_a_problem_until_it_is_over() {
        let mut objects = listed();
        objects.set_failure(Kind::Node, Some(("refused".into(), "grant it".into())));
        assert_eq!(objects.snapshot().problems[0].to_string(), "watch of Node: refused; grant it");
        objects.set_failure(Kind::Node, None);
        assert!(objects.snapshot().problems.is_empty());
    }
}
