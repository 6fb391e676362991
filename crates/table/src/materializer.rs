//! Materializers: they derive something from a table (an index, the lake, pages). This module is their contract with the engine.
//!
//! A materializer owns no thread. The engine's background pool calls [`Materializer::step`] with a snapshot and publishes the
//! result with its checkpoint in one commit; a simulator calls it in an order that follows from a seed. Readers find the
//! published result in the same root as the table, so both are at one lsn (S2). They read the missing part from the table itself:
//! the *tail*.
//!
//! ## The rule (M1)
//! A [`Position`] `(row, lsn)` contains exactly the rows with ids up to `row` that are live at `lsn`. A step over a
//! snapshot at lsn `L` adds the rows `(row, row']` that are live at `L`, and removes those deleted in `(lsn, L]`;
//! the result is at `(row', L)`. [`Snapshot::delta`] reads just these rows. The derived data depends on the rows alone, so a
//! build that was killed anywhere, or begun again from nothing, ends equal to a fresh one.

use std::any::Any;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use types::{Error, Lsn, ROW_ID, Result, RowId, TableDef};
use vfs::Env;

use crate::unique::Lookup;
use crate::{LakeSnapshot, Projection, Snapshot};

/// The contract of a materializer: see the module.
pub trait Materializer: Send + Sync + 'static {
    /// The name of its checkpoints and its directory. It never changes, and has letters only.
    fn name(&self) -> &'static str;

    /// Returns true if it derives something from a table with this definition. Depends on the definition alone.
    fn follows(&self, def: &TableDef) -> bool;

    /// Rejects a definition that it cannot follow. Called before such a table is made or changed.
    fn check(&self, def: &TableDef) -> Result<()> {
        let _ = def;
        Ok(())
    }

    /// Rejects a change of a definition that it cannot follow. Called before the change is made.
    fn check_change(&self, before: &TableDef, after: &TableDef) -> Result<()> {
        let _ = (before, after);
        Ok(())
    }

    /// Returns true if its steps wait for another machine. Only one of them runs at a time then, in a thread of its own.
    fn is_remote(&self) -> bool {
        false
    }

    /// Returns true if a caller waits for a step over a table, even if the table has no new rows.
    fn is_step_requested(&self, def: &TableDef) -> bool {
        let _ = def;
        false
    }

    /// Requests that none of its files holds a row that is dead at `lsn`: files that do are rewritten, and removed once no reader
    /// holds them. Called only when steps get snapshots at `lsn` or later. Returns true if there is such work;
    /// [`Materializer::is_step_requested`] then stays true until it is done.
    fn expunge(&self, table: types::TableId, lsn: Lsn) -> bool {
        let _ = (table, lsn);
        false
    }

    /// The part of a table that readers have to take in themselves, as a share of the allowed part. From one half on, the table's
    /// writers are slowed down; from 1 on they are refused until it is less. 0 if writers need not wait for it.
    fn lag(&self, table: &Snapshot, position: &Position) -> f64 {
        let _ = (table, position);
        0.0
    }

    /// Reopens the published result of a checkpoint after a restart, and removes files that no checkpoint names. After an error,
    /// it is built from nothing.
    fn open(
        &self,
        place: &MaterializerDir,
        table: &Arc<Snapshot>,
        checkpoint: &Checkpoint,
    ) -> Result<Published>;

    /// The lookup by which writers find rows in a published result, if there is one.
    fn lookup(&self, published: &Published) -> Option<Arc<dyn Lookup>> {
        let _ = published;
        None
    }

    /// Returns true if rows may be evicted from their table because this materializer stores them: then [`Materializer::landed`]
    /// reads them.
    fn stores_evicted_rows(&self) -> bool {
        false
    }

    /// The position where rows that the table has evicted can be read, out of a published result. While it is held, none of its
    /// files is removed.
    fn landed(&self, published: &Published, table: &Snapshot) -> Option<Arc<dyn LakeSnapshot>> {
        let _ = (published, table);
        None
    }

    /// Returns true if readers still hold a published result of a table, though no position does.
    fn is_held(&self, table: types::TableId) -> bool {
        let _ = table;
        false
    }

    /// Does one bounded piece of work towards the table's state. `from` is the position to continue from; with `None` the step
    /// begins from nothing and ignores any files in its directory. Everything that the returned position needs is durable. After
    /// an error the step is retried later; after one of kind [`types::Kind::Damaged`] everything is built from nothing.
    fn step(
        &self,
        place: &MaterializerDir,
        table: &Arc<Snapshot>,
        from: Option<&Arc<Position>>,
        budget: &mut Budget<'_>,
    ) -> Result<Progress>;

    /// Removes files that only positions before `newest` needed, unless a reader still holds them (G1). The next step begins
    /// after it returns.
    fn clean(&self, place: &MaterializerDir, newest: &Arc<Position>) -> Result<()>;

    /// Called when the table is dropped and no reader is left.
    fn dropped(&self, place: &MaterializerDir) -> Result<()>;

    /// Called when the table exists but is not followed any more. Files that only readers in this process use are removed; files
    /// that were made for others may stay.
    fn unfollowed(&self, place: &MaterializerDir) -> Result<()> {
        self.dropped(place)
    }
}

/// The published result for readers; each materializer knows its type.
pub type Published = Arc<dyn Any + Send + Sync>;

/// The progress of a materializer, with its own state, as it is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last row that was taken in.
    pub row: RowId,
    /// The lsn of the last snapshot that was read.
    pub lsn: Lsn,
    /// The materializer's own description of the checkpoint, from which it finds its files again.
    pub state: Vec<u8>,
}

impl Checkpoint {
    /// Number of row ids of a table after the checkpoint.
    pub fn missing(&self, table: &Snapshot) -> u64 {
        (table.next_row().0 - 1).saturating_sub(self.row.0)
    }
}

/// A checkpoint with its published result.
#[derive(Clone)]
pub struct Position {
    pub checkpoint: Checkpoint,
    pub published: Published,
    /// The lookup for writers, if there is one.
    pub lookup: Option<Arc<dyn Lookup>>,
    /// The place where rows that the table has evicted are read, if there is one.
    pub landed: Option<Arc<dyn LakeSnapshot>>,
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Position(row {}, lsn {})", self.checkpoint.row, self.checkpoint.lsn)
    }
}

impl Position {
    pub fn new(checkpoint: Checkpoint, published: Published) -> Position {
        Position { checkpoint, published, lookup: None, landed: None }
    }

    /// The published result, as the type that its materializer publishes.
    pub fn published<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.published.clone().downcast().ok()
    }
}

/// The environment and directory in which a materializer keeps the files of one table. The directory exists.
#[derive(Clone, Debug)]
pub struct MaterializerDir {
    pub env: Env,
    pub dir: PathBuf,
}

/// The limits of one step.
pub struct Budget<'a> {
    /// Number of rows that the step may take in.
    pub rows: usize,
    /// True if a caller waits: the step should not wait for more rows.
    pub urgent: bool,
    /// Called with the bytes that were written; an error from it means that the database is closing.
    pub tick: &'a mut dyn FnMut(u64) -> Result<()>,
}

/// The result of a step.
#[derive(Debug)]
pub enum Progress {
    /// The table's state at the snapshot's lsn is the same as before: no change is missing.
    UpToDate,
    /// Something is missing, and it pays to wait for more rows.
    Later(Duration),
    /// A new position to publish.
    Advanced(Position),
}

/// The changes between a checkpoint and a snapshot.
#[derive(Clone, Debug)]
pub struct Delta {
    /// Rows to add, in row-id order.
    pub inserted: Vec<RecordBatch>,
    /// Rows to remove, ascending; all of them were added before.
    pub deleted: Vec<RowId>,
    /// The row and the lsn of the position after these changes.
    pub row: RowId,
    pub lsn: Lsn,
    /// True if the snapshot has more rows than the requested number.
    pub more: bool,
}

impl Snapshot {
    /// Returns the changes after `from` (`None`: all rows), with at most `rows_max` rows, projected. `projection` must
    /// begin with [`ROW_ID`].
    ///
    /// Fails with [`types::Kind::NotFound`] if deletes are no longer remembered from there on ([`Snapshot::history_floor`]): then
    /// the caller checks each row with [`Snapshot::is_live`].
    pub fn delta(
        &self,
        from: Option<&Checkpoint>,
        rows_max: usize,
        projection: &Projection,
    ) -> Result<Delta> {
        let last = RowId(self.next_row().0 - 1);
        let (row, deleted) = match from {
            None => (RowId(0), Vec::new()),
            Some(from) => (from.row, self.deleted_since(from)?),
        };
        let mut delta = Delta { inserted: Vec::new(), deleted, row, lsn: self.lsn(), more: false };
        let mut left = rows_max.max(1);
        while left > 0 {
            let batch = self.scan_from(delta.row.next(), left.min(crate::BATCH_ROWS), projection)?;
            let Some(newest) = last_row(&batch)? else {
                // All rows after this one are dead already.
                delta.row = last.max(delta.row);
                break;
            };
            left -= batch.num_rows().min(left);
            delta.row = newest;
            delta.inserted.push(batch);
        }
        delta.more = delta.row < last;
        Ok(delta)
    }

    /// Returns the rows up to `from.row` that were live at `from.lsn` and are not in this snapshot, ascending.
    pub fn deleted_since(&self, from: &Checkpoint) -> Result<Vec<RowId>> {
        if from.lsn < self.history_floor() {
            return Err(Error::not_found("deletes are remembered only for a while")
                .with("table", &self.def().name)
                .with("asked after lsn", from.lsn)
                .with("known after lsn", self.history_floor()));
        }
        let (deletes, more) = self.parts.history.after(from.lsn, usize::MAX);
        debug_assert!(!more, "asked for all");
        let mut rows: Vec<RowId> =
            deletes.iter().map(|(_, row)| RowId(*row)).filter(|row| *row <= from.row).collect();
        rows.sort_unstable();
        rows.dedup();
        Ok(rows)
    }
}

fn last_row(batch: &RecordBatch) -> Result<Option<RowId>> {
    if batch.num_rows() == 0 {
        return Ok(None);
    }
    let ids = batch.column(0).as_primitive_opt::<Int64Type>();
    let is_first = batch.schema_ref().field(0).name() == types::ROW_ID_NAME;
    let ids = ids
        .filter(|_| is_first)
        .ok_or_else(|| Error::internal(format!("the projection of a delta begins with column {ROW_ID:?}")))?;
    Ok(Some(RowId(ids.value(ids.len() - 1) as u64)))
}
