//! The commit log: where truth enters.
//!
//! A *frame* is one commit group. It is written with one gathered write ([`Writer::append`]) and made durable with one
//! flush ([`Syncer::sync`]), which may run in another thread while the next frame is being appended. Its *sections*
//! ([`record`]) say what the group's commits did: rows, deletes, idempotency keys, feed cursors, edits of the manifest
//! ([`edit`]). Rows travel in an own codec for Arrow record batches ([`batch`]) that copies no array buffer on the way
//! out and validates everything on the way in.
//!
//! The log is not the database: it knows no tables, decides nothing, publishes nothing, starts no thread. It takes
//! files, clock and randomness from [`vfs::Env`], so that a simulator can crash it at every call.
//!
//! ## Invariants
//! - L1: an lsn that [`Syncer::sync`] returned is found by every later [`Log::open`].
//! - L2: recovery yields exactly the commits up to some lsn, without a gap. If it had to stop at damage (a frame that
//!   was durable once is not what was written) it says so in [`Recovery::damage`], and nothing can be appended.
//! - A failed write or sync latches the log: nothing is acknowledged any more until it is opened again. A full disk
//!   does not: space is taken when a file is preallocated, and only a new file can fail for want of it.
//! - Bytes on disk never panic and never make it allocate more than [`frame::FRAME_BYTES_MAX`] at a time.
//!
//! ## Where to start
//! [`Log::open`], then [`Writer`]. The bytes are drawn in `docs/format.md`.

#![forbid(unsafe_code)]

mod archive;
pub mod batch;
mod begin;
mod durable_file;
pub mod edit;
pub mod frame;
mod gather;
mod keep;
mod layout;
mod log;
pub mod record;
mod recover;
mod section;
mod shared;
mod source;
mod stats;
mod syncer;
mod verify;
mod writer;

pub use archive::{Archiver, Next, Piece, read_piece};
pub use begin::begin;
pub use log::{Log, Options, Recovery};
pub use stats::{Latency, Stats};
pub use syncer::Syncer;
pub use verify::{FileReport, FileState, Report, verify};
pub use writer::{Appended, Preallocator, Purpose, Writer};

// The format is little-endian and array buffers are written as they are.
const _: () = assert!(cfg!(target_endian = "little"), "Polynya runs on little-endian machines only");
