//! The schema of a table's columns in Iceberg and in Parquet.
//!
//! | column | Iceberg | Parquet |
//! |---|---|---|
//! | `bool` | `boolean` | BOOLEAN |
//! | `int32`, `int64` | `int`, `long` | INT32, INT64 |
//! | `float32`, `float64` | `float`, `double` | FLOAT, DOUBLE |
//! | `decimal(p,s)` | `decimal(p, s)` | INT32 to 9 digits, INT64 to 18, else FIXED_LEN_BYTE_ARRAY |
//! | `string`, `json` | `string` | BYTE_ARRAY (String) |
//! | `binary` | `binary` | BYTE_ARRAY |
//! | `date` | `date` | INT32 (Date) |
//! | `timestamp` | `timestamptz` | INT64 (Timestamp µs, UTC) |
//! | `uuid` | `uuid` | FIXED_LEN_BYTE_ARRAY(16) (UUID) |
//! | `list<t>`, `struct<…>` | `list`, `struct` | three-level list, group |
//! | `vector(n)` | `list<float>`, elements required | three-level list of FLOAT |
//! | `point`, `point3d` | `struct<lon, lat>`, `struct<x, y, z>` of required `double` | group |
//!
//! Field ids are the column ids. The row id, `_row_id` elsewhere, is named [`ROW_ID_NAME`] here. The fields inside vectors
//! and points have no column id; their field ids derive from the column's (`inner_id`) and are far above any column id.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use serde_json::{Value as Json, json};
use types::{ColumnId, DataType, Error, ROW_ID, Result, TIME, TIME_NAME, TableDef};

use crate::layout::Layout;
use crate::single_value::PrimitiveType;

/// Name of the row id in Iceberg and Parquet. Iceberg reserves `_row_id`, as well as `_file`, `_pos`, `_deleted`,
/// `_spec_id`, `_partition`, `_last_updated_sequence_number`, `_commit_snapshot_id`, `_change_type` and `_change_ordinal`:
/// its Spark runtime refuses every query of a table that has such a column. User columns never begin with `_`.
pub const ROW_ID_NAME: &str = "_polynya_row_id";

/// The schemas that derive from a table definition alone; made once per definition (O1).
#[derive(Debug)]
pub struct Columns {
    pub def: Arc<TableDef>,
    /// The Iceberg schema without its `schema-id`.
    pub iceberg: Json,
    /// The highest field id in use.
    pub last_id: i32,
    pub parquet: SchemaDescriptor,
    /// Schema of the batches that are written.
    pub arrow: SchemaRef,
    /// The leaf columns that manifests have metrics for.
    pub leaves: Vec<Leaf>,
    /// Partitions and sort order of the files.
    pub layout: Layout,
    /// Columns with an initial value, which rows older than the column show because they store none.
    pub initial: Vec<ColumnId>,
}

/// A leaf column with single values: a column itself, or a field in a struct. Manifests record metrics for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Index of the leaf among Parquet's columns.
    pub at: usize,
    pub id: i32,
    pub primitive_type: PrimitiveType,
    /// Path of the leaf in a batch: the index of the column, then those of struct fields.
    pub path: Vec<usize>,
}

/// Number of leaves with bounds per file, the same as in other writers of Iceberg.
pub const BOUNDED_LEAVES_MAX: usize = 100;

impl Columns {
    pub fn of(def: &Arc<TableDef>) -> Result<Columns> {
        let system = [(ROW_ID, ROW_ID_NAME, DataType::Int64), (TIME, TIME_NAME, DataType::Timestamp)];
        let user = def.schema.columns.iter();
        let columns: Vec<(ColumnId, &str, DataType, bool)> = system
            .into_iter()
            .map(|(id, name, data_type)| (id, name, data_type, true))
            .chain(user.map(|c| (c.id, c.name.as_str(), c.data_type.clone(), !c.nullable)))
            .collect();
        let in_table = |e: Error| e.with("table", &def.name);
        for (_, name, data_type, _) in &columns {
            refuse_empty_structs(name, data_type).map_err(in_table)?;
        }
        let mut last_id = 0;
        let mut fields = Vec::with_capacity(columns.len());
        let mut groups = Vec::with_capacity(columns.len());
        let mut collector = LeafCollector::default();
        for (nth, (id, name, data_type, required)) in columns.iter().enumerate() {
            let at = TypeContext { id: field_id(*id)?, column: *id, required: *required };
            fields.push(json!({
                "id": at.id, "name": name, "required": required, "type": iceberg_type(data_type, at, &mut last_id)?,
            }));
            last_id = last_id.max(at.id);
            groups.push(parquet_type(name, data_type, at)?);
            collector.add(data_type, at, vec![nth])?;
        }
        let mut iceberg = json!({ "type": "struct", "fields": fields });
        if def.is_keyed() {
            let key: Vec<u32> = def.primary_key.iter().map(|id| id.0).collect();
            iceberg["identifier-field-ids"] = json!(key);
        }
        let root = Type::group_type_builder("table").with_fields(groups).build().map_err(parquet_error)?;
        Ok(Columns {
            def: def.clone(),
            iceberg,
            last_id,
            parquet: SchemaDescriptor::new(Arc::new(root)),
            arrow: def.schema.to_arrow(),
            leaves: collector.leaves,
            layout: Layout::of(def)?,
            initial: def.schema.columns.iter().filter(|c| c.initial.is_some()).map(|c| c.id).collect(),
        })
    }
}

/// Refuses structs without fields at any depth, because Parquet does not support them.
fn refuse_empty_structs(column: &str, data_type: &DataType) -> Result<()> {
    match data_type {
        DataType::Struct(fields) if fields.is_empty() => {
            let column = types::name::printable(column);
            Err(Error::new(
                types::Kind::Schema,
                format!("the lake cannot hold column `{column}`: it has a struct without fields"),
            )
            .hint("drop the column, or give the table no lake: `lake = false`"))
        }
        DataType::Struct(fields) => {
            fields.iter().try_for_each(|f| refuse_empty_structs(column, &f.data_type))
        }
        DataType::List(item) => refuse_empty_structs(column, &item.data_type),
        _ => Ok(()),
    }
}

/// The context of a type: its field id and nullability.
#[derive(Clone, Copy)]
struct TypeContext {
    id: i32,
    /// Id of the column, or of the nested field, that has this type. Ids inside vectors and points derive from it.
    column: ColumnId,
    required: bool,
}

impl TypeContext {
    /// Returns the context of a field in a list or struct, which has a column id of its own.
    fn inside(field: &types::Field) -> Result<TypeContext> {
        Ok(TypeContext { id: field_id(field.id)?, column: field.id, required: !field.nullable })
    }
}

pub fn field_id(id: ColumnId) -> Result<i32> {
    i32::try_from(id.0).ok().filter(|id| *id < INNER_FIRST).ok_or_else(|| {
        Error::new(types::Kind::TooLarge, format!("column id {id} is above what Iceberg takes"))
    })
}

/// The first field id inside vectors and points; column ids are below it. Iceberg reserves the ids from 2147483447 on.
const INNER_FIRST: i32 = 1 << 29;

/// Returns the id of the `nth` field inside a vector or point, where `column` is the id of that vector's or point's column
/// or field.
fn inner_id(column: ColumnId, nth: usize) -> Result<i32> {
    let inner = i64::from(INNER_FIRST) + 4 * i64::from(column.0) + nth as i64;
    i32::try_from(inner).ok().filter(|id| *id < 2_147_483_447).ok_or_else(|| {
        Error::new(types::Kind::TooLarge, format!("column id {column} is above what the lake takes"))
    })
}

fn point_fields(data_type: &DataType) -> &'static [&'static str] {
    match data_type {
        DataType::Point => &["lon", "lat"],
        _ => &["x", "y", "z"],
    }
}

/// Collects the leaves with metrics while it counts Parquet's columns.
#[derive(Default)]
struct LeafCollector {
    leaves: Vec<Leaf>,
    next: usize,
}

impl LeafCollector {
    fn add(&mut self, data_type: &DataType, at: TypeContext, path: Vec<usize>) -> Result<()> {
        let deeper = |field: usize| path.iter().copied().chain([field]).collect();
        match data_type {
            // Iceberg records no bounds inside lists.
            DataType::List(_) | DataType::Vector(_) => self.next += leaf_count(data_type),
            DataType::Struct(fields) => {
                for (nth, field) in fields.iter().enumerate() {
                    self.add(&field.data_type, TypeContext::inside(field)?, deeper(nth))?;
                }
            }
            DataType::Point | DataType::Point3d => {
                for nth in 0..point_fields(data_type).len() {
                    let inner = TypeContext { id: inner_id(at.column, nth)?, ..at };
                    self.add(&DataType::Float64, inner, deeper(nth))?;
                }
            }
            single_valued => {
                if let Some(primitive_type) = PrimitiveType::of(single_valued) {
                    self.leaves.push(Leaf { at: self.next, id: at.id, primitive_type, path });
                }
                self.next += 1;
            }
        }
        Ok(())
    }
}

fn leaf_count(data_type: &DataType) -> usize {
    match data_type {
        DataType::List(item) => leaf_count(&item.data_type),
        DataType::Struct(fields) => fields.iter().map(|f| leaf_count(&f.data_type)).sum(),
        DataType::Point | DataType::Point3d => point_fields(data_type).len(),
        _ => 1,
    }
}

fn iceberg_type(data_type: &DataType, at: TypeContext, last_id: &mut i32) -> Result<Json> {
    let plain = |name: &str| Ok(Json::from(name));
    match data_type {
        DataType::Bool => plain("boolean"),
        DataType::Int32 => plain("int"),
        DataType::Int64 => plain("long"),
        DataType::Float32 => plain("float"),
        DataType::Float64 => plain("double"),
        DataType::Decimal { precision, scale } => Ok(format!("decimal({precision}, {scale})").into()),
        DataType::String | DataType::Json => plain("string"),
        DataType::Binary => plain("binary"),
        DataType::Date => plain("date"),
        DataType::Timestamp => plain("timestamptz"),
        DataType::Uuid => plain("uuid"),
        DataType::List(item) => {
            let inner = TypeContext::inside(item)?;
            *last_id = (*last_id).max(inner.id);
            let element = iceberg_type(&item.data_type, inner, last_id)?;
            Ok(list(inner.id, element, inner.required))
        }
        DataType::Struct(fields) => {
            let field = |field: &types::Field| {
                let inner = TypeContext::inside(field)?;
                *last_id = (*last_id).max(inner.id);
                let inner_type = iceberg_type(&field.data_type, inner, last_id)?;
                Ok(
                    json!({ "id": inner.id, "name": field.name, "required": inner.required, "type": inner_type }),
                )
            };
            let fields = fields.iter().map(field).collect::<Result<Vec<_>>>()?;
            Ok(json!({ "type": "struct", "fields": fields }))
        }
        DataType::Vector(_) => {
            let id = inner_id(at.column, 0)?;
            *last_id = (*last_id).max(id);
            Ok(list(id, "float".into(), true))
        }
        DataType::Point | DataType::Point3d => {
            let field = |(nth, name): (usize, &&str)| {
                let id = inner_id(at.column, nth)?;
                *last_id = (*last_id).max(id);
                Ok(json!({ "id": id, "name": name, "required": true, "type": "double" }))
            };
            let fields = point_fields(data_type).iter().enumerate().map(field).collect::<Result<Vec<_>>>()?;
            Ok(json!({ "type": "struct", "fields": fields }))
        }
    }
}

fn list(id: i32, element: Json, required: bool) -> Json {
    json!({ "type": "list", "element-id": id, "element": element, "element-required": required })
}

fn parquet_type(name: &str, data_type: &DataType, at: TypeContext) -> Result<TypePtr> {
    let repetition = if at.required { Repetition::REQUIRED } else { Repetition::OPTIONAL };
    let plain = |physical, logical: Option<LogicalType>| {
        Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .with_id(Some(at.id))
    };
    let group = |name, logical, repetition, id, fields| {
        Type::group_type_builder(name)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .with_id(id)
            .with_fields(fields)
            .build()
            .map(Arc::new)
            .map_err(parquet_error)
    };
    let of_list = |element: TypePtr| {
        let repeated = group("list", None, Repetition::REPEATED, None, vec![element])?;
        group(name, Some(LogicalType::List), repetition, Some(at.id), vec![repeated])
    };
    let builder = match data_type {
        DataType::Bool => plain(Physical::BOOLEAN, None),
        DataType::Int32 => plain(Physical::INT32, None),
        DataType::Int64 => plain(Physical::INT64, None),
        DataType::Float32 => plain(Physical::FLOAT, None),
        DataType::Float64 => plain(Physical::DOUBLE, None),
        DataType::Decimal { precision, scale } => {
            let (precision, scale) = (i32::from(*precision), i32::from(*scale));
            let physical = match precision {
                ..=9 => Physical::INT32,
                10..=18 => Physical::INT64,
                _ => Physical::FIXED_LEN_BYTE_ARRAY,
            };
            plain(physical, Some(LogicalType::Decimal { scale, precision }))
                .with_precision(precision)
                .with_scale(scale)
                .with_length(if precision > 18 { decimal_bytes(precision as u32) } else { -1 })
        }
        DataType::String | DataType::Json => plain(Physical::BYTE_ARRAY, Some(LogicalType::String)),
        DataType::Binary => plain(Physical::BYTE_ARRAY, None),
        DataType::Date => plain(Physical::INT32, Some(LogicalType::Date)),
        DataType::Timestamp => {
            let utc = LogicalType::Timestamp { is_adjusted_to_u_t_c: true, unit: TimeUnit::MICROS };
            plain(Physical::INT64, Some(utc))
        }
        DataType::Uuid => plain(Physical::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::Uuid)).with_length(16),
        DataType::List(item) => {
            let inner = TypeContext::inside(item)?;
            return of_list(parquet_type("element", &item.data_type, inner)?);
        }
        DataType::Vector(_) => {
            let inner = TypeContext { id: inner_id(at.column, 0)?, required: true, ..at };
            return of_list(parquet_type("element", &DataType::Float32, inner)?);
        }
        DataType::Struct(fields) => {
            let field = |f: &types::Field| {
                let inner = TypeContext::inside(f)?;
                parquet_type(&f.name, &f.data_type, inner)
            };
            let fields = fields.iter().map(field).collect::<Result<Vec<_>>>()?;
            return group(name, None, repetition, Some(at.id), fields);
        }
        DataType::Point | DataType::Point3d => {
            let field = |(nth, name): (usize, &&str)| {
                let inner = TypeContext { id: inner_id(at.column, nth)?, required: true, ..at };
                parquet_type(name, &DataType::Float64, inner)
            };
            let fields = point_fields(data_type).iter().enumerate().map(field).collect::<Result<Vec<_>>>()?;
            return group(name, None, repetition, Some(at.id), fields);
        }
    };
    builder.build().map(Arc::new).map_err(parquet_error)
}

/// Returns the number of bytes that hold every number of `precision` decimal digits in two's complement.
pub fn decimal_bytes(precision: u32) -> i32 {
    let largest = 10i128.pow(precision) - 1;
    (1..=16).find(|bytes| largest < 1i128 << (8 * bytes - 1).min(126)).unwrap_or(16)
}

pub fn parquet_error(error: parquet::errors::ParquetError) -> Error {
    use parquet::errors::ParquetError;
    match error {
        // An error of this workspace comes back wrapped, because the writer passes on any error of `Write`.
        ParquetError::External(inner) => match inner.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(inner) => match inner.downcast::<std::io::Error>().map(|error| error.downcast::<Error>()) {
                Ok(Ok(ours)) => ours,
                Ok(Err(error)) => Error::io("writing Parquet", error),
                Err(inner) => Error::internal(format!("Parquet: {inner}")),
            },
        },
        other => Error::internal(format!("Parquet: {other}")),
    }
}

#[cfg(test)]
mod tests;
