//! Chooses the order in which a scan reads its pieces: those first that may hold the first rows of a sort.

use std::cmp::Ordering;
use std::collections::VecDeque;

use datafusion::arrow::compute::SortOptions;
use table::ScanPiece;
use types::{ColumnId, Value};

use super::ScanPart;
use crate::prune;

/// The position of a piece's first row in the sort order.
enum FirstRow {
    /// The first row may be anywhere.
    Unknown,
    Null,
    At(Value),
    /// The piece has only nulls, which come last.
    Last,
}

/// Deals the pieces out over the parts so that each part begins with the first pieces of the order. Returns `None` if nothing is
/// known about any piece, or if there is only one.
pub(super) fn by_bounds(parts: &[ScanPart], column: ColumnId, options: SortOptions) -> Option<Vec<ScanPart>> {
    let mut pieces: Vec<(FirstRow, &ScanPiece)> = Vec::new();
    for part in parts {
        let ScanPart::Pieces(all) = part else { return None };
        pieces.extend(all.iter().map(|piece| (first(piece, column, options), piece)));
    }
    if pieces.len() < 2 || pieces.iter().all(|(first, _)| matches!(first, FirstRow::Unknown)) {
        return None;
    }
    pieces.sort_by(|(a, _), (b, _)| match (a, b) {
        (FirstRow::At(a), FirstRow::At(b)) => {
            let order = prune::compare_values(a, b).unwrap_or(Ordering::Equal);
            if options.descending { order.reverse() } else { order }
        }
        _ => rank(a).cmp(&rank(b)),
    });
    let mut dealt: VecDeque<Vec<ScanPiece>> = parts.iter().map(|_| Vec::new()).collect();
    for (_, piece) in pieces {
        if let Some(mut part) = dealt.pop_front() {
            part.push(piece.clone());
            dealt.push_back(part);
        }
    }
    Some(dealt.into_iter().map(ScanPart::Pieces).collect())
}

fn first(piece: &ScanPiece, column: ColumnId, options: SortOptions) -> FirstRow {
    let Some(zone) = piece.zone(column) else { return FirstRow::Unknown };
    if zone.nulls > 0 && options.nulls_first {
        return FirstRow::Null;
    }
    match (zone.min, zone.max) {
        (None, _) => FirstRow::Last,
        (Some(min), _) if !options.descending => FirstRow::At(min),
        (_, Some(max)) => FirstRow::At(max),
        (_, None) => FirstRow::Unknown,
    }
}

fn rank(first: &FirstRow) -> u8 {
    match first {
        FirstRow::Unknown => 0,
        FirstRow::Null => 1,
        FirstRow::At(_) => 2,
        FirstRow::Last => 3,
    }
}
