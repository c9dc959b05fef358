//! A sorted map whose copies share what they have in common.
//!
//! A copy costs a pointer for each 64 elements or so, a change of a copy one leaf, and a comparison of two copies
//! skips every leaf that both have: a small change of a large table costs little, from the model to the difference.

use core::borrow::Borrow;
use core::fmt;
use core::ops::Index;
use std::sync::Arc;

/// Most elements of a leaf.
const LEAF: usize = 64;

/// A sorted map with cheap copies.
#[derive(Clone)]
pub struct SharedMap<K, V> {
    /// Sorted, none empty.
    leaves: Vec<Leaf<K, V>>,
    len: usize,
}

/// Sorted elements, and the first key apart, so that a search touches one leaf.
#[derive(Clone)]
struct Leaf<K, V> {
    first: K,
    elements: Arc<Vec<(K, V)>>,
}

/// Where a key is, or where it belongs.
enum Place {
    Found { leaf: usize, index: usize },
    Missing { leaf: usize, index: usize },
}

impl<K, V> SharedMap<K, V> {
    /// An empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self { leaves: Vec::new(), len: 0 }
    }

    /// Number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes every element.
    pub fn clear(&mut self) {
        self.leaves.clear();
        self.len = 0;
    }

    /// Elements in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.leaves.iter().flat_map(|leaf| leaf.elements.iter()).map(|(key, value)| (key, value))
    }

    /// Keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// Values in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

impl<K: Ord + Copy, V: Copy> SharedMap<K, V> {
    fn place<Q: Ord + ?Sized>(&self, key: &Q) -> Place
    where
        K: Borrow<Q>,
    {
        // The last leaf whose first key is not above the key; the first leaf for a key below all.
        let leaf = self.leaves.partition_point(|leaf| leaf.first.borrow() <= key).saturating_sub(1);
        let Some(found) = self.leaves.get(leaf) else { return Place::Missing { leaf, index: 0 } };
        match found.elements.binary_search_by(|(other, _)| other.borrow().cmp(key)) {
            Ok(index) => Place::Found { leaf, index },
            Err(index) => Place::Missing { leaf, index },
        }
    }

    /// The value of a key.
    #[must_use]
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let Place::Found { leaf, index } = self.place(key) else { return None };
        self.leaves.get(leaf)?.elements.get(index).map(|(_, value)| value)
    }

    /// The value of a key, to be changed.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let Place::Found { leaf, index } = self.place(key) else { return None };
        let elements = Arc::make_mut(&mut self.leaves.get_mut(leaf)?.elements);
        elements.get_mut(index).map(|(_, value)| value)
    }

    /// Whether there is an element with the key.
    #[must_use]
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Sets the value of a key; the value that it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.place(&key) {
            Place::Found { leaf, index } => {
                let element = Arc::make_mut(&mut self.leaves.get_mut(leaf)?.elements).get_mut(index)?;
                Some(core::mem::replace(&mut element.1, value))
            }
            Place::Missing { leaf, index } => {
                self.len += 1;
                let Some(found) = self.leaves.get_mut(leaf) else {
                    self.leaves.push(Leaf::new(vec![(key, value)], key));
                    return None;
                };
                if index == LEAF {
                    // Behind a full last leaf: whoever fills a map in order leaves full leaves behind.
                    self.leaves.insert(leaf + 1, Leaf::new(vec![(key, value)], key));
                    return None;
                }
                let elements = Arc::make_mut(&mut found.elements);
                elements.insert(index, (key, value));
                if index == 0 {
                    found.first = key;
                }
                if elements.len() > LEAF {
                    let upper = elements.split_off(LEAF / 2);
                    if let Some((first, _)) = upper.first() {
                        let first = *first;
                        self.leaves.insert(leaf + 1, Leaf::new(upper, first));
                    }
                }
                None
            }
        }
    }

    /// Removes a key; the value that it had.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let Place::Found { leaf, index } = self.place(key) else { return None };
        let found = self.leaves.get_mut(leaf)?;
        let elements = Arc::make_mut(&mut found.elements);
        let (_, value) = elements.remove(index);
        self.len -= 1;
        match elements.first() {
            Some((first, _)) => found.first = *first,
            None => {
                self.leaves.remove(leaf);
            }
        }
        Some(value)
    }

    /// Values, to be changed. Nothing is shared with other copies afterwards.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        let leaves = self.leaves.iter_mut();
        leaves.flat_map(|leaf| Arc::make_mut(&mut leaf.elements)).map(|(_, value)| value)
    }

    /// Every key whose value differs between two maps, with both values, in order. Leaves that both maps share are
    /// skipped.
    pub fn differences<'a>(&'a self, other: &'a Self) -> Differences<'a, K, V> {
        Differences { left: Cursor::new(&self.leaves), right: Cursor::new(&other.leaves) }
    }
}

impl<K, V> Leaf<K, V> {
    fn new(elements: Vec<(K, V)>, first: K) -> Self {
        Self { first, elements: Arc::new(elements) }
    }
}

/// The walk of [`SharedMap::differences`].
pub struct Differences<'a, K, V> {
    left: Cursor<'a, K, V>,
    right: Cursor<'a, K, V>,
}

/// An element of a map, as a walk comes by it.
struct Cursor<'a, K, V> {
    leaves: &'a [Leaf<K, V>],
    index: usize,
}

impl<'a, K, V> Cursor<'a, K, V> {
    const fn new(leaves: &'a [Leaf<K, V>]) -> Self {
        Self { leaves, index: 0 }
    }

    fn peek(&self) -> Option<&'a (K, V)> {
        self.leaves.first()?.elements.get(self.index)
    }

    fn advance(&mut self) {
        self.index += 1;
        if self.leaves.first().is_some_and(|leaf| self.index >= leaf.elements.len()) {
            self.skip();
        }
    }

    /// Goes behind the leaf.
    fn skip(&mut self) {
        self.leaves = self.leaves.get(1..).unwrap_or_default();
        self.index = 0;
    }
}

impl<'a, K: Ord, V: PartialEq> Iterator for Differences<'a, K, V> {
    type Item = (&'a K, Option<&'a V>, Option<&'a V>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let (Some(left), Some(right)) = (self.left.leaves.first(), self.right.leaves.first())
                && (self.left.index, self.right.index) == (0, 0)
                && Arc::ptr_eq(&left.elements, &right.elements)
            {
                self.left.skip();
                self.right.skip();
                continue;
            }
            let order = match (self.left.peek(), self.right.peek()) {
                (Some((left, _)), Some((right, _))) => left.cmp(right),
                (Some(_), None) => core::cmp::Ordering::Less,
                (None, Some(_)) => core::cmp::Ordering::Greater,
                (None, None) => return None,
            };
            let left = self.left.peek().filter(|_| order.is_le());
            let right = self.right.peek().filter(|_| order.is_ge());
            if left.is_some() {
                self.left.advance();
            }
            if right.is_some() {
                self.right.advance();
            }
            let (left_value, right_value) = (left.map(|(_, value)| value), right.map(|(_, value)| value));
            if left_value != right_value
                && let Some((key, _)) = left.or(right)
            {
                return Some((key, left_value, right_value));
            }
        }
    }
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Copy, V: Copy + PartialEq> PartialEq for SharedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.differences(other).next().is_none()
    }
}

impl<K: Ord + Copy, V: Copy + Eq> Eq for SharedMap<K, V> {}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Ord + Copy, V: Copy> FromIterator<(K, V)> for SharedMap<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(elements: T) -> Self {
        let mut map = Self::new();
        map.extend(elements);
        map
    }
}

/// Elements in the order of their keys.
impl<K: Copy + 'static, V: Copy + 'static> IntoIterator for SharedMap<K, V> {
    type Item = (K, V);
    type IntoIter = Box<dyn Iterator<Item = (K, V)>>;

    fn into_iter(self) -> Self::IntoIter {
        let leaves = self.leaves.into_iter();
        Box::new(leaves.flat_map(|leaf| Arc::unwrap_or_clone(leaf.elements)))
    }
}

impl<'a, K, V> IntoIterator for &'a SharedMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Box<dyn Iterator<Item = Self::Item> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

impl<K: Ord + Copy, V: Copy> Extend<(K, V)> for SharedMap<K, V> {
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, elements: T) {
        for (key, value) in elements {
            self.insert(key, value);
        }
    }
}

impl<K: Ord + Copy, V: Copy, const N: usize> From<[(K, V); N]> for SharedMap<K, V> {
    fn from(elements: [(K, V); N]) -> Self {
        elements.into_iter().collect()
    }
}

/// # Panics
/// Without an element of the key.
impl<K: Ord + Copy, V: Copy> Index<&K> for SharedMap<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        match self.get(key) {
            Some(value) => value,
            #[expect(clippy::panic, reason = "as every map's")]
            None => panic!("no element has the key"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Model = BTreeMap<u16, u8>;

    fn changes() -> impl Strategy<Value = Vec<(u16, Option<u8>)>> {
        prop::collection::vec((0u16..600, prop::option::weighted(0.6, 0u8..4)), 0..1200)
    }

    fn apply(changes: &[(u16, Option<u8>)], map: &mut SharedMap<u16, u8>, model: &mut Model) {
        for (key, value) in changes {
            let (had, expected) = match value {
                Some(value) => (map.insert(*key, *value), model.insert(*key, *value)),
                None => (map.remove(key), model.remove(key)),
            };
            assert_eq!(had, expected);
        }
    }

    fn check(map: &SharedMap<u16, u8>, model: &Model) {
        assert_eq!(map.len(), model.len());
        assert!(map.iter().eq(model.iter()));
        for key in 0..600 {
            assert_eq!(map.get(&key), model.get(&key), "{key}");
        }
        for leaf in &map.leaves {
            assert!(!leaf.elements.is_empty() && leaf.elements.len() <= LEAF);
            assert_eq!(leaf.first, leaf.elements[0].0);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn it_is_a_map_and_copies_are_apart(first in changes(), second in changes()) {
            let (mut map, mut model) = (SharedMap::new(), Model::new());
            apply(&first, &mut map, &mut model);
            check(&map, &model);
            let (copy, before) = (map.clone(), model.clone());
            apply(&second, &mut map, &mut model);
            check(&map, &model);
            check(&copy, &before);

            let found: Vec<_> = copy.differences(&map).map(|(key, old, new)| (*key, old.copied(), new.copied())).collect();
            let expected: Vec<_> = (0..600)
                .map(|key| (key, before.get(&key).copied(), model.get(&key).copied()))
                .filter(|(_, old, new)| old != new)
                .collect();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(copy == map, before == model);
            let rebuilt: SharedMap<_, _> = map.iter().map(|(key, value)| (*key, *value)).collect();
            prop_assert_eq!(&rebuilt, &map);
        }
    }

    #[test]
    fn a_change_costs_one_leaf() {
        let map: SharedMap<u32, u32> = (0..10_000).map(|n| (n, n)).collect();
        assert_eq!(map.leaves.len(), 10_000_usize.div_ceil(LEAF), "filled in order, leaves are full");
        let mut copy = map.clone();
        copy.insert(5_000, 1);
        let apart = map.leaves.iter().zip(&copy.leaves).filter(|(a, b)| !Arc::ptr_eq(&a.elements, &b.elements));
        assert_eq!(apart.count(), 1);
        assert_eq!(map.differences(&copy).collect::<Vec<_>>(), [(&5_000, Some(&5_000), Some(&1))]);
        copy.values_mut().for_each(|value| *value = 7);
        assert!(copy.values().all(|value| *value == 7) && map[&5_000] == 5_000);
    }
}
