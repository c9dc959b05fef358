//! Hashes and slots that programs and user space compute alike (`docs/datapath.md`, "Hashes").

use super::{Be16, Be32, FRAGMENT_SLOTS, FlowKey, GEN_ENDPOINT, GEN_TABLE, GEN_VTEP, SCOPE_PROTO_SHIFT};
use zerocopy::IntoBytes;

/// The seeds of the flow hash: the same in every load that shares flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seeds {
    /// Multiplies the first word.
    pub first: u64,
    /// Multiplies the second word.
    pub second: u64,
}

impl Seeds {
    /// Two 64-bit words to one. An odd factor keeps every bit of a word.
    const fn fold_words(self, first: u64, second: u64) -> u64 {
        first.wrapping_mul(self.first | 1) ^ second.wrapping_mul(self.second | 1)
    }

    /// The hash of a flow key, all 64 bits. Its high 32 are the tag's.
    #[must_use]
    pub fn fold(self, key: &FlowKey) -> u64 {
        let (words, _) = key.as_bytes().as_chunks::<8>();
        match words {
            [first, second] => self.fold_words(u64::from_ne_bytes(*first), u64::from_ne_bytes(*second)),
            _ => 0,
        }
    }

    /// The hash that a flow's tag carries.
    #[must_use]
    pub fn tag_hash(self, key: &FlowKey) -> u32 {
        (self.fold(key) >> 32) as u32
    }

    /// Source port of the outer UDP header: 32768 to 65535.
    #[must_use]
    pub fn outer_port(self, key: &FlowKey) -> u16 {
        0x8000 | ((self.fold(key) >> 48) & 0x7fff) as u16
    }

    /// The slot that a datagram's fragments share.
    #[must_use]
    pub fn fragment_slot(self, source: Be32, destination: Be32, id: Be16, protocol: u8) -> u32 {
        let first = u64::from(native(source)) | (u64::from(native(destination)) << 32);
        let second = u64::from(u16::from_ne_bytes(id.to_bytes())) | (u64::from(protocol) << 16);
        (self.fold_words(first, second) >> 56) as u32 % FRAGMENT_SLOTS
    }
}

/// The number that a native load of the address' wire bytes gives.
#[must_use]
pub fn native(address: Be32) -> u32 {
    u32::from_ne_bytes(address.to_bytes())
}

/// FNV-1a in 32 bits: of what user space alone computes.
pub(crate) fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// In host order an address' last octet moves every bit that is kept; in wire order it would move none.
const fn hash32(a: u32, address: Be32) -> u32 {
    (a.wrapping_mul(0x9E37_79B1) ^ address.get().wrapping_mul(0x85EB_CA77)) >> 16
}

/// Generation slot of an endpoint. A slot shared by two endpoints costs a second decision, never a wrong one.
#[must_use]
pub fn endpoint_generation(vpc: u32, address: Be32) -> u32 {
    GEN_ENDPOINT + (hash32(vpc, address) & 0xffff)
}

/// Generation slot of a route table.
#[must_use]
pub const fn table_generation(table: u32) -> u32 {
    GEN_TABLE + (table & 0x7fff)
}

/// Generation slot of a VTEP.
#[must_use]
pub fn vtep_generation(vtep: Be32) -> u32 {
    GEN_VTEP + (hash32(0, vtep) & 0xfff)
}

/// The six-bit protocol of a scope word to which an IP protocol maps.
#[must_use]
pub const fn proto(ip_protocol: u8) -> u32 {
    match ip_protocol {
        1 => super::PROTO_ICMP,
        6 => super::PROTO_TCP,
        17 => super::PROTO_UDP,
        132 => super::PROTO_SCTP,
        _ => super::PROTO_OTHER,
    }
}

/// A scope word without its protocol, as fragments are kept.
#[must_use]
pub const fn without_protocol(scope: u32) -> u32 {
    scope & ((1 << SCOPE_PROTO_SHIFT) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn key() -> FlowKey {
        FlowKey {
            scope: FlowKey::scope(42, 0, super::super::PROTO_TCP),
            source: super::super::be32(Ipv4Addr::new(10, 0, 1, 2)),
            destination: super::super::be32(Ipv4Addr::new(10, 0, 2, 3)),
            source_port: Be16::new(40000),
            destination_port: Be16::new(80),
        }
    }

    #[test]
    fn every_field_of_the_key_reaches_the_hash() {
        let seeds = Seeds { first: 0x1234_5678_9abc_def0, second: 0x0fed_cba9_8765_4321 };
        let base = seeds.fold(&key());
        for changed in [
            FlowKey { scope: key().scope + 1, ..key() },
            FlowKey { source: Be32::new(1), ..key() },
            FlowKey { destination: Be32::new(1), ..key() },
            FlowKey { source_port: Be16::new(1), ..key() },
            FlowKey { destination_port: Be16::new(1), ..key() },
        ] {
            assert_ne!(seeds.fold(&changed), base);
        }
        assert!(seeds.outer_port(&key()) >= 0x8000);
    }

    /// Slots may be shared, but not systematically: not by the Pods of a Subnet, nor by the nodes of a rack, nor by
    /// equal addresses of many VPCs.
    #[test]
    fn neighbours_have_slots_of_their_own() {
        use std::collections::BTreeSet;
        let base = Ipv4Addr::new(10, 0, 1, 0).to_bits();
        let pods: BTreeSet<_> = (0..256).map(|n| endpoint_generation(2, Be32::new(base + n))).collect();
        assert!(pods.len() > 250, "{}", pods.len());
        let tenants: BTreeSet<_> = (2..258).map(|vpc| endpoint_generation(vpc, Be32::new(base))).collect();
        assert!(tenants.len() > 250, "{}", tenants.len());
        let nodes: BTreeSet<_> = (0..256).map(|n| vtep_generation(Be32::new(base + n))).collect();
        assert!(nodes.len() > 230, "{}", nodes.len());
    }

    #[test]
    fn slots_stay_in_their_space() {
        for n in 0..10_000u32 {
            let address = Be32::new(n.wrapping_mul(0x0101_0107));
            assert!((GEN_ENDPOINT..super::super::GEN_MAX).contains(&endpoint_generation(n, address)));
            assert!((GEN_VTEP..GEN_VTEP + 0x1000).contains(&vtep_generation(address)));
            assert!((GEN_TABLE..GEN_ENDPOINT).contains(&table_generation(n)));
            let seeds = Seeds { first: 3, second: u64::from(n) };
            assert!(seeds.fragment_slot(address, address, Be16::new(n as u16), 17) < FRAGMENT_SLOTS);
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn the_fold_is_the_documented_one() {
        let seeds = Seeds { first: 2, second: 4 };
        let k = key();
        let w0 = u64::from(k.scope) | (u64::from(native(k.source)) << 32);
        let ports = u32::from_ne_bytes([0x9c, 0x40, 0, 80]);
        let w1 = u64::from(native(k.destination)) | (u64::from(ports) << 32);
        assert_eq!(seeds.fold(&k), w0.wrapping_mul(3) ^ w1.wrapping_mul(5));
    }
}
