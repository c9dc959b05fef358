//! Route: from a destination to the endpoint that takes the packet.

use super::context::{Refusal, Run, Sender, fault};
use super::{NodeState, TableRead};
use crate::flow::FlowTable;
use crate::layout::{Be32, EP_LOCAL, Endpoint, ROUTE_CONNECTED, ROUTE_ENDPOINT, ROUTE_NONE, STAGE_ROUTE, ipv4, native};
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
    pub(super) fn route(&mut self, sender: &Sender, destination: Be32) -> Result<Target, Refusal> {
        let route = self.tables.route(sender.table, IpAddr::V4(ipv4(destination))).map_err(fault("route"))?;
        let Some(route) = route else {
            self.step(STAGE_ROUTE, ROUTE_NONE, [sender.table, native(destination), 0, 0]);
            return Err(Refusal::new(Reason::NoRoute));
        };
        self.step(STAGE_ROUTE, route.kind, [sender.table, native(destination), route.vni, native(route.next_hop)]);
        let (address, missing) = match route.kind {
            ROUTE_CONNECTED if destination == sender.gateway => return Err(Refusal::new(Reason::Gateway)),
            ROUTE_CONNECTED => (destination, Reason::NoEndpoint),
            ROUTE_ENDPOINT => (route.next_hop, Reason::RouteUnreachable),
            _ => return Err(Refusal::new(Reason::RouteUnreachable)),
        };
        let endpoint = self.tables.endpoint(sender.vpc, IpAddr::V4(ipv4(address))).map_err(fault("endpoint"))?;
        let endpoint = endpoint.ok_or(Refusal::new(missing))?;
        if endpoint.flags & EP_LOCAL != 0 && endpoint.ifindex == sender.ifindex {
            return Err(Refusal::new(Reason::RouteUnreachable));
        }
        Ok(Target { endpoint, connected: route.kind == ROUTE_CONNECTED })
    }
}
