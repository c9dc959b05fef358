//! Versions of the CNI specification.

use std::fmt;

/// A version whose results this plugin can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Version {
    /// 0.1.0: one address, `ip4`. What a configuration without a version means.
    V0_1_0,
    /// 0.2.0: the same; VERSION is new.
    V0_2_0,
    /// 0.3.0: `interfaces`, `ips` with the address family.
    V0_3_0,
    /// 0.3.1: the same.
    V0_3_1,
    /// 0.4.0: CHECK is new.
    V0_4_0,
    /// 1.0.0: `ips` without the address family.
    V1_0_0,
    /// 1.1.0: `mtu` of interfaces; GC and STATUS are new.
    V1_1_0,
}

impl Version {
    /// Every version, the oldest first.
    pub const ALL: [Self; 7] =
        [Self::V0_1_0, Self::V0_2_0, Self::V0_3_0, Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];
    /// The newest.
    pub const NEWEST: Self = Self::V1_1_0;

    /// As `cniVersion` has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// The version that a text names.
    #[must_use]
    pub fn find(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
