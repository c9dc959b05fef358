//! What runs in every Pod of the lab, and in those of a cluster that is checked: it answers with the Pod's name, remembers what reached it, and probes others.
//!
//! Two tenants use equal addresses, so that an answer alone proves nothing: it must come from the right Pod. Hence
//! every probe carries a number, every TCP and UDP answer the answering Pod's name, and every Pod keeps a list of the
//! numbers that it saw, of ICMP echo requests, too.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod cli;
mod error;
mod icmp;
mod probe;
mod protocol;
mod serve;

pub use error::{ResponderError, Result};
pub use protocol::{Order, Outcome, ProbeOrder, ProbeReport, Protocol, Sighting, call};

use crate::error::Context;
use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The TCP and UDP port at which Pods of the lab answer.
pub const PORT: u16 = 7777;

/// Sightings that a Pod keeps; the oldest go first.
const SIGHTINGS: usize = 65_536;

/// What the parts of one responder share.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    name: Arc<str>,
    seen: Arc<Mutex<VecDeque<Sighting>>>,
    icmp: Arc<icmp::Icmp>,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, VecDeque<Sighting>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, id: u64, protocol: Protocol) {
        let mut seen = self.seen();
        if seen.len() == SIGHTINGS {
            seen.pop_front();
        }
        seen.push_back(Sighting { id, protocol });
    }

    /// What the Pod saw of the probes of one check (the upper half of their numbers).
    fn sightings(&self, check: u32) -> Vec<Sighting> {
        self.seen().iter().filter(|sighting| sighting.id >> 32 == u64::from(check)).copied().collect()
    }
}

/// Answers in this process's network namespace as the Pod `name`, and takes orders at `socket`, until the process
/// ends. Writes a line to standard output when everything listens.
///
/// # Errors
/// When a socket cannot be had.
pub fn run(name: &str, socket: &Path) -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context(|| "starting a runtime")?;
    runtime.block_on(async {
        let shared = Shared {
            name: name.into(),
            seen: Arc::default(),
            icmp: Arc::new(icmp::Icmp::open().context(|| "opening a raw ICMP socket")?),
        };
        let servers = serve::Servers::bind(socket).await?;
        let mut out = std::io::stdout();
        writeln!(out, "ready").and_then(|()| out.flush()).context(|| "saying that the responder is ready")?;
        servers.run(shared).await
    })
}
