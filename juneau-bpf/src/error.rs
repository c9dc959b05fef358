//! What can go wrong between this process and the kernel.

use std::io;
use std::path::PathBuf;

use crate::failpoint::Operation;

/// The outcome of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The properties by which a pinned map is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapShape {
    /// `enum bpf_map_type`.
    pub kind: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Elements, or bytes of a ring buffer.
    pub max_entries: u32,
    /// `BPF_F_*` of map creation.
    pub flags: u32,
}

impl std::fmt::Display for MapShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, key_size, value_size, max_entries, flags } = self;
        write!(f, "type {kind}, key {key_size}, value {value_size}, {max_entries} entries, flags {flags:#x}")
    }
}

/// An error of this crate. Each names what it is about and, where there is one, the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A map has no room for another element (`E2BIG`, `ENOSPC`, `ENOMEM`).
    #[error(
        "map {map} is full: its limit is {limit}; remove objects, or give it a larger size and a new ABI directory"
    )]
    Full {
        /// The map.
        map: String,
        /// Its number of elements.
        limit: u32,
    },
    /// An element that should exist does not.
    #[error("map {map} has no such element")]
    NotFound {
        /// The map.
        map: String,
    },
    /// An element that should be new exists.
    #[error("map {map} has this element already")]
    Conflict {
        /// The map.
        map: String,
    },
    /// The kernel refused an operation.
    #[error("{operation} of {object}: {source}")]
    Kernel {
        /// What was tried.
        operation: Operation,
        /// The map, program, pin or device.
        object: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A pinned map is not what this version would create.
    #[error(
        "map {map}, pinned in {directory}, has {found}, but {wanted} is wanted; keep the old sizes, or stop the node's \
         traffic and remove {directory}"
    )]
    ForeignMap {
        /// The map.
        map: String,
        /// Where it is pinned.
        directory: PathBuf,
        /// As it is.
        found: MapShape,
        /// As it should be.
        wanted: MapShape,
    },
    /// Elements of a size that the type in use does not have.
    #[error("map {map} has keys of {key_size} and values of {value_size} bytes, not of {key_type} and {value_type}")]
    WrongLayout {
        /// The map.
        map: String,
        /// Bytes of a key in the kernel.
        key_size: u32,
        /// Bytes of a value in the kernel.
        value_size: u32,
        /// Bytes of a key here.
        key_type: usize,
        /// Bytes of a value here.
        value_type: usize,
    },
    /// The pin directory is not in a bpffs.
    #[error("{path} is not in a BPF file system; mount one with `mount -t bpf bpf {path}`, or name another directory")]
    NotBpffs {
        /// The directory.
        path: PathBuf,
    },
    /// Another process has the pin directory.
    #[error("{path} is in use by another process; stop the other agent of this node first")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The object does not have a map, program or variable that it must have.
    #[error("the BPF object has no {what} {name}: it is of another version than this program")]
    ObjectLacks {
        /// `map`, `program`, `variable`, `member`.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// libbpf or the verifier refused the object.
    #[error("the BPF object does not load on this kernel: {source}")]
    Load {
        /// libbpf's reason.
        source: libbpf_rs::Error,
        /// The verifier's last words, if it spoke.
        log: String,
    },
    /// Tables could not be copied from one ABI to another.
    #[error("tables of another ABI: {source}")]
    Tables {
        /// Why.
        source: juneau_core::tables::TableError,
    },
    /// A map in memory and one in the kernel disagree about a bound.
    #[error("{what} {value} is out of range (limit {limit})")]
    OutOfRange {
        /// What is too large.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The first value that is too large.
        limit: u64,
    },
}

impl Error {
    /// The kernel's error number, where there is one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Kernel { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    pub(crate) fn kernel<S: Into<String>>(operation: Operation, object: S) -> impl FnOnce(io::Error) -> Self + use<S> {
        let object = object.into();
        move |source| Self::Kernel { operation, object, source }
    }
}
