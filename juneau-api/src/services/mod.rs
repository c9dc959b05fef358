//! What a Service is on one node: its ports, their backends, and who takes new connections there.
//!
//! The rules are those of Kubernetes, as kube-proxy 1.37 carries them out (`pkg/proxy/topology.go`,
//! `endpointslicecache.go`). In this order: the traffic policy says which endpoints are in scope; of those the ready
//! ones, among them the ones that the hints leave; if none is ready, those that terminate and still serve. Everything
//! here is pure, and knows nothing of VPCs: which addresses may be backends is asked.

mod choose;

use crate::view::{Address, EndpointSlice, Service, ServicePort, SliceEndpoint, SlicePort, Transport};
use choose::Candidate;
use core::fmt;
use core::net::SocketAddr;
use juneau_core::model::{self, BackendState, Protocol};
use std::collections::{BTreeMap, BTreeSet};

/// The node that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Here<'a> {
    /// Its name.
    pub node: &'a str,
    /// Its zone, if it is in one.
    pub zone: Option<&'a str>,
}

/// Why a port of a Service, or an endpoint's, is left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Refused {
    /// The protocol is none that Kubernetes has.
    Protocol {
        /// The Service's port.
        port: i32,
    },
    /// The number is no port.
    Port {
        /// The number.
        port: i32,
    },
    /// The Service has the port twice.
    Twice {
        /// The protocol.
        protocol: Protocol,
        /// The port.
        port: u16,
    },
    /// An EndpointSlice names a number that is no port.
    EndpointPort {
        /// The Service's port.
        port: u16,
        /// The number.
        number: i32,
    },
    /// Endpoints listen at another port than the Service's; SCTP keeps its ports.
    SctpPort {
        /// The Service's port.
        port: u16,
        /// The endpoints'.
        target: u16,
    },
}

impl Refused {
    /// What to do.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Protocol { .. } => "use TCP, UDP or SCTP",
            Self::Port { .. } => "use a port of 1 to 65535",
            Self::Twice { .. } => "remove one of the two",
            Self::EndpointPort { .. } => "use a port of 1 to 65535 in its EndpointSlices",
            Self::SctpPort { .. } => "let the Service have the port that its Pods listen at",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol { port } => write!(f, "the protocol of port {port} is none that is known"),
            Self::Port { port } => write!(f, "{port} is no port"),
            Self::Twice { protocol, port } => write!(f, "port {port} of {protocol} stands there twice"),
            Self::EndpointPort { port, number } => {
                write!(f, "endpoints of port {port} listen at {number}, which is no port")
            }
            Self::SctpPort { port, target } => {
                write!(f, "endpoints of SCTP port {port} listen at {target}, and ports of SCTP are not translated")
            }
        }
    }
}

/// Says which addresses may be backends. Asked once for each endpoint.
pub trait Backends {
    /// Whether this may be one.
    fn admits(&mut self, address: &Address) -> bool;
}

impl<F: FnMut(&Address) -> bool> Backends for F {
    fn admits(&mut self, address: &Address) -> bool {
        self(address)
    }
}

/// The ports of a Service as a node has to serve them, and what is left out. `slices` are all of the Service's.
pub fn ports<'s>(
    service: &Service,
    slices: impl IntoIterator<Item = &'s EndpointSlice>,
    here: Here<'_>,
    backends: &mut impl Backends,
) -> (Vec<model::ServicePort>, BTreeSet<Refused>) {
    let slices: Vec<(&EndpointSlice, Vec<&SliceEndpoint>)> = slices
        .into_iter()
        .map(|slice| (slice, slice.endpoints.iter().filter(|endpoint| backends.admits(&endpoint.address)).collect()))
        .collect();
    let (mut ports, mut refused) = (Vec::<model::ServicePort>::new(), BTreeSet::new());
    for wanted in &service.ports {
        let (protocol, port) = match number(wanted) {
            Ok(found) => found,
            Err(why) => {
                refused.insert(why);
                continue;
            }
        };
        if ports.iter().any(|other| (other.protocol, other.port) == (protocol, port)) {
            refused.insert(Refused::Twice { protocol, port });
            continue;
        }
        let mut candidates = BTreeMap::new();
        for (slice, endpoints) in &slices {
            for listening in slice.ports.iter().filter(|other| is_meant(wanted, other)) {
                match target(protocol, port, listening) {
                    Ok(target) => merge(&mut candidates, endpoints, target, here),
                    // Without endpoints it does not matter where they would listen.
                    Err(why) if !endpoints.is_empty() => drop(refused.insert(why)),
                    Err(_) => {}
                }
            }
        }
        let internal = choose::choose(&candidates, service.is_local, here);
        let state = |candidate: Candidate<'_>| BackendState { serving: candidate.is_ready || candidate.is_serving };
        let backends = candidates.into_iter().map(|(address, candidate)| (address, state(candidate))).collect();
        ports.push(model::ServicePort { name: wanted.name.to_string(), protocol, port, backends, internal });
    }
    (ports, refused)
}

/// Protocol and number of a Service's port.
fn number(wanted: &ServicePort) -> Result<(Protocol, u16), Refused> {
    let protocol = match wanted.transport {
        Transport::Tcp => Protocol::Tcp,
        Transport::Udp => Protocol::Udp,
        Transport::Sctp => Protocol::Sctp,
        Transport::Unknown => return Err(Refused::Protocol { port: wanted.port }),
    };
    match u16::try_from(wanted.port) {
        Ok(port) if port != 0 => Ok((protocol, port)),
        _ => Err(Refused::Port { port: wanted.port }),
    }
}

/// Whether a slice's port is this one of the Service: name and protocol say so. The number is where endpoints listen,
/// whatever `targetPort` says: whoever wrote the slice has looked that up.
fn is_meant(wanted: &ServicePort, listening: &SlicePort) -> bool {
    wanted.name == listening.name && wanted.transport == listening.transport
}

fn target(protocol: Protocol, port: u16, listening: &SlicePort) -> Result<u16, Refused> {
    match u16::try_from(listening.port) {
        Ok(target) if target != 0 && protocol == Protocol::Sctp && target != port => {
            Err(Refused::SctpPort { port, target })
        }
        Ok(target) if target != 0 => Ok(target),
        _ => Err(Refused::EndpointPort { port, number: listening.port }),
    }
}

/// Adds the endpoints of a slice. While endpoints move from one slice to another they stand in both, and one of the two
/// may be older: whatever says most counts.
fn merge<'s>(
    candidates: &mut BTreeMap<SocketAddr, Candidate<'s>>,
    endpoints: &[&'s SliceEndpoint],
    port: u16,
    here: Here<'_>,
) {
    for endpoint in endpoints {
        let Address::Ip(address) = endpoint.address else { continue };
        let candidate = Candidate::new(endpoint, here);
        candidates
            .entry(SocketAddr::new(address, port))
            .and_modify(|known| {
                if candidate.rank() > known.rank() {
                    *known = candidate;
                }
            })
            .or_insert(candidate);
    }
}

#[cfg(test)]
mod tests;
