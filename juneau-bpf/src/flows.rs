//! Flow state of a live node, for reading.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use juneau_core::flow::FlowRead;
use juneau_core::layout::{self, Affinity, AffinityKey, Flow, FlowKey, Pmtu, Seeds, VpcState};
use juneau_core::layout::{Be32, Fragment, FragmentKey};

use crate::bpffs::{PinRoot, escape};
use crate::dataplane::Constants;
use crate::error::{Error, Result};
use crate::failpoint::{Failpoints, Operation};
use crate::generation::mapped;
use crate::map::Map;
use crate::object::Maps;
use crate::sys::map::RawMap;
use crate::sys::mmap::MappedArray;
use crate::tables::typed;

/// The flow state of a node. Programs write it; here it is read, and swept by [`crate::Sweeper`]. Clones are the same.
#[derive(Debug, Clone)]
pub struct Flows {
    pub(crate) entries: Map<FlowKey, Flow>,
    pub(crate) fragments: Map<FragmentKey, Fragment>,
    pub(crate) path_mtus: Map<Be32, Pmtu>,
    pub(crate) affinities: Map<AffinityKey, Affinity>,
    states: Arc<MappedArray>,
    vpcs: u32,
    pub(crate) seeds: Seeds,
    hz: u32,
}

impl Flows {
    /// The flow state that is pinned below a pin root, of this version's ABI. Needs no lock.
    ///
    /// # Errors
    /// [`Error::ObjectLacks`] when a map is not pinned there, [`Error::WrongLayout`] when it is another, the kernel's.
    pub fn open(pin_root: &Path) -> Result<Self> {
        let root = PinRoot::open(pin_root)?;
        let directory = root.abi(layout::ABI);
        let mut maps = Maps::new();
        for name in ["jn_flows", "jn_vpc_states", "jn_fragments", "jn_pmtu", "jn_affinity"] {
            if let Some(fd) = root.get(&directory.join(escape(name)))? {
                let raw = RawMap::from_fd(fd).map_err(Error::kernel(Operation::MapOpen, name))?;
                maps.insert(name.to_owned(), Arc::new(raw));
            }
        }
        let missing = || Error::ObjectLacks { what: "map", name: Constants::PIN.to_owned() };
        let (constants, _) = Constants::read(&root, &directory)?.ok_or_else(missing)?;
        Self::of(&maps, &Failpoints::default(), constants.seeds(), constants.hz())
    }

    pub(crate) fn of(maps: &Maps, failpoints: &Failpoints, seeds: Seeds, hz: u32) -> Result<Self> {
        let states: Map<u32, VpcState> = typed(maps, "jn_vpc_states", failpoints)?;
        Ok(Self {
            entries: typed(maps, "jn_flows", failpoints)?,
            fragments: typed(maps, "jn_fragments", failpoints)?,
            path_mtus: typed(maps, "jn_pmtu", failpoints)?,
            affinities: typed(maps, "jn_affinity", failpoints)?,
            states: Arc::new(mapped(maps, "jn_vpc_states")?),
            vpcs: states.capacity(),
            seeds,
            hz,
        })
    }

    /// Jiffies in a second, for ages.
    #[must_use]
    pub fn hz(&self) -> u32 {
        self.hz
    }

    /// The seeds of the flow hash.
    #[must_use]
    pub fn seeds(&self) -> Seeds {
        self.seeds
    }

    /// Every entry, in no order. Entries that come or go meanwhile may be missing.
    ///
    /// # Errors
    /// The kernel's.
    pub fn dump(&self) -> Result<Vec<(FlowKey, Flow)>> {
        let mut entries = Vec::new();
        self.visit(|key, flow| entries.push((*key, *flow)))?;
        Ok(entries)
    }

    /// Batches are read under the lock of their bucket: no entry is another key's.
    pub(crate) fn visit(&self, mut visit: impl FnMut(&FlowKey, &Flow)) -> Result<()> {
        self.entries.for_each(|key, flow| {
            if flow.is_of(self.seeds, &key) {
                visit(&key, &flow);
            }
        })
    }

    /// VPC indices that have counters.
    pub(crate) fn vpc_indices(&self) -> std::ops::Range<u32> {
        0..self.vpcs
    }

    /// Flows and embryonic flows as counted by the programs.
    pub(crate) fn counted(&self, vpc_index: u32) -> Option<(i64, i64)> {
        let (flows, embryonic) = self.counters(vpc_index)?;
        Some((flows.load(Ordering::SeqCst), embryonic.load(Ordering::SeqCst)))
    }

    /// Adds to both counts, as programs do at the same time.
    pub(crate) fn count(&self, vpc_index: u32, flows: i64, embryonic: i64) {
        if let Some((flow_count, embryonic_count)) = self.counters(vpc_index) {
            flow_count.fetch_add(flows, Ordering::SeqCst);
            embryonic_count.fetch_add(embryonic, Ordering::SeqCst);
        }
    }

    fn counters(&self, vpc_index: u32) -> Option<(&std::sync::atomic::AtomicI64, &std::sync::atomic::AtomicI64)> {
        let start = vpc_index as usize * size_of::<VpcState>();
        let flows = self.states.long(start + std::mem::offset_of!(VpcState, flows))?;
        Some((flows, self.states.long(start + std::mem::offset_of!(VpcState, embryonic))?))
    }
}

impl FlowRead for Flows {
    type Error = Error;

    fn lookup(&self, key: &FlowKey) -> Result<Option<Flow>> {
        // The kernel copies upwards and without a lock, so one copy may be of two keys. A second look at an equal tag
        // says that the element was this key's all the time.
        let Some(first) = self.entries.get(key)?.filter(|flow| flow.is_of(self.seeds, key)) else { return Ok(None) };
        let second = self.entries.get(key)?.filter(|flow| flow.is_of(self.seeds, key));
        match second {
            Some(second) if second.tag == first.tag => Ok(Some(first)),
            // Replaced between the two: the later one is as good, if it stands still.
            Some(second) => Ok(self.entries.get(key)?.filter(|third| third.tag == second.tag).map(|_| second)),
            None => Ok(None),
        }
    }

    fn vpc_state(&self, vpc_index: u16) -> Result<VpcState> {
        let start = usize::from(vpc_index) * size_of::<VpcState>();
        let word = |offset: usize| self.states.word(start + offset).map(|word| word.load(Ordering::SeqCst));
        let (Some((flows, embryonic)), Some(icmp_stamp), Some(icmp_used)) = (
            self.counted(vpc_index.into()),
            word(std::mem::offset_of!(VpcState, icmp_stamp)),
            word(std::mem::offset_of!(VpcState, icmp_used)),
        ) else {
            return Err(Error::OutOfRange { what: "VPC index", value: vpc_index.into(), limit: self.vpcs.into() });
        };
        Ok(VpcState { flows, embryonic, icmp_stamp, icmp_used })
    }

    fn len(&self) -> Result<usize> {
        self.entries.count()
    }

    fn capacity(&self) -> usize {
        self.entries.capacity() as usize
    }

    fn for_each(&self, visit: &mut dyn FnMut(&FlowKey, &Flow)) -> Result<()> {
        self.visit(visit)
    }
}
