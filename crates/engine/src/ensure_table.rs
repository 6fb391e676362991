//! Gives a table that a part of Polynya fills the columns that its rows need: creates it when the first rows come, and adds
//! missing columns.

use types::{DataType, Error, Kind, Result, TableDef, TableId, name};

use crate::transaction::{NewColumn, Op};

/// Returns the operations after which `table` (full name) takes rows of these columns: none if it takes them already.
/// `found` is the definition of the table as the sender of the rows sees it: a hidden table is treated like a missing one. A
/// new table gets `time`, which is one of the columns, as its time column. Fails with [`Kind::Schema`] if a column has
/// another type; `what` names the part that needs it in the message.
///
/// Commit the operations together with the rows. Other writers may do the same at once, so retry after a [`Kind::Conflict`].
pub fn ensure_table_ops(
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
    Ok(if new.is_empty() {
        Vec::new()
    } else {
        vec![Op::AddColumns { table: table.to_owned(), columns: new }]
    })
}
