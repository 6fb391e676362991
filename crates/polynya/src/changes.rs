//! A table's commits as they come.

use std::time::Duration;

use types::{Error, Lsn, Result, TableId, name};

use crate::{Database, Page};

/// Rows and deletes of one page, about; a commit is never cut in two.
const PAGE_ROWS: usize = 8 * 1024;

/// Follows a table: what each commit inserted and deleted, in order, page by page.
///
/// It holds nothing back: no snapshot between two pages, no queue, no thread, and no writer waits for it. What it has not
/// read yet stays in the table, so it may be as slow as it likes, with one bound: a table remembers its newest 262,144
/// deletes. Who falls behind further is told so ([`crate::Kind::NotFound`], "cursor expired") and reads the table anew. Its
/// [`Changes::position`] is all that has to be kept to go on after a restart: nothing is missed and nothing comes twice.
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

    /// Everything up to here was handed out: where to go on from.
    pub fn position(&self) -> Lsn {
        self.after
    }

    /// The next page; `None` if nothing has happened to the table since. Does not wait.
    ///
    /// A row that was inserted and deleted since the last page is only in [`Page::deleted`]. An update is a delete of the
    /// old row id and an insert under a new one.
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
            // A table stands at its own last commit; others may have had later ones.
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

    /// [`Changes::poll`], waiting for a commit at most so long. Fails with [`crate::Kind::Closed`] once the database closes.
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
