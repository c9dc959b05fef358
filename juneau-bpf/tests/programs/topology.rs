//! The lab's tables: two VPCs with equal addresses, two Subnets in the one, a router, endpoints on another node.

use std::net::Ipv4Addr;

use juneau_core::layout::*;

use crate::lab::*;
use crate::packet::Mac;

/// An endpoint of the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pod {
    pub name: &'static str,
    pub vpc: u32,
    pub vni: u32,
    pub address: Ipv4Addr,
    /// 0: on the other node.
    pub ifindex: u32,
    pub vtep: Ipv4Addr,
    pub mac: Mac,
    pub router: bool,
}

impl Pod {
    pub fn at(self) -> (Mac, Ipv4Addr) {
        (self.mac, self.address)
    }

    pub fn gateway_mac(self) -> Mac {
        [2, 0xee, 0, 0, 0, self.vni as u8]
    }

    pub fn gateway(self) -> Ipv4Addr {
        let [a, b, c, _] = self.address.octets();
        Ipv4Addr::new(a, b, c, 1)
    }

    pub fn vpc_index(self) -> u16 {
        (if self.vpc == RED { RED_INDEX } else { BLUE_INDEX }) as u16
    }

    pub fn table(self) -> u32 {
        if self.vpc == RED { TABLE } else { BLUE_TABLE }
    }
}

impl Lab {
    pub fn tables(&self) -> Vec<Pod> {
        let mut number = 0;
        let mut pod = |name, vpc, vni, address, device: &str, vtep| {
            number += 1;
            Pod {
                name,
                vpc,
                vni,
                address,
                ifindex: if device.is_empty() { 0 } else { ifindex(device) },
                vtep,
                mac: [2, 0xaa, 0, 0, vpc as u8, number],
                router: name == "router",
            }
        };
        let (one, two) = (|host| Ipv4Addr::new(10, 0, 1, host), |host| Ipv4Addr::new(10, 0, 2, host));
        let none = Ipv4Addr::UNSPECIFIED;
        let pods = vec![
            pod("a", RED, FIRST, one(10), "pod-a", none),
            pod("b", RED, FIRST, one(11), "pod-b", none),
            pod("c", RED, SECOND, two(12), "pod-c", none),
            pod("router", RED, FIRST, one(20), "router", none),
            pod("x", RED, FIRST, one(50), "", OTHER_VTEP),
            pod("y", RED, SECOND, two(60), "", OTHER_VTEP),
            pod("blue-a", BLUE, BLUE_FIRST, one(10), "blue-a", none),
            pod("blue-x", BLUE, BLUE_FIRST, one(50), "", OTHER_VTEP),
        ];
        for pod in &pods {
            self.program(*pod);
        }
        for (index, vpc) in [(RED_INDEX, RED), (BLUE_INDEX, BLUE)] {
            let record = Vpc { vpc, flow_limit: 100, embryonic_limit: 50, icmp_limit: 5 };
            self.put("jn_vpcs", &index, &record);
        }
        for vtep in [OTHER_VTEP, THIRD_VTEP] {
            self.put("jn_vteps", &be32(vtep), &Vtep { next_hop: be32(NEXT_HOP), mtu: 1500, zero: 0 });
        }
        for (vni, vpc, vpc_index, third, table) in [
            (FIRST, RED, RED_INDEX, 1, TABLE),
            (SECOND, RED, RED_INDEX, 2, TABLE),
            (BLUE_FIRST, BLUE, BLUE_INDEX, 1, BLUE_TABLE),
        ] {
            let segment = Segment {
                vpc,
                vpc_index: vpc_index as u16,
                mtu: POD_MTU,
                gateway: be32(Ipv4Addr::new(10, 0, third, 1)),
                gateway_mac: [2, 0xee, 0, 0, 0, vni as u8],
                prefix_length: 24,
                zero: 0,
                table,
            };
            self.put("jn_segments", &vni, &segment);
            self.route(table, Ipv4Addr::new(10, 0, third, 0), 24, ROUTE_CONNECTED, None);
        }
        self.route(TABLE, Ipv4Addr::new(10, 9, 0, 0), 16, ROUTE_ENDPOINT, Some(one(20)));
        self.route(TABLE, Ipv4Addr::new(10, 8, 0, 0), 16, ROUTE_TARGET_GONE, None);
        self.route(TABLE, Ipv4Addr::new(10, 7, 0, 0), 16, ROUTE_ENDPOINT, Some(one(77)));
        for direction in [0, 1] {
            self.rule(IDENTITY_ANY, direction, 0, 0, POLICY_ALLOW);
        }
        pods
    }

    /// Writes the records of an endpoint.
    pub fn program(&self, pod: Pod) {
        let local = pod.ifindex != 0;
        let flags = EP_POLICY_READY | if local { EP_LOCAL } else { 0 } | if pod.router { EP_ROUTER } else { 0 };
        let endpoint = Endpoint {
            flags,
            ifindex: pod.ifindex,
            vtep: be32(pod.vtep),
            vni: pod.vni,
            mac: pod.mac,
            gateway_mac: pod.gateway_mac(),
            mtu: POD_MTU,
            kind: KIND_POD,
            identity: IDENTITY,
            policy: 1,
            table: pod.table(),
            ..Endpoint::default()
        };
        self.put("jn_endpoints", &EndpointKey { vpc: pod.vpc, address: be32(pod.address) }, &endpoint);
        if local {
            self.put("jn_interfaces", &pod.ifindex, &self.interface(pod));
            let mac = juneau_core::layout::Mac { address: be32(pod.address), ifindex: pod.ifindex };
            self.put("jn_macs", &MacKey::new(pod.vni, pod.mac), &mac);
        }
    }

    pub fn interface(&self, pod: Pod) -> Interface {
        Interface {
            vpc: pod.vpc,
            vni: pod.vni,
            table: pod.table(),
            flags: EP_POLICY_READY | if pod.router { EP_ROUTER } else { 0 },
            address: be32(pod.address),
            gateway: be32(pod.gateway()),
            mac: pod.mac,
            gateway_mac: pod.gateway_mac(),
            mtu: POD_MTU,
            vpc_index: pod.vpc_index(),
            kind: KIND_POD,
            prefix_length: 24,
            identity: IDENTITY,
            policy: 1,
            ..Interface::default()
        }
    }

    pub fn endpoint(&self, pod: Pod) -> Endpoint {
        self.get("jn_endpoints", &EndpointKey { vpc: pod.vpc, address: be32(pod.address) }).unwrap()
    }

    pub fn put_endpoint(&self, pod: Pod, record: &Endpoint) {
        self.put("jn_endpoints", &EndpointKey { vpc: pod.vpc, address: be32(pod.address) }, record);
    }

    pub fn route(&self, table: u32, address: Ipv4Addr, length: u8, kind: u32, next_hop: Option<Ipv4Addr>) {
        let route = Route { kind, vni: 0, next_hop: be32(next_hop.unwrap_or(Ipv4Addr::UNSPECIFIED)), zero: 0 };
        self.put("jn_routes", &RouteKey::new(table, address, length), &route);
    }

    pub fn rule_key(&self, peer: u32, direction: u8, protocol: u8, port: u16) -> PolicyKey {
        PolicyKey { identity: IDENTITY, policy: 1, peer, direction, protocol, port: port.into() }
    }

    pub fn rule(&self, peer: u32, direction: u8, protocol: u8, port: u16, action: u32) {
        self.put("jn_policies", &self.rule_key(peer, direction, protocol, port), &Policy { action, rule: 9 });
    }
}
