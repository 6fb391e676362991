//! Whether what is imported fits the table: names, types, what must not be null.

use std::sync::Arc;

use arrow::compute::can_cast_types;
use arrow::datatypes::{DataType as Arrow, Field};
use http::Method;
use serde_json::{Value, json};
use types::{ColumnId, DataType, Error, Kind, Result, name};

use super::{Notes, Renames, Table};
use crate::client::escaped;
use crate::door::Door;

/// A column of a source.
#[derive(Clone, Debug)]
pub struct Given {
    pub name: String,
    pub arrow: Arrow,
    /// If it is known exactly which of a table's types holds it.
    pub data_type: Option<DataType>,
}

impl Given {
    pub fn arrow(field: &Arc<Field>) -> Given {
        Given { name: field.name().clone(), arrow: field.data_type().clone(), data_type: None }
    }
}

/// The table as it is described, if it is there.
pub async fn existing(door: &mut Door, table: &str) -> Result<Option<Table>> {
    let described = match door.control() {
        Some(control) => control.json(Method::GET, &format!("/tables/{}", escaped(table)), None).await,
        None => door.client().json(Method::GET, &format!("/v1/tables/{}", escaped(table)), None).await,
    };
    match described {
        Ok(described) => Ok(Some(described)),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What columns are called in the table, where that is not their own name: as is wished, and without the `_` that they begin
/// with, since such names belong to Polynya.
pub fn rename(given: &[Given], wished: &[(String, String)]) -> Result<(Renames, Notes)> {
    let (mut renames, mut notes): (Renames, Notes) = Default::default();
    for (old, _) in wished {
        if given.iter().all(|column| column.name != *old) {
            let names: Vec<&str> = given.iter().map(|column| column.name.as_str()).take(20).collect();
            return Err(Error::invalid(format!("there is no column `{old}` to rename"))
                .hint(format!("there are: {}", names.join(", "))));
        }
    }
    for column in given {
        let new = match wished.iter().find(|(old, _)| *old == column.name) {
            Some((_, new)) => new.clone(),
            None if column.name.starts_with('_') => {
                let new = column.name.trim_start_matches('_').to_owned();
                notes.push(format!(
                    "column `{}` becomes `{new}`: names with `_` in front are Polynya's",
                    column.name
                ));
                new
            }
            None => continue,
        };
        renames.push((column.name.clone(), new));
    }
    let mut taken: Vec<(String, &str)> = Vec::with_capacity(given.len());
    for column in given {
        let new = named(&renames, &column.name);
        let rename = |e: Error| e.hint(format!("give it another name: --rename {}=NAME", column.name));
        name::check_column(new).map_err(rename)?;
        let folded = new.to_lowercase();
        if let Some((_, other)) = taken.iter().find(|(name, _)| *name == folded) {
            let (a, b) = (*other, &column.name);
            return Err(rename(Error::new(
                Kind::Schema,
                format!("columns `{a}` and `{b}` would have one name, `{new}`"),
            )));
        }
        taken.push((folded, &column.name));
    }
    Ok((renames, notes))
}

/// What a column is called in the table.
pub fn named<'a>(renames: &'a [(String, String)], column: &'a str) -> &'a str {
    renames.iter().find(|(old, _)| old == column).map_or(column, |(_, new)| new)
}

/// Whether the columns fit a table that is there; what is to be known of it.
pub fn check(
    given: &[Given],
    renames: &[(String, String)],
    table: Option<&Table>,
    table_name: &str,
) -> Result<Notes> {
    let Some(table) = table else { return Ok(Vec::new()) };
    let columns = columns_of(table);
    let misfit = |what: String| {
        Err(Error::new(Kind::Schema, what).with("table", table_name).hint(
            "import into a table of another name and copy it over with INSERT INTO … SELECT, or rename the column with --rename",
        ))
    };
    for column in given {
        let new = named(renames, &column.name);
        let Some(at) = name::resolve(new, columns.iter().map(|known| known.name.as_str())) else { continue };
        let wanted = &columns[at].data_type;
        let fits = match &column.data_type {
            Some(own) => own.widens_to(wanted),
            None => can_cast_types(&column.arrow, &wanted.to_arrow()),
        };
        if !fits {
            let own = column.data_type.as_ref().map_or_else(|| column.arrow.to_string(), ToString::to_string);
            return misfit(format!("column `{}` is {own}, and {wanted} in the table", column.name));
        }
    }
    let is_given =
        |name: &str| given.iter().any(|column| named(renames, &column.name).eq_ignore_ascii_case(name));
    if let Some(lacking) = columns.iter().find(|known| known.is_needed && !is_given(&known.name)) {
        return misfit(format!(
            "column `{}` of the table is NOT NULL, and the source does not have it",
            lacking.name
        ));
    }
    let key = table["primary_key"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(match key.is_empty() {
        true => Vec::new(),
        false => vec!["the table has a key: a row whose key is there replaces that row".to_owned()],
    })
}

struct Known {
    name: String,
    data_type: DataType,
    /// Rows must have a value.
    is_needed: bool,
}

fn columns_of(table: &Table) -> Vec<Known> {
    let column = |column: &Value| {
        Some(Known {
            name: column["name"].as_str()?.to_owned(),
            data_type: DataType::parse(column["type"].as_str()?, &mut ColumnId(0)).ok()?,
            is_needed: column["nullable"] == json!(false) && column.get("default").is_none_or(Value::is_null),
        })
    };
    table["columns"].as_array().map(|all| all.iter().filter_map(column).collect()).unwrap_or_default()
}

/// Makes the table, or the columns that it lacks, with just these types.
pub async fn make(
    door: &mut Door,
    given: &[Given],
    renames: &[(String, String)],
    table: Option<&Table>,
    table_name: &str,
) -> Result<()> {
    let known = table.map(columns_of).unwrap_or_default();
    let is_lacking =
        |name: &str| name::resolve(name, known.iter().map(|known| known.name.as_str())).is_none();
    let column = |column: &Given| {
        let name = named(renames, &column.name);
        let data_type = column.data_type.as_ref().filter(|_| is_lacking(name))?;
        Some(json!({ "name": name, "type": data_type.to_string() }))
    };
    let columns: Vec<Value> = given.iter().filter_map(column).collect();
    if columns.is_empty() && table.is_some() {
        return Ok(());
    }
    let path = format!("/v1/tables/{}", escaped(table_name));
    door.client().json(Method::PUT, &path, Some(&json!({ "columns": columns }))).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(name: &str, data_type: DataType) -> Given {
        Given { name: name.to_owned(), arrow: data_type.to_arrow(), data_type: Some(data_type) }
    }

    #[test]
    fn names_that_belong_to_polynya_lose_what_they_begin_with() {
        let columns = [given("_id", DataType::Int64), given("name", DataType::String)];
        let (renames, notes) = rename(&columns, &[]).unwrap();
        assert_eq!(renames, [("_id".to_owned(), "id".to_owned())]);
        assert!(notes[0].contains("`_id` becomes `id`"), "{notes:?}");
        let wished = [("_id".to_owned(), "key".to_owned())];
        assert_eq!(rename(&columns, &wished).unwrap().0, wished);
        let wished = [("nothing".to_owned(), "key".to_owned())];
        assert!(rename(&columns, &wished).unwrap_err().to_string().contains("no column `nothing`"));
    }

    #[test]
    fn two_columns_of_one_name_are_told_before_anything_is_read() {
        for (a, b) in [("_id", "id"), ("Id", "id"), ("__", "x")] {
            let columns = [given(a, DataType::Int64), given(b, DataType::Int64)];
            let error = rename(&columns, &[]).unwrap_err().to_string();
            assert!(error.contains("--rename"), "{error}");
        }
    }

    #[test]
    fn a_table_that_is_there_takes_what_fits_it_without_losing_a_value() {
        let table = json!({ "primary_key": ["id"], "columns": [
            { "name": "id", "type": "int64", "nullable": false },
            { "name": "name", "type": "string", "nullable": true },
        ]});
        let check = |columns: &[Given]| check(columns, &[], Some(&table), "t");
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
}
