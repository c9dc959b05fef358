//! Addresses and routes.

use super::{NetError, Netlink};
use futures::TryStreamExt;
use ipnet::Ipv4Net;
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope,
};
use std::net::{IpAddr, Ipv4Addr};

/// How the kernel would send to an address: `ip route get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Device that it leaves by.
    pub ifindex: u32,
    /// The router, or the address itself on the link.
    pub next_hop: Ipv4Addr,
    /// The route's own MTU, where one is set or learned.
    pub mtu: Option<u32>,
}

/// Who set a route, in the kernel's records: a number that no routing daemon has.
const PROTOCOL: RouteProtocol = RouteProtocol::Other(74);

/// A route of the main table over one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostRoute {
    /// Its destinations.
    pub prefix: Ipv4Net,
    /// The router; without one the destinations are on the link.
    pub gateway: Option<Ipv4Addr>,
}

impl Netlink {
    /// Routes of the main table over a device, and whether each was set by [`Netlink::add_route`].
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn routes_over(&self, index: u32) -> Result<Vec<(HostRoute, bool)>, NetError> {
        let messages = self.main_table().await?;
        let over = messages.iter().filter_map(|message| {
            let (mut oif, mut gateway, mut destination) = (None, None, Ipv4Addr::UNSPECIFIED);
            for attribute in &message.attributes {
                match attribute {
                    RouteAttribute::Oif(index) => oif = Some(*index),
                    RouteAttribute::Gateway(RouteAddress::Inet(address)) => gateway = Some(*address),
                    RouteAttribute::Destination(RouteAddress::Inet(address)) => destination = *address,
                    _ => {}
                }
            }
            let prefix = Ipv4Net::new(destination, message.header.destination_prefix_length).ok()?;
            let route = HostRoute { prefix, gateway };
            (oif == Some(index)).then_some((route, message.header.protocol == PROTOCOL))
        });
        Ok(over.collect())
    }

    /// Adds a route to the main table; `source` is what sockets send from that are not bound.
    ///
    /// # Errors
    /// `EEXIST` when there is a route to these very destinations; see [`NetError`].
    pub async fn add_route(&self, index: u32, route: HostRoute, source: Ipv4Addr) -> Result<(), NetError> {
        let message = self.route_message(index, route).pref_source(source).build();
        let added = self.handle().route().add(message).execute().await;
        added.map_err(|error| NetError::from_rtnetlink(format!("add the route to {}", route.prefix), error))
    }

    /// Removes a route; one that is gone already is fine.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn delete_route(&self, index: u32, route: HostRoute) -> Result<(), NetError> {
        let deleted = self.handle().route().del(self.route_message(index, route).build()).execute().await;
        match deleted.map_err(|error| NetError::from_rtnetlink(format!("delete the route to {}", route.prefix), error))
        {
            Err(error) if error.errno() != Some(nix::libc::ESRCH) => Err(error),
            _ => Ok(()),
        }
    }

    fn route_message(&self, index: u32, route: HostRoute) -> RouteMessageBuilder<Ipv4Addr> {
        let message = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(route.prefix.addr(), route.prefix.prefix_len())
            .output_interface(index)
            .protocol(PROTOCOL);
        match route.gateway {
            Some(gateway) => message.gateway(gateway),
            None => message.scope(RouteScope::Link),
        }
    }

    async fn main_table(&self) -> Result<Vec<RouteMessage>, NetError> {
        let request = RouteMessageBuilder::<Ipv4Addr>::new().build();
        let messages: Vec<RouteMessage> = self
            .handle()
            .route()
            .get(request)
            .execute()
            .try_collect()
            .await
            .map_err(|error| NetError::from_rtnetlink("list routes", error))?;
        Ok(messages.into_iter().filter(|message| message.header.table == RouteHeader::RT_TABLE_MAIN).collect())
    }

    /// IPv4 addresses of the namespace, with the ifindex of their device.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn addresses(&self) -> Result<Vec<(u32, Ipv4Net)>, NetError> {
        let messages: Vec<AddressMessage> = self
            .handle()
            .address()
            .get()
            .execute()
            .try_collect()
            .await
            .map_err(|error| NetError::from_rtnetlink("list addresses", error))?;
        Ok(messages.iter().filter_map(address_of).collect())
    }

    /// Gives a device an address; one that it has already is fine.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn add_address(&self, index: u32, address: Ipv4Net) -> Result<(), NetError> {
        self.handle()
            .address()
            .add(index, IpAddr::V4(address.addr()), address.prefix_len())
            .replace()
            .execute()
            .await
            .map_err(|error| NetError::from_rtnetlink(format!("add address {address} to device {index}"), error))
    }

    /// Takes an address from a device.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn delete_address(&self, index: u32, address: Ipv4Net) -> Result<(), NetError> {
        let message = rtnetlink::AddressMessageBuilder::<Ipv4Addr>::new()
            .index(index)
            .address(address.addr(), address.prefix_len())
            .build();
        self.handle()
            .address()
            .del(message)
            .execute()
            .await
            .map_err(|error| NetError::from_rtnetlink(format!("delete address {address} of device {index}"), error))
    }

    /// Sets the default route.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn set_default_route(&self, index: u32, gateway: Ipv4Addr) -> Result<(), NetError> {
        let route = RouteMessageBuilder::<Ipv4Addr>::new().gateway(gateway).output_interface(index).build();
        self.handle()
            .route()
            .add(route)
            .replace()
            .execute()
            .await
            .map_err(|error| NetError::from_rtnetlink(format!("set the default route via {gateway}"), error))
    }

    /// The device and next hop of the IPv4 default route in the main table, if there is one.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn default_route(&self) -> Result<Option<(u32, Ipv4Addr)>, NetError> {
        let messages = self.main_table().await?;
        let default = messages.iter().filter(|message| message.header.destination_prefix_length == 0);
        let mut ways = default.filter_map(|message| way_of(Ipv4Addr::UNSPECIFIED, message));
        Ok(ways.next().map(|way| (way.ifindex, way.next_hop)))
    }

    /// How the kernel would send to `destination`; `None` when it has no route.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn way_to(&self, destination: Ipv4Addr) -> Result<Option<Way>, NetError> {
        let request = RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(destination, 32).build();
        let found = self.handle().route().get(request).execute().try_next().await;
        match found.map_err(|error| NetError::from_rtnetlink(format!("find the route to {destination}"), error)) {
            Ok(message) => Ok(message.as_ref().and_then(|message| way_of(destination, message))),
            Err(error) if matches!(error.errno(), Some(nix::libc::ENETUNREACH | nix::libc::EHOSTUNREACH)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn address_of(message: &AddressMessage) -> Option<(u32, Ipv4Net)> {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(IpAddr::V4(address)) => Some(*address),
        _ => None,
    })?;
    Some((message.header.index, Ipv4Net::new(local, message.header.prefix_len).ok()?))
}

fn way_of(destination: Ipv4Addr, message: &RouteMessage) -> Option<Way> {
    let (mut ifindex, mut next_hop, mut mtu) = (None, destination, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => ifindex = Some(*index),
            RouteAttribute::Gateway(RouteAddress::Inet(gateway)) => next_hop = *gateway,
            RouteAttribute::Metrics(metrics) => {
                mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) => Some(*mtu),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    ifindex.map(|ifindex| Way { ifindex, next_hop, mtu })
}
