//! Generations and the hot line: words that this process and the programs change at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use juneau_core::layout::{GEN_MAX, Hot};

use crate::error::{Error, Result};
use crate::failpoint::{Failpoints, Operation};
use crate::object::{HOT, Maps};
use crate::sys::map::RawMap;
use crate::sys::mmap::MappedArray;

/// The generations of everything that a cached decision rests on, and the epoch that tells that one of them moved.
///
/// An even generation is in force; at an odd one nothing is cached. Clones share the words.
#[derive(Debug, Clone)]
pub struct Generations {
    generations: Arc<MappedArray>,
    hot: HotLine,
    failpoints: Failpoints,
}

impl Generations {
    pub(crate) fn of(maps: &Maps, failpoints: &Failpoints) -> Result<Self> {
        let generations = Arc::new(mapped(maps, "jn_generations")?);
        Ok(Self { generations, hot: HotLine::of(maps)?, failpoints: failpoints.clone() })
    }

    /// The generation in a slot.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn get(&self, slot: u32) -> Result<u32> {
        Ok(self.word(slot)?.load(Ordering::SeqCst))
    }

    /// Makes generations odd: until [`Generations::advance`], decisions that rest on them are made anew for every
    /// packet. For changes whose mixture would be unsafe.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn suspend(&self, slots: impl IntoIterator<Item = u32>) -> Result<()> {
        self.change(slots, |word| {
            word.fetch_or(1, Ordering::SeqCst);
        })
    }

    /// Moves generations to the next even number, and then the epoch: what was decided before is decided again.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn advance(&self, slots: impl IntoIterator<Item = u32>) -> Result<()> {
        self.change(slots, |word| {
            // A program may move a VTEP's at the same time.
            let mut present = word.load(Ordering::SeqCst);
            while let Err(other) =
                word.compare_exchange(present, (present | 1).wrapping_add(1), Ordering::SeqCst, Ordering::SeqCst)
            {
                present = other;
            }
        })
    }

    /// Moves every generation. After the first full synchronisation of a start, this repairs what a crash between a
    /// write and its generation left.
    ///
    /// # Errors
    /// A failpoint's.
    pub fn advance_all(&self) -> Result<()> {
        self.advance(0..GEN_MAX)
    }

    fn change(&self, slots: impl IntoIterator<Item = u32>, change: impl Fn(&AtomicU32)) -> Result<()> {
        let before = |object: &'static str| {
            self.failpoints.before(Operation::MapWord, object).map_err(Error::kernel(Operation::MapWord, object))
        };
        before("jn_generations")?;
        let mut changed = false;
        for slot in slots {
            change(self.word(slot)?);
            changed = true;
        }
        if changed {
            before("the epoch")?;
            self.hot.epoch_word()?.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    fn word(&self, slot: u32) -> Result<&AtomicU32> {
        // An array's elements begin at multiples of 8.
        self.generations.word(slot as usize * 8).ok_or(Error::OutOfRange {
            what: "generation slot",
            value: slot.into(),
            limit: GEN_MAX.into(),
        })
    }
}

/// The words that every packet reads. Clones share them.
#[derive(Debug, Clone)]
pub struct HotLine(Arc<MappedArray>);

impl HotLine {
    pub(crate) fn of(maps: &Maps) -> Result<Self> {
        Ok(Self(Arc::new(mapped(maps, HOT)?)))
    }

    /// The epoch: moves after any generation moved.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] when the section is another.
    pub fn epoch(&self) -> Result<u32> {
        Ok(self.epoch_word()?.load(Ordering::SeqCst))
    }

    /// Which kinds of events are wanted: bits `1 << EVENT_*`.
    ///
    /// # Errors
    /// As [`HotLine::epoch`].
    pub fn set_events(&self, kinds: u32) -> Result<()> {
        self.set(std::mem::offset_of!(Hot, events), kinds)
    }

    /// Drops become events when a random number has none of these bits: 0 is all of them, 0x3ff one of 1024.
    ///
    /// # Errors
    /// As [`HotLine::epoch`].
    pub fn set_sample(&self, mask: u32) -> Result<()> {
        self.set(std::mem::offset_of!(Hot, sample), mask)
    }

    /// The stamp of programs that were loaded with [`crate::Options::test_clock`].
    ///
    /// # Errors
    /// As [`HotLine::epoch`].
    pub fn set_clock(&self, stamp: u32) -> Result<()> {
        self.set(std::mem::offset_of!(Hot, clock), stamp)
    }

    fn epoch_word(&self) -> Result<&AtomicU32> {
        self.word(std::mem::offset_of!(Hot, epoch))
    }

    fn set(&self, offset: usize, value: u32) -> Result<()> {
        self.word(offset)?.store(value, Ordering::SeqCst);
        Ok(())
    }

    fn word(&self, offset: usize) -> Result<&AtomicU32> {
        self.0.word(offset).ok_or(Error::OutOfRange {
            what: "offset in the hot line",
            value: offset as u64,
            limit: size_of::<Hot>() as u64,
        })
    }
}

pub(crate) fn mapped(maps: &Maps, name: &str) -> Result<MappedArray> {
    let map: &Arc<RawMap> = maps.get(name).ok_or_else(|| Error::ObjectLacks { what: "map", name: name.to_owned() })?;
    MappedArray::new(map).map_err(Error::kernel(Operation::MapMmap, name))
}
