//! The BPF object: opened, given its configuration and the maps it shares, loaded.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Once};

use juneau_core::layout::Config;
use libbpf_rs::{MapCore, MapType, ObjectBuilder, OpenMapMut, OpenObject, PrintLevel};
use zerocopy::IntoBytes;

use crate::bpffs::{PinRoot, escape};
use crate::error::{Error, MapShape, Result};
use crate::failpoint::Operation;
use crate::sys;
use crate::sys::map::RawMap;

/// Maps that all loads of one ABI share. Every other map of the object belongs to its load.
pub(crate) const SHARED: &[&str] = &[
    "jn_interfaces",
    "jn_interfaces_high",
    "jn_endpoints",
    "jn_macs",
    "jn_segments",
    "jn_routes",
    "jn_vteps",
    "jn_policies",
    "jn_frontends",
    "jn_slots",
    "jn_backends",
    "jn_vpcs",
    "jn_vpc_states",
    "jn_flows",
    "jn_fragments",
    "jn_pmtu",
    "jn_affinity",
    "jn_generations",
    "jn_counters",
    "jn_traffic",
    "jn_devices",
    "jn_events",
    "jn_event_lost",
    HOT,
];

/// The name under which the section `.data.hot` is known here; bpffs allows no dots.
pub(crate) const HOT: &str = "jn_hot";

/// Maps whose words user space changes atomically while programs do.
const MAPPED: &[&str] = &["jn_vpc_states", "jn_generations"];

/// Sizes of the maps that grow with the cluster; `None` is the object's own.
///
/// A map that is pinned keeps its size: another one is refused ([`Error::ForeignMap`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MapSizes {
    /// Interfaces of this node whose index is 8192 or more.
    pub interfaces_high: Option<u32>,
    /// Endpoints everywhere.
    pub endpoints: Option<u32>,
    /// Endpoints of this node.
    pub macs: Option<u32>,
    /// Subnets with an endpoint here.
    pub segments: Option<u32>,
    /// Routes of all tables.
    pub routes: Option<u32>,
    /// Other nodes.
    pub vteps: Option<u32>,
    /// Rules of policy.
    pub policies: Option<u32>,
    /// Ports of Services, and their addresses, as the VPCs of this node meet them.
    pub frontends: Option<u32>,
    /// Lines of 16 ids of backends, of which a Service port takes four or more.
    pub slots: Option<u32>,
    /// Where Services lead.
    pub backends: Option<u32>,
    /// Flow entries; a connection has two.
    pub flows: Option<u32>,
    /// First fragments.
    pub fragments: Option<u32>,
    /// Learned path MTUs.
    pub path_mtus: Option<u32>,
    /// Clients of Services that stay with a backend.
    pub affinities: Option<u32>,
    /// Bytes of the event ring: a power of two, and pages.
    pub event_bytes: Option<u32>,
}

impl MapSizes {
    fn of(&self, map: &str) -> Option<u32> {
        match map {
            "jn_interfaces_high" => self.interfaces_high,
            "jn_endpoints" => self.endpoints,
            "jn_macs" => self.macs,
            "jn_segments" => self.segments,
            "jn_routes" => self.routes,
            "jn_vteps" => self.vteps,
            "jn_policies" => self.policies,
            "jn_frontends" => self.frontends,
            "jn_slots" => self.slots,
            "jn_backends" => self.backends,
            "jn_flows" => self.flows,
            "jn_fragments" => self.fragments,
            "jn_pmtu" => self.path_mtus,
            "jn_affinity" => self.affinities,
            "jn_events" => self.event_bytes,
            _ => None,
        }
    }
}

/// Maps by the name they are known by here.
pub(crate) type Maps = BTreeMap<String, Arc<RawMap>>;

/// A program of a load.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) fd: OwnedFd,
    pub(crate) id: u32,
    /// Instructions that the verifier walked through.
    pub(crate) verified: u32,
}

/// What one load created, or took over.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Shared maps and own maps.
    pub(crate) maps: Maps,
    pub(crate) programs: BTreeMap<String, Program>,
}

impl Loaded {
    pub(crate) fn program(&self, name: &str) -> Result<&Program> {
        self.programs.get(name).ok_or_else(|| Error::ObjectLacks { what: "program", name: name.to_owned() })
    }

    pub(crate) fn map(&self, name: &str) -> Result<&Arc<RawMap>> {
        self.maps.get(name).ok_or_else(|| Error::ObjectLacks { what: "map", name: name.to_owned() })
    }

    /// Maps that belong to this load alone.
    pub(crate) fn own_maps(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        let own = self.maps.iter().filter(|(name, _)| !SHARED.contains(&name.as_str()));
        own.map(|(name, map)| (name.as_str(), map.as_fd()))
    }
}

/// An object that is not loaded yet.
pub(crate) struct Opened(OpenObject);

impl Opened {
    /// Opens an object file's bytes and applies sizes.
    pub(crate) fn new(bytes: &[u8], sizes: &MapSizes) -> Result<Self> {
        route_messages();
        let mut object = ObjectBuilder::default()
            .name("juneau")
            .and_then(|builder| builder.open_memory(bytes))
            .map_err(load_error)?;
        for mut map in object.maps_mut() {
            let name = known_name(&map.name().to_string_lossy());
            if let Some(size) = sizes.of(&name) {
                map.set_max_entries(size).map_err(load_error)?;
            }
            if MAPPED.contains(&name.as_str()) {
                let flags = map.map_flags() | libbpf_sys::BPF_F_MMAPABLE;
                map.set_map_flags(flags).map_err(load_error)?;
            }
        }
        Ok(Self(object))
    }

    /// The number of elements that a map of the object will have.
    pub(crate) fn max_entries(&self, name: &str) -> Result<u32> {
        let map = self.0.maps().find(|map| map.name() == name);
        map.map(|map| map.max_entries()).ok_or_else(|| Error::ObjectLacks { what: "map", name: name.to_owned() })
    }

    /// Opens what is pinned in `directory` of the maps that loads share. Maps that are not pinned yet are not in the
    /// result.
    pub(crate) fn adopt(&mut self, root: &PinRoot, directory: &Path) -> Result<Maps> {
        let mut maps = Maps::new();
        for map in self.0.maps_mut() {
            let name = known_name(&map.name().to_string_lossy());
            if !SHARED.contains(&name.as_str()) {
                continue;
            }
            let Some(fd) = root.get(&directory.join(escape(&name)))? else { continue };
            let raw = RawMap::from_fd(fd).map_err(Error::kernel(Operation::MapOpen, name.clone()))?;
            let (found, wanted) = (found_shape(&raw), wanted_shape(&map));
            if found != wanted {
                return Err(Error::ForeignMap { map: name, directory: directory.to_owned(), found, wanted });
            }
            maps.insert(name, Arc::new(raw));
        }
        Ok(maps)
    }

    /// Loads with this configuration, over these maps; shared maps that are not among them are created.
    pub(crate) fn load(mut self, config: &Config, shared: &Maps) -> Result<Loaded> {
        self.configure(config)?;
        for mut map in self.0.maps_mut() {
            if let Some(existing) = shared.get(&known_name(&map.name().to_string_lossy())) {
                map.reuse_fd(existing.as_fd()).map_err(load_error)?;
            }
        }
        let object = self.0.load().map_err(load_error)?;
        let mut maps = Maps::new();
        for map in object.maps() {
            let name = known_name(&map.name().to_string_lossy());
            let raw = match shared.get(&name) {
                Some(existing) => Arc::clone(existing),
                None => {
                    let fd = map.as_fd().try_clone_to_owned();
                    let raw = fd.and_then(RawMap::from_fd);
                    Arc::new(raw.map_err(Error::kernel(Operation::MapOpen, name.clone()))?)
                }
            };
            maps.insert(name, raw);
        }
        if let Some(missing) = SHARED.iter().find(|name| !maps.contains_key(**name)) {
            return Err(Error::ObjectLacks { what: "map", name: (*missing).to_owned() });
        }
        let mut programs = BTreeMap::new();
        for program in object.progs() {
            let name = program.name().to_string_lossy().into_owned();
            let error = || Error::kernel(Operation::Load, name.clone());
            let fd = program.as_fd().try_clone_to_owned().map_err(error())?;
            let info = sys::prog::info(fd.as_fd()).map_err(error())?;
            programs.insert(name, Program { fd, id: info.id, verified: info.verified });
        }
        Ok(Loaded { maps, programs })
    }

    fn configure(&mut self, config: &Config) -> Result<()> {
        let lacks = || Error::ObjectLacks { what: "variable", name: "struct jn_config".to_owned() };
        let (offset, size) = sys::object::variable(&self.0, ".rodata", "jn_config").ok_or_else(lacks)?;
        if size != size_of::<Config>() {
            return Err(lacks());
        }
        for mut map in self.0.maps_mut() {
            if !map.name().to_string_lossy().ends_with(".rodata") {
                continue;
            }
            let bytes = map.initial_value_mut().and_then(|value| value.get_mut(offset..offset + size));
            bytes.ok_or_else(lacks)?.copy_from_slice(config.as_bytes());
            return Ok(());
        }
        Err(lacks())
    }
}

/// libbpf names data sections `.data.NAME`, or, the common ones, after the object: `juneau.rodata`.
fn known_name(name: &str) -> String {
    match name {
        ".data.hot" => HOT.to_owned(),
        name => name.trim_start_matches('.').to_owned(),
    }
}

fn found_shape(map: &RawMap) -> MapShape {
    let info = map.info();
    MapShape {
        kind: info.kind,
        key_size: info.key_size,
        value_size: info.value_size,
        max_entries: info.max_entries,
        flags: info.flags,
    }
}

fn wanted_shape(map: &OpenMapMut<'_>) -> MapShape {
    MapShape {
        kind: map.map_type() as u32,
        key_size: map.key_size(),
        value_size: map.value_size(),
        max_entries: match map.map_type() {
            // libbpf rounds rings up to pages, and pages are powers of two.
            MapType::RingBuf => map.max_entries().max(4096).next_power_of_two(),
            _ => map.max_entries(),
        },
        flags: map.map_flags(),
    }
}

thread_local! {
    /// Warnings of libbpf since the last error of this thread: the verifier's log is among them.
    static WARNINGS: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Longest verifier log that is kept; its end is what matters.
const LOG_LIMIT: usize = 8192;

/// Sends libbpf's messages to `tracing` instead of the standard error output.
fn route_messages() {
    fn message(level: PrintLevel, text: String) {
        let text = text.trim_end();
        match level {
            PrintLevel::Debug => tracing::trace!(target: "libbpf", "{text}"),
            PrintLevel::Info => tracing::debug!(target: "libbpf", "{text}"),
            PrintLevel::Warn => {
                tracing::debug!(target: "libbpf", "{text}");
                WARNINGS.with_borrow_mut(|log| {
                    log.push_str(text);
                    log.push('\n');
                    if log.len() > LOG_LIMIT {
                        let cut = log.len() - LOG_LIMIT;
                        let cut = (cut..log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or(log.len());
                        log.drain(..cut);
                    }
                });
            }
        }
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Debug, message)));
    });
    WARNINGS.take();
}

fn load_error(source: libbpf_rs::Error) -> Error {
    Error::Load { source, log: WARNINGS.take() }
}
