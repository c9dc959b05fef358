//! Which interfaces of Pods are attached, as the kernel's devices tell.

use crate::net::Link;
use crate::node_port;
use crate::pod::{LINK_GROUP, Nic, Record, Subject};
use juneau_core::id::{IfIndex, MacAddr};
use juneau_core::model::{Attachment, Attachments};
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// The host's end of a Pod's interface.
#[derive(Debug, Clone)]
pub(super) struct Attached {
    pub(super) container_id: String,
    pub(super) name: String,
    pub(super) ifindex: IfIndex,
    pub(super) mac: MacAddr,
    /// Since when no object of this node speaks of the interface.
    pub(super) unknown_since: Option<Instant>,
}

/// Attached interfaces.
#[derive(Debug, Default)]
pub(super) struct Pods {
    by_nic: BTreeMap<Nic, Attached>,
}

/// What a look at the devices found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Something is other than it was thought to be.
    pub(super) changed: bool,
    /// Devices of ours that belong to nobody: half made, or a second one of an interface.
    pub(super) leftovers: Vec<(u32, String)>,
}

impl Pods {
    /// Takes over what the devices tell.
    pub(super) fn adopt(&mut self, links: &[Link]) -> Seen {
        let mut seen = Seen::default();
        let mut found: BTreeMap<Nic, Attached> = BTreeMap::new();
        // Of two devices of one interface the younger counts: the older would have been deleted next.
        let mut ours: Vec<&Link> =
            links.iter().filter(|link| link.group == LINK_GROUP && link.kind.as_deref() == Some("veth")).collect();
        ours.retain(|link| !node_port::is_part(&link.name));
        ours.sort_by_key(|link| std::cmp::Reverse(link.index));
        for link in ours {
            let record = link.alias.as_deref().and_then(Record::from_alias);
            let (Some(record), Some(mut attached)) = (record, Attached::from_link(link)) else {
                seen.leftovers.push((link.index, link.name.clone()));
                continue;
            };
            if found.contains_key(&record.nic) {
                seen.leftovers.push((link.index, link.name.clone()));
                continue;
            }
            attached.container_id = record.container_id;
            attached.unknown_since = self.by_nic.get(&record.nic).and_then(|before| before.unknown_since);
            found.insert(record.nic, attached);
        }
        let identity = |pods: &BTreeMap<Nic, Attached>| -> BTreeSet<(Nic, u32)> {
            pods.iter().map(|(nic, pod)| (nic.clone(), pod.ifindex.get())).collect()
        };
        seen.changed = identity(&found) != identity(&self.by_nic);
        self.by_nic = found;
        seen
    }

    pub(super) fn get(&self, nic: &Nic) -> Option<&Attached> {
        self.by_nic.get(nic)
    }

    pub(super) fn insert(&mut self, record: &Record, link: &Link) -> Option<&Attached> {
        let mut attached = Attached::from_link(link)?;
        attached.container_id.clone_from(&record.container_id);
        self.by_nic.insert(record.nic.clone(), attached);
        self.by_nic.get(&record.nic)
    }

    pub(super) fn remove(&mut self, nic: &Nic) {
        self.by_nic.remove(nic);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Nic, &Attached)> {
        self.by_nic.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Nic, &mut Attached)> {
        self.by_nic.iter_mut()
    }

    /// Those of one Pod, whatever their sandbox.
    pub(super) fn of(&self, subject: &Subject) -> Vec<(Nic, Attached)> {
        let own = self.by_nic.iter().filter(|(nic, _)| nic.subject == *subject);
        own.map(|(nic, pod)| (nic.clone(), pod.clone())).collect()
    }

    /// Those of one sandbox.
    pub(super) fn of_sandbox(&self, container_id: &str) -> Vec<(Nic, Attached)> {
        let own = self.by_nic.iter().filter(|(_, pod)| pod.container_id == container_id);
        own.map(|(nic, pod)| (nic.clone(), pod.clone())).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.by_nic.len()
    }

    /// Attachments by the names of their endpoints.
    pub(super) fn attachments(&self, name: impl Fn(&Nic) -> String) -> Attachments {
        let attachment = |pod: &Attached| Attachment {
            ifindex: pod.ifindex,
            host_mac: pod.mac,
            container_id: pod.container_id.clone(),
        };
        self.by_nic.iter().map(|(nic, pod)| (name(nic), attachment(pod))).collect()
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
            peer_namespace: None,
            kind: Some("veth".into()),
            vxlan: None,
        }
    }

    #[test]
    fn devices_tell_who_is_attached() {
        let mut pods = Pods::default();
        let mut foreign = link(9, None);
        foreign.group = 0;
        let second = link(6, Some("juneau c2 red/a eth1"));
        let links =
            [link(3, Some("juneau c1 red/a")), link(4, Some("juneau c2 red/a")), link(5, None), second, foreign];
        let seen = pods.adopt(&links);
        assert!(seen.changed);
        assert_eq!(seen.leftovers, [(5, "eth05".to_owned()), (3, "eth03".to_owned())]);
        let pod = pods.get(&Nic::new("red", "a", "eth0")).unwrap();
        assert_eq!((pod.container_id.as_str(), pod.ifindex.get()), ("c2", 4));
        let of: Vec<_> =
            pods.of(&Subject::new("red", "a")).into_iter().map(|(nic, pod)| (nic.interface, pod.name)).collect();
        assert_eq!(of, [("eth0".to_owned(), "eth04".to_owned()), ("eth1".to_owned(), "eth06".to_owned())]);
        assert_eq!((pods.of_sandbox("c2").len(), pods.of_sandbox("c1").len()), (2, 0));
        assert!(!pods.adopt(&links).changed);
        assert!(pods.adopt(&links[..1]).changed, "the device is another one");
        assert!(pods.adopt(&[]).changed);
    }
}
