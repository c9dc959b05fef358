//! Among which endpoints new connections choose.

use super::Here;
use crate::view::{Hints, SliceEndpoint, Text};
use core::net::SocketAddr;
use juneau_core::model::Choice;
use std::collections::BTreeMap;

/// What is known of an endpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'s> {
    pub(super) is_ready: bool,
    pub(super) is_serving: bool,
    is_terminating: bool,
    is_local: bool,
    hints: Option<&'s Hints>,
}

impl<'s> Candidate<'s> {
    pub(super) fn new(endpoint: &'s SliceEndpoint, here: Here<'_>) -> Self {
        Self {
            is_ready: endpoint.is_ready,
            is_serving: endpoint.is_serving,
            is_terminating: endpoint.is_terminating,
            is_local: endpoint.node.as_deref() == Some(here.node),
            hints: endpoint.hints.as_deref(),
        }
    }

    /// Of two that are one endpoint, the higher counts.
    pub(super) const fn rank(&self) -> (bool, bool, bool, bool) {
        (self.is_local, self.is_ready, self.is_serving, !self.is_terminating)
    }

    /// It is used only where none is ready.
    const fn is_fallback(&self) -> bool {
        !self.is_ready && self.is_serving && self.is_terminating
    }

    fn nodes(&self) -> &'s [Text] {
        self.hints.map_or(&[], |hints| &hints.nodes)
    }

    fn zones(&self) -> &'s [Text] {
        self.hints.map_or(&[], |hints| &hints.zones)
    }
}

/// Those that take new connections of this node's endpoints.
pub(super) fn choose(all: &BTreeMap<SocketAddr, Candidate<'_>>, local: bool, here: Here<'_>) -> Choice {
    let in_scope = || all.iter().filter(|(_, candidate)| !local || candidate.is_local);
    let ready = || in_scope().filter(|(_, candidate)| candidate.is_ready);
    // Hints do not count among those of one node.
    let narrowed = if local { None } else { narrowed(ready().map(|(_, candidate)| candidate), here) };
    let mut backends = match narrowed {
        Some(Narrowed::Node) => {
            ready().filter(|(_, candidate)| has(candidate.nodes(), here.node)).map(address).collect()
        }
        Some(Narrowed::Zone(zone)) => {
            ready().filter(|(_, candidate)| has(candidate.zones(), zone)).map(address).collect()
        }
        None => ready().map(address).collect::<std::collections::BTreeSet<_>>(),
    };
    if backends.is_empty() {
        backends = in_scope().filter(|(_, candidate)| candidate.is_fallback()).map(address).collect();
    }
    // A Service that nobody serves anywhere rejects, whatever its policy.
    let is_served = all.values().any(|candidate| candidate.is_ready || candidate.is_fallback());
    Choice { backends, local_only: local && is_served }
}

fn address((address, _): (&SocketAddr, &Candidate<'_>)) -> SocketAddr {
    *address
}

fn has(names: &[Text], name: &str) -> bool {
    names.iter().any(|other| **other == *name)
}

/// To what the hints narrow the choice.
enum Narrowed<'h> {
    Node,
    Zone(&'h str),
}

/// Hints count only if every ready endpoint has them, and one is for us: those for nodes before those for zones.
fn narrowed<'c, 'h>(ready: impl Iterator<Item = &'c Candidate<'c>>, here: Here<'h>) -> Option<Narrowed<'h>> {
    let (mut all_nodes, mut all_zones) = (true, true);
    let (mut for_node, mut for_zone) = (false, false);
    for candidate in ready {
        all_nodes &= !candidate.nodes().is_empty();
        all_zones &= !candidate.zones().is_empty();
        for_node |= has(candidate.nodes(), here.node);
        for_zone |= here.zone.is_some_and(|zone| has(candidate.zones(), zone));
    }
    if all_nodes && for_node {
        Some(Narrowed::Node)
    } else if all_zones && for_zone {
        here.zone.map(Narrowed::Zone)
    } else {
        None
    }
}
