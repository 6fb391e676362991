//! In which order the pieces of a scan are read: those first that hold the first rows of an order.

use std::cmp::Ordering;
use std::collections::VecDeque;

use datafusion::arrow::compute::SortOptions;
use table::ScanPiece;
use types::{ColumnId, Value};

use super::Part;
use crate::prune;

/// Where a piece's first row of an order may stand.
enum First {
    /// Anywhere.
    Unknown,
    Null,
    At(Value),
    /// Only nulls, which come last.
    Last,
}

/// The same pieces, dealt out over the parts so that each part begins with what comes first. `None` if nothing is known of a
/// piece, or there is nothing to choose.
pub(super) fn by_bounds(parts: &[Part], column: ColumnId, options: SortOptions) -> Option<Vec<Part>> {
    let mut pieces: Vec<(First, &ScanPiece)> = Vec::new();
    for part in parts {
        let Part::Pieces(all) = part else { return None };
        pieces.extend(all.iter().map(|piece| (first(piece, column, options), piece)));
    }
    if pieces.len() < 2 || pieces.iter().all(|(first, _)| matches!(first, First::Unknown)) {
        return None;
    }
    pieces.sort_by(|(a, _), (b, _)| match (a, b) {
        (First::At(a), First::At(b)) => {
            let order = prune::order(a, b).unwrap_or(Ordering::Equal);
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
    Some(dealt.into_iter().map(Part::Pieces).collect())
}

fn first(piece: &ScanPiece, column: ColumnId, options: SortOptions) -> First {
    let Some(zone) = piece.zone(column) else { return First::Unknown };
    if zone.nulls > 0 && options.nulls_first {
        return First::Null;
    }
    match (zone.min, zone.max) {
        (None, _) => First::Last,
        (Some(min), _) if !options.descending => First::At(min),
        (_, Some(max)) => First::At(max),
        (_, None) => First::Unknown,
    }
}

fn rank(first: &First) -> u8 {
    match first {
        First::Unknown => 0,
        First::Null => 1,
        First::At(_) => 2,
        First::Last => 3,
    }
}
