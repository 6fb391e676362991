//! Checks json columns of Arrow batches before a write. Arrow does not distinguish JSON from other texts, the engine does not
//! check it, and answers contain it verbatim. HTTP and COPY make the same check.

use arrow::array::RecordBatch;
use types::{Error, Kind, Result, TableDef, name};
use wire::json_texts;

/// Fails with [`Kind::Schema`] if a text in a json column is not valid JSON. The message names the row of the batch, counted from
/// 1, and the column.
pub(crate) fn check(batch: &RecordBatch, def: &TableDef) -> Result<()> {
    let columns = &def.schema.columns;
    let json = columns.iter().filter(|column| json_texts::has_json(&column.data_type));
    let json: Vec<String> = json.map(|column| column.name.to_lowercase()).collect();
    if json.is_empty() {
        return Ok(());
    }
    for (given, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        // Resolving every field's name among many columns would take longer than the insert.
        if !json.contains(&given.name().to_lowercase()) {
            continue;
        }
        // Unknown columns are refused by the table.
        let at = name::resolve(given.name(), columns.iter().map(|column| column.name.as_str()));
        let Some(column) = at.map(|at| &columns[at]) else { continue };
        if let Some(bad) = json_texts::invalid_rows(&column.name, array, &column.data_type).next() {
            let place = bad.column.as_deref().unwrap_or(&column.name);
            let what = format!("row {}, column `{}`: {}", bad.row + 1, name::printable(place), bad.message);
            return Err(Error::new(Kind::Schema, what).with("table", name::short_table_name(&def.name)));
        }
    }
    Ok(())
}
