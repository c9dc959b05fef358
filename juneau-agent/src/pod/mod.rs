//! A Pod's interface on this node: its names, what its alias records, and how it is made.

mod record;
mod wire;

pub use record::{Record, RecordError, Subject, host_name};
pub use wire::{INTERFACE, LINK_GROUP, Wiring, bring_up, create, is_wired};
