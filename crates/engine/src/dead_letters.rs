//! Dead letters: rows that a table does not take, kept with the reason in a table beside it. For `events` that is
//! `events_dead`.

use arrow::record_batch::RecordBatch;
use types::{DataType, Error, Kind, Result, TableDef, TableId, Value, name};

use crate::transaction::{Mode, Op};

/// Suffix of the name of a table for bad rows.
const SUFFIX: &str = "_dead";

const COLUMNS: [(&str, DataType); 5] = [
    ("table", DataType::String),
    ("at_row", DataType::Int64),
    ("column", DataType::String),
    ("reason", DataType::String),
    ("raw", DataType::String),
];

/// A row that was not taken.
#[derive(Clone, Copy, Debug)]
pub struct DeadLetter<'a> {
    /// Its number in the request body, from 1, if it came in one.
    pub at_row: Option<usize>,
    /// The column at fault, if there is one.
    pub column: Option<&'a str>,
    pub reason: &'a str,
    /// The row as it was sent.
    pub raw: &'a str,
}

/// The full name of the table that keeps the bad rows of another one.
pub fn table_of(full_name: &str) -> String {
    format!("{full_name}{SUFFIX}")
}

/// Fails if bad rows of a table could not be kept; called before any is met. `def` is the table's definition, if it exists.
pub fn check(full_name: &str, def: Option<&TableDef>) -> Result<()> {
    if def.is_some_and(TableDef::is_vault) {
        // Private notes of the vault could be read there.
        return Err(Error::invalid("a vault has no table for bad rows"));
    }
    let named = name::full_table_name(&table_of(full_name)).and_then(|name| name::check_new_table(&name));
    named.map_err(|error| {
        Error::invalid(format!("bad rows cannot be kept: {}", error.message()))
            .with("table", name::short_table_name(&table_of(full_name)))
            .hint("choose a shorter name for the table")
    })
}

/// Returns the operations that keep bad rows of the table `full_name`, whose definition is `def`. `dead` is the definition
/// of the table for bad rows, which the first of them creates. Fails with [`Kind::Schema`] if that table exists and was made
/// for something else.
pub fn insert_ops(
    full_name: &str,
    def: Option<&TableDef>,
    dead: Option<&TableDef>,
    letters: &[DeadLetter<'_>],
) -> Result<Vec<Op>> {
    let mut ops = Vec::with_capacity(2);
    if letters.is_empty() {
        return Ok(ops);
    }
    let table = table_of(full_name);
    match dead {
        Some(existing) => check_columns(existing)?,
        None => {
            let mut made = TableDef::new(TableId(0), &table);
            for (column, data_type) in &COLUMNS {
                made.add_column(column, data_type, true, None)?;
            }
            // Rows of a table that stays out of the lake stay out of it when they are bad, too.
            made.options.lake = def.and_then(|def| def.options.lake);
            // Another request may make it in the meantime.
            ops.push(Op::CreateTable { def: made, if_absent: true });
        }
    }
    let short = name::short_table_name(full_name);
    let text = |text: &str| Value::String(text.to_owned());
    let mut values: [Vec<Value>; COLUMNS.len()] = Default::default();
    for letter in letters {
        let row = [
            text(short),
            letter.at_row.map_or(Value::Null, |row| Value::Int64(row as i64)),
            letter.column.map_or(Value::Null, text),
            text(letter.reason),
            text(letter.raw),
        ];
        values.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
    }
    let arrays = COLUMNS.iter().zip(&values).map(|((column, data_type), values)| {
        Value::to_array(values, data_type).map(|array| (*column, array, true))
    });
    let batch = RecordBatch::try_from_iter_with_nullable(arrays.collect::<Result<Vec<_>>>()?)
        .map_err(|error| Error::internal(format!("bad rows make no batch: {error}")))?;
    ops.push(Op::Insert { table, batch, mode: Mode::Append });
    Ok(ops)
}

/// Fails if an existing table cannot keep bad rows.
fn check_columns(def: &TableDef) -> Result<()> {
    let has = |(wanted, data_type): &(&str, DataType)| {
        def.schema
            .column_named(wanted)
            .is_some_and(|column| column.data_type == *data_type && column.name == *wanted)
    };
    let is_ours = |name: &str| COLUMNS.iter().any(|(column, _)| *column == name);
    let takes_rows =
        def.schema.columns.iter().all(|c| is_ours(&c.name) || c.takes_null() || c.default.is_some());
    if COLUMNS.iter().all(has) && takes_rows && !def.is_checked() {
        return Ok(());
    }
    let columns: Vec<String> =
        COLUMNS.iter().map(|(column, data_type)| format!("`{column}` {data_type}")).collect();
    Err(Error::new(Kind::Schema, "the table for bad rows exists and was made for something else")
        .with("table", name::short_table_name(&def.name))
        .hint(format!(
            "rename it; bad rows need a table without a key, with the columns {}",
            columns.join(", ")
        )))
}
