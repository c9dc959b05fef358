//! The figures of whole paths and their goals.
//!
//! Goals are ratios, because a machine's own speed decides most of an absolute figure. A base runs twice, as two
//! instances that were built alike: their ratio to each other shows what the machine does to equal things, and is
//! added to the goal.

use crate::load::Load;
use crate::report::Bound;

/// A data path that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// A veth pair between two Pods.
    Direct,
    /// The leanest router on one node.
    LeanLocal,
    /// Three veth pairs with constant redirects.
    Wire,
    /// Bridge, routing and a VXLAN device.
    Flannel,
    /// The leanest router between two nodes.
    LeanNodes,
}

impl Variant {
    /// Whether other paths are compared with it.
    #[must_use]
    pub fn is_base(self) -> bool {
        MEASURES.iter().any(|measure| measure.base == self)
    }
}

/// How a load's processor time becomes a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Processor time of one unit.
    Cost,
    /// Units for a given processor time: its reciprocal, which is the rate of a processor that does nothing else.
    Rate,
}

/// A path against its base under one load.
#[derive(Debug, Clone, Copy)]
pub struct Measure {
    /// As it stands in the table.
    pub name: &'static str,
    /// What runs.
    pub load: Load,
    /// Cost or rate.
    pub figure: Figure,
    /// Which path.
    pub path: Variant,
    /// Against which.
    pub base: Variant,
    /// What the ratio must be; `None` where it only informs.
    pub goal: Option<Bound>,
}

const fn cost(name: &'static str, load: Load, path: Variant, base: Variant, goal: Option<Bound>) -> Measure {
    Measure { name, load, figure: Figure::Cost, path, base, goal }
}

/// All measures of whole paths.
pub const MEASURES: &[Measure] = &[
    cost("same node: UDP packet, lean / direct veth", Load::Packet, Variant::LeanLocal, Variant::Direct, None),
    cost("nodes: UDP packet, lean / wire", Load::Packet, Variant::LeanNodes, Variant::Wire, None),
    cost("nodes: UDP packet, lean / Flannel shape", Load::Packet, Variant::LeanNodes, Variant::Flannel, None),
    cost("nodes: byte of TCP, lean / wire", Load::Stream, Variant::LeanNodes, Variant::Wire, None),
];
