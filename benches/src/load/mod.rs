//! The loads: what runs over a path while its processor time is counted.
//!
//! Client and server are processes of their own, bound to one processor, so that a figure is the cost of a packet's
//! whole way and no wake-up of another processor is in it.

mod client;
mod process;
mod server;

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub use client::run as run_client;
pub use process::{Server, run_in};
pub use server::serve;

/// Answers whatever it reads, by TCP.
const ECHO_PORT: u16 = 5000;
/// A UDP socket whose buffer is full: what arrives is counted by the kernel and forgotten.
const FULL_PORT: u16 = 5002;
/// Reads and forgets, by TCP.
const SINK_PORT: u16 = 5003;

/// A kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
pub enum Load {
    /// One-way UDP datagrams of 18 bytes (frames of 60) to a socket that is full. Counted in packets.
    Packet,
    /// One byte there and one byte back on an open TCP connection.
    Transaction,
    /// Connect, one byte there and back, close by RST (no port waits).
    Connection,
    /// One TCP stream in writes of 128 KiB. Counted in bytes.
    Stream,
}

impl Load {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Packet, Self::Transaction, Self::Connection, Self::Stream];

    /// What one unit is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Packet => "UDP packet",
            Self::Transaction => "TCP transaction",
            Self::Connection => "connection",
            Self::Stream => "byte of TCP",
        }
    }

    /// Writes an amount of processor time for one unit the way people read it.
    #[must_use]
    pub fn describe(self, nanoseconds: f64) -> String {
        match self {
            Self::Packet => format!("{nanoseconds:.0} ns"),
            Self::Transaction | Self::Connection => format!("{:.2} µs", nanoseconds / 1e3),
            Self::Stream => format!("{nanoseconds:.3} s/GB"),
        }
    }
}

/// What a client says about its run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Outcome {
    /// Units done.
    pub count: u64,
    /// Units that failed.
    pub failed: u64,
    /// The client's own processor time.
    pub cpu: Duration,
}
