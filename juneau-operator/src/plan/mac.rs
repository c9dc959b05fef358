//! MAC addresses: unicast, locally administered, and always the same for the same thing.

use sha2::{Digest as _, Sha256};

/// The address that a hash of these texts gives.
pub(super) fn derive(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        // The length keeps two lists apart that read alike when they are put together.
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let digest = hash.finalize();
    let mut bytes = [0; 6];
    for (byte, random) in bytes.iter_mut().zip(digest.iter()) {
        *byte = *random;
    }
    bytes[0] = (bytes[0] & 0xfc) | 0x02;
    let [a, b, c, d, e, f] = bytes;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

/// Whether a text is the address of one interface.
pub(super) fn is_usable(text: &str) -> bool {
    text.parse::<juneau_core::id::MacAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::{derive, is_usable};

    #[test]
    fn addresses_are_unicast_local_and_lasting() {
        let mut seen = std::collections::HashSet::new();
        for n in 0..1000 {
            let mac = derive(&[&n.to_string(), "eth0"]);
            assert!(is_usable(&mac), "{mac}");
            let first = u8::from_str_radix(&mac[..2], 16).unwrap();
            assert_eq!(first & 3, 2, "{mac}");
            assert_eq!(mac, derive(&[&n.to_string(), "eth0"]));
            assert!(seen.insert(mac));
        }
        assert_ne!(derive(&["ab", "c"]), derive(&["a", "bc"]));
        assert!(!is_usable("01:00:5e:00:00:01") && !is_usable("x"));
    }
}
