//! Helpers of the end-to-end tests, which cover the built binary and directories of earlier versions.
//!
//! - [`program`]: finds the binary and runs it.
//! - [`golden`]: the directory of format version 1 with its expected contents.
//! - [`dump`]: the contents of a database as text, for comparing two versions.
//!
//! Tests that a crate can run from inside do not belong here. Start at `tests/e2e.rs`.

#![forbid(unsafe_code)]

pub mod dump;
pub mod golden;
pub mod program;
