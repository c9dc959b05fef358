//! The Services of the [`super::topology`]: each tenant has the same ones, at the same addresses.

use super::topology::{Pod, vtep};
use crate::layout::{
    BACKEND_CHOSEN, BACKEND_ENDPOINT, BACKEND_SERVING, Backend, Be16, FRONTEND_ADDRESS, FRONTEND_LOCAL_ONLY, Frontend,
    FrontendKey, SLOTS, Slots, be32,
};
use crate::packet::{IP_SCTP, IP_TCP, IP_UDP};
use crate::tables::Tables;
use core::net::Ipv4Addr;

/// The range of addresses for Services, a /16.
pub const RANGE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);
/// TCP port 80 leads to port 8080 of Pods of both nodes, 1.10 and 1.11 here, 1.20 and 2.20 there; UDP port 53 to port
/// 53 of 2.11 here and 1.21 there.
pub const WEB: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// TCP port 80 and UDP port 53 without endpoints.
pub const EMPTY: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 11);
/// SCTP port 2905 of 1.11 and 2.21.
pub const SCTP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 12);
/// TCP port 80 takes endpoints of the own node alone, and has none there.
pub const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 13);
/// TCP port 80 and UDP port 53 of the nodes themselves, at their VTEPs. Tenant 0 has it.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 14);
/// TCP port 80 and UDP port 53 lead to port 8080 of 1.10 alone.
pub const SELF: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 15);
/// TCP port 8080 of 1.10 and 1.11: the backends of [`WEB`] under another address, with their own port.
pub const SAME: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 16);
/// TCP port 80 and UDP port 53 of Pods of both nodes, with whose port 8080 a client stays for a minute.
pub const STICKY: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 17);
/// An address for Services that none has.
pub const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 96, 7, 7);

/// A Service's port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Whose.
    pub tenant: u8,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its port.
    pub port: u16,
    /// IP protocol.
    pub protocol: u8,
    /// Where it leads.
    pub backends: Vec<(Ipv4Addr, u16)>,
    /// Endpoints of this node alone.
    pub local_only: bool,
    /// Seconds that a client stays with its backend; 0 is each connection for itself.
    pub affinity: u32,
}

/// Every port of every Service.
#[must_use]
pub fn all() -> Vec<Port> {
    let mut ports = Vec::new();
    for tenant in 0..2 {
        let of = |subnet, host, port| (Pod::new(tenant, subnet, host).address(), port);
        let mut add = |address, port, protocol, backends: &[(Ipv4Addr, u16)]| {
            let backends = backends.to_vec();
            let affinity = if address == STICKY { 60 } else { 0 };
            ports.push(Port { tenant, address, port, protocol, backends, local_only: address == LOCAL, affinity });
        };
        add(WEB, 80, IP_TCP, &[of(1, 10, 8080), of(1, 11, 8080), of(1, 20, 8080), of(2, 20, 8080)]);
        add(WEB, 53, IP_UDP, &[of(2, 11, 53), of(1, 21, 53)]);
        add(EMPTY, 80, IP_TCP, &[]);
        add(EMPTY, 53, IP_UDP, &[]);
        add(SCTP, 2905, IP_SCTP, &[of(1, 11, 2905), of(2, 21, 2905)]);
        add(LOCAL, 80, IP_TCP, &[]);
        add(SELF, 80, IP_TCP, &[of(1, 10, 8080)]);
        add(SELF, 53, IP_UDP, &[of(1, 10, 8080)]);
        add(SAME, 8080, IP_TCP, &[of(1, 10, 8080), of(1, 11, 8080)]);
        for (port, protocol) in [(80, IP_TCP), (53, IP_UDP)] {
            add(STICKY, port, protocol, &[of(1, 10, 8080), of(1, 11, 8080), of(1, 20, 8080), of(2, 20, 8080)]);
        }
        if tenant == 0 {
            add(HOST, 80, IP_TCP, &[(vtep(0), 8080), (vtep(1), 8080)]);
            add(HOST, 53, IP_UDP, &[(vtep(0), 53), (vtep(1), 53)]);
        }
    }
    ports
}

/// Adds ports to tables that have none yet. Each takes a line of slots, in which its backends take turns.
pub fn add(tables: &mut Tables, ports: &[Port]) {
    let mut id = 0;
    for (line, port) in (0..).zip(ports) {
        let (vpc, service) = (Pod::new(port.tenant, 1, 0).vpc(), line + 1);
        let mut ids = Vec::new();
        for (address, target) in &port.backends {
            id += 1;
            let backend = Backend {
                service,
                address: be32(*address),
                port: Be16::new(*target),
                kind: BACKEND_ENDPOINT,
                flags: BACKEND_SERVING | BACKEND_CHOSEN,
                vpc,
                ..Backend::default()
            };
            tables.backends.insert(id, backend.tagged());
            ids.push(id);
        }
        let mut frontend = Frontend { service, owner: vpc, affinity: port.affinity, ..Frontend::default() };
        if port.local_only {
            frontend.flags |= FRONTEND_LOCAL_ONLY;
        }
        if !ids.is_empty() {
            let mut slots = Slots::default();
            slots.backend.iter_mut().zip(ids.iter().cycle()).for_each(|(slot, id)| *slot = *id);
            tables.slots.insert(line, slots);
            (frontend.base, frontend.size) = (line * SLOTS, SLOTS);
        }
        let key = FrontendKey::new(vpc, be32(port.address), Be16::new(port.port), port.protocol);
        tables.frontends.insert(key, frontend.tagged(&key));
        let key = FrontendKey::of_address(vpc, be32(port.address));
        let frontend = Frontend { flags: FRONTEND_ADDRESS, owner: vpc, ..Frontend::default() };
        tables.frontends.insert(key, frontend.tagged(&key));
    }
}
