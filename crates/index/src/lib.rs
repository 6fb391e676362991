//! What Polynya derives from a table so that it is found quickly: indexes, each a
//! [`table::materializer::Materializer`] with its readers.
//!
//! Here are [`text`], keyword search, and [`mod@column`], rows by the values of columns. Vector and space indexes will stand
//! beside them.
//!
//! Not here: threads (the engine calls), truth (the table; everything here can be rebuilt), principals (`engine` says
//! which tables a reader sees, a filter which rows), HTTP.
//!
//! ## Invariants
//! - M1: what is derived depends on the live rows alone; killed anywhere or built anew, it ends the same.
//! - M2: index + tail answers exactly as a fresh index: the same rows, order and scores.
//! - R1: a search takes no lock that a writer or the background can hold.
//! - G1: a file is removed only when no reader holds it.
//!
//! Start at [`mod@column`], the simpler one, or at [`text`].

#![deny(unsafe_code)]

pub mod column;
mod levels;
mod progress;
mod rows;
mod store;
#[cfg(feature = "text")]
pub mod text;

pub use progress::{Progress, materializer, progress, state};
