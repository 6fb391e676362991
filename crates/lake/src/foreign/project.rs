//! Maps a data file's columns to those of the table's schema: finds them by field id and converts them to the types that tables
//! here have.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, ListArray, RecordBatch, StringArray, StructArray, UInt32Array,
    new_null_array,
};
use arrow::compute::{cast, nullif, take};
use arrow::datatypes::{DataType as Arrow, Field, Fields, Schema};
use iceberg::single_value::SingleValue;
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use types::{Error, Kind, Result};

use super::json;
use super::schema::{Node, NodeKind};
use super::{DataFile, ForeignTable};
use crate::live_rows::as_type;

/// The source of a column's values.
pub(super) enum ColumnSource {
    Stored {
        at: usize,
        conversion: Conversion,
    },
    /// One value for all rows of the file: null, the partition's value, or the column's default.
    Constant(ArrayRef),
}

/// The conversion from a stored type to the wanted one.
pub(super) enum Conversion {
    Cast(Arrow),
    Time,
    /// The wanted fields, and the source of each.
    Struct(Fields, Vec<FieldSource>),
    List(Arc<Field>, Box<Conversion>),
    Map(Box<Conversion>, Box<Conversion>),
}

/// The source of a field of a struct: a stored field, converted, or one value for all rows.
pub(super) enum FieldSource {
    Stored(usize, Conversion),
    /// One value for all rows: the field's default or null.
    Constant(ArrayRef),
}

type NameMapping = HashMap<i32, Vec<String>>;

/// Identifies fields in a file: by field id, or by name if the file has no ids.
struct FieldLookup<'a> {
    has_ids: bool,
    names: &'a NameMapping,
}

impl<'a> FieldLookup<'a> {
    fn new(table: &'a ForeignTable, schema: &Schema) -> FieldLookup<'a> {
        FieldLookup {
            has_ids: schema.fields().iter().any(|field| field_id(field).is_some()),
            names: &table.names,
        }
    }

    fn find(&self, node: &Node, fields: &Fields) -> Option<usize> {
        if self.has_ids {
            return fields.iter().position(|field| field_id(field) == Some(node.id));
        }
        let names = self.names.get(&node.id)?;
        fields.iter().position(|field| names.contains(field.name()))
    }
}

fn field_id(field: &Field) -> Option<i32> {
    field.metadata().get(PARQUET_FIELD_ID_META_KEY)?.parse().ok()
}

/// Returns the source of each of the columns `nodes`, and the indexes of the file's columns that they need, ascending.
pub(super) fn sources(
    table: &ForeignTable,
    file: &DataFile,
    nodes: &[Node],
    schema: &Schema,
) -> Result<(Vec<ColumnSource>, Vec<usize>)> {
    let of = FieldLookup::new(table, schema);
    if !of.has_ids && of.names.is_empty() {
        return Err(Error::new(
            Kind::Invalid,
            "a data file without field ids in a table without a name mapping",
        )
        .hint(
            "set the table's property `schema.name-mapping.default`, or import the Parquet files themselves",
        ));
    }
    let mut roots = Vec::new();
    let mut sources = Vec::with_capacity(nodes.len());
    for node in nodes {
        sources.push(match of.find(node, schema.fields()) {
            Some(at) => {
                roots.push(at);
                let conversion = conversion(&of, node, schema.field(at).data_type(), &node.name)?;
                ColumnSource::Stored { at, conversion }
            }
            None => ColumnSource::Constant(constant_column(table, file, node)?),
        });
    }
    roots.sort_unstable();
    roots.dedup();
    Ok((sources, roots))
}

/// Checks that a delete file has all its key columns. A key consists of stored values only; defaults and partition values do
/// not replace a missing column.
pub(super) fn check_key_columns(table: &ForeignTable, keys: &[Node], schema: &Schema) -> Result<()> {
    let of = FieldLookup::new(table, schema);
    for key in keys {
        let (mut node, mut fields) = (key, schema.fields());
        loop {
            let Some(at) = of.find(node, fields) else {
                let (name, id) = (&node.name, node.id);
                let what = format!("a file of equality deletes without its key field {id}, `{name}`");
                return Err(Error::damaged(what));
            };
            match (&node.kind, fields[at].data_type()) {
                (NodeKind::Struct(inner), Arrow::Struct(stored)) if !inner.is_empty() => {
                    (node, fields) = (&inner[0], stored);
                }
                _ => break,
            }
        }
    }
    Ok(())
}

/// Returns the value that all rows of a file have in a column that the file lacks.
fn constant_column(table: &ForeignTable, file: &DataFile, node: &Node) -> Result<ArrayRef> {
    let wanted = node.data_type().to_arrow();
    let spec = table.specs.get(&file.spec);
    let mut fields = spec.iter().flat_map(|spec| spec.fields.iter().enumerate());
    let at = fields.find(|(_, field)| field.source == node.id && field.transform == "identity");
    let value = at.and_then(|(at, _)| file.partition.values.get(at)?.as_ref());
    match (value, &node.kind) {
        (Some(value), NodeKind::Plain(_)) => partition_value(value, &wanted),
        (Some(_), _) => Err(Error::new(
            Kind::Invalid,
            format!(
                "column `{}` is in the partition alone, and of a type that is not read from there",
                node.name
            ),
        )),
        (None, _) if at.is_some() => Ok(new_null_array(&wanted, 1)),
        (None, _) => match &node.default {
            Some(default) => Ok(default.clone()),
            None if node.required => {
                Err(Error::damaged(format!("a data file without the required column `{}`", node.name)))
            }
            None => Ok(new_null_array(&wanted, 1)),
        },
    }
}

fn partition_value(value: &SingleValue, wanted: &Arrow) -> Result<ArrayRef> {
    use arrow::array::{BinaryArray, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array};
    let failed = |e: arrow::error::ArrowError| Error::damaged(format!("a partition's value: {e}"));
    let array: ArrayRef = match value {
        SingleValue::Bool(value) => Arc::new(BooleanArray::from(vec![*value])),
        SingleValue::Int(value) if matches!(wanted, Arrow::Date32) => {
            let days =
                i32::try_from(*value).map_err(|_| Error::damaged("a partition's value is not a day"))?;
            Arc::new(Int32Array::from(vec![days]))
        }
        SingleValue::Int(value) => Arc::new(Int64Array::from(vec![*value])),
        SingleValue::Float(value) => Arc::new(Float64Array::from(vec![*value])),
        SingleValue::Decimal(value) => {
            let array = Decimal128Array::from(vec![*value]);
            let Arrow::Decimal128(precision, scale) = wanted else {
                return Err(Error::damaged("a partition's value is of another type than its column"));
            };
            Arc::new(array.with_precision_and_scale(*precision, *scale).map_err(failed)?)
        }
        SingleValue::Bytes(bytes) if matches!(wanted, Arrow::Utf8) => {
            let text =
                std::str::from_utf8(bytes).map_err(|_| Error::damaged("a partition's value is not text"))?;
            Arc::new(StringArray::from(vec![text]))
        }
        SingleValue::Bytes(bytes) => Arc::new(BinaryArray::from_vec(vec![bytes.as_slice()])),
    };
    as_type(&array, wanted)
}

fn conversion(file: &FieldLookup<'_>, node: &Node, stored: &Arrow, column: &str) -> Result<Conversion> {
    let wrong = || {
        Error::damaged(format!(
            "column `{column}` is stored as {stored}, which is not what the table's schema says"
        ))
    };
    Ok(match (&node.kind, stored) {
        (NodeKind::Plain(wanted), _) if !stored.is_nested() => Conversion::Cast(wanted.to_arrow()),
        (NodeKind::Time, Arrow::Time32(_) | Arrow::Time64(_)) => Conversion::Time,
        (NodeKind::Struct(nodes), Arrow::Struct(fields)) => {
            let mut parts = Vec::with_capacity(nodes.len());
            for node in nodes {
                parts.push(match file.find(node, fields) {
                    Some(at) => {
                        FieldSource::Stored(at, conversion(file, node, fields[at].data_type(), column)?)
                    }
                    None if node.required && node.default.is_none() => {
                        let name = &node.name;
                        return Err(Error::damaged(format!(
                            "a data file without the required field `{name}` of column `{column}`"
                        )));
                    }
                    None => FieldSource::Constant(match &node.default {
                        Some(default) => default.clone(),
                        None => new_null_array(&node.data_type().to_arrow(), 1),
                    }),
                });
            }
            let Arrow::Struct(wanted) = node.data_type().to_arrow() else { return Err(wrong()) };
            Conversion::Struct(wanted, parts)
        }
        (NodeKind::List(item), Arrow::List(element) | Arrow::LargeList(element)) => {
            let Arrow::List(wanted) = node.data_type().to_arrow() else { return Err(wrong()) };
            Conversion::List(wanted, Box::new(conversion(file, item, element.data_type(), column)?))
        }
        (NodeKind::Map(key, value), Arrow::Map(entries, _)) => {
            let Arrow::Struct(fields) = entries.data_type() else { return Err(wrong()) };
            let [keys, values] = &fields[..] else { return Err(wrong()) };
            let key = conversion(file, key, keys.data_type(), column)?;
            Conversion::Map(Box::new(key), Box::new(conversion(file, value, values.data_type(), column)?))
        }
        _ => return Err(wrong()),
    })
}

impl ColumnSource {
    /// Adjusts the column's index for a read of only the file's columns `roots`.
    pub fn renumber(&mut self, roots: &[usize]) {
        if let ColumnSource::Stored { at, .. } = self {
            let stored = *at;
            *at = roots.partition_point(|root| *root < stored);
        }
    }

    pub fn column(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        match self {
            ColumnSource::Stored { at, conversion } => conversion.apply(batch.column(*at)),
            ColumnSource::Constant(one) => repeated(one, batch.num_rows()),
        }
    }
}

fn repeated(one: &ArrayRef, rows: usize) -> Result<ArrayRef> {
    take(one, &UInt32Array::from(vec![0; rows]), None)
        .map_err(|e| Error::internal(format!("repeating a value: {e}")))
}

/// Unwraps nested structs of one field each down to the values, which are null where a struct is null.
pub(super) fn innermost(mut array: ArrayRef) -> Result<ArrayRef> {
    while let Some(outer) = array.as_struct_opt() {
        let inner = outer.columns().first().ok_or_else(|| Error::internal("a struct without fields"))?;
        let inner = match outer.nulls() {
            None => Ok(inner.clone()),
            Some(nulls) => nullif(inner, &BooleanArray::new(!nulls.inner(), None)),
        };
        array = inner.map_err(|e| Error::internal(format!("values within a struct: {e}")))?;
    }
    Ok(array)
}

impl Conversion {
    pub fn apply(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let wrong = |e: &dyn std::fmt::Display| Error::damaged(format!("a column cannot be read: {e}"));
        match self {
            Conversion::Cast(wanted) => as_type(array, wanted),
            Conversion::Time => cast(array, &Arrow::Utf8).map_err(|e| wrong(&e)),
            Conversion::Struct(fields, parts) => {
                let stored = array.as_struct_opt().ok_or_else(|| wrong(&"not a struct"))?;
                let part = |part: &FieldSource| match part {
                    FieldSource::Stored(at, conversion) => conversion.apply(stored.column(*at)),
                    FieldSource::Constant(one) => repeated(one, stored.len()),
                };
                let columns = parts.iter().map(part).collect::<Result<Vec<_>>>()?;
                let made = StructArray::try_new_with_length(
                    fields.clone(),
                    columns,
                    stored.nulls().cloned(),
                    stored.len(),
                );
                made.map(|made| Arc::new(made) as ArrayRef).map_err(|e| wrong(&e))
            }
            Conversion::List(field, item) => {
                let plain = as_type(
                    array,
                    &match array.data_type() {
                        Arrow::LargeList(inner) => Arrow::List(inner.clone()),
                        other => other.clone(),
                    },
                )?;
                let stored: &ListArray = plain.as_list_opt().ok_or_else(|| wrong(&"not a list"))?;
                let values = item.apply(stored.values())?;
                let made = ListArray::try_new(
                    field.clone(),
                    stored.offsets().clone(),
                    values,
                    stored.nulls().cloned(),
                );
                made.map(|made| Arc::new(made) as ArrayRef).map_err(|e| wrong(&e))
            }
            Conversion::Map(key, value) => {
                let stored = array.as_map_opt().ok_or_else(|| wrong(&"not a map"))?;
                let (keys, values) = (key.apply(stored.keys())?, value.apply(stored.values())?);
                let is_map = matches!(**value, Conversion::Map(..));
                let (key, value) = (json::field_of(&keys, false), json::field_of(&values, is_map));
                json::maps_as_json(stored, (&keys, &key), (&values, &value))
            }
        }
    }
}
