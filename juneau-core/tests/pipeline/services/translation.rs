//! translation
