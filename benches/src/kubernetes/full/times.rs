//! What an agent tells of the attachments that it made, by its metrics.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::error::{Context, Error, Result};
use crate::kubernetes::daemon;

/// Sums over all attachments, or of one, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Times {
    /// How many.
    count: f64,
    /// From request to answer.
    pub(super) whole: f64,
    /// Waiting for objects.
    objects: f64,
    /// Attaching programs.
    pub(super) programs: f64,
}

impl Times {
    /// What a node's agent tells now.
    pub(super) fn of(node: &str) -> Result<Self> {
        let what = || format!("asking the agent of {node} for its metrics");
        let mut stream = UnixStream::connect(daemon::metrics_socket(node)).context(what())?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n").context(what())?;
        let mut text = String::new();
        stream.read_to_string(&mut text).context(what())?;
        Self::read(&text).ok_or_else(|| Error::Missing("time of attachments in the agent's metrics".into()))
    }

    fn read(text: &str) -> Option<Self> {
        let value = |series: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
            found?.trim().parse::<f64>().ok()
        };
        let stage = |name: &str| Some(value(&format!("juneau_attach_stage_seconds_sum{{stage=\"{name}\"}}"))? * 1e3);
        Some(Self {
            count: value("juneau_attach_seconds_count")?,
            whole: value("juneau_attach_seconds_sum")? * 1e3,
            objects: stage("objects")?,
            programs: stage("programs")?,
        })
    }

    /// The one attachment that was made since.
    pub(super) fn since(&self, before: &Self) -> Result<Self> {
        let one = Self {
            count: self.count - before.count,
            whole: self.whole - before.whole,
            objects: self.objects - before.objects,
            programs: self.programs - before.programs,
        };
        let is_one = (one.count - 1.0).abs() < f64::EPSILON;
        is_one.then_some(one).ok_or_else(|| Error::NotOurs(format!("{} attachments were made, not one", one.count)))
    }

    /// What is the agent's own: not the operator's, and not the kernel's wait for those who read programs still.
    pub(super) fn own(&self) -> f64 {
        self.whole - self.objects - self.programs
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TEXT: &str = "# TYPE juneau_attach_seconds histogram
juneau_attach_seconds_sum 0.5
juneau_attach_seconds_count 3
juneau_attach_seconds_bucket{le=\"0.001\"} 0
juneau_attach_stage_seconds_sum{stage=\"objects\"} 0.25
juneau_attach_stage_seconds_sum{stage=\"programs\"} 0.125
";

    #[test]
    fn what_is_the_agents_own() {
        let times = Times::read(TEXT).unwrap();
        assert_eq!((times.whole, times.own()), (500.0, 125.0));
        assert!(times.since(&Times { count: 2.0, ..times }).is_ok());
        assert!(times.since(&times).is_err(), "none was made");
        assert_eq!(Times::read("juneau_attach_seconds_sum 0.5\n"), None);
    }
}
