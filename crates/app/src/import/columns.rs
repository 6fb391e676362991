//! Checks that the columns of an import fit the table: their names, their types, and NOT NULL.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType as Arrow, Field, Schema};
use http::Method;
use serde_json::{Value, json};
use types::{ColumnId, DataType, Error, Kind, Result, TableDef, TableId, name};
use wire::json_texts;

use super::{Notes, Renames, TableDescription, TargetTable};
use crate::client::escaped;
use crate::connection::DataConnection;
use crate::ingest::arrow_stream;

/// A column of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceColumn {
    /// The Arrow field in which its values are sent.
    pub field: Arc<Field>,
    /// The type of tables that holds its values, if the source defines it; `None` if it follows from the Arrow type.
    pub data_type: Option<DataType>,
}

impl SourceColumn {
    pub fn of_arrow(field: &Arc<Field>) -> SourceColumn {
        SourceColumn { field: field.clone(), data_type: None }
    }

    pub fn name(&self) -> &str {
        self.field.name()
    }

    /// Returns its type for messages.
    pub fn type_name(&self) -> String {
        self.data_type.as_ref().map_or_else(|| self.field.data_type().to_string(), ToString::to_string)
    }
}

/// Requests a table's description; `None` if the table does not exist.
pub async fn describe_table(
    connection: &mut DataConnection,
    table: &str,
) -> Result<Option<TableDescription>> {
    let described = match connection.control() {
        Some(control) => control.json(Method::GET, &format!("/tables/{}", escaped(table)), None).await,
        None => connection.client().json(Method::GET, &format!("/v1/tables/{}", escaped(table)), None).await,
    };
    match described {
        Ok(described) => Ok(Some(described)),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the columns to rename, with notes for the user. A column gets the name wished for it, else its own without
/// leading `_`, since such names belong to Polynya. Fails if a wish names a missing column, or if two columns would have
/// the same name.
pub fn plan_renames(given: &[SourceColumn], wished: &[(String, String)]) -> Result<(Renames, Notes)> {
    let (mut renames, mut notes): (Renames, Notes) = Default::default();
    for (old, _) in wished {
        if given.iter().all(|column| column.name() != old) {
            let names: Vec<&str> = given.iter().map(SourceColumn::name).take(20).collect();
            return Err(Error::invalid(format!("there is no column `{old}` to rename"))
                .hint(format!("there are: {}", names.join(", "))));
        }
    }
    for name in given.iter().map(SourceColumn::name) {
        let new = match wished.iter().find(|(old, _)| old == name) {
            Some((_, new)) => new.clone(),
            None if name.starts_with('_') => {
                let new = name.trim_start_matches('_').to_owned();
                notes.push(format!("column `{name}` becomes `{new}`: names with `_` in front are Polynya's"));
                new
            }
            None => continue,
        };
        renames.push((name.to_owned(), new));
    }
    let mut taken: Vec<(String, &str)> = Vec::with_capacity(given.len());
    for name in given.iter().map(SourceColumn::name) {
        let new = name_in_table(&renames, name);
        let rename = |e: Error| e.hint(format!("give it another name: --rename {name}=NAME"));
        name::check_column(new).map_err(rename)?;
        let folded = new.to_lowercase();
        if let Some((_, other)) = taken.iter().find(|(name, _)| *name == folded) {
            let what = format!("columns `{other}` and `{name}` would have one name, `{new}`");
            return Err(rename(Error::new(Kind::Schema, what)));
        }
        taken.push((folded, name));
    }
    Ok((renames, notes))
}

/// Returns the name of a source's column in the table.
pub fn name_in_table<'a>(renames: &'a [(String, String)], column: &'a str) -> &'a str {
    renames.iter().find(|(old, _)| old == column).map_or(column, |(_, new)| new)
}

/// Checks that the columns fit the table, or that a table can be made for them, and returns notes for the user. Fails with
/// `schema` otherwise. Single values that do not fit are found only when their rows are sent.
pub fn check(given: &[SourceColumn], renames: &[(String, String)], target: &TargetTable) -> Result<Notes> {
    let known = target.existing.as_ref().map(table_columns).unwrap_or_default();
    let table = &target.table.name;
    let mut def = TableDef::new(TableId(0), table);
    for column in &known {
        def.add_column(&column.name, &column.data_type, true, None)?;
    }
    let schema = |what: String| Error::new(Kind::Schema, what).with("table", table);
    let misfit = |what: String| {
        schema(what).hint(
            "import into a table of another name and copy it over with INSERT INTO … SELECT, or rename the column with --rename",
        )
    };
    let mut new = def.clone();
    for column in given {
        check_nested(column)?;
        let name = name_in_table(renames, column.name());
        let at = name::resolve(name, known.iter().map(|known| known.name.as_str()));
        if let Some(wanted) = at.map(|at| &known[at].data_type) {
            let is_held = column.data_type.as_ref().is_none_or(|own| fits(own, wanted));
            if !is_held
                || decode_empty(column, name, &def)
                    .and_then(|rows| table::conform(&rows.batch, &def))
                    .is_err()
            {
                return Err(misfit(format!(
                    "column `{}` is {}, and {wanted} in the table",
                    column.name(),
                    column.type_name()
                )));
            }
            continue;
        }
        let unknown = |error: Error| {
            schema(format!("column `{}` is {}, which no table here holds", column.name(), column.type_name()))
                .hint("leave the column out in a copy, or make it another type there")
                .caused_by(error)
        };
        let rows = decode_empty(column, name, &def).map_err(unknown)?;
        // A column whose type the source defines gets exactly that type before the first row comes.
        let data_type = column.data_type.as_ref().or(rows.new_columns.first().map(|new| &new.data_type));
        if let Some(data_type) = data_type {
            data_type.check().map_err(unknown)?;
            new.add_column(name, data_type, true, None)?;
        }
    }
    let is_given =
        |name: &str| given.iter().any(|column| is_same_name(name_in_table(renames, column.name()), name));
    if let Some(lacking) = known.iter().find(|known| known.is_needed && !is_given(&known.name)) {
        let what =
            format!("column `{}` of the table is NOT NULL, and the source does not have it", lacking.name);
        return Err(misfit(what));
    }
    let key = target.existing.as_ref().and_then(|table| table["primary_key"].as_array());
    Ok(if key.is_none_or(Vec::is_empty) {
        Vec::new()
    } else {
        vec!["the table has a key: a row whose key is there replaces that row".to_owned()]
    })
}

/// Decodes a batch of this one column without rows, as the server would, to learn whether the server accepts its type.
fn decode_empty(column: &SourceColumn, name: &str, def: &TableDef) -> Result<wire::DecodedRows> {
    let field = column.field.as_ref().clone().with_name(name);
    let empty = RecordBatch::new_empty(Arc::new(Schema::new(vec![field])));
    let table = name::short_table_name(&def.name);
    let target = wire::json::DecodeTarget { table, def: Some(def), may_add_columns: true };
    wire::ipc::decode(&arrow_stream(&empty)?, target, &wire::Limits::default())
        .map_err(|refused| refused.error)
}

/// Returns true if a column of type `wanted` can hold values of type `own`, as far as the types tell. Ids of fields within
/// lists and structs are not compared, because each table has its own.
fn fits(own: &DataType, wanted: &DataType) -> bool {
    match (own, wanted) {
        // Iceberg has no type for JSON and holds it as text, also in Polynya's own lake.
        (DataType::String, DataType::Json) => true,
        (DataType::List(item), DataType::Vector(_)) => item.data_type == DataType::Float32,
        (DataType::Struct(fields), DataType::Point | DataType::Point3d) => {
            fields.iter().all(|field| field.data_type == DataType::Float64)
        }
        (DataType::List(own), DataType::List(wanted)) => fits(&own.data_type, &wanted.data_type),
        (DataType::Struct(own), DataType::Struct(wanted)) => {
            let fits = |own: &types::Field| {
                let at = name::resolve(&own.name, wanted.iter().map(|field| field.name.as_str()));
                at.is_some_and(|at| fits(&own.data_type, &wanted[at].data_type))
            };
            let is_given =
                |wanted: &types::Field| own.iter().any(|own| is_same_name(&own.name, &wanted.name));
            own.iter().all(fits) && wanted.iter().all(|field| field.nullable || is_given(field))
        }
        (own, wanted) => own.widens_to(wanted),
    }
}

fn is_same_name(a: &str, b: &str) -> bool {
    a == b || a.to_lowercase() == b.to_lowercase()
}

/// Fails with `schema` if a field within a struct has a reserved or invalid name. Such fields cannot be renamed during the
/// import.
fn check_nested(column: &SourceColumn) -> Result<()> {
    fn check(column: &str, arrow: &Arrow) -> Result<()> {
        match arrow {
            Arrow::List(item) => check(column, item.data_type()),
            Arrow::Struct(fields) => {
                fields.iter().try_for_each(|field| match field.name().starts_with('_') {
                    true => Err(Error::new(
                        Kind::Schema,
                        format!(
                            "field `{}` within column `{column}` has a name that belongs to Polynya",
                            field.name()
                        ),
                    )
                    .hint("rename the field in the source first (Iceberg: ALTER TABLE … RENAME COLUMN)")),
                    false => {
                        name::check_column(field.name())?;
                        check(column, field.data_type())
                    }
                })
            }
            _ => Ok(()),
        }
    }
    check(column.name(), column.field.data_type())
}

/// Returns the columns of the source whose texts the table holds as JSON: their indexes and the table's types. Their values
/// are checked before they are sent.
pub fn json_columns(
    given: &[SourceColumn],
    renames: &[(String, String)],
    target: &TargetTable,
) -> Vec<(usize, DataType)> {
    let known = target.existing.as_ref().map(table_columns).unwrap_or_default();
    let wanted = |column: &SourceColumn| {
        let name = name_in_table(renames, column.name());
        let at = name::resolve(name, known.iter().map(|known| known.name.as_str()))?;
        Some(known[at].data_type.clone()).filter(json_texts::has_json)
    };
    let is_text = |column: &SourceColumn| column.data_type.as_ref().is_some_and(|own| *own != DataType::Json);
    let of_texts = given.iter().enumerate().filter(|(_, column)| is_text(column));
    of_texts.filter_map(|(at, column)| Some((at, wanted(column)?))).collect()
}

/// A column of the existing table.
struct TableColumn {
    name: String,
    data_type: DataType,
    /// True if rows must have a value: the column is NOT NULL without a default.
    is_needed: bool,
}

fn table_columns(table: &TableDescription) -> Vec<TableColumn> {
    let column = |column: &Value| {
        Some(TableColumn {
            name: column["name"].as_str()?.to_owned(),
            data_type: DataType::parse(column["type"].as_str()?, &mut ColumnId(0)).ok()?,
            is_needed: column["nullable"] == json!(false) && column.get("default").is_none_or(Value::is_null),
        })
    };
    table["columns"].as_array().map(|all| all.iter().filter_map(column).collect()).unwrap_or_default()
}

/// Creates the table, or its missing columns, with exactly the types that the source defines.
pub async fn create(
    connection: &mut DataConnection,
    given: &[SourceColumn],
    renames: &[(String, String)],
    target: &TargetTable,
) -> Result<()> {
    let known = target.existing.as_ref().map(table_columns).unwrap_or_default();
    let is_lacking =
        |name: &str| name::resolve(name, known.iter().map(|known| known.name.as_str())).is_none();
    let column = |column: &SourceColumn| {
        let name = name_in_table(renames, column.name());
        let data_type = column.data_type.as_ref().filter(|_| is_lacking(name))?;
        Some(json!({ "name": name, "type": data_type.to_string() }))
    };
    let columns: Vec<Value> = given.iter().filter_map(column).collect();
    if columns.is_empty() && target.existing.is_some() {
        return Ok(());
    }
    let path = format!("/v1/tables/{}", escaped(&target.table.name));
    connection.client().json(Method::PUT, &path, Some(&json!({ "columns": columns }))).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(name: &str, data_type: DataType) -> SourceColumn {
        let field = Arc::new(Field::new(name, data_type.to_arrow(), true));
        SourceColumn { field, data_type: Some(data_type) }
    }

    fn target(table: Option<TableDescription>) -> TargetTable {
        let resolved = crate::ingest::ResolvedTable { name: "t".to_owned(), typed: "t".to_owned() };
        TargetTable { table: resolved, existing: table }
    }

    fn parsed(text: &str) -> DataType {
        DataType::parse(text, &mut ColumnId(0)).unwrap()
    }

    #[test]
    fn names_that_belong_to_polynya_lose_what_they_begin_with() {
        let columns = [given("_id", DataType::Int64), given("name", DataType::String)];
        let (renames, notes) = plan_renames(&columns, &[]).unwrap();
        assert_eq!(renames, [("_id".to_owned(), "id".to_owned())]);
        assert!(notes[0].contains("`_id` becomes `id`"), "{notes:?}");
        let wished = [("_id".to_owned(), "key".to_owned())];
        assert_eq!(plan_renames(&columns, &wished).unwrap().0, wished);
        let wished = [("nothing".to_owned(), "key".to_owned())];
        assert!(plan_renames(&columns, &wished).unwrap_err().to_string().contains("no column `nothing`"));
    }

    #[test]
    fn two_columns_of_one_name_are_told_before_anything_is_read() {
        for (a, b) in [("_id", "id"), ("Id", "id"), ("__", "x")] {
            let columns = [given(a, DataType::Int64), given(b, DataType::Int64)];
            let error = plan_renames(&columns, &[]).unwrap_err().to_string();
            assert!(error.contains("--rename"), "{error}");
        }
    }

    #[test]
    fn a_table_that_is_there_takes_what_fits_it_without_losing_a_value() {
        let table = json!({ "primary_key": ["id"], "columns": [
            { "name": "id", "type": "int64", "nullable": false },
            { "name": "name", "type": "string", "nullable": true },
        ]});
        let target = target(Some(table));
        let check = |columns: &[SourceColumn]| check(columns, &[], &target);
        let notes = check(&[given("id", DataType::Int32), given("more", DataType::Date)]).unwrap();
        assert!(notes[0].contains("replaces"), "{notes:?}");
        for (columns, why) in [
            (
                vec![given("id", DataType::Int64), given("name", DataType::Int64)],
                "`name` is int64, and string",
            ),
            (vec![given("name", DataType::String)], "`id` of the table is NOT NULL"),
        ] {
            let error = check(&columns).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    /// The struct types of an Iceberg table never equalled those of the table made from it, because the ids of their fields
    /// differ.
    #[test]
    fn types_are_compared_by_what_they_hold() {
        for (own, wanted, is_taken) in [
            ("struct<a: int64, b: string>", "struct<a: int64, b: string>", true),
            (
                "struct<a: int32, b: list<struct<x: date, y: float32>>>",
                "struct<B: list<struct<x: date, y: float64>>, a: int64, c: string>",
                true,
            ),
            ("struct<a: int64, b: string>", "struct<a: int64>", false),
            ("struct<a: int64>", "struct<a: int64, b: string not null>", false),
            ("list<struct<a: int64, b: string>>", "list<struct<a: int32, b: string>>", false),
            ("list<float32>", "vector(3)", true),
            ("list<float64>", "vector(3)", false),
            ("struct<lon: float64, lat: float64>", "point", true),
            ("struct<x: float64, y: float64, z: float64>", "point3d", true),
            ("struct<x: float64, y: float64, z: float64>", "point", false),
            ("struct<a: float64, b: float64>", "point", false),
            ("string", "json", true),
            ("string", "uuid", false),
            ("decimal(9,2)", "decimal(12,2)", true),
            ("decimal(9,2)", "decimal(9,3)", false),
            ("int64", "int32", false),
        ] {
            let table =
                json!({ "columns": [{ "name": "c", "type": parsed(wanted).to_string(), "nullable": true }] });
            let checked = check(&[given("c", parsed(own))], &[], &target(Some(table)));
            assert_eq!(checked.is_ok(), is_taken, "{own} as {wanted}: {checked:?}");
        }
    }

    /// A type that the server would refuse at the first row is refused before it.
    #[test]
    fn a_type_that_no_table_has_is_told_before_the_first_row() {
        use arrow::datatypes::{IntervalUnit, TimeUnit};
        let of = |arrow: Arrow| SourceColumn::of_arrow(&Arc::new(Field::new("c", arrow, true)));
        for bad in [
            Arrow::Interval(IntervalUnit::MonthDayNano),
            Arrow::Duration(TimeUnit::Second),
            Arrow::Decimal256(50, 2),
            Arrow::Decimal128(10, -2),
            Arrow::new_list(Arrow::Duration(TimeUnit::Second), true),
        ] {
            let error = check(&[of(bad.clone())], &[], &target(None)).unwrap_err();
            assert!(error.to_string().contains("column `c` is"), "{bad}: {error}");
            let table = json!({ "columns": [{ "name": "c", "type": "string", "nullable": true }] });
            assert!(check(&[of(bad.clone())], &[], &target(Some(table))).is_err(), "{bad}");
        }
        // Arrow could cast all of these; the server does not.
        for (arrow, wanted) in [
            (Arrow::Int64, "string"),
            (Arrow::Utf8, "int64"),
            (Arrow::Boolean, "int32"),
            (Arrow::Float64, "int64"),
            (Arrow::Timestamp(TimeUnit::Microsecond, None), "date"),
        ] {
            let table = json!({ "columns": [{ "name": "c", "type": wanted, "nullable": true }] });
            let error = check(&[of(arrow)], &[], &target(Some(table))).unwrap_err().to_string();
            assert!(error.contains(&format!("and {wanted} in the table")), "{error}");
        }
        let nested = Arrow::Struct(vec![Field::new("_x", Arrow::Int64, true)].into());
        assert!(check(&[of(nested)], &[], &target(None)).unwrap_err().to_string().contains("`_x`"));
        check(&[of(Arrow::Int64)], &[], &target(None)).unwrap();
    }
}
