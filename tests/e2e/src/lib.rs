//! What is tested from outside: the built binary, and directories that earlier versions wrote.
//!
//! - [`program`]: where the binary is, and running it.
//! - [`golden`]: the directory of format version 1 and what it must contain.
//! - [`dump`]: everything a database holds, as text that two versions can be compared by.
//!
//! Not here: what a crate can test from inside. Start at `tests/e2e.rs`.

#![forbid(unsafe_code)]

pub mod dump;
pub mod golden;
pub mod program;
