//! A Pod's interface on this node: its names, what its alias records, and how it is made.

mod record;
mod wire;

pub use juneau_api::names::host_veth;
pub use record::{Nic, Record, RecordError, Subject};
pub use wire::{INTERFACE, LINK_GROUP, Wiring, bring_up, create, other_end};
