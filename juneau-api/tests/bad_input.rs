//! Bad manifests: each is a problem that names the object and the remedy, and the other tenant's tables stay as they
//! are, byte for byte.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Files, Node, Run, example, node};
use juneau_api::source::directory::Directory;
use juneau_core::compile::vpc_indices;
use juneau_core::layout::{ROUTE_TARGET_GONE, RouteKey};
use juneau_core::tables::Tables;
use std::net::Ipv4Addr;

/// Red is the tenant that errs, blue the other.
const BLUE: u32 = 3;
const RED: u32 = 2;

/// A node that ran the example before anything went wrong.
fn settled() -> (Node, Run) {
    let mut node = node(1);
    let before = node.run(&example());
    assert_eq!(before.texts(), [""; 0]);
    node.context.vpc_indices = vpc_indices(&before.tables);
    (node, before)
}

/// A change of red's manifests: replaces every occurrence, or adds documents.
enum Edit {
    Replace(&'static str, &'static str),
    Add(&'static str),
}
use Edit::{Add, Replace};

impl Edit {
    fn apply(&self, files: &mut Files) {
        let red = files.get_mut("red.yaml").unwrap();
        match self {
            Replace(from, to) => {
                assert!(red.contains(from), "{from:?} is not in red.yaml");
                *red = red.replace(from, to);
            }
            Add(documents) => {
                red.push_str("---\n");
                red.push_str(documents);
            }
        }
    }
}

/// Applies edits to red and runs a new node over the result. Blue must not notice.
fn edited(edits: &[Edit]) -> Run {
    let (node, before) = settled();
    let mut files = example();
    edits.iter().for_each(|edit| edit.apply(&mut files));
    let run = node.run(&files);
    assert_eq!(run.of(BLUE), before.of(BLUE), "the other tenant notices");
    run
}

/// Exactly these problems, and how many interfaces and routes red keeps here.
fn check(edits: &[Edit], problems: &[&str], interfaces: usize, routes: usize) -> Tables {
    let run = edited(edits);
    assert_eq!(run.texts(), problems);
    let red = run.of(RED);
    assert_eq!((red.interfaces.len(), red.routes.len()), (interfaces, routes));
    red
}

#[test]
fn overlapping_subnets() {
    let wide = Add("apiVersion: juneau.loutres.me/v1alpha1\nkind: Subnet\nmetadata: {name: red-wide}\n\
         spec: {vpc: red, cidr: 10.0.0.0/16}\n\
         status: {vni: 299, gateway: 10.0.0.1, gatewayMAC: '02:00:0a:00:00:01'}\n");
    check(
        &[wide],
        &[
            "Subnet/red-wide (red.yaml, document 17): spec.cidr: 10.0.0.0/16 overlaps Subnet/red-a (10.0.1.0/24) of the \
           same VPC; use a prefix that no other Subnet of the VPC covers, or another VPC",
        ],
        2,
        2,
    );
}

#[test]
fn prefixes_that_a_subnet_cannot_have() {
    for (cidr, problem) in [
        ("10.0.2.0/30", "spec.cidr: 10.0.2.0/30 is not within /16 to /28"),
        ("10.0.0.0/8", "spec.cidr: 10.0.0.0/8 is not within /16 to /28"),
        ("169.254.0.0/16", "spec.cidr: 169.254.0.0/16 holds addresses that no packet may have"),
        ("224.0.0.0/16", "spec.cidr: 224.0.0.0/16 holds addresses that no packet may have"),
        ("red", "spec.cidr: \"red\" is not a prefix"),
        ("10.0.3.0/24", "status.gateway: 10.0.2.1 is not one of the hosts of 10.0.3.0/24"),
    ] {
        let to = format!("cidr: {cidr}");
        let run = edited(&[Replace("cidr: 10.0.2.0/24", Box::leak(to.into_boxed_str()))]);
        let wanted = format!("Subnet/red-b (red.yaml, document 3): {problem}");
        assert!(run.texts().iter().any(|text| text.starts_with(&wanted)), "{wanted}\n{:#?}", run.texts());
        assert_eq!(run.of(RED).interfaces.len(), 1);
    }
}

#[test]
fn host_bits() {
    // A Subnet's mean nothing, a route's are a mistake.
    let run = edited(&[Replace("cidr: 10.0.2.0/24", "cidr: 10.0.2.7/24")]);
    assert!(run.texts().is_empty(), "{:?}", run.texts());
    assert_eq!(run.of(RED).interfaces.len(), 2);

    let red = check(
        &[Replace("dst: 10.0.2.0/24", "dst: 10.0.2.7/24")],
        &["RouteTable/red (red.yaml, document 4): route 10.0.2.7/24: 10.0.2.7/24 has host bits set; \
           10.0.2.0/24 is unreachable; write 10.0.2.0/24"],
        2,
        2,
    );
    assert_eq!(red.routes[&RouteKey::new(20, Ipv4Addr::new(10, 0, 2, 0), 24)].kind, ROUTE_TARGET_GONE);
}

#[test]
fn references_to_nothing() {
    for (edit, problem, interfaces) in [
        (
            Replace("  vpc: red\n  cidr: 10.0.2.0/24", "  vpc: rot\n  cidr: 10.0.2.0/24"),
            "Subnet/red-b (red.yaml, document 3): Vpc/rot does not exist; create Vpc/rot, or name another",
            1,
        ),
        (
            Replace("  cidr: 10.0.2.0/24\n", "  cidr: 10.0.2.0/24\n  routeTable: none\n"),
            "Subnet/red-b (red.yaml, document 3): RouteTable/none does not exist; its Pods reach nothing; \
             create RouteTable/none, or name another",
            2,
        ),
        (
            Replace("  nodeName: node-2\n  subnet: red-a\n", "  nodeName: node-9\n  subnet: red-a\n"),
            "NetworkEndpoint/red/a2.eth0 (red.yaml, document 13): Pod/red/a2 has the node \"node-2\", not \"node-9\"; \
             correct spec.nodeName, or Pod/red/a2",
            2,
        ),
        (
            Replace("node-2", "node-9"),
            "NetworkEndpoint/red/a2.eth0 (red.yaml, document 13): Node/node-9 does not exist; \
             create Node/node-9, or name another",
            2,
        ),
        (
            Replace("kind: Pod\nmetadata:\n  name: a1\n", "kind: Pod\nmetadata:\n  name: gone\n"),
            "NetworkEndpoint/red/a1.eth0 (red.yaml, document 7): Pod/red/a1 does not exist; \
             create Pod/red/a1, or remove the endpoint",
            1,
        ),
        (
            Replace(
                "kind: NetworkInterface\nmetadata:\n  name: a1.eth0\n",
                "kind: NetworkInterface\nmetadata:\n  name: gone.eth0\n",
            ),
            "NetworkEndpoint/red/a1.eth0 (red.yaml, document 7): NetworkInterface/red/a1.eth0 does not exist; \
             create NetworkInterface/red/a1.eth0, or remove the endpoint",
            1,
        ),
        (
            Replace("  macAddress: 02:00:0a:00:01:0a\n", "  macAddress: 02:00:0a:00:01:0a\n  l2Network: x\n"),
            "NetworkEndpoint/red/a1.eth0 (red.yaml, document 7): has more than one network; \
             set one of spec.subnet, spec.l2Network, spec.externalNetwork",
            1,
        ),
    ] {
        let run = edited(&[edit]);
        assert!(run.texts().iter().any(|text| text == problem), "{problem}\nis not in {:#?}", run.texts());
        assert_eq!(run.of(RED).interfaces.len(), interfaces, "{problem}");
    }
}

/// Routes in the table of red, with the problem of each and whether it is there as unreachable.
#[test]
fn routes_that_lead_nowhere_or_into_another_vpc() {
    for (route, problem) in [
        (
            "{dst: 10.9.0.0/16, via: {type: connected}, subnet: blue-a}",
            "route 10.9.0.0/16: Subnet/blue-a is in another VPC; 10.9.0.0/16 is unreachable; \
             name a Subnet of the table's VPC",
        ),
        (
            "{dst: 10.9.0.0/16, via: {type: endpoint, endpointName: blue/a1.eth0}}",
            "route 10.9.0.0/16: NetworkEndpoint blue/a1.eth0 is in another VPC; 10.9.0.0/16 is unreachable; \
             name an endpoint of the table's VPC",
        ),
        (
            "{dst: 10.9.0.0/16, via: {type: endpoint, endpointName: c1.eth0}}",
            "route 10.9.0.0/16: NetworkEndpoint c1.eth0 does not exist; 10.9.0.0/16 is unreachable; \
             create it, or remove the route",
        ),
        (
            "{dst: 10.9.0.0/16, via: {type: connected}, subnet: red-c}",
            "route 10.9.0.0/16: Subnet/red-c does not exist; 10.9.0.0/16 is unreachable; \
             create Subnet/red-c, or name another",
        ),
        (
            "{dst: 10.9.0.0/16, via: {type: connected}, subnet: red-a}",
            "route 10.9.0.0/16: Subnet/red-a is 10.0.1.0/24; 10.9.0.0/16 is unreachable; set dst to 10.0.1.0/24",
        ),
        (
            "{dst: 10.9.0.0/16, via: {type: natGateway, natGateway: n}}",
            "route 10.9.0.0/16: routes to NATGateways are not programmed yet; 10.9.0.0/16 is unreachable; \
             remove it, or wait for a version that knows them",
        ),
        (
            "{dst: 10.9.0.0/16, via: {type: hyperspace}}",
            "route 10.9.0.0/16: via.type is none that is known; 10.9.0.0/16 is unreachable; use connected or endpoint",
        ),
    ] {
        let edit = Edit::Replace("  routes:\n", Box::leak(format!("  routes:\n    - {route}\n").into_boxed_str()));
        let problem = format!("RouteTable/red (red.yaml, document 4): {problem}");
        let red = check(&[edit], &[&problem], 2, 3);
        assert_eq!(red.routes[&RouteKey::new(20, Ipv4Addr::new(10, 9, 0, 0), 16)].kind, ROUTE_TARGET_GONE);
    }
    for (route, problem) in [
        (
            "{dst: 10.0.2.0/24, via: {type: endpoint, endpointName: a1.eth0}}",
            "the table has a route for the prefix already; remove one of the two",
        ),
        (
            "{dst: somewhere, via: {type: connected}}",
            "\"somewhere\" is not a prefix; write an address and a length, as in 10.0.1.0/24",
        ),
    ] {
        let mut files = example();
        let red = files.get_mut("red.yaml").unwrap();
        *red = red.replace("      subnet: red-b\n", &format!("      subnet: red-b\n    - {route}\n"));
        let (node, before) = settled();
        let run = node.run(&files);
        assert!(run.texts()[0].ends_with(problem), "{:?}", run.texts());
        assert_eq!(run.tables, before.tables, "the rest of the table is as it was");
    }
}

#[test]
fn numbers_out_of_range() {
    let run = edited(&[Replace("vni: 202", "vni: 1")]);
    assert!(
        run.texts().contains(
            &"Subnet/red-b (red.yaml, document 3): VNI 1 is not within 2..=16777215; \
          set status.vni to a free number of 2 to 16777215"
                .to_owned()
        )
    );
    assert_eq!(run.of(RED).interfaces.len(), 1);
    let run = edited(&[Replace("vni: 202", "vni: 16777216")]);
    assert!(run.texts().iter().any(|text| text.contains("VNI 16777216 is not within")));
    let run = edited(&[Replace("vpcID: 2", "vpcID: 16777216")]);
    assert!(
        run.texts()
            .iter()
            .any(|text| text.starts_with("Vpc/red (red.yaml, document 1): VPC id 16777216 is not within 1..=16777215"))
    );
    let run = edited(&[Replace("vpcID: 2", "vpcID: 1")]);
    assert!(
        run.texts()
            .iter()
            .any(|text| text.starts_with("Vpc/red (red.yaml, document 1): VPC id 1 is Vpc/default's alone"))
    );
    let run = edited(&[Replace("tableID: 20", "tableID: 0")]);
    assert!(
        run.texts()
            .iter()
            .any(|text| text.starts_with("RouteTable/red (red.yaml, document 4): route table id 0 is not within"))
    );
    assert_eq!(run.of(RED).interfaces.len(), 2, "a table's number costs the routes");
    let run = edited(&[Replace("vni: 202", "vni: -3")]);
    assert!(run.texts()[0].starts_with("Subnet/red-b (red.yaml, document 3): status.vni: "), "{:?}", run.texts());
}

/// Red claims what is blue's; blue is first by name and keeps it.
#[test]
fn duplicate_ids() {
    for (edit, problem) in [
        (
            Replace("vpcID: 2", "vpcID: 3"),
            "Vpc/red (red.yaml, document 1): VPC id 3 is Vpc/blue's already; set status.vpcID to a free number",
        ),
        (
            Replace("vni: 201", "vni: 301"),
            "Subnet/red-a (red.yaml, document 2): VNI 301 is Subnet/blue-a's already; set status.vni to a free number",
        ),
        (
            Replace("tableID: 20", "tableID: 30"),
            "RouteTable/red (red.yaml, document 4): route table id 30 is RouteTable/blue's already; set status.tableID",
        ),
    ] {
        let run = edited(&[edit]);
        assert!(run.texts().iter().any(|text| text.starts_with(problem)), "{problem}\n{:#?}", run.texts());
    }
}

/// The older has it, whatever the names.
#[test]
fn of_two_with_one_id_the_older_has_it() {
    let mut files = example();
    for (file, name, created) in [("red.yaml", "red", "2024"), ("blue.yaml", "blue", "2025")] {
        let text = files.get_mut(file).unwrap();
        *text = text.replacen(
            &format!("kind: Vpc\nmetadata:\n  name: {name}\n"),
            &format!("kind: Vpc\nmetadata:\n  name: {name}\n  creationTimestamp: '{created}-01-01T00:00:00Z'\n"),
            1,
        );
        *text = text.replace("vpcID: 3", "vpcID: 2");
    }
    let (node, before) = settled();
    let run = node.run(&files);
    assert!(
        run.texts()
            .iter()
            .any(|text| text.starts_with("Vpc/blue (blue.yaml, document 1): VPC id 2 is Vpc/red's already"))
    );
    assert_eq!(run.of(RED), before.of(RED));
    assert!(run.of(BLUE).interfaces.is_empty());
}

#[test]
fn addresses_that_an_endpoint_cannot_have() {
    for (address, problem) in [
        ("10.0.2.10/24", "address 10.0.2.10 is outside Subnet/red-a (10.0.1.0/24); use a free address of 10.0.1.0/24"),
        ("10.0.1.0/24", "address 10.0.1.0 is the network address of Subnet/red-a; use a free address"),
        ("10.0.1.255/24", "address 10.0.1.255 is the broadcast address of Subnet/red-a"),
        ("10.0.1.1/24", "address 10.0.1.1 is the gateway of Subnet/red-a"),
        ("10.0.1.2/24", "address 10.0.1.2 is the virtual DNS of Subnet/red-a"),
        (
            "10.0.1.10/16",
            "spec.address: the length of 10.0.1.10/16 is not the Subnet's (10.0.1.0/24); write 10.0.1.10/24",
        ),
        ("here", "spec.address: \"here\" is not an address"),
        (
            "10.0.1.11/24",
            "NetworkInterface/red/a1.eth0 has the address 10.0.1.10, not 10.0.1.11; give both the same address",
        ),
    ] {
        let to = format!("  address: {address}\n  macAddress: 02:00:0a:00:01:0a");
        let edit = Replace("  address: 10.0.1.10/24\n  macAddress: 02:00:0a:00:01:0a", Box::leak(to.into_boxed_str()));
        let run = edited(&[edit]);
        let wanted = format!("NetworkEndpoint/red/a1.eth0 (red.yaml, document 7): {problem}");
        assert!(run.texts().iter().any(|text| text.starts_with(&wanted)), "{wanted}\n{:#?}", run.texts());
        assert_eq!(run.of(RED).interfaces.len(), 1);
    }
}

#[test]
fn two_interfaces_with_one_address() {
    // b1 moves into red-a, with a1's address and a MAC address of its own.
    let run = edited(&[
        Replace(
            "  subnet: red-b\nstatus:\n  phase: Ready\n  address: 10.0.2.10/24",
            "  subnet: red-a\nstatus:\n  phase: Ready\n  address: 10.0.1.10/24",
        ),
        Replace("  subnet: red-b\n  address: 10.0.2.10/24", "  subnet: red-a\n  address: 10.0.1.10/24"),
    ]);
    assert_eq!(
        run.texts(),
        [
            "NetworkEndpoint/red/b1.eth0 (red.yaml, document 10): address 10.0.1.10 is NetworkEndpoint/red/a1.eth0's already; \
             give each endpoint of a VPC an address of its own",
            "NetworkEndpoint/red/b1.eth0: is attached to this node, but does not exist or cannot be used; \
             it reaches nothing; create it, or mend what is wrong with it",
        ]
    );
    assert_eq!(run.of(RED).interfaces.len(), 1);
}

#[test]
fn mac_addresses() {
    for (mac, problem) in [
        (
            "02:00:0a:00:01:14",
            "a2.eth0 (red.yaml, document 13): MAC address 02:00:0a:00:01:14 is NetworkEndpoint/red/a1.eth0's already; \
             give each endpoint of a Subnet a MAC address of its own",
        ),
        (
            "02:00:0a:00:01:01",
            "a1.eth0 (red.yaml, document 7): MAC address 02:00:0a:00:01:01 is the gateway's of Subnet/red-a; \
             give the endpoint a MAC address of its own",
        ),
        (
            "ff:ff:ff:ff:ff:ff",
            "a1.eth0 (red.yaml, document 7): spec.macAddress: \"ff:ff:ff:ff:ff:ff\" is not a unicast MAC address of six \
             hexadecimal bytes; set a locally administered one, as in 02:00:0a:00:01:0a",
        ),
    ] {
        let to = format!("macAddress: {mac}");
        let run = edited(&[Replace("macAddress: 02:00:0a:00:01:0a", Box::leak(to.into_boxed_str()))]);
        assert_eq!(run.texts()[0], format!("NetworkEndpoint/red/{problem}"));
    }
}

#[test]
fn policy_that_is_not_programmed_closes() {
    let run = edited(&[Replace("  subnet: red-a\nstatus:", "  subnet: red-a\n  securityGroups: [web]\nstatus:")]);
    assert_eq!(run.texts().len(), 2);
    assert!(run.texts()[0].starts_with(
        "NetworkEndpoint/red/a1.eth0 (red.yaml, document 7): SecurityGroups are not programmed yet; the endpoint is closed"
    ));
    let closed = run.of(RED).interfaces.values().filter(|interface| interface.flags & 1 == 0).count();
    assert_eq!(closed, 1);
}

#[test]
fn what_is_not_yaml_unknown_fields_and_unknown_kinds_keep_what_was_good() {
    let (node, before) = settled();
    for (edit, problem) in [
        (Replace("kind: Vpc", "kind: [Vpc"), "file red.yaml: is not YAML: "),
        (
            Replace("vni: 201", "vmi: 201"),
            "Subnet/red-a (red.yaml, document 2): unknown field status.vmi; the last good version stays in force",
        ),
        (
            Replace("kind: Vpc", "kind: Vcp"),
            "Vcp/red (red.yaml, document 1): kind Vcp of juneau.loutres.me/v1alpha1 is not known; the last good version stays in force",
        ),
        (Replace("vni: 201", "vni: [201]"), "Subnet/red-a (red.yaml, document 2): status.vni: "),
    ] {
        let mut directory = Directory::new();
        assert_eq!(node.follow(&mut directory, &example()).tables, before.tables);
        let mut files = example();
        edit.apply(&mut files);
        let run = node.follow(&mut directory, &files);
        assert_eq!(run.texts().len(), 1, "{:#?}", run.texts());
        assert!(run.texts()[0].starts_with(problem), "{:?}", run.texts());
        assert_eq!(run.tables, before.tables, "{problem}");
    }
}

#[test]
fn a_node_whose_internal_ip_changes_moves_its_endpoints_and_nothing_else() {
    let (node, before) = settled();
    let mut files = example();
    let cluster = files.get_mut("cluster.yaml").unwrap();
    *cluster = cluster.replace("192.168.77.12", "192.168.77.99");
    let run = node.run(&files);
    assert_eq!(run.texts(), [""; 0]);
    let mut expected = before.tables.clone();
    let address = juneau_core::layout::be32(Ipv4Addr::new(192, 168, 77, 99));
    for endpoint in expected.endpoints.values_mut().filter(|endpoint| endpoint.ifindex == 0) {
        endpoint.vtep = address;
    }
    let mut vtep = expected.vteps.pop_first().unwrap().1;
    vtep.next_hop = address;
    expected.vteps.insert(address, vtep);
    assert_eq!(run.tables, expected);

    // The node's own address: its tables stay, and it says what to do.
    let cluster = files.get_mut("cluster.yaml").unwrap();
    *cluster = cluster.replace("192.168.77.99", "192.168.77.12").replace("192.168.77.11", "192.168.77.98");
    let run = node.run(&files);
    assert_eq!(run.tables, before.tables);
    assert!(run.texts()[0].starts_with("Node/node-1 (cluster.yaml, document 1): InternalIP is 192.168.77.98, but"));
    assert!(run.texts()[0].contains("give a device of this node the new address"));
}

#[test]
fn nodes_with_one_address_or_none() {
    let (node, _) = settled();
    for (to, problem) in [
        (
            "192.168.77.11",
            "Node/node-2 (cluster.yaml, document 2): InternalIP 192.168.77.11 is Node/node-1's as well; give each node",
        ),
        (
            "127.0.0.1",
            "Node/node-2 (cluster.yaml, document 2): InternalIP 127.0.0.1 is no address that a node can have",
        ),
        ("nowhere", "Node/node-2 (cluster.yaml, document 2): InternalIP \"nowhere\" is not an address"),
    ] {
        let mut files = example();
        let cluster = files.get_mut("cluster.yaml").unwrap();
        *cluster = cluster.replace("192.168.77.12", to);
        let run = node.run(&files);
        assert!(run.texts().iter().any(|text| text.starts_with(problem)), "{problem}\n{:#?}", run.texts());
        assert!(run.texts().iter().any(|text| text.contains("NetworkEndpoint/red/a2.eth0")
            && text.contains("Node/node-2 cannot be used; mend Node/node-2 first")));
        assert_eq!(run.tables.interfaces.len(), 4, "what is on this node works on");
        assert!(run.tables.vteps.is_empty());
    }
    let mut files = example();
    let cluster = files.get_mut("cluster.yaml").unwrap();
    *cluster =
        cluster.replace("type: InternalIP\n      address: 192.168.77.12", "type: Hostname\n      address: node-2");
    assert!(
        node.run(&files)
            .texts()
            .iter()
            .any(|text| text.contains("Node/node-2 (cluster.yaml, document 2): has no InternalIP"))
    );
}

#[test]
fn a_namespace_that_may_not_enter_a_vpc_has_no_endpoint_there() {
    let closed = |selector: &str| {
        Replace(
            "  name: red\nspec: {}\n",
            Box::leak(
                format!("  name: red\nspec: {{allowedNamespaces: {{matchLabels: {{{selector}}}}}}}\n").into_boxed_str(),
            ),
        )
    };
    let open = edited(&[closed("kubernetes.io/metadata.name: red")]);
    assert_eq!(open.texts(), [""; 0]);
    assert_eq!(open.of(RED).interfaces.len(), 2);
    let run = edited(&[closed("tenant: nobody")]);
    let wanted =
        "Namespace/red may not enter Vpc/red: its labels do not match spec.allowedNamespaces; label the Namespace";
    let refused = run.texts().iter().filter(|text| text.contains(wanted)).count();
    assert_eq!(refused, 4, "{:#?}", run.texts());
    assert!(run.of(RED).interfaces.is_empty() && run.of(RED).endpoints.is_empty());
}

#[test]
fn of_other_nodes_a_node_needs_no_pods() {
    use juneau_api::normalise::normalise;
    use juneau_api::source::directory::Change;
    use std::path::PathBuf;
    use std::sync::Arc;
    let mut directory = Directory::new();
    let changes = example().into_iter().map(|(name, text)| (PathBuf::from(name), Change::Content(text.into_bytes())));
    directory.update(changes.collect());
    let whole = directory.snapshot().view;
    let mut view = whole.clone();
    for inside in view.workloads.values_mut() {
        Arc::make_mut(inside).pods.retain(|_, item| item.object.node.as_deref() == Some("node-1"));
    }
    assert_eq!(normalise(&view, "node-1").1.len(), 4, "without knowing why they are missing");
    view.pods_of = Some("node-1".into());
    assert_eq!(normalise(&view, "node-1"), normalise(&whole, "node-1"));
    // A Pod of its own that is missing is none.
    Arc::make_mut(view.workloads.get_mut("red").unwrap()).pods.remove("a1");
    let (model, problems) = normalise(&view, "node-1");
    assert_eq!((model.endpoints.len(), problems.len()), (7, 1));
    assert!(problems[0].message.contains("Pod/red/a1 does not exist on Node/node-1"), "{}", problems[0]);
}
