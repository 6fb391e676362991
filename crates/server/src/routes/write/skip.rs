//! `on_error=skip`: rows that do not fit are left out, and kept with the reason in a table beside theirs, in the same commit.

use engine::{Mode, Op, View};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use types::{DataType, Error, Kind, Result, TableDef, TableId, Value, name};
use wire::{Limits, Refused, Sifted, Skipped, Target};

use super::media::Media;
use crate::failure::bad_row;

/// What the name of the table that keeps bad rows has behind that of theirs.
const SUFFIX: &str = "_dead";

const COLUMNS: [(&str, DataType); 5] = [
    ("table", DataType::String),
    ("at_row", DataType::Int64),
    ("column", DataType::String),
    ("reason", DataType::String),
    ("raw", DataType::String),
];

/// Bad rows that the answer names; the others are in the table.
const NAMED_MAX: usize = 10;

/// What was left out of a request.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct LeftOut {
    pub count: usize,
    /// The first of them, as the answer names them.
    reasons: Vec<Json>,
    /// Where they are kept, as users write it.
    kept_in: String,
}

impl LeftOut {
    pub fn of(skipped: &[Skipped], full_name: &str) -> Self {
        let reasons = skipped.iter().take(NAMED_MAX).map(|skipped| bad_row(&skipped.bad)).collect();
        LeftOut {
            count: skipped.len(),
            reasons,
            kept_in: name::short_table_name(&dead(full_name)).to_owned(),
        }
    }

    /// What was left out behind it.
    pub fn add(&mut self, more: LeftOut) {
        self.count += more.count;
        let room = NAMED_MAX.saturating_sub(self.reasons.len());
        self.reasons.extend(more.reasons.into_iter().take(room));
        if self.kept_in.is_empty() {
            self.kept_in = more.kept_in;
        }
    }

    /// Adds it to an answer.
    pub fn tell(&self, answer: &mut Json) {
        answer["skipped"] = json!(self.count);
        if self.count > 0 {
            answer["dead_letters"] = json!(self.kept_in);
            answer["reasons"] = json!(self.reasons);
        }
    }
}

/// The full name of the table that keeps the bad rows of another one.
pub fn dead(full_name: &str) -> String {
    format!("{full_name}{SUFFIX}")
}

/// Whether bad rows of a table can be kept at all, asked before any is met.
pub fn check(full_name: &str, def: Option<&TableDef>) -> Result<()> {
    if def.is_some_and(TableDef::is_vault) {
        // What is private there would be read here.
        return Err(Error::invalid("a vault has no table for bad rows").hint("leave on_error=skip out"));
    }
    let named = name::full_table_name(&dead(full_name)).and_then(|name| name::check_new_table(&name));
    named.map_err(|error| {
        Error::invalid(format!("bad rows have no place: {}", error.message()))
            .with("table", name::short_table_name(&dead(full_name)))
            .hint("choose a shorter name for the table, or leave on_error=skip out")
    })
}

/// The rows of a body that its table takes.
pub fn sift(
    media: Media,
    body: &[u8],
    target: Target<'_>,
    limits: &Limits,
    full_name: &str,
) -> Result<Sifted, Refused> {
    let mut sifted = media.sift(body, target, limits)?;
    let mut def = target.def.cloned().unwrap_or_else(|| TableDef::new(TableId(0), full_name));
    for column in &sifted.rows.new_columns {
        def.add_column(&column.name, &column.data_type, true, None)?;
    }
    let unfit = table::unfit(&sifted.rows.batch, &def)?;
    sifted.leave_out(body, unfit)?;
    Ok(sifted)
}

/// What keeps the bad rows. Their table is made when the first of them comes.
pub fn keep(view: &View, full_name: &str, def: Option<&TableDef>, skipped: &[Skipped]) -> Result<Vec<Op>> {
    let mut ops = Vec::with_capacity(2);
    if skipped.is_empty() {
        return Ok(ops);
    }
    let table = dead(full_name);
    match view.find(&table) {
        Some(existing) => check_columns(existing.def())?,
        None => {
            let mut made = TableDef::new(TableId(0), &table);
            for (column, data_type) in &COLUMNS {
                made.add_column(column, data_type, true, None)?;
            }
            // What stays on this machine does so when it is bad.
            made.options.lake = def.and_then(|def| def.options.lake);
            // Another request may make it in the meantime.
            ops.push(Op::CreateTable { def: made, if_absent: true });
        }
    }
    let short = name::short_table_name(full_name);
    let text = |text: &str| Value::String(text.to_owned());
    let mut values: [Vec<Value>; COLUMNS.len()] = Default::default();
    for Skipped { bad, raw } in skipped {
        let row = [
            text(short),
            Value::Int64(bad.row as i64),
            bad.column.as_deref().map_or(Value::Null, text),
            text(&bad.message),
            text(raw),
        ];
        values.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
    }
    let arrays = COLUMNS.iter().zip(&values).map(|((column, data_type), values)| {
        Value::to_array(values, data_type).map(|array| (*column, array, true))
    });
    let batch =
        arrow::record_batch::RecordBatch::try_from_iter_with_nullable(arrays.collect::<Result<Vec<_>>>()?)
            .map_err(|error| Error::internal(format!("bad rows make no batch: {error}")))?;
    ops.push(Op::Insert { table, batch, mode: Mode::Append });
    Ok(ops)
}

/// Whether a table that is there already is one that keeps bad rows.
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
    Err(Error::new(Kind::Schema, "bad rows would go to a table that is there and is made for something else")
        .with("table", name::short_table_name(&def.name))
        .hint(format!(
            "rename it; bad rows need a table without a key, with the columns {}",
            columns.join(", ")
        )))
}
