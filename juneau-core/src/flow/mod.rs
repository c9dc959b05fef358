//! Flow state: a connection is two entries, one for each direction as its packets arrive at this node.
//!
//! [`FlowTable`] opens both or neither, counts them against the VPC's limits, and lets them go when they are idle.
//! [`MemFlowTable`] holds them in memory; over the kernel's maps user space reads alone ([`FlowRead`]), since the
//! programs write.

mod idle;
mod memory;
mod read_only;

pub use idle::{Activity, activity, idle_limit, is_idle};
pub use memory::MemFlowTable;
pub use read_only::ReadOnly;

use crate::layout::{
    Be16, Be32, FLOW_NAT, Flow, FlowKey, REWRITE_DESTINATION, REWRITE_DESTINATION_PORT, REWRITE_SOURCE,
    REWRITE_SOURCE_PORT, Seeds, VpcState,
};
use crate::packet::difference;
use crate::time::Now;

/// FIN of the TCP flags (RFC 9293, 3.1).
pub const TCP_FIN: u8 = 0x01;
/// SYN.
pub const TCP_SYN: u8 = 0x02;
/// RST.
pub const TCP_RST: u8 = 0x04;
/// ACK.
pub const TCP_ACK: u8 = 0x10;

/// TCP flags that an entry tells its peer.
pub const TCP_SHARED: u8 = TCP_FIN | TCP_SYN | TCP_RST;

/// Flow state that can be read.
pub trait FlowRead {
    /// What a read may end in; `Infallible` in memory.
    type Error: core::error::Error + Send + Sync + 'static;

    /// The entry of a direction. One whose tags do not belong to the key is none.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn lookup(&self, key: &FlowKey) -> Result<Option<Flow>, Self::Error>;

    /// What a VPC uses of its limits.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn vpc_state(&self, vpc_index: u16) -> Result<VpcState, Self::Error>;

    /// Entries, two for most connections.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn len(&self) -> Result<usize, Self::Error>;

    /// Whether there is no entry.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn is_empty(&self) -> Result<bool, Self::Error> {
        self.len().map(|len| len == 0)
    }

    /// Most entries.
    fn capacity(&self) -> usize;

    /// Shows every entry, in no order. Entries that come or go meanwhile may be missed.
    ///
    /// # Errors
    /// When the table cannot be read.
    fn for_each(&self, visit: &mut dyn FnMut(&FlowKey, &Flow)) -> Result<(), Self::Error>;
}

impl<F: FlowRead + ?Sized> FlowRead for &F {
    type Error = F::Error;

    fn lookup(&self, key: &FlowKey) -> Result<Option<Flow>, F::Error> {
        (**self).lookup(key)
    }

    fn vpc_state(&self, vpc_index: u16) -> Result<VpcState, F::Error> {
        (**self).vpc_state(vpc_index)
    }

    fn len(&self) -> Result<usize, F::Error> {
        (**self).len()
    }

    fn capacity(&self) -> usize {
        (**self).capacity()
    }

    fn for_each(&self, visit: &mut dyn FnMut(&FlowKey, &Flow)) -> Result<(), F::Error> {
        (**self).for_each(visit)
    }
}

/// Flow state that moves with packets.
pub trait FlowTable: FlowRead {
    /// Opens a connection: both directions or neither, within the VPC's limits. The table fills in the tags, and the
    /// peers where they turn out otherwise than wanted.
    ///
    /// # Errors
    /// When the table cannot be written. A refusal is no error but an outcome.
    fn commit(&mut self, opening: &Opening) -> Result<Committed, Self::Error>;

    /// Replaces one entry, which was decided again; nothing is counted. `false` when it is gone and there is no room.
    ///
    /// # Errors
    /// When the table cannot be written.
    fn replace(&mut self, key: &FlowKey, flow: &Flow) -> Result<bool, Self::Error>;

    /// The same of an entry whose answers arrive under another key now, `flow.peer`: `reverse` is inserted there first,
    /// and the `old` peer goes. Of a flow that is not translated the old peer stays, in `flow` too, when another one
    /// holds that key or there is no room.
    ///
    /// # Errors
    /// When the table cannot be written.
    fn replace_pair(
        &mut self,
        key: &FlowKey,
        flow: &mut Flow,
        reverse: &Flow,
        old: &FlowKey,
    ) -> Result<Replaced, Self::Error>;

    /// Changes in place what may change in place. An entry that is gone is left alone.
    ///
    /// # Errors
    /// When the table cannot be written.
    fn touch(&mut self, key: &FlowKey, touch: Touch) -> Result<(), Self::Error>;

    /// Takes in the first answer: the entry and its peer are embryonic no more, and the VPC has one less such.
    ///
    /// # Errors
    /// When the table cannot be written.
    fn answered(&mut self, key: &FlowKey) -> Result<(), Self::Error>;

    /// Takes one answer, an ICMP error or an RST, from the VPC's budget of this stamp; `false` when it is used up.
    ///
    /// # Errors
    /// When the table cannot be written.
    fn take_icmp(&mut self, vpc_index: u16, limit: u32, now: Now) -> Result<bool, Self::Error>;

    /// Removes idle connections. Looks at up to `budget` entries and goes on there the next time.
    ///
    /// # Errors
    /// When the table cannot be read or written.
    fn expire(&mut self, now: Now, budget: usize) -> Result<Expired, Self::Error>;
}

/// A connection to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// The VPC's number on this node.
    pub vpc_index: u16,
    /// Connections that the VPC may have.
    pub flow_limit: u32,
    /// Unanswered connections that the VPC may have.
    pub embryonic_limit: u32,
    /// The direction of the packet that opens it.
    pub forward: (FlowKey, Flow),
    /// The direction of its answers; none with `FLOW_SINGLE`.
    pub reverse: Option<(FlowKey, Flow)>,
    /// The forward key is held by a connection that has ended, whose place this one takes.
    pub reused: bool,
}

/// What became of an [`Opening`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Committed {
    /// Both directions stand.
    Both,
    /// The forward direction stands alone.
    Single,
    /// Somebody else opened the same connection; his entries stand.
    Held,
    /// Another connection has the answers' key, and one of the two is translated: another port will do. Nothing changed.
    Taken,
    /// The VPC has as many connections as it may have.
    QuotaFlows,
    /// The VPC has as many unanswered connections as it may have.
    QuotaEmbryonic,
    /// No room.
    Full,
}

/// What became of an entry that was decided again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replaced {
    /// It stands.
    Yes,
    /// Another connection has the answers' key, and one of the two is translated: another port will do. Nothing changed.
    Taken,
    /// No room.
    Full,
}

/// Changes of an entry in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Touch {
    /// Last seen.
    pub stamp: Option<u32>,
    /// Found current at this epoch.
    pub epoch: Option<u32>,
    /// Flags to set.
    pub flags: u32,
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expired {
    /// Entries looked at.
    pub examined: usize,
    /// Entries removed.
    pub removed: usize,
}

impl Flow {
    /// The flow with the tags of a key and a birth number.
    #[must_use]
    pub fn tagged(mut self, seeds: Seeds, key: &FlowKey, birth: u32) -> Self {
        self.tag = (u64::from(seeds.tag_hash(key)) << 32) | u64::from(birth);
        self.tag_last = self.tag;
        self.tag_low = birth;
        self
    }

    /// Whether both tags are equal and of this key. An entry of a map may have been recycled while it was read.
    #[must_use]
    pub fn is_of(&self, seeds: Seeds, key: &FlowKey) -> bool {
        self.tag == self.tag_last && (self.tag >> 32) as u32 == seeds.tag_hash(key)
    }

    /// The flow as one that arrives with `key` and leaves as its peer turned round: what a translation changes, if it is
    /// one.
    #[must_use]
    pub fn translated(self, key: &FlowKey) -> Self {
        let out = self.peer.reversed();
        let source = (out.source != key.source, REWRITE_SOURCE);
        let destination = (out.destination != key.destination, REWRITE_DESTINATION);
        let source_port = (out.source_port != key.source_port, REWRITE_SOURCE_PORT);
        let destination_port = (out.destination_port != key.destination_port, REWRITE_DESTINATION_PORT);
        let bits =
            |changes: [(bool, u8); 2]| changes.iter().filter(|(set, _)| *set).fold(0, |bits, (_, bit)| bits | bit);
        let (addresses, ports) = (bits([source, destination]), bits([source_port, destination_port]));
        let rewrite = addresses | ports;
        let words = |source: Be32, destination: Be32| {
            let [a, b, c, d] = source.to_bytes();
            let [e, f, g, h] = destination.to_bytes();
            [[a, b], [c, d], [e, f], [g, h]].map(u16::from_ne_bytes)
        };
        let pair =
            |source: Be16, destination: Be16| [source, destination].map(|port| u16::from_ne_bytes(port.to_bytes()));
        let of_addresses = difference(&words(key.source, key.destination), &words(out.source, out.destination));
        let of_ports =
            difference(&pair(key.source_port, key.destination_port), &pair(out.source_port, out.destination_port));
        Self {
            rewrite,
            address_difference: if addresses == 0 { 0 } else { of_addresses },
            port_difference: if ports == 0 { 0 } else { of_ports },
            flags: self.flags & !FLOW_NAT | if rewrite == 0 { 0 } else { FLOW_NAT },
            ..self
        }
    }

    /// Whether all of these bits are set.
    #[must_use]
    pub const fn has(&self, flags: u32) -> bool {
        self.flags & flags == flags
    }

    /// Whether any of these TCP flags was seen in either direction.
    #[must_use]
    pub const fn saw(&self, tcp: u8) -> bool {
        (self.flags | self.flags >> 8) & tcp as u32 != 0
    }
}
