//! Which numbers are taken: ids of Service ports and of backends, and lines of slots.

/// A set of taken numbers below a limit, of which the lowest free ones are taken first.
///
/// What is taken is a function of the set alone, so that whoever rebuilds the set from tables takes the same. Blocks
/// are powers of two and lie at multiples of their size, as in a buddy allocator: a block that is freed joins its
/// neighbours, and small blocks fill the gaps at the low end before they break a large one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers {
    /// Bits of the numbers; beyond the end none is taken.
    words: Vec<u64>,
    limit: u32,
    /// No word below this one has a free number.
    full_below: usize,
}

impl Numbers {
    /// No number is taken; numbers are below `limit`.
    #[must_use]
    pub const fn new(limit: u32) -> Self {
        Self { words: Vec::new(), limit, full_below: 0 }
    }

    /// Whether a number is taken.
    #[must_use]
    pub fn is_taken(&self, number: u32) -> bool {
        let (word, bit) = place(number);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Marks a number as taken; whether it was free. Numbers at or above the limit are never free.
    pub fn mark(&mut self, number: u32) -> bool {
        if number >= self.limit {
            return false;
        }
        let (word, bit) = place(number);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let Some(word) = self.words.get_mut(word) else { return false };
        let free = *word & bit == 0;
        *word |= bit;
        free
    }

    /// Frees a number.
    pub fn free(&mut self, number: u32) {
        let (index, bit) = place(number);
        if let Some(word) = self.words.get_mut(index) {
            *word &= !bit;
            self.full_below = self.full_below.min(index);
        }
    }

    /// Takes the lowest free number.
    pub fn take(&mut self) -> Option<u32> {
        self.pass_full_words();
        let free = self.words.get(self.full_below).map_or(0, |word| word.trailing_ones());
        let number = u32::try_from(self.full_below).ok()?.checked_mul(64)?.checked_add(free)?;
        self.mark(number).then_some(number)
    }

    /// Takes the lowest free block of `size` numbers, a power of two, at a multiple of it.
    pub fn take_block(&mut self, size: u32) -> Option<u32> {
        if !size.is_power_of_two() {
            return None;
        }
        self.pass_full_words();
        let mut first = u32::try_from(self.full_below).ok()?.checked_mul(64)?.checked_next_multiple_of(size)?;
        while !self.is_block_free(first, size) {
            first = first.checked_add(size)?;
            if first >= self.limit {
                return None;
            }
        }
        if first.checked_add(size)? > self.limit {
            return None;
        }
        for number in first..first + size {
            self.mark(number);
        }
        Some(first)
    }

    /// Numbers that are taken.
    pub fn taken(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn pass_full_words(&mut self) {
        while self.words.get(self.full_below) == Some(&u64::MAX) {
            self.full_below += 1;
        }
    }

    fn is_block_free(&self, first: u32, size: u32) -> bool {
        let (word, bit) = place(first);
        if size < 64 {
            let mask = ((1_u64 << size) - 1) * bit;
            return self.words.get(word).is_none_or(|word| word & mask == 0);
        }
        let end = (word + size as usize / 64).min(self.words.len());
        self.words.get(word..end).is_none_or(|words| words.iter().all(|word| *word == 0))
    }
}

/// The word and the bit of a number.
const fn place(number: u32) -> (usize, u64) {
    ((number / 64) as usize, 1 << (number % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_lowest_free_number_comes_first_and_the_limit_holds() {
        let mut numbers = Numbers::new(130);
        assert!(numbers.mark(0) && !numbers.mark(0) && !numbers.mark(130));
        let taken: Vec<_> = core::iter::from_fn(|| numbers.take()).collect();
        assert!(taken.iter().copied().eq(1..130));
        numbers.free(77);
        numbers.free(5);
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [Some(5), Some(77), None]);
        assert_eq!(numbers.take_block(4), None);
        assert_eq!(Numbers::new(8).take_block(3), None);
        assert_eq!((Numbers::new(60).take_block(64), Numbers::new(64).take_block(64)), (None, Some(0)));
    }

    #[test]
    fn small_blocks_fill_gaps_before_they_break_a_large_one() {
        let mut lines = Numbers::new(1024);
        let small: Vec<_> = (0..16).map(|_| lines.take_block(4).unwrap()).collect();
        let large = lines.take_block(256).unwrap();
        assert_eq!(large, 256);
        small.iter().step_by(2).flat_map(|first| *first..first + 4).for_each(|line| lines.free(line));
        assert_eq!(lines.take_block(16), Some(64), "no sixteen lie together below");
        for first in small.iter().step_by(2) {
            assert_eq!(lines.take_block(4), Some(*first));
        }
        assert_eq!(lines.take_block(4), Some(80));
    }

    /// What a step does: take a block of so many, or free one of those taken.
    fn steps() -> impl Strategy<Value = Vec<(prop::sample::Index, Option<u32>)>> {
        let size = prop::sample::select(vec![1_u32, 4, 4, 4, 16, 64, 256]);
        prop::collection::vec((any::<prop::sample::Index>(), prop::option::weighted(0.6, size)), 0..400)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn blocks_never_overlap_and_all_becomes_free_again(steps in steps()) {
            const LIMIT: u32 = 2048;
            let mut numbers = Numbers::new(LIMIT);
            let mut held: Vec<(u32, u32)> = Vec::new();
            let mut taken = BTreeSet::new();
            for (which, size) in steps {
                match size {
                    Some(size) => {
                        let Some(first) = numbers.take_block(size) else {
                            // Refused only if no block is free indeed.
                            let free = |first: u32| (first..first + size).all(|number| !taken.contains(&number));
                            prop_assert!(!(0..LIMIT).step_by(size as usize).any(free));
                            continue;
                        };
                        prop_assert_eq!(first % size, 0);
                        prop_assert!(first + size <= LIMIT);
                        for number in first..first + size {
                            prop_assert!(taken.insert(number), "{number} was taken");
                        }
                        held.push((first, size));
                    }
                    None if !held.is_empty() => {
                        let (first, size) = held.swap_remove(which.index(held.len()));
                        for number in first..first + size {
                            numbers.free(number);
                            taken.remove(&number);
                        }
                    }
                    None => {}
                }
                prop_assert_eq!(numbers.taken(), taken.len());
                let (mut rebuilt, mut copy) = (Numbers::new(LIMIT), numbers.clone());
                for number in &taken {
                    rebuilt.mark(*number);
                }
                prop_assert_eq!(rebuilt.take_block(4), copy.take_block(4), "a function of the set");
                prop_assert_eq!(rebuilt.take(), copy.take());
            }
            held.iter().flat_map(|(first, size)| *first..first + size).for_each(|number| numbers.free(number));
            prop_assert_eq!(numbers.taken(), 0);
            prop_assert_eq!(numbers.take_block(LIMIT), Some(0));
        }

        /// Half of the lines in use, by blocks that come and go: one that needs an eighth of all is still found.
        #[test]
        fn fragments_stay_small(choices in prop::collection::vec((any::<prop::sample::Index>(), 0usize..8), 4000)) {
            const LIMIT: u32 = 8192;
            let mut lines = Numbers::new(LIMIT);
            let mut held: Vec<(u32, u32)> = Vec::new();
            let mut used = 0;
            for (which, kind) in choices {
                let size = [4, 4, 4, 4, 4, 16, 16, 64][kind];
                if used + size > LIMIT / 2 {
                    let (first, size) = held.swap_remove(which.index(held.len()));
                    (first..first + size).for_each(|line| lines.free(line));
                    used -= size;
                    continue;
                }
                held.push((lines.take_block(size).unwrap(), size));
                used += size;
            }
            prop_assert!(lines.take_block(LIMIT / 8).is_some());
        }
    }
}
