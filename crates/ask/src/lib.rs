//! Answers questions in plain words from this server's own tables, notes and metrics. There is no language model: the meaning of
//! a question follows from a small vocabulary and from the names of tables and columns.
//!
//! 1. `clauses` and `words` take the text apart. `interpreter` finds a time in it (`time`), comparisons (`comparison`), names
//!    of tables and columns (`lexicon`) and the words of `vocabulary`. It turns them into tasks: one request to one source each.
//! 2. `evaluation` asks the sources (`sources`) concurrently over one view until a deadline. The sources read through `query`,
//!    by SQL and search, with values as parameters.
//! 3. [`Ask`] caches answers and lets equal questions share one evaluation.
//!
//! The crate invents nothing, changes nothing, sets no reminders, asks no outside service and knows no HTTP.
//!
//! ## Invariants
//! - S2: all parts of an answer read one view. S3: a cached answer is keyed by the lsns of the tables that it was made from, and
//!   by the second in which it was asked if it depends on the time.
//! - A1: everything is read through the asker's view; answers are shared only between principals with the same rights.
//! - R2: questions, words, tables that are looked at, rows, cached answers, evaluations and their time are bounded.
//! - An answer names each word that was not understood, and then claims neither that a condition holds nor that it does not.
//! - An answer lists every source that was asked, with its result.
//!
//! Start at [`Ask`], then `interpreter.rs`.

#![forbid(unsafe_code)]

mod answer;
mod ask;
mod cell;
mod clauses;
mod comparison;
mod evaluation;
mod interpreter;
mod lexicon;
mod number;
mod question;
mod sources;
mod task;
mod time;
mod vocabulary;
mod words;

pub use answer::{Answer, Column, Consulted, Event, Section, State};
pub use ask::{Ask, Options, Status};
pub use question::Question;
