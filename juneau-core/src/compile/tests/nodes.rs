//! Endpoints of nodes, and the addresses behind them.

use super::*;
use crate::layout::{self, EP_NODE, KIND_NODE};

const VPC: u32 = 2;
/// The node ports of node-1 and node-2, in the first Subnet.
const PORTS: [[u8; 4]; 2] = [[10, 0, 0, 5], [10, 0, 0, 6]];

/// Two nodes with a Pod each and a node port each.
fn with_nodes() -> Model {
    let mut model = model(2, 2, 2, 2);
    for (n, address) in PORTS.into_iter().enumerate() {
        let endpoint = Endpoint {
            name: format!("juneau-system/juneau-node.node-{}", n + 1),
            kind: EndpointKind::Node,
            vpc: vpc_id(VPC),
            subnet: Vni::new(VPC * 100).unwrap(),
            address: Ipv4Addr::from(address).into(),
            mac: MacAddr::new([2, 0, 0, 0, 9, u8::try_from(n).unwrap()]).unwrap(),
            node: format!("node-{}", n + 1),
            identity: crate::id::Identity::NO_GROUPS,
            policy_ready: true,
            pod: String::new(),
            origin: String::new(),
        };
        model.endpoints.insert((endpoint.vpc, endpoint.address), endpoint);
    }
    model
}

fn context(addresses: &[[u8; 4]]) -> NodeContext {
    NodeContext { addresses: addresses.iter().map(|address| Ipv4Addr::from(*address)).collect(), ..node() }
}

#[test]
fn addresses_of_nodes_are_endpoints_that_every_table_of_their_vpc_leads_to() {
    let model = with_nodes();
    let attachments = attach(&model);
    let own = [192, 0, 2, 9];
    let (tables, problems) = compile(&model, &context(&[own, HERE.octets(), [127, 0, 0, 1]]), &attachments);
    assert_eq!(texts(&problems), [""; 0]);
    let port = tables.endpoints[&key(VPC, PORTS[0])];
    assert_eq!(port.kind, KIND_NODE);
    assert_eq!(port.flags, HERE_FLAGS | EP_POLICY_READY | EP_NODE);
    let interface = tables.interfaces[&port.ifindex];
    assert_eq!((interface.flags, interface.kind, interface.vpc), (port.flags, KIND_NODE, VPC));
    for address in [HERE.octets(), own] {
        let behind = tables.endpoints[&key(VPC, address)];
        let generation = endpoint_generation(VPC, be32(Ipv4Addr::from(address)));
        assert_eq!(behind, layout::Endpoint { generation, ..port }, "{address:?}");
    }
    let there = tables.endpoints[&key(VPC, THERE.octets())];
    assert_eq!((there.flags, there.vtep, there.ifindex), (EP_POLICY_READY | EP_NODE, be32(THERE), 0));
    assert_eq!(there.mac, tables.endpoints[&key(VPC, PORTS[1])].mac);
    for address in [HERE, THERE, Ipv4Addr::from(own)] {
        let route = tables.routes[&RouteKey::new(VPC, address, 32)];
        assert_eq!((route.kind, route.vni), (ROUTE_CONNECTED, VPC * 100));
    }
    // No other VPC has any of it, and loopback is nobody's.
    assert!(!tables.endpoints.keys().any(|key| key.vpc != VPC && ipv4(key.address).octets()[0] != 10));
    assert!(!tables.routes.keys().any(|key| key.table != VPC && ipv4(key.address).octets()[0] != 10));
    assert!(!tables.endpoints.contains_key(&key(VPC, [127, 0, 0, 1])));
}

#[test]
fn a_node_port_that_is_not_made_yet_leads_nowhere() {
    let model = with_nodes();
    let mut attachments = attach(&model);
    attachments.remove("juneau-system/juneau-node.node-1").unwrap();
    let (tables, problems) = compile(&model, &context(&[]), &attachments);
    assert_eq!(texts(&problems), [""; 0]);
    assert!(!tables.endpoints.contains_key(&key(VPC, PORTS[0])));
    assert!(!tables.endpoints.contains_key(&key(VPC, HERE.octets())));
    assert!(tables.endpoints.contains_key(&key(VPC, THERE.octets())));
}

#[test]
fn a_subnet_hides_addresses_of_nodes_that_lie_in_it() {
    let model = with_nodes();
    let (tables, problems) = compile(&model, &context(&[[10, 0, 1, 10], [10, 0, 0, 1]]), &attach(&model));
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems.iter().all(|problem| problem.object == "NetworkEndpoint/juneau-system/juneau-node.node-1"));
    assert!(problems[1].message.contains("10.0.1.10 lies in Subnet/v2-1"), "{}", problems[1]);
    assert_eq!(tables.endpoints[&key(VPC, [10, 0, 1, 10])].flags & EP_NODE, 0, "the Pod's");
    assert!(!tables.endpoints.contains_key(&key(VPC, [10, 0, 0, 1])), "the gateway's");
}

#[test]
fn a_node_is_no_router_and_a_route_of_its_own_wins() {
    let mut model = with_nodes();
    let routes = &mut model.tables.get_mut(&TableId::new(VPC).unwrap()).unwrap().routes;
    let to = |prefix: &str, target| Route { prefix: prefix.parse().unwrap(), target };
    routes.push(to("0.0.0.0/0", RouteTarget::Endpoint(Ipv4Addr::from(PORTS[0]).into())));
    routes.push(to("192.168.77.12/32", RouteTarget::Endpoint(Ipv4Addr::new(10, 0, 0, 10).into())));
    let (tables, problems) = compile(&model, &context(&[]), &attach(&model));
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].message.contains("10.0.0.5 is a node's, which forwards nothing"), "{}", problems[0]);
    assert_eq!(tables.routes[&RouteKey::new(VPC, Ipv4Addr::UNSPECIFIED, 0)].kind, ROUTE_TARGET_GONE);
    assert_eq!(tables.endpoints[&key(VPC, PORTS[0])].flags & EP_ROUTER, 0);
    assert_eq!(tables.routes[&RouteKey::new(VPC, THERE, 32)].kind, ROUTE_ENDPOINT);
}
