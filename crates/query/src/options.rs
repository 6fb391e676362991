//! Limits of SQL as a whole, and of single statements.

use std::path::PathBuf;
use std::time::Duration;

/// Settings that are fixed when a [`crate::Sql`] is made; all its statements share them.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of threads for light statements, in class `Interactive`; the other statements have as many in class `Work`. Also
    /// the number of parts into which a scan is split.
    pub threads: usize,
    /// Bytes that sorts, joins and groupings of all heavy statements together may hold before they spill. Light statements have
    /// an eighth of it in addition.
    pub memory_bytes: usize,
    /// Directory of the spill files. No other process may use it: files that a killed process left there are removed at the
    /// start. Spill files do not go through `vfs`: DataFusion writes them, and no promise depends on them.
    pub spill_dir: PathBuf,
    /// Bytes that all spill files together may take; a statement that needs more fails with `TooLarge`.
    pub spill_bytes_max: u64,
    /// Number of heavy statements that execute at once; further ones wait.
    pub concurrent_max: usize,
    /// Number of heavy statements that may wait; a further one fails with `Busy` at once.
    pub waiting_max: usize,
    /// Longest time of a statement, and the time of one whose [`Limits::deadline`] is `None`. It includes waiting, planning, and
    /// the reading of the answer.
    pub deadline: Duration,
    /// Longest time of COPY … TO, which may return any number of rows. It equals the longest time that a snapshot may be held.
    pub copy_deadline: Duration,
    /// Rows of an answer whose [`Limits::rows_max`] is `None`.
    pub rows_max: u64,
    /// Bytes of the longest statement.
    pub text_bytes_max: usize,
}

impl Options {
    /// Options for a process that does other work too: as many threads as cores, a quarter of a gibibyte, one heavy statement per
    /// thread but at least four.
    pub fn new(spill_dir: impl Into<PathBuf>) -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        Options {
            threads,
            memory_bytes: 256 << 20,
            spill_dir: spill_dir.into(),
            spill_bytes_max: 16 << 30,
            concurrent_max: threads.max(4),
            waiting_max: 64,
            deadline: Duration::from_secs(60),
            copy_deadline: Duration::from_secs(600),
            rows_max: 10_000_000,
            text_bytes_max: 1 << 20,
        }
    }

    /// Options for a machine with little memory: one thread for light statements and one for the others, which spill early.
    pub fn edge(spill_dir: impl Into<PathBuf>) -> Self {
        Options {
            threads: 1,
            memory_bytes: 16 << 20,
            spill_bytes_max: 1 << 30,
            concurrent_max: 2,
            waiting_max: 16,
            ..Options::new(spill_dir)
        }
    }
}

/// The limits of one statement.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Time from the call to the last row read; at most [`Options::deadline`], which is also the default.
    pub deadline: Option<Duration>,
    /// Rows of the answer; the default is [`Options::rows_max`].
    pub rows_max: Option<u64>,
    /// The reaction to an answer with more rows.
    pub overflow: Overflow,
}

/// The reaction to an answer with more rows than allowed. There is no silent one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// Ends the answer's stream with an error of kind `TooLarge`.
    #[default]
    Error,
    /// Ends the stream at the limit; [`crate::AnswerRows::truncated`] then returns true.
    Truncate,
}
