//! How a database is run. Every limit that bounds a queue, a buffer or a file stands here (R2).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use table::compaction::Policy;

use crate::backup::Place;

/// Settings of one database. The defaults suit a machine with 2 cores and 2 GiB.
#[derive(Clone, Debug)]
pub struct Options {
    pub log: commitlog::Options,
    /// Where the log is archived: a folder below it for each database. `None`: nowhere.
    pub archive: Option<PathBuf>,
    /// Where it is archived if that is no folder of this machine; counts before `archive`.
    pub archive_place: Option<Arc<dyn Place>>,
    /// Small commits are archived together after this; a full log file is at once.
    pub archive_wait: Duration,
    /// A table's head is sealed into a segment once it holds this many bytes.
    pub seal_bytes: u64,
    /// A table's head is sealed once it holds this many rows.
    pub seal_rows: u64,
    /// Log files that may be kept for the sake of unsealed rows; beyond it the table whose rows hold the log back is
    /// sealed, however small its head.
    pub log_files_max: u64,
    /// Debt (head and inbox bytes) from which ingest is slowed down.
    pub debt_soft_bytes: u64,
    /// Debt at which writes are refused with [`types::Kind::Busy`].
    pub debt_hard_bytes: u64,
    /// Transactions and bytes that may wait for the commit thread.
    pub inbox_len_max: usize,
    pub inbox_bytes_max: u64,
    /// A commit group takes at most this many bytes.
    pub group_bytes_max: u64,
    /// The longest that [`crate::Engine::pace`] asks an ingest request to wait.
    pub pace_max: Duration,
    /// Rows that a materializer takes in at once: some tens of milliseconds of work, so that closing and seals do not wait
    /// for long.
    pub step_rows: usize,
    /// Of a table with at most so many rows a unique index is checked by whoever makes it; of larger ones the index is built
    /// first. At most 2^18, which the table keeps in memory then.
    pub unique_at_once_rows: u64,
    /// How long a row that ended can still be read by who reads the past.
    pub history: Duration,
    /// Files of such rows, of all tables together; beyond it the oldest go before their time.
    pub history_bytes_max: u64,
    /// How long a request with an idempotency key is remembered.
    pub remember_for: Duration,
    /// At most so many of them are; the oldest go first.
    pub remember_max: u64,
    /// When segments are merged.
    pub compaction: Policy,
    /// Segments whose rows are all older than this are compressed. `None`: none are, and those that were stay readable.
    pub zstd_after: Option<Duration>,
    /// What transactions that are open for a while may take.
    pub transactions: crate::Limits,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            log: commitlog::Options::default(),
            archive: None,
            archive_place: None,
            archive_wait: Duration::from_secs(60),
            seal_bytes: 48 << 20,
            seal_rows: 1 << 20,
            log_files_max: 8,
            debt_soft_bytes: 192 << 20,
            debt_hard_bytes: 512 << 20,
            inbox_len_max: 16_384,
            inbox_bytes_max: 192 << 20,
            group_bytes_max: 16 << 20,
            pace_max: Duration::from_millis(250),
            step_rows: 8 * table::BATCH_ROWS,
            unique_at_once_rows: table::unique::ENTERED_AT_ONCE_MAX,
            history: Duration::from_secs(600),
            history_bytes_max: 1 << 30,
            remember_for: Duration::from_secs(24 * 60 * 60),
            remember_max: 10_000_000,
            compaction: Policy::default(),
            zstd_after: None,
            transactions: crate::Limits::default(),
        }
    }
}

impl Options {
    /// For a machine with little memory: a database of a million small rows within 64 MiB of its own, while it is written,
    /// read and opened. Heads are sealed early, little may wait, merges stay small, so there are more segments to look into.
    ///
    /// One transaction is in memory several times while it is committed, whatever is set here: large loads come in parts.
    pub fn edge() -> Self {
        Options {
            log: commitlog::Options { file_bytes: 8 << 20, spare_files: 2, ..commitlog::Options::default() },
            seal_bytes: 2 << 20,
            seal_rows: 1 << 15,
            log_files_max: 4,
            debt_soft_bytes: 4 << 20,
            debt_hard_bytes: 12 << 20,
            inbox_len_max: 1_024,
            inbox_bytes_max: 4 << 20,
            group_bytes_max: 1 << 20,
            // Little may wait, so writers must slow down to what a busy machine's background threads get done.
            pace_max: Duration::from_secs(1),
            step_rows: 2 * table::BATCH_ROWS,
            unique_at_once_rows: 1 << 14,
            history: Duration::from_secs(60),
            history_bytes_max: 64 << 20,
            compaction: Policy { segment_bytes_max: 64 << 20, keyed_rows_max: 1 << 18, ..Policy::default() },
            transactions: crate::Limits {
                bytes_max: 8 << 20,
                open_max: 16,
                bytes_of_all_max: 16 << 20,
                ..crate::Limits::default()
            },
            ..Options::default()
        }
    }
}
