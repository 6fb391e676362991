//! What derives something from a table (an index, the lake, pages), and what the engine promises it.
//!
//! A materializer owns no thread. The engine's background pool calls [`Materializer::step`] with a snapshot, and what
//! it made is published with its checkpoint in one commit; a simulator calls it in an order that follows from a seed.
//! Readers find what was published in the same root as the table, so both stand at one lsn (S2), and answer what is
//! missing from the table itself: the *tail*.
//!
//! ## The rule (M1)
//! A [`Position`] `(row, lsn)` contains exactly the rows with ids up to `row` that are live at `lsn`. A step over a
//! snapshot at lsn `L` takes in rows `(row, row']` that are live at `L`, and takes out what was deleted in `(lsn, L]`;
//! the result stands at `(row', L)`. [`Snapshot::delta`] reads just that. What is derived depends on the rows alone, so
//! a build that was killed anywhere, or begun again from nothing, ends equal to a fresh one.

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
use crate::{Landed, Projection, Snapshot};

/// See the module.
pub trait Materializer: Send + Sync + 'static {
    /// Names its checkpoints and its directory; never changes. Letters only.
    fn name(&self) -> &'static str;

    /// Whether it derives something from such a table. Follows from the definition alone.
    fn follows(&self, def: &TableDef) -> bool;

    /// What is wrong with a definition that it is to follow. Asked before such a table is made or changed.
    fn check(&self, def: &TableDef) -> Result<()> {
        let _ = def;
        Ok(())
    }

    /// What is wrong with a change of a definition; asked before it is made.
    fn check_change(&self, before: &TableDef, after: &TableDef) -> Result<()> {
        let _ = (before, after);
        Ok(())
    }

    /// Whether its steps wait for another machine. Only one of them is under way then, in a thread that nothing else needs.
    fn is_remote(&self) -> bool {
        false
    }

    /// Whether somebody waits for a step over a table, though it may have nothing new.
    fn is_asked(&self, def: &TableDef) -> bool {
        let _ = def;
        false
    }

    /// Asks that no file of it holds a row that is dead at `lsn`: those that do are written anew, and removed once no reader
    /// holds them. Whether there is anything to wait for: [`Materializer::is_asked`] says for how long. Only once a snapshot at
    /// `lsn` or later is what steps are given.
    fn expunge(&self, table: types::TableId, lsn: Lsn) -> bool {
        let _ = (table, lsn);
        false
    }

    /// How much of a table readers have to take in themselves, as a share of what they may: from a half on its writers
    /// are slowed down, from 1 on they are refused until it is less. 0: writers need not wait for it.
    fn lag(&self, table: &Snapshot, position: &Position) -> f64 {
        let _ = (table, position);
        0.0
    }

    /// Finds again what was published at a checkpoint, after a restart, and removes what no checkpoint names. After an
    /// error it is built from nothing.
    fn open(&self, place: &Place, table: &Arc<Snapshot>, checkpoint: &Checkpoint) -> Result<Published>;

    /// Of what it published, what writers look values up in.
    fn lookup(&self, published: &Published) -> Option<Arc<dyn Lookup>> {
        let _ = published;
        None
    }

    /// Whether rows may leave their table because it has them: whether [`Materializer::landed`] says where they are read.
    fn lands(&self) -> bool {
        false
    }

    /// Of what it published of a table, where rows can be read that the table lets go of. Held, none of its files is removed.
    fn landed(&self, published: &Published, table: &Snapshot) -> Option<Arc<dyn Landed>> {
        let _ = (published, table);
        None
    }

    /// Whether readers hold something of a table that was published, though no position does.
    fn is_held(&self, table: types::TableId) -> bool {
        let _ = table;
        false
    }

    /// One bounded piece of work towards the table's state. `from` is where it stands; `None` is the beginning, and then
    /// nothing in its directory counts. What a position needs is durable before it is returned. After an error the step
    /// is tried again later; after one of kind [`types::Kind::Damaged`] everything is built from nothing.
    fn step(
        &self,
        place: &Place,
        table: &Arc<Snapshot>,
        from: Option<&Arc<Position>>,
        budget: &mut Budget<'_>,
    ) -> Result<Progress>;

    /// Removes files that only positions before `newest` needed, unless a reader holds them still (G1). The next step begins
    /// when it is done.
    fn clean(&self, place: &Place, newest: &Arc<Position>) -> Result<()>;

    /// The table is gone and nobody reads it any more.
    fn dropped(&self, place: &Place) -> Result<()>;

    /// The table is there and not followed any more. What only readers of this process use goes; what was made for others
    /// may stay.
    fn left(&self, place: &Place) -> Result<()> {
        self.dropped(place)
    }
}

/// What readers get; each materializer knows its type.
pub type Published = Arc<dyn Any + Send + Sync>;

/// How far a materializer has come, in its own words: what is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last row taken in.
    pub row: RowId,
    /// The lsn of the snapshot that was read last.
    pub lsn: Lsn,
    /// From this the files are found again.
    pub state: Vec<u8>,
}

impl Checkpoint {
    /// How many row ids of a table come after it.
    pub fn missing(&self, table: &Snapshot) -> u64 {
        (table.next_row().0 - 1).saturating_sub(self.row.0)
    }
}

/// A checkpoint with what was published there.
#[derive(Clone)]
pub struct Position {
    pub checkpoint: Checkpoint,
    pub published: Published,
    /// What writers ask of it, if they do.
    pub lookup: Option<Arc<dyn Lookup>>,
    /// Where rows are read that the table has let go of, if it has.
    pub landed: Option<Arc<dyn Landed>>,
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

    /// What was published, as the type that its materializer publishes.
    pub fn published<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.published.clone().downcast().ok()
    }
}

/// Where a materializer keeps the files of one table. The directory exists.
#[derive(Clone, Debug)]
pub struct Place {
    pub env: Env,
    pub dir: PathBuf,
}

/// What one step may use.
pub struct Budget<'a> {
    /// Rows to take in, at most.
    pub rows: usize,
    /// Somebody waits: do not gather more first.
    pub urgent: bool,
    /// Told the bytes that were written; an error means that the database is closing.
    pub tick: &'a mut dyn FnMut(u64) -> Result<()>,
}

/// What a step came to.
#[derive(Debug)]
pub enum Progress {
    /// Nothing is missing: this table's state at the snapshot's lsn is the same as before.
    UpToDate,
    /// Something is missing, and it pays to wait for more.
    Later(Duration),
    /// A new position, to be published.
    Advanced(Position),
}

/// What changed between a checkpoint and a snapshot.
#[derive(Clone, Debug)]
pub struct Delta {
    /// Rows to take in, in row-id order.
    pub inserted: Vec<RecordBatch>,
    /// Rows to take out, ascending; only such as were taken in.
    pub deleted: Vec<RowId>,
    /// Where this leads.
    pub row: RowId,
    pub lsn: Lsn,
    /// The snapshot has more rows than were asked for.
    pub more: bool,
}

impl Snapshot {
    /// What is missing at `from` (`None`: everything), at most `rows_max` rows, with these columns. `projection` must
    /// begin with [`ROW_ID`].
    ///
    /// [`types::Kind::NotFound`] if deletes are no longer remembered from there on ([`Snapshot::history_floor`]): then
    /// [`Snapshot::is_live`] tells of each row.
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
                // Whatever lies beyond is dead already.
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

    /// Rows up to `from.row` that were live at `from.lsn` and are not in this snapshot, ascending.
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
