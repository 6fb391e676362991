//! Idempotency: a request with an `Idempotency-Key` that is sent again gets the answer of the first time.
//!
//! Committed requests are rows of a keyed table of Polynya's own, [`TABLE`], each written in the commit that it records. So
//! a record survives a crash exactly if its commit does, two equal requests at once meet at the commit thread, and backups,
//! seals and compaction need nothing special. The commit thread fills in the outcome.
//!
//! A row names the tables of its request, by id and name, and counts as long as they exist: rows that were dropped with
//! their table must be sent again. The ids stand beside the answer and are not part of the key's hash. The first request may
//! create its table, whose id nobody knows before that commit, and the same request must find the answer afterwards. Rows of
//! earlier versions name no tables and always count.
//!
//! Rows are kept for [`Options::remember_for`](crate::Options::remember_for), and at most
//! [`Options::remember_max`](crate::Options::remember_max) of them; the oldest go first (`expire.rs`).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int64Array, RecordBatch, StringArray};
use table::RowRef;
use types::{ColumnId, DataType, Error, Lsn, Micros, Result, RowId, TableDef, TableId, Value, key, name};

use crate::database_root::DatabaseRoot;
use crate::engine::Engine;
use crate::interactive::{FinalRows, RowIdRanges, TransactionOutcome};
use crate::prepare::{self, Insert, KeyRule, PreparedOp, TargetTable};
use crate::transaction::{Committed, NewColumn};

/// Name of the table of committed requests.
pub const TABLE: &str = "polynya.idempotency";

/// Context key of the [`types::Kind::Conflict`] that a repeated request gets.
pub const REPEATED: &str = "idempotency";

/// A request with an idempotency key, as it is to be recorded.
#[derive(Clone, Debug)]
pub struct IdempotentRequest {
    /// Names the request: a hash of its idempotency key and of the key's purpose.
    pub key: [u8; 16],
    /// Hash of the request itself, which tells it from another request under the same key.
    pub request: u64,
    /// Full names of the tables that it is for. The record no longer counts once all of them are gone or replaced by others.
    /// A table that does not exist at the commit does not count. For an open transaction the tables that it wrote to are
    /// taken instead.
    pub tables: Vec<String>,
    /// The part of the answer that is not in [`Committed`].
    pub note: Option<String>,
}

/// The record of a committed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    pub request: u64,
    pub committed: Committed,
    pub note: Option<String>,
}

impl RecordedRequest {
    /// Returns the outcome of an open transaction, and the note with which it was committed.
    pub fn outcome(&self) -> Result<(TransactionOutcome, &str)> {
        let of_note = || {
            let (firsts, rest) = self.note.as_deref()?.split_once('\n')?;
            let (own, note) = rest.split_once('\n')?;
            Some((
                TransactionOutcome { committed: self.committed, final_rows: parse_final_rows(firsts, own)? },
                note,
            ))
        };
        of_note().ok_or_else(|| Error::damaged(format!("the note of a transaction in {TABLE}")))
    }
}

/// The recorded requests at one lsn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdempotencyStats {
    pub requests: u64,
    /// Commit time of the oldest.
    pub oldest: Option<Micros>,
}

const KEY: &str = "key";
const NOTE: &str = "note";
/// Column with the `id:name` of each table, separated by spaces.
const TABLES: &str = "tables";
/// Columns of numbers: the request's hash, then the outcome.
const REQUEST: &str = "request";
const LSN: &str = "lsn";
const FIRST_ROW: &str = "first_row";
const LAST_ROW: &str = "last_row";
const COUNT: &str = "count";
const DELETED: &str = "deleted";

impl Engine {
    /// Returns the record of the request with this key, if one was committed and is still kept.
    ///
    /// Fails with [`types::Kind::Conflict`] if some of its tables are gone or replaced by others and some are not. To repeat
    /// the request would be wrong for the tables that remain, and not to repeat it wrong for those that are gone.
    pub fn recorded_request(&self, key: &[u8; 16]) -> Result<Option<RecordedRequest>> {
        let root = self.root();
        let Some(table) = root.table(TABLE) else { return Ok(None) };
        let Some(row) = table.get_row(&encoded(key)?)? else { return Ok(None) };
        match lost_tables(&root, table.def(), &row)? {
            None => {}
            Some(LostTables { is_all: true, .. }) => return Ok(None),
            Some(LostTables { first, .. }) => return Err(partly_lost(&first)),
        }
        let number = |name: &str| -> Result<Option<i64>> {
            match row.value(column(table.def(), name)?)? {
                Value::Int64(number) => Ok(Some(number)),
                Value::Null => Ok(None),
                other => Err(Error::damaged(format!("`{name}` of {TABLE} is {other:?}"))),
            }
        };
        let count = |name: &str| Ok::<u64, Error>(number(name)?.unwrap_or(0) as u64);
        let row_id = |name: &str| Ok::<Option<RowId>, Error>(number(name)?.map(|id| RowId(id as u64)));
        let committed = Committed {
            lsn: Lsn(count(LSN)?),
            time: match row.value(types::TIME)? {
                Value::Timestamp(time) => time,
                _ => 0,
            },
            first_row: row_id(FIRST_ROW)?,
            last_row: row_id(LAST_ROW)?,
            count: count(COUNT)?,
            deleted: count(DELETED)?,
        };
        let note = match row.value(column(table.def(), NOTE)?)? {
            Value::String(note) => Some(note),
            _ => None,
        };
        Ok(Some(RecordedRequest { request: count(REQUEST)?, committed, note }))
    }

    /// Returns the number of recorded requests and the time of the oldest.
    pub fn idempotency_stats(&self) -> Result<IdempotencyStats> {
        let root = self.root();
        let Some(table) = root.table(TABLE) else { return Ok(IdempotencyStats::default()) };
        let times = table.projection(&[types::TIME])?;
        let first = table.scan_from(RowId(1), 1, &times)?;
        let oldest = match first.num_rows() {
            0 => None,
            _ => match Value::from_array(first.column(0), &DataType::Timestamp, 0) {
                Value::Timestamp(time) => Some(time),
                _ => None,
            },
        };
        Ok(IdempotencyStats { requests: table.rows(), oldest })
    }
}

/// The definition with which the table is created.
fn definition() -> Result<TableDef> {
    let mut def = TableDef::new(TableId(0), TABLE);
    def.add_column(KEY, &DataType::Binary, false, None)?;
    for name in [REQUEST, LSN] {
        def.add_column(name, &DataType::Int64, false, None)?;
    }
    for name in [FIRST_ROW, LAST_ROW] {
        def.add_column(name, &DataType::Int64, true, None)?;
    }
    for name in [COUNT, DELETED] {
        def.add_column(name, &DataType::Int64, false, None)?;
    }
    for name in [NOTE, TABLES] {
        def.add_column(name, &DataType::String, true, None)?;
    }
    def.set_primary_key(&[KEY.to_owned()])?;
    def.options.lake = Some(false);
    Ok(def)
}

/// Returns the operations that record a request: the creation of the table, or its update from an earlier version, and one
/// row that has no outcome yet. The row replaces one whose tables are all gone.
pub(crate) fn prepare(root: &DatabaseRoot, remember: &IdempotentRequest) -> Result<Vec<PreparedOp>> {
    let base = root.table(TABLE).cloned();
    let mut ops = Vec::with_capacity(2);
    let def = match &base {
        Some(base) => {
            let columns = vec![NewColumn {
                name: TABLES.to_owned(),
                data_type: DataType::String,
                nullable: true,
                default: None,
            }];
            match prepare::with_columns(base.def(), &columns)? {
                None => base.def().clone(),
                Some(changed) => {
                    let (table, base) = (TABLE.to_owned(), base.def().clone());
                    ops.push(PreparedOp::AddColumns { table, base, columns });
                    Arc::new(changed)
                }
            }
        }
        None => {
            let def = definition()?;
            def.check_stored()?;
            ops.push(PreparedOp::CreateTable { def: def.clone(), if_absent: true });
            Arc::new(def)
        }
    };
    let numbers = |number: i64| -> ArrayRef { Arc::new(Int64Array::from_value(number, 1)) };
    // Tables are recorded under their own names, whatever the case in the request, so that the commit finds them.
    let named = |wanted: &String| find(root, wanted).map_or(wanted.clone(), |table| table.def().name.clone());
    let tables = remember.tables.iter().map(named).collect::<Vec<_>>().join(" ");
    let columns: [(&str, ArrayRef); 7] = [
        (KEY, Arc::new(BinaryArray::from_vec(vec![&remember.key]))),
        (REQUEST, numbers(remember.request as i64)),
        (LSN, numbers(0)),
        (COUNT, numbers(0)),
        (DELETED, numbers(0)),
        (NOTE, Arc::new(StringArray::from(vec![remember.note.as_deref()]))),
        (TABLES, Arc::new(StringArray::from(vec![(!tables.is_empty()).then_some(tables)]))),
    ];
    let row = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, values)| (name, values, matches!(name, NOTE | TABLES))),
    )
    .map_err(|e| Error::internal(format!("the record of a request cannot be made: {e}")))?;
    let batch = match &base {
        Some(base) if base.def().schema.version == def.schema.version => base.conform(&row)?,
        _ => table::conform(&row, &def)?,
    };
    let keys = prepare::find_all(base.as_deref(), prepare::encode_keys(&def, &batch))?;
    let target = TargetTable { table: TABLE.to_owned(), id: base.as_ref().map(|base| base.def().id), base };
    let (version, claims, mut replaces) = (def.schema.version, Vec::new(), Vec::new());
    for found in keys.iter().filter_map(|key| key.found) {
        if let Some(base) = &target.base
            && let Some(row) = base.row(found)?
            && lost_tables(root, base.def(), &row)?.is_some_and(|lost| lost.is_all)
        {
            replaces.push(found);
        }
    }
    ops.push(PreparedOp::Remember(Insert {
        target,
        version,
        batch,
        keys,
        claims,
        rule: KeyRule::Refuse,
        replaces,
    }));
    Ok(ops)
}

/// Adds to the note of an open transaction the rows that it wrote, by the ids that they have within it: see
/// [`RecordedRequest::outcome`]. Their final row ids are put before it once they are known.
pub(crate) fn with_own_rows(
    mut remember: IdempotentRequest,
    own: &[(TableId, RowIdRanges)],
) -> IdempotentRequest {
    let range = |(first, rows): &(u64, u64)| format!("{first}+{rows}");
    let table = |(id, ranges): &(TableId, RowIdRanges)| {
        format!("{id}:{}", ranges.iter().map(range).collect::<Vec<_>>().join(","))
    };
    let own: Vec<String> = own.iter().map(table).collect();
    remember.note = Some(format!("{}\n{}", own.join(" "), remember.note.unwrap_or_default()));
    remember
}

/// Parses the note that [`with_own_rows`] and [`with_outcome`] wrote.
fn parse_final_rows(firsts: &str, own: &str) -> Option<Vec<FinalRows>> {
    let of_table = |part: &str| -> Option<(TableId, String)> {
        let (id, rest) = part.split_once(':')?;
        Some((TableId(id.parse().ok()?), rest.to_owned()))
    };
    let firsts = firsts.split_terminator(' ').map(of_table).collect::<Option<Vec<_>>>()?;
    let own = own.split_terminator(' ').map(of_table).collect::<Option<Vec<_>>>()?;
    let range = |text: &str| {
        let (first, rows) = text.split_once('+')?;
        Some((first.parse().ok()?, rows.parse().ok()?))
    };
    let landing = |(table, first): &(TableId, String)| {
        let (_, ranges) = own.iter().find(|(of, _)| of == table)?;
        let own = ranges.split(',').map(range).collect::<Option<RowIdRanges>>()?;
        Some(FinalRows { table: *table, own, first: RowId(first.parse().ok()?) })
    };
    firsts.iter().map(landing).collect()
}

/// Fills the outcome of the commit into the row. `firsts` are the first row ids in each table, for an open transaction.
/// `id_of` returns the id of a table by its name, as the commit leaves it.
pub(crate) fn with_outcome(
    batch: &RecordBatch,
    committed: &Committed,
    firsts: Option<&[(TableId, RowId)]>,
    id_of: impl Fn(&str) -> Option<TableId>,
) -> Result<RecordBatch> {
    let row_id = |row: Option<RowId>| row.map(|row| row.0 as i64);
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns()).map(|(field, column)| -> ArrayRef {
        let number = match field.name().as_str() {
            LSN => Some(committed.lsn.0 as i64),
            COUNT => Some(committed.count as i64),
            DELETED => Some(committed.deleted as i64),
            FIRST_ROW => row_id(committed.first_row),
            LAST_ROW => row_id(committed.last_row),
            NOTE => {
                return match (firsts, column.as_string_opt::<i32>()) {
                    (Some(firsts), Some(notes)) => noted(firsts, notes.value(0)),
                    _ => column.clone(),
                };
            }
            TABLES => {
                let names = column.as_string_opt::<i32>().filter(|names| names.is_valid(0));
                let names = names.map_or("", |names| names.value(0));
                let noted = |name: &str| Some(format!("{}:{name}", id_of(name)?));
                let noted: Vec<String> = names.split_terminator(' ').filter_map(noted).collect();
                return Arc::new(StringArray::from(vec![(!noted.is_empty()).then(|| noted.join(" "))]));
            }
            _ => return column.clone(),
        };
        Arc::new(Int64Array::from(vec![number]))
    });
    let columns = columns.collect();
    RecordBatch::try_new(schema, columns)
        .map_err(|e| Error::internal(format!("the outcome of a request cannot be recorded: {e}")))
}

fn noted(firsts: &[(TableId, RowId)], note: &str) -> ArrayRef {
    let firsts: Vec<String> = firsts.iter().map(|(table, first)| format!("{table}:{first}")).collect();
    Arc::new(StringArray::from(vec![format!("{}\n{note}", firsts.join(" "))]))
}

/// The tables of a request that are gone since, or replaced by others of the same names.
struct LostTables {
    first: String,
    /// True if no table is left.
    is_all: bool,
}

/// Returns the lost tables of a record, or `None` if all of them are there.
fn lost_tables(root: &DatabaseRoot, def: &TableDef, row: &RowRef) -> Result<Option<LostTables>> {
    let Some(column) = def.schema.column_named(TABLES) else { return Ok(None) };
    let Value::String(tables) = row.value(column.id)? else { return Ok(None) };
    let (mut first, mut is_all) = (None, true);
    for table in tables.split(' ') {
        let id_and_name = table.split_once(':').and_then(|(id, name)| Some((id.parse().ok()?, name)));
        let (id, name) = id_and_name.ok_or_else(|| Error::damaged(format!("`{TABLES}` of {TABLE}")))?;
        // A renamed table still has its rows.
        if root.tables().any(|table| table.def().id == TableId(id)) {
            is_all = false
        } else {
            first = first.or_else(|| Some(name.to_owned()))
        }
    }
    Ok(first.map(|first| LostTables { first, is_all }))
}

/// Finds a table by its full name: the exact one, or the only one that differs by case.
fn find<'a>(root: &'a DatabaseRoot, full_name: &str) -> Option<&'a Arc<table::Snapshot>> {
    root.table(full_name).or_else(|| {
        let position = name::resolve(full_name, root.tables().map(|table| table.def().name.as_str()))?;
        root.tables().nth(position)
    })
}

fn partly_lost(table: &str) -> Error {
    Error::conflict(
        "the request was committed before; some of its tables are there as they were, and one is not",
    )
    .with("table", name::short_table_name(table))
    .hint("send the missing rows in another request, with a key of its own")
}

/// The error for a request that was committed before, or is being committed. Its answer is in [`Engine::recorded_request`] once
/// that commit is durable.
pub(crate) fn repeated() -> Error {
    Error::conflict("a request with this idempotency key was committed already").with(REPEATED, "repeated")
}

fn encoded(key: &[u8; 16]) -> Result<Vec<u8>> {
    key::encode_values(&[DataType::Binary], &[Value::Binary(key.to_vec())])
}

fn column(def: &TableDef, name: &str) -> Result<ColumnId> {
    let column = def.schema.column_named(name);
    column.map(|column| column.id).ok_or_else(|| Error::damaged(format!("{TABLE} has no column `{name}`")))
}
