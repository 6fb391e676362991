//! Decides whether a column may be added to a table, by its name and by the fields nested in its type.
//!
//! A table's rows go to its lake as Parquet and Iceberg, which other engines read. Columns that those formats cannot
//! hold are refused when they are added to a definition. They are not refused when a stored definition is read, so
//! that tables that already have such a column still open.

use crate::name::{self, COLUMN_BYTES_MAX, printable};
use crate::{DataType, Error, Field, Kind, Result};

/// Fails unless a new column may have this name and this type. Every path that adds a column goes through
/// [`crate::TableDef::add_column`], which calls this. Importers that read a whole schema also call it themselves, to
/// refuse before the first row.
///
/// Errors: [`Kind::Schema`] with the path of the bad field; [`Kind::Invalid`] if a type nests too deep or has
/// impossible parameters.
pub fn check_new_column(column: &str, data_type: &DataType) -> Result<()> {
    name::check_column(column)?;
    // This check bounds the depth, so the recursion below is bounded too.
    data_type.check().map_err(|e| e.with("column", printable(column)))?;
    check_fields(&mut column.to_owned(), data_type)
}

/// Checks the fields nested in a type. `path` is the path to this type for messages: `order.lines[]`.
fn check_fields(path: &mut String, data_type: &DataType) -> Result<()> {
    let len = path.len();
    match data_type {
        DataType::List(item) => {
            path.push_str("[]");
            check_fields(path, &item.data_type)?;
        }
        DataType::Struct(fields) if fields.is_empty() => {
            return Err(refused(
                path,
                "is a struct without fields",
                "give it a field, or make it a json column",
            ));
        }
        DataType::Struct(fields) => {
            for (at, field) in fields.iter().enumerate() {
                check_field(path, &fields[..at], field)?;
                path.push('.');
                path.push_str(&field.name);
                check_fields(path, &field.data_type)?;
                path.truncate(len);
            }
        }
        _ => {}
    }
    path.truncate(len);
    Ok(())
}

fn check_field(path: &str, before: &[Field], field: &Field) -> Result<()> {
    let shown = printable(&field.name);
    let folded = field.name.to_lowercase();
    let why = if field.name.is_empty() {
        "has a field whose name is empty".to_owned()
    } else if field.name.len() > COLUMN_BYTES_MAX {
        format!("has a field `{shown}` whose name has more than {COLUMN_BYTES_MAX} bytes")
    } else if let Some(bad) = field.name.chars().find(|c| c.is_control()) {
        format!("has a field `{shown}` whose name contains the control character `{}`", bad.escape_default())
    } else if before.iter().any(|other| other.name.to_lowercase() == folded) {
        format!("has two fields `{shown}`")
    } else {
        return Ok(());
    };
    Err(refused(path, &why, "rename the field where the rows come from"))
}

fn refused(path: &str, why: &str, hint: &str) -> Error {
    let what = format!("`{}` {why}, which no table can hold", printable(path));
    Error::new(Kind::Schema, what).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Decoder, Encoder};
    use crate::{AlterAction, ColumnId, TableDef, TableId};

    fn of_struct(fields: &[(&str, DataType)]) -> DataType {
        let field = |(name, data_type): &(&str, DataType)| Field {
            id: ColumnId(0),
            name: (*name).to_owned(),
            data_type: data_type.clone(),
            nullable: true,
        };
        DataType::Struct(fields.iter().map(field).collect())
    }

    fn list_of(data_type: DataType) -> DataType {
        let item = Field { id: ColumnId(0), name: "element".into(), data_type, nullable: true };
        DataType::List(Box::new(item))
    }

    /// A column of type `struct<>` was accepted with 200, and the table's lake stopped for good. Fields called `""`
    /// and `"\0"` made the table unreadable for other engines.
    #[test]
    fn a_column_that_no_lake_can_hold_is_refused_with_its_path() {
        let int = DataType::Int64;
        for (data_type, said) in [
            (of_struct(&[]), "`c` is a struct without fields"),
            (list_of(of_struct(&[])), "`c[]` is a struct without fields"),
            (of_struct(&[("a", list_of(of_struct(&[("b", of_struct(&[]))])))]), "`c.a[].b` is a struct"),
            (of_struct(&[("", int.clone())]), "`c` has a field whose name is empty"),
            (of_struct(&[("a", of_struct(&[("x\0", int.clone())]))]), "`c.a` has a field `x\\0`"),
            (list_of(of_struct(&[("line\nbreak", int.clone())])), "`c[]` has a field `line\\nbreak`"),
            (of_struct(&[("a", int.clone()), ("A", int.clone())]), "`c` has two fields `A`"),
            (of_struct(&[(&"x".repeat(256), int.clone())]), "more than 255 bytes"),
        ] {
            let mut def = TableDef::new(TableId(1), "main.t");
            let error = def.add_column("c", &data_type, true, None).unwrap_err();
            assert_eq!(error.kind(), Kind::Schema, "{data_type}");
            assert!(error.to_string().contains(said), "{data_type}: {error}");
            assert!(def.schema.columns.is_empty());
        }
        for name in ["", "\0", "a\u{7f}b"] {
            let error = TableDef::new(TableId(1), "main.t").add_column(name, &int, true, None).unwrap_err();
            assert_eq!(error.kind(), Kind::Schema, "{name:?}");
        }
        check_new_column("c", &of_struct(&[("_größe (m²)", list_of(int))])).unwrap();
    }

    /// A directory that already holds such a table still opens, and the column can be dropped.
    #[test]
    fn a_table_that_has_such_a_column_still_opens_and_changes() {
        let mut def = TableDef::new(TableId(1), "main.t");
        def.add_column("id", &DataType::Int64, true, None).unwrap();
        def.add_column("s", &DataType::Int64, true, None).unwrap();
        def.schema.columns[1].data_type = of_struct(&[("\0", of_struct(&[]))]);
        let mut e = Encoder::new();
        def.encode(&mut e);
        let read = TableDef::decode(&mut Decoder::new(&e.bytes)).unwrap();
        assert_eq!(read, def);
        let add = AlterAction::AddColumn {
            name: "n".into(),
            data_type: DataType::Int64,
            nullable: true,
            default: None,
            if_absent: false,
        };
        let drop = AlterAction::DropColumn { name: "s".into(), if_exists: false };
        read.altered(&[add]).unwrap().unwrap();
        assert_eq!(read.altered(&[drop]).unwrap().unwrap().schema.columns.len(), 1);
    }
}
