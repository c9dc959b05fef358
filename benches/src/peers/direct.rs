//! The limit on one node: a veth pair between two Pods and nothing else.

use std::net::Ipv4Addr;

use crate::error::Result;
use crate::namespace::{End, Fabric};
use crate::path::{Path, Pods};

/// Makes the path.
///
/// # Errors
/// What making and asking it can answer.
pub fn direct(fabric: &Fabric, cpu: usize) -> Result<Path> {
    let [client, server] = [fabric.namespace()?, fabric.namespace()?];
    let [first, host] = [Ipv4Addr::new(10, 0, 1, 2), Ipv4Addr::new(10, 0, 1, 3)];
    let end = End { namespace: &server, name: "eth0" };
    client.veth("eth0", &end, 1500)?;
    client.address("eth0", first, 24)?;
    server.address("eth0", host, 24)?;
    client.neighbour("eth0", host, server.mac("eth0")?)?;
    server.neighbour("eth0", first, client.mac("eth0")?)?;
    let pods = Pods { client, server, host };
    Path::new("direct veth", pods, cpu, Vec::new())
}
