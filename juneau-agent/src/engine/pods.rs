//! Which Pods are attached, as the kernel's devices tell.

use crate::net::Link;
use crate::pod::{LINK_GROUP, Record, Subject};
use juneau_core::id::{IfIndex, MacAddr};
use juneau_core::model::{Attachment, Attachments};
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// A Pod's host veth.
#[derive(Debug, Clone)]
pub(super) struct Attached {
    pub(super) container_id: String,
    pub(super) name: String,
    pub(super) ifindex: IfIndex,
    pub(super) mac: MacAddr,
    /// Since when no object of this node speaks of the Pod.
    pub(super) unknown_since: Option<Instant>,
}

/// Attached Pods.
#[derive(Debug, Default)]
pub(super) struct Pods {
    by_subject: BTreeMap<Subject, Attached>,
}

/// What a look at the devices found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Something is other than it was thought to be.
    pub(super) changed: bool,
    /// Devices of ours that belong to nobody: half made, or a second one of a Pod.
    pub(super) leftovers: Vec<(u32, String)>,
}

impl Pods {
    /// Takes over what the devices tell.
    pub(super) fn adopt(&mut self, links: &[Link]) -> Seen {
        let mut seen = Seen::default();
        let mut found: BTreeMap<Subject, Attached> = BTreeMap::new();
        // Of two devices of one Pod the younger counts: the older would have been deleted next.
        let mut ours: Vec<&Link> =
            links.iter().filter(|link| link.group == LINK_GROUP && link.kind.as_deref() == Some("veth")).collect();
        ours.sort_by_key(|link| std::cmp::Reverse(link.index));
        for link in ours {
            let record = link.alias.as_deref().and_then(Record::from_alias);
            let (Some(record), Some(mut attached)) = (record, Attached::from_link(link)) else {
                seen.leftovers.push((link.index, link.name.clone()));
                continue;
            };
            if found.contains_key(&record.subject) {
                seen.leftovers.push((link.index, link.name.clone()));
                continue;
            }
            attached.container_id = record.container_id;
            attached.unknown_since = self.by_subject.get(&record.subject).and_then(|before| before.unknown_since);
            found.insert(record.subject, attached);
        }
        let identity = |pods: &BTreeMap<Subject, Attached>| -> BTreeSet<(Subject, u32)> {
            pods.iter().map(|(subject, pod)| (subject.clone(), pod.ifindex.get())).collect()
        };
        seen.changed = identity(&found) != identity(&self.by_subject);
        self.by_subject = found;
        seen
    }

    pub(super) fn get(&self, subject: &Subject) -> Option<&Attached> {
        self.by_subject.get(subject)
    }

    pub(super) fn insert(&mut self, record: &Record, link: &Link) -> Option<&Attached> {
        let mut attached = Attached::from_link(link)?;
        attached.container_id.clone_from(&record.container_id);
        self.by_subject.insert(record.subject.clone(), attached);
        self.by_subject.get(&record.subject)
    }

    pub(super) fn remove(&mut self, subject: &Subject) {
        self.by_subject.remove(subject);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Subject, &Attached)> {
        self.by_subject.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Subject, &mut Attached)> {
        self.by_subject.iter_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.by_subject.len()
    }

    /// Attachments by the names of their endpoints.
    pub(super) fn attachments(&self, name: impl Fn(&Subject) -> String) -> Attachments {
        let attachment = |pod: &Attached| Attachment {
            ifindex: pod.ifindex,
            host_mac: pod.mac,
            container_id: pod.container_id.clone(),
        };
        self.by_subject.iter().map(|(subject, pod)| (name(subject), attachment(pod))).collect()
    }
}

impl Attached {
    fn from_link(link: &Link) -> Option<Self> {
        Some(Self {
            container_id: String::new(),
            name: link.name.clone(),
            ifindex: IfIndex::new(link.index).ok()?,
            mac: MacAddr::new(link.mac?).ok()?,
            unknown_since: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, alias: Option<&str>) -> Link {
        Link {
            index,
            name: format!("eth0{index}"),
            alias: alias.map(str::to_owned),
            group: LINK_GROUP,
            mtu: 1450,
            up: true,
            mac: Some([2, 0, 0, 0, 0, 1]),
            peer: None,
            kind: Some("veth".into()),
            vxlan: None,
        }
    }

    #[test]
    fn devices_tell_who_is_attached() {
        let mut pods = Pods::default();
        let mut foreign = link(9, None);
        foreign.group = 0;
        let links = [link(3, Some("juneau c1 red/a")), link(4, Some("juneau c2 red/a")), link(5, None), foreign];
        let seen = pods.adopt(&links);
        assert!(seen.changed);
        assert_eq!(seen.leftovers, [(5, "eth05".to_owned()), (3, "eth03".to_owned())]);
        let pod = pods.get(&Subject::new("red", "a")).unwrap();
        assert_eq!((pod.container_id.as_str(), pod.ifindex.get()), ("c2", 4));
        assert!(!pods.adopt(&links).changed);
        assert!(pods.adopt(&links[..1]).changed, "the device is another one");
        assert!(pods.adopt(&[]).changed);
    }
}
