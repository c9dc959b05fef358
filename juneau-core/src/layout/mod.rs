//! Layouts of the maps that programs and user space share: `maps.h`, mirrored by hand.
//!
//! Every struct is `repr(C)` without padding, so that it is its bytes. Addresses and ports are in wire order
//! ([`Be32`], [`Be16`]); ids are in host order. Fields named `zero*` are zero.

mod abi;
mod decided;
mod hash;
mod load;
mod state;

pub use abi::*;
pub use decided::*;
pub use hash::*;
pub use load::*;
pub use state::*;

use core::net::Ipv4Addr;
pub use zerocopy::network_endian::{U16 as Be16, U32 as Be32};

/// A field of a mirrored struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Name, in C and here.
    pub name: &'static str,
    /// Offset in bytes.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// A mirrored struct: what a test compares with the object's BTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mirror {
    /// Name in C.
    pub name: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Fields in order.
    pub fields: &'static [Field],
}

/// Declares mirrored structs: `repr(C)`, zerocopy, and their description.
macro_rules! mirror {
    ($($(#[$meta:meta])* $name:ident = $c:literal { $($(#[$fmeta:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[derive(
                Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default,
                zerocopy::IntoBytes, zerocopy::FromBytes, zerocopy::KnownLayout, zerocopy::Immutable,
            )]
            #[repr(C)]
            pub struct $name { $($(#[$fmeta])* pub $field: $type,)* }

            impl $name {
                /// The struct's description, for comparison with the kernel's type information.
                pub const MIRROR: $crate::layout::Mirror = $crate::layout::Mirror {
                    name: $c,
                    size: core::mem::size_of::<Self>(),
                    fields: &[$($crate::layout::Field {
                        name: stringify!($field),
                        offset: core::mem::offset_of!(Self, $field),
                        size: core::mem::size_of::<$type>(),
                    }),*],
                };
            }
        )*
    };
}
pub(crate) use mirror;

/// Every struct of `maps.h`.
pub const MIRRORS: &[Mirror] = &[
    Config::MIRROR,
    Hot::MIRROR,
    Interface::MIRROR,
    EndpointKey::MIRROR,
    Endpoint::MIRROR,
    MacKey::MIRROR,
    Mac::MIRROR,
    Segment::MIRROR,
    RouteKey::MIRROR,
    Route::MIRROR,
    Vtep::MIRROR,
    PolicyKey::MIRROR,
    Policy::MIRROR,
    Vpc::MIRROR,
    FrontendKey::MIRROR,
    Frontend::MIRROR,
    Slots::MIRROR,
    Backend::MIRROR,
    VpcState::MIRROR,
    AffinityKey::MIRROR,
    Affinity::MIRROR,
    FlowKey::MIRROR,
    Flow6Key::MIRROR,
    Endpoint6Key::MIRROR,
    Route6Key::MIRROR,
    Flow::MIRROR,
    FragmentKey::MIRROR,
    Fragment::MIRROR,
    Pmtu::MIRROR,
    Traffic::MIRROR,
    Event::MIRROR,
    Verdict::MIRROR,
    Step::MIRROR,
];

/// An address in wire order.
#[must_use]
pub const fn be32(address: Ipv4Addr) -> Be32 {
    Be32::from_bytes(address.octets())
}

/// The address that a field in wire order holds.
#[must_use]
pub fn ipv4(address: Be32) -> Ipv4Addr {
    Ipv4Addr::from(address.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn sizes_are_those_of_c() {
        let sizes: Vec<_> = MIRRORS.iter().map(|m| (m.name, m.size)).collect();
        assert_eq!(
            sizes,
            [
                ("jn_config", 56),
                ("jn_hot", 64),
                ("jn_interface", 64),
                ("jn_endpoint_key", 8),
                ("jn_endpoint", 56),
                ("jn_mac_key", 12),
                ("jn_mac", 8),
                ("jn_segment", 24),
                ("jn_route_key", 12),
                ("jn_route", 16),
                ("jn_vtep", 8),
                ("jn_policy_key", 16),
                ("jn_policy", 8),
                ("jn_vpc", 16),
                ("jn_frontend_key", 12),
                ("jn_frontend", 64),
                ("jn_slots", 64),
                ("jn_backend", 32),
                ("jn_vpc_state", 24),
                ("jn_affinity_key", 12),
                ("jn_affinity", 8),
                ("jn_flow_key", 16),
                ("jn_flow6_key", 40),
                ("jn_endpoint6_key", 20),
                ("jn_route6_key", 24),
                ("jn_flow", 128),
                ("jn_fragment_key", 8),
                ("jn_fragment", 24),
                ("jn_pmtu", 8),
                ("jn_traffic", 16),
                ("jn_event", 48),
                ("jn_verdict", 32),
                ("jn_step", 24),
            ]
        );
    }

    #[test]
    fn fields_follow_each_other_without_a_gap() {
        for mirror in MIRRORS {
            let mut offset = 0;
            for field in mirror.fields {
                assert_eq!(field.offset, offset, "{}.{}", mirror.name, field.name);
                offset += field.size;
            }
            assert_eq!(offset, mirror.size, "{}", mirror.name);
        }
    }

    #[test]
    fn the_hot_half_of_a_flow_ends_with_the_second_tag() {
        let last = Flow::MIRROR.fields.iter().find(|f| f.name == "tag_last").unwrap();
        assert_eq!(last.offset + last.size, 64);
    }

    #[test]
    fn addresses_keep_their_wire_order() {
        let key = EndpointKey { vpc: 7, address: be32(Ipv4Addr::new(10, 0, 1, 2)) };
        assert_eq!(&key.as_bytes()[4..], &[10, 0, 1, 2]);
        assert_eq!(ipv4(key.address), Ipv4Addr::new(10, 0, 1, 2));
    }
}
