//! Which interfaces and endpoints a node holds: all that are on it, and of others those of VPCs that something on it is
//! in.
//!
//! What is not needed is not held. A VPC that becomes needed is read anew, Subnet by Subnet; until it has been read
//! whole, nothing of it is shown, so that nobody acts on half of it. What a watch tells in the meantime is newer than
//! what is read, or will be told again. A VPC that is no longer needed is forgotten after a while.

use crate::view::{Kind, Object, Text, View};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Kinds of which only a part is held.
pub(super) const PARTIAL: [Kind; 2] = [Kind::NetworkInterface, Kind::NetworkEndpoint];

/// Namespace and name.
pub(super) type Name = (Text, Text);
/// Kind, namespace and name.
pub(super) type Id = (Kind, Name);

/// Where an object belongs.
#[derive(Debug)]
pub(super) enum Place {
    /// Into the view.
    View(Object),
    /// It is held until its VPC can be shown.
    Behind,
    /// It is not held.
    Nowhere,
}

/// What was forgotten.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    pub(super) subnets: BTreeSet<Text>,
    pub(super) own: Vec<(Id, Object)>,
    pub(super) next: Option<Instant>,
}

/// What a node needs, and what waits to be shown.
#[derive(Debug)]
pub(super) struct Needs {
    node: Text,
    /// How long what is not needed stays.
    keep: Duration,
    /// What is on this node, and its Subnet.
    own: BTreeMap<Id, Text>,
    /// Subnets whose workloads are held.
    subnets: BTreeMap<Text, Need>,
    /// What a watch or a list told of Subnets that are not shown yet.
    staged: BTreeMap<Id, Staged>,
    /// How often something became needed.
    turn: u64,
    /// Something may be shown now.
    dirty: bool,
}

#[derive(Debug)]
enum Staged {
    There(Object),
    /// It was taken away in this turn. What became needed later is read later, and may tell of it again.
    Gone(u64),
}

impl Staged {
    const fn there(&self) -> Option<&Object> {
        match self {
            Self::There(object) => Some(object),
            Self::Gone(_) => None,
        }
    }
}

#[derive(Debug)]
struct Need {
    vpc: Text,
    /// The turn in which it became needed.
    since: u64,
    needed: bool,
    /// When it is forgotten, once it is known that it is not needed.
    forget_at: Option<Instant>,
    /// Kinds that were read whole.
    whole: BTreeSet<Kind>,
    /// Its workloads are in the view.
    shown: bool,
}

impl Need {
    fn is_whole(&self) -> bool {
        PARTIAL.iter().all(|kind| self.whole.contains(kind))
    }
}

impl Needs {
    pub(super) fn new(node: Text, keep: Duration) -> Self {
        Self {
            node,
            keep,
            own: BTreeMap::new(),
            subnets: BTreeMap::new(),
            staged: BTreeMap::new(),
            turn: 0,
            dirty: false,
        }
    }

    /// A watch told an object: where it belongs. What belongs into the view is returned.
    pub(super) fn take(&mut self, id: &Id, object: Object, view: &mut View) -> Place {
        let Some((node, subnet)) = place(&object) else { return Place::View(object) };
        let is_own = *node == self.node;
        let subnet = subnet.cloned();
        let own = subnet.clone().filter(|_| is_own);
        let before = match &own {
            Some(subnet) => self.own.insert(id.clone(), Arc::clone(subnet)),
            None => self.own.remove(id),
        };
        if before != own {
            self.renew(view);
        }
        match subnet.and_then(|subnet| self.subnets.get(&subnet)) {
            Some(need) if !need.shown => {
                remove(view, id);
                self.staged.insert(id.clone(), Staged::There(object));
                Place::Behind
            }
            None if !is_own => {
                self.vanish(id);
                remove(view, id);
                Place::Nowhere
            }
            _ => {
                self.staged.remove(id);
                Place::View(object)
            }
        }
    }

    /// Whether an object that was read with a Subnet is one that no watch has told of since the Subnet is needed.
    pub(super) fn is_news(&self, id: &Id, subnet: &str, object: Option<&Object>, view: &View) -> bool {
        // Not every server can be asked for one Subnet.
        let belongs =
            object.is_none_or(|object| place(object).and_then(|(_, of)| of).is_some_and(|of| **of == *subnet));
        let is_known = match self.staged.get(id) {
            Some(Staged::There(_)) => true,
            Some(Staged::Gone(turn)) => self.subnets.get(subnet).is_none_or(|need| *turn >= need.since),
            None => view.get(id.0, &id.1.0, &id.1.1).is_some(),
        };
        belongs && !is_known
    }

    /// A watch told that an object is gone.
    pub(super) fn delete(&mut self, id: &Id, view: &mut View) {
        if !PARTIAL.contains(&id.0) {
            return;
        }
        self.vanish(id);
        if self.own.remove(id).is_some() {
            self.renew(view);
        }
    }

    /// An object is not held any more. What is being read may tell of it still.
    fn vanish(&mut self, id: &Id) {
        if self.waiting() > 0 {
            self.staged.insert(id.clone(), Staged::Gone(self.turn));
        } else {
            self.staged.remove(id);
        }
    }

    /// Subnets of which a list of everything, which begins now, will tell all.
    pub(super) fn covered(&self) -> BTreeSet<Text> {
        self.subnets.keys().cloned().collect()
    }

    /// A list of everything has ended: what it did not tell is gone, and of `covered` it told all.
    pub(super) fn listed(&mut self, kind: Kind, told: &BTreeSet<Name>, covered: &BTreeSet<Text>, view: &mut View) {
        self.staged.retain(|id, _| id.0 != kind || told.contains(&id.1));
        self.own.retain(|id, _| id.0 != kind || told.contains(&id.1));
        self.renew(view);
        for subnet in covered {
            self.read(kind, subnet);
        }
    }

    /// A kind of a Subnet was read whole.
    pub(super) fn read(&mut self, kind: Kind, subnet: &str) {
        if let Some(need) = self.subnets.get_mut(subnet) {
            need.whole.insert(kind);
            self.dirty = true;
        }
    }

    /// What has to be read.
    pub(super) fn unread(&self) -> impl Iterator<Item = (Kind, &Text)> {
        let needed = self.subnets.iter().filter(|(_, need)| need.needed);
        needed.flat_map(|(name, need)| {
            PARTIAL.into_iter().filter(|kind| !need.whole.contains(kind)).map(move |kind| (kind, name))
        })
    }

    /// Finds anew which Subnets are needed: those of VPCs that something on this node is in.
    pub(super) fn renew(&mut self, view: &mut View) {
        self.dirty = true;
        let vpc_of = |subnet: &Text| view.subnets.get(subnet).map(|item| Arc::clone(&item.object.vpc));
        let vpcs: BTreeSet<Text> = self.own.values().filter_map(vpc_of).collect();
        for need in self.subnets.values_mut() {
            need.needed = false;
        }
        let (mut new, turn) = (BTreeSet::new(), self.turn + 1);
        for (name, item) in view.subnets.iter().filter(|(_, item)| vpcs.contains(&item.object.vpc)) {
            let need = self.subnets.entry(Arc::clone(name)).or_insert_with(|| {
                new.insert(Arc::clone(name));
                let whole = BTreeSet::new();
                Need { vpc: Text::default(), since: turn, needed: true, forget_at: None, whole, shown: false }
            });
            need.vpc = Arc::clone(&item.object.vpc);
            (need.needed, need.forget_at) = (true, None);
        }
        if !new.is_empty() {
            self.turn = turn;
        }
        // What is on this node was in the view while nobody knew its Subnet.
        for (id, _) in self.own.iter().filter(|(_, subnet)| new.contains(*subnet)) {
            if let Some(object) = view.get(id.0, &id.1.0, &id.1.1) {
                self.staged.insert(id.clone(), Staged::There(object));
                remove(view, id);
            }
        }
    }

    /// What may be shown now, since its VPC was read whole.
    pub(super) fn show(&mut self) -> Vec<(Id, Object)> {
        if !std::mem::take(&mut self.dirty) {
            return Vec::new();
        }
        let unread = self.subnets.values().filter(|need| need.needed && !need.is_whole());
        let waiting: BTreeSet<Text> = unread.map(|need| Arc::clone(&need.vpc)).collect();
        let mut shown = BTreeSet::new();
        for (name, need) in self.subnets.iter_mut().filter(|(_, need)| need.needed) {
            if !need.shown && !waiting.contains(&need.vpc) {
                need.shown = true;
                shown.insert(Arc::clone(name));
            }
        }
        let objects = self.take_staged(&shown);
        if self.waiting() == 0 {
            // Nobody is going to tell again of what is gone.
            self.staged.retain(|_, staged| staged.there().is_some());
        }
        objects
    }

    /// Forgets what has not been needed for long enough. Yields what is to be shown for all that, since it is on this
    /// node; which Subnets are forgotten; and when to ask again.
    pub(super) fn forget(&mut self, now: Instant, view: &mut View) -> Forgotten {
        let mut forgotten = Forgotten::default();
        for (name, need) in self.subnets.iter_mut().filter(|(_, need)| !need.needed) {
            let at = *need.forget_at.get_or_insert(now + self.keep);
            if at <= now {
                forgotten.subnets.insert(Arc::clone(name));
            } else {
                forgotten.next = Some(forgotten.next.map_or(at, |next| next.min(at)));
            }
        }
        if forgotten.subnets.is_empty() {
            return forgotten;
        }
        self.subnets.retain(|name, _| !forgotten.subnets.contains(name));
        self.dirty = true;
        let own = self.take_staged(&forgotten.subnets).into_iter();
        forgotten.own = own.filter(|(id, _)| self.own.contains_key(id)).collect();
        let held = PARTIAL.map(|kind| view.names(kind).into_iter().map(move |name| (kind, name)));
        for id in held.into_iter().flatten() {
            let object = view.get(id.0, &id.1.0, &id.1.1);
            let subnet = object.as_ref().and_then(place).and_then(|(_, subnet)| subnet);
            if subnet.is_some_and(|subnet| forgotten.subnets.contains(subnet)) && !self.own.contains_key(&id) {
                remove(view, &id);
            }
        }
        forgotten
    }

    /// Takes what is staged of some Subnets.
    fn take_staged(&mut self, subnets: &BTreeSet<Text>) -> Vec<(Id, Object)> {
        let mut taken = Vec::new();
        if !subnets.is_empty() {
            let is_meant = |staged: &Staged| {
                let subnet = staged.there().and_then(place).and_then(|(_, subnet)| subnet);
                subnet.is_some_and(|subnet| subnets.contains(subnet))
            };
            for (id, staged) in self.staged.extract_if(.., |_, staged| is_meant(staged)) {
                if let Staged::There(object) = staged {
                    taken.push((id, object));
                }
            }
        }
        taken
    }

    fn waiting(&self) -> usize {
        self.subnets.values().filter(|need| !need.is_whole()).count()
    }
}

fn remove(view: &mut View, id: &Id) {
    view.remove(id.0, &id.1.0, &id.1.1);
}

/// The node and the Subnet of what only a part is held of.
fn place(object: &Object) -> Option<(&Text, Option<&Text>)> {
    match object {
        Object::NetworkInterface(object) => Some((&object.node, object.subnet.as_ref())),
        Object::NetworkEndpoint(object) => Some((&object.node, object.subnet.as_ref())),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
