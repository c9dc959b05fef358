//! Counters: what every packet ended in, summed over CPUs.

use std::path::Path;
use std::sync::Arc;

use juneau_core::layout::{self, FROM_OVERLAY, FROM_POD, REASON_MAX, Traffic};
use juneau_core::verdict::{Hook, Reason};

use crate::bpffs::{PinRoot, escape};
use crate::error::{Error, Result};
use crate::failpoint::Operation;
use crate::object::Maps;
use crate::sys::map::RawMap;

/// How many packets left a hook for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct ExitCount {
    /// Where.
    pub hook: Hook,
    /// Why.
    pub reason: Reason,
    /// Whether an answer left in the packet's stead.
    pub answered: bool,
    /// Packets since the maps were created.
    pub packets: u64,
}

/// What was delivered for one VPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TrafficCount {
    /// The VPC's number on this node.
    pub vpc_index: u16,
    /// What its Pods of this node sent.
    pub from_pod: Traffic,
    /// What arrived for them from other nodes.
    pub from_overlay: Traffic,
}

/// The counters of a node. Clones are the same counters.
#[derive(Debug, Clone)]
pub struct Counters {
    exits: Arc<RawMap>,
    traffic: Arc<RawMap>,
    devices: Arc<RawMap>,
    lost: Arc<RawMap>,
}

const EXITS: &str = "jn_counters";
const TRAFFIC: &str = "jn_traffic";
const DEVICES: &str = "jn_devices";
const LOST: &str = "jn_event_lost";

impl Counters {
    /// The counters that are pinned below a pin root, of this version's ABI.
    ///
    /// # Errors
    /// [`Error::ObjectLacks`] when a map is not pinned there, the kernel's.
    pub fn open(pin_root: &Path) -> Result<Self> {
        let root = PinRoot::open(pin_root)?;
        let directory = root.abi(layout::ABI);
        let mut maps = Maps::new();
        for name in [EXITS, TRAFFIC, DEVICES, LOST] {
            if let Some(fd) = root.get(&directory.join(escape(name)))? {
                let raw = RawMap::from_fd(fd).map_err(Error::kernel(Operation::MapOpen, name))?;
                maps.insert(name.to_owned(), Arc::new(raw));
            }
        }
        Self::of(&maps)
    }

    pub(crate) fn of(maps: &Maps) -> Result<Self> {
        let map = |name: &str, value: usize| {
            let raw = maps.get(name).ok_or_else(|| Error::ObjectLacks { what: "map", name: name.to_owned() })?;
            let info = raw.info();
            if info.value_size as usize == value {
                return Ok(Arc::clone(raw));
            }
            Err(Error::WrongLayout {
                map: name.to_owned(),
                key_size: info.key_size,
                value_size: info.value_size,
                key_type: 4,
                value_type: value,
            })
        };
        Ok(Self {
            exits: map(EXITS, 8)?,
            traffic: map(TRAFFIC, size_of::<Traffic>())?,
            devices: map(DEVICES, 8)?,
            lost: map(LOST, 8)?,
        })
    }

    /// Every exit that was ever taken. Delivered packets are not among them: see [`Counters::traffic`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn exits(&self) -> Result<Vec<ExitCount>> {
        let mut exits = Vec::new();
        for (index, [packets]) in sums::<1>(&self.exits, EXITS)? {
            let (cell, answered) = (index / 2, index % 2 == 1);
            let hook = Hook::from_number(cell / REASON_MAX);
            let reason = Reason::from_number(cell % REASON_MAX);
            if let (Some(hook), Some(reason)) = (hook, reason) {
                exits.push(ExitCount { hook, reason, answered, packets });
            }
        }
        Ok(exits)
    }

    /// What was delivered, by VPC index. Indices without a packet are left out.
    ///
    /// # Errors
    /// The kernel's.
    pub fn traffic(&self) -> Result<Vec<TrafficCount>> {
        let mut counts: Vec<TrafficCount> = Vec::new();
        for (index, [packets, bytes]) in sums::<2>(&self.traffic, TRAFFIC)? {
            let Ok(vpc_index) = u16::try_from(index / 2) else { continue };
            if counts.last().is_none_or(|last| last.vpc_index != vpc_index) {
                let none = Traffic::default();
                counts.push(TrafficCount { vpc_index, from_pod: none, from_overlay: none });
            }
            if let Some(count) = counts.last_mut() {
                match index % 2 {
                    FROM_POD => count.from_pod = Traffic { packets, bytes },
                    FROM_OVERLAY => count.from_overlay = Traffic { packets, bytes },
                    _ => {}
                }
            }
        }
        Ok(counts)
    }

    /// Packets that went by the VXLAN device, by cause (`enum jn_device_cause`).
    ///
    /// # Errors
    /// The kernel's.
    pub fn devices(&self) -> Result<Vec<(u32, u64)>> {
        Ok(sums::<1>(&self.devices, DEVICES)?.into_iter().map(|(cause, [packets])| (cause, packets)).collect())
    }

    /// Events that found the ring full.
    ///
    /// # Errors
    /// The kernel's.
    pub fn events_lost(&self) -> Result<u64> {
        Ok(sums::<1>(&self.lost, LOST)?.first().map_or(0, |(_, [lost])| *lost))
    }
}

/// Elements of a per-CPU array of `N` 64-bit words that are not zero everywhere, each summed over CPUs, ascending.
fn sums<const N: usize>(map: &RawMap, name: &str) -> Result<Vec<(u32, [u64; N])>> {
    let mut found = Vec::new();
    crate::map::for_each_raw(map, 256, |key, value| {
        let Some(key) = key.first_chunk::<4>() else { return };
        let mut sum = [0_u64; N];
        for cpu in value.chunks_exact(8 * N) {
            for (total, word) in sum.iter_mut().zip(cpu.as_chunks::<8>().0) {
                *total = total.wrapping_add(u64::from_ne_bytes(*word));
            }
        }
        if sum.iter().any(|total| *total != 0) {
            found.push((u32::from_ne_bytes(*key), sum));
        }
    })
    .map_err(Error::kernel(Operation::MapRead, name))?;
    found.sort_unstable_by_key(|(key, _)| *key);
    Ok(found)
}
