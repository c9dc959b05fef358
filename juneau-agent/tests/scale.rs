//! A large cluster on one node: 10 000 endpoints as 200 nodes of 50 in 100 VPCs, all with the same addresses, from
//! manifests to the kernel's maps, and what one change costs there.
//!
//! 50 VPCs have 199 endpoints, one on each of the first 199 nodes; the other 50 have one endpoint, on the last node. So
//! each of the first 199 nodes has to know 9 950 endpoints, and the last one has to know 50.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use juneau_api::normalise::normalise;
use juneau_api::source::directory::{Change as FileChange, Directory};
use juneau_bpf::failpoint::{Failpoints, Write};
use juneau_bpf::{Dataplane, KernelTables, NodeConfig, Options};
use juneau_core::compile::{NodeContext, compile, vpc_indices};
use juneau_core::id::IfIndex;
use juneau_core::layout::{EndpointKey, be32, endpoint_generation};
use juneau_core::model::{Attachment, Attachments};
use juneau_core::tables::{Diff, Table, Tables, TablesMut};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use support::in_node;

const NODES: u32 = 200;
const VPCS: u32 = 100;
/// VPCs with an endpoint on every node but the last.
const LARGE: u32 = 50;

fn node_name(node: u32) -> String {
    format!("node-{node:03}")
}

fn vtep(node: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(192, 0, 2, 0).to_bits() + 1 + node)
}

/// The address of a VPC's endpoint of this number: the same in every VPC.
fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 1, 0).to_bits() + number)
}

/// Nodes of a VPC's endpoints, by the endpoints' numbers.
type Places = BTreeMap<u32, u32>;

fn places(vpc: u32) -> Places {
    if vpc < LARGE { (0..NODES - 1).map(|node| (node, node)).collect() } else { [(0, NODES - 1)].into() }
}

/// A VPC with one Subnet, as a file.
fn vpc_file(vpc: u32, places: &Places) -> String {
    let (id, api) = (vpc + 2, "juneau.loutres.me/v1alpha1");
    let mut file = format!(
        "apiVersion: {api}\nkind: Vpc\nmetadata: {{name: v{vpc}}}\nspec: {{}}\n\
         status: {{vpcID: {id}, mainRouteTable: v{vpc}}}\n---\n\
         apiVersion: {api}\nkind: Subnet\nmetadata: {{name: v{vpc}}}\nspec: {{vpc: v{vpc}, cidr: 10.0.0.0/16}}\n\
         status: {{vni: {id}, gateway: 10.0.0.1, gatewayMAC: '02:00:00:00:00:01'}}\n---\n\
         apiVersion: {api}\nkind: RouteTable\nmetadata: {{name: v{vpc}}}\nspec: {{vpc: v{vpc}}}\n\
         status: {{tableID: {id}, routes: [{{dst: 10.0.0.0/16, via: {{type: connected}}, subnet: v{vpc}}}]}}\n"
    );
    for (number, node) in places {
        let (node, address) = (node_name(*node), address(*number));
        let pod_ref = format!("{{name: p{number}, interface: eth0, uid: v{vpc}-p{number}}}");
        let mac = format!("02:00:00:01:{:02x}:{:02x}", number / 256, number % 256);
        let name = format!("{{name: p{number}.eth0, namespace: v{vpc}}}");
        let _ = write!(
            file,
            "---\napiVersion: v1\nkind: Pod\n\
             metadata: {{name: p{number}, namespace: v{vpc}, uid: v{vpc}-p{number}}}\nspec: {{nodeName: {node}, containers: []}}\n\
             ---\napiVersion: {api}\nkind: NetworkInterface\nmetadata: {name}\n\
             spec: {{podRef: {pod_ref}, nodeName: {node}, subnet: v{vpc}}}\n\
             status: {{phase: Ready, address: {address}/16}}\n\
             ---\napiVersion: {api}\nkind: NetworkEndpoint\nmetadata: {name}\n\
             spec: {{kind: Pod, nodeName: {node}, subnet: v{vpc}, address: {address}/16, macAddress: '{mac}', podRef: {pod_ref}}}\n"
        );
    }
    file
}

fn nodes_file() -> String {
    let node = |node| {
        format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {}}}\n\
             status: {{addresses: [{{type: InternalIP, address: {}}}]}}\n",
            node_name(node),
            vtep(node)
        )
    };
    (0..NODES).map(node).collect::<Vec<_>>().join("---\n")
}

/// The manifests of the cluster, followed by one node.
struct Follower {
    directory: Directory,
    context: NodeContext,
    attachments: Attachments,
}

impl Follower {
    fn new(node: u32) -> Self {
        let mut files: BTreeMap<PathBuf, FileChange> =
            (0..VPCS).map(|vpc| (file_name(vpc), content(vpc_file(vpc, &places(vpc))))).collect();
        files.insert("nodes.yaml".into(), content(nodes_file()));
        let mut directory = Directory::new();
        directory.update(files);
        let context = NodeContext::new(node_name(node), vtep(node), 1500);
        Self { directory, context, attachments: Attachments::new() }
    }

    /// Gives a VPC's file another content.
    fn change(&mut self, vpc: u32, places: &Places) {
        self.directory.update([(file_name(vpc), content(vpc_file(vpc, places)))].into());
    }

    fn attach(&mut self, vpc: u32, number: u32) {
        let attachment = Attachment {
            ifindex: IfIndex::new(1000 + vpc).unwrap(),
            host_mac: "02:00:00:00:00:aa".parse().unwrap(),
            container_id: String::new(),
        };
        self.attachments.insert(format!("v{vpc}/p{number}.eth0"), attachment);
    }

    /// The whole way from objects to tables, in which nothing is wrong.
    fn tables(&mut self) -> Tables {
        let snapshot = self.directory.snapshot();
        assert_eq!(snapshot.problems, []);
        let (model, problems) = normalise(&snapshot.view, &self.context.name);
        assert_eq!(problems, []);
        assert_eq!(model.nodes.len(), NODES as usize);
        let (tables, problems) = compile(&model, &self.context, &self.attachments);
        assert_eq!(problems, []);
        self.context.vpc_indices = vpc_indices(&tables);
        tables
    }
}

fn file_name(vpc: u32) -> PathBuf {
    format!("v{vpc:03}.yaml").into()
}

fn content(text: String) -> FileChange {
    FileChange::Content(text.into_bytes())
}

fn lengths(tables: &Tables) -> Vec<usize> {
    Table::ALL.iter().map(|table| tables.len(*table)).collect()
}

/// Writes to the kernel by map.
#[derive(Clone, Default)]
struct Writes(Arc<Mutex<BTreeMap<String, u32>>>);

impl Writes {
    fn failpoints(&self) -> Failpoints {
        let writes = Arc::clone(&self.0);
        Failpoints::new(move |write: &Write<'_>| {
            *writes.lock().unwrap().entry(write.object.to_owned()).or_default() += 1;
            Ok(())
        })
    }

    /// Those since it was asked last.
    fn take(&self) -> Vec<(String, u32)> {
        std::mem::take(&mut *self.0.lock().unwrap()).into_iter().collect()
    }
}

/// Brings the kernel's tables to what is wanted, element by element, and returns the difference.
fn apply(dataplane: &Dataplane, tables: &mut KernelTables, current: &Tables, wanted: &Tables) -> Diff {
    let diff = Diff::between(current, wanted);
    for change in &diff.changes {
        tables.apply(change).unwrap();
    }
    dataplane.generations().unwrap().advance(diff.generations.iter().copied()).unwrap();
    diff
}

#[test]
fn a_change_of_one_among_ten_thousand_endpoints_writes_that_one() {
    in_node(|| {
        let mut follower = Follower::new(0);
        let endpoints: usize = (0..VPCS).map(|vpc| places(vpc).len()).sum();
        assert_eq!(endpoints, 10_000);
        // All are attached but the last.
        (0..LARGE - 1).for_each(|vpc| follower.attach(vpc, 0));
        let first = follower.tables();
        let [vpcs, policies, vteps, segments, endpoints, macs, 0, 0, 0, routes, interfaces] = lengths(&first)[..]
        else {
            panic!("eleven tables, those of Services empty");
        };
        assert_eq!((vpcs, segments, routes), (50, 50, 50));
        assert_eq!((endpoints, vteps), (9_949, 199));
        assert_eq!((interfaces, macs, policies), (49, 49, 2));

        let writes = Writes::default();
        let node = NodeConfig { vtep: vtep(0), underlay_ifindex: 1, vxlan_ifindex: 1, vxlan_port: 4789 };
        let mut options = Options::new("/sys/fs/bpf/juneau", node);
        options.sizes.flows = Some(1024);
        options.failpoints = writes.failpoints();
        let dataplane = Dataplane::open(options).unwrap();
        let mut tables = dataplane.tables().unwrap();
        tables.apply_diff(&Diff::between(&Tables::default(), &first)).unwrap();
        assert_eq!(tables.snapshot().unwrap(), first);
        assert!(apply(&dataplane, &mut tables, &first, &follower.tables()).is_empty(), "objects that are the same");

        // Each a change of one object of the cluster, and the maps that are written for it, once each.
        type Step = fn(&mut Follower);
        let steps: [(&str, Step, &[&str]); 6] = [
            ("attached here", |follower| follower.attach(49, 0), &["jn_endpoints", "jn_interfaces", "jn_macs"]),
            (
                "moved between other nodes",
                |follower| {
                    let mut places = places(7);
                    places.insert(100, 101);
                    follower.change(7, &places);
                },
                &["jn_endpoints"],
            ),
            (
                "gone elsewhere",
                |follower| {
                    let mut places = places(8);
                    places.remove(&198);
                    follower.change(8, &places);
                },
                &["jn_endpoints"],
            ),
            (
                "new elsewhere",
                |follower| {
                    let mut places = places(9);
                    places.insert(200, 3);
                    follower.change(9, &places);
                },
                &["jn_endpoints"],
            ),
            ("new in a VPC that is not here", |follower| follower.change(60, &[(0, NODES - 1), (1, 5)].into()), &[]),
            (
                "detached here",
                |follower| drop(follower.attachments.remove("v3/p0.eth0")),
                &["jn_endpoints", "jn_interfaces", "jn_macs"],
            ),
        ];
        let mut current = first;
        for (what, step, maps) in steps {
            step(&mut follower);
            let wanted = follower.tables();
            writes.take();
            let diff = apply(&dataplane, &mut tables, &current, &wanted);
            let mut written = writes.take();
            // A generation is one word of a mapped map.
            written.retain(|(map, _)| map.starts_with("jn_") && map != "jn_generations" && map != "jn_hot");
            let expected: Vec<_> = maps.iter().map(|map| ((*map).to_owned(), 1)).collect();
            assert_eq!(written, expected, "{what}: {:?}", diff.changes);
            assert_eq!((diff.len(), diff.generations.len()), (maps.len(), maps.len().min(1)), "{what}");
            assert_eq!(tables.snapshot().unwrap(), wanted, "{what}");
            current = wanted;
        }
        let moved = EndpointKey { vpc: 9, address: be32(address(100)) };
        assert_eq!(current.endpoints[&moved].vtep, be32(vtep(101)));
        let slot = endpoint_generation(9, moved.address);
        assert_eq!(dataplane.generations().unwrap().get(slot).unwrap(), 2, "moved once");
    });
}

#[test]
fn a_node_knows_of_ten_thousand_endpoints_only_those_of_its_vpcs() {
    let mut follower = Follower::new(NODES - 1);
    (LARGE..VPCS).for_each(|vpc| follower.attach(vpc, 0));
    let tables = follower.tables();
    assert_eq!(lengths(&tables), [50, 2, 199, 50, 50, 50, 0, 0, 0, 50, 50]);
    assert!(tables.endpoints.keys().all(|key| key.vpc >= LARGE + 2));
}
