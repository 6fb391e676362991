//! Configuration of a database. Every limit of a queue, a buffer or a file is here (R2).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use table::compaction::Policy;

use crate::backup::BackupStore;

/// Settings of one database. The defaults suit a machine with 2 cores and 2 GiB.
#[derive(Clone, Debug)]
pub struct Options {
    pub log: commitlog::Options,
    /// Folder in which the log is archived, with a folder for each database in it. `None`: the log is not archived.
    pub archive: Option<PathBuf>,
    /// Remote store in which the log is archived. It takes precedence over `archive`.
    pub archive_store: Option<Arc<dyn BackupStore>>,
    /// Time for which small commits are gathered before they are archived together; a full log file is archived at once.
    pub archive_wait: Duration,
    /// Bytes of a table's head at which it is sealed into a segment.
    pub seal_bytes: u64,
    /// Rows of a table's head at which it is sealed.
    pub seal_rows: u64,
    /// Log files that may be kept for the sake of unsealed rows. With more, the table whose rows hold the log back is
    /// sealed, however small its head.
    pub log_files_max: u64,
    /// Debt (head and inbox bytes) from which ingest is slowed down.
    pub debt_soft_bytes: u64,
    /// Debt at which writes are refused with [`types::Kind::Busy`].
    pub debt_hard_bytes: u64,
    /// Transactions and bytes that may wait for the commit thread.
    pub inbox_len_max: usize,
    pub inbox_bytes_max: u64,
    /// Bytes of a commit group at most.
    pub group_bytes_max: u64,
    /// Longest wait that [`crate::Engine::pace`] asks of an ingest request.
    pub pace_max: Duration,
    /// Rows that a materializer takes in at once: some tens of milliseconds of work, so that closing and seals do not wait
    /// long.
    pub step_rows: usize,
    /// Rows of a table up to which the creator of a unique index compares them itself; for larger tables the index is built
    /// first. At most 2^18: the table then keeps the values in memory.
    pub unique_at_once_rows: u64,
    /// Time for which a deleted row version can still be read by readers of the past.
    pub history: Duration,
    /// Bytes of files with such rows, of all tables together. Beyond it the oldest are removed before their time.
    pub history_bytes_max: u64,
    /// Time for which a request with an idempotency key is remembered.
    pub remember_for: Duration,
    /// Number of such requests that are remembered; the oldest go first.
    pub remember_max: u64,
    /// The policy for merging segments.
    pub compaction: Policy,
    /// Age of the newest row of a segment at which the segment is compressed. `None`: none are compressed, and compressed
    /// ones stay readable.
    pub zstd_after: Option<Duration>,
    /// Limits of open transactions.
    pub transactions: crate::TransactionLimits,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            log: commitlog::Options::default(),
            archive: None,
            archive_store: None,
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
            transactions: crate::TransactionLimits::default(),
        }
    }
}

impl Options {
    /// Options for a machine with little memory. A database of a million small rows takes at most 64 MiB of its own while it
    /// is written, read and opened. Heads are sealed early, few requests may wait, and merges stay small, so there are more
    /// segments to look into.
    ///
    /// A transaction is in memory several times while it is committed, whatever these options say: large loads must come in
    /// parts.
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
            // Few requests may wait, so writers must slow down to the speed of a busy machine's background threads.
            pace_max: Duration::from_secs(1),
            step_rows: 2 * table::BATCH_ROWS,
            unique_at_once_rows: 1 << 14,
            history: Duration::from_secs(60),
            history_bytes_max: 64 << 20,
            compaction: Policy { segment_bytes_max: 64 << 20, keyed_rows_max: 1 << 18, ..Policy::default() },
            transactions: crate::TransactionLimits {
                bytes_max: 8 << 20,
                open_max: 16,
                bytes_of_all_max: 16 << 20,
                ..crate::TransactionLimits::default()
            },
            ..Options::default()
        }
    }
}
