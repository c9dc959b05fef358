//! Content for tables of any size, always the same.

use std::net::Ipv4Addr;

use juneau_core::flow::Opening;
use juneau_core::layout::{
    Be16, Endpoint, EndpointKey, FLOW_REPLY, Flow, FlowKey, KIND_POD, PROTO_UDP, ROUTE_CONNECTED, Route, RouteKey, be32,
};
use juneau_core::tables::Tables;

/// VPCs that the endpoints are spread over.
const VPCS: u32 = 100;
/// Endpoints to one route.
const ENDPOINTS_PER_ROUTE: u32 = 10;

/// Numbers that look random and are the same in every run (xorshift64*, Vigna 2016).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Starts a sequence.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        // The product of two 32-bit numbers: its high half is below the limit.
        ((high * u64::from(limit)) >> 32) as u32
    }
}

/// VPC and address of the n-th endpoint.
#[must_use]
pub fn endpoint_key(n: u32) -> (u32, Ipv4Addr) {
    (2 + n % VPCS, Ipv4Addr::from(0x0a00_0000 + n / VPCS))
}

/// Route table and address of a destination that has a route.
#[must_use]
pub fn routed_address(n: u32) -> (u32, Ipv4Addr) {
    let n = n / ENDPOINTS_PER_ROUTE;
    (2 + n % VPCS, Ipv4Addr::from(0x0a00_0001 + ((n / VPCS) << 8)))
}

/// Endpoints on other nodes, and a route for every tenth.
#[must_use]
pub fn endpoints(count: u32) -> Tables {
    let mut tables = Tables::default();
    for n in 0..count {
        let (vpc, address) = endpoint_key(n);
        let endpoint = Endpoint {
            vtep: be32(Ipv4Addr::new(192, 168, 9, 2)),
            vni: vpc,
            kind: KIND_POD,
            table: vpc,
            ..Endpoint::default()
        };
        tables.endpoints.insert(EndpointKey { vpc, address: be32(address) }, endpoint);
        if n % ENDPOINTS_PER_ROUTE == 0 {
            let (table, address) = routed_address(n);
            let prefix = Ipv4Addr::from(u32::from(address) & 0xffff_ff00);
            let route = Route { kind: ROUTE_CONNECTED, vni: vpc, ..Route::default() };
            tables.routes.insert(RouteKey::new(table, prefix, 24), route);
        }
    }
    tables
}

/// Key of the n-th connection's first direction.
#[must_use]
pub fn flow_key(n: u32) -> FlowKey {
    let (vpc, source) = endpoint_key(n % 1000);
    FlowKey {
        scope: FlowKey::scope(vpc, 0, PROTO_UDP),
        source: be32(source),
        destination: be32(Ipv4Addr::from(0x0aff_0000 + (n >> 16))),
        source_port: Be16::new((n & 0xffff) as u16),
        destination_port: Be16::new(53),
    }
}

/// The n-th connection, last seen at `stamp`.
#[must_use]
pub fn opening(n: u32, stamp: u32) -> Opening {
    let key = flow_key(n);
    let back = FlowKey {
        scope: key.scope,
        source: key.destination,
        destination: key.source,
        source_port: key.destination_port,
        destination_port: key.source_port,
    };
    let flow = |peer, flags| Flow { stamp, peer, flags, ..Flow::default() };
    Opening {
        vpc_index: 0,
        flow_limit: u32::MAX,
        embryonic_limit: u32::MAX,
        forward: (key, flow(back, 0)),
        reverse: Some((back, flow(key, FLOW_REPLY))),
        reused: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_and_route_is_one_of_its_own() {
        let tables = endpoints(5_000);
        assert_eq!(tables.endpoints.len(), 5_000);
        assert_eq!(tables.routes.len(), 500);
    }

    #[test]
    fn every_connection_is_one_of_its_own() {
        let keys: std::collections::HashSet<FlowKey> = (0..200_000).map(flow_key).collect();
        assert_eq!(keys.len(), 200_000);
    }

    #[test]
    fn random_numbers_stay_below_the_limit_and_reach_all() {
        let mut random = Random::new(7);
        let mut seen = [0_u32; 10];
        for _ in 0..1_000 {
            let n = random.below(10);
            if let Some(count) = seen.get_mut(n as usize) {
                *count += 1;
            }
        }
        assert_eq!(seen.iter().sum::<u32>(), 1_000);
        assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
    }
}
