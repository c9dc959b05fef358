//! What the stages of one packet hand to each other.

use super::{Config, Count, Outcome, Packet, PathError};
use crate::layout::{Be16, Be32, Flow, FlowKey, Step};
use crate::time::Now;
use crate::verdict::{Action, Reason, Verdict};
use core::net::Ipv4Addr;

/// One packet's way.
pub(super) struct Run<'a, T, F, S> {
    pub(super) config: &'a Config,
    pub(super) tables: &'a T,
    pub(super) flows: &'a mut F,
    pub(super) state: &'a mut S,
    pub(super) now: Now,
    pub(super) packet: &'a Packet<'a>,
    pub(super) slow: bool,
    pub(super) trail: Vec<Step>,
}

/// Why a stage does not go on.
pub(super) enum Stop {
    /// The packet ends here, without an answer.
    Drop(Reason),
    /// A table failed.
    Fault(PathError),
}

/// Why no way was found for a packet; some of it is told to the sender.
pub(super) enum Refusal {
    /// The packet ends here; `mtu` of `FRAGMENTATION_NEEDED`. `settled`: it was not decided while a change went on.
    Refused { reason: Reason, mtu: u16, settled: bool },
    /// A table failed.
    Fault(PathError),
}

impl Refusal {
    pub(super) const fn new(reason: Reason) -> Self {
        Self::Refused { reason, mtu: 0, settled: true }
    }

    /// The same of what was decided while a change went on, unless it was `settled`.
    pub(super) fn while_settled(self, settled: bool) -> Self {
        match self {
            Self::Refused { reason, mtu, .. } => Self::Refused { reason, mtu, settled },
            fault @ Self::Fault(_) => fault,
        }
    }
}

impl From<PathError> for Stop {
    fn from(error: PathError) -> Self {
        Self::Fault(error)
    }
}

impl From<PathError> for Refusal {
    fn from(error: PathError) -> Self {
        Self::Fault(error)
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Refused { reason, .. } => Self::Drop(reason),
            Refusal::Fault(error) => Self::Fault(error),
        }
    }
}

/// What reading a table ends in.
pub(super) type PathResult<T> = Result<T, PathError>;

/// Names what a failing table was asked.
pub(super) fn fault<E: core::error::Error + Send + Sync + 'static>(what: &'static str) -> impl Fn(E) -> PathError {
    move |error| PathError { what, source: Box::new(error) }
}

/// Which part of a datagram a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    First,
    Later,
}

/// A packet's headers as parsed. Offsets count from the beginning of the inner frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parsed {
    /// Scope word without protocol, addresses, ports.
    pub(super) key: FlowKey,
    /// Bytes of the inner frame.
    pub(super) frame: usize,
    /// What is compared with an MTU.
    pub(super) size: usize,
    /// Bytes of layer 4, as the IP header or the packet's length tell.
    pub(super) l4_length: usize,
    pub(super) gso: bool,
    pub(super) part: Part,
    pub(super) dont_fragment: bool,
    pub(super) id: Be16,
    pub(super) protocol: u8,
    pub(super) tos: u8,
    pub(super) ttl: u8,
    pub(super) tcp_flags: u8,
    pub(super) transit: bool,
    pub(super) icmp_error: bool,
}

/// A record that was found, and what it is worth.
#[derive(Debug, Clone, Copy)]
pub(super) enum Found {
    /// None.
    Nothing,
    /// It says where the packet goes.
    Hit(Flow),
    /// It must be decided again; flags and peer stay.
    Again(Flow),
    /// A new connection takes its ports.
    Reused,
}

/// Who sends, for routing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender {
    pub(super) vpc: u32,
    pub(super) table: u32,
    pub(super) vni: u32,
    pub(super) ifindex: u32,
    pub(super) gateway: Be32,
    pub(super) mac: [u8; 6],
}

impl<T, F, S> Run<'_, T, F, S> {
    pub(super) fn step(&mut self, stage: u32, code: u32, [a, b, c, d]: [u32; 4]) {
        self.trail.push(Step { stage, code, a, b, c, d });
    }

    fn outcome(&mut self, action: Action, reason: Reason, frame: Vec<u8>, count: Count) -> Outcome {
        let verdict = Verdict {
            action,
            reason,
            answered: false,
            ifindex: 0,
            vtep: Ipv4Addr::UNSPECIFIED,
            vni: 0,
            slow: self.slow,
        };
        Outcome { verdict, frame, count, device: None, trail: core::mem::take(&mut self.trail) }
    }

    /// The packet is not ours.
    pub(super) fn passed(&mut self) -> Outcome {
        self.outcome(Action::Pass, Reason::Ok, self.packet.frame.to_vec(), Count::None)
    }

    /// The packet is not ours, but told us something that is counted.
    pub(super) fn passed_counted(&mut self, reason: Reason) -> Outcome {
        let count = Count::Exit { hook: self.packet.hook, reason, answered: false };
        self.outcome(Action::Pass, reason, self.packet.frame.to_vec(), count)
    }

    pub(super) fn dropped(&mut self, reason: Reason) -> Outcome {
        let count = Count::Exit { hook: self.packet.hook, reason, answered: false };
        self.outcome(Action::Drop, reason, self.packet.frame.to_vec(), count)
    }

    /// An answer leaves through the interface where the packet came.
    pub(super) fn answer(&mut self, reason: Reason, frame: Vec<u8>) -> Outcome {
        let count = Count::Exit { hook: self.packet.hook, reason, answered: true };
        let mut outcome = self.outcome(Action::Answer, reason, frame, count);
        outcome.verdict.answered = true;
        outcome.verdict.ifindex = self.packet.ifindex;
        outcome
    }

    pub(super) fn delivered(
        &mut self,
        action: Action,
        flow: &Flow,
        direction: u32,
        frame: Vec<u8>,
        bytes: usize,
    ) -> Outcome {
        let count = Count::Traffic { vpc_index: flow.vpc_index, direction, bytes: bytes as u64 };
        let mut outcome = self.outcome(action, Reason::Ok, frame, count);
        if matches!(action, Action::Peer | Action::Node) {
            outcome.verdict.ifindex = flow.ifindex;
        } else {
            outcome.verdict.vtep = crate::layout::ipv4(flow.vtep);
            outcome.verdict.vni = flow.vni;
        }
        outcome
    }
}
