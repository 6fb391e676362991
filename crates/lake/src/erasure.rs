//! Erasure on request: removes deleted rows from all files and snapshots of a lake, at once and for good.
//!
//! A delete alone leaves the row in its data file until that file is rewritten: a position delete file hides it, and old
//! snapshots show it until they expire. An erasure rewrites each data file with a deleted row, drops the position delete
//! files, drops every snapshot and metadata file except the newest, and removes the files that nothing names any more. The
//! newest snapshot's manifests name only live files: neither bounds nor partition values of erased rows remain.
//!
//! It takes as many commits as it needs, each of bounded size. The first one fixes the list of files with deleted rows. A
//! file written later contains no row that was deleted by then, so the list gets shorter with each commit, however much is
//! written and deleted meanwhile. Once it is empty, old snapshots are dropped. After a crash a new request continues, with
//! the files first that have been untouched the longest.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use types::{Error, Kind, Lsn, Result, TableId};
use vfs::{Mutex, Rank};

/// The result of an erasure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErasureReport {
    /// Deleted rows that were still in files of the newest snapshot. Rows that only older snapshots showed are not counted.
    pub rows: u64,
    /// Data files that were rewritten.
    pub files_rewritten: u64,
    pub snapshots_dropped: u64,
    /// Removed data, position delete and metadata files, and their bytes.
    pub files_removed: u64,
    pub bytes_removed: u64,
    /// Unnamed files of another program that stay because all their rows are live: the program may be about to commit them.
    /// Other unnamed files are removed.
    pub foreign_files: u64,
}

/// Callback that receives the result, once.
pub type ErasureCallback = Box<dyn FnOnce(Result<ErasureReport>) + Send>;

/// Requests for erasure that are not done yet.
pub(crate) struct ErasureRequests(Mutex<BTreeMap<TableId, ErasureRequest>>);

/// The start of an erasure: the first commit that was made for it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ErasureStart {
    /// Rows deleted up to this lsn are erased.
    pub lsn: Lsn,
    /// Data files that contained such a row before that commit: all files to rewrite. This holds while the lake stands at
    /// this lsn or later, since newer files contain only rows that were live then.
    pub files: HashSet<Arc<str>>,
}

#[derive(Default)]
struct ErasureRequest {
    /// Waiters, each with the lsn up to which deleted rows are to be erased.
    waiters: Vec<(Lsn, ErasureCallback)>,
    so_far: ErasureReport,
    start: Option<Arc<ErasureStart>>,
    /// The lsn of a published commit without rows deleted up to it; files that only earlier commits needed are being
    /// removed.
    cleared: Option<Lsn>,
}

/// Waiters for one table, at most.
const WAITING_MAX: usize = 64;

impl Default for ErasureRequests {
    fn default() -> Self {
        ErasureRequests(Mutex::new(Rank::new(64, "lake erasures"), BTreeMap::new()))
    }
}

impl fmt::Debug for ErasureRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.lock().keys()).finish()
    }
}

impl ErasureRequest {
    /// Returns true if erasing up to `lsn` satisfies a waiter.
    fn is_met(&self, lsn: Lsn) -> bool {
        self.waiters.iter().any(|(asked, _)| *asked <= lsn)
    }
}

impl ErasureRequests {
    pub fn add(&self, table: TableId, lsn: Lsn, callback: ErasureCallback) {
        let mut requests = self.0.lock();
        let request = requests.entry(table).or_default();
        if request.waiters.len() >= WAITING_MAX {
            drop(requests);
            return callback(Err(Error::new(
                Kind::Busy,
                "too many requests wait for an erasure of this table already",
            )));
        }
        request.waiters.push((lsn, callback));
    }

    pub fn is_requested(&self, table: TableId) -> bool {
        self.0.lock().contains_key(&table)
    }

    /// Returns true if a table's state at `lsn` includes all deletes that some waiter wants erased.
    pub fn is_due(&self, table: TableId, lsn: Lsn) -> bool {
        self.0.lock().get(&table).is_some_and(|request| request.is_met(lsn))
    }

    pub fn begin(&self, table: TableId, start: ErasureStart) {
        if let Some(request) = self.0.lock().get_mut(&table) {
            request.start = Some(Arc::new(start));
        }
    }

    /// Restarts the erasure, because the lake was loaded again and may consist of other files.
    pub fn restart(&self, table: TableId) {
        if let Some(request) = self.0.lock().get_mut(&table) {
            request.start = None;
        }
    }

    /// Returns the start of the running erasure. Returns `None` if it has to begin, also because the lake stands before
    /// that start: it was restored from a copy.
    pub fn start(&self, table: TableId, position: Lsn) -> Option<Arc<ErasureStart>> {
        let requests = self.0.lock();
        requests.get(&table)?.start.clone().filter(|start| start.lsn <= position)
    }

    /// Records that a commit was published without rows deleted up to `lsn`.
    pub fn set_cleared(&self, table: TableId, lsn: Lsn) {
        if let Some(request) = self.0.lock().get_mut(&table) {
            request.cleared = Some(lsn);
        }
    }

    /// Returns the lsn up to which the lake was cleared, if that satisfies a waiter. Later rows and deletes do not count:
    /// the erasure of a table under constant writes would never end.
    pub fn cleared_to(&self, table: TableId) -> Option<Lsn> {
        self.0
            .lock()
            .get(&table)
            .and_then(|request| request.cleared.filter(|cleared| request.is_met(*cleared)))
    }

    /// Adds to the result so far.
    pub fn add_result(&self, table: TableId, done: ErasureReport) {
        if let Some(request) = self.0.lock().get_mut(&table) {
            let sum = &mut request.so_far;
            sum.rows += done.rows;
            sum.files_rewritten += done.files_rewritten;
            sum.snapshots_dropped += done.snapshots_dropped;
            sum.files_removed += done.files_removed;
            sum.bytes_removed += done.bytes_removed;
            sum.foreign_files += done.foreign_files;
        }
    }

    /// Ends an erasure that covered deletes up to `lsn`, and notifies its waiters. Waiters for later deletes get a new
    /// erasure. Otherwise constant requests would restart the present one forever.
    pub fn end(&self, table: TableId, lsn: Lsn, outcome: Result<()>) {
        let mut requests = self.0.lock();
        let Some(mut request) = requests.remove(&table) else { return };
        let is_over = |(asked, _): &mut (Lsn, ErasureCallback)| outcome.is_err() || *asked <= lsn;
        let over: Vec<(Lsn, ErasureCallback)> = request.waiters.extract_if(.., is_over).collect();
        let so_far = request.so_far;
        if !request.waiters.is_empty() {
            requests.insert(table, ErasureRequest { waiters: request.waiters, ..ErasureRequest::default() });
        }
        drop(requests);
        for (_, callback) in over {
            callback(outcome.clone().map(|()| so_far));
        }
    }

    /// Fails all requests for a table whose lake is gone.
    pub fn fail_all(&self, table: TableId) {
        self.end(table, Lsn(u64::MAX), Err(Error::not_found("the table was dropped, and its lake with it")));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn whoever_asks_for_more_keeps_nobody_waiting() {
        let _limit = testkit::limit(60);
        let (requests, table) = (ErasureRequests::default(), TableId(1));
        let (tell, told) = mpsc::channel();
        let ask = |lsn: u64| {
            let tell = tell.clone();
            requests.add(
                table,
                Lsn(lsn),
                Box::new(move |outcome| tell.send((lsn, outcome.unwrap())).unwrap()),
            );
        };
        ask(5);
        assert!(!requests.is_due(table, Lsn(4)) && requests.is_due(table, Lsn(6)));
        requests.set_cleared(table, Lsn(6));
        requests.add_result(table, ErasureReport { rows: 3, ..ErasureReport::default() });
        ask(9);
        assert_eq!(requests.cleared_to(table), Some(Lsn(6)));
        requests.end(table, Lsn(6), Ok(()));
        let waiters: Vec<(u64, ErasureReport)> = told.try_iter().collect();
        assert_eq!(waiters, [(5, ErasureReport { rows: 3, ..ErasureReport::default() })]);
        assert!(
            requests.is_requested(table) && !requests.is_due(table, Lsn(8)) && requests.is_due(table, Lsn(9))
        );
        assert_eq!(requests.cleared_to(table), None, "more was deleted since");
    }
}
