//! Counters of the engine. The threads that do the work write them; anybody reads them without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use types::Lsn;

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn take(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub commits: Counter,
    pub groups: Counter,
    pub rows: Counter,
    pub deletes: Counter,
    /// Refused requests by reason, as in [`RefusedCounts`].
    pub refused_debt: Counter,
    pub refused_inbox: Counter,
    pub refused_lag: Counter,
    pub refused_transactions: Counter,
    pub conflicts: Counter,
    /// Bytes of all heads in the newest root.
    pub head_bytes: Counter,
    /// Bytes of those heads that running seals have already written.
    pub sealing_bytes: Counter,
    pub seals: Counter,
    pub compactions: Counter,
    /// Segments that were rewritten in compressed form.
    pub compressions: Counter,
    /// Segments whose rows were evicted to the lake.
    pub evictions: Counter,
    pub manifests: Counter,
    /// Number of times that deleted rows were dropped from the past of a table.
    pub forgotten: Counter,
    pub background_bytes: Counter,
    pub background_errors: Counter,
    pub removed_segments: Counter,
    /// Bytes of replaced segments that are not removed yet.
    pub held_bytes: Counter,
}

impl Counters {
    pub fn refused(&self) -> RefusedCounts {
        RefusedCounts {
            debt: self.refused_debt.get(),
            inbox: self.refused_inbox.get(),
            lag: self.refused_lag.get(),
            transactions: self.refused_transactions.get(),
        }
    }
}

/// Requests that were refused with [`types::Kind::Busy`], by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedCounts {
    /// Writes refused because more was written than could be sealed.
    pub debt: u64,
    /// Writes refused because the inbox was full.
    pub inbox: u64,
    /// Writes refused because an index or a lake was too far behind.
    pub lag: u64,
    /// Transactions refused because too many were open or held too much.
    pub transactions: u64,
}

/// State of the engine. Counts begin when it is opened.
#[derive(Clone, Debug)]
pub struct Status {
    /// The last commit that readers see.
    pub lsn: Lsn,
    pub tables: usize,
    pub commits: u64,
    /// Commit groups: frames written.
    pub groups: u64,
    pub rows: u64,
    pub deletes: u64,
    pub refused: RefusedCounts,
    pub conflicts: u64,
    /// Bytes in the inbox, which wait for the commit thread.
    pub inbox_bytes: u64,
    /// Bytes of rows that are not in segments yet.
    pub head_bytes: u64,
    /// Head and inbox bytes, by which ingest is paced. Pacing starts at the soft limit and refusal at the hard limit.
    pub debt_bytes: u64,
    pub debt_soft_bytes: u64,
    pub debt_hard_bytes: u64,
    /// Number of replaced roots that are still held, and the age of the oldest.
    pub roots_retired: usize,
    pub oldest_root_age: Duration,
    /// Bytes of replaced files. They stay while a snapshot holds them, and at least until the next manifest.
    pub held_bytes: u64,
    pub seals: u64,
    pub compactions: u64,
    /// Compactions that compressed a cold segment.
    pub compressions: u64,
    /// Segments whose rows were evicted to the lake.
    pub evictions: u64,
    pub manifests: u64,
    /// Number of times that deleted rows were dropped from the past of a table.
    pub forgotten: u64,
    /// Bytes of the files that hold deleted rows for readers of the past.
    pub past_bytes: u64,
    /// Bytes written by seals and compactions.
    pub background_bytes: u64,
    pub background_errors: u64,
    /// Segments whose files were removed after they were replaced.
    pub removed_segments: u64,
    /// Open transactions, the bytes that they hold together, and the number of those rolled back because their time was up.
    pub transactions_open: usize,
    pub transactions_bytes: u64,
    pub transactions_expired: u64,
    /// Number of times that a reading thread of this process waited for the disk, because the memory that it touched was not
    /// resident. It may belong to a segment that was not read lately, or to the program itself.
    pub read_major_faults: u64,
    pub log: commitlog::Stats,
    /// The log's archive; `None` without one.
    pub archive: Option<crate::ArchiveStatus>,
    /// The error because of which writes are refused for good, if they are.
    pub write_error: Option<types::Error>,
    pub closing: bool,
}
