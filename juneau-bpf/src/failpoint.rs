//! A place before every write to the kernel where a test may stop the process or refuse the write.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is done to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Programs and maps of an object are created.
    Load,
    /// A map is created.
    MapCreate,
    /// A map is opened or examined.
    MapOpen,
    /// Elements are read.
    MapRead,
    /// An element is written.
    MapUpdate,
    /// Elements are written by one command.
    MapUpdateBatch,
    /// An element is removed.
    MapDelete,
    /// Elements are removed by one command.
    MapDeleteBatch,
    /// A word of a mapped map is changed.
    MapWord,
    /// A map is mapped into memory.
    MapMmap,
    /// A pin is created.
    Pin,
    /// A pin is removed.
    Unpin,
    /// A pin is opened or a pin directory is read.
    PinRead,
    /// A directory of pins is created.
    DirectoryCreate,
    /// A directory of pins is removed.
    DirectoryRemove,
    /// A program is attached.
    LinkCreate,
    /// An attachment gets another program.
    LinkUpdate,
    /// An attachment is removed.
    LinkDetach,
    /// Attachments are read.
    LinkRead,
    /// A program is run on a test packet.
    TestRun,
    /// The kernel is asked what it can do.
    Probe,
}

impl Operation {
    /// The operation in words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::MapCreate => "creation",
            Self::MapOpen => "opening",
            Self::MapRead => "reading",
            Self::MapUpdate => "update",
            Self::MapUpdateBatch => "batch update",
            Self::MapDelete => "removal of an element",
            Self::MapDeleteBatch => "batch removal",
            Self::MapWord => "change of a word",
            Self::MapMmap => "mapping",
            Self::Pin => "pinning",
            Self::Unpin => "unpinning",
            Self::PinRead => "reading the pin",
            Self::DirectoryCreate => "creation of the directory",
            Self::DirectoryRemove => "removal of the directory",
            Self::LinkCreate => "attachment",
            Self::LinkUpdate => "replacement of the program",
            Self::LinkDetach => "detachment",
            Self::LinkRead => "query",
            Self::TestRun => "test run",
            Self::Probe => "probe",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// A write that is about to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Write<'a> {
    /// Counts writes from 1, over everything that shares the failpoint.
    pub number: u64,
    /// What is done.
    pub operation: Operation,
    /// To which map, pin or device.
    pub object: &'a str,
}

/// Is told of every write before it happens.
pub trait Failpoint: Send + Sync {
    /// An error refuses the write, as if the kernel had.
    ///
    /// # Errors
    /// What the caller of the write shall see.
    fn before(&self, write: &Write<'_>) -> io::Result<()>;
}

impl<F: Fn(&Write<'_>) -> io::Result<()> + Send + Sync> Failpoint for F {
    fn before(&self, write: &Write<'_>) -> io::Result<()> {
        self(write)
    }
}

/// The failpoint of a [`crate::Dataplane`]; by default none. Clones share it and its counter.
#[derive(Clone, Default)]
pub struct Failpoints(Option<Arc<Hooked>>);

struct Hooked {
    count: AtomicU64,
    hook: Box<dyn Failpoint>,
}

impl Failpoints {
    /// Calls `hook` before every write.
    #[must_use]
    pub fn new(hook: impl Failpoint + 'static) -> Self {
        Self(Some(Arc::new(Hooked { count: AtomicU64::new(0), hook: Box::new(hook) })))
    }

    pub(crate) fn before(&self, operation: Operation, object: &str) -> io::Result<()> {
        let Some(hooked) = &self.0 else { return Ok(()) };
        let number = hooked.count.fetch_add(1, Ordering::Relaxed) + 1;
        hooked.hook.before(&Write { number, operation, object })
    }
}

impl fmt::Debug for Failpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Failpoints(set)" } else { "Failpoints(none)" })
    }
}
