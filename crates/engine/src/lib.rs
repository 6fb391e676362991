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
//! for all transactions that wait, applies them to the tips, and once the frame is durable publishes a new [`Root`] and
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
//! - S1, S2: a [`Root`] never changes and stands at one lsn.
//! - R1: [`Engine::root`] and everything under it takes no lock. R2: inbox, heads and retired roots are bounded.
//! - G1: a segment's files are removed once no snapshot holds it and a durable manifest does not name it.
//!
//! Start at [`Engine`], then `core.rs`.

#![forbid(unsafe_code)]

mod archive;
mod arrivals;
mod background;
pub mod backup;
mod cold;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod core;
mod counters;
pub mod dead_letters;
mod derive;
mod engine;
mod erase;
mod evict;
mod expire;
mod forget;
mod inbox;
mod interactive;
mod lacking;
pub mod manifest;
pub mod near;
mod open;
mod options;
mod pool;
mod prepare;
mod reaper;
pub mod remember;
mod resolve;
mod root;
mod seat;
mod shared;
mod standing;
mod then;
pub mod threads;
mod times;
mod transaction;
mod view;

pub use archive::Archiving;
pub use commitlog::edit::ApiKey;
pub use counters::{Refused, Status};
pub use engine::{Engine, Step};
pub use erase::{Erasing, Erasure};
pub use evict::hot_bytes;
pub use interactive::{Limits, OpenTransaction, Outcome, Written};
pub use lacking::lacking;
pub use options::Options;
pub use remember::{Memory, Remember, Remembered};
pub use resolve::Resolved;
pub use root::Root;
pub use standing::{Standing, State};
pub use then::PastReach;
pub use transaction::{Ack, Committed, Mode, NewColumn, Op, Transaction};
pub use view::{RowFilter, Rows, View, exists_for};

#[cfg(test)]
mod tests;
