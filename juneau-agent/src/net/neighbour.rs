//! Managed neighbours: the kernel keeps resolving them, whether or not the agent runs.

use super::{NetError, Netlink};
use futures::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourExtFlags, NeighbourMessage, NeighbourState,
};
use std::net::{IpAddr, Ipv4Addr};

impl Netlink {
    /// Managed neighbours (`NTF_EXT_MANAGED`) as {ifindex, address}.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn managed_neighbours(&self) -> Result<Vec<(u32, Ipv4Addr)>, NetError> {
        let messages: Vec<NeighbourMessage> = self
            .handle()
            .neighbours()
            .get()
            .set_address_family(AddressFamily::Inet)
            .execute()
            .try_collect()
            .await
            .map_err(|error| NetError::from_rtnetlink("list neighbours", error))?;
        Ok(messages
            .iter()
            .filter(|message| is_managed(message))
            .filter_map(|message| Some((message.header.ifindex, destination(message)?)))
            .collect())
    }

    /// Has the kernel keep this neighbour resolved.
    ///
    /// # Errors
    /// `EINVAL` before Linux 5.16; see [`NetError`].
    pub async fn add_managed_neighbour(&self, ifindex: u32, address: Ipv4Addr) -> Result<(), NetError> {
        let mut request =
            self.handle().neighbours().add(ifindex, IpAddr::V4(address)).state(NeighbourState::None).replace();
        request.message_mut().attributes.push(NeighbourAttribute::ExtFlags(NeighbourExtFlags::Managed));
        request
            .execute()
            .await
            .map_err(|error| NetError::from_rtnetlink(format!("add managed neighbour {address}"), error))
    }

    /// Stops keeping this neighbour; one that is gone already is fine.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn delete_neighbour(&self, ifindex: u32, address: Ipv4Addr) -> Result<(), NetError> {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.ifindex = ifindex;
        message.attributes.push(NeighbourAttribute::Destination(NeighbourAddress::Inet(address)));
        let deleted = self.handle().neighbours().del(message).execute().await;
        match deleted.map_err(|error| NetError::from_rtnetlink(format!("delete neighbour {address}"), error)) {
            Err(error) if error.errno() != Some(nix::libc::ENOENT) => Err(error),
            _ => Ok(()),
        }
    }
}

fn is_managed(message: &NeighbourMessage) -> bool {
    message.attributes.iter().any(
        |attribute| matches!(attribute, NeighbourAttribute::ExtFlags(flags) if flags.contains(NeighbourExtFlags::Managed)),
    )
}

fn destination(message: &NeighbourMessage) -> Option<Ipv4Addr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some(*address),
        _ => None,
    })
}
