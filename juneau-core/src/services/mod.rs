//! Parts that Services are compiled with: which backend has which slot, and the numbers of what has one.

pub mod maglev;
mod numbers;

pub use numbers::Numbers;
