//! Maps with typed keys and values, and the batch commands done right.
//!
//! libbpf-rs takes a short batch for the last one, which loses elements of hash maps; the loops here end on `ENOENT`
//! alone, grow on `ENOSPC` (one bucket larger than the buffer) and carry the kernel's token as it is.

use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::{Error, Result};
use crate::failpoint::{Failpoints, Operation};
use crate::sys::map::RawMap;

/// What lies in a map: plain bytes without padding, as the kernel holds them.
pub trait Element: FromBytes + IntoBytes + Immutable + Clone {}
impl<T: FromBytes + IntoBytes + Immutable + Clone> Element for T {}

/// Whether an update may create, replace, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Creates or replaces (`BPF_ANY`).
    #[default]
    Any,
    /// Only creates (`BPF_NOEXIST`).
    New,
    /// Only replaces (`BPF_EXIST`).
    Existing,
}

impl Mode {
    const fn flags(self) -> u64 {
        match self {
            Self::Any => 0,
            Self::New => 1,
            Self::Existing => 2,
        }
    }
}

/// Elements that one batch command reads, unless a bucket is larger.
const BATCH: usize = 4096;

/// A map with keys of type `K` and values of type `V`. Clones are the same map.
pub struct Map<K, V> {
    raw: Arc<RawMap>,
    failpoints: Failpoints,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K, V> Clone for Map<K, V> {
    fn clone(&self) -> Self {
        Self { raw: Arc::clone(&self.raw), failpoints: self.failpoints.clone(), types: PhantomData }
    }
}

impl<K, V> std::fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Map").field("info", self.raw.info()).finish_non_exhaustive()
    }
}

impl<K: Element, V: Element> Map<K, V> {
    /// Fails when the kernel's sizes are not those of the types.
    pub(crate) fn new(raw: Arc<RawMap>, failpoints: Failpoints) -> Result<Self> {
        let info = raw.info();
        if info.key_size as usize != size_of::<K>() || raw.value_length() != size_of::<V>() {
            return Err(Error::WrongLayout {
                map: info.name.clone(),
                key_size: info.key_size,
                value_size: info.value_size,
                key_type: size_of::<K>(),
                value_type: size_of::<V>(),
            });
        }
        Ok(Self { raw, failpoints, types: PhantomData })
    }

    /// The map's name in the kernel.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.raw.info().name
    }

    /// The map's id in the kernel.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.raw.info().id
    }

    /// Elements that fit.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.raw.info().max_entries
    }

    /// The value at `key`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        let mut value = V::new_zeroed();
        let found = self.raw.lookup(key.as_bytes(), value.as_mut_bytes()).map_err(self.error(Operation::MapRead))?;
        Ok(found.then_some(value))
    }

    /// Writes one element.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Conflict`] for [`Mode::New`], [`Error::NotFound`] for [`Mode::Existing`], the kernel's.
    pub fn put(&self, key: &K, value: &V, mode: Mode) -> Result<()> {
        self.before(Operation::MapUpdate)?;
        self.raw.update(key.as_bytes(), value.as_bytes(), mode.flags()).map_err(self.error(Operation::MapUpdate))
    }

    /// Removes one element; false: there was none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(&self, key: &K) -> Result<bool> {
        self.before(Operation::MapDelete)?;
        self.raw.delete(key.as_bytes()).map_err(self.error(Operation::MapDelete))
    }

    /// Every element, in no order. Elements that come or go meanwhile may be missing or present; no other is.
    ///
    /// # Errors
    /// The kernel's.
    pub fn dump(&self) -> Result<Vec<(K, V)>> {
        let mut elements = Vec::new();
        self.for_each(|key, value| elements.push((key, value)))?;
        Ok(elements)
    }

    /// Calls `visit` with every element, without holding them all. See [`Self::dump`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn for_each(&self, visit: impl FnMut(K, V)) -> Result<()> {
        self.for_each_in(BATCH, visit)
    }

    fn for_each_in(&self, batch: usize, mut visit: impl FnMut(K, V)) -> Result<()> {
        for_each_raw(&self.raw, batch, |key, value| {
            // Both have their type's size: `new` saw to it.
            if let (Ok(key), Ok(value)) = (K::read_from_bytes(key), V::read_from_bytes(value)) {
                visit(key, value);
            }
        })
        .map_err(self.error(Operation::MapRead))
    }

    /// Writes elements by few commands. On an error some may be written.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_all(&self, elements: &[(K, V)]) -> Result<()> {
        for chunk in elements.chunks(BATCH) {
            let keys: Vec<u8> = chunk.iter().flat_map(|(key, _)| key.as_bytes()).copied().collect();
            let values: Vec<u8> = chunk.iter().flat_map(|(_, value)| value.as_bytes()).copied().collect();
            self.before(Operation::MapUpdateBatch)?;
            let done = self.raw.update_batch(&keys, &values).map_err(self.error(Operation::MapUpdateBatch))?;
            if let Some(errno) = done.error {
                let error = io::Error::from_raw_os_error(errno);
                return Err(self.error(Operation::MapUpdateBatch)(error));
            }
        }
        Ok(())
    }

    /// Removes elements by few commands and returns how many there were; keys without one are passed over.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_all(&self, keys: &[K]) -> Result<usize> {
        let mut removed = 0;
        for chunk in keys.chunks(BATCH) {
            let bytes: Vec<u8> = chunk.iter().flat_map(IntoBytes::as_bytes).copied().collect();
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                self.before(Operation::MapDeleteBatch)?;
                let done = self.raw.delete_batch(rest).map_err(self.error(Operation::MapDeleteBatch))?;
                removed += done.count;
                let skip = match done.error {
                    // The command ends at a key that is gone: that one counts as seen.
                    Some(libc::ENOENT) => done.count + 1,
                    None => rest.len() / size_of::<K>(),
                    Some(errno) => {
                        let error = io::Error::from_raw_os_error(errno);
                        return Err(self.error(Operation::MapDeleteBatch)(error));
                    }
                };
                rest = rest.get(skip * size_of::<K>()..).unwrap_or_default();
            }
        }
        Ok(removed)
    }

    /// Number of elements, by counting them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn count(&self) -> Result<usize> {
        let mut count = 0;
        self.for_each(|_, _| count += 1)?;
        Ok(count)
    }

    fn before(&self, operation: Operation) -> Result<()> {
        self.failpoints.before(operation, self.name()).map_err(self.error(operation))
    }

    fn error(&self, operation: Operation) -> impl FnOnce(io::Error) -> Error + use<K, V> {
        let map = self.name().to_owned();
        let limit = self.capacity();
        move |source| match (operation, source.raw_os_error()) {
            (Operation::MapUpdate | Operation::MapUpdateBatch, Some(libc::E2BIG | libc::ENOSPC | libc::ENOMEM)) => {
                Error::Full { map, limit }
            }
            (Operation::MapUpdate, Some(libc::EEXIST)) => Error::Conflict { map },
            (Operation::MapUpdate, Some(libc::ENOENT)) => Error::NotFound { map },
            _ => Error::Kernel { operation, object: map, source },
        }
    }
}

/// Calls `visit` with the bytes of every element. See [`Map::dump`].
pub(crate) fn for_each_raw(map: &RawMap, batch: usize, mut visit: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
    let (key_length, value_length) = (map.info().key_size as usize, map.value_length());
    let mut size = batch.min(map.info().max_entries as usize).max(1);
    let mut keys = vec![0_u8; size * key_length];
    let mut values = vec![0_u8; size * value_length];
    let mut token: Option<Vec<u8>> = None;
    let mut next = vec![0_u8; map.token_length()];
    loop {
        let done = map.lookup_batch(token.as_deref(), &mut next, &mut keys, &mut values)?;
        let pairs = keys.chunks_exact(key_length).zip(values.chunks_exact(value_length));
        pairs.take(done.count).for_each(|(key, value)| visit(key, value));
        match done.error {
            Some(libc::ENOENT) => return Ok(()),
            Some(libc::ENOSPC) => {
                size *= 2;
                keys.resize(size * key_length, 0);
                values.resize(size * value_length, 0);
                continue;
            }
            // Keys went away while the kernel looked for the one after them: it may not have moved on at all.
            Some(libc::EINTR) if done.count == 0 => continue,
            Some(libc::EINTR) | None => {}
            Some(errno) => return Err(io::Error::from_raw_os_error(errno)),
        }
        match &mut token {
            Some(token) => token.copy_from_slice(&next),
            none => *none = Some(next.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::privileged;

    fn map(kind: u32, limit: u32) -> Map<[u8; 16], u64> {
        let raw = RawMap::create(kind, "jn_test", 16, 8, limit, 0).unwrap();
        Map::new(Arc::new(raw), Failpoints::default()).unwrap()
    }

    fn key(n: u32) -> [u8; 16] {
        let mut key = [0; 16];
        key[..4].copy_from_slice(&n.to_be_bytes());
        key
    }

    #[test]
    fn a_hash_of_100_000_dumps_completely_whatever_the_batch() {
        if !privileged() {
            return;
        }
        let map = map(libbpf_sys::BPF_MAP_TYPE_HASH, 100_000);
        let all: Vec<_> = (0..100_000).map(|n| (key(n), u64::from(n))).collect();
        map.put_all(&all).unwrap();
        // One element at a time meets buckets that are larger than the buffer.
        for batch in [1, 64, BATCH] {
            let mut seen = vec![0_u8; 100_000];
            map.for_each_in(batch, |k, v| {
                assert_eq!(k, key(u32::try_from(v).unwrap()));
                seen[usize::try_from(v).unwrap()] += 1;
            })
            .unwrap();
            assert!(seen.iter().all(|n| *n == 1), "batch {batch}");
        }
    }

    #[test]
    fn an_empty_map_dumps_nothing() {
        if !privileged() {
            return;
        }
        assert_eq!(map(libbpf_sys::BPF_MAP_TYPE_HASH, 8).dump().unwrap(), []);
    }

    #[test]
    fn arrays_and_tries_dump_completely() {
        if !privileged() {
            return;
        }
        let raw = RawMap::create(libbpf_sys::BPF_MAP_TYPE_ARRAY, "jn_test", 4, 8, 10_000, 0).unwrap();
        let array = Map::<u32, u64>::new(Arc::new(raw), Failpoints::default()).unwrap();
        array.put(&9_999, &7, Mode::Any).unwrap();
        let all = array.dump().unwrap();
        assert_eq!(all.len(), 10_000);
        assert_eq!(all.iter().map(|(_, v)| v).sum::<u64>(), 7);

        let raw = RawMap::create(libbpf_sys::BPF_MAP_TYPE_LPM_TRIE, "jn_test", 12, 8, 10_000, 1).unwrap();
        let trie = Map::<[u32; 3], u64>::new(Arc::new(raw), Failpoints::default()).unwrap();
        for n in 0..9_999_u32 {
            trie.put(&[64, n.to_be(), 0], &1, Mode::Any).unwrap();
        }
        assert_eq!(trie.count().unwrap(), 9_999);
        trie.put(&[64, 9_999_u32.to_be(), 0], &1, Mode::Any).unwrap();
        let error = trie.put(&[64, 10_000_u32.to_be(), 0], &1, Mode::Any).unwrap_err();
        assert!(matches!(error, Error::Full { ref map, limit: 10_000 } if map == "jn_test"), "{error}");
    }

    #[test]
    fn modes_and_limits_have_errors_of_their_own() {
        if !privileged() {
            return;
        }
        let map = map(libbpf_sys::BPF_MAP_TYPE_HASH, 2);
        assert!(matches!(map.put(&key(1), &1, Mode::Existing), Err(Error::NotFound { .. })));
        map.put(&key(1), &1, Mode::New).unwrap();
        assert!(matches!(map.put(&key(1), &2, Mode::New), Err(Error::Conflict { .. })));
        map.put(&key(1), &3, Mode::Existing).unwrap();
        assert_eq!(map.get(&key(1)).unwrap(), Some(3));
        map.put(&key(2), &1, Mode::Any).unwrap();
        assert!(matches!(map.put(&key(3), &1, Mode::Any), Err(Error::Full { limit: 2, .. })));
        assert!(matches!(map.put_all(&[(key(3), 1)]), Err(Error::Full { limit: 2, .. })));
        assert!(map.remove(&key(1)).unwrap());
        assert!(!map.remove(&key(1)).unwrap());
        assert_eq!(map.get(&key(1)).unwrap(), None);
    }

    #[test]
    fn batch_removal_passes_over_what_is_gone() {
        if !privileged() {
            return;
        }
        let map = map(libbpf_sys::BPF_MAP_TYPE_HASH, 10_000);
        let all: Vec<_> = (0..10_000).map(|n| (key(n), 0)).collect();
        map.put_all(&all).unwrap();
        for n in [0, 1, 5_000, 9_999] {
            map.remove(&key(n)).unwrap();
        }
        let keys: Vec<_> = all.iter().map(|(k, _)| *k).collect();
        assert_eq!(map.remove_all(&keys).unwrap(), 9_996);
        assert_eq!(map.count().unwrap(), 0);
    }

    #[test]
    fn a_wrong_type_is_refused() {
        if !privileged() {
            return;
        }
        let raw = RawMap::create(libbpf_sys::BPF_MAP_TYPE_HASH, "jn_test", 8, 8, 1, 0).unwrap();
        let error = Map::<u32, u64>::new(Arc::new(raw), Failpoints::default()).unwrap_err();
        assert!(matches!(error, Error::WrongLayout { key_size: 8, key_type: 4, .. }), "{error}");
    }

    #[test]
    fn a_failpoint_refuses_the_write() {
        if !privileged() {
            return;
        }
        let raw = RawMap::create(libbpf_sys::BPF_MAP_TYPE_HASH, "jn_test", 4, 8, 8, 0).unwrap();
        let failpoints =
            Failpoints::new(
                |write: &crate::failpoint::Write<'_>| {
                    if write.number == 2 { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
                },
            );
        let map = Map::<u32, u64>::new(Arc::new(raw), failpoints).unwrap();
        map.put(&1, &1, Mode::Any).unwrap();
        assert_eq!(map.put(&2, &1, Mode::Any).unwrap_err().errno(), Some(libc::EIO));
        assert_eq!(map.get(&2).unwrap(), None);
    }
}
