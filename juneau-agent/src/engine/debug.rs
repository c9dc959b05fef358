//! Answers of the debug methods, read from the kernel.

use super::Engine;
use crate::protocol::{
    Delivered, Drop, Drops, Endpoint, Endpoints, ErrorCode, Failure, Flow, FlowFilter, Flows, Route, Routes,
};
use juneau_bpf::Dataplane;
use juneau_core::flow::FlowRead;
use juneau_core::id::MacAddr;
use juneau_core::layout::{self, FlowKey, RouteKey, ipv4};
use juneau_core::tables::TablesMut;
use juneau_core::time::Now;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};

/// An answer as JSON.
pub(super) fn value<T: Serialize>(answer: T) -> Result<Value, Failure> {
    serde_json::to_value(answer).map_err(unreadable)
}

/// The kernel did not tell.
pub(super) fn unreadable(error: impl Display) -> Failure {
    Failure::new(ErrorCode::Node, error.to_string(), "see the agent's problems: juneau-agent status")
}

impl Engine {
    pub(super) fn dataplane(&self) -> Result<&Dataplane, Failure> {
        self.dataplane.as_ref().ok_or_else(|| {
            let why = self.problems.blocking().next().map(|problem| format!(" ({problem})")).unwrap_or_default();
            Failure::new(
                ErrorCode::TryAgain,
                format!("this node's data path is not up yet{why}"),
                "see the agent's problems: juneau-agent status",
            )
        })
    }

    pub(super) fn drops(&self) -> Result<Drops, Failure> {
        let counters = self.dataplane()?.counters().map_err(unreadable)?;
        let exits = counters.exits().map_err(unreadable)?;
        let drops = exits.into_iter().map(|exit| Drop {
            hook: exit.hook.name(),
            reason: exit.reason.name(),
            answered: exit.answered,
            packets: exit.packets,
            text: exit.reason.text().to_owned(),
        });
        let mut delivered = Vec::new();
        for count in counters.traffic().map_err(unreadable)? {
            let vpc = self.vpc_at(count.vpc_index);
            for (direction, traffic) in [("from-pod", count.from_pod), ("from-overlay", count.from_overlay)] {
                if traffic.packets > 0 {
                    let direction = direction.to_owned();
                    delivered.push(Delivered { vpc, direction, packets: traffic.packets, bytes: traffic.bytes });
                }
            }
        }
        Ok(Drops { drops: drops.collect(), delivered })
    }

    /// The id of the VPC with this number; 0 when it has left this node.
    pub(super) fn vpc_at(&self, index: u16) -> u32 {
        self.mirror.vpcs.get(&u32::from(index)).map_or(0, |vpc| vpc.vpc)
    }

    pub(super) fn flows(&self, filter: &FlowFilter) -> Result<Flows, Failure> {
        let dataplane = self.dataplane()?;
        let table = dataplane.flows().map_err(unreadable)?;
        let clock = dataplane.clock();
        let now = clock.now().map_err(unreadable)?;
        let (mut flows, mut left_off) = (Vec::new(), 0);
        let mut visit = |key: &FlowKey, flow: &layout::Flow| {
            let wanted =
                filter.address.is_none_or(|address| address == ipv4(key.source) || address == ipv4(key.destination));
            if wanted && (filter.limit == 0 || flows.len() < filter.limit) {
                flows.push(flow_of(key, flow, now));
            } else if wanted {
                left_off += 1;
            }
        };
        table.for_each(&mut visit).map_err(unreadable)?;
        flows.sort_by(|a, b| {
            let order = |f: &Flow| (f.scope.clone(), f.source, f.source_port, f.destination, f.destination_port);
            order(a).cmp(&order(b))
        });
        Ok(Flows { flows, left_off })
    }

    pub(super) fn routes(&self) -> Result<Routes, Failure> {
        let held = self.dataplane()?.tables().map_err(unreadable)?.snapshot().map_err(unreadable)?;
        Ok(Routes { routes: held.routes.iter().map(|(key, route)| route_of(key, route)).collect() })
    }

    pub(super) fn endpoints(&self) -> Result<Endpoints, Failure> {
        let held = self.dataplane()?.tables().map_err(unreadable)?.snapshot().map_err(unreadable)?;
        let names: BTreeMap<(u32, IpAddr), &str> = self
            .objects
            .model()
            .endpoints
            .iter()
            .map(|((vpc, address), endpoint)| ((vpc.get(), *address), endpoint.name.as_str()))
            .collect();
        let endpoints = held.endpoints.iter().map(|(key, record)| {
            let address = ipv4(key.address);
            Endpoint {
                vpc: key.vpc,
                address,
                object: names.get(&(key.vpc, IpAddr::V4(address))).map(|name| (*name).to_owned()),
                mac: MacAddr::new(record.mac).map_or_else(|error| error.to_string(), |mac| mac.to_string()),
                vni: record.vni,
                ifindex: record.ifindex,
                vtep: some_address(record.vtep),
                identity: record.identity,
                router: record.flags & layout::EP_ROUTER != 0,
                policy_ready: record.flags & layout::EP_POLICY_READY != 0,
            }
        });
        Ok(Endpoints { endpoints: endpoints.collect() })
    }
}

fn some_address(address: layout::Be32) -> Option<Ipv4Addr> {
    Some(ipv4(address)).filter(|address| !address.is_unspecified())
}

fn route_of(key: &RouteKey, route: &layout::Route) -> Route {
    let length = key.prefix_length.saturating_sub(RouteKey::TABLE_BITS);
    let (kind, next_hop, vni) = match route.kind {
        layout::ROUTE_CONNECTED => ("connected".to_owned(), None, Some(route.vni)),
        layout::ROUTE_ENDPOINT => ("endpoint".to_owned(), some_address(route.next_hop), None),
        layout::ROUTE_SERVICE => ("service".to_owned(), None, None),
        layout::ROUTE_TARGET_GONE => ("target-gone".to_owned(), None, None),
        other => (format!("kind {other}"), None, None),
    };
    Route { table: key.table, prefix: format!("{}/{length}", ipv4(key.address)), kind, next_hop, vni }
}

fn flow_of(key: &FlowKey, flow: &layout::Flow, now: Now) -> Flow {
    let id = key.scope & layout::SCOPE_MASK;
    let scope = if key.scope & layout::SCOPE_OVERLAY != 0 {
        format!("vni {id}")
    } else if key.scope & layout::SCOPE_TRANSIT != 0 {
        format!("transit {id}")
    } else {
        format!("vpc {id}")
    };
    let protocol = match key.scope >> layout::SCOPE_PROTO_SHIFT {
        layout::PROTO_ICMP => "icmp".to_owned(),
        layout::PROTO_TCP => "tcp".to_owned(),
        layout::PROTO_UDP => "udp".to_owned(),
        _ => key.source_port.get().to_string(),
    };
    let (egress, ifindex) = match flow.kind {
        layout::EGRESS_PEER => ("peer", flow.ifindex),
        layout::EGRESS_ENCAP => ("encap", 0),
        layout::EGRESS_NODE => ("node", flow.ifindex),
        _ => ("unresolved", 0),
    };
    Flow {
        scope,
        protocol,
        source: ipv4(key.source),
        source_port: key.source_port.get(),
        destination: ipv4(key.destination),
        destination_port: key.destination_port.get(),
        egress: egress.to_owned(),
        ifindex,
        vtep: some_address(flow.vtep),
        vni: flow.vni,
        reply: flow.flags & layout::FLOW_REPLY != 0,
        embryonic: flow.flags & layout::FLOW_EMBRYONIC != 0,
        tcp_flags: tcp_flags(flow.flags),
        idle_milliseconds: u64::from(now.since(flow.stamp)) * 256 * 1000 / u64::from(now.hz.max(1)),
    }
}

/// The low eight flags as letters, as tcpdump writes them.
fn tcp_flags(flags: u32) -> String {
    const LETTERS: [(u32, char); 8] =
        [(0x02, 'S'), (0x01, 'F'), (0x04, 'R'), (0x08, 'P'), (0x20, 'U'), (0x40, 'E'), (0x80, 'W'), (0x10, '.')];
    LETTERS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, letter)| *letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_as_people_write_them() {
        let key = FlowKey {
            scope: 4096 | layout::SCOPE_OVERLAY | layout::PROTO_TCP << layout::SCOPE_PROTO_SHIFT,
            source: layout::be32(Ipv4Addr::new(10, 0, 1, 10)),
            destination: layout::be32(Ipv4Addr::new(10, 0, 2, 10)),
            source_port: 40000.into(),
            destination_port: 80.into(),
        };
        let flow = layout::Flow {
            kind: layout::EGRESS_PEER,
            ifindex: 7,
            stamp: 10,
            flags: layout::FLOW_EMBRYONIC | 0x12,
            ..layout::Flow::default()
        };
        let shown = flow_of(&key, &flow, Now { stamp: 12, hz: 250 });
        assert_eq!((shown.scope.as_str(), shown.protocol.as_str()), ("vni 4096", "tcp"));
        assert_eq!((shown.egress.as_str(), shown.ifindex, shown.idle_milliseconds), ("peer", 7, 2048));
        assert_eq!((shown.tcp_flags.as_str(), shown.embryonic, shown.reply), ("S.", true, false));
    }

    #[test]
    fn routes_read_as_people_write_them() {
        let key = RouteKey::new(3, Ipv4Addr::new(10, 1, 0, 0), 16);
        let route = layout::Route {
            kind: layout::ROUTE_ENDPOINT,
            next_hop: layout::be32(Ipv4Addr::new(10, 0, 1, 5)),
            ..layout::Route::default()
        };
        let shown = route_of(&key, &route);
        assert_eq!((shown.table, shown.prefix.as_str(), shown.kind.as_str()), (3, "10.1.0.0/16", "endpoint"));
        assert_eq!((shown.next_hop, shown.vni), (Some(Ipv4Addr::new(10, 0, 1, 5)), None));
    }
}
