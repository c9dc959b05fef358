//! CHECK: whether the result of an earlier ADD still tells what is there.

use crate::error::{CniError, Code};
use crate::protocol::Attached;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Previous {
    #[serde(default)]
    interfaces: Vec<Interface>,
    #[serde(default)]
    ips: Vec<Address>,
}

#[derive(Deserialize)]
struct Interface {
    name: String,
    #[serde(default)]
    mac: String,
    #[serde(default)]
    sandbox: String,
}

#[derive(Deserialize)]
struct Address {
    address: String,
    interface: Option<usize>,
}

/// Compares what ADD said with what the agent found. Interfaces and addresses that another plugin added are its own;
/// every one of ours must be there as it was.
pub(crate) fn compare(previous: Value, found: &Attached, netns: &str) -> Result<(), CniError> {
    let previous: Previous = serde_json::from_value(previous).map_err(|error| {
        CniError::new(Code::InvalidConfig, format!("prevResult: {error}"), "give the result of ADD as it was")
    })?;
    let eth0 = (&*found.interface, &*found.address, &*found.mac);
    let others = found.others.iter().map(|other| (&*other.interface, &*other.address, &*other.mac));
    for (name, address, mac) in std::iter::once(eth0).chain(others) {
        let place = previous.interfaces.iter().position(|other| other.name == name && other.sandbox == netns);
        let Some((place, said)) = place.and_then(|place| Some((place, previous.interfaces.get(place)?))) else {
            return Err(differs(format!("prevResult has no interface {name} in {netns}")));
        };
        if !said.mac.is_empty() && !said.mac.eq_ignore_ascii_case(mac) {
            return Err(differs(format!("prevResult: {name} had the MAC address {}, now {mac}", said.mac)));
        }
        if !previous.ips.iter().any(|ip| ip.address == address && ip.interface == Some(place)) {
            return Err(differs(format!("prevResult: {name} did not have the address {address}, which it has now")));
        }
    }
    Ok(())
}

fn differs(message: String) -> CniError {
    CniError::new(Code::Differs, message, "delete the Pod; its successor gets interfaces as they should be")
}
