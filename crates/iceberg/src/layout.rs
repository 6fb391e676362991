//! How the rows of a table lie in its files: which of them share one, and in which order.

use serde_json::{Value as Json, json};
use types::{ColumnId, Error, ROW_ID, Result, SortBy, TIME, TableDef, Transform};

/// What follows from `partition_by` and `sort_by` of a definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub partitions: Vec<PartitionColumn>,
    pub sorts: Vec<SortColumn>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionColumn {
    /// Where the column is in a batch of all columns.
    pub at: usize,
    /// Its field id.
    pub source: i32,
    pub transform: Transform,
    /// As Iceberg names it.
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortColumn {
    pub at: usize,
    pub source: i32,
    pub descending: bool,
    pub nulls_first: bool,
}

impl Layout {
    /// Of a definition whose expressions were not checked when it was made, nothing: rather than not landing at all its
    /// rows lie as if it said none.
    pub fn of(def: &TableDef) -> Result<Layout> {
        let (partitions, sorts) =
            (def.partitions().unwrap_or_default(), def.sort_columns().unwrap_or_default());
        let partition = |by: &types::PartitionBy| {
            let (at, column) = place(def, by.column)?;
            let name = match by.transform {
                Transform::Identity => column.to_owned(),
                Transform::Bucket(count) => format!("{column}_bucket_{count}"),
                Transform::Truncate(width) => format!("{column}_trunc_{width}"),
                time => format!("{column}_{time}"),
            };
            let source = crate::schema::field_id(by.column)?;
            Ok(PartitionColumn { at, source, transform: by.transform, name })
        };
        let sort = |by: &SortBy| {
            let (at, _) = place(def, by.column)?;
            let source = crate::schema::field_id(by.column)?;
            Ok(SortColumn { at, source, descending: by.descending, nulls_first: by.nulls_first })
        };
        Ok(Layout {
            partitions: partitions.iter().map(partition).collect::<Result<_>>()?,
            sorts: sorts.iter().map(sort).collect::<Result<_>>()?,
        })
    }

    /// Whether rows simply lie in the order of their ids.
    pub fn is_plain(&self) -> bool {
        self.partitions.is_empty() && self.sorts.is_empty()
    }

    /// The fields of the Iceberg sort order.
    pub fn sort_fields(&self) -> Json {
        let field = |sort: &SortColumn| {
            json!({
                "transform": "identity",
                "source-id": sort.source,
                "direction": if sort.descending { "desc" } else { "asc" },
                "null-order": if sort.nulls_first { "nulls-first" } else { "nulls-last" },
            })
        };
        self.sorts.iter().map(field).collect()
    }
}

/// Where a column is in batches of all columns, and its name in Iceberg.
fn place(def: &TableDef, id: ColumnId) -> Result<(usize, &str)> {
    match id {
        ROW_ID => Ok((0, crate::schema::ROW_ID_NAME)),
        TIME => Ok((1, types::TIME_NAME)),
        _ => {
            let at = def.schema.columns.iter().position(|column| column.id == id);
            let at = at.ok_or_else(|| Error::internal("a table is laid out by a column that it has not"))?;
            Ok((at + 2, def.schema.columns[at].name.as_str()))
        }
    }
}
