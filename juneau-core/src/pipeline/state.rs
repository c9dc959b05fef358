//! What a node remembers besides flows: generations, first fragments, learned path MTUs.

use crate::layout::{Affinity, AffinityKey, FRAGMENT_SECONDS, Fragment, FragmentKey, Pmtu, be32, vtep_generation};
use crate::time::Now;
use core::convert::Infallible;
use core::net::Ipv4Addr;
use std::collections::BTreeMap;

/// Generations: which decisions still hold. A slot's number moves after what it stands for has changed; the epoch moves
/// after any of them. A number that is odd stands for a change that goes on.
pub trait Generations {
    /// What an access may end in; `Infallible` in memory.
    type Error: core::error::Error + Send + Sync + 'static;

    /// The epoch.
    ///
    /// # Errors
    /// When it cannot be read.
    fn epoch(&self) -> Result<u32, Self::Error>;

    /// The number of a slot.
    ///
    /// # Errors
    /// When it cannot be read.
    fn generation(&self, slot: u32) -> Result<u32, Self::Error>;

    /// Moves a slot by 2, then the epoch by 1.
    ///
    /// # Errors
    /// When they cannot be written.
    fn advance(&mut self, slot: u32) -> Result<(), Self::Error>;
}

/// What packets tell, besides flows.
pub trait Learned {
    /// What an access may end in; `Infallible` in memory.
    type Error: core::error::Error + Send + Sync + 'static;

    /// The first fragment in a slot.
    ///
    /// # Errors
    /// When it cannot be read.
    fn fragment(&self, key: &FragmentKey) -> Result<Option<Fragment>, Self::Error>;

    /// Remembers a first fragment; `false` when there is no room.
    ///
    /// # Errors
    /// When it cannot be written.
    fn put_fragment(&mut self, key: &FragmentKey, fragment: &Fragment) -> Result<bool, Self::Error>;

    /// The path MTU that was learned towards a VTEP, expired or not.
    ///
    /// # Errors
    /// When it cannot be read.
    fn pmtu(&self, vtep: Ipv4Addr) -> Result<Option<Pmtu>, Self::Error>;

    /// Remembers a path MTU; `false` when there is no room.
    ///
    /// # Errors
    /// When it cannot be written.
    fn put_pmtu(&mut self, vtep: Ipv4Addr, pmtu: &Pmtu) -> Result<bool, Self::Error>;

    /// The backend that a client was sent to, expired or not.
    ///
    /// # Errors
    /// When it cannot be read.
    fn affinity(&self, key: &AffinityKey) -> Result<Option<Affinity>, Self::Error>;

    /// Remembers a client's backend; `false` when there is no room.
    ///
    /// # Errors
    /// When it cannot be written.
    fn put_affinity(&mut self, key: &AffinityKey, affinity: &Affinity) -> Result<bool, Self::Error>;
}

/// A node's state in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemState {
    epoch: u32,
    generations: BTreeMap<u32, u32>,
    fragments: BTreeMap<FragmentKey, Fragment>,
    fragment_capacity: usize,
    pmtu: BTreeMap<Ipv4Addr, Pmtu>,
    pmtu_capacity: usize,
    affinities: BTreeMap<AffinityKey, Affinity>,
    affinity_capacity: usize,
}

impl MemState {
    /// Nothing remembered, with room for so many first fragments, path MTUs and clients of Services.
    #[must_use]
    pub const fn new(fragment_capacity: usize, pmtu_capacity: usize, affinity_capacity: usize) -> Self {
        Self {
            epoch: 0,
            generations: BTreeMap::new(),
            fragments: BTreeMap::new(),
            fragment_capacity,
            pmtu: BTreeMap::new(),
            pmtu_capacity,
            affinities: BTreeMap::new(),
            affinity_capacity,
        }
    }

    /// Sets a slot's number, as for a change that goes on. The epoch moves by 1.
    pub fn set_generation(&mut self, slot: u32, number: u32) {
        self.generations.insert(slot, number);
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Sets the epoch.
    pub const fn set_epoch(&mut self, epoch: u32) {
        self.epoch = epoch;
    }

    /// Forgets first fragments that no later one may use any more (after twice their time, as the kernel's sweep
    /// does), clients whose time with their backend is over, and path MTUs that ran out; the generations of the VTEPs of
    /// those move.
    pub fn expire(&mut self, now: Now) {
        let limit = now.seconds(2 * FRAGMENT_SECONDS);
        self.fragments.retain(|_, first| now.since(first.stamp) <= limit);
        self.affinities.retain(|_, affinity| now.is_before(affinity.expires));
        let void: Vec<_> = self.pmtu.iter().filter(|(_, p)| !now.is_before(p.expires)).map(|(vtep, _)| *vtep).collect();
        for vtep in void {
            self.pmtu.remove(&vtep);
            // In memory this cannot fail.
            let Ok(()) = self.advance(vtep_generation(be32(vtep)));
        }
    }

    /// Every first fragment.
    #[must_use]
    pub const fn fragments(&self) -> &BTreeMap<FragmentKey, Fragment> {
        &self.fragments
    }

    /// Every client that stays with a backend.
    #[must_use]
    pub const fn affinities(&self) -> &BTreeMap<AffinityKey, Affinity> {
        &self.affinities
    }

    /// Every learned path MTU.
    #[must_use]
    pub const fn pmtus(&self) -> &BTreeMap<Ipv4Addr, Pmtu> {
        &self.pmtu
    }
}

fn put<K: Ord + Copy, V: Copy>(map: &mut BTreeMap<K, V>, capacity: usize, key: &K, value: &V) -> bool {
    if map.len() >= capacity && !map.contains_key(key) {
        return false;
    }
    map.insert(*key, *value);
    true
}

impl Generations for MemState {
    type Error = Infallible;

    fn epoch(&self) -> Result<u32, Infallible> {
        Ok(self.epoch)
    }

    fn generation(&self, slot: u32) -> Result<u32, Infallible> {
        Ok(self.generations.get(&slot).copied().unwrap_or_default())
    }

    fn advance(&mut self, slot: u32) -> Result<(), Infallible> {
        let number = self.generations.entry(slot).or_default();
        *number = number.wrapping_add(2);
        self.epoch = self.epoch.wrapping_add(1);
        Ok(())
    }
}

impl Learned for MemState {
    type Error = Infallible;

    fn fragment(&self, key: &FragmentKey) -> Result<Option<Fragment>, Infallible> {
        Ok(self.fragments.get(key).copied())
    }

    fn put_fragment(&mut self, key: &FragmentKey, fragment: &Fragment) -> Result<bool, Infallible> {
        Ok(put(&mut self.fragments, self.fragment_capacity, key, fragment))
    }

    fn pmtu(&self, vtep: Ipv4Addr) -> Result<Option<Pmtu>, Infallible> {
        Ok(self.pmtu.get(&vtep).copied())
    }

    fn put_pmtu(&mut self, vtep: Ipv4Addr, pmtu: &Pmtu) -> Result<bool, Infallible> {
        Ok(put(&mut self.pmtu, self.pmtu_capacity, &vtep, pmtu))
    }

    fn affinity(&self, key: &AffinityKey) -> Result<Option<Affinity>, Infallible> {
        Ok(self.affinities.get(key).copied())
    }

    fn put_affinity(&mut self, key: &AffinityKey, affinity: &Affinity) -> Result<bool, Infallible> {
        Ok(put(&mut self.affinities, self.affinity_capacity, key, affinity))
    }
}

/// State whose writes lead nowhere: what a packet would do, without doing it.
#[derive(Debug, Clone, Copy)]
pub struct DryState<'a, S>(
    /// What is read.
    pub &'a S,
);

impl<S: Generations> Generations for DryState<'_, S> {
    type Error = S::Error;

    fn epoch(&self) -> Result<u32, S::Error> {
        self.0.epoch()
    }

    fn generation(&self, slot: u32) -> Result<u32, S::Error> {
        self.0.generation(slot)
    }

    fn advance(&mut self, _slot: u32) -> Result<(), S::Error> {
        Ok(())
    }
}

impl<S: Learned> Learned for DryState<'_, S> {
    type Error = S::Error;

    fn fragment(&self, key: &FragmentKey) -> Result<Option<Fragment>, S::Error> {
        self.0.fragment(key)
    }

    fn put_fragment(&mut self, _key: &FragmentKey, _fragment: &Fragment) -> Result<bool, S::Error> {
        Ok(true)
    }

    fn pmtu(&self, vtep: Ipv4Addr) -> Result<Option<Pmtu>, S::Error> {
        self.0.pmtu(vtep)
    }

    fn put_pmtu(&mut self, _vtep: Ipv4Addr, _pmtu: &Pmtu) -> Result<bool, S::Error> {
        Ok(true)
    }

    fn affinity(&self, key: &AffinityKey) -> Result<Option<Affinity>, S::Error> {
        self.0.affinity(key)
    }

    fn put_affinity(&mut self, _key: &AffinityKey, _affinity: &Affinity) -> Result<bool, S::Error> {
        Ok(true)
    }
}
