//! The materializer of text indexes: gathers new rows into pieces and merges pieces so that they stay few.

use std::sync::Arc;
use std::time::Duration;

use table::Snapshot;
use table::materializer::{Budget, Checkpoint, Materializer, MaterializerDir, Position, Progress, Published};
use types::{Error, Lsn, Result, RowId, TableDef, TableId};
use vfs::{Mutex, Rank};

use super::build::{self, Builder};
use super::dead_docs::{DeadDocs, DeletedRows, PieceView};
use super::fields::{Fields, KIND, check, fields};
use super::piece::TextPiece;
use super::search::{self, Searcher};
use super::state::{self, FILES, Index};
use super::tail::{self, Tails};
use crate::merge_policy::{self, MergeLimits};
use crate::store::{self, HELD_PAUSE, StepMemory, table_of};

/// The name of the materializer's checkpoints and directory.
pub const NAME: &str = "text";

/// Number of missing rows that starts a step at once. The tail that readers index themselves grows little beyond it.
const GATHER_ROWS: u64 = 2_000;
/// The longest time for which fewer rows wait for more. The tail answers for them meanwhile, so this only limits how
/// many small files are made and synced.
const GATHER_TIME: Duration = Duration::from_millis(500);
/// Number of missing rows above which taking in rows comes before merging, unless the index has [`PIECES_MAX`] pieces
/// already.
const BEHIND_ROWS: u64 = 4 * GATHER_ROWS;
const PIECES_MAX: usize = 64;
/// Number of rows read at once, so that long texts are not all in memory together.
const READ_ROWS: usize = 1024;
/// Number of rows that the index may lack before writers are refused. It is half of the number that a reader indexes
/// itself, since one more commit can come on top.
const LAG_ROWS_MAX: u64 = tail::READER_ROWS_MAX / 2;
/// Bytes of text that the index may lack before writers are refused.
const LAG_TEXT_BYTES_MAX: usize = tail::READER_TEXT_BYTES_MAX / 2;
/// Bytes of text at which a new piece is finished.
const PIECE_TEXT_BYTES: usize = 32 << 20;
/// The largest piece that a merge writes. A merge is a single step, and the tail grows for as long as it lasts.
const MERGE_LIMITS: MergeLimits = MergeLimits { rows: 1 << 18, bytes: 64 << 20 };

/// The materializer of tables with a text index, which also makes searchers. An engine has exactly one. All searchers
/// of an engine must come from the one that is registered with it, since it keeps their shared tails.
pub struct TextMaterializer {
    tails: Tails,
    memory: Mutex<StepMemory<TextPiece>>,
}

impl Default for TextMaterializer {
    fn default() -> Self {
        TextMaterializer {
            tails: Tails::default(),
            memory: Mutex::new(Rank::new(69, "text index"), StepMemory::default()),
        }
    }
}

impl TextMaterializer {
    pub fn new() -> Arc<TextMaterializer> {
        Arc::default()
    }

    /// Returns an upper bound on the number of rows that a new searcher must index itself, because no other reader has
    /// indexed them in memory yet.
    pub fn rows_to_index(&self, snapshot: &Snapshot, position: Option<&Position>) -> u64 {
        let Some(fields) = fields(snapshot.def()) else { return 0 };
        let reached =
            search::usable_index(snapshot, &fields, position).map_or(RowId(0), |(at, _)| at.checkpoint.row);
        self.tails.rows_to_index(snapshot, reached, &fields)
    }

    /// Returns a searcher for the table as of `snapshot`. `position` is the position that the same root holds for the
    /// table under [`NAME`]; without one, all rows are tail.
    ///
    /// Fails with [`types::Kind::NotFound`] if the table has no text index, and with [`types::Kind::IndexBuilding`] if
    /// the index lacks more rows than a reader may index itself: the answer would be late or incomplete.
    pub fn searcher(&self, snapshot: &Arc<Snapshot>, position: Option<&Position>) -> Result<Searcher> {
        Searcher::new(&self.tails, snapshot, position)
    }

    fn remember(&self, table: &Snapshot, index: &Index) {
        let mut memory = self.memory.lock();
        for view in &index.pieces {
            memory.remember(table.def().id, view.piece.head.id, &view.piece);
        }
    }

    /// Returns the time to wait for more rows, or `None` if the step should begin now.
    fn gather_wait(&self, place: &MaterializerDir, table: &Snapshot, from: &Checkpoint) -> Option<Duration> {
        let (id, now) = (table.def().id, place.env.clock.monotonic());
        let mut memory = self.memory.lock();
        if from.missing(table) >= GATHER_ROWS {
            memory.end_wait(id);
            return None;
        }
        memory.remaining_wait(id, from.lsn, now, GATHER_TIME)
    }
}

/// The state from which a step continues.
struct StepStart<'a> {
    checkpoint: &'a Checkpoint,
    index: Arc<Index>,
}

impl Materializer for TextMaterializer {
    fn name(&self) -> &'static str {
        NAME
    }

    fn follows(&self, def: &TableDef) -> bool {
        fields(def).is_some()
    }

    fn check(&self, def: &TableDef) -> Result<()> {
        def.indexes.iter().filter(|index| index.kind == KIND).try_for_each(|index| check(def, index))
    }

    fn lag(&self, table: &Snapshot, position: &Position) -> f64 {
        let Some(index) = position.published::<Index>() else { return 0.0 };
        let missing = position.checkpoint.missing(table) as f64;
        // The size of the missing text is estimated from the size of the index, which is about half of its text.
        let (rows, bytes) = index.size();
        let text = missing * 2.0 * bytes as f64 / rows.max(1) as f64;
        (missing / LAG_ROWS_MAX as f64).max(text / LAG_TEXT_BYTES_MAX as f64)
    }

    fn open(
        &self,
        place: &MaterializerDir,
        table: &Arc<Snapshot>,
        checkpoint: &Checkpoint,
    ) -> Result<Published> {
        let mut index = Index::open(place, &followed_fields(table)?, checkpoint)?;
        for view in &mut index.pieces {
            *view = DeletedRows::Unknown.apply(table, view.clone())?;
        }
        index.lsn = table.lsn();
        for id in FILES.list(place)? {
            if index.pieces.iter().all(|view| view.piece.head.id != id) {
                FILES.remove(place, id)?;
            }
        }
        self.remember(table, &index);
        Ok(Arc::new(index))
    }

    fn is_step_requested(&self, def: &TableDef) -> bool {
        self.memory.lock().is_erasing(def.id)
    }

    fn expunge(&self, table: TableId, lsn: Lsn) -> bool {
        self.memory.lock().request_erasure(table, lsn);
        true
    }

    fn step(
        &self,
        place: &MaterializerDir,
        table: &Arc<Snapshot>,
        from: Option<&Arc<Position>>,
        budget: &mut Budget<'_>,
    ) -> Result<Progress> {
        let fields = followed_fields(table)?;
        let fingerprint = fields.fingerprint();
        let begun = from.and_then(|from| {
            let index = from.published::<Index>()?;
            // An index of another definition is of no use; the step starts from nothing.
            (index.fingerprint == fingerprint).then_some(StepStart { checkpoint: &from.checkpoint, index })
        });
        let next_id = from.and_then(|from| from.published::<Index>()).map_or(1, |index| index.next_id);
        let next_id = FILES.next(place, next_id)?;
        let mark = self.memory.lock().erasure_mark(table.def().id, table.lsn(), next_id);
        let (mut index, mut row, expunge) = match &begun {
            None => (Index { fingerprint, pieces: Vec::new(), lsn: table.lsn(), next_id }, RowId(0), None),
            Some(from) => {
                let deaths = DeletedRows::since(table, from.checkpoint)?;
                let pieces = || -> Result<Vec<PieceView>> {
                    from.index.pieces.iter().map(|view| deaths.apply(table, view.clone())).collect()
                };
                let expunge = mark.map_or(Ok(None), |mark| Ok(first_with_dead(&pieces()?, mark)))?;
                let is_held = match mark.filter(|_| expunge.is_none()) {
                    Some(mark) => !self.finish_erasure(place, table, &from.index, mark)?,
                    None => false,
                };
                let up_to_date = from.checkpoint.row.next() >= table.next_row() && deaths.is_none();
                let merge =
                    expunge.is_some() || merge_policy::plan(&from.index.sizes(), MERGE_LIMITS).is_some();
                if up_to_date && !merge {
                    let waits = is_held && !budget.urgent;
                    return Ok(if waits { Progress::Later(HELD_PAUSE) } else { Progress::UpToDate });
                }
                if !budget.urgent
                    && !merge
                    && let Some(left) = self.gather_wait(place, table, from.checkpoint)
                {
                    return Ok(Progress::Later(left));
                }
                let index = Index { fingerprint, pieces: pieces()?, lsn: table.lsn(), next_id };
                (index, from.checkpoint.row, expunge)
            }
        };
        // Rows that readers must index themselves cost them more than a few extra pieces do.
        let is_behind = table.next_row().0.saturating_sub(row.0 + 1) > BEHIND_ROWS;
        let expunge = expunge.map(|at| at..at + 1);
        match expunge.or_else(|| merge_policy::plan(&index.sizes(), MERGE_LIMITS)) {
            Some(range) if !is_behind || index.pieces.len() >= PIECES_MAX => {
                self.merge(place, &fields, &mut index, range, budget)?;
            }
            _ => self.take_in(place, table, &fields, &mut index, &mut row, budget)?,
        }
        self.remember(table, &index);
        let checkpoint = Checkpoint { row, lsn: table.lsn(), state: index.encode() };
        Ok(Progress::Advanced(Position::new(checkpoint, Arc::new(index))))
    }

    fn clean(&self, place: &MaterializerDir, newest: &Arc<Position>) -> Result<()> {
        let Some(index) = newest.published::<Index>() else { return Ok(()) };
        let Some(table) = table_of(place) else { return Ok(()) };
        self.tails.index_reached(table, newest.checkpoint.row);
        for id in FILES.list(place)? {
            let named = index.pieces.iter().any(|view| view.piece.head.id == id);
            if !named && !self.memory.lock().is_held(table, id) {
                FILES.remove(place, id)?;
            }
        }
        Ok(())
    }

    fn dropped(&self, place: &MaterializerDir) -> Result<()> {
        if let Some(table) = table_of(place) {
            self.tails.forget(table);
            self.memory.lock().forget(table);
        }
        FILES.list(place)?.into_iter().try_for_each(|id| FILES.remove(place, id))
    }
}

/// Returns the position of the first piece with an id below `mark` that has dead rows.
fn first_with_dead(pieces: &[PieceView], mark: u64) -> Option<usize> {
    pieces.iter().position(|view| view.piece.head.id < mark && view.dead.count() > 0)
}

impl TextMaterializer {
    /// Removes files of pieces that still hold erased rows; `index` itself names no such piece before `mark`. Returns
    /// true, and ends the erasure, if no such file is left.
    fn finish_erasure(
        &self,
        place: &MaterializerDir,
        table: &Snapshot,
        index: &Index,
        mark: u64,
    ) -> Result<bool> {
        let (id, memory) = (table.def().id, &self.memory);
        let is_named = |file| index.pieces.iter().any(|view| view.piece.head.id == file);
        let done = store::remove_before(FILES, place, memory, id, mark, is_named)?;
        if done {
            memory.lock().end_erasure(id, mark);
        }
        Ok(done)
    }

    /// Takes in rows: writes a piece of the rows after `row`, and moves `row` to its last row.
    fn take_in(
        &self,
        place: &MaterializerDir,
        table: &Snapshot,
        fields: &Fields,
        index: &mut Index,
        row: &mut RowId,
        budget: &mut Budget<'_>,
    ) -> Result<()> {
        let last = RowId(table.next_row().0 - 1);
        if *row >= last {
            return Ok(());
        }
        let first = row.next();
        let projection = table.projection(&fields.columns())?;
        let missing = (last.0 - row.0).min(budget.rows as u64) as usize;
        let mut builder = Builder::new(fields, missing)?;
        while (builder.docs() as usize) < budget.rows.max(1) && builder.bytes() < PIECE_TEXT_BYTES {
            let limit = READ_ROWS.min(budget.rows.max(1) - builder.docs() as usize);
            let batch = table.scan_from(row.next(), limit, &projection)?;
            match crate::rows::last(&batch) {
                Some(newest) => *row = newest,
                // All later rows are dead already.
                None => {
                    *row = last;
                    break;
                }
            }
            builder.add(&batch)?;
            (budget.tick)(0)?;
        }
        if builder.docs() > 0 {
            let id = index.next_id;
            index.next_id += 1;
            let bytes = builder.finish(id, first, *row)?;
            let piece = state::store(place, id, &bytes, fields, budget)?;
            index.pieces.push(PieceView::new(Arc::new(piece)));
        }
        Ok(())
    }

    fn merge(
        &self,
        place: &MaterializerDir,
        fields: &Fields,
        index: &mut Index,
        range: std::ops::Range<usize>,
        budget: &mut Budget<'_>,
    ) -> Result<()> {
        let inputs: Vec<(&TextPiece, &DeadDocs)> =
            index.pieces[range.clone()].iter().map(|view| (&*view.piece, &*view.dead)).collect();
        let mut merged = None;
        if inputs.iter().any(|(piece, dead)| piece.docs() > dead.count()) {
            let id = index.next_id;
            index.next_id += 1;
            let (bytes, _) = build::merge(id, &inputs)?;
            merged = Some(PieceView::new(Arc::new(state::store(place, id, &bytes, fields, budget)?)));
        }
        index.pieces.splice(range, merged);
        Ok(())
    }
}

fn followed_fields(table: &Snapshot) -> Result<Fields> {
    fields(table.def()).ok_or_else(|| Error::internal("a table without a text index was to be indexed"))
}
