//! Time as an argument.

/// A moment as the data path knows it: coarse, wrapping, and without a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Jiffies divided by 256.
    pub stamp: u32,
    /// Jiffies in a second.
    pub hz: u32,
}

impl Now {
    /// So many seconds in units of the stamp, rounded down.
    #[must_use]
    pub const fn seconds(self, seconds: u32) -> u32 {
        (seconds as u64 * self.hz as u64 / 256) as u32
    }

    /// Units since an earlier stamp. Stamps wrap, so a moment long ago looks recent again after 2³² units.
    #[must_use]
    pub const fn since(self, stamp: u32) -> u32 {
        self.stamp.wrapping_sub(stamp)
    }

    /// Whether a stamp in the future has not been reached.
    #[must_use]
    pub const fn is_before(self, stamp: u32) -> bool {
        (stamp.wrapping_sub(self.stamp) as i32) > 0
    }

    /// The same clock some units later.
    #[must_use]
    pub const fn later(self, units: u32) -> Self {
        Self { stamp: self.stamp.wrapping_add(units), hz: self.hz }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_wrap() {
        let now = Now { stamp: 3, hz: 250 };
        assert_eq!(now.since(u32::MAX), 4);
        assert!(now.is_before(4));
        assert!(!now.is_before(3));
        assert!(!now.is_before(u32::MAX));
        assert!(Now { stamp: u32::MAX, hz: 250 }.is_before(2));
    }

    #[test]
    fn seconds_round_down() {
        assert_eq!(Now { stamp: 0, hz: 250 }.seconds(15), 14);
        assert_eq!(Now { stamp: 0, hz: 1000 }.seconds(7200), 28125);
    }
}
