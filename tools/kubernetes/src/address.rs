//! Loopback addresses that nobody else uses.
//!
//! `kube-apiserver` cannot be given port 0, and a port that was free a moment ago need not be free when the server
//! comes to it. But all of 127.0.0.0/8 is loopback: with an address of its own, each control plane has the usual ports.

use crate::error::{Context, Error, Result};
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Where the addresses begin: 127.106.0.1.
const FIRST: u32 = 0x7f6a_0001;

/// How many there are.
const COUNT: u32 = 0xfffe;

/// A loopback address, held as long as this lives. What holds it is a socket with a name in the abstract namespace,
/// which is one for each network namespace, as loopback is, and which the kernel lets go when the process dies.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) address: Ipv4Addr,
    _socket: UnixListener,
}

impl Held {
    /// Takes an address of this thread's network namespace.
    ///
    /// # Errors
    /// When none is left, or sockets cannot be had.
    pub(crate) fn take() -> Result<Self> {
        for offset in 0..COUNT {
            let address = Ipv4Addr::from(FIRST + offset);
            let name = format!("juneau-controlplane/{address}");
            let bound = SocketAddr::from_abstract_name(&name).and_then(|name| UnixListener::bind_addr(&name));
            match bound {
                Ok(socket) => return Ok(Self { address, _socket: socket }),
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(error).context(|| format!("holding the address {address}")),
            }
        }
        Err(Error::Io { what: "finding a free loopback address".to_owned(), source: ErrorKind::AddrInUse.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::Held;

    #[test]
    fn an_address_is_one_holders_and_free_again_afterwards() {
        let (one, other) = (Held::take().unwrap(), Held::take().unwrap());
        assert!(one.address.is_loopback() && other.address.is_loopback());
        assert_ne!(one.address, other.address);
        let address = other.address;
        drop(other);
        // Other tests of this process take addresses, too; among the next few it comes again.
        let held: Vec<Held> = (0..8).map(|_| Held::take().unwrap()).collect();
        assert!(held.iter().any(|held| held.address == address));
    }
}
