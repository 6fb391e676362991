//! Indexes over columns: which rows have a value, or one between two.
//!
//! An index is a list of immutable *runs* in row-id order, each the entries of the rows that it covers, sorted, in one
//! file (`run`). Deletes write nothing: a row that has died is found still, and the table's snapshot leaves it out.
//! Rows that no run covers yet are the *tail*: whoever looks for rows compares them all, as without an index. So what a
//! reader finds never depends on how far the index has come (M2).
//!
//! - [`Column`] is the materializer; it publishes [`Indexes`].
//! - [`Columns::range`] says where entries lie, [`Index::count`] how many there are, [`Index::rows`] which rows have them,
//!   [`Index::walk`] goes over them in order.
//! - `unique.rs` finds rows that are equal, for unique indexes: [`table::unique`].
//! - [`check`] tells a table's maker what is wrong with a definition: `IndexDef { kind: "column", columns, options: [] }`.

mod build;
mod codec;
mod index;
mod run;
mod step;
#[cfg(test)]
mod tests;
mod unique;
mod walk;

pub use codec::{COLUMNS_MAX, Columns, KEY_BYTES_MAX, KIND, Next, Range, check};
pub use index::{Found, Index, Indexes, RunInfo};
pub use step::{Column, NAME};
pub use walk::{Rows, Walk};
