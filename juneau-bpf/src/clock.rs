//! The programs' clock: jiffies, and how many of them are a second.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use juneau_core::time::Now;

use crate::error::{Error, Result};
use crate::failpoint::Operation;
use crate::sys;

/// Values of `CONFIG_HZ` that kernels are built with.
const RATES: [u32; 5] = [100, 250, 300, 1000, 1024];

/// Jiffies per unit of the stamp in flow records.
pub const JIFFIES_PER_STAMP: u32 = 256;

/// Reads the kernel's jiffies as programs see them.
#[derive(Debug)]
pub struct Clock {
    program: OwnedFd,
    hz: u32,
}

impl Clock {
    /// Loads a program that reads the clock. `hz`: as an earlier [`Clock::calibrate`] found.
    pub(crate) fn new(hz: u32) -> Result<Self> {
        Ok(Self { program: load()?, hz })
    }

    /// Measures how many jiffies are a second; takes 60 ms on an idle machine.
    pub(crate) fn calibrate() -> Result<Self> {
        let mut clock = Self { program: load()?, hz: 0 };
        // From one tick to another, so that the part of a tick at either end does not count.
        let (first, start) = clock.tick()?;
        loop {
            let (last, end) = clock.tick()?;
            let elapsed = end.duration_since(start);
            if elapsed < Duration::from_millis(50) {
                continue;
            }
            let rate = f64::from(last.wrapping_sub(first)) / elapsed.as_secs_f64();
            let off = |hz: u32| (rate / f64::from(hz)).ln().abs();
            let nearest = RATES.into_iter().min_by(|a, b| off(*a).total_cmp(&off(*b)));
            // Rates are at least 18 % apart, but for 1000 and 1024, which do not matter in units of 256 jiffies. The
            // longer this waits, the less a disturbance at either end weighs.
            if let Some(hz) = nearest.filter(|hz| off(*hz) < 0.05 || elapsed > Duration::from_secs(2)) {
                clock.hz = hz;
                return Ok(clock);
            }
        }
    }

    /// Waits for the counter to move: its value then, and the time, seen without a break of more than 0.2 ms.
    fn tick(&self) -> Result<(u32, Instant)> {
        let mut before = (self.jiffies()?, Instant::now());
        loop {
            let now = (self.jiffies()?, Instant::now());
            if now.0 != before.0 && now.1.duration_since(before.1) < Duration::from_micros(200) {
                return Ok(now);
            }
            before = now;
        }
    }

    /// Jiffies in a second.
    #[must_use]
    pub fn hz(&self) -> u32 {
        self.hz
    }

    /// The low 32 bits of the kernel's jiffies.
    ///
    /// # Errors
    /// The kernel's.
    pub fn jiffies(&self) -> Result<u32> {
        self.run(1)
    }

    /// The present stamp, as programs write it into flow records.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stamp(&self) -> Result<u32> {
        self.run(2)
    }

    /// The present moment, as the sweep wants it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn now(&self) -> Result<Now> {
        Ok(Now { stamp: self.stamp()?, hz: self.hz })
    }

    /// `mark` chooses what the program returns.
    fn run(&self, mark: u32) -> Result<u32> {
        let context = sys::prog::Context { mark, ..Default::default() };
        let run = sys::prog::test_run(self.program.as_fd(), Some(&context), &[0; 14], &mut [0; 64], 1);
        Ok(run.map_err(Error::kernel(Operation::TestRun, "the clock"))?.retval)
    }
}

fn load() -> Result<OwnedFd> {
    sys::prog::load_clock().map_err(Error::kernel(Operation::Load, "the clock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs_at_the_rate_it_says() {
        if !crate::testing::privileged() {
            return;
        }
        let clock = Clock::calibrate().unwrap();
        let start = clock.tick().unwrap();
        let mut end = start;
        while end.1.duration_since(start.1) < Duration::from_millis(200) {
            end = clock.tick().unwrap();
        }
        let ticks = f64::from(end.0.wrapping_sub(start.0));
        let seconds = end.1.duration_since(start.1).as_secs_f64();
        let error = ticks / (seconds * f64::from(clock.hz()));
        assert!((0.95..1.05).contains(&error), "{ticks} ticks in {seconds} s at {} Hz", clock.hz());
        let stamp = clock.stamp().unwrap();
        // The 32 bits of the counter overflow five minutes after the boot, those of the stamp later.
        let same = (clock.jiffies().unwrap() / JIFFIES_PER_STAMP).wrapping_sub(stamp) & 0xff_ffff;
        assert!(same <= 1, "{same}");
    }
}
