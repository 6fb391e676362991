//! Named cursors of consumers: how far a consumer has read a table, stored at the server.
//!
//! Cursors are rows of one of Polynya's own keyed tables, [`TABLE`], so they survive a crash, and the row id of a cursor's row is
//! its version. A cursor belongs to a table by the table's id: it is gone with the table, even if another table takes the name.
//! Rows of dropped tables are removed when the next cursor is made.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use engine::{Committed, DatabaseRoot, Mode, Op, Transaction};
use types::{
    DataType, Error, Kind, Lsn, Micros, Principal, ROW_ID_NAME, Result, RowId, TIME_NAME, TableDef, TableId,
    Value, key, name,
};

use crate::app::Shared;
use crate::routes::define;

/// The table that stores the cursors.
pub const TABLE: &str = "polynya.cursors";

/// Maximum number of cursors of one table.
const OF_TABLE_MAX: usize = 10_000;
/// Maximum number of cursors of all tables.
const MAX: usize = 100_000;
const NAME_CHARS_MAX: usize = 128;

const TABLE_ID: &str = "table_id";
const NAME: &str = "name";
const TABLE_NAME: &str = "table";
const ROW: &str = "row";
const LSN: &str = "lsn";

/// The position of a consumer in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub name: String,
    /// The last row that the consumer has processed.
    pub row: Option<RowId>,
    /// The last commit that the consumer has processed.
    pub lsn: Option<Lsn>,
    /// The version of the cursor, a new one after each move.
    pub version: RowId,
    pub moved: Micros,
}

/// The precondition for a change of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Anything,
    Absent,
    Version(RowId),
}

pub fn check_name(cursor: &str) -> Result<()> {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.:@".contains(c);
    let fits = (1..=NAME_CHARS_MAX).contains(&cursor.chars().count()) && cursor.chars().all(is_plain);
    if fits && !matches!(cursor, "." | "..") {
        return Ok(());
    }
    Err(Error::invalid(format!("`{}` is not a valid cursor name", name::printable(cursor)))
        .hint(format!("letters, digits and `-_.:@`, at most {NAME_CHARS_MAX}")))
}

/// Returns one cursor of a table.
pub fn find(root: &DatabaseRoot, table: TableId, cursor: &str) -> Result<Option<Cursor>> {
    let Some(cursors) = root.table(TABLE) else { return Ok(None) };
    let types = [DataType::Int64, DataType::String];
    let values = [Value::Int64(table.0.into()), Value::String(cursor.to_owned())];
    let Some(row) = cursors.find(&key::encode_values(&types, &values)?)? else { return Ok(None) };
    let batch = cursors.fetch(&[row], cursors.all_columns())?;
    Ok(read(&batch)?.pop().map(|(_, cursor)| cursor))
}

/// Returns one cursor of a table. Fails with [`Kind::NotFound`] if there is none of this name.
pub fn get(root: &DatabaseRoot, table: &TableDef, cursor: &str) -> Result<Cursor> {
    check_name(cursor)?;
    let short = name::short_table_name(&table.name);
    find(root, table.id, cursor)?.ok_or_else(|| {
        Error::not_found(format!("there is no cursor `{cursor}`"))
            .with("table", short)
            .hint(format!("PUT /v1/tables/{short}/cursors/{cursor} {{\"row\": 0}} makes it"))
    })
}

/// Returns all cursors of a table, in the order of their names.
pub fn of_table(root: &DatabaseRoot, table: TableId) -> Result<Vec<Cursor>> {
    let mut found: Vec<Cursor> = Vec::new();
    for_each(root, |id, cursor| {
        if id == table {
            found.push(cursor);
        }
    })?;
    found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Sets a cursor to a position, and makes it if need be. Fails with [`Kind::Conflict`] if it is not as `expected`.
pub async fn put(
    app: &Shared,
    table: &Arc<table::Snapshot>,
    cursor: &str,
    (row, lsn): (Option<RowId>, Option<Lsn>),
    expected: Expected,
) -> Result<Committed> {
    check_name(cursor)?;
    let id = table.def().id;
    let root = app.engine.root();
    let mut ops = Vec::new();
    // Making a cursor counts the existing ones, so only one request at a time may do it.
    let mut making = None;
    let mut known = find(&root, id, cursor)?;
    if known.is_none() && !matches!(expected, Expected::Version(_)) {
        making = Some(app.cursors.lock().await);
        let root = app.engine.root();
        known = find(&root, id, cursor)?;
        if known.is_none() {
            let room = app.work.run(move || room(&root, id)).await??;
            ops.extend(room.table);
            if let Some(gone) = room.gone {
                // This needs a transaction of its own, because one transaction writes a keyed table only once.
                define::commit(app, &Principal::local(), Transaction::new(vec![gone]).internal()).await?;
            }
        }
    }
    check_expected(cursor, known.as_ref(), expected)?;
    let mode = match expected {
        Expected::Anything => Mode::Upsert,
        Expected::Absent => Mode::CompareAndSet(vec![None]),
        Expected::Version(version) => Mode::CompareAndSet(vec![Some(version)]),
    };
    let batch = written(table.def(), cursor, row, lsn)?;
    ops.push(Op::Insert { table: TABLE.into(), batch, mode });
    let transaction = Transaction::new(ops).internal();
    let committed = define::commit(app, &Principal::local(), transaction).await;
    drop(making);
    committed.map_err(|error| match error.kind() {
        Kind::Conflict if expected != Expected::Anything => moved(cursor),
        _ => error,
    })
}

/// Removes a cursor and returns the lsn; `None` if there is no such cursor.
pub async fn remove(app: &Shared, table: TableId, cursor: &str, expected: Expected) -> Result<Option<Lsn>> {
    let Some(known) = find(&app.engine.root(), table, cursor)? else { return Ok(None) };
    check_expected(cursor, Some(&known), expected)?;
    let must_exist = expected != Expected::Anything;
    let op = Op::Delete { table: TABLE.into(), rows: vec![known.version], must_exist };
    let removed = define::commit(app, &Principal::local(), Transaction::new(vec![op]).internal()).await;
    removed.map(|committed| Some(committed.lsn)).map_err(|error| match error.kind() {
        Kind::Conflict => moved(cursor),
        _ => error,
    })
}

fn check_expected(cursor: &str, known: Option<&Cursor>, expected: Expected) -> Result<()> {
    match (expected, known) {
        (Expected::Version(version), known) if known.is_none_or(|known| known.version != version) => {
            Err(moved(cursor))
        }
        (Expected::Absent, Some(_)) => Err(moved(cursor)),
        _ => Ok(()),
    }
}

fn moved(cursor: &str) -> Error {
    Error::conflict(format!("the cursor `{cursor}` is not what the request expects")).hint(
        "somebody else moved, made or removed it: read it again, and see that only one consumer uses it",
    )
}

/// Operations that precede the making of a cursor.
struct Room {
    /// Creates [`TABLE`], if it does not exist yet.
    table: Option<Op>,
    /// Deletes the cursors of dropped tables, if there are any.
    gone: Option<Op>,
}

/// Checks that one more cursor is within the bounds, and returns the operations that make room for it.
fn room(root: &DatabaseRoot, table: TableId) -> Result<Room> {
    if root.table(TABLE).is_none() {
        let table = Op::CreateTable { def: definition()?, if_absent: true };
        return Ok(Room { table: Some(table), gone: None });
    }
    let alive: HashSet<TableId> = root.tables().map(|table| table.def().id).collect();
    let (mut of_table, mut all, mut gone) = (0, 0, Vec::new());
    for_each(root, |id, cursor| {
        if alive.contains(&id) {
            all += 1;
            of_table += usize::from(id == table);
        } else {
            gone.push(cursor.version)
        }
    })?;
    if of_table >= OF_TABLE_MAX || all >= MAX {
        let (whose, max) =
            if of_table >= OF_TABLE_MAX { ("a table", OF_TABLE_MAX) } else { ("all tables", MAX) };
        return Err(Error::new(Kind::TooLarge, format!("the cursors of {whose} are at most {max}"))
            .hint("remove unused ones with DELETE"));
    }
    let delete = |rows| Op::Delete { table: TABLE.into(), rows, must_exist: false };
    Ok(Room { table: None, gone: (!gone.is_empty()).then(|| delete(gone)) })
}

fn for_each(root: &DatabaseRoot, mut each: impl FnMut(TableId, Cursor)) -> Result<()> {
    let Some(cursors) = root.table(TABLE) else { return Ok(()) };
    for piece in cursors.pieces() {
        for (id, cursor) in read(&piece.read(cursors.all_columns())?)? {
            each(id, cursor);
        }
    }
    Ok(())
}

/// Returns the cursors of a batch with all columns, each with the id of its table.
fn read(batch: &RecordBatch) -> Result<Vec<(TableId, Cursor)>> {
    let column = |name: &str| {
        let column = batch.column_by_name(name);
        column.ok_or_else(|| Error::damaged(format!("{TABLE} has no column `{name}`")))
    };
    let numbers = |name: &str| {
        let numbers = column(name)?.as_primitive_opt::<Int64Type>();
        numbers.ok_or_else(|| Error::damaged(format!("`{name}` of {TABLE} is not a column of numbers")))
    };
    let (versions, ids, rows, lsns) =
        (numbers(ROW_ID_NAME)?, numbers(TABLE_ID)?, numbers(ROW)?, numbers(LSN)?);
    let damaged = || Error::damaged(format!("{TABLE} has columns of other types"));
    let names = column(NAME)?.as_string_opt::<i32>().ok_or_else(damaged)?;
    let times = column(TIME_NAME)?.as_primitive_opt::<TimestampMicrosecondType>().ok_or_else(damaged)?;
    let number = |of: &Int64Array, at: usize| of.is_valid(at).then(|| of.value(at) as u64);
    let cursor = |at: usize| {
        let id = TableId(u32::try_from(ids.value(at)).map_err(|_| damaged())?);
        let cursor = Cursor {
            name: names.value(at).to_owned(),
            row: number(rows, at).map(RowId),
            lsn: number(lsns, at).map(Lsn),
            version: RowId(versions.value(at) as u64),
            moved: times.value(at),
        };
        Ok((id, cursor))
    };
    (0..batch.num_rows()).map(cursor).collect()
}

fn definition() -> Result<TableDef> {
    let mut def = TableDef::new(TableId(0), TABLE);
    def.add_column(TABLE_ID, &DataType::Int64, false, None)?;
    for name in [NAME, TABLE_NAME] {
        def.add_column(name, &DataType::String, false, None)?;
    }
    for name in [ROW, LSN] {
        def.add_column(name, &DataType::Int64, true, None)?;
    }
    def.set_primary_key(&[TABLE_ID.to_owned(), NAME.to_owned()])?;
    def.options.lake = Some(false);
    Ok(def)
}

/// Returns a cursor as a row of [`TABLE`].
fn written(table: &TableDef, cursor: &str, row: Option<RowId>, lsn: Option<Lsn>) -> Result<RecordBatch> {
    let number = |number: Option<i64>| -> ArrayRef { Arc::new(Int64Array::from(vec![number])) };
    let text = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
    RecordBatch::try_from_iter_with_nullable([
        (TABLE_ID, number(Some(table.id.0.into())), false),
        (NAME, text(cursor), false),
        (TABLE_NAME, text(name::short_table_name(&table.name)), false),
        (ROW, number(row.map(|row| row.0 as i64)), true),
        (LSN, number(lsn.map(|lsn| lsn.0 as i64)), true),
    ])
    .map_err(|e| Error::internal(format!("a cursor makes no row: {e}")))
}
