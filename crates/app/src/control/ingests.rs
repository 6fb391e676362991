//! Exactly-once ingestion: the rows of a piece and the position that its file has reached are one commit.
//!
//! `polynya.ingests` holds a row for each file and table, its mark: the file and the position up to which it is stored. A
//! piece names the position at which it starts. It is stored only if the mark stands at that position. If the mark is at the
//! piece's end or later, the piece was stored before, and the answer says so. Each piece is therefore in the table once,
//! whichever process is killed at whatever moment. The position is part of the data: it is backed up, restored and dropped
//! with it, and `SELECT * FROM polynya.ingests` shows it.

use std::thread;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use bytes::Bytes;
use engine::{Engine, Mode, NewColumn, Op, Transaction, View};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use types::{DataType, Error, Kind, Principal, Result, RowId, TableDef, TableId, key, name};
use wire::DecodedRows;

/// The table that holds the position of each ingested file.
pub const TABLE: &str = "polynya.ingests";

/// Context key of the error for a piece that does not start at its file's position.
const MOVED: &str = "moved";

/// Attempts to store a piece while other writers change its table.
const RETRIES: usize = 20;
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// The position up to which a file is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    pub file: String,
    pub table: String,
    /// Hash of the file's first `head_len` bytes. It tells a rotated log from the file that had its name before.
    pub head: String,
    pub head_len: i64,
    /// Position before which everything is stored: in bytes of the unpacked file, or in rows of a Parquet file.
    pub position: i64,
    pub line: i64,
    pub rows: i64,
    /// Delimiter and types of a CSV file as JSON. They are kept, so that a growing file keeps its types.
    pub shape: Option<String>,
}

/// The header of a piece, as JSON in the first line of a request's body. The rest of the body is the rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PieceHeader {
    pub start: i64,
    pub media: String,
    /// The position of the file after the piece is stored. Its `rows` is replaced by the number that the server counts.
    pub after: Position,
    /// Starts the file from its beginning although rows of it are stored, if its mark still has this
    /// [`StoredPosition::version`]. Any other version is a conflict, because a piece of an earlier command may still arrive.
    pub anew: Option<u64>,
}

/// The stored position of a file, as the server answers it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredPosition {
    /// `None` if nothing of the file is stored, or its table was dropped.
    pub position: Option<Position>,
    /// Row id of the file's mark, which changes with every piece; 0 if there is no mark.
    pub version: u64,
}

const COLUMNS: [(&str, DataType); 11] = [
    ("id", DataType::String),
    ("file", DataType::String),
    ("table", DataType::String),
    ("table_id", DataType::Int64),
    ("head", DataType::String),
    ("head_len", DataType::Int64),
    ("position", DataType::Int64),
    ("line", DataType::Int64),
    ("rows", DataType::Int64),
    ("shape", DataType::String),
    ("time", DataType::Timestamp),
];

/// Answers with the [`StoredPosition`] of a file.
pub fn find(engine: &Engine, id: &str) -> Result<Value> {
    let view = engine.view(&Principal::local())?;
    let mark = read(&view, id)?;
    let version = mark.as_ref().map_or(0, |mark| mark.row.0);
    let position = mark.filter(|mark| mark.is_current(&view)).map(|mark| mark.position);
    Ok(json!(StoredPosition { position, version }))
}

/// Answers with a table's definition, in the form of the public interface.
pub fn describe(engine: &Engine, table: &str) -> Result<Value> {
    let snapshot = engine.view(&Principal::local())?.table(table)?;
    Ok(server::definition::describe(snapshot.def()))
}

/// Stores a piece unless it is stored already. Answers `{count, position}`, where `count` is 0 for a piece that was stored
/// before. Fails with `conflict` if the piece does not start at the file's position, or if other writers keep changing the
/// table; with `forbidden` for a table of the namespace `polynya`.
pub fn store(engine: &Engine, id: &str, body: &Bytes) -> Result<Value> {
    let line = body.iter().position(|byte| *byte == b'\n').unwrap_or(body.len());
    let piece: PieceHeader = serde_json::from_slice(&body[..line])
        .map_err(|error| Error::invalid("a piece does not begin like one").caused_by(error))?;
    let payload = &body[(line + 1).min(body.len())..];
    let full_name = name::full_table_name(&piece.after.table)?;
    if name::is_reserved(&full_name) {
        return Err(Error::new(Kind::Forbidden, format!("`{full_name}` belongs to Polynya"))
            .hint("choose a name outside of the namespace `polynya`"));
    }
    for retry in 0..RETRIES {
        match attempt(engine, id, &piece, payload, &full_name) {
            // The table or the mark changed while the transaction was prepared. The next attempt sees the change once that is
            // durable.
            Err(error) if error.kind() == Kind::Conflict && !is_moved(&error) => {
                thread::sleep(PAUSE_MAX.min(Duration::from_millis(1 << retry)));
            }
            outcome => return outcome,
        }
    }
    Err(Error::conflict("the table is constantly being changed by others").hint("run the command again"))
}

fn attempt(engine: &Engine, id: &str, piece: &PieceHeader, payload: &[u8], full_name: &str) -> Result<Value> {
    let local = Principal::local();
    // The commit is refused if the mark or the table changed since this view.
    let view = engine.view(&local)?;
    let mark = read(&view, id)?;
    let current =
        mark.as_ref().filter(|mark| mark.is_current(&view) && mark.position.head == piece.after.head);
    let stands_at = current.map_or(0, |mark| mark.position.position);
    match piece.anew {
        Some(version) if version != mark.as_ref().map_or(0, |mark| mark.row.0) => {
            return Err(moved_error("another command has read more of this file meanwhile".into()));
        }
        None if piece.start != stands_at && stands_at >= piece.after.position => {
            return Ok(json!({ "count": 0, "position": stands_at }));
        }
        None if piece.start != stands_at => {
            return Err(moved_error(format!(
                "this file stands at {stands_at}, the piece starts at {}",
                piece.start
            )));
        }
        _ => {}
    }
    let snapshot = view.find(full_name);
    let def = snapshot.as_ref().map(|snapshot| snapshot.def().as_ref());
    let target =
        wire::json::DecodeTarget { table: name::short_table_name(full_name), def, may_add_columns: true };
    let limits = wire::Limits::default();
    let decoded = match piece.media.as_str() {
        crate::ingest::ARROW => wire::ipc::decode(payload, target, &limits),
        _ => wire::json::decode(payload, target, &limits),
    };
    let DecodedRows { batch, new_columns } = decoded.map_err(|refused| refused.error)?;
    let Some(def) = def else {
        // The table is created in a commit of its own, because the mark names the table's id. The next attempt stores the rows.
        let mut def = TableDef::new(TableId(0), full_name);
        for column in &new_columns {
            def.add_column(&column.name, &column.data_type, true, None)?;
        }
        return match engine.commit(&local, Transaction::new(vec![Op::CreateTable { def, if_absent: false }]))
        {
            Err(error) if error.kind() != Kind::Exists => Err(error),
            _ => Err(Error::conflict("the table was just made")),
        };
    };
    let mut ops = Vec::new();
    if !new_columns.is_empty() {
        let column = |c: wire::NewColumn| NewColumn {
            name: c.name,
            data_type: c.data_type,
            nullable: true,
            default: None,
        };
        ops.push(Op::AddColumns {
            table: def.name.clone(),
            columns: new_columns.into_iter().map(column).collect(),
        });
    }
    let rows = batch.num_rows() as i64;
    if rows > 0 {
        let mode = match def.is_keyed() {
            true => Mode::Upsert,
            false if def.skips_repeats() => Mode::InsertIfAbsent,
            false => Mode::Append,
        };
        ops.push(Op::Insert { table: def.name.clone(), batch, mode });
    }
    let mut after = piece.after.clone();
    after.rows = rows + if piece.anew.is_some() { 0 } else { current.map_or(0, |mark| mark.position.rows) };
    if view.find(TABLE).is_none() {
        ops.push(Op::CreateTable { def: table()?, if_absent: true });
    }
    let expected = mark.as_ref().map(|mark| mark.row);
    let position = after.position;
    let mark = to_batch(id, def.id, &after, engine.env().clock.now())?;
    // Of two commands that send the same piece, one finds the mark changed and fails.
    ops.push(Op::Insert { table: TABLE.into(), batch: mark, mode: Mode::CompareAndSet(vec![expected]) });
    engine.commit_read(&view, &local, Transaction::new(ops).internal())?;
    Ok(json!({ "count": rows, "position": position }))
}

/// Makes the error for a conflict that a further attempt does not solve.
fn moved_error(message: String) -> Error {
    Error::conflict(message).with(MOVED, true).hint("another command is reading the same file: let it finish")
}

fn is_moved(error: &Error) -> bool {
    error.context().iter().any(|(key, _)| *key == MOVED)
}

/// The row of `polynya.ingests` for a file and table.
struct Mark {
    row: RowId,
    table_id: TableId,
    position: Position,
}

impl Mark {
    /// Returns true if the table is still the one that received the rows, and not a later one of the same name.
    fn is_current(&self, view: &View) -> bool {
        let full_name = name::full_table_name(&self.position.table).unwrap_or_default();
        view.find(&full_name).is_some_and(|table| table.def().id == self.table_id)
    }
}

fn read(view: &View, id: &str) -> Result<Option<Mark>> {
    let Some(snapshot) = view.find(TABLE) else { return Ok(None) };
    let bytes = key::encode_values(&[DataType::String], &[types::Value::String(id.to_owned())])?;
    let Some(row) = snapshot.find(&bytes)? else { return Ok(None) };
    let batch = snapshot.fetch(&[row], snapshot.all_columns())?;
    let wrong = || Error::internal(format!("`{TABLE}` is not defined as this version defines it"));
    let text = |name: &str| -> Option<String> {
        let array = batch.column_by_name(name)?.as_string_opt::<i32>()?;
        arrow::array::Array::is_valid(array, 0).then(|| array.value(0).to_owned())
    };
    let number =
        |name: &str| batch.column_by_name(name)?.as_primitive_opt::<Int64Type>().map(|array| array.value(0));
    let read = || {
        Some(Mark {
            row,
            table_id: TableId(u32::try_from(number("table_id")?).ok()?),
            position: Position {
                file: text("file")?,
                table: text("table")?,
                head: text("head")?,
                head_len: number("head_len")?,
                position: number("position")?,
                line: number("line")?,
                rows: number("rows")?,
                shape: text("shape"),
            },
        })
    };
    if batch.num_rows() == 0 { Ok(None) } else { read().map(Some).ok_or_else(wrong) }
}

fn table() -> Result<TableDef> {
    let mut def = TableDef::new(TableId(0), TABLE);
    for (column, data_type) in &COLUMNS {
        def.add_column(column, data_type, *column == "shape", None)?;
    }
    def.set_primary_key(&["id".into()])?;
    def.options.lake = Some(false);
    Ok(def)
}

fn to_batch(id: &str, table: TableId, after: &Position, now: types::Micros) -> Result<RecordBatch> {
    use types::Value::{Int64, Null, String as Text, Timestamp};
    let values = [
        Text(id.to_owned()),
        Text(after.file.clone()),
        Text(after.table.clone()),
        Int64(i64::from(table.0)),
        Text(after.head.clone()),
        Int64(after.head_len),
        Int64(after.position),
        Int64(after.line),
        Int64(after.rows),
        after.shape.clone().map_or(Null, Text),
        Timestamp(now),
    ];
    let columns = COLUMNS.iter().zip(values).map(|((name, data_type), value)| {
        types::Value::to_array(&[value], data_type).map(|array| (*name, array, true))
    });
    RecordBatch::try_from_iter_with_nullable(columns.collect::<Result<Vec<_>>>()?)
        .map_err(|error| Error::internal("a position does not form a batch").caused_by(error))
}
