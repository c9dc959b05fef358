//! Headers as they lie in a packet.

use super::checksum::{checksum, updated};
use crate::layout::{Be16, Be32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

macro_rules! headers {
    ($($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, IntoBytes, FromBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        pub struct $name { $($(#[$fmeta])* pub $field: $type,)* }

        impl $name {
            /// Bytes of the header.
            pub const LENGTH: usize = core::mem::size_of::<Self>();
        }
    )*};
}

headers! {
    /// Ethernet II.
    Ethernet {
        /// Destination MAC address.
        destination: [u8; 6],
        /// Source MAC address.
        source: [u8; 6],
        /// What follows.
        ethertype: Be16,
    }

    /// ARP (RFC 826), sized for Ethernet and IPv4.
    Arp {
        /// 1 is Ethernet.
        hardware: Be16,
        /// 0x0800 is IPv4.
        protocol: Be16,
        /// Bytes of a hardware address.
        hardware_length: u8,
        /// Bytes of a protocol address.
        protocol_length: u8,
        /// 1 asks, 2 answers.
        operation: Be16,
        /// The sender's MAC address.
        sender_mac: [u8; 6],
        /// The sender's address.
        sender: Be32,
        /// The target's MAC address.
        target_mac: [u8; 6],
        /// The target's address.
        target: Be32,
    }

    /// IPv4 (RFC 791) without options.
    Ipv4 {
        /// 4 and the header's length in words of 32 bits.
        version_length: u8,
        /// DSCP and ECN (RFC 2474, RFC 3168).
        tos: u8,
        /// Bytes of the datagram with this header.
        total_length: Be16,
        /// Identification of a datagram's fragments.
        id: Be16,
        /// DF, MF and the offset in units of 8 bytes.
        fragment: Be16,
        /// Time to live.
        ttl: u8,
        /// What follows.
        protocol: u8,
        /// Of the header.
        checksum: Be16,
        /// Source address.
        source: Be32,
        /// Destination address.
        destination: Be32,
    }

    /// TCP (RFC 9293) without options.
    Tcp {
        /// Source port.
        source_port: Be16,
        /// Destination port.
        destination_port: Be16,
        /// Sequence number.
        sequence: Be32,
        /// Acknowledgement number.
        acknowledgement: Be32,
        /// The header's length in words of 32 bits, in the high four bits.
        offset: u8,
        /// CWR, ECE, URG, ACK, PSH, RST, SYN, FIN.
        flags: u8,
        /// Window.
        window: Be16,
        /// Of pseudo-header, header and data.
        checksum: Be16,
        /// Urgent pointer.
        urgent: Be16,
    }

    /// UDP (RFC 768).
    Udp {
        /// Source port.
        source_port: Be16,
        /// Destination port.
        destination_port: Be16,
        /// Bytes with this header.
        length: Be16,
        /// Of pseudo-header, header and data; 0 is none.
        checksum: Be16,
    }

    /// ICMP (RFC 792).
    Icmp {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// Of the message.
        checksum: Be16,
        /// Of an echo: the identifier.
        id: Be16,
        /// Of an echo: the sequence number. Of "fragmentation needed": the MTU (RFC 1191).
        sequence: Be16,
    }

    /// VXLAN (RFC 7348).
    Vxlan {
        /// 0x08: the VNI is valid.
        flags: u8,
        /// Reserved.
        reserved: [u8; 3],
        /// The VNI in the high 24 bits.
        vni: Be32,
    }
}

impl Ipv4 {
    /// Don't fragment, in `fragment`.
    pub const DF: u16 = 0x4000;
    /// More fragments.
    pub const MF: u16 = 0x2000;
    /// The offset.
    pub const OFFSET: u16 = 0x1fff;
    /// ECN: congestion experienced, in `tos`.
    pub const CE: u8 = 3;

    /// The version.
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.version_length >> 4
    }

    /// The header's length in bytes.
    #[must_use]
    pub const fn header_length(&self) -> usize {
        (self.version_length & 0xf) as usize * 4
    }

    /// Whether the datagram must not be cut.
    #[must_use]
    pub fn dont_fragment(&self) -> bool {
        self.fragment.get() & Self::DF != 0
    }

    /// The ECN field.
    #[must_use]
    pub const fn ecn(&self) -> u8 {
        self.tos & 3
    }

    /// Computes the checksum of a header without options.
    pub fn set_checksum(&mut self) {
        self.checksum = Be16::ZERO;
        self.checksum = Be16::new(checksum(self.as_bytes()));
    }

    /// Lowers the TTL, and the checksum with it.
    pub fn decrease_ttl(&mut self, by: u8) {
        let before = u16::from_be_bytes([self.ttl, self.protocol]);
        self.ttl = self.ttl.wrapping_sub(by);
        let after = u16::from_be_bytes([self.ttl, self.protocol]);
        self.checksum = Be16::new(updated(self.checksum.get(), before, after));
    }

    /// Marks congestion, and changes the checksum with it.
    pub fn mark_congestion(&mut self) {
        let before = u16::from_be_bytes([self.version_length, self.tos]);
        self.tos |= Self::CE;
        let after = u16::from_be_bytes([self.version_length, self.tos]);
        self.checksum = Be16::new(updated(self.checksum.get(), before, after));
    }
}

impl Tcp {
    /// The header's length in bytes, options included.
    #[must_use]
    pub const fn header_length(&self) -> usize {
        (self.offset >> 4) as usize * 4
    }
}

impl Vxlan {
    /// `flags` of a header with a VNI.
    pub const VALID: u8 = 0x08;

    /// A header with a VNI.
    #[must_use]
    pub const fn new(vni: u32) -> Self {
        Self { flags: Self::VALID, reserved: [0; 3], vni: Be32::new(vni << 8) }
    }

    /// The VNI.
    #[must_use]
    pub const fn vni(&self) -> u32 {
        self.vni.get() >> 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Ipv4 {
        let mut header = Ipv4 {
            version_length: 0x45,
            tos: 0xb9,
            total_length: Be16::new(1400),
            ttl: 64,
            protocol: 6,
            source: Be32::new(0x0a00_0001),
            destination: Be32::new(0x0a00_0002),
            ..Ipv4::default()
        };
        header.set_checksum();
        header
    }

    #[test]
    fn changes_keep_the_checksum_good() {
        for ttl in 1..=255 {
            let mut changed = header();
            changed.ttl = ttl;
            changed.set_checksum();
            assert_eq!(checksum(changed.as_bytes()), 0);
            changed.decrease_ttl(1);
            assert_eq!(changed.ttl, ttl - 1);
            assert_eq!(checksum(changed.as_bytes()), 0);
        }
        let mut marked = header();
        marked.mark_congestion();
        assert_eq!((marked.tos, checksum(marked.as_bytes())), (0xbb, 0));
    }

    #[test]
    fn headers_read_what_etherparse_writes() {
        use crate::packet::view;
        let mut bytes = Vec::new();
        etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 33)
            .tcp(1000, 80, 5, 600)
            .syn()
            .write(&mut bytes, &[1, 2, 3])
            .unwrap();
        let (ethernet, rest) = view::<Ethernet>(&bytes).unwrap();
        assert_eq!(ethernet.source, [2, 0, 0, 0, 0, 1]);
        assert_eq!(ethernet.ethertype.get(), crate::packet::ETHERTYPE_IPV4);
        let (ip, rest) = view::<Ipv4>(rest).unwrap();
        assert_eq!((ip.version(), ip.header_length(), ip.ttl, ip.protocol), (4, 20, 33, 6));
        assert_eq!(ip.total_length.get(), 43);
        let (tcp, rest) = view::<Tcp>(rest).unwrap();
        assert_eq!((tcp.source_port.get(), tcp.destination_port.get(), tcp.flags), (1000, 80, 2));
        assert_eq!((tcp.header_length(), rest), (20, &[1, 2, 3][..]));
    }
}
