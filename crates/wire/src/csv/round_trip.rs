//! Writes random rows of every type as CSV and reads them back, in tables of one and of several columns.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::Schema;
use proptest::prelude::*;
use types::{Column, ColumnId, DataType, TableDef, TableId, Value};

use crate::pieces::{Pieces, StreamFormat};
use crate::{DecodeTarget, Limits, out};

const TYPES: [&str; 14] = [
    "bool",
    "int32",
    "int64",
    "float32",
    "float64",
    "decimal(10,3)",
    "string",
    "binary",
    "date",
    "timestamp",
    "uuid",
    "json",
    "list<string>",
    "struct<a: int64, b: string>",
];

fn data_type(text: &str) -> DataType {
    DataType::parse(text, &mut ColumnId(0)).unwrap()
}

fn texts() -> impl Strategy<Value = String> {
    let special =
        prop::sample::select(vec!["", " ", "\"", ",", "\n", "\r\n", "\r", "null", "NaN", "\u{feff}", "é"]);
    prop::collection::vec(prop_oneof![special.prop_map(str::to_owned), "[a-z0-9 ]{0,3}"], 0..4)
        .prop_map(|parts| parts.concat())
}

/// Generates a value of the type, sometimes null.
fn value(of: &'static str) -> BoxedStrategy<Value> {
    let some = match of {
        "bool" => any::<bool>().prop_map(Value::Bool).boxed(),
        "int32" => any::<i32>().prop_map(Value::Int32).boxed(),
        "int64" => any::<i64>().prop_map(Value::Int64).boxed(),
        "float32" => prop_oneof![any::<f32>(), Just(f32::NAN), Just(f32::INFINITY), Just(f32::NEG_INFINITY)]
            .prop_map(Value::Float32)
            .boxed(),
        "float64" => prop_oneof![any::<f64>(), Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY)]
            .prop_map(Value::Float64)
            .boxed(),
        "decimal(10,3)" => (-9_999_999_999i128..=9_999_999_999).prop_map(Value::Decimal).boxed(),
        "string" => texts().prop_map(Value::String).boxed(),
        "binary" => prop::collection::vec(any::<u8>(), 0..5).prop_map(Value::Binary).boxed(),
        "date" => (-719_162..=2_932_896i32).prop_map(Value::Date).boxed(),
        "timestamp" => {
            (-62_135_596_800_000_000..=253_402_300_799_999_999i64).prop_map(Value::Timestamp).boxed()
        }
        "uuid" => any::<[u8; 16]>().prop_map(Value::Uuid).boxed(),
        "json" => {
            let json =
                prop::sample::select(vec!["1", "\"a\"", "\"\"", "[1,\"x, y\"]", "{\"a\": null}", "true"]);
            json.prop_map(|json| Value::Json(json.to_owned())).boxed()
        }
        "list<string>" => {
            let item = prop_oneof![texts().prop_map(Value::String), Just(Value::Null)];
            prop::collection::vec(item, 0..3).prop_map(Value::List).boxed()
        }
        _ => (any::<i64>(), texts())
            .prop_map(|(a, b)| Value::Struct(vec![Value::Int64(a), Value::String(b)]))
            .boxed(),
    };
    prop_oneof![3 => some, 1 => Just(Value::Null)].boxed()
}

/// Generates columns: the type and the values of each.
fn table() -> impl Strategy<Value = Vec<(&'static str, Vec<Value>)>> {
    let width = prop_oneof![Just(1usize), 1..5usize];
    (width, 0..6usize).prop_flat_map(|(width, rows)| {
        let column = prop::sample::select(TYPES.to_vec())
            .prop_flat_map(move |of| (Just(of), prop::collection::vec(value(of), rows)));
        prop::collection::vec(column, width)
    })
}

fn batch_of(def: &TableDef, columns: &[(&'static str, Vec<Value>)]) -> RecordBatch {
    let array = |(column, (_, values)): (&Column, &(&str, Vec<Value>))| {
        Value::to_array(values, &column.data_type).unwrap()
    };
    let arrays = def.schema.columns.iter().zip(columns).map(array).collect();
    RecordBatch::try_new(def.schema.to_arrow_user(), arrays).unwrap()
}

/// Formats the values as text, since a NaN does not equal itself.
fn values(def: &TableDef, batch: &RecordBatch) -> Vec<Vec<String>> {
    let column = |(column, array): (&Column, &ArrayRef)| {
        let value = |row| format!("{:?}", Value::from_array(array, &column.data_type, row));
        (0..array.len()).map(value).collect()
    };
    def.schema.columns.iter().zip(batch.columns()).map(column).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_that_are_written_are_read_again(columns in table()) {
        let mut def = TableDef::new(TableId(1), "main.t");
        for (at, (of, _)) in columns.iter().enumerate() {
            def.add_column(&format!("c{at}"), &data_type(of), true, None).unwrap();
        }
        let batch = batch_of(&def, &columns);
        let mut csv = Vec::new();
        let mut writer = out::Writer::new(out::Format::Csv, &batch.schema()).unwrap();
        writer.begin(&mut csv);
        writer.batch(&batch, &mut csv).unwrap();
        let shown = String::from_utf8_lossy(&csv).into_owned();
        let target = DecodeTarget { table: "t", def: Some(&def), may_add_columns: false };
        let whole = crate::csv::decode(&csv, target, &Limits::default()).unwrap().batch;
        prop_assert_eq!(values(&def, &whole), values(&def, &batch), "{:?}", shown);

        // The same rows must come from a stream that is cut into pieces of a few bytes.
        let piece = Pieces::new(StreamFormat::Csv, &csv[..]).next().unwrap();
        let mut parts = Vec::new();
        for part in piece.into_iter().flat_map(|piece| piece.divided(StreamFormat::Csv).unwrap()) {
            parts.push(crate::csv::decode(&part.body, target, &Limits::default()).unwrap().batch);
        }
        let schema = parts.first().map_or(Arc::new(Schema::empty()), |part| part.schema());
        let joined = arrow::compute::concat_batches(&schema, &parts).unwrap();
        prop_assert_eq!(joined.num_rows(), batch.num_rows(), "{:?}", shown);
        if joined.num_rows() > 0 {
            prop_assert_eq!(values(&def, &joined), values(&def, &batch), "{:?}", shown);
        }
    }
}
