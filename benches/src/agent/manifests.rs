//! Writes a cluster as a directory of manifests.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};
use crate::ours::{HERE, Member, Place};

/// Writes all objects: the nodes in one file, every VPC in one of its own.
pub(super) fn write(directory: &Path, vtep: Ipv4Addr, members: &[Member]) -> Result<()> {
    let vteps: BTreeSet<Ipv4Addr> = members
        .iter()
        .filter_map(|member| match member.place {
            Place::There(vtep) => Some(vtep),
            Place::Here(_) => None,
        })
        .collect();
    let mut text = node(HERE, vtep);
    for vtep in vteps {
        text += &node(&node_name(vtep), vtep);
    }
    put(directory, "nodes.yaml", &text)?;
    let vpcs: BTreeSet<u32> = members.iter().map(|member| member.vpc).collect();
    for vpc in vpcs {
        let inside: Vec<&Member> = members.iter().filter(|member| member.vpc == vpc).collect();
        let text = network(vpc, &inside).map_err(formatting)?;
        put(directory, &format!("vpc-{vpc}.yaml"), &text)?;
    }
    Ok(())
}

/// Writes the one endpoint that is attached and changes, in a file of its own.
pub(super) fn write_attached(directory: &Path, member: &Member) -> Result<()> {
    prepare_attached(directory, member)?.put()
}

/// A file that waits to take another's place.
pub(super) struct Prepared {
    from: PathBuf,
    to: PathBuf,
}

impl Prepared {
    /// Moves it there in one step.
    pub(super) fn put(&self) -> Result<()> {
        fs::rename(&self.from, &self.to).context(format!("replacing {}", self.to.display()))
    }
}

/// The same, but not in place yet.
pub(super) fn prepare_attached(directory: &Path, member: &Member) -> Result<Prepared> {
    let mut text = String::new();
    endpoint(&mut text, member).map_err(formatting)?;
    let prepared = Prepared { from: directory.join(".attached.yaml"), to: directory.join("attached.yaml") };
    fs::write(&prepared.from, text).context(format!("writing {}", prepared.from.display()))?;
    Ok(prepared)
}

/// Kubernetes namespace and Pod of an endpoint.
pub(super) fn pod(member: &Member) -> (String, String) {
    let [_, second, third, last] = member.address.octets();
    (format!("vpc-{}", member.vpc), format!("pod-{second}-{third}-{last}"))
}

fn put(directory: &Path, name: &str, text: &str) -> Result<()> {
    fs::write(directory.join(name), text).context(format!("writing {name}"))
}

fn formatting(error: fmt::Error) -> Error {
    Error::NotOurs(format!("writing a manifest: {error}"))
}

fn node_name(vtep: Ipv4Addr) -> String {
    format!("node-{}", u32::from(vtep))
}

fn node(name: &str, vtep: Ipv4Addr) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n\
         status: {{addresses: [{{type: InternalIP, address: {vtep}}}]}}\n---\n"
    )
}

fn subnet_name(vpc: u32, member: &Member) -> String {
    let [_, second, third, _] = member.address.octets();
    format!("vpc-{vpc}-{second}-{third}")
}

fn network(vpc: u32, members: &[&Member]) -> std::result::Result<String, fmt::Error> {
    const API: &str = "apiVersion: juneau.loutres.me/v1alpha1\nkind:";
    let mut text = String::new();
    let subnets: BTreeSet<(String, [u8; 4])> = members
        .iter()
        .map(|member| {
            let [first, second, third, _] = member.address.octets();
            (subnet_name(vpc, member), [first, second, third, 0])
        })
        .collect();
    writeln!(text, "apiVersion: v1\nkind: Namespace\nmetadata: {{name: vpc-{vpc}}}\n---")?;
    writeln!(
        text,
        "{API} Vpc\nmetadata: {{name: vpc-{vpc}}}\nspec: {{}}\nstatus: {{vpcID: {vpc}, mainRouteTable: vpc-{vpc}}}\n---"
    )?;
    let mut routes = String::new();
    for (name, [a, b, c, _]) in &subnets {
        let vni = (vpc << 8) | u32::from(*c);
        writeln!(
            text,
            "{API} Subnet\nmetadata: {{name: {name}}}\nspec: {{vpc: vpc-{vpc}, cidr: {a}.{b}.{c}.0/24}}\n\
             status: {{vni: {vni}, gateway: {a}.{b}.{c}.1, gatewayMAC: \"02:00:00:00:00:01\"}}\n---"
        )?;
        write!(routes, "\n  - {{dst: {a}.{b}.{c}.0/24, via: {{type: connected}}, subnet: {name}}}")?;
    }
    writeln!(
        text,
        "{API} RouteTable\nmetadata: {{name: vpc-{vpc}}}\nspec: {{vpc: vpc-{vpc}}}\nstatus:\n  tableID: {vpc}\n  \
         routes:{routes}\n---"
    )?;
    for member in members {
        endpoint(&mut text, member)?;
    }
    Ok(text)
}

/// A Pod, its interface and its endpoint.
fn endpoint(text: &mut String, member: &Member) -> fmt::Result {
    const API: &str = "apiVersion: juneau.loutres.me/v1alpha1\nkind:";
    let (namespace, pod) = pod(member);
    let subnet = subnet_name(member.vpc, member);
    let node = match member.place {
        Place::Here(_) => HERE.to_owned(),
        Place::There(vtep) => node_name(vtep),
    };
    let [a, b, c, d, e, f] = member.mac;
    let address = member.address;
    let reference = format!("podRef: {{name: {pod}, interface: eth0, uid: {namespace}-{pod}}}");
    writeln!(
        text,
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {pod}\n  namespace: {namespace}\n  uid: {namespace}-{pod}\n  \
         annotations: {{juneau.loutres.me/subnet: {subnet}}}\nspec: {{nodeName: {node}, containers: [{{name: main}}]}}\n---"
    )?;
    writeln!(
        text,
        "{API} NetworkInterface\nmetadata: {{name: {pod}.eth0, namespace: {namespace}}}\nspec:\n  {reference}\n  \
         nodeName: {node}\n  subnet: {subnet}\nstatus: {{phase: Ready, address: {address}/24}}\n---"
    )?;
    writeln!(
        text,
        "{API} NetworkEndpoint\nmetadata: {{name: {pod}.eth0, namespace: {namespace}}}\nspec:\n  kind: Pod\n  \
         nodeName: {node}\n  subnet: {subnet}\n  address: {address}/24\n  \
         macAddress: \"{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}\"\n  {reference}\n---"
    )
}
