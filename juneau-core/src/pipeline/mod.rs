//! The reference data path: what happens to a packet, by the rules of `docs/datapath.md`.
//!
//! `parse → flow → (miss) service → route → deliver → policy → commit → emit`, one file a stage. The path is generic over the
//! tables ([`TableRead`]), the flow state ([`FlowTable`]) and what else a node remembers ([`NodeState`]); it runs over
//! memory ([`Pipeline`]), over an embedder's own, and, read only, over a live node's maps.
//!
//! A packet's fate is a value, [`Outcome`]. An error ([`PathError`]) says that a table could not be read or written,
//! which in memory does not happen.

mod arp;
mod commit;
mod context;
mod decide;
mod deliver;
mod emit;
mod flow;
mod fragment;
mod icmp;
mod overlay;
mod owned;
mod parse;
mod pod;
mod policy;
mod reject;
mod route;
mod service;
mod state;
mod translate;
mod underlay;

pub use owned::{Counters, Limits, Pipeline};
pub use state::{DryState, Generations, Learned, MemState};

use crate::flow::FlowTable;
use crate::layout::{Be16, Be32, Seeds, Step, be32};
use crate::tables::{Endpoints, Fib, Policies, Services};
use crate::time::Now;
use crate::verdict::{Hook, Reason, Verdict};
use core::net::Ipv4Addr;

/// Every table that a packet's way is read from.
pub trait TableRead: Fib + Endpoints + Policies + Services {}
impl<T: Fib + Endpoints + Policies + Services> TableRead for T {}

/// What a node remembers besides flows.
pub trait NodeState: Generations + Learned {}
impl<S: Generations + Learned> NodeState for S {}

/// What a data path is told once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// This node's address on the underlay.
    pub vtep: Be32,
    /// UDP port of VXLAN.
    pub vxlan_port: Be16,
    /// Seeds of the flow hash.
    pub seeds: Seeds,
}

impl Config {
    /// A node at this address, with VXLAN's own port (RFC 7348).
    #[must_use]
    pub const fn new(vtep: Ipv4Addr, seeds: Seeds) -> Self {
        Self { vtep: be32(vtep), vxlan_port: Be16::new(4789), seeds }
    }
}

/// A packet as a hook sees it.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Which hook.
    pub hook: Hook,
    /// The device.
    pub ifindex: u32,
    /// From the Ethernet header on.
    pub frame: &'a [u8],
    /// A VLAN tag lies in the metadata.
    pub vlan_present: bool,
    /// Payload of one segment of a GSO packet; 0 for others.
    pub gso_size: u32,
    /// The link layer found the packet addressed to this host.
    pub to_host: bool,
    /// What the VXLAN device took off (hook VXLAN).
    pub tunnel: Option<Tunnel>,
}

impl<'a> Packet<'a> {
    /// A packet without metadata.
    #[must_use]
    pub const fn new(hook: Hook, ifindex: u32, frame: &'a [u8]) -> Self {
        Self { hook, ifindex, frame, vlan_present: false, gso_size: 0, to_host: true, tunnel: None }
    }
}

/// The tunnel key that the VXLAN device leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunnel {
    /// The VNI.
    pub vni: u32,
    /// The outer source.
    pub source: Ipv4Addr,
}

/// What became of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What happens, and why.
    pub verdict: Verdict,
    /// The frame that leaves: rewritten, encapsulated (outer MAC addresses are 0: the neighbour is not known here) or an
    /// answer. Of a packet that is dropped or passed on: as it came.
    pub frame: Vec<u8>,
    /// The one counter that it moves.
    pub count: Count,
    /// Why it leaves by the VXLAN device, if it does (`DEVICE_*`).
    pub device: Option<u32>,
    /// The way it took.
    pub trail: Vec<Step>,
}

/// The counter that a packet moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Count {
    /// None: the packet was not ours.
    None,
    /// Delivered.
    Traffic {
        /// The VPC's number on this node.
        vpc_index: u16,
        /// `FROM_POD` or `FROM_OVERLAY`.
        direction: u32,
        /// Bytes of the inner frame as it arrived.
        bytes: u64,
    },
    /// Every other exit.
    Exit {
        /// Where.
        hook: Hook,
        /// Why.
        reason: Reason,
        /// An answer left in the packet's stead.
        answered: bool,
    },
}

/// A table or some state could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error("{what}: {source}")]
pub struct PathError {
    /// What was tried.
    pub what: &'static str,
    /// Why it failed.
    pub source: Box<dyn core::error::Error + Send + Sync>,
}

/// A data path over borrowed tables and state.
#[derive(Debug)]
pub struct Path<'a, T, F, S> {
    /// What was told once.
    pub config: &'a Config,
    /// What was decided.
    pub tables: &'a T,
    /// Flow state.
    pub flows: &'a mut F,
    /// What else the node remembers.
    pub state: &'a mut S,
    /// The moment.
    pub now: Now,
}

impl<T: TableRead, F: FlowTable, S: NodeState> Path<'_, T, F, S> {
    /// Sends a packet down the path.
    ///
    /// # Errors
    /// When a table cannot be read or written. The packet's state may have been changed in part then.
    pub fn handle(&mut self, packet: &Packet<'_>) -> Result<Outcome, PathError> {
        let mut run = context::Run {
            config: self.config,
            tables: self.tables,
            flows: self.flows,
            state: self.state,
            now: self.now,
            packet,
            slow: false,
            trail: Vec::new(),
        };
        let exit = match packet.hook {
            Hook::Pod | Hook::NodePort => run.pod(),
            Hook::Overlay | Hook::Vxlan => run.overlay(),
            // The other hooks see no packet that this path decides.
            _ => Ok(run.passed()),
        };
        match exit {
            Ok(outcome) => Ok(outcome),
            Err(context::Stop::Drop(reason)) => Ok(run.dropped(reason)),
            Err(context::Stop::Fault(error)) => Err(error),
        }
    }
}
