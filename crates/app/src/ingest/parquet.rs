//! Parquet files, read and converted some batches at a time. Positions are row numbers.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, RecordBatch, StructArray};
use arrow::compute::{CastOptions, cast_with_options, concat_batches};
use arrow::datatypes::{DataType as Arrow, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use lake::foreign;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::LogicalType;
use parquet::schema::types::SchemaDescriptor;
use types::{Error, Kind, Result, parquet_footer, schema};

use super::arrow_stream;
use super::piece::{ARROW, PIECE_BYTES, Pieces, SourcePiece};

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 8_192;
/// Rows after which a piece ends, about.
const PIECE_ROWS_MAX: u64 = 131_072;

/// A Parquet file that is being cut into pieces.
pub struct Parquet {
    path: std::path::PathBuf,
    reader: ParquetRecordBatchReader,
    schema: SchemaRef,
    /// Indexes of the file's columns that are read. Polynya's own columns are left out, because the table makes them itself.
    columns: Vec<usize>,
    position: u64,
    pub rows: u64,
}

impl Parquet {
    /// Opens a file at row `position`. `renames` are the old and new names of columns. Fails with `invalid` if the file is
    /// not valid Parquet.
    pub fn open(path: &Path, position: u64, renames: &[(String, String)]) -> Result<Self> {
        let (reader, file_schema, columns, rows) = open(path, position)?;
        let fields = columns.iter().map(|i| {
            let field = table_field(file_schema.field(*i));
            let renamed = renames.iter().find(|(old, _)| old == field.name());
            match renamed {
                Some((_, new)) => field.with_name(new),
                None => field,
            }
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(Parquet { path: path.to_owned(), reader, schema, columns, position, rows })
    }

    /// The schema of the columns that are read, with the types that a table holds.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn convert(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let column = |(i, field): (&usize, &Arc<Field>)| -> Result<ArrayRef> {
            let array = batch.column(*i);
            convert_values(array, field.data_type()).map_err(|error| conversion_error(field, array, error))
        };
        let arrays = self.columns.iter().zip(self.schema.fields()).map(column).collect::<Result<Vec<_>>>()?;
        RecordBatch::try_new(self.schema.clone(), arrays).map_err(|error| unreadable(&self.path, &error))
    }
}

/// Returns a reader at row `position`, the file's schema, the indexes of the columns to read, and the number of rows.
fn open(path: &Path, position: u64) -> Result<(ParquetRecordBatchReader, SchemaRef, Vec<usize>, u64)> {
    let file = File::open(path).map_err(|error| Error::io(format!("reading {}", path.display()), error))?;
    check_footer(&file).map_err(|error| error.with("file", path.display()))?;
    let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())
        .and_then(foreign::int96_as_micros)
        .map_err(|error| unreadable(path, &error))?;
    let rows = u64::try_from(metadata.metadata().file_metadata().num_rows()).unwrap_or(0);
    let columns = columns_to_read(metadata.parquet_schema());
    let schema = foreign::change_leaves(metadata.schema(), metadata.parquet_schema(), &|field, column| {
        let is_uuid = column.logical_type_ref() == Some(&LogicalType::Uuid);
        is_uuid.then(|| with_extension(field.clone(), Some(UUID)))
    });
    let offset = usize::try_from(position).unwrap_or(usize::MAX);
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
        .with_offset(offset)
        .with_batch_size(BATCH_ROWS)
        .build()
        .map_err(|error| unreadable(path, &error))?;
    Ok((reader, schema, columns, rows))
}

fn check_footer(file: &File) -> Result<()> {
    let failed = |error| Error::io("reading the footer", error);
    let len = file.metadata().map_err(failed)?.len();
    parquet_footer::check(len, |at, count| {
        let mut bytes = vec![0; count];
        file.read_exact_at(&mut bytes, at).map_err(failed)?;
        Ok(bytes)
    })
}

/// Returns the indexes of the columns to read. In a file of Polynya's own lake, that excludes the columns that each table
/// makes for its rows itself.
fn columns_to_read(parquet: &SchemaDescriptor) -> Vec<usize> {
    let roots = parquet.root_schema().get_fields();
    let own = [lake::ROW_ID_NAME, schema::ROW_ID_NAME, schema::TIME_NAME];
    let is_lakes = roots.iter().any(|field| {
        let info = field.get_basic_info();
        field.name() == lake::ROW_ID_NAME
            && info.has_id()
            && i64::from(info.id()) == i64::from(types::ROW_ID.0)
    });
    (0..roots.len()).filter(|at| !(is_lakes && own.contains(&roots[*at].name()))).collect()
}

/// Makes the error for a column whose values cannot be converted to a type of tables.
fn conversion_error(field: &Field, array: &ArrayRef, error: ArrowError) -> Error {
    let why = match &error {
        ArrowError::ExternalError(source) => source.downcast_ref::<Error>(),
        _ => None,
    };
    if let Some(why) = why {
        let said = Error::new(why.kind(), format!("column `{}`: {}", field.name(), why.message()));
        return said.hint(why.hint_text().unwrap_or("leave the column out in a copy"));
    }
    let (from, to) = (array.data_type(), field.data_type());
    Error::new(Kind::Schema, format!("column `{}` ({from}) cannot become {to}: {error}", field.name()))
        .caused_by(error)
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::invalid(format!("{} is not a readable Parquet file: {error}", path.display()))
}

impl Pieces for Parquet {
    fn next(&mut self) -> Result<Option<SourcePiece>> {
        let start = self.position;
        let mut batches: Vec<RecordBatch> = Vec::new();
        let mut bytes = 0;
        while bytes < PIECE_BYTES && self.position - start < PIECE_ROWS_MAX {
            let Some(batch) = self.reader.next() else { break };
            let batch = self.convert(&batch.map_err(|error| unreadable(&self.path, &error))?)?;
            bytes += batch.get_array_memory_size();
            self.position += batch.num_rows() as u64;
            batches.push(batch);
        }
        let rows = self.position - start;
        if rows == 0 && self.position < self.rows {
            let (found, said) = (self.position, self.rows);
            return Err(unreadable(&self.path, &format!("it has {found} rows, but claims {said}")));
        }
        if rows == 0 {
            return Ok(None);
        }
        let batch = concat_batches(&self.schema, &batches).map_err(|error| unreadable(&self.path, &error))?;
        let body = arrow_stream(&batch)?;
        let ends = (start + 1..=self.position).map(|end| (end, end)).collect();
        Ok(Some(SourcePiece {
            end: self.position,
            line: self.position,
            rows,
            content_type: ARROW,
            body,
            ends,
        }))
    }
}

/// The metadata key, and two values, by which Arrow marks types that are stored as other types.
const EXTENSION: &str = "ARROW:extension:name";
const JSON: &str = "arrow.json";
const UUID: &str = "arrow.uuid";

/// Replaces the metadata of a field by its extension type, if any.
fn with_extension(field: Field, extension: Option<&str>) -> Field {
    let pair = |extension: &str| (EXTENSION.to_owned(), extension.to_owned());
    field.with_metadata(extension.map(pair).into_iter().collect::<HashMap<_, _>>())
}

/// Returns the field of a table that can hold all values of a Parquet field. Maps become JSON objects.
fn table_field(field: &Field) -> Field {
    let extension = field.metadata().get(EXTENSION).map(String::as_str);
    let data_type = table_type(field.data_type());
    let extension = match (field.data_type(), &data_type) {
        (Arrow::Map(..), _) => Some(JSON),
        (_, Arrow::Utf8) => extension.filter(|extension| *extension == JSON),
        (_, Arrow::FixedSizeBinary(16)) => extension.filter(|extension| *extension == UUID),
        _ => None,
    };
    with_extension(Field::new(field.name(), data_type, true), extension)
}

/// Returns the type of a table that can hold the values of an Arrow type.
fn table_type(arrow: &Arrow) -> Arrow {
    match arrow {
        Arrow::Int8 | Arrow::Int16 | Arrow::UInt8 | Arrow::UInt16 => Arrow::Int32,
        Arrow::UInt32 | Arrow::UInt64 => Arrow::Int64,
        Arrow::Float16 => Arrow::Float32,
        Arrow::LargeUtf8 | Arrow::Utf8View => Arrow::Utf8,
        Arrow::LargeBinary | Arrow::BinaryView => Arrow::Binary,
        Arrow::Dictionary(_, values) => table_type(values),
        Arrow::Timestamp(_, _) | Arrow::Date64 => Arrow::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Arrow::Time32(_) | Arrow::Time64(_) | Arrow::Null | Arrow::Map(..) => Arrow::Utf8,
        Arrow::Decimal32(precision, scale) | Arrow::Decimal64(precision, scale) => {
            Arrow::Decimal128(*precision, *scale)
        }
        Arrow::List(item) | Arrow::LargeList(item) => Arrow::List(Arc::new(table_field(item))),
        Arrow::Struct(fields) => Arrow::Struct(fields.iter().map(|field| table_field(field)).collect()),
        other => other.clone(),
    }
}

/// Converts values to the type that [`table_field`] chose. Fails for a value that does not fit.
fn convert_values(array: &ArrayRef, wanted: &Arrow) -> std::result::Result<ArrayRef, ArrowError> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    match (array.data_type(), wanted) {
        (Arrow::Map(entries, _), _) => {
            let maps = array.as_map();
            let Arrow::Struct(fields) = entries.data_type() else {
                return Err(ArrowError::SchemaError("a map without entries".into()));
            };
            let (key, value) = (table_field(&fields[0]), table_field(&fields[1]));
            let keys = convert_values(maps.keys(), key.data_type())?;
            let values = convert_values(maps.values(), value.data_type())?;
            foreign::maps_as_json(maps, (&keys, &key), (&values, &value))
                .map_err(|error| ArrowError::ExternalError(Box::new(error)))
        }
        (Arrow::List(item) | Arrow::LargeList(item), Arrow::List(to)) if has_map(item.data_type()) => {
            let plain = cast_with_options(array, &Arrow::List(item.clone()), &strict)?;
            let lists = plain.as_list::<i32>();
            let values = convert_values(lists.values(), to.data_type())?;
            let made =
                ListArray::try_new(to.clone(), lists.offsets().clone(), values, lists.nulls().cloned());
            made.map(|made| Arc::new(made) as ArrayRef)
        }
        (Arrow::Struct(fields), Arrow::Struct(to)) if fields.iter().any(|f| has_map(f.data_type())) => {
            let given = array.as_struct();
            let pairs = given.columns().iter().zip(to);
            let columns = pairs.map(|(values, to)| convert_values(values, to.data_type()));
            let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
            let made =
                StructArray::try_new_with_length(to.clone(), columns, given.nulls().cloned(), given.len());
            made.map(|made| Arc::new(made) as ArrayRef)
        }
        _ => cast_with_options(array, wanted, &strict),
    }
}

fn has_map(arrow: &Arrow) -> bool {
    match arrow {
        Arrow::Map(..) => true,
        Arrow::List(item) | Arrow::LargeList(item) => has_map(item.data_type()),
        Arrow::Struct(fields) => fields.iter().any(|field| has_map(field.data_type())),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
