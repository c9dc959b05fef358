//! Container images of this repository's programs.
//!
//! An image is static programs, their licences and a list of what they are made of: no shell, no library, no base image.
//! The archive that comes out is an OCI image layout in a tar file, which runtimes import and registries take.
//!
//! What decides is pure: [`Tree`] and [`Image`] make the bytes of an archive from their fields alone, and the same bytes
//! every time. [`programs`] and [`source`] ask cargo, the C compiler and git; nothing else looks at the machine.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod archive;
pub mod dependencies;
pub mod elf;
pub mod notices;
pub mod ours;
pub mod programs;
pub mod sbom;
pub mod source;
pub mod tree;

pub use archive::{Architecture, Archive, Image, ImageError};
pub use tree::{Tree, TreeError};
