//! INSERT … ON CONFLICT: what becomes of a row whose key another row has already.
//!
//! As in PostgreSQL: the row in the way is seen under the table's name, the one that is not inserted as `excluded`; a
//! statement that would change a row twice fails. Rows are looked up in one view. If another writer is faster, the
//! commit is refused, and the statement runs again over a newer view.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, TimestampMicrosecondArray, UInt32Array,
};
use arrow::compute::{interleave, take};
use arrow::datatypes::{Field, Int64Type};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::sql::sqlparser::ast::{
    ConflictTarget, DoUpdate, Ident, OnConflict, OnConflictAction, SelectItem, SetExpr, Statement,
};
use engine::{Mode, Op};
use table::Snapshot;
use types::{
    Column, ColumnId, DataType, Error, Kind, ROW_ID, ROW_ID_NAME, Result, RowId, TIME, TableDef, key, name,
};

use super::assign::Sets;
use super::returning::{Changed, System};
use super::{Change, Writer, batch_of, column_position, qualified};
use crate::execute::reserve;
use crate::parse;
use crate::planner::{Extra, extra_schema};

/// The rows in the way.
const THERE: &str = "rows in the way";
/// The rows that are not inserted, as everybody calls them.
const EXCLUDED: &str = "excluded";
/// Their places among the rows of the statement. No column that a user names is called so.
const PLACE: &str = "polynya place";

/// Where a row of the outcome comes from.
#[derive(Clone, Copy)]
enum Pick {
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
        check_target(def, on.conflict_target.as_ref())?;
        let table = def.name.clone();
        let update = match &on.action {
            OnConflictAction::DoUpdate(update) if !def.is_keyed() => {
                let _ = update;
                return Err(no_key(def));
            }
            OnConflictAction::DoUpdate(update) => Some(update),
            OnConflictAction::DoNothing => None,
        };
        if update.is_none() && returning.is_none() {
            if batch.num_rows() == 0 {
                return Ok(Change::default());
            }
            // The commit knows best which keys are taken.
            let mode = if def.is_keyed() { Mode::InsertIfAbsent } else { Mode::Append };
            let ops = vec![Op::Insert { table, batch, mode }];
            return Ok(Change { ops, memory, counts_inserted: true, ..Change::default() });
        }
        let stored = snapshot.conform(&batch)?;
        let keys = keys(def, &stored);
        let found = keys
            .iter()
            .map(|key| if def.is_keyed() { snapshot.find(key) } else { Ok(None) })
            .collect::<Result<Vec<_>>>()?;
        let (rows, old) = match update {
            Some(update) => self.updated(snapshot, called, update, &stored, &keys, &found).await?,
            None => {
                let mut seen = HashSet::new();
                let free =
                    |row: &usize| found[*row].is_none() && (!def.is_keyed() || seen.insert(&keys[*row]));
                let kept =
                    UInt32Array::from_iter_values((0..stored.num_rows()).filter(free).map(|row| row as u32));
                let column = |array: &ArrayRef| {
                    take(array, &kept, None)
                        .map_err(|e| Error::internal(format!("selecting rows failed: {e}")))
                };
                (stored.columns().iter().map(column).collect::<Result<Vec<_>>>()?, Vec::new())
            }
        };
        let count = rows.first().map_or(0, |column| column.len());
        let returned = match returning {
            None => None,
            Some(items) => {
                let changed =
                    Changed { snapshot, called, rows: rows.clone(), system: System::New, others: Vec::new() };
                Some(self.returned(items, changed).await?)
            }
        };
        if count == 0 {
            return Ok(Change { returned, ..Change::default() });
        }
        let columns: Vec<&Column> = def.schema.columns.iter().collect();
        let batch = batch_of(&columns, rows, count)?;
        let ops = vec![Op::Update { table, old, batch }];
        Ok(Change { ops, count: count as u64, memory, returned, retries_exists: true, ..Change::default() })
    }

    /// The rows as DO UPDATE leaves them, in the order of the statement, and the versions that they replace.
    async fn updated(
        &self,
        snapshot: &Arc<Snapshot>,
        called: &Ident,
        update: &DoUpdate,
        stored: &RecordBatch,
        keys: &[Box<[u8]>],
        found: &[Option<RowId>],
    ) -> Result<(Vec<ArrayRef>, Vec<RowId>)> {
        if called.value == EXCLUDED {
            return Err(Error::invalid(
                "the table is called `excluded`, as are the rows that are not inserted",
            )
            .hint("give it another name: INSERT INTO … AS t"));
        }
        // Evaluated without any row in the way too: a mistake shows at once.
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
            if touched.contains(&key[..]) {
                return Err(Error::invalid("ON CONFLICT DO UPDATE cannot change a row a second time")
                    .with("row", row + 1)
                    .hint("no two rows of one statement may have the same key"));
            }
            match (found[row], outcome[row]) {
                (None, _) => picks.push(Pick::New(row)),
                (Some(there), Some(at)) => {
                    old.push(there);
                    picks.push(Pick::Updated(at));
                }
                // WHERE leaves it as it is.
                (Some(_), None) => continue,
            }
            touched.insert(key);
        }
        let places: Vec<(usize, usize)> = picks
            .iter()
            .map(|pick| match *pick {
                Pick::New(row) => (0, row),
                Pick::Updated(at) => (1, at),
            })
            .collect();
        let column = |(new, updated): (&ArrayRef, &ArrayRef)| {
            interleave(&[new, updated], &places)
                .map_err(|e| Error::internal(format!("gathering rows failed: {e}")))
        };
        let rows = stored.columns().iter().zip(changed.columns()).map(column).collect::<Result<Vec<_>>>()?;
        Ok((rows, old))
    }

    /// What SET makes of the rows in the way, where WHERE holds, and for which rows of the statement.
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
        let there = Extra::of(THERE, extra_schema(snapshot, &[]), there.columns().to_vec())?;

        let at = UInt32Array::from_iter_values(places.iter().map(|place| *place as u32));
        let column = |array: &ArrayRef| {
            take(array, &at, None).map_err(|e| Error::internal(format!("selecting rows failed: {e}")))
        };
        let mut excluded = stored.columns().iter().map(column).collect::<Result<Vec<_>>>()?;
        let rows = places.iter().filter_map(|place| found[*place]).map(|row| row.0 as i64);
        excluded.push(Arc::new(Int64Array::from_iter_values(rows)));
        // Nobody may ask for it: the row has none yet.
        let times = TimestampMicrosecondArray::from(vec![self.view.time(); places.len()]);
        excluded.push(Arc::new(times.with_timezone("UTC")));
        excluded.push(Arc::new(Int64Array::from_iter_values(places.iter().map(|place| *place as i64))));
        let place = Field::new(PLACE, arrow::datatypes::DataType::Int64, false);
        let excluded = Extra::of(EXCLUDED, extra_schema(snapshot, &[place]), excluded)?;

        let sets = Sets::of(def, called, &update.assignments, |column| qualified(called, column))?;
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
            self.run_over(statement, &[there, excluded]).await.map_err(|e| ambiguous(e, called))?;
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

/// `SET n = n + 1` could mean either row.
fn ambiguous(error: Error, called: &Ident) -> Error {
    if error.kind() == Kind::Invalid && error.message().to_lowercase().contains("ambiguous") {
        let called = name::printable(&called.value);
        return error.hint(format!(
            "write {called}.column for the row that is there, excluded.column for the new one"
        ));
    }
    error
}

/// Whether the rows in the way are those of the same primary key.
fn check_target(def: &TableDef, target: Option<&ConflictTarget>) -> Result<()> {
    match target {
        None => Ok(()),
        Some(ConflictTarget::Columns(columns)) => {
            let named = columns
                .iter()
                .map(|column| Ok(def.schema.columns[column_position(def, column)?].id))
                .collect::<Result<BTreeSet<_>>>()?;
            let key: BTreeSet<ColumnId> = def.primary_key.iter().copied().collect();
            if !def.is_keyed() {
                return Err(no_key(def));
            }
            if named != key {
                return Err(Error::invalid("ON CONFLICT names other columns than the primary key")
                    .with("table", name::short_table_name(&def.name))
                    .hint(format!("write ON CONFLICT ({})", key_names(def))));
            }
            Ok(())
        }
        Some(ConflictTarget::OnConstraint(object)) => {
            let error = Error::invalid(format!(
                "ON CONFLICT takes the columns of the primary key, not a constraint or an index such as `{}`",
                name::printable(&object.to_string())
            ));
            if !def.is_keyed() {
                return Err(no_key(def));
            }
            Err(error.hint(format!("write ON CONFLICT ({})", key_names(def))))
        }
    }
}

fn key_names(def: &TableDef) -> String {
    def.key_columns().map(|column| name::printable(&column.name)).collect::<Vec<_>>().join(", ")
}

fn no_key(def: &TableDef) -> Error {
    Error::invalid("the table has no primary key, so no two rows of it are in each other's way")
        .with("table", name::short_table_name(&def.name))
        .hint("leave ON CONFLICT out, or make the table with a PRIMARY KEY")
}

/// The key of each row; nothing of a table without one.
fn keys(def: &TableDef, stored: &RecordBatch) -> Vec<Box<[u8]>> {
    let place = |id: &ColumnId| def.schema.columns.iter().position(|column| column.id == *id);
    let places: Vec<usize> = def.primary_key.iter().filter_map(place).collect();
    let types: Vec<DataType> = places.iter().map(|at| def.schema.columns[*at].data_type.clone()).collect();
    let columns: Vec<&dyn Array> = places.iter().map(|at| stored.column(*at).as_ref()).collect();
    let mut buffer = Vec::new();
    (0..stored.num_rows())
        .map(|row| {
            buffer.clear();
            key::encode_row(&types, &columns, row, &mut buffer);
            buffer.as_slice().into()
        })
        .collect()
}
