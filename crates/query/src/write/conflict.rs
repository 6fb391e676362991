//! INSERT … ON CONFLICT: rows whose key an existing row already has.
//!
//! As in PostgreSQL, the existing row has the table's name and the row that is not inserted is called `excluded`; a statement
//! that would change a row twice fails. Existing rows are looked up in one view. If another writer is faster, the commit is
//! refused, and the statement runs again over a newer view.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, TimestampMicrosecondArray, UInt32Array,
};
use arrow::compute::{interleave, take};
use arrow::datatypes::{Field, Int64Type};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::sql::sqlparser::ast::{
    DoUpdate, Ident, OnConflict, OnConflictAction, SelectItem, SetExpr, Statement,
};
use engine::{Mode, Op};
use sql::parse;
use table::Snapshot;
use types::{Column, ColumnId, Error, Kind, ROW_ID, ROW_ID_NAME, Result, RowId, TIME, name};

use super::arbiter::{Arbiter, ConflictingRows, no_key, rows_without_conflict};
use super::assignments::Assignments;
use super::returning::{ChangedRows, SystemColumns};
use super::{Change, Writer, batch_of, qualified};
use crate::execute::reserve;
use crate::planner::{ExtraTable, extra_schema};

/// Table name of the existing rows.
const THERE: &str = "rows in the way";
/// PostgreSQL's name of the rows that are not inserted.
const EXCLUDED: &str = "excluded";
/// Column with their positions among the statement's rows. No user can name a column so.
const PLACE: &str = "polynya place";

/// The source of a row of the result.
#[derive(Clone, Copy)]
enum RowSource {
    New(usize),
    Updated(usize),
}

impl Writer<'_> {
    pub(super) async fn insert_on_conflict(
        &self,
        snapshot: &Arc<Snapshot>,
        called: &Ident,
        batch: RecordBatch,
        memory: Option<MemoryReservation>,
        on: &OnConflict,
        returning: Option<&[SelectItem]>,
    ) -> Result<Change> {
        let def = snapshot.def();
        let named = Arbiter::named(def, on.conflict_target.as_ref())?;
        let table = def.name.clone();
        let all = Arbiter::all(def);
        let update = match &on.action {
            OnConflictAction::DoUpdate(update) => Some(update),
            OnConflictAction::DoNothing => None,
        };
        if update.is_none() && returning.is_none() && (named.is_none() || all.len() == 1) {
            if batch.num_rows() == 0 {
                return Ok(Change::default());
            }
            // The commit finds the conflicting rows itself.
            let mode = if all.is_empty() { Mode::Append } else { Mode::InsertIfAbsent };
            let ops = vec![Op::Insert { table, batch, mode }];
            return Ok(Change { ops, memory, counts_inserted: true, ..Change::default() });
        }
        let stored = snapshot.conform(&batch)?;
        let (arbiters, (rows, old)) = match update {
            Some(update) => {
                let arbiter = named.or_else(|| all.into_iter().next()).ok_or_else(|| no_key(def))?;
                let compared = arbiter.compare(self.view, snapshot, &stored)?;
                let changed = self.updated(snapshot, called, update, &stored, &compared).await?;
                (vec![arbiter], changed)
            }
            None => {
                let arbiters = named.map_or(all, |named| vec![named]);
                let compare = |arbiter: &Arbiter| arbiter.compare(self.view, snapshot, &stored);
                let compared = arbiters.iter().map(compare).collect::<Result<Vec<_>>>()?;
                let free = rows_without_conflict(&compared, stored.num_rows());
                let kept = UInt32Array::from_iter_values(free.into_iter().map(|row| row as u32));
                let column = |array: &ArrayRef| {
                    take(array, &kept, None)
                        .map_err(|e| Error::internal(format!("selecting rows failed: {e}")))
                };
                let rows = stored.columns().iter().map(column).collect::<Result<Vec<_>>>()?;
                (arbiters, (rows, Vec::new()))
            }
        };
        let count = rows.first().map_or(0, |column| column.len());
        let returned = match returning {
            None => None,
            Some(items) => {
                let changed = ChangedRows {
                    snapshot,
                    called,
                    rows: rows.clone(),
                    system: SystemColumns::New,
                    others: Vec::new(),
                };
                Some(self.returned(items, changed).await?)
            }
        };
        if count == 0 {
            return Ok(Change { returned, ..Change::default() });
        }
        let columns: Vec<&Column> = def.schema.columns.iter().collect();
        let batch = batch_of(&columns, rows, count)?;
        let ops = vec![Op::Update { table, old, batch }];
        let count = count as u64;
        Ok(Change { ops, count, memory, returned, arbiters, ..Change::default() })
    }

    /// Returns the rows that DO UPDATE writes, in the order of the statement, and the row versions that they replace.
    async fn updated(
        &self,
        snapshot: &Arc<Snapshot>,
        called: &Ident,
        update: &DoUpdate,
        stored: &RecordBatch,
        compared: &ConflictingRows,
    ) -> Result<(Vec<ArrayRef>, Vec<RowId>)> {
        let ConflictingRows { keys, found } = compared;
        if called.value == EXCLUDED {
            return Err(Error::invalid(
                "the table is called `excluded`, as are the rows that are not inserted",
            )
            .hint("give it another name: INSERT INTO … AS t"));
        }
        // Evaluated even if no row conflicts, so that an invalid statement always fails.
        let places: Vec<usize> = (0..found.len()).filter(|row| found[*row].is_some()).collect();
        let (changed, changed_places) =
            self.evaluate(snapshot, called, update, stored, found, &places).await?;
        let mut outcome: Vec<Option<usize>> = vec![None; found.len()];
        for (at, place) in changed_places.into_iter().enumerate() {
            outcome[place] = Some(at);
        }
        let mut touched: HashSet<&[u8]> = HashSet::new();
        let (mut picks, mut old) = (Vec::new(), Vec::new());
        for (row, key) in keys.iter().enumerate() {
            if key.as_deref().is_some_and(|key| touched.contains(key)) {
                return Err(Error::invalid("ON CONFLICT DO UPDATE cannot change a row a second time")
                    .with("row", row + 1)
                    .hint("no two rows of one statement may have the same key"));
            }
            match (found[row], outcome[row]) {
                (None, _) => picks.push(RowSource::New(row)),
                (Some(there), Some(at)) => {
                    old.push(there);
                    picks.push(RowSource::Updated(at));
                }
                // WHERE excludes the row, so it stays as it is.
                (Some(_), None) => continue,
            }
            touched.extend(key.as_deref());
        }
        let places: Vec<(usize, usize)> = picks
            .iter()
            .map(|pick| match *pick {
                RowSource::New(row) => (0, row),
                RowSource::Updated(at) => (1, at),
            })
            .collect();
        let column = |(new, updated): (&ArrayRef, &ArrayRef)| {
            interleave(&[new, updated], &places)
                .map_err(|e| Error::internal(format!("gathering rows failed: {e}")))
        };
        let rows = stored.columns().iter().zip(changed.columns()).map(column).collect::<Result<Vec<_>>>()?;
        Ok((rows, old))
    }

    /// Evaluates SET for the conflicting rows that pass WHERE. Returns their new values, and their positions in the statement.
    async fn evaluate(
        &self,
        snapshot: &Arc<Snapshot>,
        called: &Ident,
        update: &DoUpdate,
        stored: &RecordBatch,
        found: &[Option<RowId>],
        places: &[usize],
    ) -> Result<(RecordBatch, Vec<usize>)> {
        let def = snapshot.def();
        let ids: BTreeSet<RowId> = places.iter().filter_map(|place| found[*place]).collect();
        let ids: Vec<RowId> = ids.into_iter().collect();
        let mut columns: Vec<ColumnId> = def.schema.columns.iter().map(|c| c.id).collect();
        columns.extend([ROW_ID, TIME]);
        let there = snapshot.fetch(&ids, &snapshot.projection(&columns)?)?;
        let _memory = reserve(self.planner, there.get_array_memory_size())?;
        let there = ExtraTable::of(THERE, extra_schema(snapshot, &[]), there.columns().to_vec())?;

        let at = UInt32Array::from_iter_values(places.iter().map(|place| *place as u32));
        let column = |array: &ArrayRef| {
            take(array, &at, None).map_err(|e| Error::internal(format!("selecting rows failed: {e}")))
        };
        let mut excluded = stored.columns().iter().map(column).collect::<Result<Vec<_>>>()?;
        let rows = places.iter().filter_map(|place| found[*place]).map(|row| row.0 as i64);
        excluded.push(Arc::new(Int64Array::from_iter_values(rows)));
        // No statement can name it: the new row has no time yet.
        let times = TimestampMicrosecondArray::from(vec![self.view.time(); places.len()]);
        excluded.push(Arc::new(times.with_timezone("UTC")));
        excluded.push(Arc::new(Int64Array::from_iter_values(places.iter().map(|place| *place as i64))));
        let place = Field::new(PLACE, arrow::datatypes::DataType::Int64, false);
        let excluded = ExtraTable::of(EXCLUDED, extra_schema(snapshot, &[place]), excluded)?;

        let params = &self.params.values;
        let sets =
            Assignments::of(def, called, &update.assignments, params, |column| qualified(called, column))?;
        let mut statement = parse::statement(
            &format!(
                r#"SELECT 1 FROM polynya."{THERE}" AS {name} JOIN polynya."{EXCLUDED}" AS {EXCLUDED}
                   ON {name}.{ROW_ID_NAME} = {EXCLUDED}.{ROW_ID_NAME}"#,
                name = Ident::with_quote('"', &called.value)
            ),
            64 << 10,
        )?;
        if let Statement::Query(query) = &mut statement
            && let SetExpr::Select(select) = query.body.as_mut()
        {
            let place = qualified(&Ident::new(EXCLUDED), PLACE);
            select.projection = vec![SelectItem::UnnamedExpr(place)];
            select.projection.extend(sets.items());
            select.selection.clone_from(&update.selection);
        }
        let (batch, memory) =
            self.run_with_extras(statement, &[there, excluded]).await.map_err(|e| ambiguous(e, called))?;
        let rows = batch.num_rows();
        let columns: Vec<&Column> = def.schema.columns.iter().collect();
        let changed = batch_of(&columns, sets.columns(def, &batch.columns()[1..], rows)?, rows)?;
        let changed = snapshot.conform(&changed)?;
        drop(memory);
        let places =
            batch.column(0).as_primitive::<Int64Type>().values().iter().map(|p| *p as usize).collect();
        Ok((changed, places))
    }
}

/// Adds a hint to the error of an ambiguous name: `SET n = n + 1` could mean either row.
fn ambiguous(error: Error, called: &Ident) -> Error {
    if error.kind() == Kind::Invalid && error.message().to_lowercase().contains("ambiguous") {
        let called = name::printable(&called.value);
        return error.hint(format!(
            "write {called}.column for the row that is there, excluded.column for the new one"
        ));
    }
    error
}
