//! Where a [`View`](crate::view::View) comes from.

#[cfg(feature = "client")]
pub mod client;
pub mod decode;
pub mod directory;
mod needs;
pub mod objects;
pub mod planned;
pub mod store;
#[cfg(feature = "client")]
pub mod watch;
