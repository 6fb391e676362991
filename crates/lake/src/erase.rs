//! Erasure on request: rows that were deleted leave the files and snapshots of the lake, at once and for good.
//!
//! A delete alone leaves the row in its data file, beside a position that says that it is gone, until that file is written
//! anew; and old snapshots show it until they expire. An erasure writes anew each data file that holds a deleted row,
//! drops the files of positions, lets go of every snapshot and metadata file but the newest, and removes the files that
//! nothing names any more. Manifests of the newest snapshot name only what is in the table: neither bounds nor partition
//! values of what went.
//!
//! It takes as many commits as it needs, each bounded. The first one settles which files hold a deleted row: what is written
//! from then on holds none that was deleted by then, and other files get none, so that there are fewer of these with each
//! commit, however much is written and deleted meanwhile. Once none is left, old snapshots go. Whatever crashed when: asked
//! again, it goes on, with the files first that are untouched for the longest time.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use types::{Error, Kind, Lsn, Result, TableId};
use vfs::{Mutex, Rank};

/// What an erasure came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Erased {
    /// Deleted rows that the newest snapshot's files still held. Copies of rows that only older snapshots named are not
    /// counted.
    pub rows: u64,
    /// Data files that were written anew.
    pub files_rewritten: u64,
    pub snapshots_dropped: u64,
    /// Files that were removed, of data, positions and metadata, and their size.
    pub files_removed: u64,
    pub bytes_removed: u64,
    /// Files beside them that another program wrote and nothing names, with rows that are all in the table: what it may be
    /// about to commit. Others of them are removed.
    pub foreign_files: u64,
}

/// Hears how it went, once.
pub type Told = Box<dyn FnOnce(Result<Erased>) + Send>;

/// What was asked for and is not done.
pub(crate) struct Requests(Mutex<BTreeMap<TableId, Request>>);

/// Where an erasure began: with the first commit that was made for it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    /// What was deleted by then is erased.
    pub lsn: Lsn,
    /// The data files before that commit which held any of it. They are all that is to be written anew, wherever the lake
    /// stands at that lsn or later: a file that came since holds only rows that were live then.
    pub files: HashSet<Arc<str>>,
}

#[derive(Default)]
struct Request {
    /// Who waits, and by when rows were deleted that are meant.
    told: Vec<(Lsn, Told)>,
    so_far: Erased,
    begun: Option<Arc<Begun>>,
    /// A commit holds nothing of what was deleted by then, and what only those before it needed is being removed.
    cleared: Option<Lsn>,
}

/// Who may wait for one table.
const WAITING_MAX: usize = 64;

impl Default for Requests {
    fn default() -> Self {
        Requests(Mutex::new(Rank::new(64, "lake erasures"), BTreeMap::new()))
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.lock().keys()).finish()
    }
}

impl Request {
    /// Whether what was deleted up to `lsn` is all that somebody waits for.
    fn is_met(&self, lsn: Lsn) -> bool {
        self.told.iter().any(|(asked, _)| *asked <= lsn)
    }
}

impl Requests {
    pub fn add(&self, table: TableId, lsn: Lsn, told: Told) {
        let mut requests = self.0.lock();
        let request = requests.entry(table).or_default();
        if request.told.len() >= WAITING_MAX {
            drop(requests);
            return told(Err(Error::new(Kind::Busy, "too many wait for an erasure of this table already")));
        }
        request.told.push((lsn, told));
    }

    pub fn is_asked(&self, table: TableId) -> bool {
        self.0.lock().contains_key(&table)
    }

    /// Whether a table as it is at `lsn` shows all deletes that somebody waits for.
    pub fn is_due(&self, table: TableId, lsn: Lsn) -> bool {
        self.0.lock().get(&table).is_some_and(|request| request.is_met(lsn))
    }

    pub fn begin(&self, table: TableId, begun: Begun) {
        if let Some(request) = self.0.lock().get_mut(&table) {
            request.begun = Some(Arc::new(begun));
        }
    }

    /// What is there was read anew, and may be other files.
    pub fn begin_anew(&self, table: TableId) {
        if let Some(request) = self.0.lock().get_mut(&table) {
            request.begun = None;
        }
    }

    /// Where the erasure that is under way began; `None`: it is to begin. So it is, too, if the lake stands before that: it was put
    /// back.
    pub fn begun(&self, table: TableId, stands: Lsn) -> Option<Arc<Begun>> {
        let requests = self.0.lock();
        requests.get(&table)?.begun.clone().filter(|begun| begun.lsn <= stands)
    }

    /// A commit was made that names nothing of what was deleted up to `lsn`.
    pub fn clear(&self, table: TableId, lsn: Lsn) {
        if let Some(request) = self.0.lock().get_mut(&table) {
            request.cleared = Some(lsn);
        }
    }

    /// Up to where the lake was cleared, if that is what somebody waits for. Rows and deletes that came since are no matter of it:
    /// a table that is written all the time would never be done.
    pub fn cleared(&self, table: TableId) -> Option<Lsn> {
        self.0
            .lock()
            .get(&table)
            .and_then(|request| request.cleared.filter(|cleared| request.is_met(*cleared)))
    }

    /// Adds to what was done.
    pub fn add_up(&self, table: TableId, done: Erased) {
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

    /// Ends the erasure of a table whose state at `lsn` was looked at. Whoever asked for more since then waits for another one: it
    /// would else be begun again and again where somebody asks all the time.
    pub fn end(&self, table: TableId, lsn: Lsn, outcome: Result<()>) {
        let mut requests = self.0.lock();
        let Some(mut request) = requests.remove(&table) else { return };
        let is_over = |(asked, _): &mut (Lsn, Told)| outcome.is_err() || *asked <= lsn;
        let over: Vec<(Lsn, Told)> = request.told.extract_if(.., is_over).collect();
        let so_far = request.so_far;
        if !request.told.is_empty() {
            requests.insert(table, Request { told: request.told, ..Request::default() });
        }
        drop(requests);
        for (_, told) in over {
            told(outcome.clone().map(|()| so_far));
        }
    }

    /// The table has no lake any more.
    pub fn drop_of(&self, table: TableId) {
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
        let (requests, table) = (Requests::default(), TableId(1));
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
        requests.clear(table, Lsn(6));
        requests.add_up(table, Erased { rows: 3, ..Erased::default() });
        ask(9);
        assert_eq!(requests.cleared(table), Some(Lsn(6)));
        requests.end(table, Lsn(6), Ok(()));
        let told: Vec<(u64, Erased)> = told.try_iter().collect();
        assert_eq!(told, [(5, Erased { rows: 3, ..Erased::default() })]);
        assert!(
            requests.is_asked(table) && !requests.is_due(table, Lsn(8)) && requests.is_due(table, Lsn(9))
        );
        assert_eq!(requests.cleared(table), None, "more was deleted since");
    }
}
