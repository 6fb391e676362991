//! Size-tiered merging: picks neighbours so that their number grows with the logarithm of the total size.

use std::ops::Range;

/// Number of neighbours of one size class that are merged into the next class.
const FAN: usize = 8;

/// Picks a range of neighbours to merge, or `None`. `sizes` are given in order, `unit` bounds the smallest class, and sizes
/// of `full` or more are never merged. Small classes come first, since they cost least.
pub fn pick_merge(sizes: &[u64], unit: u64, full: u64) -> Option<Range<usize>> {
    let level =
        |size: u64| -> Option<u32> { (size < full).then(|| (size / unit.max(1)).max(1).ilog(FAN as u64)) };
    let highest = sizes.iter().filter_map(|size| level(*size)).max()?;
    for most in 0..=highest {
        // Smaller neighbours in between are merged too. Only those of the class itself count, so that each merge raises
        // what it moves.
        let (mut begin, mut count) = (0, 0);
        for end in 0..=sizes.len() {
            match sizes.get(end).and_then(|size| level(*size)) {
                Some(level) if level <= most => count += usize::from(level == most),
                _ if count >= FAN => return Some(cut(begin..end, sizes, full)),
                _ => (begin, count) = (end + 1, 0),
            }
        }
    }
    None
}

/// Shortens a range to the prefix that makes one full file, with at least two neighbours.
fn cut(range: Range<usize>, sizes: &[u64], full: u64) -> Range<usize> {
    let mut sum = 0;
    let mut end = range.start;
    while end < range.end && (sum < full || end - range.start < 2) {
        sum += sizes[end];
        end += 1;
    }
    range.start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_small_ones_stay_few_and_are_moved_a_few_times_each() {
        let mut sizes: Vec<u64> = Vec::new();
        let mut moved = 0;
        for n in 1..=1000u64 {
            sizes.push(1);
            while let Some(range) = pick_merge(&sizes, 1, 1 << 20) {
                let sum = sizes[range.clone()].iter().sum();
                moved += sum;
                sizes.splice(range, [sum]);
            }
            assert_eq!(sizes.iter().sum::<u64>(), n);
            assert!(sizes.len() <= 7 * 4, "{sizes:?}");
        }
        assert!(moved < 4 * 1000, "{moved}");
    }

    #[test]
    fn what_is_full_is_left_alone() {
        assert_eq!(pick_merge(&[100; 20], 1, 100), None);
        assert_eq!(pick_merge(&[], 1, 100), None);
        assert_eq!(pick_merge(&[60; 8], 1, 100), Some(0..2));
        let mixed = [100, 1, 1, 1, 1, 1, 1, 1, 1, 100];
        assert_eq!(pick_merge(&mixed, 1, 100), Some(1..9));
    }
}
