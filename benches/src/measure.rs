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
    /// Constant redirects between two Pods of a node.
    WireLocal,
    /// The leanest router on one node.
    LeanLocal,
    /// Our programs on one node.
    OursLocal,
    /// Three veth pairs with constant redirects.
    Wire,
    /// Bridge, routing and a VXLAN device.
    Flannel,
    /// The leanest router between two nodes.
    LeanNodes,
    /// Our programs between two nodes.
    OursNodes,
    /// The same with room for our headers in the Pods' packets.
    OursHeadroom,
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

const fn rate(name: &'static str, load: Load, path: Variant, base: Variant, goal: Option<Bound>) -> Measure {
    Measure { name, load, figure: Figure::Rate, path, base, goal }
}

/// All measures of whole paths.
pub const MEASURES: &[Measure] = &{
    use Bound::{AtLeast, AtMost};
    use Load::{Connection, Packet, Stream, Transaction};
    use Variant::{Direct, Flannel, LeanLocal, LeanNodes, OursHeadroom, OursLocal, OursNodes, Wire, WireLocal};
    [
        cost("same node: TCP transaction / direct veth", Transaction, OursLocal, Direct, Some(AtMost(1.07))),
        cost("same node: UDP packet / direct veth", Packet, OursLocal, Direct, Some(AtMost(1.12))),
        cost("same node: connection / direct veth", Connection, OursLocal, Direct, Some(AtMost(1.09))),
        cost("same node: UDP packet / lean", Packet, OursLocal, LeanLocal, Some(AtMost(1.03))),
        rate("same node: TCP stream, rate / direct veth", Stream, OursLocal, Direct, Some(AtLeast(0.97))),
        cost("nodes: UDP packet / wire", Packet, OursNodes, Wire, Some(AtMost(1.18))),
        cost("nodes: UDP packet / Flannel shape", Packet, OursNodes, Flannel, Some(AtMost(0.50))),
        cost("nodes: UDP packet, headroom / Flannel shape", Packet, OursHeadroom, Flannel, Some(AtMost(0.48))),
        cost("nodes: TCP transaction / wire", Transaction, OursNodes, Wire, Some(AtMost(1.07))),
        cost("nodes: connection / wire", Connection, OursNodes, Wire, Some(AtMost(1.10))),
        cost("nodes: GB of TCP / wire", Stream, OursNodes, Wire, Some(AtMost(1.08))),
        // What the machine makes of a constant redirect and of the leanest programs, and of ours beside them.
        cost("same node: TCP transaction, constant redirect / direct veth", Transaction, WireLocal, Direct, None),
        cost("same node: UDP packet, constant redirect / direct veth", Packet, WireLocal, Direct, None),
        cost("same node: connection, constant redirect / direct veth", Connection, WireLocal, Direct, None),
        cost("same node: TCP transaction, lean / direct veth", Transaction, LeanLocal, Direct, None),
        cost("same node: UDP packet, lean / direct veth", Packet, LeanLocal, Direct, None),
        cost("same node: connection, lean / direct veth", Connection, LeanLocal, Direct, None),
        cost("nodes: UDP packet, lean / wire", Packet, LeanNodes, Wire, None),
        cost("nodes: UDP packet / lean", Packet, OursNodes, LeanNodes, None),
        cost("nodes: UDP packet, headroom / wire", Packet, OursHeadroom, Wire, None),
        cost("nodes: TCP transaction, lean / wire", Transaction, LeanNodes, Wire, None),
        cost("nodes: TCP transaction, headroom / wire", Transaction, OursHeadroom, Wire, None),
        cost("nodes: connection, lean / wire", Connection, LeanNodes, Wire, None),
        cost("nodes: connection, headroom / wire", Connection, OursHeadroom, Wire, None),
        cost("nodes: GB of TCP, lean / wire", Stream, LeanNodes, Wire, None),
    ]
};
