//! `juneau-core`'s table traits over the kernel's maps.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use juneau_core::layout::{
    self, Backend, Be32, Endpoint, EndpointKey, Frontend, FrontendKey, Interface, KIND_NONE, Mac, MacKey, Policy,
    PolicyKey, Route, RouteKey, SLOTS, Segment, Slots, Vpc, Vtep, be32, ipv4,
};
use juneau_core::tables::{Change, Diff, Endpoints, Fib, Policies, Services, Table, TableError, Tables, TablesMut};
use zerocopy::IntoBytes;

use crate::bpffs::{PinRoot, escape};
use crate::error::{Error, Result};
use crate::failpoint::{Failpoints, Operation};
use crate::map::{Element, Map, Mode};
use crate::object::Maps;
use crate::sys::map::RawMap;

/// The tables of a node, in the kernel. Clones are the same tables.
///
/// From [`crate::Dataplane::tables`], or, to read a live node's, from [`KernelTables::open`].
#[derive(Debug, Clone)]
pub struct KernelTables {
    vpcs: Map<u32, Vpc>,
    policies: Map<PolicyKey, Policy>,
    vteps: Map<Be32, Vtep>,
    segments: Map<u32, Segment>,
    endpoints: Map<EndpointKey, Endpoint>,
    macs: Map<MacKey, Mac>,
    backends: Map<u32, Backend>,
    slots: Map<u32, Slots>,
    frontends: Map<FrontendKey, Frontend>,
    routes: Map<RouteKey, Route>,
    interfaces: Map<u32, Interface>,
    interfaces_high: Map<u32, Interface>,
}

impl KernelTables {
    /// The tables that are pinned below a pin root, of this version's ABI. Needs no lock: reading disturbs nobody.
    ///
    /// # Errors
    /// [`Error::ObjectLacks`] when a map is not pinned there, [`Error::WrongLayout`] when it is another, the kernel's.
    pub fn open(pin_root: &Path) -> Result<Self> {
        let root = PinRoot::open(pin_root)?;
        Self::pinned(&root, &root.abi(layout::ABI))
    }

    /// The tables that are pinned in a directory.
    pub(crate) fn pinned(root: &PinRoot, directory: &Path) -> Result<Self> {
        let mut maps = Maps::new();
        for name in Table::ALL.iter().map(|table| table.map_name()).chain(["jn_interfaces_high"]) {
            if let Some(fd) = root.get(&directory.join(escape(name)))? {
                let raw = RawMap::from_fd(fd).map_err(Error::kernel(Operation::MapOpen, name))?;
                maps.insert(name.to_owned(), Arc::new(raw));
            }
        }
        Self::of(&maps, &Failpoints::default())
    }

    pub(crate) fn of(maps: &Maps, failpoints: &Failpoints) -> Result<Self> {
        Ok(Self {
            vpcs: typed(maps, "jn_vpcs", failpoints)?,
            policies: typed(maps, "jn_policies", failpoints)?,
            vteps: typed(maps, "jn_vteps", failpoints)?,
            segments: typed(maps, "jn_segments", failpoints)?,
            endpoints: typed(maps, "jn_endpoints", failpoints)?,
            macs: typed(maps, "jn_macs", failpoints)?,
            backends: typed(maps, "jn_backends", failpoints)?,
            slots: typed(maps, "jn_slots", failpoints)?,
            frontends: typed(maps, "jn_frontends", failpoints)?,
            routes: typed(maps, "jn_routes", failpoints)?,
            interfaces: typed(maps, "jn_interfaces", failpoints)?,
            interfaces_high: typed(maps, "jn_interfaces_high", failpoints)?,
        })
    }

    /// Where the record of an interface lies, and whether that is an array, whose elements always exist.
    fn interfaces(&self, ifindex: u32) -> (&Map<u32, Interface>, bool) {
        if ifindex < layout::INTERFACES { (&self.interfaces, true) } else { (&self.interfaces_high, false) }
    }

    /// The longest run of additions to one hash at the start of `changes`, written by one command for many.
    fn put_run(&self, changes: &[Change]) -> Result<usize, TableError> {
        fn run<K: Element, V: Element>(
            map: &Map<K, V>,
            changes: &[Change],
            element: impl Fn(&Change) -> Option<(K, V)>,
        ) -> (usize, Result<()>) {
            let elements: Vec<(K, V)> = changes.iter().map_while(element).collect();
            (elements.len(), map.put_all(&elements))
        }
        let (count, outcome) = match changes.first() {
            Some(Change::Policy(_, Some(_))) => run(&self.policies, changes, |change| match change {
                Change::Policy(key, Some(value)) => Some((*key, *value)),
                _ => None,
            }),
            Some(Change::Endpoint(_, Some(_))) => run(&self.endpoints, changes, |change| match change {
                Change::Endpoint(key, Some(value)) => Some((*key, *value)),
                _ => None,
            }),
            Some(Change::Mac(_, Some(_))) => run(&self.macs, changes, |change| match change {
                Change::Mac(key, Some(value)) => Some((*key, *value)),
                _ => None,
            }),
            Some(Change::Segment(_, Some(_))) => run(&self.segments, changes, |change| match change {
                Change::Segment(key, Some(value)) => Some((*key, *value)),
                _ => None,
            }),
            Some(Change::Backend(_, Some(_))) => run(&self.backends, changes, |change| match change {
                Change::Backend(key, Some(value)) => Some((*key, *value)),
                _ => None,
            }),
            Some(Change::Slots(_, Some(_))) => run(&self.slots, changes, |change| match change {
                Change::Slots(key, Some(value)) => Some((*key, *value)),
                _ => None,
            }),
            Some(Change::Frontend(_, Some(_))) => run(&self.frontends, changes, |change| match change {
                Change::Frontend(key, Some(value)) => Some((*key, *value)),
                _ => None,
            }),
            Some(Change::Route(key, Some(_))) if is_prefix(key) => run(&self.routes, changes, |change| match change {
                Change::Route(key, Some(value)) if is_prefix(key) => Some((*key, *value)),
                _ => None,
            }),
            _ => return Ok(0),
        };
        match (outcome, changes.first()) {
            (Err(error), Some(change)) => Err(table_error(error, change)),
            _ => Ok(count),
        }
    }
}

/// The map of this name, with the types that its layout has here.
pub(crate) fn typed<K: Element, V: Element>(maps: &Maps, name: &str, failpoints: &Failpoints) -> Result<Map<K, V>> {
    let raw = maps.get(name).ok_or_else(|| Error::ObjectLacks { what: "map", name: name.to_owned() })?;
    Map::new(Arc::clone(raw), failpoints.clone())
}

/// Whether a key has a length that it may have, and no bits behind it.
fn is_prefix(key: &RouteKey) -> bool {
    let length = key.prefix_length.checked_sub(RouteKey::TABLE_BITS).and_then(|length| u8::try_from(length).ok());
    length.is_some_and(|length| length <= 32 && RouteKey::new(key.table, ipv4(key.address), length) == *key)
}

fn table_error(error: Error, change: &Change) -> TableError {
    let table = change.table();
    match error {
        Error::Full { limit, .. } => TableError::Full { table, limit: limit as usize },
        Error::NotFound { .. } => TableError::NotFound { table, key: change.key_text() },
        Error::Conflict { .. } => TableError::Conflict { table },
        error => io_error(error, table),
    }
}

fn io_error(error: Error, table: Table) -> TableError {
    match error {
        Error::Kernel { operation, source, .. } => TableError::Io { table, operation: operation.text(), source },
        error => TableError::Io { table, operation: "access", source: std::io::Error::other(error) },
    }
}

impl Fib for KernelTables {
    type Error = TableError;

    fn route(&self, table: u32, destination: IpAddr) -> Result<Option<Route>, TableError> {
        let IpAddr::V4(destination) = destination else { return Ok(None) };
        self.routes.get(&RouteKey::new(table, destination, 32)).map_err(|error| io_error(error, Table::Routes))
    }
}

impl Endpoints for KernelTables {
    type Error = TableError;

    fn interface(&self, ifindex: u32) -> Result<Option<Interface>, TableError> {
        let found = self.interfaces(ifindex).0.get(&ifindex).map_err(|error| io_error(error, Table::Interfaces))?;
        Ok(found.filter(|interface| interface.kind != KIND_NONE))
    }

    fn endpoint(&self, vpc: u32, address: IpAddr) -> Result<Option<Endpoint>, TableError> {
        let IpAddr::V4(address) = address else { return Ok(None) };
        let key = EndpointKey { vpc, address: be32(address) };
        self.endpoints.get(&key).map_err(|error| io_error(error, Table::Endpoints))
    }

    fn mac(&self, vni: u32, mac: [u8; 6]) -> Result<Option<Mac>, TableError> {
        self.macs.get(&MacKey::new(vni, mac)).map_err(|error| io_error(error, Table::Macs))
    }

    fn segment(&self, vni: u32) -> Result<Option<Segment>, TableError> {
        self.segments.get(&vni).map_err(|error| io_error(error, Table::Segments))
    }

    fn vtep(&self, address: Ipv4Addr) -> Result<Option<Vtep>, TableError> {
        self.vteps.get(&be32(address)).map_err(|error| io_error(error, Table::Vteps))
    }

    fn vpc(&self, index: u16) -> Result<Option<Vpc>, TableError> {
        let found = self.vpcs.get(&u32::from(index)).map_err(|error| io_error(error, Table::Vpcs))?;
        Ok(found.filter(|vpc| vpc.vpc != 0))
    }
}

impl Policies for KernelTables {
    type Error = TableError;

    fn policy(&self, key: &PolicyKey) -> Result<Option<Policy>, TableError> {
        self.policies.get(key).map_err(|error| io_error(error, Table::Policies))
    }
}

impl Services for KernelTables {
    type Error = TableError;

    fn frontend(&self, key: &FrontendKey) -> Result<Option<Frontend>, TableError> {
        self.frontends.get(key).map_err(|error| io_error(error, Table::Frontends))
    }

    fn slot(&self, slot: u32) -> Result<u32, TableError> {
        let line = self.slots.get(&(slot / SLOTS)).map_err(|error| io_error(error, Table::Slots))?;
        Ok(line.and_then(|line| line.backend.get((slot % SLOTS) as usize).copied()).unwrap_or_default())
    }

    fn backend(&self, id: u32) -> Result<Option<Backend>, TableError> {
        let found = self.backends.get(&id).map_err(|error| io_error(error, Table::Backends))?;
        Ok(found.filter(Backend::is_whole))
    }
}

impl TablesMut for KernelTables {
    type Error = TableError;

    fn apply(&mut self, change: &Change) -> Result<(), TableError> {
        let outcome = match change {
            Change::Vpc(key, value) => array(&self.vpcs, key, value.as_ref()),
            Change::Policy(key, value) => hash(&self.policies, key, value.as_ref()),
            Change::Vtep(key, value) => hash(&self.vteps, key, value.as_ref()),
            Change::Segment(key, value) => hash(&self.segments, key, value.as_ref()),
            Change::Endpoint(key, value) => hash(&self.endpoints, key, value.as_ref()),
            Change::Mac(key, value) => hash(&self.macs, key, value.as_ref()),
            Change::Backend(key, value) => array(&self.backends, key, value.as_ref()),
            Change::Slots(key, value) => array(&self.slots, key, value.as_ref()),
            Change::Frontend(key, value) => hash(&self.frontends, key, value.as_ref()),
            Change::Route(key, _) if !is_prefix(key) => {
                return Err(TableError::Key { table: Table::Routes, key: change.key_text() });
            }
            Change::Route(key, value) => hash(&self.routes, key, value.as_ref()),
            Change::Interface(key, value) => match self.interfaces(*key) {
                (map, true) => array(map, key, value.as_ref()),
                (map, false) => hash(map, key, value.as_ref()),
            },
        };
        outcome.map_err(|error| table_error(error, change))
    }

    fn apply_diff(&mut self, diff: &Diff) -> Result<(), TableError> {
        let mut rest = diff.changes.as_slice();
        while let Some(first) = rest.first() {
            let count = match self.put_run(rest)? {
                0 => {
                    self.apply(first)?;
                    1
                }
                count => count,
            };
            rest = rest.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    fn len(&self, table: Table) -> Result<usize, TableError> {
        let count = match table {
            Table::Vpcs => occupied(&self.vpcs).map(|vpcs| vpcs.len()),
            Table::Policies => self.policies.count(),
            Table::Vteps => self.vteps.count(),
            Table::Segments => self.segments.count(),
            Table::Endpoints => self.endpoints.count(),
            Table::Macs => self.macs.count(),
            Table::Backends => occupied(&self.backends).map(|backends| backends.len()),
            Table::Slots => occupied(&self.slots).map(|slots| slots.len()),
            Table::Frontends => self.frontends.count(),
            Table::Routes => self.routes.count(),
            Table::Interfaces => {
                occupied(&self.interfaces).and_then(|low| Ok(low.len() + self.interfaces_high.count()?))
            }
            _ => return Ok(0),
        };
        count.map_err(|error| io_error(error, table))
    }

    fn capacity(&self, table: Table) -> usize {
        let capacity = match table {
            Table::Vpcs => self.vpcs.capacity(),
            Table::Policies => self.policies.capacity(),
            Table::Vteps => self.vteps.capacity(),
            Table::Segments => self.segments.capacity(),
            Table::Endpoints => self.endpoints.capacity(),
            Table::Macs => self.macs.capacity(),
            Table::Backends => self.backends.capacity(),
            Table::Slots => self.slots.capacity(),
            Table::Frontends => self.frontends.capacity(),
            Table::Routes => self.routes.capacity(),
            Table::Interfaces => self.interfaces.capacity().saturating_add(self.interfaces_high.capacity()),
            _ => 0,
        };
        capacity as usize
    }

    fn snapshot(&self) -> Result<Tables, TableError> {
        fn dump<K: Element + Ord, V: Element>(
            map: &Map<K, V>,
            table: Table,
        ) -> Result<std::collections::BTreeMap<K, V>, TableError> {
            let elements = map.dump().map_err(|error| io_error(error, table))?;
            Ok(elements.into_iter().collect())
        }
        let mut interfaces = occupied(&self.interfaces).map_err(|error| io_error(error, Table::Interfaces))?;
        interfaces.extend(self.interfaces_high.dump().map_err(|error| io_error(error, Table::Interfaces))?);
        Ok(Tables {
            interfaces: interfaces.into_iter().collect(),
            endpoints: dump(&self.endpoints, Table::Endpoints)?,
            macs: dump(&self.macs, Table::Macs)?,
            backends: occupied(&self.backends).map_err(|error| io_error(error, Table::Backends))?.into_iter().collect(),
            slots: occupied(&self.slots).map_err(|error| io_error(error, Table::Slots))?.into_iter().collect(),
            frontends: dump(&self.frontends, Table::Frontends)?.into_iter().collect(),
            segments: dump(&self.segments, Table::Segments)?,
            routes: dump(&self.routes, Table::Routes)?,
            vteps: dump(&self.vteps, Table::Vteps)?,
            policies: dump(&self.policies, Table::Policies)?,
            vpcs: occupied(&self.vpcs).map_err(|error| io_error(error, Table::Vpcs))?.into_iter().collect(),
        })
    }
}

fn hash<K: Element, V: Element>(map: &Map<K, V>, key: &K, value: Option<&V>) -> Result<()> {
    match value {
        Some(value) => map.put(key, value, Mode::Any),
        None if map.remove(key)? => Ok(()),
        None => Err(Error::NotFound { map: map.name().to_owned() }),
    }
}

/// An array's element exists when it is not all zeroes.
fn array<V: Element>(map: &Map<u32, V>, key: &u32, value: Option<&V>) -> Result<()> {
    match value {
        Some(value) => map.put(key, value, Mode::Any),
        None if map.get(key)?.is_some_and(|value| !is_zero(&value)) => map.put(key, &V::new_zeroed(), Mode::Any),
        None => Err(Error::NotFound { map: map.name().to_owned() }),
    }
}

fn occupied<V: Element>(map: &Map<u32, V>) -> Result<Vec<(u32, V)>> {
    let mut elements = Vec::new();
    map.for_each(|key, value| {
        if !is_zero(&value) {
            elements.push((key, value));
        }
    })?;
    Ok(elements)
}

fn is_zero<V: IntoBytes + zerocopy::Immutable>(value: &V) -> bool {
    value.as_bytes().iter().all(|byte| *byte == 0)
}
