//! Medians, and ratios of figures that were taken in the same round.
//!
//! A machine drifts by several per cent within minutes; two figures of one round are seconds apart. So a ratio is taken
//! round by round, and the median of those is what counts, never the ratio of two medians.

use std::collections::BTreeMap;

/// Figures of one variant by round; a round whose figure failed is absent.
pub type Series = BTreeMap<usize, f64>;

/// The median; `None` of nothing.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => sorted.get(middle).copied(),
        _ => Some((sorted.get(middle - 1)? + sorted.get(middle)?) / 2.0),
    }
}

/// The value that `part` of all (0.99 of them, say) do not exceed; `None` of nothing.
#[must_use]
pub fn percentile(values: impl IntoIterator<Item = f64>, part: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    // The nearest rank: no value that was not measured.
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// The median over the rounds of `figure / base`, of the rounds that have both.
#[must_use]
pub fn median_ratio(figure: &Series, base: &Series) -> Option<f64> {
    median(figure.iter().filter_map(|(round, value)| {
        let base = base.get(round).filter(|b| **b > 0.0)?;
        Some(value / base)
    }))
}

/// Round by round the mean of those series that have the round.
#[must_use]
pub fn mean(series: &[&Series]) -> Series {
    let mut sums: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for one in series {
        for (round, value) in *one {
            let sum = sums.entry(*round).or_default();
            sum.0 += value;
            sum.1 += 1.0;
        }
    }
    sums.into_iter().map(|(round, (sum, count))| (round, sum / count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[(usize, f64)]) -> Series {
        values.iter().copied().collect()
    }

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([7.0]), Some(7.0));
        assert_eq!(median([]), None);
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let hundred = || (1..=100).map(f64::from);
        assert_eq!(percentile(hundred(), 0.99), Some(99.0));
        assert_eq!(percentile(hundred(), 0.5), Some(50.0));
        assert_eq!(percentile(hundred(), 1.0), Some(100.0));
        assert_eq!(percentile([7.0], 0.99), Some(7.0));
        assert_eq!(percentile([], 0.99), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine became twice as slow in round 1: the ratio of medians would be off, this one is not.
        let base = series(&[(0, 100.0), (1, 200.0), (2, 100.0)]);
        let figure = series(&[(0, 110.0), (1, 220.0), (2, 110.0)]);
        assert_eq!(median_ratio(&figure, &base), Some(1.1));
    }

    #[test]
    fn rounds_without_a_partner_do_not_count() {
        let base = series(&[(0, 1.0), (2, 0.0)]);
        let figure = series(&[(0, 2.0), (1, 9.0), (2, 9.0)]);
        assert_eq!(median_ratio(&figure, &base), Some(2.0));
        assert_eq!(median_ratio(&figure, &Series::new()), None);
    }

    #[test]
    fn mean_of_what_is_there() {
        let a = series(&[(0, 1.0), (1, 3.0)]);
        let b = series(&[(0, 3.0)]);
        assert_eq!(mean(&[&a, &b]), series(&[(0, 2.0), (1, 3.0)]));
    }
}
