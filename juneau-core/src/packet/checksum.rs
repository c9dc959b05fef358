//! The Internet checksum (RFC 1071).

/// A checksum in the making.
#[derive(Debug, Clone, Copy, Default)]
pub struct Checksum(u64);

impl Checksum {
    /// Nothing summed up yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds bytes. All but the last piece must be of even length.
    #[must_use]
    pub fn with(mut self, bytes: &[u8]) -> Self {
        let (pairs, rest) = bytes.as_chunks::<2>();
        for pair in pairs {
            self.0 += u64::from(u16::from_be_bytes(*pair));
        }
        if let [last] = rest {
            self.0 += u64::from(*last) << 8;
        }
        self
    }

    /// The complement that is written into a packet.
    #[must_use]
    pub const fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

/// The checksum of some bytes; 0 when they contain a good one.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u16 {
    Checksum::new().with(bytes).finish()
}

/// The checksum after one 16-bit word changed (RFC 1624, equation 3).
#[must_use]
pub(super) const fn updated(checksum: u16, before: u16, after: u16) -> u16 {
    let mut sum = !checksum as u32 + !before as u32 + after as u32;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// What a sum changes by when words change, as they lie in memory: a one's complement sum of 16 bits.
#[must_use]
pub(crate) fn difference(before: &[u16], after: &[u16]) -> u16 {
    let gone: u32 = before.iter().map(|word| u32::from(!word)).sum();
    let mut sum = gone + after.iter().map(|word| u32::from(*word)).sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The checksum, as it lies in memory, after a [`difference`] (`csum_replace_by_diff()` of the kernel).
#[must_use]
pub(crate) const fn adjusted(checksum: u16, difference: u16) -> u16 {
    let (sum, carry) = (difference as u32).overflowing_add(!(checksum as u32));
    let mut sum = sum.wrapping_add(carry as u32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_1071_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&bytes), !0xddf2);
        assert_eq!(checksum(&[0x01]), !0x0100);
    }

    #[test]
    fn a_difference_equals_a_new_sum() {
        let words = |seed: u16| [0x4500u16, 0x1234, seed, seed.wrapping_mul(40_503), 0x4011].map(u16::to_be);
        let sum = |words: &[u16]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            u16::from_ne_bytes(checksum(&bytes).to_be_bytes())
        };
        for (before, after) in (0..2000).map(|n: u16| (n.wrapping_mul(257), n.wrapping_mul(7919))) {
            let (old, new) = (words(before), words(after));
            assert_eq!(adjusted(sum(&old), difference(&old, &new)), sum(&new), "{before} {after}");
        }
    }

    #[test]
    fn an_update_equals_a_new_sum() {
        let mut words = [0x4500u16, 0x1234, 0xffff, 0x0000, 0x4011];
        for after in [0u16, 1, 0x3f11, 0xffff, 0x8000] {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
            let before = words[4];
            words[4] = after;
            let changed: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
            assert_eq!(updated(checksum(&bytes), before, after), checksum(&changed));
        }
    }
}
