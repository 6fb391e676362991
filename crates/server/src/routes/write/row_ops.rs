//! Converts the rows of a body into operations on their table.

use engine::{Mode, NewColumn, Op, RecordedRequest, View};
use serde::{Deserialize, Serialize};
use types::{Error, Kind, TableDef, TableId, name};
use wire::{DecodeTarget, DecodedRows, Limits, RefusedBody};

use super::media::Media;
use super::skip::{self, SkippedRows};
use super::{Condition, Head, OnBadRow, WriteMode};
use crate::failure::{Failure, Result};

/// The value of the context key `schema` in an error of [`as_conflict`] about a table that another request made first.
const CREATED: &str = "created";

/// The options for the rows of a request.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    pub mode: Option<WriteMode>,
    pub create: bool,
    pub on_error: OnBadRow,
    pub condition: Condition,
}

/// The rows of a body that go into its table.
#[derive(Clone, Debug)]
pub struct AcceptedRows {
    pub rows: usize,
    /// The skipped rows, with `on_error=skip`.
    pub left_out: Option<SkippedRows>,
    /// True if the table is made with them.
    pub makes: bool,
    /// True if existing rows are skipped and counted (`insert_if_absent`).
    pub skips_repeats: bool,
}

/// The part of an answer that is stored with an Idempotency-Key beside the result of the commit.
#[derive(Debug, Deserialize, Serialize)]
struct Note {
    rows: usize,
    left_out: Option<SkippedRows>,
    skips_repeats: bool,
}

impl AcceptedRows {
    /// Restores the result of a request that was committed before.
    pub fn before(head: &Head, known: &RecordedRequest) -> Self {
        let noted = known.note.as_deref().and_then(|note| serde_json::from_str(note).ok());
        let Note { rows, left_out, skips_repeats } = noted.unwrap_or(Note {
            rows: known.committed.count as usize,
            left_out: (head.options.on_error == OnBadRow::Skip).then(SkippedRows::default),
            skips_repeats: false,
        });
        AcceptedRows { rows, left_out, makes: false, skips_repeats }
    }

    /// Returns the note to store for the answer if the request is sent again; `None` if the result of the commit is enough.
    pub fn to_note(&self) -> Option<String> {
        let left_out = self.left_out.clone();
        let is_plain = !self.skips_repeats && left_out.as_ref().is_none_or(|left_out| left_out.count == 0);
        let note = Note { rows: self.rows, left_out, skips_repeats: self.skips_repeats };
        (!is_plain).then(|| serde_json::to_string(&note).unwrap_or_default())
    }

    /// Returns the number of rows that a commit skipped because they existed. `inserted` is the number of new rows.
    pub fn repeated(&self, inserted: u64) -> Option<u64> {
        self.skips_repeats.then(|| (self.rows as u64).saturating_sub(inserted))
    }
}

/// Decodes rows for a table as `view` shows it. Returns no operations if there are no rows. Operations that store dead letters
/// come first.
pub fn decode(
    view: &View,
    full_name: &str,
    options: WriteOptions,
    media: Media,
    body: &[u8],
    limits: &Limits,
) -> Result<(AcceptedRows, Vec<Op>)> {
    let existing = view.find(full_name);
    if existing.is_none() {
        skip::refuse_view(
            view,
            full_name,
            "rows are written to the tables that it reads, or to another name",
        )?;
    }
    let existing = match existing {
        Some(table) => Some(table),
        // The lookup fails with an error that suggests similar names.
        None if !options.create => Some(view.table(full_name)?),
        None => None,
    };
    let def = existing.as_ref().map(|table| table.def().as_ref());
    let table = def.map_or_else(|| full_name.to_owned(), |def| def.name.clone());
    let target =
        DecodeTarget { table: name::short_table_name(full_name), def, may_add_columns: options.create };
    let (mut ops, mut left_out) = (Vec::with_capacity(2), None);
    let DecodedRows { batch, new_columns } = match options.on_error {
        OnBadRow::Refuse => media.decode(body, target, limits)?,
        OnBadRow::Skip => {
            skip::check(&table, def)?;
            let sifted = skip::sift(media, body, target, limits, &table)?;
            ops = skip::insert_ops(view, &table, def, &sifted.skipped)?;
            left_out = Some(SkippedRows::of(&sifted.skipped, &table));
            sifted.rows
        }
    };
    let rows = batch.num_rows();
    let mut skips_repeats = false;
    if rows > 0 {
        let mode = mode(options, def, full_name, rows)?;
        skips_repeats = mode == Mode::InsertIfAbsent;
        ops.extend(defining_op(def, &table, new_columns)?);
        ops.push(Op::Insert { table, batch, mode });
    }
    Ok((AcceptedRows { rows, left_out, makes: def.is_none() && rows > 0, skips_repeats }, ops))
}

/// Returns the refusal with every bad row of a body, up to a limit, after its table refused the first one with `error`. In
/// `error` the row is counted from the beginning of a piece. Returns `None` if no row is at fault. Decodes the body once more.
pub fn bad_rows(
    view: &View,
    full_name: &str,
    options: WriteOptions,
    media: Media,
    body: &[u8],
    limits: &Limits,
    error: &Error,
) -> Option<RefusedBody> {
    if options.on_error == OnBadRow::Skip {
        return None;
    }
    let existing = view.find(full_name);
    let def = existing.as_ref().map(|table| table.def().as_ref());
    let short = name::short_table_name(full_name);
    let target = DecodeTarget { table: short, def, may_add_columns: options.create };
    let mut refused = skip::refuse(media, body, target, limits, full_name).ok()??;
    refused.error = refused.error.with("table", short);
    if let Some(hint) = error.hint_text() {
        refused.error = refused.error.hint(hint);
    }
    Some(refused)
}

/// Turns the error that a new table exists already into a conflict, because another request made it after the rows were decoded.
pub fn as_conflict(error: Error, makes: bool) -> Error {
    let is_of_rows = || error.context().iter().any(|(key, _)| *key == "table");
    match error.kind() {
        Kind::Exists if makes && !is_of_rows() => {
            Error::conflict(error.message()).with("schema", CREATED).hint("retry the request")
        }
        _ => error,
    }
}

pub fn is_changed(error: &Error) -> bool {
    error.kind() == Kind::Conflict && error.context().iter().any(|(key, _)| *key == "schema")
}

/// Returns true if another request made the table that was to be made.
pub fn is_created(error: &Error) -> bool {
    error.context().iter().any(|(key, value)| *key == "schema" && value == CREATED)
}

fn mode(options: WriteOptions, def: Option<&TableDef>, full_name: &str, rows: usize) -> Result<Mode> {
    let keyed = def.is_some_and(TableDef::is_keyed);
    let no_key = |what: &str| -> Failure {
        Error::invalid(format!("{what} needs a primary key, and the table has none"))
            .with("table", name::short_table_name(full_name))
            .hint("make the table with one: PUT /v1/tables/{table} {\"columns\":[…],\"primary_key\":[…]}")
            .into()
    };
    Ok(match (options.condition, options.mode) {
        (Condition::Version(row), _) => {
            if !keyed {
                return Err(no_key("If-Match"));
            }
            if rows != 1 {
                return Err(
                    Error::invalid(format!("If-Match applies to one row, but the body has {rows}")).into()
                );
            }
            Mode::CompareAndSet(vec![Some(row)])
        }
        (Condition::Absent, _) if !keyed => return Err(no_key("If-None-Match")),
        (Condition::Absent, _) => Mode::CompareAndSet(vec![None; rows]),
        (Condition::None, Some(WriteMode::InsertIfAbsent)) if !def.is_some_and(TableDef::is_checked) => {
            return Err(no_key("insert_if_absent"));
        }
        (Condition::None, Some(WriteMode::InsertIfAbsent)) => Mode::InsertIfAbsent,
        (Condition::None, Some(WriteMode::Upsert)) if !keyed => return Err(no_key("upsert")),
        (Condition::None, Some(WriteMode::Insert)) => Mode::Append,
        (Condition::None, _) => Mode::of_rows(def),
    })
}

/// Returns the operation that makes the table, or adds the columns that it lacks.
fn defining_op(def: Option<&TableDef>, table: &str, new: Vec<wire::NewColumn>) -> types::Result<Option<Op>> {
    if def.is_none() {
        let mut def = TableDef::new(TableId(0), table);
        for column in &new {
            def.add_column(&column.name, &column.data_type, true, None)?;
        }
        return Ok(Some(Op::CreateTable { def, if_absent: false }));
    }
    let column = |c: wire::NewColumn| NewColumn {
        name: c.name,
        data_type: c.data_type,
        nullable: true,
        default: None,
    };
    let columns: Vec<NewColumn> = new.into_iter().map(column).collect();
    Ok((!columns.is_empty()).then(|| Op::AddColumns { table: table.to_owned(), columns }))
}
