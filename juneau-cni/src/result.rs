//! What the agent answered, as each version of the specification writes it.

use crate::Version;
use crate::protocol::Attached;
use serde::Serialize;
use std::net::Ipv4Addr;

const EVERYWHERE: &str = "0.0.0.0/0";

#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "cniVersion")]
    version: &'a str,
    interfaces: Vec<Interface<'a>>,
    ips: Vec<Address<'a>>,
    routes: [Route; 1],
    dns: Nothing,
}

#[derive(Serialize)]
struct Interface<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<&'a str>,
}

#[derive(Serialize)]
struct Address<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    address: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<Ipv4Addr>,
    interface: usize,
}

#[derive(Serialize)]
struct Route {
    dst: &'static str,
    gw: Ipv4Addr,
}

/// `dns` is required, and what a Pod asks is not for us to say.
#[derive(Serialize)]
struct Nothing {}

/// Versions 0.1.0 and 0.2.0: one interface, which goes without saying.
#[derive(Serialize)]
struct OldDocument<'a> {
    #[serde(rename = "cniVersion")]
    version: &'a str,
    ip4: OldAddress<'a>,
    dns: Nothing,
}

#[derive(Serialize)]
struct OldAddress<'a> {
    ip: &'a str,
    gateway: Ipv4Addr,
    routes: [Route; 1],
}

/// The result of ADD, newline included. `netns` is the sandbox, as the runtime named it.
///
/// # Errors
/// Never for text that is UTF-8.
pub fn document(attached: &Attached, version: Version, netns: &str) -> Result<Vec<u8>, serde_json::Error> {
    let default = [Route { dst: EVERYWHERE, gw: attached.gateway }];
    let mut line = if version < Version::V0_3_0 {
        let ip4 = OldAddress { ip: &attached.address, gateway: attached.gateway, routes: default };
        serde_json::to_vec(&OldDocument { version: version.as_str(), ip4, dns: Nothing {} })?
    } else {
        serde_json::to_vec(&whole(attached, version, netns, default))?
    };
    line.push(b'\n');
    Ok(line)
}

/// The Pod's interfaces first, `eth0` before all others: there are runtimes that take the first.
fn whole<'a>(attached: &'a Attached, version: Version, netns: &'a str, routes: [Route; 1]) -> Document<'a> {
    let with_mtu = |mtu| (version >= Version::V1_1_0).then_some(mtu);
    let family = (version < Version::V1_0_0).then_some("4");
    let inside = |name, mac, mtu| Interface { name, mac: Some(mac), mtu: with_mtu(mtu), sandbox: Some(netns) };
    let outside = |name, mtu| Interface { name, mac: None, mtu: with_mtu(mtu), sandbox: None };
    let mut interfaces = vec![inside(&*attached.interface, &*attached.mac, attached.mtu)];
    let mut ips =
        vec![Address { version: family, address: &attached.address, gateway: Some(attached.gateway), interface: 0 }];
    for other in &attached.others {
        ips.push(Address { version: family, address: &other.address, gateway: None, interface: interfaces.len() });
        interfaces.push(inside(&other.interface, &other.mac, other.mtu));
    }
    interfaces.push(outside(&attached.host_interface, attached.mtu));
    interfaces.extend(attached.others.iter().map(|other| outside(&other.host_interface, other.mtu)));
    Document { version: version.as_str(), interfaces, ips, routes, dns: Nothing {} }
}
