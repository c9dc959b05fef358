//! Two Pods of one VPC on the node under test, and packets between them.

use std::net::Ipv4Addr;

use etherparse::PacketBuilder;
use juneau_bpf::Dataplane;
use juneau_core::layout::{
    EP_LOCAL, EP_POLICY_READY, Endpoint, EndpointKey, IDENTITY_ANY, Interface, KIND_POD, Mac, MacKey, POLICY_ALLOW,
    Policy, PolicyKey, ROUTE_CONNECTED, Route, RouteKey, Segment, Vpc, be32, endpoint_generation,
};
use juneau_core::tables::{Diff, Tables, TablesMut};

/// The VPC and its number on the node.
pub const VPC: u32 = 5;
/// Its VNI.
pub const VNI: u32 = 100;
/// Its number on the node.
pub const VPC_INDEX: u16 = 3;
/// Addresses of the Pods.
pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 1, 2), Ipv4Addr::new(10, 0, 1, 3)];
/// Their MAC addresses.
pub const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]];

/// Tables in which both Pods, behind these devices, may talk to each other.
pub fn tables(ifindexes: [u32; 2]) -> Tables {
    let gateway = Ipv4Addr::new(10, 0, 1, 1);
    let gateway_mac = [2, 0, 0, 0, 0, 1];
    let mut tables = Tables::default();
    tables.vpcs.insert(VPC_INDEX.into(), Vpc { vpc: VPC, flow_limit: 100, embryonic_limit: 100, icmp_limit: 10 });
    for direction in [juneau_core::layout::EGRESS, juneau_core::layout::INGRESS] {
        let key = PolicyKey { identity: 1, policy: 2, peer: IDENTITY_ANY, direction, ..PolicyKey::default() };
        tables.policies.insert(key, Policy { action: POLICY_ALLOW, rule: 7 });
    }
    tables.segments.insert(
        VNI,
        Segment {
            vpc: VPC,
            vpc_index: VPC_INDEX,
            mtu: 1450,
            gateway: be32(gateway),
            gateway_mac,
            prefix_length: 24,
            zero: 0,
            table: 9,
        },
    );
    tables.routes.insert(RouteKey::new(9, gateway, 24), Route { kind: ROUTE_CONNECTED, vni: VNI, ..Route::default() });
    for ((ifindex, address), mac) in ifindexes.into_iter().zip(ADDRESSES).zip(MACS) {
        let generation = endpoint_generation(VPC, be32(address));
        tables.endpoints.insert(
            EndpointKey { vpc: VPC, address: be32(address) },
            Endpoint {
                flags: EP_LOCAL | EP_POLICY_READY,
                ifindex,
                vni: VNI,
                mac,
                gateway_mac,
                mtu: 1450,
                kind: KIND_POD,
                identity: 1,
                policy: 2,
                generation,
                table: 9,
                pod: ifindex,
                ..Endpoint::default()
            },
        );
        tables.macs.insert(MacKey::new(VNI, mac), Mac { address: be32(address), ifindex });
        tables.interfaces.insert(
            ifindex,
            Interface {
                vpc: VPC,
                vni: VNI,
                table: 9,
                flags: EP_POLICY_READY,
                address: be32(address),
                gateway: be32(gateway),
                mac,
                gateway_mac,
                mtu: 1450,
                vpc_index: VPC_INDEX,
                kind: KIND_POD,
                prefix_length: 24,
                identity: 1,
                policy: 2,
                generation,
                ..Interface::default()
            },
        );
    }
    tables
}

/// Writes the tables and moves the generations.
pub fn program(dataplane: &Dataplane, wanted: &Tables) {
    let mut tables = dataplane.tables().unwrap();
    let diff = Diff::between(&tables.snapshot().unwrap(), wanted);
    tables.apply_diff(&diff).unwrap();
    dataplane.generations().unwrap().advance(diff.generations).unwrap();
}

/// A UDP datagram from one Pod to the other.
pub fn udp(from: usize, ports: (u16, u16)) -> Vec<u8> {
    let to = 1 - from;
    let mut packet = Vec::new();
    PacketBuilder::ethernet2(MACS[from], MACS[to])
        .ipv4(ADDRESSES[from].octets(), ADDRESSES[to].octets(), 64)
        .udp(ports.0, ports.1)
        .write(&mut packet, b"hello")
        .unwrap();
    packet
}
