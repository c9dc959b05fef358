//! Our own data path: the real programs, with tables that are filled without an agent.

mod content;
mod nodes;
mod paths;
mod pins;

pub use content::{Cluster, GATEWAY_MAC, HERE, Member, Place, VPC, spread};
pub use nodes::{open, open_for};
pub use paths::{Headroom, ours_local, ours_nodes};
pub use pins::{PIN_ROOT, mount_pins};
