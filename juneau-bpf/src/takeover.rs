//! From one ABI to another: the new programs take the links over, and the flows come with them.
//!
//! Maps of two ABI numbers are never shared. Tables are copied when the new ones are empty. Flow state is copied before
//! the links change hands, so that established flows are known from the first packet on, and twice after, for what the
//! old programs wrote until then. A copied flow is decided anew by its next packet, in its original direction.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use juneau_core::layout::{FLOW_EMBRYONIC, FLOW_REPLY, Flow, FlowKey, Vpc};
use juneau_core::tables::{Change, Diff, TableError, TablesMut};

use crate::attach::Attachment;
use crate::dataplane::{Constants, Dataplane, LoadId};
use crate::error::{Error, Result};
use crate::failpoint::{Failpoints, Operation};
use crate::flows::Flows;
use crate::map::{Map, Mode};
use crate::sys::map::RawMap;
use crate::tables::{KernelTables, typed};

/// What a take-over did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TakeOver {
    /// Everything that is attached, all with this load's programs.
    pub links: Vec<Attachment>,
    /// Flow entries that came along.
    pub copied: usize,
    /// Flow entries whose key the new programs had taken already; theirs stand.
    pub conflicts: usize,
    /// Flow entries of VPCs that are not on this node any more, or for which there was no room.
    pub left: usize,
    /// Directories of other ABIs whose flows cannot be read: of another layout.
    pub unreadable: Vec<u32>,
    /// Directories of other ABIs that were removed.
    pub removed: Vec<u32>,
    /// Older loads of this ABI that were removed.
    pub retired: Vec<LoadId>,
}

/// Flow state of another ABI whose layout is the same.
struct OtherAbi {
    flows: Map<FlowKey, Flow>,
    seeds: juneau_core::layout::Seeds,
    /// VPC by its number there.
    vpcs: HashMap<u32, u32>,
}

impl Dataplane {
    /// Lets this load run everywhere: copies tables (into empty ones) and flows of other ABIs, gives every link this
    /// load's program, and removes what nothing runs any more. Without another ABI it is [`Dataplane::adopt_links`] and
    /// [`Dataplane::retire_old_generations`].
    ///
    /// # Errors
    /// The kernel's. It may be called again: what was done stays done.
    pub fn take_over(&self) -> Result<TakeOver> {
        let mut done = TakeOver::default();
        let flows = self.flows()?;
        let mut others = Vec::new();
        for abi in self.other_abis()? {
            self.copy_tables(&self.root.abi(abi))?;
            match self.open_other(&self.root.abi(abi))? {
                Some(other) => others.push(other),
                None => done.unreadable.push(abi),
            }
        }
        let mut copied = HashSet::new();
        self.copy(&others, &flows, &mut copied)?;
        done.links = self.adopt_links()?;
        self.copy(&others, &flows, &mut copied)?;
        let (conflicts, left) = self.copy(&others, &flows, &mut copied)?;
        (done.copied, done.conflicts, done.left) = (copied.len(), conflicts, left);
        done.retired = self.retire_old_generations()?;
        let running: Vec<u32> = self.links()?.iter().filter_map(|link| link.load).map(|load| load.abi).collect();
        for abi in self.other_abis()? {
            let directory = self.root.abi(abi);
            // A directory without our mark is somebody else's.
            if !running.contains(&abi) && directory.join(Constants::PIN).exists() {
                self.remove_abi(&directory)?;
                done.removed.push(abi);
            }
        }
        Ok(done)
    }

    /// Removes another ABI's directory, our mark in it last: what a crash leaves is still known as ours.
    fn remove_abi(&self, directory: &Path) -> Result<()> {
        for name in self.root.list(directory)?.iter().filter(|name| *name != Constants::PIN) {
            let path = directory.join(name);
            if path.is_dir() { self.root.remove(&path)? } else { self.root.unpin(&path)? }
        }
        self.root.remove(directory)
    }

    /// Fills tables that are empty with those of another directory, if they have the same layout. The agent puts right what
    /// differs; until then packets find what they found before.
    fn copy_tables(&self, directory: &Path) -> Result<()> {
        let Ok(theirs) = KernelTables::pinned(&self.root, directory).map(|tables| tables.snapshot()) else {
            return Ok(());
        };
        let mut ours = self.tables()?;
        let copied = (|| {
            let (theirs, present) = (theirs?, ours.snapshot()?);
            // Nothing yet, or what a copy that was cut short had come to.
            if Diff::between(&theirs, &present).changes.iter().all(Change::is_removal) {
                ours.apply_diff(&Diff::between(&present, &theirs))?;
            }
            Ok(())
        })();
        copied.map_err(|error: TableError| Error::Tables { source: error })
    }

    /// Opens another ABI's flow state; none when its layout is another.
    fn open_other(&self, directory: &Path) -> Result<Option<OtherAbi>> {
        let Some((constants, _)) = Constants::read(&self.root, directory)? else { return Ok(None) };
        let open = |name: &str| -> Result<Option<Arc<RawMap>>> {
            let Some(fd) = self.root.get(&directory.join(name))? else { return Ok(None) };
            RawMap::from_fd(fd).map(|raw| Some(Arc::new(raw))).map_err(Error::kernel(Operation::MapOpen, name))
        };
        let (Some(flows), Some(vpcs)) = (open("jn_flows")?, open("jn_vpcs")?) else { return Ok(None) };
        let (Ok(flows), Ok(vpcs)) = (Map::new(flows, Failpoints::default()), Map::new(vpcs, Failpoints::default()))
        else {
            return Ok(None);
        };
        Ok(Some(OtherAbi { flows, seeds: constants.seeds(), vpcs: numbers(&vpcs)? }))
    }

    /// Copies what is not there yet and not in `copied`. Returns how many keys were taken, and how many entries have no
    /// place here.
    fn copy(&self, others: &[OtherAbi], flows: &Flows, copied: &mut HashSet<FlowKey>) -> Result<(usize, usize)> {
        let (mut conflicts, mut left) = (0, 0);
        let indices: HashMap<u32, u32> = numbers(&typed(&self.loaded.maps, "jn_vpcs", self.failpoints())?)?
            .into_iter()
            .map(|(index, vpc)| (vpc, index))
            .collect();
        let epoch = self.hot()?.epoch()?;
        for other in others {
            let mut entries = other.flows.dump()?;
            // Answers first: when the opening direction stands, the other one does.
            entries.sort_by_key(|(_, flow)| !flow.has(FLOW_REPLY));
            for (key, flow) in entries {
                if copied.contains(&key) || !flow.is_of(other.seeds, &key) {
                    continue;
                }
                let index = other.vpcs.get(&flow.vpc_index.into()).and_then(|vpc| indices.get(vpc));
                let Some(vpc_index) = index.and_then(|index| u16::try_from(*index).ok()) else {
                    left += 1;
                    continue;
                };
                let mut flow = Flow { vpc_index, epoch: epoch.wrapping_sub(1), ..flow };
                // Odd is never in force: the next packet decides anew.
                flow.value[4] = 1;
                match flows.entries.put(&key, &flow.tagged(flows.seeds, &key, flow.tag_low), Mode::New) {
                    Ok(()) => {
                        copied.insert(key);
                        if !flow.has(FLOW_REPLY) {
                            flows.count(vpc_index.into(), 1, i64::from(flow.has(FLOW_EMBRYONIC)));
                        }
                    }
                    Err(Error::Conflict { .. }) => conflicts += 1,
                    Err(Error::Full { .. }) => left += 1,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok((conflicts, left))
    }
}

/// VPCs by their number.
fn numbers(vpcs: &Map<u32, Vpc>) -> Result<HashMap<u32, u32>> {
    let mut numbers = HashMap::new();
    vpcs.for_each(|index, vpc| {
        if vpc.vpc != 0 {
            numbers.insert(index, vpc.vpc);
        }
    })?;
    Ok(numbers)
}
