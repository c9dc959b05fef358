//! stay
