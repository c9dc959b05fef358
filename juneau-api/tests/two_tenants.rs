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
