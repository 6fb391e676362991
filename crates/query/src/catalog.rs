//! The catalog as tables: `information_schema`, `polynya.indexes`, `polynya.advice`, `polynya.history`, SHOW TABLES and DESCRIBE.
//! They show only tables that the principal may see (A1).

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{Field, Schema};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use dialect::error::from_datafusion;
use engine::{Engine, View};
use sql::names::ParsedTableName;
use table::Snapshot;
use types::{Column, ColumnId, DataType, Error, Result, TableDef, ViewDef};

use crate::index_advice::{AdvisedIndex, IndexAdvice};

const NAMESPACE: &str = "information_schema";
const INDEXES: &str = "indexes";
const ADVICE: &str = "advice";
const HISTORY: &str = "history";

/// Full name of the table of columns, which the planner fills late.
pub(crate) const COLUMNS: &str = "information_schema.columns";
/// A function that returns the types of a view's columns in their order, or none if the view cannot be read.
pub(crate) type TypesOf<'a> = &'a dyn Fn(&ViewDef) -> Vec<DataType>;

/// Returns the catalog table of this name, if there is one.
///
/// Without an engine the reasons for which indexes wait are unknown.
pub(crate) fn information_table(
    view: &View,
    engine: Option<&Engine>,
    advice: &IndexAdvice,
    written: &ParsedTableName,
) -> Result<Option<(String, Arc<dyn TableProvider>)>> {
    let Some((namespace, _)) = &written.namespace else { return Ok(None) };
    let name = written.table.0.to_ascii_lowercase();
    if types::name::is_reserved(&written.text()) {
        let rows = match name.as_str() {
            INDEXES => indexes(view, engine)?,
            ADVICE => advice_rows(view, advice)?,
            HISTORY => history(view)?,
            _ => return Ok(None),
        };
        return table(&format!("{}.{name}", types::name::RESERVED_NAMESPACE), rows);
    }
    if !namespace.eq_ignore_ascii_case(NAMESPACE) {
        return Ok(None);
    }
    let batch = match name.as_str() {
        "tables" => tables(view),
        // The types of views' columns are missing here; the planner adds them through [`columns`].
        "columns" => columns(view, &|_| Vec::new()),
        "schemata" => schemata(view),
        "views" => views(view),
        "table_constraints" => table_constraints(view),
        "key_column_usage" => key_column_usage(view),
        "referential_constraints" => referential_constraints(),
        _ => {
            return Err(Error::not_found(format!(
                "there is no table `{}`",
                types::name::printable(&written.text())
            ))
            .hint("information_schema has tables, columns, views, schemata, table_constraints, key_column_usage and referential_constraints"));
        }
    }?;
    table(&format!("{NAMESPACE}.{name}"), batch)
}

fn table(full_name: &str, batch: RecordBatch) -> Result<Option<(String, Arc<dyn TableProvider>)>> {
    let provider = MemTable::try_new(batch.schema(), vec![vec![batch]]).map_err(from_datafusion)?;
    Ok(Some((full_name.to_owned(), Arc::new(provider))))
}

fn split(snapshot: &Snapshot) -> (String, String) {
    split_name(&snapshot.def().name)
}

fn split_name(full_name: &str) -> (String, String) {
    let (namespace, table) = full_name.split_once('.').expect("a full name has two parts");
    (namespace.to_owned(), table.to_owned())
}

fn tables(view: &View) -> Result<RecordBatch> {
    let (all, views) = (view.tables(), view.views());
    let full_names = all.iter().map(|t| split(t)).chain(views.iter().map(|v| split_name(&v.name)));
    let (namespaces, names): (Vec<_>, Vec<_>) = full_names.unzip();
    let kinds = all.iter().map(|_| "BASE TABLE").chain(views.iter().map(|_| "VIEW"));
    batch(vec![
        ("table_catalog", texts(vec!["polynya".to_owned(); names.len()])),
        ("table_schema", texts(namespaces)),
        ("table_name", texts(names)),
        ("table_type", texts(kinds.map(str::to_owned).collect())),
    ])
}

fn schemata(view: &View) -> Result<RecordBatch> {
    let mut namespaces: Vec<String> = view.tables().iter().map(|t| split(t).0).collect();
    namespaces.extend(view.views().iter().map(|v| split_name(&v.name).0));
    namespaces.push(types::name::DEFAULT_NAMESPACE.into());
    namespaces.sort();
    namespaces.dedup();
    let catalogs = vec!["polynya".to_owned(); namespaces.len()];
    batch(vec![("catalog_name", texts(catalogs)), ("schema_name", texts(namespaces))])
}

/// Returns the columns of tables, then those of views.
pub(crate) fn columns(view: &View, types_of: TypesOf<'_>) -> Result<RecordBatch> {
    let (mut namespaces, mut names, mut columns) = (Vec::new(), Vec::new(), Vec::new());
    let (mut positions, mut types, mut nullable) = (Vec::new(), Vec::new(), Vec::new());
    let mut defaults: Vec<Option<String>> = Vec::new();
    for snapshot in view.tables() {
        let (namespace, table) = split(&snapshot);
        for (i, column) in snapshot.def().schema.columns.iter().enumerate() {
            namespaces.push(namespace.clone());
            names.push(table.clone());
            columns.push(column.name.clone());
            positions.push(i as i64 + 1);
            types.push(Some(column.data_type.clone()));
            nullable.push(if column.takes_null() { "YES" } else { "NO" }.to_owned());
            defaults.push(default_text(column));
        }
    }
    for def in view.views() {
        let (namespace, name) = split_name(&def.name);
        let found = types_of(&def);
        if !shows_columns(view, &found) {
            continue;
        }
        let mut found = found.into_iter();
        for (i, column) in def.columns.iter().enumerate() {
            namespaces.push(namespace.clone());
            names.push(name.clone());
            columns.push(column.name.clone());
            positions.push(i as i64 + 1);
            types.push(found.next());
            nullable.push("YES".to_owned());
            defaults.push(None);
        }
    }
    let count = names.len();
    let of_tables: usize = view.tables().iter().map(|table| table.def().schema.columns.len()).sum();
    let updatable = (0..count).map(|at| if at < of_tables { "YES" } else { "NO" }.to_owned()).collect();
    let same = |text: &str| texts(vec![text.to_owned(); count]);
    let number = |of: fn(&DataType) -> Option<i64>| -> ArrayRef {
        Arc::new(types.iter().map(|data_type| data_type.as_ref().and_then(of)).collect::<Int64Array>())
    };
    let shown: StringArray =
        types.iter().map(|data_type| data_type.as_ref().map(DataType::to_string)).collect();
    let udt_names: StringArray = types.iter().map(|data_type| data_type.as_ref().map(udt_name)).collect();
    batch(vec![
        ("table_catalog", same("polynya")),
        ("table_schema", texts(namespaces)),
        ("table_name", texts(names)),
        ("column_name", texts(columns)),
        ("ordinal_position", Arc::new(Int64Array::from(positions))),
        ("data_type", Arc::new(shown)),
        ("is_nullable", texts(nullable)),
        ("column_default", Arc::new(StringArray::from(defaults))),
        ("numeric_precision", number(numeric_precision)),
        ("numeric_scale", number(numeric_scale)),
        ("numeric_precision_radix", number(numeric_radix)),
        ("datetime_precision", number(datetime_precision)),
        // Texts have no declared length, and columns have no collation, domain or generating expression.
        ("character_maximum_length", number(|_| None)),
        ("character_octet_length", number(|_| None)),
        ("collation_name", no_texts(count)),
        ("domain_name", no_texts(count)),
        ("udt_catalog", same("polynya")),
        ("udt_schema", same("pg_catalog")),
        ("udt_name", Arc::new(udt_names)),
        ("is_identity", same("NO")),
        ("identity_generation", no_texts(count)),
        ("is_generated", same("NEVER")),
        ("generation_expression", no_texts(count)),
        ("is_updatable", texts(updatable)),
    ])
}

/// The precision in binary digits, and for decimals in decimal digits, as the standard says.
fn numeric_precision(data_type: &DataType) -> Option<i64> {
    match data_type {
        DataType::Int32 => Some(32),
        DataType::Int64 => Some(64),
        DataType::Float32 => Some(24),
        DataType::Float64 => Some(53),
        DataType::Decimal { precision, .. } => Some(i64::from(*precision)),
        _ => None,
    }
}

fn numeric_scale(data_type: &DataType) -> Option<i64> {
    match data_type {
        DataType::Int32 | DataType::Int64 => Some(0),
        DataType::Decimal { scale, .. } => Some(i64::from(*scale)),
        _ => None,
    }
}

/// The number system in which [`numeric_precision`] counts digits.
fn numeric_radix(data_type: &DataType) -> Option<i64> {
    numeric_precision(data_type).map(|_| if matches!(data_type, DataType::Decimal { .. }) { 10 } else { 2 })
}

/// Digits of the fraction of a second.
fn datetime_precision(data_type: &DataType) -> Option<i64> {
    match data_type {
        DataType::Timestamp => Some(6),
        DataType::Date => Some(0),
        _ => None,
    }
}

/// The name of the type in PostgreSQL's `pg_type`, by which its clients decode values; Polynya's own types have their own names.
fn udt_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Bool => "bool".into(),
        DataType::Int32 => "int4".into(),
        DataType::Int64 => "int8".into(),
        DataType::Float32 => "float4".into(),
        DataType::Float64 => "float8".into(),
        DataType::Decimal { .. } => "numeric".into(),
        DataType::String => "text".into(),
        DataType::Binary => "bytea".into(),
        DataType::Date => "date".into(),
        DataType::Timestamp => "timestamptz".into(),
        DataType::Uuid => "uuid".into(),
        DataType::Json => "json".into(),
        DataType::List(item) => format!("_{}", udt_name(&item.data_type)),
        DataType::Struct(_) => "record".into(),
        DataType::Vector(_) => "vector".into(),
        DataType::Point => "point".into(),
        DataType::Point3d => "point3d".into(),
    }
}

/// Returns a column's default as SQL text.
fn default_text(column: &Column) -> Option<String> {
    column.default.as_ref().map(|value| dialect::values::convert::literal_text(value, &column.data_type))
}

/// Lists views. Their queries are shown only to principals who may see all tables.
fn views(view: &View) -> Result<RecordBatch> {
    let all = view.views();
    let (namespaces, names): (Vec<_>, Vec<_>) = all.iter().map(|v| split_name(&v.name)).unzip();
    let definition = |def: &Arc<ViewDef>| view.sees_all().then(|| def.query.clone());
    let definitions: Vec<Option<String>> = all.iter().map(definition).collect();
    batch(vec![
        ("table_catalog", texts(vec!["polynya".to_owned(); all.len()])),
        ("table_schema", texts(namespaces)),
        ("table_name", texts(names)),
        ("view_definition", Arc::new(StringArray::from(definitions))),
        ("check_option", texts(vec!["NONE".to_owned(); all.len()])),
        ("is_updatable", texts(vec!["NO".to_owned(); all.len()])),
    ])
}

/// Returns PostgreSQL's name of a primary key constraint.
fn key_name(table: &str) -> String {
    format!("{table}_pkey")
}

/// Returns the constraints of a table (name, kind, columns), its key first.
fn constraints(def: &TableDef, table: &str) -> Vec<(String, &'static str, Vec<ColumnId>)> {
    let key = def.is_keyed().then(|| (key_name(table), "PRIMARY KEY", def.primary_key.clone()));
    let unique = def.indexes.iter().filter(|index| index.checks_writes());
    let unique = unique.map(|index| (index.name.clone(), "UNIQUE", index.columns.clone()));
    key.into_iter().chain(unique).collect()
}

fn table_constraints(view: &View) -> Result<RecordBatch> {
    let (mut namespaces, mut names, mut found, mut kinds) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for snapshot in view.tables() {
        let (namespace, table) = split(&snapshot);
        for (constraint, kind, _) in constraints(snapshot.def(), &table) {
            namespaces.push(namespace.clone());
            names.push(table.clone());
            found.push(constraint);
            kinds.push(kind.to_owned());
        }
    }
    batch(vec![
        ("constraint_catalog", texts(vec!["polynya".to_owned(); names.len()])),
        ("constraint_schema", texts(namespaces.clone())),
        ("constraint_name", texts(found)),
        ("table_catalog", texts(vec!["polynya".to_owned(); names.len()])),
        ("table_schema", texts(namespaces)),
        ("constraint_type", texts(kinds)),
        ("table_name", texts(names)),
    ])
}

fn key_column_usage(view: &View) -> Result<RecordBatch> {
    let (mut namespaces, mut names, mut found) = (Vec::new(), Vec::new(), Vec::new());
    let (mut columns, mut positions) = (Vec::new(), Vec::new());
    for snapshot in view.tables() {
        let (namespace, table) = split(&snapshot);
        let def = snapshot.def();
        for (constraint, _, ids) in constraints(def, &table) {
            for (i, column) in ids.iter().filter_map(|id| def.schema.column(*id)).enumerate() {
                found.push(constraint.clone());
                namespaces.push(namespace.clone());
                names.push(table.clone());
                columns.push(column.name.clone());
                positions.push(i as i64 + 1);
            }
        }
    }
    batch(vec![
        ("constraint_catalog", texts(vec!["polynya".to_owned(); names.len()])),
        ("constraint_schema", texts(namespaces.clone())),
        ("constraint_name", texts(found)),
        ("table_catalog", texts(vec!["polynya".to_owned(); names.len()])),
        ("table_schema", texts(namespaces)),
        ("table_name", texts(names)),
        ("column_name", texts(columns)),
        ("position_in_unique_constraint", Arc::new(Int64Array::new_null(positions.len()))),
        ("ordinal_position", Arc::new(Int64Array::from(positions))),
    ])
}

/// Returns no rows: Polynya has no foreign keys.
fn referential_constraints() -> Result<RecordBatch> {
    let names = [
        "constraint_catalog",
        "constraint_schema",
        "constraint_name",
        "unique_constraint_catalog",
        "unique_constraint_schema",
        "unique_constraint_name",
        "match_option",
        "update_rule",
        "delete_rule",
    ];
    batch(names.into_iter().map(|name| (name, no_texts(0))).collect())
}

/// Lists how far back AS OF can read each table, and the bytes that this history takes.
fn history(view: &View) -> Result<RecordBatch> {
    let all = view.tables();
    let (namespaces, names): (Vec<_>, Vec<_>) = all.iter().map(|t| split(t)).unzip();
    let reach: Vec<_> = all.iter().map(|table| view.past_extent(table)).collect();
    let times = TimestampMicrosecondArray::from_iter(reach.iter().map(|reach| reach.time));
    batch(vec![
        ("table_schema", texts(namespaces)),
        ("table_name", texts(names)),
        ("oldest_lsn", Arc::new(Int64Array::from_iter_values(reach.iter().map(|reach| reach.lsn.0 as i64)))),
        ("oldest_time", Arc::new(times.with_timezone("UTC"))),
        ("bytes", Arc::new(Int64Array::from_iter_values(reach.iter().map(|reach| reach.bytes as i64)))),
    ])
}

/// Lists each declared index and its progress. Queries also find the rows that an index lacks.
fn indexes(view: &View, engine: Option<&Engine>) -> Result<RecordBatch> {
    let (mut namespaces, mut tables, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let (mut kinds, mut columns) = (Vec::new(), Vec::new());
    let (mut states, mut missing, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut uniques, mut errors, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for snapshot in view.tables() {
        let def = snapshot.def();
        let (namespace, table) = split(&snapshot);
        let standing =
            engine.filter(|_| !def.indexes.is_empty()).map(|engine| engine.materializer_progress(&snapshot));
        for index in &def.indexes {
            let materializer = index::materializer(&index.kind);
            let of_index =
                |standing: &&engine::MaterializerProgress| Some(standing.materializer) == materializer;
            let failed =
                standing.iter().flatten().find(of_index).and_then(|standing| standing.error.as_ref());
            // Error messages contain paths, so only principals who may see everything get them.
            let failed =
                failed.map(
                    |error| if view.sees_all() { error.to_string() } else { error.kind().name().to_owned() },
                );
            let position = materializer.and_then(|name| view.derived(name, &snapshot));
            let progress = index::progress(def, index, position.as_deref());
            let lacks = progress.map(|at| (snapshot.next_row().0 - 1).saturating_sub(at.reached.0) as i64);
            let column = |id: &types::ColumnId| def.schema.column(*id).map(|column| column.name.as_str());
            namespaces.push(namespace.clone());
            tables.push(table.clone());
            names.push(index.name.clone());
            kinds.push(index.kind.clone());
            columns.push(index.columns.iter().filter_map(column).collect::<Vec<_>>().join(", "));
            let state = lacks.map(|rows| index::state(index, rows as u64));
            states.push(state.map(|(state, _)| state.to_owned()));
            errors.push(state.and_then(|(_, error)| error).map(str::to_owned).or(failed));
            uniques.push(index.unique.is_some());
            missing.push(lacks);
            bytes.push(progress.map(|at| at.bytes as i64));
            rows.push(progress.map(|at| at.rows as i64));
        }
    }
    batch(vec![
        ("table_schema", texts(namespaces)),
        ("table_name", texts(tables)),
        ("index_name", texts(names)),
        ("kind", texts(kinds)),
        ("columns", texts(columns)),
        ("state", Arc::new(StringArray::from(states))),
        ("missing_rows", Arc::new(Int64Array::from(missing))),
        ("bytes", Arc::new(Int64Array::from(bytes))),
        ("rows", Arc::new(Int64Array::from(rows))),
        ("is_unique", Arc::new(BooleanArray::from(uniques))),
        ("error", Arc::new(StringArray::from(errors))),
    ])
}

/// Lists indexes that would have helped statements, those first that would have saved most reads.
fn advice_rows(view: &View, advice: &IndexAdvice) -> Result<RecordBatch> {
    let mut all = Vec::new();
    for snapshot in view.tables() {
        let def = snapshot.def();
        all.extend(advice.missing_indexes(def).into_iter().map(|piece| (def.clone(), piece)));
    }
    all.sort_by_key(|(_, piece)| std::cmp::Reverse(piece.scanned));
    let names = |def: &TableDef, columns: &[ColumnId], quote: bool| {
        let name = |id: &ColumnId| def.schema.column(*id).map(|column| column.name.as_str());
        let written = |name: &str| if quote { quoted(name) } else { name.to_owned() };
        columns.iter().filter_map(name).map(written).collect::<Vec<_>>().join(", ")
    };
    let (mut namespaces, mut tables, mut columns, mut statements) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (def, piece) in &all {
        let (namespace, table) = def.name.split_once('.').unwrap_or_default();
        let at = if namespace == types::name::DEFAULT_NAMESPACE {
            quoted(table)
        } else {
            format!("{}.{}", quoted(namespace), quoted(table))
        };
        statements.push(format!("CREATE INDEX ON {at} ({})", names(def, &piece.columns, true)));
        columns.push(names(def, &piece.columns, false));
        namespaces.push(namespace.to_owned());
        tables.push(table.to_owned());
    }
    let number = |of: fn(&AdvisedIndex) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(all.iter().map(|(_, piece)| of(piece) as i64)))
    };
    batch(vec![
        ("table_schema", texts(namespaces)),
        ("table_name", texts(tables)),
        ("columns", texts(columns)),
        ("queries", number(|piece| piece.queries)),
        ("rows_scanned", number(|piece| piece.scanned)),
        ("rows_returned", number(|piece| piece.returned)),
        ("statement", texts(statements)),
    ])
}

/// Quotes a name if SQL would otherwise not read it back.
fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let is_word = datafusion::sql::sqlparser::keywords::ALL_KEYWORDS
        .binary_search(&name.to_ascii_uppercase().as_str())
        .is_ok();
    if plain && !is_word { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Returns the answer of SHOW TABLES.
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

/// Returns true if the columns of a view may be shown. A principal who cannot read the view does not learn its columns, except
/// one who may see everything and may have to replace the view.
fn shows_columns(view: &View, types: &[DataType]) -> bool {
    view.sees_all() || !types.is_empty()
}

/// Returns the answer of SHOW VIEWS.
pub(crate) fn show_views(view: &View, types_of: TypesOf<'_>) -> Result<RecordBatch> {
    let all = view.views();
    let (namespaces, names): (Vec<_>, Vec<_>) = all.iter().map(|v| split_name(&v.name)).unzip();
    let columns = |def: &Arc<ViewDef>| {
        let names = || def.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ");
        (view.sees_all() || shows_columns(view, &types_of(def))).then(names)
    };
    batch(vec![
        ("namespace", texts(namespaces)),
        ("name", texts(names)),
        ("columns", Arc::new(all.iter().map(columns).collect::<StringArray>())),
    ])
}

/// Returns the answer of DESCRIBE.
pub(crate) fn describe(snapshot: &Snapshot) -> Result<RecordBatch> {
    let def = snapshot.def();
    let columns = &def.schema.columns;
    let key: Vec<Option<i64>> = columns
        .iter()
        .map(|c| def.primary_key.iter().position(|id| *id == c.id).map(|position| position as i64 + 1))
        .collect();
    described(
        columns.iter().map(|c| c.name.clone()).collect(),
        columns.iter().map(|c| c.data_type.to_string()).collect(),
        columns.iter().map(Column::takes_null).collect(),
        columns.iter().map(default_text).collect(),
        key,
    )
}

/// Returns the answer of DESCRIBE for a view whose columns have these types.
pub(crate) fn describe_view(def: &ViewDef, types: &[DataType]) -> Result<RecordBatch> {
    let count = def.columns.len();
    described(
        def.columns.iter().map(|column| column.name.clone()).collect(),
        types.iter().map(DataType::to_string).collect(),
        vec![true; count],
        vec![None; count],
        vec![None; count],
    )
}

fn described(
    names: Vec<String>,
    types: Vec<String>,
    nullable: Vec<bool>,
    defaults: Vec<Option<String>>,
    key: Vec<Option<i64>>,
) -> Result<RecordBatch> {
    batch(vec![
        ("column", texts(names)),
        ("type", texts(types)),
        ("nullable", Arc::new(BooleanArray::from(nullable))),
        ("default", Arc::new(StringArray::from(defaults))),
        ("key", Arc::new(Int64Array::from(key))),
    ])
}

fn texts(values: Vec<String>) -> ArrayRef {
    Arc::new(StringArray::from(values))
}

fn no_texts(count: usize) -> ArrayRef {
    Arc::new(StringArray::new_null(count))
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> Result<RecordBatch> {
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns.into_iter().map(|(_, array)| array).collect())
        .map_err(|e| Error::internal(format!("a list of tables does not make a batch: {e}")))
}
