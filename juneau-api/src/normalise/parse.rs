//! Strings that mean addresses.

use super::{Wrong, wrong};
use core::net::IpAddr;
use ipnet::IpNet;

/// A prefix without host bits. If only the host bits are wrong, the prefix without them comes with the error.
pub(super) fn prefix(text: &str) -> Result<IpNet, (Wrong, Option<IpNet>)> {
    let net: IpNet = text.parse().map_err(|_| {
        (wrong(format!("{text:?} is not a prefix"), "write an address and a length, as in 10.0.1.0/24"), None)
    })?;
    if net.addr() != net.network() {
        let net = net.trunc();
        return Err((wrong(format!("{text} has host bits set"), format!("write {net}")), Some(net)));
    }
    Ok(net)
}

/// An address, with or without a length.
pub(super) fn address(text: &str) -> Result<(IpAddr, Option<u8>), Wrong> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok((address, None));
    }
    let net: IpNet = text.parse().map_err(|_| {
        wrong(format!("{text:?} is not an address"), "write an address and its Subnet's length, as in 10.0.1.10/24")
    })?;
    Ok((net.addr(), Some(net.prefix_len())))
}

/// Whether an address may be a node's or a gateway's at all.
pub(super) const fn is_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let first = v4.octets()[0];
            first != 0 && first != 127 && first < 224 && !v4.is_link_local()
        }
        IpAddr::V6(v6) => !(v6.is_unspecified() || v6.is_loopback() || v6.is_multicast() || v6.is_unicast_link_local()),
    }
}

/// Whether a prefix holds an address that no packet may go to: 0/8, 127/8, 169.254/16, 224/3.
pub(super) fn has_reserved(prefix: IpNet) -> bool {
    const RESERVED: [([u8; 4], u8); 4] =
        [([0, 0, 0, 0], 8), ([127, 0, 0, 0], 8), ([169, 254, 0, 0], 16), ([224, 0, 0, 0], 3)];
    let IpNet::V4(prefix) = prefix else { return false };
    RESERVED.iter().any(|(address, length)| {
        ipnet::Ipv4Net::new((*address).into(), *length)
            .is_ok_and(|reserved| reserved.contains(&prefix) || prefix.contains(&reserved))
    })
}

/// The address after this one.
pub(super) fn next(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => v4.to_bits().checked_add(1).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(v6) => v6.to_bits().checked_add(1).map(|bits| IpAddr::V6(bits.into())),
    }
}

/// Whether an address of a prefix may be a host's: neither the first nor, in IPv4, the last.
pub(super) fn is_host(prefix: IpNet, address: IpAddr) -> bool {
    prefix.contains(&address)
        && address != prefix.network()
        && (matches!(prefix, IpNet::V6(_)) || address != prefix.broadcast())
}
