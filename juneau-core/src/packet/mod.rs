//! Packets as bytes: headers to look at and to change in place, and the Internet checksum. Nothing here allocates.
//!
//! A header is read with [`view`], which gives it and what follows. It is unaligned and its numbers are in wire order.

mod checksum;
mod header;

pub use checksum::{Checksum, checksum};
pub(crate) use checksum::{adjusted, difference};
pub use header::{Arp, Ethernet, Icmp, Ipv4, Tcp, Udp, Vxlan};

use crate::layout::Be32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// EtherType of a VLAN tag (IEEE 802.1Q).
pub const ETHERTYPE_VLAN: u16 = 0x8100;
/// EtherType of a service VLAN tag (IEEE 802.1ad).
pub const ETHERTYPE_QINQ: u16 = 0x88a8;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;

/// IP protocol of ICMP.
pub const IP_ICMP: u8 = 1;
/// IP protocol of TCP.
pub const IP_TCP: u8 = 6;
/// IP protocol of UDP.
pub const IP_UDP: u8 = 17;
/// SCTP (RFC 9260).
pub const IP_SCTP: u8 = 132;

/// ICMP echo reply.
pub const ICMP_ECHO_REPLY: u8 = 0;
/// ICMP destination unreachable.
pub const ICMP_UNREACHABLE: u8 = 3;
/// ICMP echo request.
pub const ICMP_ECHO: u8 = 8;
/// ICMP time exceeded.
pub const ICMP_TIME_EXCEEDED: u8 = 11;
/// ICMP parameter problem.
pub const ICMP_PARAMETER_PROBLEM: u8 = 12;

/// The header at the beginning of some bytes, and the bytes behind it. `None` when they are too few.
#[must_use]
pub fn view<H>(bytes: &[u8]) -> Option<(&H, &[u8])>
where
    H: FromBytes + KnownLayout + Immutable + Unaligned,
{
    H::ref_from_prefix(bytes).ok()
}

/// The same to change in place.
#[must_use]
pub fn view_mut<H>(bytes: &mut [u8]) -> Option<(&mut H, &mut [u8])>
where
    H: FromBytes + IntoBytes + KnownLayout + Unaligned,
{
    H::mut_from_prefix(bytes).ok()
}

/// Whether an address is never forwarded: 0/8, 127/8, 169.254/16, 224/4 and 240/4 (RFC 6890, RFC 1112).
#[must_use]
pub const fn is_forbidden(address: Be32) -> bool {
    let [a, b, ..] = address.to_bytes();
    a == 0 || a == 127 || a >= 224 || (a == 169 && b == 254)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::be32;

    #[test]
    fn addresses_that_are_never_forwarded() {
        let of = |text: &str| is_forbidden(be32(text.parse().unwrap()));
        for forbidden in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "169.254.169.254", "224.0.0.1", "239.1.1.1", "240.0.0.1"] {
            assert!(of(forbidden), "{forbidden}");
        }
        assert!(of("255.255.255.255"));
        for fine in ["1.0.0.0", "10.0.0.255", "126.0.0.1", "128.0.0.1", "169.253.0.1", "169.255.0.1", "223.255.255.255"]
        {
            assert!(!of(fine), "{fine}");
        }
    }

    #[test]
    fn short_bytes_have_no_header() {
        assert!(view::<Ethernet>(&[0; 13]).is_none());
        let (ethernet, rest) = view::<Ethernet>(&[7; 15]).unwrap();
        assert_eq!((ethernet.ethertype.get(), rest), (0x0707, &[7][..]));
    }
}
