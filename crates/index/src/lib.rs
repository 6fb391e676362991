//! Indexes that Polynya derives from its tables to find rows quickly. Each index is a
//! [`table::materializer::Materializer`] together with its readers.
//!
//! The crate holds [`text`], keyword search, and [`mod@column`], which finds rows by the values of columns. Indexes
//! over vectors and over space are planned and will be further modules.
//!
//! The crate leaves to others: threads (the engine calls it), the source of truth (the table; every index can be
//! rebuilt from it), access control (`engine` decides which tables a reader sees, and a filter decides which rows), and
//! HTTP.
//!
//! ## Invariants
//! - M1: an index depends only on the live rows of its table. If it is killed at any moment, or rebuilt from nothing,
//!   its final state answers the same.
//! - M2: an index together with its tail answers exactly as a freshly built index does: the same rows, order and
//!   scores.
//! - R1: a search takes no lock that a writer or background work can hold.
//! - G1: a file is removed only when no reader holds it.
//!
//! Start at [`mod@column`], which is the simpler one, or at [`text`].

#![deny(unsafe_code)]

pub mod column;
mod merge_policy;
mod progress;
mod rows;
mod store;
#[cfg(feature = "text")]
pub mod text;

pub use progress::{Progress, materializer, progress, state};
