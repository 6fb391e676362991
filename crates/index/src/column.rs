//! Column indexes: find the rows with a value in some columns, or with a value between two bounds.
//!
//! An index is a list of immutable *runs* in row-id order. Each run is one file with the sorted entries of the rows
//! that it covers (`run`). Deletes write nothing: the index still finds a row that has died, and the table's snapshot
//! filters it out. Rows that no run covers yet are the *tail*: a reader compares them one by one, as without an index.
//! So the answer to a query never depends on how far the index has come (M2).
//!
//! - [`ColumnMaterializer`] is the materializer; it publishes [`Indexes`].
//! - [`IndexColumns::range`] turns a condition into a range of entries. [`Index::count`] counts the entries of a range,
//!   [`Index::rows`] returns their rows, and [`Index::walk`] visits them in order.
//! - `unique.rs` finds equal rows, for unique indexes: [`table::unique`].
//! - [`check`] validates a definition before its table is made: `IndexDef { kind: "column", columns, options: [] }`.

mod build;
mod codec;
mod index;
mod run;
mod step;
#[cfg(test)]
mod tests;
mod unique;
mod walk;

pub use codec::{COLUMNS_MAX, ColumnCondition, EntryRange, IndexColumns, KEY_BYTES_MAX, KIND, check};
pub use index::{EntrySpans, Index, Indexes, RunInfo};
pub use step::{ColumnMaterializer, NAME};
pub use walk::{EntryRows, Walk};
