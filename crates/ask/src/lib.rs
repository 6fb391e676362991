//! Questions in plain words over this server's own tables, notes and metrics. No language model: what a question means
//! follows from a small vocabulary and from the names that exist.
//!
//! 1. `split` and `words` take the text apart; `understand` finds in it a time (`time`), a comparison (`compare`), names of
//!    tables and columns (`lexicon`) and the words of `vocabulary`, and makes tasks of them: which source is asked, and
//!    what.
//! 2. `evaluate` asks the sources (`sources`) concurrently over one view until a deadline. What they read goes through
//!    `query`, SQL and search, values as parameters.
//! 3. [`Ask`] keeps answers and lets equal questions share one evaluation.
//!
//! What it is not: it makes nothing up, it changes nothing and reminds nobody, it asks nobody outside, and it knows no HTTP.
//!
//! ## Invariants
//! - S2: all parts of an answer read one view. S3: an answer is kept under the lsns of the tables that it was made from,
//!   and the second if it depends on the time.
//! - A1: everything is read through the asker's view; answers are shared only between principals with the same rights.
//! - R2: questions, words, tables that are looked at, rows, kept answers, evaluations and their time are bounded.
//! - A word that was not understood is named, and then nothing is claimed to hold or not to hold.
//! - Every source that was asked stands in the answer, with what came of it.
//!
//! Start at [`Ask`], then `understand.rs`.

#![forbid(unsafe_code)]

mod answer;
mod ask;
mod cell;
mod compare;
mod evaluate;
mod lexicon;
mod number;
mod question;
mod sources;
mod split;
mod task;
mod time;
mod understand;
mod vocabulary;
mod words;

pub use answer::{Answer, Column, Consulted, Event, Section, State};
pub use ask::{Ask, Options, Status};
pub use question::Question;
