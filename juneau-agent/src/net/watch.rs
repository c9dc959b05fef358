//! Tells when links, addresses or routes of the namespace changed.

use super::NetError;
use futures::StreamExt;
use rtnetlink::MulticastGroup;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Sends on `changes` after links, IPv4 addresses or routes changed. Events are hints only: several may become one, and
/// a lost one shows as one more. The task ends when the receiver does. Needs a tokio runtime.
///
/// # Errors
/// [`NetError::Kernel`] when the socket cannot be made.
pub fn watch(changes: mpsc::Sender<()>) -> Result<JoinHandle<()>, NetError> {
    let groups = [MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv4Route];
    let (connection, _, mut messages) = rtnetlink::new_multicast_connection(&groups)
        .map_err(|source| NetError::Kernel { action: "open a netlink socket for events".into(), source })?;
    Ok(tokio::spawn(async move {
        let connection = tokio::spawn(connection);
        while messages.next().await.is_some() {
            // A full channel holds an event already.
            if let Err(mpsc::error::TrySendError::Closed(())) = changes.try_send(()) {
                break;
            }
        }
        connection.abort();
    }))
}
