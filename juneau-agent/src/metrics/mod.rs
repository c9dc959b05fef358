//! Metrics in OpenMetrics. Values are read when they are asked for; there is no copy that could be old.
//!
//! No label names a Pod, an address or a flow; the series are bounded by VPCs with endpoints on this node.

mod attach;
mod encode;
mod serve;

pub use attach::{AttachTimes, Stage, Stopwatch};
pub use encode::to_text;
pub use serve::serve;

/// Everything that is told at one scrape.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Exits but delivery.
    pub exits: Vec<Exit>,
    /// Delivered packets.
    pub delivered: Vec<Delivered>,
    /// Packets that left by the VXLAN device, by cause.
    pub devices: Vec<(&'static str, u64)>,
    /// Occupancy of maps.
    pub maps: Vec<MapUse>,
    /// Everything that can be programmed is.
    pub ready: bool,
    /// Number of the load in force.
    pub generation: u32,
    /// Objects with a problem.
    pub problems: u64,
    /// Attached Pods.
    pub attachments: u64,
    /// Objects that are held, by kind.
    pub held: Vec<(&'static str, u64)>,
    /// How often tables were applied.
    pub applies: u64,
    /// How often that failed, in part or whole.
    pub apply_failures: u64,
    /// Seconds from the last change seen to its being in force.
    pub apply_lag: f64,
    /// Connections that ended by their idle limit.
    pub expired: u64,
    /// How long attaching took.
    pub attach: AttachTimes,
}

/// Packets that ended under one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Where.
    pub hook: String,
    /// Why.
    pub reason: String,
    /// An answer left in their stead.
    pub answered: bool,
    /// How many.
    pub packets: u64,
}

/// Packets delivered for one VPC in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// VPC id.
    pub vpc: u32,
    /// `from-pod` or `from-overlay`.
    pub direction: &'static str,
    /// How many.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// How full a map is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapUse {
    /// The map's name.
    pub map: String,
    /// Elements in it.
    pub entries: u64,
    /// Elements that it takes.
    pub capacity: u64,
}
