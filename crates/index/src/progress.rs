//! How far a declared index has come, whatever its kind.

use std::sync::Arc;

use table::materializer::Position;
use types::{IndexDef, RowId, TableDef, Unique};

use crate::column;
#[cfg(feature = "text")]
use crate::text;

/// Where an index stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The last row that it has taken in; 0 before the first. Readers find later ones all the same.
    pub reached: RowId,
    /// Of its files.
    pub bytes: u64,
    /// That it holds, some of which may be dead by now.
    pub rows: u64,
}

/// Fewer missing rows than this make no difference to who asks: they are compared in some microseconds.
const FEW_ROWS: u64 = table::BATCH_ROWS as u64;

/// What an index is about, in a word, and what went wrong with it: `building`; of a unique one whose rows are being compared
/// `checking`, and `failed` if two of them were equal; else `ready`. `missing` are rows that it has not taken in.
pub fn state(index: &IndexDef, missing: u64) -> (&'static str, Option<&str>) {
    match &index.unique {
        Some(Unique::Failed(why)) => ("failed", Some(why)),
        _ if missing > FEW_ROWS => ("building", None),
        Some(Unique::Checking) => ("checking", None),
        _ => ("ready", None),
    }
}

/// The materializer that builds indexes of a kind: the name of its positions.
pub fn materializer(kind: &str) -> Option<&'static str> {
    match kind {
        column::KIND => Some(column::NAME),
        #[cfg(feature = "text")]
        text::KIND => Some(text::NAME),
        _ => None,
    }
}

/// Of an index of a table, at what its materializer has published. `None` of one that is not built here.
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
            index.is_of(def).then_some(Progress { reached: position.checkpoint.row, bytes, rows })
        }),
        _ => None,
    };
    // What was built for another definition does not count.
    Some(known.unwrap_or(nothing))
}
