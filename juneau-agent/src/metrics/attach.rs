//! How long it takes to attach Pods, and with what the time goes.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::Histogram;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// Upper bounds, in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// What an attachment goes through, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Until whatever the agent was doing when it was asked is done.
    Queue,
    /// Until the Pod's objects are there. Of several that wait, one after the other is attached.
    Objects,
    /// Devices are made, and an earlier sandbox's taken away.
    Devices,
    /// Tables are computed and written.
    Tables,
    /// Programs are attached to the devices. The kernel waits for RCU with each, which most of it is.
    Programs,
    /// Devices are set up, with their addresses and routes.
    Addresses,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Queue, Self::Objects, Self::Devices, Self::Tables, Self::Programs, Self::Addresses];

    /// As a label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Objects => "objects",
            Self::Devices => "devices",
            Self::Tables => "tables",
            Self::Programs => "programs",
            Self::Addresses => "addresses",
        }
    }
}

/// A clock for one attachment.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    begun: Instant,
    last: Instant,
    took: [Duration; Stage::ALL.len()],
}

impl Stopwatch {
    /// Begins at a moment: when the request was read.
    #[must_use]
    pub fn from(begun: Instant) -> Self {
        Self { begun, last: begun, took: [Duration::ZERO; Stage::ALL.len()] }
    }

    /// What passed since the stage before ended was this one.
    pub fn end(&mut self, stage: Stage) {
        let now = Instant::now();
        for (other, took) in Stage::ALL.iter().zip(&mut self.took) {
            if *other == stage {
                *took = now - self.last;
            }
        }
        self.last = now;
    }
}

/// Attachments that succeeded, by the time that they took.
#[derive(Debug, Clone)]
pub struct AttachTimes {
    whole: Histogram,
    stages: [Histogram; Stage::ALL.len()],
}

impl Default for AttachTimes {
    fn default() -> Self {
        let histogram = || Histogram::new(BUCKETS);
        Self { whole: histogram(), stages: Stage::ALL.map(|_| histogram()) }
    }
}

impl AttachTimes {
    /// Takes note of an attachment whose last stage has ended.
    pub fn observe(&self, stopwatch: &Stopwatch) {
        self.whole.observe((stopwatch.last - stopwatch.begun).as_secs_f64());
        for (histogram, took) in self.stages.iter().zip(stopwatch.took) {
            histogram.observe(took.as_secs_f64());
        }
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Seconds from the request to attach a Pod to its answer";
        self.whole.encode(encoder.encode_descriptor("attach_seconds", help, None, MetricType::Histogram)?)?;
        let help = "Seconds of each stage of attaching a Pod";
        let mut stages = encoder.encode_descriptor("attach_stage_seconds", help, None, MetricType::Histogram)?;
        for (stage, histogram) in Stage::ALL.iter().zip(&self.stages) {
            histogram.encode(stages.encode_family(&[("stage", stage.name())])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stages_add_up_to_the_whole() {
        let mut stopwatch = Stopwatch::from(Instant::now());
        for (stage, milliseconds) in [(Stage::Queue, 3), (Stage::Objects, 40), (Stage::Programs, 7)] {
            tokio::time::advance(Duration::from_millis(milliseconds)).await;
            stopwatch.end(stage);
        }
        let milliseconds = stopwatch.took.map(|took| took.as_millis());
        assert_eq!(milliseconds, [3, 40, 0, 0, 7, 0]);
        assert_eq!(stopwatch.last - stopwatch.begun, Duration::from_millis(50));
    }
}
