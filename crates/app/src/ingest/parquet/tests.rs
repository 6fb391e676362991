use arrow::array::{DictionaryArray, Int64Array, StringArray, UInt16Array};
use arrow::datatypes::{Int8Type, TimestampMicrosecondType};
use parquet::arrow::ArrowWriter;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type, Int96, Int96Type};
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

/// Writes a file that has the lake's own columns: as a file of Polynya's lake, or of another program that uses the same
/// names.
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
    let mut fields: Vec<Field> = batch.schema().fields().iter().map(|field| field.as_ref().clone()).collect();
    if is_lakes {
        let id = ("PARQUET:field_id".to_owned(), "1".to_owned());
        fields[0] = fields[0].clone().with_metadata(HashMap::from([id]));
    }
    let schema = Arc::new(Schema::new(fields));
    written(&RecordBatch::try_new(schema, batch.columns().to_vec()).unwrap())
}

fn read(piece: &SourcePiece) -> RecordBatch {
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

/// A column `_time` was silently left out of any file.
#[test]
fn columns_of_others_are_taken_whatever_they_are_called() {
    let (_dir, path) = write(10, false);
    let renames = [("_time".to_owned(), "time".to_owned())];
    let batch = read(&Parquet::open(&path, 0, &renames).unwrap().next().unwrap().unwrap());
    let schema = batch.schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["_polynya_row_id", "time", "n", "word"]);
}

/// Impala and older versions of Spark write times as int96. Those outside the range of nanoseconds since 1970 were read
/// wrongly.
#[test]
fn int96_times_of_all_years_are_kept() {
    let message = "message m { optional int96 at; optional group many (LIST) { repeated group list {
        optional int96 element; } } optional binary word (UTF8); optional group one { optional int96 at; } }";
    let schema = Arc::new(parse_message_type(message).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    let mut writer = SerializedFileWriter::new(File::create(&path).unwrap(), schema, Arc::default()).unwrap();
    // An int96 holds the day of the Julian period and the nanoseconds of that day.
    let days = [1_721_426, 2_440_588, 5_373_484];
    let times: Vec<Int96> = days.iter().map(|day| Int96::from(vec![5_000, 0, *day])).collect();
    let micros = days.map(|day| (i64::from(day) - 2_440_588) * 86_400_000_000 + 5);
    let mut group = writer.next_row_group().unwrap();
    for nth in 0..4 {
        let mut column = group.next_column().unwrap().unwrap();
        match nth {
            0 => column.typed::<Int96Type>().write_batch(&times, Some(&[1; 3]), None),
            1 => column.typed::<Int96Type>().write_batch(&times, Some(&[3; 3]), Some(&[0; 3])),
            2 => column.typed::<ByteArrayType>().write_batch(&[], Some(&[0; 3]), None),
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
        fields[at] = with_extension(fields[at].clone(), Some(extension));
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
    let target = wire::json::DecodeTarget { table: "t", def: None, may_add_columns: true };
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
fn a_file_that_is_not_parquet_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    std::fs::write(&path, b"PAR1 and then nothing").unwrap();
    assert!(Parquet::open(&path, 0, &[]).err().unwrap().to_string().contains("not a readable Parquet file"));
}

/// Writes a file with one column of numbers inside of `groups` nested groups.
fn nested(groups: usize) -> (tempfile::TempDir, std::path::PathBuf) {
    let mut footer = vec![0x15, 2, 0x19, 0xfc];
    let mut count = groups + 1;
    while count >= 0x80 {
        footer.push(count as u8 | 0x80);
        count >>= 7;
    }
    footer.push(count as u8);
    // Each group is required, called `a` and has one field; the innermost field is a column of int32.
    footer.extend([0x35, 0, 0x18, 1, b'a', 0x15, 2, 0].repeat(groups));
    footer.extend([0x15, 2, 0x25, 0, 0x18, 1, b'a', 0]);
    // The file has no rows and no row groups.
    footer.extend([0x16, 0, 0x19, 0x0c, 0]);
    let file = [&b"PAR1"[..], &footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    std::fs::write(&path, file).unwrap();
    (dir, path)
}

/// The library that reads a footer recurses once for each nested group, and overflowed the stack of the process.
#[test]
fn ten_thousand_groups_within_groups_are_an_error_and_no_abort() {
    let (_dir, path) = nested(10);
    assert_eq!(Parquet::open(&path, 0, &[]).unwrap().next().unwrap(), None);
    for groups in [65, 10_000, 300_000] {
        let (_dir, path) = nested(groups);
        let error = Parquet::open(&path, 0, &[]).err().unwrap().to_string();
        assert!(error.contains("nests more than 64 levels deep") && error.contains("x.parquet"), "{error}");
    }
}

/// `repeated_no_annotation.parquet` has six rows of a repeated group that is not annotated as a list. Its footer says that it
/// has no rows, and the command reported "held no rows" with exit status 0.
#[test]
fn a_group_that_repeats_is_a_list_and_rows_that_are_not_counted_are_no_empty_file() {
    let message = "message user { required int32 id; optional group phones {
        repeated group phone { required int64 number; optional binary kind (UTF8); } } }";
    let schema = Arc::new(parse_message_type(message).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    let mut writer = SerializedFileWriter::new(File::create(&path).unwrap(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[1, 2, 3, 4, 5, 6], None, None).unwrap();
    column.close().unwrap();
    let (defined, repeated) = ([0, 1, 2, 2, 2, 2, 2, 2], [0, 0, 0, 0, 0, 1, 0, 1]);
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[1, 2, 3, 4, 5, 6], Some(&defined), Some(&repeated)).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let kinds: Vec<ByteArray> = ["home", "home", "mobile"].map(ByteArray::from).to_vec();
    let defined = [0, 1, 2, 3, 2, 3, 2, 3];
    column.typed::<ByteArrayType>().write_batch(&kinds, Some(&defined), Some(&repeated)).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();

    let batch = read(&Parquet::open(&path, 0, &[]).unwrap().next().unwrap().unwrap());
    let phones = batch.column(1).as_struct().column(0).as_list::<i32>();
    let counts: Vec<usize> = (0..6).map(|row| phones.value(row).len()).collect();
    assert_eq!((batch.num_rows(), counts), (6, vec![0, 0, 1, 1, 2, 2]));

    // The footer is changed to count no rows.
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(3).position(|found| found == [0x16, 12, 0x19]).unwrap();
    bytes[at + 1] = 0;
    std::fs::write(&path, bytes).unwrap();
    let error = Parquet::open(&path, 0, &[]).err().unwrap().to_string();
    assert!(error.contains("claims 0 rows, but its row groups have 6"), "{error}");
}

fn map_of(keys: Vec<&str>, values: ArrayRef, lengths: &[usize]) -> ArrayRef {
    let offsets = arrow::buffer::OffsetBuffer::from_lengths(lengths.iter().copied());
    let key = Field::new("key", Arrow::Utf8, false);
    let value = Field::new("value", values.data_type().clone(), true);
    let fields: arrow::datatypes::Fields = vec![key, value].into();
    let entries = StructArray::new(fields.clone(), vec![Arc::new(StringArray::from(keys)), values], None);
    let item = Arc::new(Field::new("entries", Arrow::Struct(fields), false));
    Arc::new(arrow::array::MapArray::new(item, offsets, entries, None, false))
}

fn maps(values: ArrayRef) -> Result<String> {
    let keys = vec!["k"; values.len()];
    let lengths = vec![1; values.len()];
    let batch = RecordBatch::try_from_iter([("m", map_of(keys, values, &lengths))]).unwrap();
    let (_dir, path) = written(&batch);
    let piece = Parquet::open(&path, 0, &[])?.next()?.unwrap();
    Ok(read(&piece).column(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>().join(" "))
}

/// Maps within maps became JSON texts within JSON texts, and bytes became hexadecimal digits, unlike in all other answers.
#[test]
fn values_of_a_map_become_json_as_in_answers() {
    use arrow::array::{BinaryArray, FixedSizeBinaryArray, Float64Array};
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(1 << 60)]));
    let inner = map_of(vec!["a", "b", "c"], numbers, &[2, 1]);
    assert_eq!(maps(inner.clone()).unwrap(), r#"{"k":{"a":1,"b":null}} {"k":{"c":1152921504606846976}}"#);
    let twice = map_of(vec!["x", "y"], inner.clone(), &[1, 1]);
    assert_eq!(maps(twice).unwrap(), r#"{"k":{"x":{"a":1,"b":null}}} {"k":{"y":{"c":1152921504606846976}}}"#);
    let item = Arc::new(Field::new("item", inner.data_type().clone(), true));
    let offsets = arrow::buffer::OffsetBuffer::from_lengths([2]);
    let lists = ListArray::try_new(item, offsets, inner.clone(), None).unwrap();
    assert_eq!(maps(Arc::new(lists)).unwrap(), r#"{"k":[{"a":1,"b":null},{"c":1152921504606846976}]}"#);
    let bytes = BinaryArray::from(vec![&b"\x00\xff"[..], b"abc"]);
    assert_eq!(maps(Arc::new(bytes)).unwrap(), r#"{"k":"AP8="} {"k":"YWJj"}"#);
    let fixed = FixedSizeBinaryArray::try_from_iter([[7u8; 16]].iter()).unwrap();
    assert_eq!(maps(Arc::new(fixed)).unwrap(), r#"{"k":"BwcHBwcHBwcHBwcHBwcHBw=="}"#);
    let texts = StringArray::from(vec!["a\"b", "{}"]);
    assert_eq!(maps(Arc::new(texts)).unwrap(), r#"{"k":"a\"b"} {"k":"{}"}"#);
    for float in [f64::NAN, f64::INFINITY] {
        let error = maps(Arc::new(Float64Array::from(vec![float]))).unwrap_err();
        assert_eq!(error.kind(), Kind::Schema);
        assert!(error.to_string().contains("column `m`: a value within a map is"), "{error}");
    }
}
