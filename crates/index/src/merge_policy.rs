//! The merge policy: selects neighbouring pieces of an index (its immutable files, in row-id order) to merge, so that
//! few large pieces remain.

use std::ops::Range;

/// Number of pieces in one merge. The longer window serves a large piece among small ones: with a shorter window its
/// rows would not come into a piece twice as large.
const WINDOWS: [usize; 2] = [8, 16];
/// Number of pieces in a final merge. Fewer pieces suffice here, because the result is so large that no later merge
/// takes it.
const WINDOWS_LAST: std::ops::Range<usize> = 2..8;

/// Upper limits on the result of one merge. A merge is a single step, and the tail grows for as long as the step lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeLimits {
    pub rows: u64,
    pub bytes: u64,
}

/// Size of one piece, as input to [`plan`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct PieceSize {
    pub live: u64,
    pub dead: u64,
    pub bytes: u64,
}

/// Returns the range of pieces to merge next, or `None` if no merge is worth its writes. A merge takes only neighbours,
/// so that the pieces stay in row-id order. A range of one piece means rewriting that piece without its dead rows.
pub(crate) fn plan(sizes: &[PieceSize], largest: MergeLimits) -> Option<Range<usize>> {
    // A piece with more than 30 % dead rows is rewritten first: dead rows take space, and each search must check them.
    if let Some(at) = sizes.iter().position(|s| s.dead > 0 && s.dead * 10 > (s.live + s.dead) * 3) {
        return Some(at..at + 1);
    }
    let fits = |window: &[PieceSize]| {
        let live: u64 = window.iter().map(|s| s.live).sum();
        let bytes: u64 = window.iter().map(|s| s.bytes).sum();
        let most = window.iter().map(|s| s.live).max().unwrap_or(0);
        // Every row must move into a piece at least twice as large as its old one. This bounds how often a row is
        // rewritten.
        (live <= largest.rows && bytes <= largest.bytes && most * 2 <= live).then_some(live)
    };
    let windows = |len: usize| {
        let sized = move |(at, window)| Some((fits(window)?, at, at + len));
        sizes.windows(len).enumerate().filter_map(sized)
    };
    let best = WINDOWS.into_iter().flat_map(windows).min();
    let last = || WINDOWS_LAST.flat_map(windows).filter(|(live, ..)| *live > largest.rows / 2).max();
    let (_, from, to) = best.or_else(last)?;
    Some(from..to)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MERGE_LIMITS: MergeLimits = MergeLimits { rows: 1 << 18, bytes: 64 << 20 };

    fn live(live: u64) -> PieceSize {
        PieceSize { live, dead: 0, bytes: live * 100 }
    }

    #[test]
    fn a_growing_table_has_few_pieces_and_writes_each_row_few_times() {
        let mut sizes: Vec<PieceSize> = Vec::new();
        let mut written = 0;
        for _ in 0..4_000 {
            sizes.push(live(50));
            written += 50;
            while let Some(range) = plan(&sizes, MERGE_LIMITS) {
                let merged: u64 = sizes[range.clone()].iter().map(|s| s.live).sum();
                written += merged;
                sizes.splice(range, [live(merged)]);
            }
        }
        assert!(sizes.len() <= 32, "{} pieces", sizes.len());
        assert!(written <= 200_000 * 9, "{written} rows written");
    }

    #[test]
    fn a_piece_with_many_dead_rows_is_written_anew_alone() {
        let sizes = [live(10), PieceSize { live: 60, dead: 40, bytes: 1 }, live(5)];
        assert_eq!(plan(&sizes, MERGE_LIMITS), Some(1..2));
        assert_eq!(plan(&[PieceSize { live: 70, dead: 30, bytes: 1 }], MERGE_LIMITS), None);
    }

    #[test]
    fn no_merge_is_larger_than_one_step_should_be() {
        assert_eq!(plan(&vec![live(MERGE_LIMITS.rows / 2 + 1); 50], MERGE_LIMITS), None);
    }

    #[test]
    fn pieces_of_a_first_build_are_joined_to_the_largest() {
        let mut sizes = vec![live(1 << 16); 50];
        while let Some(range) = plan(&sizes, MERGE_LIMITS) {
            let merged: u64 = sizes[range.clone()].iter().map(|s| s.live).sum();
            sizes.splice(range, [live(merged)]);
        }
        assert_eq!(sizes.len(), 14, "twelve of four, and two that are too small");
    }
}
