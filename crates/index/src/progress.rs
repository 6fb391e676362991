//! Build progress of a declared index, for every kind of index.

use std::sync::Arc;

use table::materializer::Position;
use types::{IndexDef, RowId, TableDef, UniqueState};

use crate::column;
#[cfg(feature = "text")]
use crate::text;

/// Build progress and size of one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The last row in the index; 0 before the first. Readers still find later rows, through the tail.
    pub reached: RowId,
    /// Total size of the index files in bytes.
    pub bytes: u64,
    /// Number of rows in the index. Some of them may be dead by now.
    pub rows: u64,
}

/// The largest number of missing rows at which an index still counts as ready: a reader compares so few rows in some
/// microseconds.
const FEW_ROWS: u64 = table::BATCH_ROWS as u64;

/// Returns the state of an index as a word, and the reason if it failed. `missing` is the number of rows that the index
/// lacks.
///
/// - `building`: more than `FEW_ROWS` rows are missing.
/// - `checking`: a unique index whose rows are still being compared.
/// - `failed`: a unique index over rows of which two were equal.
/// - `ready`: otherwise.
pub fn state(index: &IndexDef, missing: u64) -> (&'static str, Option<&str>) {
    match &index.unique {
        Some(UniqueState::Failed(why)) => ("failed", Some(why)),
        _ if missing > FEW_ROWS => ("building", None),
        Some(UniqueState::Checking) => ("checking", None),
        _ => ("ready", None),
    }
}

/// Returns the name of the materializer that builds indexes of this kind, under which its positions are kept. Returns
/// `None` if this build has no such materializer.
pub fn materializer(kind: &str) -> Option<&'static str> {
    match kind {
        column::KIND => Some(column::NAME),
        #[cfg(feature = "text")]
        text::KIND => Some(text::NAME),
        _ => None,
    }
}

/// Returns the progress of one index, as of the position that its materializer has published. Returns `None` if this
/// build cannot build indexes of its kind.
pub fn progress(def: &TableDef, index: &IndexDef, position: Option<&Position>) -> Option<Progress> {
    materializer(&index.kind)?;
    let nothing = Progress { reached: RowId(0), bytes: 0, rows: 0 };
    let Some(position) = position else { return Some(nothing) };
    let known = match index.kind.as_str() {
        column::KIND => position.published().and_then(|indexes: Arc<column::Indexes>| {
            let index = indexes.of(def, index)?;
            let runs = index.runs();
            let (bytes, rows) = runs.iter().fold((0, 0), |(b, r), run| (b + run.bytes, r + run.rows));
            Some(Progress { reached: index.reached(), bytes, rows })
        }),
        #[cfg(feature = "text")]
        text::KIND => position.published().and_then(|index: Arc<text::Index>| {
            let pieces = index.pieces();
            let (bytes, rows) =
                pieces.iter().fold((0, 0), |(b, r), piece| (b + piece.bytes, r + piece.live + piece.dead));
            index.is_built_for(def).then_some(Progress { reached: position.checkpoint.row, bytes, rows })
        }),
        _ => None,
    };
    // An index that was built for another definition does not count.
    Some(known.unwrap_or(nothing))
}
