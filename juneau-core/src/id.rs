//! The numbers of the field as types: each carries its meaning, its range and its byte order.

use core::fmt;
use core::str::FromStr;

/// Why a number or a string is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// The number lies outside the identifier's range.
    #[error("{what} {value} is not within {min}..={max}")]
    OutOfRange {
        /// Which identifier.
        what: &'static str,
        /// The number that was given.
        value: u64,
        /// Smallest legal number.
        min: u64,
        /// Largest legal number.
        max: u64,
    },
    /// The text is not a unicast MAC address of the form `02:00:00:00:00:01`.
    #[error("{text:?} is not a unicast MAC address of six hexadecimal bytes")]
    Mac {
        /// The text that was given.
        text: String,
    },
}

macro_rules! number {
    ($(#[$meta:meta])* $name:ident, $what:literal, $min:expr, $max:expr) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(try_from = "u32", into = "u32"))]
        pub struct $name(u32);

        impl $name {
            /// Smallest legal number.
            pub const MIN: u32 = $min;
            /// Largest legal number.
            pub const MAX: u32 = $max;

            /// Checks the range.
            ///
            /// # Errors
            /// [`IdError::OutOfRange`] outside `MIN..=MAX`.
            pub const fn new(value: u32) -> Result<Self, IdError> {
                if value.wrapping_sub(Self::MIN) > Self::MAX - Self::MIN {
                    return Err(IdError::OutOfRange {
                        what: $what,
                        value: value as u64,
                        min: $min as u64,
                        max: $max as u64,
                    });
                }
                Ok(Self(value))
            }

            /// The number, in host order.
            #[must_use]
            pub const fn get(self) -> u32 {
                self.0
            }
        }

        impl TryFrom<u32> for $name {
            type Error = IdError;
            fn try_from(value: u32) -> Result<Self, IdError> {
                Self::new(value)
            }
        }

        impl From<$name> for u32 {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// A VXLAN network identifier (RFC 7348): 24 bits, one per Subnet. 0 means none, 1 the underlay.
    Vni, "VNI", 2, 0x00ff_ffff
);
number!(
    /// A VPC's number, the scope of every tenant address. 24 bits, since it shares a word with other bits in a flow key.
    /// 1 is the VPC `default`.
    VpcId, "VPC id", 1, 0x00ff_ffff
);
number!(
    /// A route table's number.
    TableId, "route table id", 1, u32::MAX
);
number!(
    /// A node-local number for {VPC, sorted security groups}. 0 (not representable here) is unknown, which is closed;
    /// `u32::MAX` is kept for "every peer" in policy keys.
    Identity, "identity", 1, u32::MAX - 1
);
number!(
    /// An interface index of this node's network namespace.
    IfIndex, "ifindex", 1, i32::MAX as u32
);
number!(
    /// A node-local number of a VPC, for counters and quotas: an index into arrays, 0 included.
    VpcIndex, "VPC index", 0, 0xffff
);

impl Identity {
    /// The identity of an endpoint without security groups.
    pub const NO_GROUPS: Self = Self(1);
}

/// A MAC address that a device may have: unicast, not zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "String", into = "String")
)]
pub struct MacAddr([u8; 6]);

impl MacAddr {
    /// Checks that the address is unicast and not zero.
    ///
    /// # Errors
    /// [`IdError::Mac`].
    pub fn new(octets: [u8; 6]) -> Result<Self, IdError> {
        if octets[0] & 1 != 0 || octets == [0; 6] {
            return Err(IdError::Mac { text: format_mac(octets) });
        }
        Ok(Self(octets))
    }

    /// The six bytes in wire order.
    #[must_use]
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }
}

fn format_mac(o: [u8; 6]) -> String {
    format!("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", o[0], o[1], o[2], o[3], o[4], o[5])
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_mac(self.0))
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MacAddr {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError::Mac { text: text.to_owned() };
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part =
                parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit())).ok_or_else(wrong)?;
            *octet = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() {
            return Err(wrong());
        }
        Self::new(octets)
    }
}

impl TryFrom<String> for MacAddr {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<MacAddr> for String {
    fn from(mac: MacAddr) -> Self {
        mac.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked_at_both_ends() {
        assert!(Vni::new(1).is_err());
        assert_eq!(Vni::new(2).unwrap().get(), 2);
        assert_eq!(Vni::new(0x00ff_ffff).unwrap().get(), 0x00ff_ffff);
        let error = Vni::new(0x0100_0000).unwrap_err();
        assert_eq!(error.to_string(), "VNI 16777216 is not within 2..=16777215");
    }

    #[test]
    fn mac_addresses_round_trip_and_refuse_groups() {
        let mac: MacAddr = "02:00:0a:00:01:0B".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:0a:00:01:0b");
        for wrong in [
            "",
            "02",
            "01:00:5e:00:00:01",
            "00:00:00:00:00:00",
            "02:00:00:00:00",
            "02:00:00:00:00:00:00",
            "2:0:0:0:0:1",
            "+2:00:00:00:00:01",
        ] {
            assert!(wrong.parse::<MacAddr>().is_err(), "{wrong}");
        }
    }
}
