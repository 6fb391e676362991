//! The change feed: the rows and deletes that were committed between two lsns.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use types::{Error, Lsn, ROW_ID, Result, RowId};

use crate::lsn_runs;
use crate::{Projection, Snapshot};

/// One page of a table's change feed: the commits with `after < lsn ≤ next`.
///
/// No row is both inserted and deleted in one page, so either list may be applied first. Deletes name rows of earlier
/// pages, and rows that were written and deleted between two pages. A follower ignores the ids that it never saw.
#[derive(Clone, Debug)]
pub struct Changes {
    /// Rows in row-id order, which is lsn order.
    pub inserted: Vec<Inserted>,
    /// Deleted rows with the lsn of their delete, ascending by lsn, then row id.
    pub deleted: Vec<(RowId, Lsn)>,
    /// The `after` of the next page.
    pub next: Lsn,
}

/// A page of a table's change feed before its rows are read. [`Snapshot::inserted_among`] reads them, in as many parts as the
/// caller likes, out of this snapshot or any later one. A later snapshot leaves out the rows that were deleted meanwhile; their
/// deletes are listed in a later page.
#[derive(Clone, Debug)]
pub struct ChangesPage {
    /// The first row id of the page. Its rows are the live ones from here …
    pub first: RowId,
    /// … to before this one.
    pub end: RowId,
    /// Deleted rows with the lsn of their delete, ascending by lsn, then row id.
    pub deleted: Vec<(RowId, Lsn)>,
    /// The `after` of the next page.
    pub next: Lsn,
}

/// Inserted rows, and the commits that wrote them.
#[derive(Clone, Debug)]
pub struct Inserted {
    pub batch: RecordBatch,
    /// The commits in order, each with the number of the batch's rows that it wrote.
    pub runs: Vec<(Lsn, usize)>,
}

/// The range of row ids that one commit wrote.
struct Commit {
    lsn: u64,
    first: u64,
    rows: u64,
}

impl Snapshot {
    /// Returns the commits after `after`: whole ones, in lsn order, up to about `limit` rows and deletes (at least one commit).
    /// The caller continues with [`Changes::next`] until it equals [`Snapshot::lsn`].
    ///
    /// Rows that were written in between and are no longer live in this snapshot are left out; their deletes are listed.
    /// Fails with [`types::Kind::NotFound`] if the delete history does not reach back to `after`
    /// ([`Snapshot::history_floor`]): then the follower scans this snapshot and goes on from its lsn.
    pub fn changes(&self, after: Lsn, limit: usize, projection: &Projection) -> Result<Changes> {
        let ChangesPage { first, end, deleted, next } = self.changes_page(after, limit)?;
        let inserted = self.inserted_among(first, end, usize::MAX, projection)?;
        Ok(Changes { inserted, deleted, next })
    }

    /// Plans a page of [`Snapshot::changes`] without reading its rows: for callers that must not hold all rows of a large commit
    /// at once.
    pub fn changes_page(&self, after: Lsn, limit: usize) -> Result<ChangesPage> {
        if self.parts.past_view.is_some() {
            return Err(Error::internal(
                "changes are read from the newest snapshot, not from one of the past",
            ));
        }
        if after < self.history_floor() {
            return Err(Error::not_found("cursor expired: deletes are remembered only for a while")
                .with("table", &self.def().name)
                .with("asked after lsn", after)
                .with("known after lsn", self.history_floor())
                .hint("read the whole table at one lsn and follow the changes from there"));
        }
        let limit = limit.max(1);
        let (commits, more_rows) = self.commits_after(after, limit)?;
        let (deletes, more_deletes) = self.parts.history.after(after, limit);

        // A list that was cut off is complete up to its last commit.
        let mut end = self.lsn.0;
        if more_rows {
            end = end.min(commits.last().map_or(end, |c| c.lsn));
        }
        if more_deletes {
            end = end.min(deletes.last().map_or(end, |d| d.0));
        }
        // Takes whole commits while they fit, but at least one.
        let (mut row_at, mut delete_at, mut taken, mut next) = (0, 0, 0, None);
        loop {
            let lsns = [commits.get(row_at).map(|c| c.lsn), deletes.get(delete_at).map(|d| d.0)];
            let Some(lsn) = lsns.into_iter().flatten().min().filter(|lsn| *lsn <= end) else { break };
            let rows_end = row_at + commits[row_at..].partition_point(|c| c.lsn <= lsn);
            let deletes_end = delete_at + deletes[delete_at..].partition_point(|d| d.0 <= lsn);
            let rows: u64 = commits[row_at..rows_end].iter().map(|c| c.rows).sum();
            let size = rows + (deletes_end - delete_at) as u64;
            if next.is_some() && taken + size > limit as u64 {
                end = end.min(next.unwrap_or(end));
                break;
            }
            (row_at, delete_at, taken, next) = (rows_end, deletes_end, taken + size, Some(lsn));
        }
        let rows = &commits[..row_at];
        let first = RowId(rows.first().map_or(0, |commit| commit.first));
        let stop = RowId(rows.last().map_or(0, |commit| commit.first + commit.rows));
        let mut deleted: Vec<_> =
            deletes[..delete_at].iter().map(|(lsn, row)| (Lsn(*lsn), RowId(*row))).collect();
        deleted.sort_unstable();
        let deleted = deleted.into_iter().map(|(lsn, row)| (row, lsn)).collect();
        Ok(ChangesPage { first, end: stop, deleted, next: Lsn(end.max(after.0)) })
    }

    /// Returns the last row of the commits up to `lsn`: no live row up to it is of a later commit, and no live row after it is of
    /// one of these.
    pub fn last_row_at(&self, lsn: Lsn) -> Result<RowId> {
        let later =
            |runs: &[lsn_runs::LsnRun]| runs.get(runs.partition_point(|run| run.lsn <= lsn.0)).copied();
        for entry in self.parts.segments.iter().filter(|e| e.segment.meta().last_lsn > lsn) {
            if let Some(run) = later(entry.segment.runs()?) {
                return Ok(RowId(run.first - 1));
            }
        }
        let in_head = self.parts.head.batches().iter().find_map(|batch| later(&batch.runs));
        Ok(RowId(in_head.map_or(self.parts.next_row, |run| run.first) - 1))
    }

    /// Returns the commits after `after` that wrote rows: whole ones, ending with the one that reaches `limit` rows. The flag is
    /// true if there may be more.
    fn commits_after(&self, after: Lsn, limit: usize) -> Result<(Vec<Commit>, bool)> {
        let mut commits: Vec<Commit> = Vec::new();
        let mut rows = 0;
        let segments = self.parts.segments.iter().filter(|e| e.segment.meta().last_lsn > after);
        let sealed = segments.map(|e| e.segment.runs().map(|runs| (runs, e.segment.meta().last_row.0 + 1)));
        let head = self.parts.head.batches().iter().map(|b| Ok((b.runs.as_slice(), b.end())));
        for source in sealed.chain(head) {
            let (runs, end) = source?;
            let from = runs.partition_point(|run| run.lsn <= after.0);
            for (i, run) in runs.iter().enumerate().skip(from) {
                if rows >= limit as u64 && commits.last().is_some_and(|last| last.lsn != run.lsn) {
                    return Ok((commits, true));
                }
                let stop = runs.get(i + 1).map_or(end, |next| next.first);
                commits.push(Commit { lsn: run.lsn, first: run.first, rows: stop - run.first });
                rows += stop - run.first;
            }
        }
        Ok((commits, false))
    }

    /// Reads up to `limit` live rows from `first` to before `end`, with the commits that wrote them.
    pub fn inserted_among(
        &self,
        first: RowId,
        end: RowId,
        limit: usize,
        projection: &Projection,
    ) -> Result<Vec<Inserted>> {
        let (from, end) = (first.0, end.0);
        let ids_only = self.projection(&[ROW_ID])?;
        let mut inserted = Vec::new();
        let mut left = limit;
        if from >= end {
            return Ok(inserted);
        }
        for piece in self.pieces_from(from) {
            if piece.row_range().0.0 >= end || left == 0 {
                break;
            }
            let batch = piece.read_rows(from, end, left, projection)?;
            if batch.num_rows() == 0 {
                continue;
            }
            let ids = piece.read_rows(from, end, left, &ids_only)?;
            left -= batch.num_rows();
            let commit_runs = piece.runs()?;
            let mut runs: Vec<(Lsn, usize)> = Vec::new();
            for row in ids.column(0).as_primitive::<Int64Type>().values() {
                let lsn = Lsn(lsn_runs::lsn_at(commit_runs, *row as u64));
                match runs.last_mut() {
                    Some((last, rows)) if *last == lsn => *rows += 1,
                    _ => runs.push((lsn, 1)),
                }
            }
            inserted.push(Inserted { batch, runs });
        }
        Ok(inserted)
    }
}
