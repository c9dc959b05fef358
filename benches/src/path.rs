//! A path: two Pods, what lies between them, and a server in one of them.

use std::any::Any;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::cpu::{self, ProcessId};
use crate::error::{Error, Result};
use crate::load::{Load, Server, run_in};
use crate::namespace::Namespace;

/// Share of datagrams that may be lost for a figure to count, and datagrams that may still be on their way when the
/// client ends.
const LOST_AT_MOST: f64 = 0.001;
const ON_THEIR_WAY: u64 = 64;

/// Two Pods that reach each other, ready to be measured.
pub struct Path {
    name: String,
    client: Namespace,
    host: Ipv4Addr,
    server: Server,
    soft_interrupts: Vec<ProcessId>,
    cpu: usize,
    check: Box<dyn Fn() -> Result<()>>,
    programs: Vec<u32>,
    // Dropped last: nodes, programs and links between the Pods.
    _between: Vec<Box<dyn Any>>,
}

impl Path {
    /// Starts a server in one Pod and asks it from the other, so that a path that leads nowhere is noticed here.
    /// `between` is kept as long as the path.
    ///
    /// # Errors
    /// As [`Server::start`] and [`Self::measure`].
    pub fn new(name: impl Into<String>, pods: Pods, cpu: usize, between: Vec<Box<dyn Any>>) -> Result<Self> {
        let server = Server::start(&pods.server, cpu)?;
        let path = Self {
            name: name.into(),
            client: pods.client,
            host: pods.host,
            server,
            soft_interrupts: cpu::soft_interrupt_threads(),
            cpu,
            check: Box::new(|| Ok(())),
            programs: Vec::new(),
            _between: between.into_iter().chain([Box::new(pods.server) as _]).collect(),
        };
        for load in [Load::Transaction, Load::Packet] {
            path.measure(load, Duration::from_millis(20))?;
        }
        Ok(path)
    }

    /// Adds what must hold once all figures are taken.
    #[must_use]
    pub fn with_check(mut self, check: impl Fn() -> Result<()> + 'static) -> Self {
        self.check = Box::new(check);
        self
    }

    /// Says which programs the path runs, by the kernel's ids.
    #[must_use]
    pub fn with_programs(mut self, programs: Vec<u32>) -> Self {
        self.programs = programs;
        self
    }

    /// The kernel's ids of the programs that the path runs, where they are known.
    #[must_use]
    pub fn programs(&self) -> &[u32] {
        &self.programs
    }

    /// Whether the figures taken so far say what they should.
    ///
    /// # Errors
    /// Why they do not.
    pub fn check(&self) -> Result<()> {
        (self.check)()
    }

    /// What the path is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a load for about `time`; answers the processor time of one unit, in nanoseconds.
    ///
    /// # Errors
    /// [`Error::Load`] when the client fails, [`Error::Lost`] when packets do not arrive.
    pub fn measure(&self, load: Load, time: Duration) -> Result<f64> {
        let others = || {
            let server = (load != Load::Packet).then_some(self.server.pid);
            cpu::time_of(self.soft_interrupts.iter().copied().chain(server))
        };
        let arrivals = || cpu::udp_arrivals(self.server.pid).unwrap_or_default();
        let (before, arrived_before) = (others(), arrivals());
        let outcome = run_in(&self.client, &self.name, load, self.host, time, self.cpu)?;
        let (after, arrived) = (others(), arrivals() - arrived_before);
        let missing = outcome.count.saturating_sub(arrived).saturating_sub(ON_THEIR_WAY);
        if load == Load::Packet && missing as f64 > outcome.count as f64 * LOST_AT_MOST {
            return Err(Error::Lost { path: self.name.clone(), sent: outcome.count, arrived });
        }
        let spent = outcome.cpu + after.saturating_sub(before);
        Ok(spent.as_nanos() as f64 / outcome.count as f64)
    }
}

/// The ends of a path.
pub struct Pods {
    /// Where the client runs.
    pub client: Namespace,
    /// Where the server runs.
    pub server: Namespace,
    /// The server's address as the client sees it.
    pub host: Ipv4Addr,
}
