//! How much of the machine SQL may use, and how much one statement may.

use std::path::PathBuf;
use std::time::Duration;

/// Fixed when [`crate::Sql`] is made; shared by all statements.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads for light statements, in class `Interactive`, and as many in class `Work` for the others. Also the number of
    /// parts into which a scan is split.
    pub threads: usize,
    /// What sorts, joins and groupings of all heavy statements together may hold before they spill; those of light ones may
    /// hold an eighth as much besides.
    pub memory_bytes: usize,
    /// Where they spill to. Belongs to this SQL alone: what a killed process left there is removed at the start. Spill
    /// files do not go through `vfs`: they are DataFusion's own, and no promise depends on them.
    pub spill_dir: PathBuf,
    /// What all spill files together may take; a statement that needs more fails with `TooLarge`.
    pub spill_bytes_max: u64,
    /// Heavy statements that execute at once; further ones wait.
    pub concurrent_max: usize,
    /// Heavy statements that wait; a further one fails with `Busy` at once.
    pub waiting_max: usize,
    /// What a statement gets at most, and one whose [`Limits::deadline`] is `None`: its time waiting, planning and being
    /// read.
    pub deadline: Duration,
    /// What COPY … TO gets instead: its rows may be any number. As long as a snapshot may be held.
    pub copy_deadline: Duration,
    /// What a statement gets whose [`Limits::rows_max`] is `None`.
    pub rows_max: u64,
    /// Longest statement, in bytes.
    pub text_bytes_max: usize,
}

impl Options {
    /// For a process that does other work too: as many threads as cores, a quarter of a gibibyte, one statement per
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

    /// For a machine with little memory: one thread for light statements and one for the others, which spill early.
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

/// What one statement may take.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// From the call to the last row read; at most [`Options::deadline`], which is also what `None` is.
    pub deadline: Option<Duration>,
    /// Rows of the answer; `None` is [`Options::rows_max`].
    pub rows_max: Option<u64>,
    /// What happens when there are more.
    pub overflow: Overflow,
}

/// What happens when an answer has more rows than allowed. Never silence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The answer's stream ends in an error of kind `TooLarge`.
    #[default]
    Error,
    /// The stream ends after the limit and [`crate::Rows::truncated`] says so.
    Truncate,
}
