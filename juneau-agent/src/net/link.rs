//! Devices.

use super::{Namespace, NetError, Netlink};
use futures::TryStreamExt;
use juneau_core::id::MacAddr;
use rtnetlink::packet_route::link::{
    InfoData, InfoKind, InfoVeth, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use rtnetlink::{LinkMessageBuilder, LinkUnspec, LinkVxlan};

/// What the agent wants to know of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// ifindex.
    pub index: u32,
    /// Name.
    pub name: String,
    /// `ip link set … alias`.
    pub alias: Option<String>,
    /// Device group; 0 is the default.
    pub group: u32,
    /// MTU in bytes.
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// MAC address, where the device has one.
    pub mac: Option<[u8; 6]>,
    /// ifindex of the device that this one lies upon or is paired with, in that device's own namespace.
    pub peer: Option<u32>,
    /// The number that this namespace has for that one; `None` when it is this one.
    pub peer_namespace: Option<i32>,
    /// Kind, as `ip link` names it: `veth`, `vxlan`; `None` for a physical device.
    pub kind: Option<String>,
    /// Settings of a VXLAN device.
    pub vxlan: Option<Vxlan>,
}

/// Settings of a VXLAN device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vxlan {
    /// VNI; 0 with `external`.
    pub vni: u32,
    /// UDP port.
    pub port: u16,
    /// Takes VNI and addresses from each packet's metadata.
    pub external: bool,
}

/// A veth pair to create: one end here, the other in a Pod, or here as well.
#[derive(Debug)]
pub struct VethRequest<'a> {
    /// Name of this end.
    pub name: &'a str,
    /// Device group of this end.
    pub group: u32,
    /// Name of the other end.
    pub peer_name: &'a str,
    /// Where the other end goes; without one it stays here and is of the same group.
    pub peer_namespace: Option<&'a Namespace>,
    /// MAC address of the other end.
    pub peer_mac: MacAddr,
    /// MTU of both.
    pub mtu: u32,
}

impl Link {
    fn from_message(message: &LinkMessage) -> Self {
        let mut link = Self {
            index: message.header.index,
            name: String::new(),
            alias: None,
            group: 0,
            mtu: 0,
            up: message.header.flags.contains(LinkFlags::Up),
            mac: None,
            peer: None,
            peer_namespace: None,
            kind: None,
            vxlan: None,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::IfAlias(alias) => link.alias = Some(alias.clone()),
                LinkAttribute::Group(group) => link.group = *group,
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Link(index) => link.peer = Some(*index),
                LinkAttribute::LinkNetNsId(id) => link.peer_namespace = Some(*id),
                LinkAttribute::Address(address) => link.mac = address.as_slice().try_into().ok(),
                LinkAttribute::LinkInfo(info) => {
                    for item in info {
                        match item {
                            LinkInfo::Kind(kind) => link.kind = Some(kind.to_string()),
                            LinkInfo::Data(InfoData::Vxlan(data)) => link.vxlan = Some(Vxlan::from_info(data)),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        link
    }
}

impl Vxlan {
    fn from_info(data: &[InfoVxlan]) -> Self {
        let mut vxlan = Self { vni: 0, port: 0, external: false };
        for item in data {
            match item {
                InfoVxlan::Id(vni) => vxlan.vni = *vni,
                InfoVxlan::Port(port) => vxlan.port = *port,
                InfoVxlan::CollectMetadata(external) => vxlan.external = *external,
                _ => {}
            }
        }
        vxlan
    }
}

impl Netlink {
    /// Every device of the namespace.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn links(&self) -> Result<Vec<Link>, NetError> {
        let messages: Vec<LinkMessage> = self
            .handle()
            .link()
            .get()
            .execute()
            .try_collect()
            .await
            .map_err(|error| NetError::from_rtnetlink("list devices", error))?;
        Ok(messages.iter().map(Link::from_message).collect())
    }

    /// The device of this name, if there is one.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn link(&self, name: &str) -> Result<Option<Link>, NetError> {
        let found = self.handle().link().get().match_name(name).execute().try_next().await;
        match found.map_err(|error| NetError::from_rtnetlink(format!("look up device {name}"), error)) {
            Ok(message) => Ok(message.as_ref().map(Link::from_message)),
            Err(error) if error.errno() == Some(nix::libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The device of this ifindex, if there is one.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn link_at(&self, index: u32) -> Result<Option<Link>, NetError> {
        let found = self.handle().link().get().match_index(index).execute().try_next().await;
        match found.map_err(|error| NetError::from_rtnetlink(format!("look up device {index}"), error)) {
            Ok(message) => Ok(message.as_ref().map(Link::from_message)),
            Err(error) if error.errno() == Some(nix::libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a veth pair, down at both ends.
    ///
    /// # Errors
    /// `EEXIST` when either name is taken; see [`NetError`].
    pub async fn add_veth(&self, request: &VethRequest<'_>) -> Result<(), NetError> {
        let peer = LinkMessageBuilder::<LinkUnspec>::new()
            .name(request.peer_name)
            .mtu(request.mtu)
            .address(request.peer_mac.octets().to_vec());
        let peer = match request.peer_namespace {
            Some(namespace) => peer.setns_by_fd(namespace.raw_fd()),
            None => peer.link_group(request.group),
        };
        let peer = peer.build();
        let message = LinkMessageBuilder::<LinkUnspec>::new_with_info_kind(InfoKind::Veth)
            .name(request.name)
            .mtu(request.mtu)
            .link_group(request.group)
            .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
            .build();
        let action = || format!("create veth {} with peer {}", request.name, request.peer_name);
        self.handle().link().add(message).execute().await.map_err(|error| NetError::from_rtnetlink(action(), error))
    }

    /// Creates a VXLAN device that takes VNI and addresses from each packet's metadata, down.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn add_external_vxlan(&self, name: &str, port: u16, mtu: u32, group: u32) -> Result<(), NetError> {
        // Learning and the kernel's local bypass would let packets around the programs.
        let message = LinkMessageBuilder::<LinkVxlan>::new(name)
            .collect_metadata(true)
            .port(port)
            .learning(false)
            .mtu(mtu)
            .link_group(group)
            .build();
        self.handle()
            .link()
            .add(message)
            .execute()
            .await
            .map_err(|error| NetError::from_rtnetlink(format!("create VXLAN device {name}"), error))
    }

    /// Changes a device: whatever `change` sets.
    async fn set(
        &self,
        index: u32,
        what: &str,
        change: impl FnOnce(LinkMessageBuilder<LinkUnspec>) -> LinkMessageBuilder<LinkUnspec>,
    ) -> Result<(), NetError> {
        let message = change(LinkUnspec::new_with_index(index)).build();
        self.handle()
            .link()
            .set(message)
            .execute()
            .await
            .map_err(|error| NetError::from_rtnetlink(format!("set {what} of device {index}"), error))
    }

    /// Sets a device's alias, at most 255 bytes.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn set_alias(&self, index: u32, alias: &str) -> Result<(), NetError> {
        // With the terminating zero that the attribute's encoder adds, 256 bytes are refused.
        self.set(index, "alias", |link| link.alias(alias)).await
    }

    /// Sets a device up.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn set_up(&self, index: u32) -> Result<(), NetError> {
        self.set(index, "the state", LinkMessageBuilder::up).await
    }

    /// Sets a device down.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn set_down(&self, index: u32) -> Result<(), NetError> {
        self.set(index, "the state", LinkMessageBuilder::down).await
    }

    /// Sets a device's MTU.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn set_mtu(&self, index: u32, mtu: u32) -> Result<(), NetError> {
        self.set(index, "the MTU", |link| link.mtu(mtu)).await
    }

    /// Sets a device's MAC address.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn set_mac(&self, index: u32, mac: MacAddr) -> Result<(), NetError> {
        self.set(index, "the MAC address", |link| link.address(mac.octets().to_vec())).await
    }

    /// Deletes a device; one that is gone already is fine.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn delete_link(&self, index: u32) -> Result<(), NetError> {
        let deleted = self.handle().link().del(index).execute().await;
        match deleted.map_err(|error| NetError::from_rtnetlink(format!("delete device {index}"), error)) {
            Err(error) if error.errno() != Some(nix::libc::ENODEV) => Err(error),
            _ => Ok(()),
        }
    }
}
