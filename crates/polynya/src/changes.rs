//! A cursor over the commits of one table.

use std::time::Duration;

use types::{Error, Lsn, Result, TableId, name};

use crate::{Database, Page};

/// The approximate number of rows and deletes in one page. A commit is never split.
const PAGE_ROWS: usize = 8 * 1024;

/// Follows a table: returns the inserts and deletes of each commit, in order, page by page.
///
/// The follower keeps no snapshot between two pages, no queue and no thread, and no writer waits for it. Unread changes stay in
/// the table, so a follower may be slow, with one limit: a table keeps its newest 262,144 deletes. A follower further behind
/// fails with [`crate::Kind::NotFound`] ("cursor expired") and must read the whole table again. To resume after a restart, store
/// only [`Changes::position`]: then no change is missed and none comes twice.
#[derive(Clone)]
pub struct Changes {
    db: Database,
    table: String,
    id: TableId,
    after: Lsn,
}

impl Changes {
    pub(crate) fn new(db: Database, table: &str, after: Lsn) -> Result<Self> {
        let snapshot = db.snapshot();
        let found = snapshot.table(table)?;
        if after > snapshot.lsn() {
            return Err(Error::invalid(format!(
                "lsn {after} is not there yet; the newest is {}",
                snapshot.lsn()
            )));
        }
        Ok(Changes { db, table: found.def().name.clone(), id: found.def().id, after })
    }

    /// Returns the lsn up to which all changes were returned, which is the position to resume from.
    pub fn position(&self) -> Lsn {
        self.after
    }

    /// Returns the next page, or `None` if the table has not changed since the last one. Does not wait.
    ///
    /// A row that was inserted and deleted since the last page is only in [`Page::deleted`]. An update is a delete of the old row
    /// id and an insert under a new one.
    pub fn poll(&mut self) -> Result<Option<Page>> {
        loop {
            self.db.engine.view(&self.db.principal)?;
            let snapshot = self.db.snapshot();
            let gone = || {
                let name = name::short_table_name(&self.table);
                Error::not_found(format!("table `{name}` was dropped or renamed"))
            };
            let table = snapshot.table(&self.table).map_err(|_| gone())?;
            let table = Some(table).filter(|table| table.def().id == self.id).ok_or_else(gone)?;
            // The table's lsn is that of its own last commit; other tables may have later ones.
            if table.lsn() <= self.after {
                self.after = self.after.max(snapshot.lsn());
                return Ok(None);
            }
            let page = table.changes(self.after, PAGE_ROWS, table.all_columns())?;
            self.after = page.next;
            if !page.inserted.is_empty() || !page.deleted.is_empty() {
                return Ok(Some(page));
            }
        }
    }

    /// Returns the next page like [`Changes::poll`], but waits up to `timeout` for a commit. Fails with [`crate::Kind::Closed`]
    /// once the database closes.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<Page>> {
        let deadline = std::time::Instant::now().checked_add(timeout);
        loop {
            if let Some(page) = self.poll()? {
                return Ok(Some(page));
            }
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(std::time::Instant::now()),
                None => timeout,
            };
            // Commits to other tables end the wait, too.
            if left.is_zero() || !self.db.engine.wait_for_commit(self.after, left)? {
                return self.poll();
            }
        }
    }
}
