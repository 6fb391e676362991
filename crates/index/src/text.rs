//! Keyword search: BM25 over the columns that a table declares `text`.
//!
//! An index is a list of immutable *pieces*, each a tantivy segment in one file (`bundle`), in row-id order. Deletes
//! write nothing: a piece keeps what it was built from, and the table's snapshot says which of its rows are dead
//! (`dead`). Rows that no piece holds yet are the *tail*: readers index them in memory, once for all (`tail`, `fresh`). A
//! search goes over pieces and tail with one statistic of the live rows (`search`), and adds up a row's score in the
//! order of the query, never of the pieces. So neither order nor score tells how the rows are divided (M2).
//!
//! - [`Text`] is the materializer, and makes a [`Searcher`] of a snapshot with its position.
//! - [`Searcher::search`] answers a [`Query`] with [`Hits`]; [`Searcher::marker`] cuts [`Snippet`]s.
//! - [`Scanner`] searches columns that nobody declared, by reading every row.
//! - [`check`] tells a table's maker what is wrong with an index definition; [`fields`] what is indexed, and how.
//!
//! tantivy builds, merges and reads the segments; it starts no thread, takes no lock file and sees no file system
//! (`files`). Its query evaluation is not used: it sums scores in an order that depends on the segment, and the
//! averages it estimates after a merge with deletes are not those of a fresh index.
//!
//! ## An index definition
//! `IndexDef { kind: "text", columns, options }`: string columns. Options: `language`, `english` unless said otherwise,
//! `none` for no stemming, or another that [`Language::parse`] knows; `weights`, such as `2,1`, one number for each
//! column in order, by which its part of the score is multiplied. A column named by several definitions follows the first.

mod analyzer;
mod build;
mod bundle;
mod dead;
mod evaluate;
mod fields;
mod files;
mod fresh;
mod leaf;
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
pub use step::{NAME, Text};

use types::Error;

/// An error of tantivy's where none can come from outside: the bytes were checked, or are our own.
fn internal(what: &str, error: impl std::fmt::Display) -> Error {
    Error::internal(format!("{what} failed: {error}"))
}
