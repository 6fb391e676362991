//! What batches bring into json columns. Arrow does not tell JSON from other texts, the engine takes what it is given, and
//! answers hold what is there as it is written: so it is looked at on the way in, as HTTP and COPY do.

use arrow::array::RecordBatch;
use types::{Error, Kind, Result, TableDef, name};
use wire::texts;

/// [`Kind::Schema`], naming the first row of a column (from 1) that has a text which is no JSON where the table has JSON.
pub(crate) fn check(batch: &RecordBatch, def: &TableDef) -> Result<()> {
    let columns = &def.schema.columns;
    let json = columns.iter().filter(|column| texts::has_json(&column.data_type));
    let json: Vec<String> = json.map(|column| column.name.to_lowercase()).collect();
    if json.is_empty() {
        return Ok(());
    }
    for (given, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        // To resolve each of many names among many takes longer than the insert.
        if !json.contains(&given.name().to_lowercase()) {
            continue;
        }
        // A column that the table does not have is for the table to refuse.
        let at = name::resolve(given.name(), columns.iter().map(|column| column.name.as_str()));
        let Some(column) = at.map(|at| &columns[at]) else { continue };
        if let Some(bad) = texts::unfit(&column.name, array, &column.data_type).next() {
            let place = bad.column.as_deref().unwrap_or(&column.name);
            let what = format!("row {}, column `{}`: {}", bad.row + 1, name::printable(place), bad.message);
            return Err(Error::new(Kind::Schema, what).with("table", name::short_table_name(&def.name)));
        }
    }
    Ok(())
}
