//! How far a declared index has come, whatever its kind.

use std::sync::Arc;

use table::materializer::Position;
use types::{IndexDef, RowId, TableDef};

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
    let nothing = Progress { reached: RowId(0), bytes: 0 };
    let Some(position) = position else { return Some(nothing) };
    let known = match index.kind.as_str() {
        column::KIND => position.published().and_then(|indexes: Arc<column::Indexes>| {
            let index = indexes.of(def, index)?;
            let bytes = index.runs().iter().map(|run| run.bytes).sum();
            Some(Progress { reached: index.reached(), bytes })
        }),
        #[cfg(feature = "text")]
        text::KIND => position.published().and_then(|index: Arc<text::Index>| {
            let bytes = index.pieces().iter().map(|piece| piece.bytes).sum();
            index.is_of(def).then_some(Progress { reached: position.checkpoint.row, bytes })
        }),
        _ => None,
    };
    // What was built for another definition does not count.
    Some(known.unwrap_or(nothing))
}
