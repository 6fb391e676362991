//! The position of one follower in the change feed of a table.
//!
//! It keeps a position and no rows. A page of the feed is read in slices, each from the newest state and only after the one
//! before was sent. So a slow follower holds neither a snapshot nor more than one slice, however large a commit is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Int64Type;
use table::{ChangesPage, Inserted, Snapshot};
use tokio::sync::watch;
use types::{Error, Lsn, Principal, Result as CoreResult, RowId, TableId, name};
use wire::out;

use super::encoder::{ChangeKind, FeedEncoder};
use crate::app::Shared;
use crate::auth::Admitted;
use crate::failure::Result;
use crate::partition::Partition;
use crate::revocation;

/// Approximate number of rows and deletes of a page. A larger page is a single commit.
const PAGE_ROWS: usize = 2_000;
/// Number of rows that are read for one slice.
const SLICE_ROWS: usize = 2_000;
/// Approximate bytes of text of one slice.
const SLICE_BYTES: usize = 256 << 10;
/// Number of rows that are encoded between two checks of the text's length.
const STEP_ROWS: usize = 16;
pub const HEARTBEAT: Duration = Duration::from_secs(15);

pub struct Feed {
    pub app: Shared,
    principal: Arc<Principal>,
    admitted: Admitted,
    full_name: String,
    id: TableId,
    /// All changes up to this commit were sent.
    after: Lsn,
    /// Restricts the rows to this partition. It is parsed for each slice, with the table's columns at that time.
    partition: Option<Arc<str>>,
    /// The page after `after` that is being sent.
    page: Option<OpenPage>,
    lsn: watch::Receiver<Lsn>,
    stopping: watch::Receiver<bool>,
    /// The time at which something was last sent.
    last_sent: Instant,
}

/// The unsent rest of a page.
struct OpenPage {
    page: ChangesPage,
    /// Number of its deletes that were sent.
    deleted: usize,
    /// True if anything of the page was sent.
    begun: bool,
}

impl Feed {
    pub fn new(
        app: Shared,
        principal: Arc<Principal>,
        admitted: Admitted,
        table: &Snapshot,
        after: Lsn,
        partition: Option<String>,
    ) -> Feed {
        let (lsn, stopping) = (app.lsn.subscribe(), app.stopping.subscribe());
        let (full_name, id) = (table.def().name.clone(), table.def().id);
        let (last_sent, partition) = (Instant::now(), partition.map(Into::into));
        Feed {
            app,
            principal,
            admitted,
            full_name,
            id,
            after,
            partition,
            page: None,
            lsn,
            stopping,
            last_sent,
        }
    }

    /// Returns the next piece of the feed, which is never empty; `None` once the server stops.
    ///
    /// If the future is dropped before it resolves, the changes that it was about to return are lost, so the feed must not be
    /// used after that.
    pub async fn next<F: FeedEncoder>(&mut self) -> Result<Option<F::Piece>> {
        loop {
            if *self.stopping.borrow() {
                return Ok(None);
            }
            self.check_key()?;
            // The receiver is marked before the view is taken, so that any later change wakes this task.
            self.lsn.borrow_and_update();
            let view = self.app.engine.view(&self.principal)?;
            let gone = || {
                Error::not_found(format!("table `{}` was dropped", name::short_table_name(&self.full_name)))
            };
            let snapshot = view.find(&self.full_name).filter(|s| s.def().id == self.id).ok_or_else(gone)?;
            if self.page.is_some() || snapshot.lsn() > self.after {
                let (after, page, partition) = (self.after, self.page.take(), self.partition.clone());
                let slice =
                    self.app.work.run(move || read_slice::<F>(&snapshot, after, page, partition)).await??;
                (self.after, self.page) = (slice.after, slice.page);
                let quiet = self.last_sent.elapsed() >= HEARTBEAT;
                if slice.encoder.bytes() > 0 {
                    return self.send(slice.encoder);
                }
                if quiet {
                    return self.send(self.heartbeat::<F>());
                }
                continue;
            }
            let newest = view.lsn();
            drop((view, snapshot));
            tokio::select! {
                _ = self.lsn.changed() => {}
                _ = self.stopping.changed() => {}
                () = tokio::time::sleep(HEARTBEAT.saturating_sub(self.last_sent.elapsed())) => {
                    // The table has no changes up to here, so a client may resume from here.
                    self.after = self.after.max(newest);
                    return self.send(self.heartbeat::<F>());
                }
            }
        }
    }

    fn heartbeat<F: FeedEncoder>(&self) -> F {
        let mut encoder = F::default();
        match &self.page {
            None => encoder.resume(self.after),
            Some(_) => encoder.keep_alive(),
        }
        encoder
    }

    fn send<F: FeedEncoder>(&mut self, encoder: F) -> Result<Option<F::Piece>> {
        self.last_sent = Instant::now();
        Ok(Some(encoder.finish()?))
    }

    /// Fails if the key was removed or changed since the stream began.
    fn check_key(&self) -> Result<()> {
        if self.admitted.still_holds(self.app.engine.root().keys()) {
            Ok(())
        } else {
            Err(revocation::refusal(&self.principal))
        }
    }
}

/// The result of one slice.
struct Slice<F> {
    after: Lsn,
    page: Option<OpenPage>,
    encoder: F,
}

/// Continues a page, or begins the one after `after`.
fn read_slice<F: FeedEncoder>(
    snapshot: &Snapshot,
    after: Lsn,
    page: Option<OpenPage>,
    partition: Option<Arc<str>>,
) -> CoreResult<Slice<F>> {
    // The columns may have changed since the last slice.
    let partition = partition.map(|asked| Partition::parse(snapshot.def(), &asked)).transpose()?;
    let mut open = match page {
        Some(open) => open,
        None => OpenPage { page: snapshot.changes_page(after, PAGE_ROWS)?, deleted: 0, begun: false },
    };
    let mut encoder = F::default();
    let is_whole = open.write(snapshot, partition.as_ref(), &mut encoder)?;
    open.begun |= encoder.bytes() > 0;
    if !is_whole {
        return Ok(Slice { after, page: Some(open), encoder });
    }
    let after = open.page.next;
    if open.begun {
        encoder.resume(after);
    }
    Ok(Slice { after, page: None, encoder })
}

impl OpenPage {
    /// Writes some of the rest of the page, in the order of lsns with deletes first. Returns true if that was all of it.
    fn write(
        &mut self,
        snapshot: &Snapshot,
        partition: Option<&Partition>,
        encoder: &mut impl FeedEncoder,
    ) -> CoreResult<bool> {
        let columns = snapshot.all_columns();
        let inserted = snapshot.inserted_among(self.page.first, self.page.end, SLICE_ROWS, columns)?;
        let json = out::json::Writer::new(snapshot.arrow_schema());
        let mut text = Vec::new();
        let mut read = 0;
        for part in inserted {
            let Some(last) = row_ids(&part.batch).values().last().copied() else { continue };
            read += part.batch.num_rows();
            let part = match partition {
                None => part,
                Some(partition) => of_partition(part, partition)?,
            };
            let ids = row_ids(&part.batch);
            let (mut at, mut end) = (0, 0);
            for (lsn, rows) in &part.runs {
                end += rows;
                while at < end {
                    if !self.write_deletes(Some(*lsn), encoder) {
                        return Ok(false);
                    }
                    let some = part.batch.slice(at, (end - at).min(STEP_ROWS));
                    text.clear();
                    json.rows(&some, &mut text);
                    // JSON has no bare line breaks, so each line is a row.
                    for line in text.split(|b| *b == b'\n').take(some.num_rows()) {
                        encoder.change(ChangeKind::Insert, *lsn, line);
                    }
                    at += some.num_rows();
                    self.page.first = RowId(ids.value(at - 1) as u64 + 1);
                    if encoder.bytes() >= SLICE_BYTES {
                        return Ok(false);
                    }
                }
            }
            self.page.first = RowId(last as u64 + 1);
        }
        if read >= SLICE_ROWS {
            return Ok(false);
        }
        self.page.first = self.page.end;
        Ok(self.write_deletes(None, encoder))
    }

    /// Writes the deletes of commits up to `lsn` (`None`: all that are left) while there is room. Returns true if there was
    /// enough.
    fn write_deletes(&mut self, lsn: Option<Lsn>, encoder: &mut impl FeedEncoder) -> bool {
        while let Some((row, at)) = self.page.deleted.get(self.deleted)
            && lsn.is_none_or(|lsn| *at <= lsn)
        {
            if encoder.bytes() >= SLICE_BYTES {
                return false;
            }
            encoder.change(ChangeKind::Delete, *at, format!("{{\"_row_id\":{row}}}").as_bytes());
            self.deleted += 1;
        }
        true
    }
}

fn row_ids(batch: &RecordBatch) -> &Int64Array {
    batch.column(0).as_primitive::<Int64Type>()
}

/// Returns the rows of a partition, with the commits that wrote them.
fn of_partition(part: Inserted, partition: &Partition) -> CoreResult<Inserted> {
    let mask = partition.mask(&part.batch)?;
    let mut at = 0;
    let mut runs = part.runs;
    for (_, rows) in &mut runs {
        let kept = mask.slice(at, *rows).true_count();
        at += *rows;
        *rows = kept;
    }
    let batch = filter_record_batch(&part.batch, &mask)
        .map_err(|e| Error::internal(format!("the rows of a partition: {e}")))?;
    Ok(Inserted { batch, runs })
}
