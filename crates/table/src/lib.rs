//! One table's data: the places of its rows, which of them are live, and the lookup of a row by key.
//!
//! [`Tip`] is the mutable end that the commit thread owns; it includes commits that are not durable yet.
//! [`Snapshot`] is what readers get: an immutable value, cheap to clone, answered from memory and memory-mapped files
//! without a lock. Rows stand in a *head* (Arrow batches in memory, whose truth is the log) and in *segments*
//! (Arrow IPC files with a sidecar). [`seal()`] writes head rows into a segment, [`compaction`] merges neighbouring
//! segments. Both read a snapshot in the background and hand their output to [`Tip::apply_seal`] and
//! [`Tip::apply_compact`], which carry over the deletes that came in the meantime.
//!
//! Other crates own threads, the log, the choice of when to seal or compact, and the removal of files (the engine removes a
//! segment's files when no `Arc<Segment>` is left: G1).
//!
//! ## Invariants
//! - S1: nothing reachable from a snapshot changes. Batches and segments are immutable; delete vectors, the delete history
//!   and the segment list are copy-on-write. The key map only gains hints, which a snapshot checks against its own rows.
//! - Row ids ascend over head and segments: segments cover disjoint ascending ranges below [`Tip::sealed_next`], the
//!   head covers the rest without a gap. `_time` and the lsn never fall with the row id.
//!   Within a segment, rows may be sorted by the table's time column (`cluster.rs`). Every reader but
//!   [`Snapshot::stored_pieces`] still gets them in row-id order.
//! - A live key exists at most once.
//! - M1 support: the rows and deletes of [`Snapshot::changes`], applied in order, make the table.
//! - R1: a part that is decoded at first touch is published by compare-and-swap (`once_cell::race`), never under a lock. Two
//!   readers that touch the same cold block at once both decode it; one result stays. So even a background thread that is
//!   descheduled half-way through a decode cannot hold a reader up.
//!
//! Start at [`Snapshot`]; then `parts.rs`, the struct behind both a snapshot and a [`Tip`]; then `head.rs` and `segment.rs`.
//! Every byte of the files is drawn in `docs/format.md`.

#![forbid(unsafe_code)]

pub mod changes;
mod cluster;
pub mod compaction;
mod conform;
mod deletes;
pub mod evict;
mod evicted_rows;
mod gather;
mod head;
mod history;
mod key_map;
mod key_match;
mod layout;
mod lsn_runs;
pub mod materializer;
mod memory;
mod parts;
pub mod past;
mod piece;
mod row;
mod seal;
pub mod segment;
mod snapshot;
mod state;
mod tip;
pub mod unique;

pub use changes::{Changes, ChangesPage, Inserted};
pub use commitlog::edit::SegmentMeta;
pub use conform::{added_bytes, conform, unfit};
pub use evicted_rows::{LakeFileRange, LakeRows, LakeSnapshot};
pub use history::EndedRows;
pub use layout::Projection;
pub use past::RetainedRows;
pub use piece::{ReadBatch, ScanPiece, Zone};
pub use row::RowRef;
pub use seal::seal;
pub use segment::Segment;
pub use snapshot::Snapshot;
pub use state::{PastState, State};
pub use tip::Tip;

/// Number of rows in a full head batch and in a full block of a segment: the unit of parallel scans.
pub const BATCH_ROWS: usize = 8192;

#[cfg(test)]
mod tests;
