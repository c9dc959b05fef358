//! What is wrong now, by who found it; told once when it comes and once when it goes.

use crate::protocol;
use juneau_core::model::Problem;
use std::collections::{BTreeMap, BTreeSet};

/// Who found a problem. Each replaces its own problems only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Finder {
    /// Listing the directory.
    Directory,
    /// Understanding objects.
    Objects,
    /// The underlay and the VXLAN device.
    Underlay,
    /// Loading and attaching programs.
    Programs,
    /// Keeping the node's sockets from the overlay's port.
    Cgroup,
    /// Programs of others in front of ours.
    Chain,
    /// Finding the underlay's ways to other nodes.
    Ways,
    /// Compiling objects to tables.
    Compile,
    /// Writing tables.
    Tables,
    /// Neighbours of other nodes.
    Neighbours,
    /// Expiring flows.
    Sweep,
    /// The node's own way to Pods.
    NodePort,
    /// Installing the CNI plugin.
    Plugin,
    /// Executing probes.
    Probes,
}

/// The problems of this node.
#[derive(Debug, Default)]
pub(super) struct Problems {
    found: BTreeMap<Finder, BTreeSet<Problem>>,
}

impl Problems {
    /// Replaces what `finder` found; logs what is new and what is over.
    pub(super) fn set(&mut self, finder: Finder, problems: impl IntoIterator<Item = Problem>) {
        let now: BTreeSet<Problem> = problems.into_iter().collect();
        let before = self.found.insert(finder, now.clone()).unwrap_or_default();
        for problem in now.difference(&before) {
            tracing::warn!(
                object = %problem.object, origin = %problem.origin, remedy = %problem.remedy, "{}", problem.message
            );
        }
        for problem in before.difference(&now) {
            tracing::info!(object = %problem.object, "no longer: {}", problem.message);
        }
    }

    /// Those that keep the node from being ready.
    pub(super) fn blocking(&self) -> impl Iterator<Item = &Problem> {
        self.by(&[Finder::Underlay, Finder::Programs, Finder::Tables])
    }

    /// Those that keep objects from being read.
    pub(super) fn of_source(&self) -> impl Iterator<Item = &Problem> {
        let watches = self.by(&[Finder::Objects]).filter(|problem| problem.object.starts_with("watch of "));
        self.by(&[Finder::Directory]).chain(watches)
    }

    /// Whether something failed that may succeed when it is tried again, without any object changing.
    pub(super) fn transient(&self) -> bool {
        let finders = [
            Finder::Directory,
            Finder::Underlay,
            Finder::Programs,
            Finder::Tables,
            Finder::Neighbours,
            Finder::NodePort,
        ];
        self.by(&finders).next().is_some()
    }

    fn by<'a>(&'a self, finders: &[Finder]) -> impl Iterator<Item = &'a Problem> {
        let finders = finders.to_vec();
        self.found.iter().filter(move |(finder, _)| finders.contains(finder)).flat_map(|(_, problems)| problems)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.found.values().map(BTreeSet::len).sum()
    }

    /// All of them, sorted by object.
    pub(super) fn list(&self) -> Vec<protocol::Problem> {
        let mut list: Vec<_> = self.found.values().flatten().map(to_protocol).collect();
        list.sort();
        list
    }

    /// Those about one object.
    pub(super) fn about<'a>(&'a self, object: &'a str) -> impl Iterator<Item = &'a Problem> {
        self.found.values().flatten().filter(move |problem| problem.object == object)
    }
}

fn to_protocol(problem: &Problem) -> protocol::Problem {
    protocol::Problem {
        object: problem.object.clone(),
        message: problem.message.clone(),
        remedy: problem.remedy.clone(),
        origin: problem.origin.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finders_replace_their_own_only() {
        let mut problems = Problems::default();
        problems.set(Finder::Objects, [Problem::new("b", "m", "r"), Problem::new("c", "m", "r")]);
        problems.set(Finder::Tables, [Problem::new("a", "m", "r")]);
        let objects: Vec<_> = problems.list().into_iter().map(|problem| problem.object).collect();
        assert_eq!(objects, ["a", "b", "c"]);
        problems.set(Finder::Objects, []);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems.blocking().count(), 1);
        assert_eq!(problems.about("a").count(), 1);
    }
}
