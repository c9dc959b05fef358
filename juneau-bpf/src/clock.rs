//! The programs' clock: jiffies, and how many of them are a second.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

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

    /// Measures how many jiffies are a second; takes about 60 ms.
    pub(crate) fn calibrate() -> Result<Self> {
        let mut clock = Self { program: load()?, hz: 0 };
        // From one tick to another, so that the part of a tick at either end does not count.
        let (first, start) = clock.tick(clock.jiffies()?)?;
        let mut last = (first, start);
        while last.1.duration_since(start) < Duration::from_millis(50) {
            last = clock.tick(last.0)?;
        }
        let ticks = f64::from(last.0.wrapping_sub(first));
        let rate = ticks / last.1.duration_since(start).as_secs_f64();
        let off = |hz: u32| (rate / f64::from(hz)).ln().abs();
        clock.hz = RATES.into_iter().min_by(|a, b| off(*a).total_cmp(&off(*b))).unwrap_or(1000);
        Ok(clock)
    }

    /// Waits for the counter to pass `from`: its value then, and the time.
    fn tick(&self, from: u32) -> Result<(u32, Instant)> {
        loop {
            let now = self.jiffies()?;
            if now != from {
                return Ok((now, Instant::now()));
            }
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
        let start = (clock.jiffies().unwrap(), Instant::now());
        while start.1.elapsed() < Duration::from_millis(200) {
            std::thread::yield_now();
        }
        let ticks = f64::from(clock.jiffies().unwrap().wrapping_sub(start.0));
        let seconds = start.1.elapsed().as_secs_f64();
        let error = ticks / (seconds * f64::from(clock.hz()));
        assert!((0.9..1.1).contains(&error), "{ticks} ticks in {seconds} s at {} Hz", clock.hz());
        let stamp = clock.stamp().unwrap();
        assert!(clock.jiffies().unwrap() / JIFFIES_PER_STAMP <= stamp + 1 || stamp > 1 << 24);
    }
}
