//! The running database: opens a directory, commits transactions, publishes snapshots, seals, compacts, recovers.
//!
//! ```text
//! callers ─► prepare (their thread) ─► inbox ─► commit thread ─► log ─► tips ─► sync ─► publish root ─► ack
//!                                                                         │
//!                                          background pool: seal, compact, manifest, preallocate, remove files
//! ```
//!
//! The heavy part of a write (bringing rows to the schema, looking keys up) happens in the caller's thread against a
//! snapshot (`mod@prepare`). The commit thread (`mod@core`) re-checks only the tables that changed since, writes one frame
//! for all transactions that wait, applies them to the tips, and once the frame is durable publishes a new [`DatabaseRoot`] and
//! answers. A reader loads the root, one atomic pointer, and never waits.
//!
//! Background work reads a snapshot and hands an edit to the commit thread, which alone publishes. Old roots and
//! removed segments are dropped by the reaper, never by a reader.
//!
//! SQL, the network, and the layouts of segments and frames are in other crates.
//!
//! ## Invariants
//! - L1: `done` is called with `Ok` only after the transaction is durable (or its writer asked for an answer from memory).
//! - L2: [`Engine::open`] recovers the commits up to some lsn; if the log is damaged, it serves reads and refuses writes.
//! - S1, S2: a [`DatabaseRoot`] never changes and stands at one lsn.
//! - R1: [`Engine::root`] and everything under it takes no lock. R2: inbox, heads and retired roots are bounded.
//! - G1: a segment's files are removed once no snapshot holds it and a durable manifest does not name it.
//!
//! Start at [`Engine`], then `core.rs`.

#![forbid(unsafe_code)]

mod archive;
mod background;
pub mod backup;
mod cold;
mod commit_times;
mod commit_waiters;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod core;
mod counters;
mod database_root;
pub mod dead_letters;
mod derive;
mod engine;
mod ensure_table;
mod erase;
mod evict;
mod expire;
mod group_commit;
pub mod idempotency;
mod inbox;
mod interactive;
pub mod manifest;
mod materializer_progress;
pub mod name_hints;
mod open;
mod options;
mod past_retention;
mod past_view;
mod pool;
mod prepare;
mod resolve;
mod root_reaper;
mod shared_state;
pub mod threads;
mod transaction;
mod view;

pub use archive::ArchiveStatus;
pub use commitlog::edit::ApiKey;
pub use counters::{RefusedCounts, Status};
pub use database_root::DatabaseRoot;
pub use engine::{Engine, Step};
pub use ensure_table::ensure_table_ops;
pub use erase::{Erasure, ErasureProgress};
pub use evict::hot_bytes;
pub use idempotency::{IdempotencyStats, IdempotentRequest, RecordedRequest};
pub use interactive::{OpenTransaction, TransactionLimits, TransactionOutcome, WrittenRows};
pub use materializer_progress::{MaterializerPhase, MaterializerProgress};
pub use options::Options;
pub use past_view::PastExtent;
pub use resolve::Resolved;
pub use transaction::{Ack, Committed, Mode, NewColumn, Op, Transaction};
pub use view::{RowFilter, View, VisibleRows, exists_for};

#[cfg(test)]
mod tests;
