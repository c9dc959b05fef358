//! The view that watches keep, shared by the planner and by admission.

mod seen;

use crate::view::{Kind, Object, Retaining, View};
use juneau_api::kinds::AllocationLease;
use juneau_api::view::ObjectName;
use k8s_openapi::jiff::Timestamp;
use seen::Seen;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::{PoisonError, RwLock};
use tokio::sync::watch;

/// An object at the server that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    /// Its uid.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// What is wrong.
    pub error: String,
    /// An older version of it is in the view.
    pub kept: bool,
}

/// What exists, as far as it was seen.
#[derive(Debug)]
pub struct State {
    inner: RwLock<Inner>,
    version: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    view: View,
    /// Kinds that were not listed yet, and why their watch failed last.
    unsynced: BTreeMap<Kind, Option<String>>,
    /// What a list that is being read has named so far.
    listed: BTreeMap<Kind, BTreeSet<ObjectName>>,
    undecodable: BTreeMap<(Kind, ObjectName), Undecodable>,
    /// Objects that addresses were kept for, and that are gone.
    gone: BTreeSet<Retaining>,
    /// How many leases name each object that addresses are kept for.
    wishes: BTreeMap<Retaining, usize>,
    /// The uids of objects that went last. The answer to a write may come after the watch told of its end, as it does
    /// when the write took the last finalizer away: such an object is not there any more.
    ended: HashSet<String>,
    /// The same, oldest first.
    ended_in_order: VecDeque<String>,
    seen: Seen,
}

/// How many uids are kept of objects that are gone.
const ENDED: usize = 4096;

/// One thing that a watch told.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A list begins: what it does not name is gone.
    Begin(Kind),
    /// An object is there, because of a list or of a change.
    Found(Object),
    /// An object is there and cannot be decoded.
    Broken(Kind, ObjectName, Undecodable),
    /// The object with this uid is gone.
    Gone(Kind, ObjectName, String),
    /// The list ends.
    End(Kind),
}

impl State {
    /// One that waits for the lists of these kinds.
    #[must_use]
    pub fn new(kinds: impl IntoIterator<Item = Kind>) -> Self {
        let inner = Inner { unsynced: kinds.into_iter().map(|kind| (kind, None)).collect(), ..Inner::default() };
        Self { inner: RwLock::new(inner), version: watch::Sender::new(0) }
    }

    /// Whether every kind was listed once.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).unsynced.is_empty()
    }

    /// Kinds that were not listed yet, and why their watch failed last, if it did.
    #[must_use]
    pub fn unsynced(&self) -> BTreeMap<Kind, Option<String>> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).unsynced.clone()
    }

    /// Takes in that a watch failed: for whoever asks what is not listed yet.
    pub fn failed(&self, kind: Kind, why: &str) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(cause) = inner.unsynced.get_mut(&kind) {
            *cause = Some(why.to_owned());
        }
    }

    /// Told whenever the view changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Looks at the view; nothing changes meanwhile.
    pub fn read<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        look(&self.inner.read().unwrap_or_else(PoisonError::into_inner).view)
    }

    /// A copy of the view, of its pointers, for a plan at this moment.
    #[must_use]
    pub fn view(&self, now: Timestamp) -> View {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        View { sightings: Some(inner.seen.sightings(now)), ..inner.view.clone() }
    }

    /// What cannot be decoded.
    #[must_use]
    pub fn undecodable(&self) -> BTreeMap<(Kind, ObjectName), Undecodable> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).undecodable.clone()
    }

    /// Whether an object exists that an address is kept for. Until this is told, it does. What no lease names any more,
    /// since the question was asked, is passed over.
    pub fn retain(&self, object: &Retaining, exists: bool) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if !inner.wishes.contains_key(object) {
            return;
        }
        let changed = if exists {
            inner.gone.remove(object) | inner.view.retaining.insert(object.clone())
        } else {
            inner.gone.insert(object.clone());
            inner.view.retaining.remove(object)
        };
        drop(inner);
        if changed {
            self.version.send_modify(|version| *version += 1);
        }
    }

    /// Takes in what a watch told. Whether the view changed.
    pub fn handle(&self, event: Event) -> bool {
        let changed = self.inner.write().unwrap_or_else(PoisonError::into_inner).handle(event);
        if changed {
            self.version.send_modify(|version| *version += 1);
        }
        changed
    }
}

impl Inner {
    fn handle(&mut self, event: Event) -> bool {
        match event {
            Event::Begin(kind) => {
                self.listed.insert(kind, BTreeSet::new());
                false
            }
            Event::Found(object) => {
                let (kind, name) = (object.kind(), object.name());
                if let Some(listed) = self.listed.get_mut(&kind) {
                    listed.insert(name.clone());
                }
                self.mended(kind, &name);
                if object.metadata().uid.as_ref().is_some_and(|uid| self.ended.contains(uid)) {
                    return false;
                }
                let before = self.view.get(kind, &name);
                if before.as_ref().is_some_and(|before| *before == object || is_as_new(before, &object)) {
                    return false;
                }
                // The new wish first: where it is the old one as well, what is known of the object stays.
                if let Object::AllocationLease(lease) = &object {
                    self.wish(lease);
                }
                if let Some(Object::AllocationLease(before)) = &before {
                    self.end_wish(before);
                }
                let metadata = object.metadata();
                let same = before.as_ref().is_some_and(|before| before.metadata().uid == metadata.uid);
                if !same {
                    if let Some(Object::AllocationLease(before)) = &before {
                        self.seen.gone(before);
                    }
                    if let (Some(uid), true) = (&metadata.uid, self.unsynced.is_empty()) {
                        self.seen.came(uid);
                    }
                }
                if let Object::AllocationLease(lease) = &object {
                    self.seen.lease(lease);
                }
                self.view.insert(object);
                true
            }
            Event::Broken(kind, name, mut what) => {
                if let Some(listed) = self.listed.get_mut(&kind) {
                    listed.insert(name.clone());
                }
                // The last good version stays, if it is one of the same object.
                match self.view.get(kind, &name) {
                    Some(before) if before.metadata().uid.as_deref() == Some(what.uid.as_str()) => what.kept = true,
                    Some(_) => drop(self.remove(kind, &name)),
                    None => {}
                }
                self.view.undecodable.insert((kind, name.clone()));
                self.undecodable.insert((kind, name), what.clone()).as_ref() != Some(&what)
            }
            Event::Gone(kind, name, uid) => {
                let known = self.mended(kind, &name);
                // One of the same name may have taken its place already.
                let other = self.view.get(kind, &name).is_some_and(|object| {
                    object.metadata().uid.as_ref().is_some_and(|known| !uid.is_empty() && *known != uid)
                });
                if !uid.is_empty() && self.ended.insert(uid.clone()) {
                    self.ended_in_order.push_back(uid);
                    if self.ended_in_order.len() > ENDED
                        && let Some(oldest) = self.ended_in_order.pop_front()
                    {
                        self.ended.remove(&oldest);
                    }
                }
                (!other && self.remove(kind, &name)) || known
            }
            Event::End(kind) => {
                let first = self.unsynced.remove(&kind).is_some();
                if first && self.unsynced.is_empty() {
                    self.seen.listed = tokio::time::Instant::now();
                }
                let Some(listed) = self.listed.remove(&kind) else { return first };
                let broken = self.undecodable.len();
                self.undecodable.retain(|(of, name), _| *of != kind || listed.contains(name));
                self.view.undecodable.retain(|(of, name)| *of != kind || listed.contains(name));
                let known = self.view.all(kind).into_iter().map(|object| object.name());
                let gone: Vec<_> = known.filter(|name| !listed.contains(name)).collect();
                for name in &gone {
                    self.remove(kind, name);
                }
                first || !gone.is_empty() || broken != self.undecodable.len()
            }
        }
    }

    /// An object is not undecodable any more; whether it was.
    fn mended(&mut self, kind: Kind, name: &ObjectName) -> bool {
        let key = (kind, name.clone());
        self.view.undecodable.remove(&key) | self.undecodable.remove(&key).is_some()
    }

    /// A lease that names what its address is kept for.
    fn wish(&mut self, lease: &AllocationLease) {
        let Some(wish) = lease.spec.retain_while.as_ref().map(Retaining::from) else { return };
        if !self.gone.contains(&wish) {
            self.view.retaining.insert(wish.clone());
        }
        *self.wishes.entry(wish).or_default() += 1;
    }

    /// A version of a lease that is gone. With the last lease that names an object, what is known of that goes as well.
    fn end_wish(&mut self, lease: &AllocationLease) {
        let Some(wish) = lease.spec.retain_while.as_ref().map(Retaining::from) else { return };
        match self.wishes.get_mut(&wish) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                self.wishes.remove(&wish);
                self.gone.remove(&wish);
                self.view.retaining.remove(&wish);
            }
        }
    }

    fn remove(&mut self, kind: Kind, name: &ObjectName) -> bool {
        if let Some(Object::AllocationLease(lease)) = self.view.get(kind, name) {
            self.seen.gone(&lease);
            self.end_wish(&lease);
        }
        self.view.remove(kind, name)
    }
}

/// Whether what is known of an object is what is told, or newer: the watch tells of our own writes as well, and perhaps of
/// the version before only after a write's answer came. Versions of one kind are numbers that grow.
fn is_as_new(known: &Object, told: &Object) -> bool {
    let (known, told) = (known.metadata(), told.metadata());
    let number = |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<u64>().ok());
    match (number(&known.resource_version), number(&told.resource_version)) {
        (Some(ours), Some(theirs)) => known.uid == told.uid && ours >= theirs,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
