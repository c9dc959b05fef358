//! Links, addresses, routes and neighbours: what the agent asks of the kernel besides BPF.

mod link;
mod namespace;
mod neighbour;
mod route;
mod watch;

pub use link::{Link, VethRequest, Vxlan};
pub use namespace::Namespace;
pub use route::{HostRoute, Way};
pub use watch::watch;

use futures::StreamExt as _;
use rtnetlink::packet_core::{ErrorMessage, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::nsid::{NsidAttribute, NsidMessage};
use std::io;
use std::path::Path;
use tokio::task::JoinHandle;

/// Why the kernel's network configuration could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The kernel refused a request.
    #[error("{action}: {source}")]
    Kernel {
        /// What was asked, with its object.
        action: String,
        /// The kernel's error number.
        source: io::Error,
    },
    /// The netlink socket broke, or an answer could not be read.
    #[error("{action}: {message}")]
    Netlink {
        /// What was asked.
        action: String,
        /// What is wrong.
        message: String,
    },
    /// A network namespace cannot be entered.
    #[error("network namespace {path}: {source}")]
    Namespace {
        /// Its path.
        path: String,
        /// The kernel's error number.
        source: io::Error,
    },
    /// A file under `/proc/sys` cannot be written.
    #[error("{path}: {source}")]
    Sysctl {
        /// The file.
        path: String,
        /// The kernel's error number.
        source: io::Error,
    },
}

impl NetError {
    /// The error number, where the kernel gave one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Kernel { source, .. } | Self::Namespace { source, .. } | Self::Sysctl { source, .. } => {
                source.raw_os_error()
            }
            Self::Netlink { .. } => None,
        }
    }

    fn from_rtnetlink(action: impl Into<String>, error: rtnetlink::Error) -> Self {
        let action = action.into();
        match error {
            rtnetlink::Error::NetlinkError(ErrorMessage { code: Some(code), .. }) => {
                Self::Kernel { action, source: io::Error::from_raw_os_error(code.get().saturating_abs()) }
            }
            other => Self::Netlink { action, message: other.to_string() },
        }
    }
}

/// A netlink socket in one network namespace.
#[derive(Debug)]
pub struct Netlink {
    handle: rtnetlink::Handle,
    connection: JoinHandle<()>,
}

impl Netlink {
    /// A socket in the calling thread's network namespace. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`NetError::Kernel`] when the socket cannot be made.
    pub fn open() -> Result<Self, NetError> {
        let (connection, handle, _) = rtnetlink::new_connection()
            .map_err(|source| NetError::Kernel { action: "open a netlink socket".into(), source })?;
        Ok(Self { handle, connection: tokio::spawn(connection) })
    }

    /// A socket in another network namespace. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`NetError::Namespace`] when it cannot be entered, and as [`Netlink::open`].
    pub fn open_in(namespace: &Namespace) -> Result<Self, NetError> {
        let runtime = tokio::runtime::Handle::current();
        namespace.run(move || {
            let _inside = runtime.enter();
            Self::open()
        })?
    }

    /// The number that this socket's namespace has for another ([`Link::peer_namespace`]), if it has one.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn number_of(&self, namespace: &Namespace) -> Result<Option<i32>, NetError> {
        let action = || "look up the number of a network namespace".to_owned();
        let odd = |message: String| NetError::Netlink { action: action(), message };
        let fd = u32::try_from(namespace.raw_fd()).map_err(|error| odd(error.to_string()))?;
        let mut question = NsidMessage::default();
        question.attributes.push(NsidAttribute::Fd(fd));
        let mut request = NetlinkMessage::from(RouteNetlinkMessage::GetNsId(question));
        request.header.flags = NLM_F_REQUEST;
        let mut answers = self.handle().clone().request(request).map_err(|error| odd(error.to_string()))?;
        let Some(answer) = answers.next().await else { return Err(odd("no answer".to_owned())) };
        match answer.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNsId(found)) => {
                let number = found.attributes.iter().find_map(|attribute| match attribute {
                    NsidAttribute::Id(number) => Some(*number),
                    _ => None,
                });
                Ok(number.filter(|number| *number >= 0))
            }
            NetlinkPayload::Error(error) => {
                Err(NetError::from_rtnetlink(action(), rtnetlink::Error::NetlinkError(error)))
            }
            other => Err(odd(format!("{other:?}"))),
        }
    }

    pub(crate) fn handle(&self) -> &rtnetlink::Handle {
        &self.handle
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Where the kernel's settings are, unless they are elsewhere.
pub const SYSCTL_DIR: &str = "/proc/sys";

/// Switches IPv6 off on a device of the calling thread's network namespace, by its setting under `sysctls`, which is
/// [`SYSCTL_DIR`] or another mount of the same. A kernel without IPv6 is fine.
///
/// # Errors
/// [`NetError::Sysctl`].
pub fn disable_ipv6(sysctls: &Path, device: &str) -> Result<(), NetError> {
    write(&sysctls.join("net/ipv6/conf").join(device).join("disable_ipv6"), "1")
}

/// Lets a device of the calling thread's network namespace receive from whatever address the namespace has any route to
/// (RFC 3704, 2.4), however strict it is elsewhere. See [`disable_ipv6`].
///
/// # Errors
/// [`NetError::Sysctl`].
pub fn loosen_reverse_path(sysctls: &Path, device: &str) -> Result<(), NetError> {
    write(&sysctls.join("net/ipv4/conf").join(device).join("rp_filter"), "2")
}

fn write(path: &Path, value: &str) -> Result<(), NetError> {
    match std::fs::write(path, value) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(NetError::Sysctl { path: path.display().to_string(), source: error })
        }
        _ => Ok(()),
    }
}
