//! One step: from what the tables held to what they hold next.

use super::memory::ipv4_addresses;
use super::{Limits, ServiceTables};
use crate::layout::{
    BACKEND_CHOSEN, BACKEND_ENDPOINT, BACKEND_SERVING, Backend, Be16, Be32, FRONTEND_ADDRESS, FRONTEND_LOCAL_ONLY,
    Frontend, FrontendKey, SLOTS, Slots, be32,
};
use crate::model::{Problem, Protocol, Service, ServicePort};
use crate::packet::is_forbidden;
use crate::services::{Numbers, maglev};
use core::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::collections::{BTreeMap, BTreeSet};

/// What a Service port has in the tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Built {
    /// Its number.
    pub(super) service: u32,
    base: u32,
    size: u32,
    backends: Box<[u32]>,
}

/// What became of a Service.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What its ports have in the tables.
    pub(super) built: Box<[Built]>,
    /// What could not be programmed.
    pub(super) problems: Vec<Problem>,
    /// Numbers or slots were lacking.
    pub(super) starved: bool,
}

/// Numbers in use.
#[derive(Debug)]
pub(super) struct Used {
    services: Numbers,
    backends: Numbers,
    lines: Numbers,
}

impl Default for Used {
    fn default() -> Self {
        Self::new(Limits { services: 0, backends: 0, lines: 0 })
    }
}

impl Used {
    fn new(limits: Limits) -> Self {
        let mut used = Self {
            services: Numbers::new(limits.services),
            backends: Numbers::new(limits.backends),
            lines: Numbers::new(limits.lines),
        };
        // 0 is none.
        used.services.mark(0);
        used.backends.mark(0);
        used
    }

    fn of(tables: &ServiceTables, limits: Limits) -> Self {
        let mut used = Self::new(limits);
        for frontend in tables.frontends.values() {
            used.services.mark(frontend.service);
            for line in lines(frontend.base, frontend.size) {
                // The rest lies beyond the limit, too.
                if line >= limits.lines {
                    break;
                }
                used.lines.mark(line);
            }
        }
        for (id, backend) in &tables.backends {
            used.services.mark(backend.service);
            used.backends.mark(*id);
        }
        for line in tables.slots.keys() {
            used.lines.mark(*line);
        }
        used
    }
}

/// Lines of a range of slots.
fn lines(base: u32, size: u32) -> core::ops::Range<u32> {
    let first = base / SLOTS;
    first..first.saturating_add(size.div_ceil(SLOTS))
}

/// What a backend is known by: its Service port's number, its address and its port.
type BackendName = (u32, Be32, Be16);

/// A step. Services that changed are forgotten first, then built in the order of their names.
#[derive(Debug)]
pub(super) struct Step<'p> {
    previous: &'p ServiceTables,
    wanted: ServiceTables,
    limits: Limits,
    /// Whether `wanted` was `previous` at first.
    resumed: bool,
    used: Used,
    /// Ids that backends had, of the Service ports that are built anew.
    known: BTreeMap<BackendName, u32>,
    released: Vec<Built>,
    taken: Vec<Built>,
    /// Numbers that have an owner in `taken`.
    claimed: BTreeSet<u32>,
}

impl<'p> Step<'p> {
    /// From any tables, whatever is in them; every Service is built.
    pub(super) fn start(previous: &'p ServiceTables, limits: Limits) -> Self {
        let mut step = Self::new(previous, ServiceTables::default(), Used::of(previous, limits), limits);
        for (id, backend) in &previous.backends {
            step.know(*id, backend);
        }
        step
    }

    /// From the last result, with what it uses; what is not forgotten stays.
    pub(super) fn resume(previous: &'p ServiceTables, used: Used, limits: Limits) -> Self {
        Self { resumed: true, ..Self::new(previous, previous.clone(), used, limits) }
    }

    const fn new(previous: &'p ServiceTables, wanted: ServiceTables, used: Used, limits: Limits) -> Self {
        Self {
            previous,
            wanted,
            limits,
            resumed: false,
            used,
            known: BTreeMap::new(),
            released: Vec::new(),
            taken: Vec::new(),
            claimed: BTreeSet::new(),
        }
    }

    fn know(&mut self, id: u32, backend: &Backend) {
        if id != 0 && id < self.limits.backends {
            self.known.entry((backend.service, backend.address, backend.port)).or_insert(id);
        }
    }

    /// Takes what a Service has out of the tables.
    pub(super) fn forget(&mut self, service: &Service, built: &[Built]) {
        for address in ipv4_addresses(service) {
            for port in &service.ports {
                let key = port_key(service, address, port);
                let frontend = self.wanted.frontends.get(&key);
                if frontend.is_some_and(|frontend| built.iter().any(|port| port.service == frontend.service)) {
                    self.wanted.frontends.remove(&key);
                }
            }
            self.wanted.frontends.remove(&FrontendKey::of_address(service.vpc.get(), be32(address)));
        }
        for port in built {
            for line in lines(port.base, port.size) {
                self.wanted.slots.remove(&line);
            }
            for id in &port.backends {
                if let Some(backend) = self.wanted.backends.remove(id) {
                    self.know(*id, &backend);
                }
            }
            self.released.push(port.clone());
        }
    }

    /// Puts a Service into the tables. `holder` names the Service at an address whose port has a number.
    pub(super) fn build(&mut self, service: &Service, holder: impl Fn(Ipv4Addr, u32) -> Option<String>) -> Outcome {
        let mut found = Found { service, problems: Vec::new(), starved: false };
        let mut addresses = Vec::new();
        for address in &service.addresses {
            match address {
                IpAddr::V4(address) if is_forbidden(be32(*address)) => {
                    found.add(format!("no Pod can reach {address}"), "give it another address");
                }
                IpAddr::V4(address) => addresses.push(*address),
                IpAddr::V6(address) => {
                    found.add(format!("{address}: IPv6 is not programmed yet"), "use IPv4");
                }
            }
        }
        for address in &addresses {
            let key = FrontendKey::of_address(service.vpc.get(), be32(*address));
            let record = Frontend { flags: FRONTEND_ADDRESS, owner: service.vpc.get(), ..Frontend::default() };
            self.wanted.frontends.insert(key, record.tagged(&key));
        }
        let first = self.taken.len();
        for port in &service.ports {
            let mut keys = Vec::with_capacity(addresses.len());
            for address in &addresses {
                let key = port_key(service, *address, port);
                let Some(other) = self.wanted.frontends.get(&key) else {
                    keys.push(key);
                    continue;
                };
                let own = self.taken.get(first..).is_some_and(|own| own.iter().any(|own| own.service == other.service));
                let other = if own { None } else { holder(*address, other.service) };
                let other = other.unwrap_or_else(|| service.name.clone());
                found.add(
                    format!("{address} port {}/{} is Service/{other}'s already", port.port, port.protocol),
                    "let one of the two have another address or port",
                );
            }
            if !keys.is_empty() {
                self.port(service, port, &keys, &mut found);
            }
        }
        let built = self.taken.get(first..).unwrap_or_default();
        Outcome { built: built.into(), problems: found.problems, starved: found.starved }
    }

    fn port(&mut self, service: &Service, port: &ServicePort, keys: &[FrontendKey], found: &mut Found<'_>) {
        let backends = usable_backends(port, found);
        let Some(number) = self.number(keys, &backends) else {
            found.lack("no number is left for its port".into(), "have fewer Services");
            return;
        };
        self.claimed.insert(number);
        let mut ids = BTreeMap::new();
        let mut missing = 0;
        for (name, serving) in backends {
            let record = Backend {
                service: number,
                address: be32(*name.ip()),
                port: Be16::new(name.port()),
                kind: BACKEND_ENDPOINT,
                flags: flags(serving, port.internal.backends.contains(&name.into())),
                vpc: service.vpc.get(),
                ..Backend::default()
            };
            // Names of one Service port differ, and its number is its own: nobody else has the id.
            let id = self.known.get(&(number, record.address, record.port)).copied();
            let Some(id) = id.or_else(|| self.used.backends.take()) else {
                missing += 1;
                continue;
            };
            self.wanted.backends.insert(id, record.tagged());
            ids.insert(SocketAddr::V4(name), id);
        }
        if missing > 0 {
            found.lack(
                format!("port {}/{}: no number is left for {missing} of its endpoints", port.port, port.protocol),
                "have fewer endpoints, or raise the capacity of jn_backends",
            );
        }
        let chosen: Vec<(SocketAddr, u32)> =
            port.internal.backends.iter().filter_map(|name| Some((*name, *ids.get(name)?))).collect();
        let (base, size) = self.slots(number, keys, &chosen).unwrap_or_else(|| {
            found.lack(
                format!(
                    "port {}/{}: no slots are left; it is served as one without endpoints",
                    port.port, port.protocol
                ),
                "have fewer Services or endpoints, or raise the capacity of jn_slots",
            );
            (0, 0)
        });
        let record = Frontend {
            base,
            size,
            service: number,
            flags: if port.internal.local_only { FRONTEND_LOCAL_ONLY } else { 0 },
            affinity: service.affinity.unwrap_or_default(),
            owner: service.vpc.get(),
            ..Frontend::default()
        };
        for key in keys {
            self.wanted.frontends.insert(*key, record.tagged(key));
        }
        self.taken.push(Built { service: number, base, size, backends: ids.into_values().collect() });
    }

    /// The number that a Service port had, or a new one. Of several that it may have had, because addresses or ports
    /// went from one to another, it is the one with the most of its backends.
    fn number(&mut self, keys: &[FrontendKey], backends: &[(SocketAddrV4, bool)]) -> Option<u32> {
        let had = keys.iter().filter_map(|key| self.previous.frontends.get(key)).map(|frontend| frontend.service);
        let mut best = None;
        for number in had {
            let given = number == 0 || number >= self.limits.services || self.claimed.contains(&number);
            if given || best.is_some_and(|(_, other)| other == number) {
                continue;
            }
            let known =
                |name: &SocketAddrV4| self.known.contains_key(&(number, be32(*name.ip()), Be16::new(name.port())));
            let common = backends.iter().filter(|(name, _)| known(name)).count();
            if best.is_none_or(|(most, _)| common > most) {
                best = Some((common, number));
            }
        }
        best.map(|(_, number)| number).or_else(|| self.used.services.take())
    }

    /// Base and size of the slots for these backends: those that the Service port had, if they are the same.
    fn slots(&mut self, number: u32, keys: &[FrontendKey], chosen: &[(SocketAddr, u32)]) -> Option<(u32, u32)> {
        let names: Vec<SocketAddr> = chosen.iter().map(|(name, _)| *name).collect();
        let table = maglev::table(&names);
        let size = u32::try_from(table.len()).ok()?;
        if size == 0 {
            return Some((0, 0));
        }
        let id = |index: &u32| chosen.get(*index as usize).map_or(0, |(_, id)| *id);
        let content: Vec<Slots> = table
            .chunks(SLOTS as usize)
            .map(|chunk| {
                let mut line = Slots::default();
                line.backend.iter_mut().zip(chunk).for_each(|(slot, index)| *slot = id(index));
                line
            })
            .collect();
        let had = keys.iter().filter_map(|key| self.previous.frontends.get(key));
        // Nobody else's slots have these ids, so nobody else has the range.
        let same = had.filter(|had| had.service == number && had.size == size && had.base % SLOTS == 0).find(|had| {
            let range = lines(had.base, size);
            range.end <= self.limits.lines
                && range.zip(&content).all(|(line, content)| self.previous.slots.get(&line) == Some(content))
        });
        let first = match same {
            Some(had) => had.base / SLOTS,
            None => self.used.lines.take_block(u32::try_from(content.len()).ok()?)?,
        };
        for (line, content) in (first..).zip(content) {
            self.wanted.slots.insert(line, content);
        }
        Some((first * SLOTS, size))
    }

    /// The tables, and the numbers that they use.
    pub(super) fn finish(mut self) -> (ServiceTables, Used) {
        if !self.resumed {
            let used = Used::of(&self.wanted, self.limits);
            return (self.wanted, used);
        }
        // First all is freed, then what was kept, or is new, is marked: nothing was given to others meanwhile.
        for port in &self.released {
            self.used.services.free(port.service);
            port.backends.iter().for_each(|id| self.used.backends.free(*id));
            lines(port.base, port.size).for_each(|line| self.used.lines.free(line));
        }
        for port in &self.taken {
            self.used.services.mark(port.service);
            for id in &port.backends {
                self.used.backends.mark(*id);
            }
            for line in lines(port.base, port.size) {
                self.used.lines.mark(line);
            }
        }
        (self.wanted, self.used)
    }
}

/// What is wrong with a Service.
struct Found<'s> {
    service: &'s Service,
    problems: Vec<Problem>,
    starved: bool,
}

impl Found<'_> {
    fn add(&mut self, message: String, remedy: &str) {
        let object = format!("Service/{}", self.service.name);
        self.problems.push(Problem::new(object, message, remedy).at(&self.service.origin));
    }

    fn lack(&mut self, message: String, remedy: &str) {
        self.starved = true;
        self.add(message, remedy);
    }
}

/// Backends that can be programmed, and whether they serve.
fn usable_backends(port: &ServicePort, found: &mut Found<'_>) -> Vec<(SocketAddrV4, bool)> {
    let (mut usable, mut refused) = (Vec::with_capacity(port.backends.len()), Vec::new());
    for (name, state) in &port.backends {
        match name {
            SocketAddr::V4(name)
                if !is_forbidden(be32(*name.ip())) && (port.protocol != Protocol::Sctp || name.port() == port.port) =>
            {
                // Who takes new connections serves.
                usable.push((*name, state.serving || port.internal.backends.contains(&(*name).into())));
            }
            _ => refused.push(name),
        }
    }
    if let [first, others @ ..] = refused.as_slice() {
        let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
        found.add(
            format!("port {}/{} cannot lead to {first}{more}", port.port, port.protocol),
            "give endpoints IPv4 addresses that Pods have, and those of SCTP the Service's own port",
        );
    }
    usable
}

fn port_key(service: &Service, address: Ipv4Addr, port: &ServicePort) -> FrontendKey {
    FrontendKey::new(service.vpc.get(), be32(address), Be16::new(port.port), port.protocol.number())
}

const fn flags(serving: bool, chosen: bool) -> u8 {
    let serving = if serving { BACKEND_SERVING } else { 0 };
    serving | if chosen { BACKEND_CHOSEN } else { 0 }
}
