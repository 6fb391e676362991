use std::path::Path;

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use sim::SimEnv;
use types::{ColumnId, DataType, TableDef, TableId, Value};

use super::*;

/// Writes values of one column and returns its bounds and number of nulls.
fn bounds_of(data_type: &str, values: &[Value]) -> (Option<Vec<u8>>, Option<Vec<u8>>, Option<i64>) {
    let metrics = metrics_of(data_type, values);
    (of(&metrics.lower, 16), of(&metrics.upper, 16), of(&metrics.nulls, 16))
}

fn of<T: Clone>(told: &[(i32, T)], column: i32) -> Option<T> {
    told.iter().find(|(id, _)| *id == column).map(|(_, told)| told.clone())
}

fn metrics_of(data_type: &str, values: &[Value]) -> Metrics {
    let mut def = TableDef::new(TableId(1), "main.t");
    let data_type = DataType::parse(data_type, &mut ColumnId(0)).unwrap();
    def.add_column("c", &data_type, true, None).unwrap();
    let columns = Columns::of(&Arc::new(def)).unwrap();
    let ids: Vec<Value> = (1..=values.len() as i64).map(Value::Int64).collect();
    let times: Vec<Value> = ids.iter().map(|_| Value::Timestamp(0)).collect();
    let arrays = vec![
        Value::to_array(&ids, &DataType::Int64).unwrap(),
        Value::to_array(&times, &DataType::Timestamp).unwrap(),
        Value::to_array(values, &columns.def.schema.columns[0].data_type).unwrap(),
    ];
    let batch = RecordBatch::try_new(columns.arrow.clone(), arrays).unwrap();
    let machine = SimEnv::new(1);
    let mut writer =
        Writer::create(&crate::Store::local(&machine.env()), Path::new("f").into(), &columns, 10, &batch)
            .unwrap();
    writer.push(&batch).unwrap();
    let written = writer.finish("f".into(), FilePartition::default(), None).unwrap();
    assert_eq!(written.file.rows, values.len() as u64);
    assert_eq!(written.row_ids.as_ref().unwrap().rows(), values.len() as u64);
    let found = crate::files::read(&machine.env(), Path::new("f")).unwrap();
    assert_eq!(found.len() as u64, written.file.bytes);
    assert_eq!(RowIds::of_file(found).unwrap(), written.row_ids.map(|ids| (*ids).clone()));
    written.file.metrics
}

#[test]
fn bounds_are_written_as_iceberg_writes_single_values() {
    let (lower, upper, nulls) = bounds_of("int64", &[Value::Int64(-5), Value::Null, Value::Int64(300)]);
    assert_eq!(
        (lower.unwrap(), upper.unwrap(), nulls),
        ((-5i64).to_le_bytes().into(), 300i64.to_le_bytes().into(), Some(1))
    );
    let (lower, upper, _) = bounds_of("int32", &[Value::Int32(-5), Value::Int32(7)]);
    assert_eq!(
        (lower.unwrap(), upper.unwrap()),
        ((-5i32).to_le_bytes().to_vec(), 7i32.to_le_bytes().to_vec())
    );
    let (lower, upper, _) = bounds_of("bool", &[Value::Bool(true), Value::Bool(false)]);
    assert_eq!((lower.unwrap(), upper.unwrap()), (vec![0], vec![1]));
    let (lower, upper, _) = bounds_of("float64", &[Value::Float64(1.5), Value::Float64(-2.0)]);
    assert_eq!(
        (lower.unwrap(), upper.unwrap()),
        ((-2.0f64).to_le_bytes().to_vec(), 1.5f64.to_le_bytes().to_vec())
    );
    // Decimals are big-endian with the fewest bytes, whatever their physical type; large ones have 16 bytes.
    for digits in [9, 18, 19, 38] {
        let decimals = [Value::Decimal(-129), Value::Decimal(200), Value::Decimal(0)];
        let (lower, upper, _) = bounds_of(&format!("decimal({digits},2)"), &decimals);
        let expected = match digits {
            ..=18 => (vec![0xff, 0x7f], vec![0x00, 0xc8]),
            _ => ((-129i128).to_be_bytes().to_vec(), 200i128.to_be_bytes().to_vec()),
        };
        assert_eq!((lower.unwrap(), upper.unwrap()), expected, "{digits}");
    }
    let (lower, upper, _) = bounds_of("uuid", &[Value::Uuid([9; 16]), Value::Uuid([0x80; 16])]);
    assert_eq!((lower.unwrap(), upper.unwrap()), (vec![9; 16], vec![0x80; 16]));
    let (lower, upper, _) = bounds_of("date", &[Value::Date(-1), Value::Date(20_000)]);
    assert_eq!(
        (lower.unwrap(), upper.unwrap()),
        ((-1i32).to_le_bytes().to_vec(), 20_000i32.to_le_bytes().to_vec())
    );
}

#[test]
fn long_texts_have_short_bounds_that_still_bound() {
    let text = |text: &str| Value::String(text.into());
    let (least, most) = ("Bär, der sehr lange schläft", "z, und noch viel mehr davon");
    let (lower, upper, _) = bounds_of("string", &[text(most), text(least), text("m")]);
    let (lower, upper) = (lower.unwrap(), upper.unwrap());
    assert!(lower.len() <= BOUND_BYTES && upper.len() <= BOUND_BYTES);
    assert!(lower.as_slice() <= least.as_bytes() && upper.as_slice() >= most.as_bytes());
    assert!(std::str::from_utf8(&lower).is_ok() && std::str::from_utf8(&upper).is_ok());
}

#[test]
fn nothing_but_nulls_or_nans_has_no_bounds() {
    let (lower, upper, nulls) = bounds_of("int64", &[Value::Null, Value::Null]);
    assert_eq!((lower, upper, nulls), (None, None, Some(2)));
    let (lower, upper, _) = bounds_of("float64", &[Value::Float64(f64::NAN)]);
    assert_eq!((lower, upper), (None, None));
}

#[test]
fn texts_without_a_successor_are_bounded_in_full_or_not_at_all() {
    let all = |count: usize| Value::String("\u{10ffff}".repeat(count));
    let (lower, upper, _) = bounds_of("string", &[all(20)]);
    assert_eq!(upper.unwrap(), "\u{10ffff}".repeat(20).into_bytes());
    assert!(lower.unwrap().len() <= BOUND_BYTES);
    assert_eq!(bounds_of("string", &[all(40)]).1, None);
    assert_eq!(bounds_of("binary", &[Value::Binary(vec![0xff; 200])]).1, None);
}

#[test]
fn nans_are_counted_and_bound_nothing() {
    let metrics = metrics_of("float64", &[1.0, f64::NAN, -0.0, f64::NAN].map(Value::Float64));
    assert_eq!(of(&metrics.nans, 16), Some(2));
    assert_eq!(of(&metrics.upper, 16), Some(1.0f64.to_le_bytes().to_vec()));
    assert_eq!(of(&metrics.lower, 16), Some((-0.0f64).to_le_bytes().to_vec()));
    let metrics = metrics_of("float32", &[Value::Float32(f32::NAN), Value::Null]);
    assert_eq!((of(&metrics.nans, 16), of(&metrics.nulls, 16)), (Some(1), Some(1)));
    assert_eq!((of(&metrics.lower, 16), of(&metrics.upper, 16)), (None, None));
    assert_eq!(of(&metrics_of("int32", &[Value::Int32(1)]).nans, 16), None);
}

#[test]
fn fields_of_structs_are_told_of_like_columns() {
    let row = |place: Option<[f64; 2]>, n: Option<i32>| {
        let place = place.map_or(Value::Null, Value::Point);
        Value::Struct(vec![place, n.map_or(Value::Null, Value::Int32)])
    };
    let rows =
        [row(Some([7.5, f64::NAN]), Some(3)), Value::Null, row(None, Some(-4)), row(Some([-1.0, 2.0]), None)];
    let metrics = metrics_of("struct<at: point, n: int32>", &rows);
    // The fields of the struct have ids 17 and 18; those of the point in it derive from 17.
    let lon = (1 << 29) + 4 * 17;
    assert_eq!(of(&metrics.lower, lon), Some((-1.0f64).to_le_bytes().to_vec()));
    assert_eq!(of(&metrics.upper, lon), Some(7.5f64.to_le_bytes().to_vec()));
    assert_eq!((of(&metrics.nulls, lon), of(&metrics.values, lon)), (Some(2), Some(4)));
    assert_eq!((of(&metrics.nans, lon), of(&metrics.nans, lon + 1)), (Some(0), Some(1)));
    assert_eq!(of(&metrics.lower, 18), Some((-4i32).to_le_bytes().to_vec()));
    assert_eq!(
        (of(&metrics.upper, 18), of(&metrics.nulls, 18)),
        (Some(3i32.to_le_bytes().to_vec()), Some(2))
    );
}

/// Readers of few rows decode little: a file has pages, an index of them, and bloom filters over the key if it is large.
#[test]
fn a_large_file_has_pages_an_index_and_filters() {
    let mut def = TableDef::new(TableId(1), "main.t");
    def.add_column("k", &DataType::String, false, None).unwrap();
    def.add_column("n", &DataType::Int64, true, None).unwrap();
    def.set_primary_key(&["k".into()]).unwrap();
    let columns = Columns::of(&Arc::new(def)).unwrap();
    let machine = SimEnv::new(1);
    let write = |rows: i64| {
        let path = Path::new("f").join(rows.to_string());
        machine.env().disk.create_dir_all(Path::new("f")).unwrap();
        let (store, mut writer) = (crate::Store::local(&machine.env()), None);
        for first in (0..rows).step_by(8_192) {
            let ids = first..rows.min(first + 8_192);
            let array = |of: &dyn Fn(i64) -> Value, data_type| {
                Value::to_array(&ids.clone().map(of).collect::<Vec<_>>(), &data_type).unwrap()
            };
            let arrays = vec![
                array(&Value::Int64, DataType::Int64),
                array(&Value::Timestamp, DataType::Timestamp),
                array(&|n| Value::String(format!("key {n}")), DataType::String),
                array(&|n| Value::Int64(n * 7 % 1_000), DataType::Int64),
            ];
            let batch = RecordBatch::try_new(columns.arrow.clone(), arrays).unwrap();
            let writer = writer.get_or_insert_with(|| {
                Writer::create(&store, path.clone(), &columns, rows as u64, &batch).unwrap()
            });
            writer.push(&batch).unwrap();
        }
        writer.unwrap().finish("f".into(), FilePartition::default(), None).unwrap();
        let options = parquet::arrow::arrow_reader::ArrowReaderOptions::new()
            .with_page_index_policy(parquet::file::metadata::PageIndexPolicy::Required);
        let bytes = crate::files::read(&machine.env(), &path).unwrap();
        ParquetRecordBatchReaderBuilder::try_new_with_options(bytes, options).unwrap()
    };
    let large = write(100_000);
    assert_eq!(large.metadata().num_row_groups(), 1);
    let pages = large.metadata().offset_index().unwrap()[0][0].page_locations().len();
    assert!((6..20).contains(&pages), "{pages} pages");
    assert!(large.metadata().column_index().is_some());
    let filter = large.get_row_group_column_bloom_filter(0, 2).unwrap().unwrap();
    assert!((0..100_000).all(|n| filter.check(format!("key {n}").as_str())));
    let faults = (0..10_000).filter(|n| filter.check(format!("none {n}").as_str())).count();
    assert!(faults < 600, "{faults} of 10,000 seem to be there");
    assert!(large.get_row_group_column_bloom_filter(0, 3).unwrap().is_none());
    let small = write(1_000);
    assert!(small.get_row_group_column_bloom_filter(0, 2).unwrap().is_none());
}

/// Times of events once went through a dictionary, row by row.
#[test]
fn what_grows_from_row_to_row_is_written_as_differences() {
    let mut def = TableDef::new(TableId(1), "main.t");
    for name in ["times", "few", "back", "nulls"] {
        def.add_column(name, &DataType::Int64, true, None).unwrap();
    }
    let columns = Columns::of(&Arc::new(def)).unwrap();
    let array = |of: &dyn Fn(i64) -> Value, data_type| {
        Value::to_array(&(0..2_000).map(of).collect::<Vec<_>>(), &data_type).unwrap()
    };
    let batch = RecordBatch::try_new(
        columns.arrow.clone(),
        vec![
            array(&Value::Int64, DataType::Int64),
            array(&Value::Timestamp, DataType::Timestamp),
            // Some values come late.
            array(&|n| Value::Int64(n / 100 - i64::from(n % 40 == 0)), DataType::Int64),
            array(&|n| Value::Int64(n % 7), DataType::Int64),
            array(&|n| Value::Int64(-n), DataType::Int64),
            array(&|n| if n == 5 { Value::Null } else { Value::Int64(n) }, DataType::Int64),
        ],
    )
    .unwrap();
    assert_eq!(growing(&batch), ["times"]);
    let machine = SimEnv::new(1);
    let store = crate::Store::local(&machine.env());
    let mut writer = Writer::create(&store, Path::new("f").into(), &columns, 2_000, &batch).unwrap();
    writer.push(&batch).unwrap();
    writer.finish("f".into(), FilePartition::default(), None).unwrap();
    let bytes = crate::files::read(&machine.env(), Path::new("f")).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
    let encodings: Vec<bool> = reader
        .metadata()
        .row_group(0)
        .columns()
        .iter()
        .map(|column| column.encodings().any(|encoding| encoding == Encoding::DELTA_BINARY_PACKED))
        .collect();
    assert_eq!(encodings, [true, true, true, false, false, false]);
    assert_eq!(reader.build().unwrap().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 2_000);
}
