//! The layout of a table's rows in its files: the partitions that divide them and the order within a file.

use serde_json::{Value as Json, json};
use types::{ColumnId, Error, ROW_ID, Result, SortBy, TIME, TableDef, Transform};

/// The partitions and sort order of a table, derived from `partition_by` and `sort_by` of its definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub partitions: Vec<PartitionColumn>,
    pub sorts: Vec<SortColumn>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionColumn {
    /// Index of the column in a batch of all columns, the system columns included.
    pub at: usize,
    /// Field id of the column.
    pub source: i32,
    pub transform: Transform,
    /// Name of the partition field in Iceberg.
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
    /// Returns the layout that a definition asks for. A definition whose expressions were not checked when it was made, and
    /// do not parse, yields the plain layout: its rows land unpartitioned and unsorted instead of not at all.
    pub fn of(def: &TableDef) -> Result<Layout> {
        let (partitions, sorts) =
            (def.partitions().unwrap_or_default(), def.sort_columns().unwrap_or_default());
        let partition = |by: &types::PartitionBy| {
            let (at, column) = locate_column(def, by.column)?;
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
            let (at, _) = locate_column(def, by.column)?;
            let source = crate::schema::field_id(by.column)?;
            Ok(SortColumn { at, source, descending: by.descending, nulls_first: by.nulls_first })
        };
        Ok(Layout {
            partitions: partitions.iter().map(partition).collect::<Result<_>>()?,
            sorts: sorts.iter().map(sort).collect::<Result<_>>()?,
        })
    }

    /// Returns true if rows lie unpartitioned, in row-id order.
    pub fn is_plain(&self) -> bool {
        self.partitions.is_empty() && self.sorts.is_empty()
    }

    /// Returns the fields of the Iceberg sort order, as JSON.
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

/// Returns the index of a column in batches of all columns, and its Iceberg name.
fn locate_column(def: &TableDef, id: ColumnId) -> Result<(usize, &str)> {
    match id {
        ROW_ID => Ok((0, crate::schema::ROW_ID_NAME)),
        TIME => Ok((1, types::TIME_NAME)),
        _ => {
            let at = def.schema.columns.iter().position(|column| column.id == id);
            let at =
                at.ok_or_else(|| Error::internal("a table is laid out by a column that it does not have"))?;
            Ok((at + 2, def.schema.columns[at].name.as_str()))
        }
    }
}
