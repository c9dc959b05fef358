//! Where a [`View`](crate::view::View) comes from.

pub mod decode;
pub mod directory;
pub mod planned;
pub mod store;
