//! Keyword search: BM25 over the columns that a table declares as `text` indexes.
//!
//! An index is a list of immutable *pieces* in row-id order. Each piece is one tantivy segment in one file (`bundle`).
//! Deletes write nothing: a piece keeps all of its rows, and the table's snapshot tells which of them are dead
//! (`dead_docs`). Rows that no piece holds yet are the *tail*: readers index them in memory and share the result (`tail`,
//! `in_memory`). A search covers pieces and tail with one statistic over all live rows (`search`). It adds up the score of
//! a row in the order of the query, never in the order of the pieces. So neither the order nor the scores depend on how
//! the rows are divided into pieces (M2).
//!
//! - [`TextMaterializer`] is the materializer. It makes a [`Searcher`] from a snapshot and its position.
//! - [`Searcher::search`] answers a [`Query`] with [`Hits`]; [`Searcher::marker`] cuts [`Snippet`]s.
//! - [`Scanner`] searches columns without an index, by reading every row.
//! - [`check`] validates an index definition before its table is made; [`fields`] returns the indexed columns and their
//!   options.
//!
//! tantivy builds, merges and reads the segments. It starts no thread, takes no lock file and sees no file system
//! (`directory`). Its query evaluation is not used, for two reasons: it sums scores in an order that depends on the
//! segment, and after a merge with deletes its estimated averages differ from those of a fresh index.
//!
//! ## An index definition
//! `IndexDef { kind: "text", columns, options }`, over string columns. The options are:
//! - `language`: the language for stemming, one that [`Language::parse`] knows. The default is `english`; `none` turns
//!   stemming off.
//! - `weights`, such as `2,1`: one number for each column in order, by which the column's part of the score is
//!   multiplied.
//!
//! If several definitions name the same column, the first one applies.

mod analyzer;
mod build;
mod bundle;
mod compile;
mod dead_docs;
mod directory;
mod evaluate;
mod fields;
mod in_memory;
mod mapped;
mod parse;
mod piece;
mod postings;
mod query;
mod scan;
mod search;
mod snippet;
mod state;
mod step;
mod stop;
mod tail;
#[cfg(test)]
mod tests;

pub use analyzer::Language;
pub use fields::{Field, Fields, KIND, check, fields};
pub use query::{Hit, Hits, Mode, Query};
pub use scan::Scanner;
pub use search::Searcher;
pub use snippet::{Marker, Snippet};
pub use state::{Index, PieceInfo};
pub use step::{NAME, TextMaterializer};

use types::Error;

/// Wraps an error of tantivy that no outside input can cause: the bytes were verified before, or this process made
/// them.
fn internal(what: &str, error: impl std::fmt::Display) -> Error {
    Error::internal(format!("{what} failed: {error}"))
}
