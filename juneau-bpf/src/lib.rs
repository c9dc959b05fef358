//! The kernel's half of Juneau: loads, attaches, pins, adopts and upgrades the BPF programs and maps, and implements
//! `juneau-core`'s traits over the maps.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr))]

mod attach;
mod bpffs;
mod clock;
mod counters;
mod dataplane;
mod error;
mod events;
pub mod failpoint;
mod filters;
mod flows;
mod generation;
mod map;
mod object;
mod private_flows;
mod private_load;
mod remains;
mod sweep;
mod sys;
mod tables;
mod takeover;
#[cfg(test)]
mod testing;

pub use attach::{AttachPoint, Attachment, ForeignProgram, Mechanism};
pub use clock::{Clock, JIFFIES_PER_STAMP};
pub use counters::{Counters, ExitCount, TrafficCount};
pub use dataplane::{AttachMode, Dataplane, LoadId, NodeConfig, Options};
pub use error::{Error, MapShape, Result};
pub use events::{EventReader, EventSource};
pub use flows::Flows;
pub use generation::{Generations, HotLine};
pub use map::{Element, Map, Mode};
pub use object::MapSizes;
pub use private_flows::PrivateFlowTable;
pub use private_load::{PrivateLoad, Run, TestPacket};
pub use remains::{Remainder, Remains};
pub use sweep::{Sweeper, Swept};
pub use tables::KernelTables;
pub use takeover::TakeOver;

/// The object file that the build compiles from `bpf-src`: what [`Options::object`] is by default. Its type
/// information describes every map and every value of the ABI.
pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/juneau.bpf.o"));
