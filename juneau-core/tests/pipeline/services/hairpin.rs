//! hairpin
