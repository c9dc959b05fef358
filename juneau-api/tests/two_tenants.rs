//! The example of two tenants is right, and its tables are the reviewed ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{example, node, text};

#[test]
fn both_nodes_compile_without_a_problem() {
    for number in [1, 2] {
        let run = node(number).run(&example());
        assert_eq!(run.texts(), [""; 0]);
        assert_eq!((run.tables.interfaces.len(), run.tables.endpoints.len(), run.tables.routes.len()), (4, 8, 4));
    }
}

/// A change here is a change of what every node holds: review `tests/snapshots/two-tenants-node-1.txt`. To write it
/// anew, remove it and run the test twice.
#[test]
fn tables_of_the_first_node_are_the_reviewed_ones() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/two-tenants-node-1.txt");
    let found = text(&node(1).run(&example()).tables);
    if !path.exists() {
        std::fs::write(&path, &found).unwrap();
        panic!("there was no {}; review it", path.display());
    }
    assert_eq!(found, std::fs::read_to_string(&path).unwrap());
}

/// The point of the example: both tenants hold the same addresses and MAC addresses on the same nodes.
#[test]
fn the_tenants_differ_only_in_what_a_tenant_does_not_choose() {
    let tables = node(1).run(&example()).tables;
    let of = |vpc: u32| {
        let interfaces = tables.interfaces.values().filter(move |interface| interface.vpc == vpc);
        interfaces.map(|interface| (interface.address, interface.mac, interface.gateway)).collect::<Vec<_>>()
    };
    assert_eq!(of(2), of(3));
    assert_eq!(of(2).len(), 2);
}

/// `spec.routes` is the operator's to resolve, and `attachment` is the node's own.
#[test]
fn wished_routes_and_attachments_are_never_read_from_files() {
    let before = node(1).run(&example());
    let mut files = example();
    let red = files.get_mut("red.yaml").unwrap();
    let wish = "spec:\n  vpc: red\n  routes:\n    - {dst: 10.9.0.0/16, via: {type: endpoint, endpointName: a1.eth0}}\n";
    let attachment = "  kind: Pod\n  attachment: {ifindex: 99, hostMACAddress: '02:00:00:00:00:99', containerID: x}\n";
    for (from, to) in
        [("spec:\n  vpc: red\nstatus:\n", format!("{wish}status:\n")), ("  kind: Pod\n", attachment.to_owned())]
    {
        assert!(red.contains(from), "{from}");
        *red = red.replace(from, &to);
    }
    let run = node(1).run(&files);
    assert_eq!(run.texts(), [""; 0]);
    assert_eq!(run.tables, before.tables);
}

/// A node's own endpoint is of the VPC that nodes are in, one for each, and named after it.
#[test]
fn endpoints_of_nodes_are_in_vpc_default_alone() {
    let mut files = example();
    let default = "\
apiVersion: juneau.loutres.me/v1alpha1
kind: Vpc
metadata: {name: default}
spec: {allowedNamespaces: {matchLabels: {no: body}}}
status: {vpcID: 1, mainRouteTable: default}
---
apiVersion: juneau.loutres.me/v1alpha1
kind: RouteTable
metadata: {name: default}
spec: {vpc: default}
status: {tableID: 1, routes: []}
---
apiVersion: juneau.loutres.me/v1alpha1
kind: Subnet
metadata: {name: default}
spec: {vpc: default, cidr: 10.244.0.0/16}
status: {vni: 9, gateway: 10.244.0.1, gatewayMAC: '02:00:0a:f4:00:01'}
";
    files.insert("default.yaml".into(), default.into());
    let endpoint = |name: &str, subnet: &str, address: &str| {
        format!(
            "{{apiVersion: juneau.loutres.me/v1alpha1, kind: NetworkEndpoint, metadata: {{name: {name}, namespace: red}}, \
             spec: {{kind: Node, nodeName: node-2, subnet: {subnet}, address: {address}, macAddress: '02:00:0a:f4:00:{:02x}'}}}}\n",
            address.len()
        )
    };
    let mut with = |endpoints: &[String]| {
        files.insert("nodes.yaml".into(), endpoints.join("---\n"));
        let run = node(1).run(&files);
        let own = run.tables.endpoints.keys().filter(|key| key.vpc == 1).count();
        (run.texts(), own)
    };
    let right = endpoint("juneau-node.node-2", "default", "10.244.0.6/16");
    // No endpoint of the VPC is on this node, so nothing of it is programmed; but nothing is wrong, whoever may enter.
    assert_eq!(with(std::slice::from_ref(&right)), (vec![], 0));
    for (endpoint, what) in [
        (endpoint("node-2", "default", "10.244.0.6/16"), "is not named after its node, juneau-node.node-2"),
        (endpoint("juneau-node.node-2", "red-a", "10.0.1.99/24"), "Subnet/red-a is not of Vpc/default"),
        (endpoint("juneau-node.node-2", "default", "10.244.0.1/16"), "is the gateway of Subnet/default"),
    ] {
        let (problems, own) = with(&[endpoint]);
        assert!(problems.len() == 1 && problems[0].contains(what) && own == 0, "{problems:?}");
    }
    let twin = right.replace("namespace: red", "namespace: blue").replace("10.244.0.6", "10.244.0.77");
    let twin = twin.replace("f4:00:0d", "f4:00:99");
    let (problems, _) = with(&[right, twin]);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("Node/node-2 has NetworkEndpoint/blue/juneau-node.node-2 already"), "{problems:?}");
}
