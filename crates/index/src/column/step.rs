//! The materializer of column indexes: sorts new rows into runs and merges runs so that they stay few.

use std::sync::Arc;
use std::time::Duration;

use table::Snapshot;
use table::materializer::{Budget, Checkpoint, Materializer, MaterializerDir, Position, Progress, Published};
use table::unique::Lookup;
use types::{ColumnId, Error, Lsn, ROW_ID, Result, RowId, TableDef, TableId};
use vfs::{Mutex, Rank};

use super::build::{self, Builder};
use super::codec::{KIND, check};
use super::index::{Indexes, declared_columns};
use super::run::{FILES, SortedRun};
use super::unique::compare;
use crate::merge_policy::{self, MergeLimits};
use crate::store::{self, HELD_PAUSE, StepMemory, table_of};

/// The name of the materializer's checkpoints and directory.
pub const NAME: &str = "column";

/// Number of missing rows that starts a step at once. Readers compare fewer rows than this in some microseconds.
const GATHER_ROWS: u64 = 8_192;
/// The longest time for which fewer rows wait for more.
const GATHER_TIME: Duration = Duration::from_millis(500);
/// Number of missing rows above which taking in rows comes before merging, unless an index has [`RUNS_MAX`] runs
/// already.
const BEHIND_ROWS: u64 = 8 * GATHER_ROWS;
const RUNS_MAX: usize = 64;
const READ_ROWS: usize = 8_192;
/// Bytes of entries that are sorted in memory for the new runs of one step.
const SORTED_BYTES: usize = 32 << 20;
/// The largest run that a merge writes. A merge is a single step, and the tail grows for as long as it lasts.
const MERGE_LIMITS: MergeLimits = MergeLimits { rows: 1 << 21, bytes: 256 << 20 };

/// The materializer that builds the column indexes of all tables that declare some.
pub struct ColumnMaterializer {
    memory: Mutex<StepMemory<SortedRun>>,
}

impl Default for ColumnMaterializer {
    fn default() -> Self {
        ColumnMaterializer { memory: Mutex::new(Rank::new(70, "column index"), StepMemory::default()) }
    }
}

impl ColumnMaterializer {
    pub fn new() -> Arc<ColumnMaterializer> {
        Arc::default()
    }

    fn remember(&self, table: &Snapshot, indexes: &Indexes) {
        let mut memory = self.memory.lock();
        for run in indexes.list.iter().flat_map(|index| &index.runs) {
            memory.remember(table.def().id, run.head.id, run);
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

impl Materializer for ColumnMaterializer {
    fn name(&self) -> &'static str {
        NAME
    }

    fn follows(&self, def: &TableDef) -> bool {
        declared_columns(def).next().is_some()
    }

    fn check(&self, def: &TableDef) -> Result<()> {
        def.indexes.iter().filter(|index| index.kind == KIND).try_for_each(|index| check(def, index))
    }

    fn open(
        &self,
        place: &MaterializerDir,
        table: &Arc<Snapshot>,
        checkpoint: &Checkpoint,
    ) -> Result<Published> {
        let indexes = Indexes::open(place, table.def(), checkpoint)?;
        for id in FILES.list(place)? {
            if !indexes.contains_run(id) {
                FILES.remove(place, id)?;
            }
        }
        self.remember(table, &indexes);
        Ok(Arc::new(indexes))
    }

    fn lookup(&self, published: &Published) -> Option<Arc<dyn Lookup>> {
        let indexes: Arc<Indexes> = published.clone().downcast().ok()?;
        Some(indexes)
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
        let known = from.and_then(|from| Some((&from.checkpoint, from.published::<Indexes>()?)));
        let before = known.as_ref().map_or_else(Arc::default, |(_, indexes)| indexes.clone());
        if before.list.iter().any(|index| index.is_damaged()) {
            return Err(Error::damaged("a run of a column index is damaged"));
        }
        let mut indexes = before.adapted_to(table.def());
        indexes.next_id = FILES.next(place, indexes.next_id)?;
        let last = RowId(table.next_row().0 - 1);
        let missing = last.0.saturating_sub(indexes.reached().0);
        let mark = self.memory.lock().erasure_mark(table.def().id, table.lsn(), indexes.next_id);
        let expunge = mark.map_or(Ok(None), |mark| first_with_dead(&indexes, table, mark))?;
        // If the published indexes are the declared ones, no other index names a file.
        let stands = known.is_some() && before.matches_declaration(table.def());
        let is_held = match mark.filter(|_| expunge.is_none() && stands) {
            Some(mark) => !self.finish_erasure(place, table, &indexes, mark)?,
            None => false,
        };
        let merge = expunge.map_or_else(|| next_merge(&indexes, table), |one| Ok(Some(one)))?;
        let compares = indexes.next_to_compare(table.def()).is_some();
        if let Some((checkpoint, before)) = &known
            && before.matches_declaration(table.def())
        {
            if missing == 0 && merge.is_none() && !compares {
                let waits = is_held && !budget.urgent;
                return Ok(if waits { Progress::Later(HELD_PAUSE) } else { Progress::UpToDate });
            }
            if !budget.urgent
                && merge.is_none()
                && !compares
                && let Some(left) = self.gather_wait(place, table, checkpoint)
            {
                return Ok(Progress::Later(left));
            }
        }
        let runs = indexes.list.iter().map(|index| index.runs.len()).max().unwrap_or(0);
        match merge {
            Some((at, range)) if missing <= BEHIND_ROWS || runs >= RUNS_MAX => {
                self.merge(place, table, &mut indexes, at, range, budget)?;
            }
            _ => self.take_in(place, table, &mut indexes, last, budget)?,
        }
        // Rows are compared once the index holds all of them, and within this step: no other step is requested before
        // the table changes.
        while let Some((at, key)) = indexes.next_to_compare(table.def())
            && indexes.reached() == last
        {
            indexes.list[at].verdict = compare(&indexes.list[at], &key, table, budget)?;
        }
        self.remember(table, &indexes);
        let checkpoint = Checkpoint { row: indexes.reached(), lsn: table.lsn(), state: indexes.encode() };
        Ok(Progress::Advanced(Position::new(checkpoint, Arc::new(indexes))))
    }

    fn clean(&self, place: &MaterializerDir, newest: &Arc<Position>) -> Result<()> {
        let Some(indexes) = newest.published::<Indexes>() else { return Ok(()) };
        let Some(table) = table_of(place) else { return Ok(()) };
        for id in FILES.list(place)? {
            if !indexes.contains_run(id) && !self.memory.lock().is_held(table, id) {
                FILES.remove(place, id)?;
            }
        }
        Ok(())
    }

    fn dropped(&self, place: &MaterializerDir) -> Result<()> {
        if let Some(table) = table_of(place) {
            self.memory.lock().forget(table);
        }
        FILES.list(place)?.into_iter().try_for_each(|id| FILES.remove(place, id))
    }
}

/// Returns the first run with an id below `mark` that has dead rows: the position of its index, and the run as a range.
fn first_with_dead(
    indexes: &Indexes,
    table: &Snapshot,
    mark: u64,
) -> Result<Option<(usize, std::ops::Range<usize>)>> {
    for (at, index) in indexes.list.iter().enumerate() {
        for (run, head) in index.runs.iter().map(|run| run.head).enumerate() {
            if head.id < mark && table.rows_between(head.first, head.last)? < head.rows {
                return Ok(Some((at, run..run + 1)));
            }
        }
    }
    Ok(None)
}

/// Returns the next merge: the position of an index, and the range of its runs.
fn next_merge(indexes: &Indexes, table: &Snapshot) -> Result<Option<(usize, std::ops::Range<usize>)>> {
    for (at, index) in indexes.list.iter().enumerate() {
        let Some(range) = merge_policy::plan(&index.sizes(table)?, MERGE_LIMITS) else { continue };
        let (first, last) = (index.runs[range.start].head.first, index.runs[range.end - 1].head.last);
        // A run stores each row as a 32-bit distance from its first row.
        if last.0 - first.0 <= u64::from(u32::MAX) {
            return Ok(Some((at, range)));
        }
    }
    Ok(None)
}

impl ColumnMaterializer {
    /// Removes files of runs that still hold erased rows; `indexes` itself names no such run before `mark`. Returns
    /// true, and ends the erasure, if no such file is left.
    fn finish_erasure(
        &self,
        place: &MaterializerDir,
        table: &Snapshot,
        indexes: &Indexes,
        mark: u64,
    ) -> Result<bool> {
        let (id, memory) = (table.def().id, &self.memory);
        let done = store::remove_before(FILES, place, memory, id, mark, |file| indexes.contains_run(file))?;
        if done {
            memory.lock().end_erasure(id, mark);
        }
        Ok(done)
    }

    /// Takes in rows: writes one run for each of the indexes that are furthest behind, up to the row that the next
    /// index has reached. Rows that several indexes lack are read once.
    fn take_in(
        &self,
        place: &MaterializerDir,
        table: &Snapshot,
        indexes: &mut Indexes,
        last: RowId,
        budget: &mut Budget<'_>,
    ) -> Result<()> {
        let from = indexes.reached();
        if from >= last {
            return Ok(());
        }
        let others = indexes.list.iter().map(|index| index.row).filter(|row| *row > from);
        // A run stores each row as a 32-bit distance from its first row.
        let end = others.min().unwrap_or(last).min(last).min(RowId(from.0.saturating_add(u32::MAX.into())));
        let behind: Vec<usize> = (0..indexes.list.len()).filter(|at| indexes.list[*at].row == from).collect();
        let mut wanted: Vec<ColumnId> = vec![ROW_ID];
        for id in behind.iter().flat_map(|at| indexes.list[*at].columns().ids()) {
            if !wanted.contains(&id) {
                wanted.push(id);
            }
        }
        let projection = table.projection(&wanted)?;
        let place_of = |id: ColumnId| wanted.iter().position(|other| *other == id).unwrap_or_default();
        let all_columns: Vec<_> = behind.iter().map(|at| indexes.list[*at].columns().clone()).collect();
        let mut builders: Vec<(Builder<'_>, Vec<usize>)> = all_columns
            .iter()
            .map(|columns| (Builder::new(columns), columns.ids().map(place_of).collect()))
            .collect();
        let (mut row, mut taken) = (from, 0);
        let has_room = |builders: &[(Builder<'_>, Vec<usize>)]| {
            builders.iter().map(|(builder, _)| builder.bytes()).sum::<usize>() < SORTED_BYTES
        };
        while taken < budget.rows.max(1) && row < end && has_room(&builders) {
            let limit = READ_ROWS.min(budget.rows.max(1) - taken);
            let batch = table.scan_from(row.next(), limit, &projection)?;
            let batch = crate::rows::up_to(&batch, end);
            let Some(newest) = crate::rows::last(&batch) else {
                // All rows up to `end` are dead already.
                row = end;
                break;
            };
            (row, taken) = (newest, taken + batch.num_rows());
            for (builder, places) in &mut builders {
                builder.add(&batch, places)?;
            }
            (budget.tick)(0)?;
        }
        for (at, (builder, _)) in behind.into_iter().zip(builders) {
            if builder.len() > 0 {
                let id = indexes.next_id;
                indexes.next_id += 1;
                let run = builder.finish(place, id, from.next(), row, budget)?;
                indexes.list[at].runs.push(Arc::new(run));
            }
            indexes.list[at].row = row;
        }
        Ok(())
    }

    fn merge(
        &self,
        place: &MaterializerDir,
        table: &Snapshot,
        indexes: &mut Indexes,
        at: usize,
        range: std::ops::Range<usize>,
        budget: &mut Budget<'_>,
    ) -> Result<()> {
        let id = indexes.next_id;
        indexes.next_id += 1;
        let index = &mut indexes.list[at];
        let inputs: Vec<&SortedRun> = index.runs[range.clone()].iter().map(|run| &**run).collect();
        let merged = build::merge(place, id, &inputs, index.columns(), table, budget)?;
        index.runs.splice(range, merged.map(Arc::new));
        Ok(())
    }
}
