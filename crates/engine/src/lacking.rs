//! Tables that a part of Polynya fills, with columns that it knows: made when the first rows come, given what they lack.

use types::{DataType, Error, Kind, Result, TableDef, TableId, name};

use crate::transaction::{NewColumn, Op};

/// What makes `table` (full name) take rows of these columns: nothing where it has them. `found` is its definition, as whoever
/// sends the rows sees it: a table that is hidden is answered like one that is not there. A new one goes by `time`, which is one
/// of them. [`Kind::Schema`] if a column is there with another type; `what` says who needs it.
///
/// To be committed together with the rows. Others may do the same at once: a [`Kind::Conflict`] is to be tried again.
pub fn lacking(
    found: Option<&TableDef>,
    table: &str,
    columns: &[(&str, DataType)],
    time: &str,
    what: &str,
) -> Result<Vec<Op>> {
    let Some(found) = found else {
        let mut def = TableDef::new(TableId(0), table);
        for (name, data_type) in columns {
            def.add_column(name, data_type, true, None)?;
        }
        def.time = def.schema.column_named(time).map(|column| column.id);
        return Ok(vec![Op::CreateTable { def, if_absent: true }]);
    };
    let mut new = Vec::new();
    for (name, data_type) in columns {
        match found.schema.column_named(name) {
            None => new.push(NewColumn {
                name: (*name).to_owned(),
                data_type: data_type.clone(),
                nullable: true,
                default: None,
            }),
            Some(column) if column.data_type == *data_type => {}
            Some(column) => {
                let found = &column.data_type;
                let table = name::short_table_name(table);
                return Err(Error::new(
                    Kind::Schema,
                    format!("column `{name}` of `{table}` is {found}, and {what} needs {data_type}"),
                )
                .hint("choose another table"));
            }
        }
    }
    Ok(match new.is_empty() {
        true => Vec::new(),
        false => vec![Op::AddColumns { table: table.to_owned(), columns: new }],
    })
}
