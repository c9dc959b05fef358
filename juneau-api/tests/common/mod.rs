//! The example of two tenants, as files, as problems and as the tables of a node.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

use juneau_api::normalise::normalise;
use juneau_api::source::directory::{Change, Directory};
use juneau_core::compile::{NodeContext, compile};
use juneau_core::id::IfIndex;
use juneau_core::model::{Attachment, Attachments, Problem};
use juneau_core::tables::Tables;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// Files of a directory by name.
pub type Files = BTreeMap<String, String>;

/// Two tenants, with every status filled in.
pub fn example() -> Files {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/two-tenants");
    let files = std::fs::read_dir(path).unwrap().map(|entry| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap())
    });
    files.collect()
}

/// One of the example's two nodes; its Pods are attached whatever the files say, interface by name.
pub struct Node {
    pub context: NodeContext,
    pub attachments: Attachments,
}

pub fn node(number: u8) -> Node {
    let context = NodeContext::new(format!("node-{number}"), Ipv4Addr::new(192, 168, 77, 10 + number), 1500);
    let names = ["blue/a", "blue/b", "red/a", "red/b"];
    let attachments = names.iter().zip(11_u32..).map(|(name, ifindex)| {
        let attachment = Attachment {
            ifindex: IfIndex::new(ifindex).unwrap(),
            host_mac: "02:00:00:00:00:aa".parse().unwrap(),
            container_id: String::new(),
        };
        (format!("{name}{number}.eth0"), attachment)
    });
    Node { context, attachments: attachments.collect() }
}

/// The whole way from files to tables.
pub struct Run {
    pub tables: Tables,
    pub problems: Vec<Problem>,
}

impl Node {
    /// Reads the files anew.
    pub fn run(&self, files: &Files) -> Run {
        self.follow(&mut Directory::new(), files)
    }

    /// Reads the files into a directory that knows earlier ones.
    pub fn follow(&self, directory: &mut Directory, files: &Files) -> Run {
        let changes =
            files.iter().map(|(name, text)| (PathBuf::from(name), Change::Content(text.clone().into_bytes())));
        directory.update(changes.collect());
        let snapshot = directory.snapshot();
        let (model, normalised) = normalise(&snapshot.view, &self.context.name);
        let (tables, compiled) = compile(&model, &self.context, &self.attachments);
        let problems = snapshot.problems.into_iter().chain(normalised).chain(compiled).collect();
        Run { tables, problems }
    }
}

impl Run {
    /// What the tables hold for one tenant: its VPC, its Subnets' VNIs, its route table.
    pub fn of(&self, vpc: u32) -> Tables {
        let Tables { interfaces, endpoints, macs, backends, slots, frontends, segments, routes, vteps, policies, vpcs } =
            self.tables.clone();
        let vnis = vpc * 100..vpc * 100 + 100;
        Tables {
            interfaces: interfaces.into_iter().filter(|(_, record)| record.vpc == vpc).collect(),
            endpoints: endpoints.into_iter().filter(|(key, _)| key.vpc == vpc).collect(),
            macs: macs.into_iter().filter(|(key, _)| vnis.contains(&key.vni)).collect(),
            segments: segments.into_iter().filter(|(_, record)| record.vpc == vpc).collect(),
            routes: routes.into_iter().filter(|(key, _)| key.table == vpc * 10).collect(),
            frontends: frontends.into_iter().filter(|(key, _)| key.scope == vpc).collect(),
            // Numbers of the node: whose they are says the front end.
            backends: backends.into_iter().filter(|(_, record)| record.vpc == vpc).collect(),
            slots,
            vpcs: vpcs.into_iter().filter(|(_, record)| record.vpc == vpc).collect(),
            vteps,
            policies,
        }
    }

    pub fn texts(&self) -> Vec<String> {
        self.problems.iter().map(ToString::to_string).collect()
    }
}

/// Tables as text, one element a line.
pub fn text(tables: &Tables) -> String {
    use juneau_core::layout::ipv4;
    use std::fmt::Write as _;
    let mac = |m: [u8; 6]| format!("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", m[0], m[1], m[2], m[3], m[4], m[5]);
    let mut out = String::new();
    for (index, r) in &tables.vpcs {
        let _ = writeln!(
            out,
            "vpc {index}: VPC {} flows {} embryonic {} icmp {}",
            r.vpc, r.flow_limit, r.embryonic_limit, r.icmp_limit
        );
    }
    for (k, r) in &tables.policies {
        let _ = writeln!(
            out,
            "policy {}@{} peer {:#x} direction {} protocol {} port {}: action {} rule {}",
            k.identity, k.policy, k.peer, k.direction, k.protocol, k.port, r.action, r.rule
        );
    }
    for (address, r) in &tables.vteps {
        let _ = writeln!(out, "vtep {}: next hop {} mtu {}", ipv4(*address), ipv4(r.next_hop), r.mtu);
    }
    for (vni, r) in &tables.segments {
        let _ = writeln!(
            out,
            "segment {vni}: VPC {} index {} table {} gateway {}/{} {} mtu {}",
            r.vpc,
            r.vpc_index,
            r.table,
            ipv4(r.gateway),
            r.prefix_length,
            mac(r.gateway_mac),
            r.mtu
        );
    }
    for (k, r) in &tables.endpoints {
        let _ = writeln!(
            out,
            "endpoint {} {}: kind {} flags {:#x} ifindex {} vtep {} VNI {} {} gateway {} mtu {} identity {}@{} \
             generation {:#x} table {} pod {:#x}",
            k.vpc,
            ipv4(k.address),
            r.kind,
            r.flags,
            r.ifindex,
            ipv4(r.vtep),
            r.vni,
            mac(r.mac),
            mac(r.gateway_mac),
            r.mtu,
            r.identity,
            r.policy,
            r.generation,
            r.table,
            r.pod
        );
    }
    for (k, r) in &tables.macs {
        let _ = writeln!(out, "mac {} {}: {} ifindex {}", k.vni, mac(k.mac), ipv4(r.address), r.ifindex);
    }
    for (k, r) in &tables.routes {
        let _ = writeln!(
            out,
            "route {} {}/{}: kind {} VNI {} next hop {}",
            k.table,
            ipv4(k.address),
            k.prefix_length - 32,
            r.kind,
            r.vni,
            ipv4(r.next_hop)
        );
    }
    for (ifindex, r) in &tables.interfaces {
        let _ = writeln!(
            out,
            "interface {ifindex}: kind {} VPC {} index {} VNI {} table {} flags {:#x} {}/{} {} gateway {} {} mtu {} \
             identity {}@{} generation {:#x}",
            r.kind,
            r.vpc,
            r.vpc_index,
            r.vni,
            r.table,
            r.flags,
            ipv4(r.address),
            r.prefix_length,
            mac(r.mac),
            ipv4(r.gateway),
            mac(r.gateway_mac),
            r.mtu,
            r.identity,
            r.policy,
            r.generation
        );
    }
    out
}
