//! What tables there are, as tables: `information_schema`, SHOW TABLES, DESCRIBE. Only what the principal may see (A1).

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Field, Schema};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use engine::View;
use table::Snapshot;
use types::{Error, Result};

use crate::error::from_datafusion;
use crate::names::Written;

const NAMESPACE: &str = "information_schema";

/// The information table of this name, if it is one.
pub(crate) fn information(
    view: &View,
    written: &Written,
) -> Result<Option<(String, Arc<dyn TableProvider>)>> {
    let Some((namespace, _)) = &written.namespace else { return Ok(None) };
    if !namespace.eq_ignore_ascii_case(NAMESPACE) {
        return Ok(None);
    }
    let name = written.table.0.to_ascii_lowercase();
    let batch = match name.as_str() {
        "tables" => tables(view),
        "columns" => columns(view),
        "schemata" => schemata(view),
        _ => {
            return Err(Error::not_found(format!(
                "there is no table `{}`",
                types::name::printable(&written.text())
            ))
            .hint("information_schema has tables, columns and schemata"));
        }
    }?;
    let provider = MemTable::try_new(batch.schema(), vec![vec![batch]]).map_err(from_datafusion)?;
    Ok(Some((format!("{NAMESPACE}.{name}"), Arc::new(provider))))
}

fn split(snapshot: &Snapshot) -> (String, String) {
    let (namespace, table) = snapshot.def().name.split_once('.').expect("a full name has two parts");
    (namespace.to_owned(), table.to_owned())
}

fn tables(view: &View) -> Result<RecordBatch> {
    let all = view.tables();
    let (namespaces, names): (Vec<_>, Vec<_>) = all.iter().map(|t| split(t)).unzip();
    batch(vec![
        ("table_catalog", texts(vec!["polynya".to_owned(); all.len()])),
        ("table_schema", texts(namespaces)),
        ("table_name", texts(names)),
        ("table_type", texts(vec!["BASE TABLE".to_owned(); all.len()])),
    ])
}

fn schemata(view: &View) -> Result<RecordBatch> {
    let mut namespaces: Vec<String> = view.tables().iter().map(|t| split(t).0).collect();
    namespaces.push(types::name::DEFAULT_NAMESPACE.into());
    namespaces.sort();
    namespaces.dedup();
    let catalogs = vec!["polynya".to_owned(); namespaces.len()];
    batch(vec![("catalog_name", texts(catalogs)), ("schema_name", texts(namespaces))])
}

fn columns(view: &View) -> Result<RecordBatch> {
    let (mut namespaces, mut names, mut columns) = (Vec::new(), Vec::new(), Vec::new());
    let (mut positions, mut types, mut nullable) = (Vec::new(), Vec::new(), Vec::new());
    for snapshot in view.tables() {
        let (namespace, table) = split(&snapshot);
        for (i, column) in snapshot.def().schema.columns.iter().enumerate() {
            namespaces.push(namespace.clone());
            names.push(table.clone());
            columns.push(column.name.clone());
            positions.push(i as i64 + 1);
            types.push(column.data_type.to_string());
            nullable.push(if column.nullable { "YES" } else { "NO" }.to_owned());
        }
    }
    batch(vec![
        ("table_catalog", texts(vec!["polynya".to_owned(); names.len()])),
        ("table_schema", texts(namespaces)),
        ("table_name", texts(names)),
        ("column_name", texts(columns)),
        ("ordinal_position", Arc::new(Int64Array::from(positions))),
        ("data_type", texts(types)),
        ("is_nullable", texts(nullable)),
    ])
}

/// The answer of SHOW TABLES.
pub(crate) fn show_tables(view: &View) -> Result<RecordBatch> {
    let all = view.tables();
    let (namespaces, names): (Vec<_>, Vec<_>) = all.iter().map(|t| split(t)).unzip();
    let rows: Vec<i64> = all.iter().map(|t| t.rows() as i64).collect();
    let bytes: Vec<i64> = all.iter().map(|t| t.bytes() as i64).collect();
    batch(vec![
        ("namespace", texts(namespaces)),
        ("name", texts(names)),
        ("rows", Arc::new(Int64Array::from(rows))),
        ("bytes", Arc::new(Int64Array::from(bytes))),
    ])
}

/// The answer of DESCRIBE.
pub(crate) fn describe(snapshot: &Snapshot) -> Result<RecordBatch> {
    let def = snapshot.def();
    let columns = &def.schema.columns;
    let key: Vec<Option<i64>> = columns
        .iter()
        .map(|c| def.primary_key.iter().position(|id| *id == c.id).map(|position| position as i64 + 1))
        .collect();
    let default: Vec<Option<String>> = columns
        .iter()
        .map(|c| c.default.as_ref().map(|value| crate::convert::literal_text(value, &c.data_type)))
        .collect();
    batch(vec![
        ("column", texts(columns.iter().map(|c| c.name.clone()).collect())),
        ("type", texts(columns.iter().map(|c| c.data_type.to_string()).collect())),
        ("nullable", Arc::new(BooleanArray::from(columns.iter().map(|c| c.nullable).collect::<Vec<_>>()))),
        ("default", Arc::new(StringArray::from(default))),
        ("key", Arc::new(Int64Array::from(key))),
    ])
}

fn texts(values: Vec<String>) -> ArrayRef {
    Arc::new(StringArray::from(values))
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> Result<RecordBatch> {
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns.into_iter().map(|(_, array)| array).collect())
        .map_err(|e| Error::internal(format!("a list of tables does not make a batch: {e}")))
}
