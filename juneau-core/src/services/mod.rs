//! Parts that Services are compiled with: which backend has which slot, where slots lie, and the numbers of what has
//! one.

pub mod maglev;
