//! The data paths that ours is compared with.

mod direct;
mod flannel;
mod lean;
mod programs;
mod topology;
mod wire;

pub use direct::direct;
pub use flannel::flannel;
pub use lean::{lean_local, lean_nodes};
pub use programs::{Config, PeerObject};
pub use topology::{LOCAL_MTU, Node, OneNode, POD_MTU, Pod, TwoNodes, UNDERLAY_MTU};
pub use wire::{wire, wire_local};
