//! Sampled events out of the programs' ring.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use juneau_core::layout::Event;
use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use zerocopy::FromBytes;

use crate::dataplane::Dataplane;
use crate::error::{Error, Result};
use crate::failpoint::Operation;

const RING: &str = "jn_events";

/// Where events come from; may be sent to the thread that reads them.
#[derive(Debug, Clone, Copy)]
pub struct EventSource {
    ring: u32,
}

/// Reads events. One reader a node: what it has read, nobody else sees.
pub struct EventReader {
    ring: RingBuffer<'static>,
    read: Rc<RefCell<Vec<Event>>>,
}

impl std::fmt::Debug for EventReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventReader").finish_non_exhaustive()
    }
}

impl Dataplane {
    /// Where to read events. Which are wanted says [`crate::HotLine::set_events`].
    ///
    /// # Errors
    /// [`Error::ObjectLacks`].
    pub fn events(&self) -> Result<EventSource> {
        Ok(EventSource { ring: self.loaded.map(RING)?.info().id })
    }
}

impl EventSource {
    /// Begins to read.
    ///
    /// # Errors
    /// The kernel's.
    pub fn reader(&self) -> Result<EventReader> {
        let error = |source: libbpf_rs::Error| {
            Error::kernel(Operation::MapOpen, RING)(std::io::Error::other(source.to_string()))
        };
        let map = MapHandle::from_map_id(self.ring).map_err(error)?;
        let read = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&read);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&map, move |bytes| {
                if let Ok((event, _)) = Event::read_from_prefix(bytes) {
                    sink.borrow_mut().push(event);
                }
                0
            })
            .map_err(error)?;
        Ok(EventReader { ring: builder.build().map_err(error)?, read })
    }
}

impl EventReader {
    /// Waits up to `timeout` for events and returns those that are there; none after the timeout, or when a signal
    /// arrived.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self, timeout: Duration) -> Result<Vec<Event>> {
        let outcome = self.ring.poll_raw(timeout);
        if outcome < 0 && outcome != -libc::EINTR {
            return Err(Error::kernel(Operation::MapRead, RING)(std::io::Error::from_raw_os_error(-outcome)));
        }
        Ok(self.read.take())
    }
}
