//! Parquet files, some row groups' worth of rows at a time. Positions are row numbers.

use std::collections::HashMap;
use std::fs::File;
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
use types::{Error, Kind, Result, schema};

use super::arrow_stream;
use super::piece::{ARROW, PIECE_BYTES, Piece, Pieces};

const BATCH_ROWS: usize = 8_192;
const PIECE_ROWS_MAX: u64 = 131_072;

/// A Parquet file being cut.
pub struct Parquet {
    path: std::path::PathBuf,
    reader: ParquetRecordBatchReader,
    schema: SchemaRef,
    /// Which columns of the file are taken: Polynya's own are made anew.
    columns: Vec<usize>,
    position: u64,
    pub rows: u64,
}

impl Parquet {
    /// `renames`: columns that are called otherwise in the table, old and new name.
    pub fn open(path: &Path, position: u64, renames: &[(String, String)]) -> Result<Self> {
        let (reader, file_schema, columns, rows) = open(path, position)?;
        let fields = columns.iter().map(|i| {
            let field = ours(file_schema.field(*i));
            let renamed = renames.iter().find(|(old, _)| old == field.name());
            match renamed {
                Some((_, new)) => field.with_name(new),
                None => field,
            }
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(Parquet { path: path.to_owned(), reader, schema, columns, position, rows })
    }

    /// The columns that are taken, as tables hold them.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn convert(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let column = |(i, field): (&usize, &Arc<Field>)| -> Result<ArrayRef> {
            let array = batch.column(*i);
            converted(array, field.data_type()).map_err(|error| {
                Error::new(
                    Kind::Schema,
                    format!(
                        "column `{}` ({}) cannot become {}",
                        field.name(),
                        array.data_type(),
                        field.data_type()
                    ),
                )
                .caused_by(error)
            })
        };
        let arrays = self.columns.iter().zip(self.schema.fields()).map(column).collect::<Result<Vec<_>>>()?;
        RecordBatch::try_new(self.schema.clone(), arrays).map_err(|error| damaged(&self.path, &error))
    }
}

/// The reader, the file's columns, which of them are taken, and how many rows there are.
fn open(path: &Path, position: u64) -> Result<(ParquetRecordBatchReader, SchemaRef, Vec<usize>, u64)> {
    let file = File::open(path).map_err(|error| Error::io(format!("reading {}", path.display()), error))?;
    let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())
        .and_then(foreign::int96_as_micros)
        .map_err(|error| damaged(path, &error))?;
    let rows = u64::try_from(metadata.metadata().file_metadata().num_rows()).unwrap_or(0);
    let columns = taken(metadata.parquet_schema());
    let schema = foreign::change_leaves(metadata.schema(), metadata.parquet_schema(), &|field, column| {
        let is_uuid = column.logical_type_ref() == Some(&LogicalType::Uuid);
        is_uuid.then(|| noted(field.clone(), Some(UUID)))
    });
    let offset = usize::try_from(position).unwrap_or(usize::MAX);
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
        .with_offset(offset)
        .with_batch_size(BATCH_ROWS)
        .build()
        .map_err(|error| damaged(path, &error))?;
    Ok((reader, schema, columns, rows))
}

/// Which columns are taken: of a file of Polynya's own lake not those that each table gives its rows itself.
fn taken(parquet: &SchemaDescriptor) -> Vec<usize> {
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

fn damaged(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::invalid(format!("{} is no Parquet file that can be read: {error}", path.display()))
}

impl Pieces for Parquet {
    fn next(&mut self) -> Result<Option<Piece>> {
        let start = self.position;
        let mut batches: Vec<RecordBatch> = Vec::new();
        let mut bytes = 0;
        while bytes < PIECE_BYTES && self.position - start < PIECE_ROWS_MAX {
            let Some(batch) = self.reader.next() else { break };
            let batch = self.convert(&batch.map_err(|error| damaged(&self.path, &error))?)?;
            bytes += batch.get_array_memory_size();
            self.position += batch.num_rows() as u64;
            batches.push(batch);
        }
        let rows = self.position - start;
        if rows == 0 {
            return Ok(None);
        }
        let batch = concat_batches(&self.schema, &batches).map_err(|error| damaged(&self.path, &error))?;
        let body = arrow_stream(&batch)?;
        let ends = (start + 1..=self.position).map(|end| (end, end)).collect();
        Ok(Some(Piece { end: self.position, line: self.position, rows, content_type: ARROW, body, ends }))
    }
}

/// Arrow's canonical names for what is more than its bytes.
const EXTENSION: &str = "ARROW:extension:name";
const JSON: &str = "arrow.json";
const UUID: &str = "arrow.uuid";

fn noted(field: Field, extension: Option<&str>) -> Field {
    let pair = |extension: &str| (EXTENSION.to_owned(), extension.to_owned());
    field.with_metadata(extension.map(pair).into_iter().collect::<HashMap<_, _>>())
}

/// The field among those that a table can hold that takes a field's values whole. Maps become JSON objects.
fn ours(field: &Field) -> Field {
    let extension = field.metadata().get(EXTENSION).map(String::as_str);
    let data_type = ours_of(field.data_type());
    let extension = match (field.data_type(), &data_type) {
        (Arrow::Map(..), _) => Some(JSON),
        (_, Arrow::Utf8) => extension.filter(|extension| *extension == JSON),
        (_, Arrow::FixedSizeBinary(16)) => extension.filter(|extension| *extension == UUID),
        _ => None,
    };
    noted(Field::new(field.name(), data_type, true), extension)
}

fn ours_of(arrow: &Arrow) -> Arrow {
    match arrow {
        Arrow::Int8 | Arrow::Int16 | Arrow::UInt8 | Arrow::UInt16 => Arrow::Int32,
        Arrow::UInt32 | Arrow::UInt64 => Arrow::Int64,
        Arrow::Float16 => Arrow::Float32,
        Arrow::LargeUtf8 | Arrow::Utf8View => Arrow::Utf8,
        Arrow::LargeBinary | Arrow::BinaryView => Arrow::Binary,
        Arrow::Dictionary(_, values) => ours_of(values),
        Arrow::Timestamp(_, _) | Arrow::Date64 => Arrow::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Arrow::Time32(_) | Arrow::Time64(_) | Arrow::Null | Arrow::Map(..) => Arrow::Utf8,
        Arrow::Decimal32(precision, scale) | Arrow::Decimal64(precision, scale) => {
            Arrow::Decimal128(*precision, *scale)
        }
        Arrow::List(item) | Arrow::LargeList(item) => Arrow::List(Arc::new(ours(item))),
        Arrow::Struct(fields) => Arrow::Struct(fields.iter().map(|field| ours(field)).collect()),
        other => other.clone(),
    }
}

/// Values as [`ours`] has them.
fn converted(array: &ArrayRef, wanted: &Arrow) -> std::result::Result<ArrayRef, ArrowError> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    match (array.data_type(), wanted) {
        (Arrow::Map(entries, _), _) => {
            let maps = array.as_map();
            let Arrow::Struct(fields) = entries.data_type() else {
                return Err(ArrowError::SchemaError("a map without entries".into()));
            };
            let part = |nth: usize, values: &ArrayRef| converted(values, ours(&fields[nth]).data_type());
            let (keys, values) = (part(0, maps.keys())?, part(1, maps.values())?);
            foreign::objects(maps, &keys, &values).map_err(|error| ArrowError::ExternalError(Box::new(error)))
        }
        (Arrow::List(item) | Arrow::LargeList(item), Arrow::List(to)) if has_map(item.data_type()) => {
            let plain = cast_with_options(array, &Arrow::List(item.clone()), &strict)?;
            let lists = plain.as_list::<i32>();
            let values = converted(lists.values(), to.data_type())?;
            let made =
                ListArray::try_new(to.clone(), lists.offsets().clone(), values, lists.nulls().cloned());
            made.map(|made| Arc::new(made) as ArrayRef)
        }
        (Arrow::Struct(fields), Arrow::Struct(to)) if fields.iter().any(|f| has_map(f.data_type())) => {
            let given = array.as_struct();
            let pairs = given.columns().iter().zip(to);
            let columns = pairs.map(|(values, to)| converted(values, to.data_type()));
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
mod tests {
    use arrow::array::{DictionaryArray, Int64Array, StringArray, UInt16Array};
    use arrow::datatypes::{Int8Type, TimestampMicrosecondType};
    use parquet::arrow::ArrowWriter;
    use parquet::data_type::{Int96, Int96Type};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    fn written(batch: &RecordBatch) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), None).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
        (dir, path)
    }

    /// A file with what a lake of Polynya's has besides its columns, or of others that call theirs so.
    fn write(rows: i64, is_lakes: bool) -> (tempfile::TempDir, std::path::PathBuf) {
        let words: DictionaryArray<Int8Type> =
            (0..rows).map(|i| if i % 2 == 0 { "even" } else { "odd" }).collect();
        let numbers = || Arc::new(Int64Array::from_iter_values(1..=rows)) as ArrayRef;
        let batch = RecordBatch::try_from_iter([
            ("_polynya_row_id", numbers()),
            ("_time", numbers()),
            ("n", Arc::new(UInt16Array::from_iter_values((0..rows).map(|i| i as u16)))),
            ("word", Arc::new(words)),
        ])
        .unwrap();
        let mut fields: Vec<Field> =
            batch.schema().fields().iter().map(|field| field.as_ref().clone()).collect();
        if is_lakes {
            let id = ("PARQUET:field_id".to_owned(), "1".to_owned());
            fields[0] = fields[0].clone().with_metadata(HashMap::from([id]));
        }
        let schema = Arc::new(Schema::new(fields));
        written(&RecordBatch::try_new(schema, batch.columns().to_vec()).unwrap())
    }

    fn read(piece: &Piece) -> RecordBatch {
        let reader =
            arrow::ipc::reader::StreamReader::try_new(std::io::Cursor::new(&piece.body[..]), None).unwrap();
        let batches: Vec<RecordBatch> = reader.map(|batch| batch.unwrap()).collect();
        concat_batches(&batches[0].schema(), &batches).unwrap()
    }

    #[test]
    fn columns_come_as_types_that_tables_hold_and_polynyas_own_are_left_out() {
        let (_dir, path) = write(10, true);
        let piece = Parquet::open(&path, 0, &[]).unwrap().next().unwrap().unwrap();
        let batch = read(&piece);
        let types: Vec<_> =
            batch.schema().fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect();
        assert_eq!(types, [("n".to_owned(), Arrow::Int32), ("word".to_owned(), Arrow::Utf8)]);
        assert_eq!((piece.rows, batch.num_rows()), (10, 10));
    }

    /// A column `_time` was left out of any file, without a word.
    #[test]
    fn columns_of_others_are_taken_whatever_they_are_called() {
        let (_dir, path) = write(10, false);
        let renames = [("_time".to_owned(), "time".to_owned())];
        let batch = read(&Parquet::open(&path, 0, &renames).unwrap().next().unwrap().unwrap());
        let schema = batch.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["_polynya_row_id", "time", "n", "word"]);
    }

    /// Times of Impala and older Sparks: beyond what nanoseconds since 1970 hold they were others.
    #[test]
    fn int96_times_of_all_years_are_kept() {
        let message = "message m { optional int96 at; optional group many (LIST) { repeated group list {
            optional int96 element; } } optional binary word (UTF8); optional group one { optional int96 at; } }";
        let schema = Arc::new(parse_message_type(message).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        let mut writer =
            SerializedFileWriter::new(File::create(&path).unwrap(), schema, Arc::default()).unwrap();
        // Days of the Julian period, and nanoseconds of them.
        let days = [1_721_426, 2_440_588, 5_373_484];
        let times: Vec<Int96> = days.iter().map(|day| Int96::from(vec![5_000, 0, *day])).collect();
        let micros = days.map(|day| (i64::from(day) - 2_440_588) * 86_400_000_000 + 5);
        let mut group = writer.next_row_group().unwrap();
        for nth in 0..4 {
            let mut column = group.next_column().unwrap().unwrap();
            match nth {
                0 => column.typed::<Int96Type>().write_batch(&times, Some(&[1; 3]), None),
                1 => column.typed::<Int96Type>().write_batch(&times, Some(&[3; 3]), Some(&[0; 3])),
                2 => {
                    column.typed::<parquet::data_type::ByteArrayType>().write_batch(&[], Some(&[0; 3]), None)
                }
                _ => column.typed::<Int96Type>().write_batch(&times, Some(&[2; 3]), None),
            }
            .unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();

        let batch = read(&Parquet::open(&path, 0, &[]).unwrap().next().unwrap().unwrap());
        let times = |array: &ArrayRef| array.as_primitive::<TimestampMicrosecondType>().values().to_vec();
        assert_eq!(times(batch.column(0)), micros);
        assert_eq!(times(batch.column(1).as_list::<i32>().values()), micros);
        assert_eq!(times(batch.column(3).as_struct().column(0)), micros);
        assert_eq!(batch.column(2).null_count(), 3);
    }

    #[test]
    fn maps_become_json_and_uuids_stay_what_they_are() {
        use arrow::array::builder::{Int64Builder, MapBuilder, StringBuilder};
        let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
        for (key, value) in [("a", Some(1)), ("b", None)] {
            maps.keys().append_value(key);
            maps.values().append_option(value);
            maps.append(true).unwrap();
        }
        maps.append(false).unwrap();
        let maps: ArrayRef = Arc::new(maps.finish());
        let item = Arc::new(Field::new("item", maps.data_type().clone(), true));
        let offsets = arrow::buffer::OffsetBuffer::from_lengths([2, 0, 1]);
        let lists: ArrayRef = Arc::new(ListArray::try_new(item, offsets, maps.clone(), None).unwrap());
        let uuids = arrow::array::FixedSizeBinaryArray::try_from_iter([[7u8; 16]; 3].iter()).unwrap();
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["{}", "[]", "1"]));
        let batch = RecordBatch::try_from_iter([
            ("map", maps),
            ("maps", lists),
            ("who", Arc::new(uuids) as ArrayRef),
            ("json", texts),
        ])
        .unwrap();
        let mut fields: Vec<Field> = batch.schema().fields().iter().map(|f| f.as_ref().clone()).collect();
        for (at, extension) in [(2, UUID), (3, JSON)] {
            fields[at] = noted(fields[at].clone(), Some(extension));
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), batch.columns().to_vec()).unwrap();
        let (_dir, path) = written(&batch);
        let piece = Parquet::open(&path, 0, &[]).unwrap().next().unwrap().unwrap();
        let batch = read(&piece);
        let texts = |array: &ArrayRef| {
            let texts = array.as_string::<i32>().iter();
            texts.map(|text| text.map(str::to_owned)).collect::<Vec<_>>()
        };
        let objects = [Some("{\"a\":1}".to_owned()), Some("{\"b\":null}".to_owned()), None];
        assert_eq!(texts(batch.column(0)), objects);
        assert_eq!(texts(batch.column(1).as_list::<i32>().values()), objects);
        let target = wire::json::Target { table: "t", def: None, may_add_columns: true };
        let Ok(rows) = wire::ipc::decode(&piece.body, target, &wire::Limits::default()) else {
            panic!("the server takes it");
        };
        let types: Vec<String> = rows.new_columns.iter().map(|new| new.data_type.to_string()).collect();
        assert_eq!(types, ["json", "list<json>", "uuid", "json"]);
    }

    #[test]
    fn a_file_goes_on_from_any_row() {
        let (_dir, path) = write(30_000, true);
        let whole = Parquet::open(&path, 0, &[]).unwrap().next().unwrap().unwrap();
        assert_eq!((whole.rows, whole.end), (30_000, 30_000));
        let mut resumed = Parquet::open(&path, 12_345, &[]).unwrap();
        let rest = resumed.next().unwrap().unwrap();
        assert_eq!((rest.rows, rest.end), (17_655, 30_000));
        assert_eq!(read(&rest), read(&whole).slice(12_345, 17_655));
        assert_eq!(resumed.next().unwrap(), None);
    }

    #[test]
    fn what_is_no_parquet_is_said_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, b"PAR1 and then nothing").unwrap();
        assert!(Parquet::open(&path, 0, &[]).err().unwrap().to_string().contains("no Parquet file"));
    }
}
