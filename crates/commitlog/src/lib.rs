//! The commit log: the first durable place of every commit.
//!
//! A *frame* is one commit group. It is written with one gathered write ([`Writer::append`]) and made durable with one
//! flush ([`Syncer::sync`]), which may run in another thread while the next frame is being appended. Its *sections*
//! ([`record`]) hold what the group's commits did: rows, deletes, idempotency keys, feed cursors, edits of the manifest
//! ([`edit`]). Rows are stored with a codec of our own for Arrow record batches ([`batch`]). It writes array buffers without a
//! copy and validates everything that it reads.
//!
//! The log knows no tables, makes no decisions, publishes nothing and starts no thread. It takes files, clock and randomness from
//! [`vfs::Env`], so that a simulator can crash it at every call.
//!
//! ## Invariants
//! - L1: every later [`Log::open`] finds each lsn that [`Syncer::sync`] returned.
//! - L2: recovery yields exactly the commits up to some lsn, without a gap. If it has to stop at damage (a frame that was once
//!   durable differs from what was written), it reports that in [`Recovery::damage`], and nothing can be appended.
//! - A failed write or sync latches the log: nothing more is acknowledged until it is opened again. A full disk does not latch
//!   it: space is taken when a file is preallocated, so only making a new file can fail for lack of space.
//! - Bytes on disk never cause a panic, nor an allocation of more than [`frame::FRAME_BYTES_MAX`] at a time.
//!
//! ## Where to start
//! [`Log::open`], then [`Writer`]. The bytes are drawn in `docs/format.md`.

#![forbid(unsafe_code)]

mod archive;
pub mod batch;
mod create_empty;
mod durable_file;
pub mod edit;
pub mod frame;
mod frame_reader;
mod gather;
mod layout;
mod log;
pub mod record;
mod recover;
mod section;
mod shared;
mod spare_files;
mod stats;
mod syncer;
mod verify;
mod writer;

pub use archive::{ArchivePiece, Archiver, NextPiece, read_piece};
pub use create_empty::create_empty;
pub use log::{Log, Options, Recovery};
pub use stats::{Latency, Stats};
pub use syncer::Syncer;
pub use verify::{FileReport, FileState, Report, verify};
pub use writer::{AppendedFrame, Preallocator, Purpose, Writer};

// The format is little-endian, and array buffers are written unchanged.
const _: () = assert!(cfg!(target_endian = "little"), "Polynya runs on little-endian machines only");
