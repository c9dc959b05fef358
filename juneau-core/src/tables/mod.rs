//! Tables: what was decided, and the traits through which a data path reads them.
//!
//! [`Tables`] is a value: the exact content that every map should have on this node. [`Diff`] leads from one to
//! another in an order that is safe while packets pass. [`MemTables`] implements the traits in memory; `juneau-bpf`
//! implements them over the kernel's maps; `testkit::conformance` runs on both.

mod content;
mod diff;
mod memory;
mod shared;

pub use content::{Change, Table, Tables};
pub use diff::Diff;
pub use memory::{Capacities, MemTables};
pub use shared::{Differences, SharedMap};

use crate::layout::{
    Backend, Endpoint, Frontend, FrontendKey, Interface, Mac, Policy, PolicyKey, Route, Segment, Vpc, Vtep,
};
use core::net::{IpAddr, Ipv4Addr};

/// The routes of every table.
pub trait Fib {
    /// What a read may end in; `Infallible` in memory.
    type Error: core::error::Error + Send + Sync + 'static;

    /// The route of the longest prefix in `table` that covers `destination`.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn route(&self, table: u32, destination: IpAddr) -> Result<Option<Route>, Self::Error>;
}

/// Who is where.
pub trait Endpoints {
    /// What a read may end in; `Infallible` in memory.
    type Error: core::error::Error + Send + Sync + 'static;

    /// The record of an interface of this node. A record of kind 0 is none.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn interface(&self, ifindex: u32) -> Result<Option<Interface>, Self::Error>;

    /// What holds an address of a VPC, here or on another node.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn endpoint(&self, vpc: u32, address: IpAddr) -> Result<Option<Endpoint>, Self::Error>;

    /// Which endpoint of this node has a MAC address in a Subnet.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn mac(&self, vni: u32, mac: [u8; 6]) -> Result<Option<Mac>, Self::Error>;

    /// A Subnet that has an endpoint on this node.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn segment(&self, vni: u32) -> Result<Option<Segment>, Self::Error>;

    /// Another node, by its address on the underlay.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn vtep(&self, address: Ipv4Addr) -> Result<Option<Vtep>, Self::Error>;

    /// The limits of a VPC, by its number on this node. A record of VPC 0 is none.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn vpc(&self, index: u16) -> Result<Option<Vpc>, Self::Error>;
}

/// Who may talk to whom.
pub trait Policies {
    /// What a read may end in; `Infallible` in memory.
    type Error: core::error::Error + Send + Sync + 'static;

    /// The rule with exactly this key.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn policy(&self, key: &PolicyKey) -> Result<Option<Policy>, Self::Error>;
}

/// What Services are, and where they lead.
pub trait Services {
    /// What a read may end in; `Infallible` in memory.
    type Error: core::error::Error + Send + Sync + 'static;

    /// The record of a Service port, or of a Service's address, as a VPC meets it.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn frontend(&self, key: &FrontendKey) -> Result<Option<Frontend>, Self::Error>;

    /// The id in a slot; 0 is none.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn slot(&self, slot: u32) -> Result<u32, Self::Error>;

    /// The record of a backend. One that is not whole is none.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn backend(&self, id: u32) -> Result<Option<Backend>, Self::Error>;
}

/// The write half: tables that follow what was decided.
pub trait TablesMut {
    /// What a write may end in.
    type Error: core::error::Error + Send + Sync + 'static;

    /// Writes one element, or removes it.
    ///
    /// # Errors
    /// When the table is full, the element to remove does not exist, or the table cannot be written; nothing has
    /// changed then.
    fn apply(&mut self, change: &Change) -> Result<(), Self::Error>;

    /// Applies every change in order. The generations in [`Diff::generations`] are the caller's to move afterwards.
    ///
    /// # Errors
    /// The first that [`TablesMut::apply`] reports; the changes before it stand.
    fn apply_diff(&mut self, diff: &Diff) -> Result<(), Self::Error> {
        diff.changes.iter().try_for_each(|change| self.apply(change))
    }

    /// Elements of one table.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn len(&self, table: Table) -> Result<usize, Self::Error>;

    /// Most elements that one table takes.
    fn capacity(&self, table: Table) -> usize;

    /// Everything that the tables hold.
    ///
    /// # Errors
    /// When a table cannot be read.
    fn snapshot(&self) -> Result<Tables, Self::Error>;
}

/// Why tables could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// No room for one more element.
    #[error("{table} is full: {limit} elements")]
    Full {
        /// Which table.
        table: Table,
        /// Elements that it takes.
        limit: usize,
    },
    /// The element to remove does not exist.
    #[error("{table} has no element {key}")]
    NotFound {
        /// Which table.
        table: Table,
        /// The element's key.
        key: String,
    },
    /// The key is none that the table can hold.
    #[error("{table} cannot hold an element {key}")]
    Key {
        /// Which table.
        table: Table,
        /// The element's key.
        key: String,
    },
    /// Somebody else changed the table meanwhile.
    #[error("{table} was changed by another writer")]
    Conflict {
        /// Which table.
        table: Table,
    },
    /// The system refused.
    #[error("{operation} of {table}: {source}")]
    Io {
        /// Which table.
        table: Table,
        /// What was tried.
        operation: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
}
