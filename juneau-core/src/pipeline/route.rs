//! Route: from a destination to the endpoint that takes the packet.

use super::context::{PathResult, Refusal, Run, Sender, fault};
use super::{NodeState, TableRead};
use crate::flow::FlowTable;
use crate::layout::{Be32, EP_LOCAL, Endpoint, ROUTE_CONNECTED, ROUTE_ENDPOINT, Route, STAGE_ROUTE, ipv4, native};
use crate::verdict::Reason;
use core::net::IpAddr;

/// Who takes the packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) endpoint: Endpoint,
    /// The route is that of the destination's own Subnet.
    pub(super) connected: bool,
}

impl<T: TableRead, F: FlowTable, S: NodeState> Run<'_, T, F, S> {
    /// Who takes what is addressed to `destination` itself.
    pub(super) fn route(&mut self, sender: &Sender, destination: Be32) -> Result<Target, Refusal> {
        let route = self.route_to(sender, destination)?;
        self.target(sender, destination, route, false)
    }

    /// The route of a destination.
    pub(super) fn route_to(&mut self, sender: &Sender, destination: Be32) -> PathResult<Option<Route>> {
        let route = self.tables.route(sender.table, IpAddr::V4(ipv4(destination))).map_err(fault("route"))?;
        let found = route.unwrap_or_default();
        self.step(STAGE_ROUTE, found.kind, [sender.table, native(destination), found.vni, native(found.next_hop)]);
        Ok(route)
    }

    /// Who takes what goes to `destination`. What is `translated` may lead back to its sender.
    pub(super) fn target(
        &mut self,
        sender: &Sender,
        destination: Be32,
        route: Option<Route>,
        translated: bool,
    ) -> Result<Target, Refusal> {
        let route = route.ok_or(Refusal::new(Reason::NoRoute))?;
        let (address, missing) = match route.kind {
            ROUTE_CONNECTED if destination == sender.gateway => return Err(Refusal::new(Reason::Gateway)),
            ROUTE_CONNECTED => (destination, Reason::NoEndpoint),
            ROUTE_ENDPOINT => (route.next_hop, Reason::RouteUnreachable),
            _ => return Err(Refusal::new(Reason::RouteUnreachable)),
        };
        let endpoint = self.tables.endpoint(sender.vpc, IpAddr::V4(ipv4(address))).map_err(fault("endpoint"))?;
        let endpoint = endpoint.ok_or(Refusal::new(missing))?;
        if endpoint.flags & EP_LOCAL != 0 && endpoint.ifindex == sender.ifindex && !translated {
            return Err(Refusal::new(Reason::RouteUnreachable));
        }
        Ok(Target { endpoint, connected: route.kind == ROUTE_CONNECTED })
    }
}
