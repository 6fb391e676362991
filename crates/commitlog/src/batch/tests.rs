use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray,
    FixedSizeListArray, Float32Array, Float64Array, Int32Array, Int64Array, ListArray, RecordBatchOptions,
    StringArray, StructArray, TimestampMicrosecondArray, new_null_array,
};
use arrow::buffer::{MutableBuffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::Schema;
use testkit::{Rng, for_each_seed};
use types::{ColumnId, DataType as Type, Kind, TableDef};

use super::*;

/// A random type, nested at most `depth` levels.
fn random_type(rng: &mut Rng, depth: u32) -> String {
    let simple = [
        "bool",
        "int32",
        "int64",
        "float32",
        "float64",
        "decimal(38,4)",
        "decimal(5,5)",
        "string",
        "binary",
        "date",
        "timestamp",
        "uuid",
        "json",
        "vector(3)",
        "vector(1)",
        "point",
        "point3d",
    ];
    let not_null = if rng.one_in(3) { " not null" } else { "" };
    match rng.below(8) {
        0 if depth > 0 => format!("list<{}{not_null}>", random_type(rng, depth - 1)),
        1 if depth > 0 => {
            let fields =
                (0..rng.range(1..4)).map(|i| format!("f{i}: {}{not_null}", random_type(rng, depth - 1)));
            format!("struct<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        _ => (*rng.pick(&simple)).to_owned(),
    }
}

fn random_schema(rng: &mut Rng) -> SchemaRef {
    let mut def = TableDef::new(TableId(1), "main.t");
    for i in 0..rng.below(6) {
        let data_type = Type::parse(&random_type(rng, 3), &mut ColumnId(0)).unwrap();
        def.add_column(&format!("c{i}"), &data_type, rng.chance(0.7), None).unwrap();
    }
    def.schema.to_arrow_user()
}

/// Random slots of a type; nulls only if `nullable`.
fn random_array(rng: &mut Rng, data_type: &DataType, len: usize, nullable: bool) -> ArrayRef {
    let nulls = match rng.below(4) {
        _ if !nullable => None,
        0 => None,
        1 if len > 0 => Some(NullBuffer::new_null(len)),
        _ => Some(NullBuffer::from((0..len).map(|_| rng.one_in(2)).collect::<Vec<bool>>())),
    };
    let bytes = |rng: &mut Rng| {
        let len = rng.index(9);
        rng.bytes(len)
    };
    let starts =
        |rng: &mut Rng| OffsetBuffer::<i32>::from_lengths((0..len).map(|_| rng.index(4)).collect::<Vec<_>>());
    match data_type {
        DataType::Boolean => Arc::new(BooleanArray::new((0..len).map(|_| rng.one_in(2)).collect(), nulls)),
        DataType::Int32 => {
            Arc::new(Int32Array::new((0..len).map(|_| rng.next_u64() as i32).collect(), nulls))
        }
        DataType::Int64 => {
            Arc::new(Int64Array::new((0..len).map(|_| rng.next_u64() as i64).collect(), nulls))
        }
        DataType::Float32 => {
            Arc::new(Float32Array::new((0..len).map(|_| rng.unit() as f32).collect(), nulls))
        }
        DataType::Float64 => Arc::new(Float64Array::new((0..len).map(|_| rng.unit()).collect(), nulls)),
        DataType::Decimal128(p, s) => {
            let values = (0..len).map(|_| i128::from(rng.below(99_999))).collect();
            Arc::new(Decimal128Array::new(values, nulls).with_precision_and_scale(*p, *s).unwrap())
        }
        DataType::Utf8 => {
            let values: Vec<String> = (0..len).map(|_| "é水x".repeat(rng.index(4))).collect();
            let array = StringArray::from_iter_values(values);
            Arc::new(StringArray::new(array.offsets().clone(), array.values().clone(), nulls))
        }
        DataType::Binary => {
            let array = BinaryArray::from_iter_values((0..len).map(|_| bytes(rng)));
            Arc::new(BinaryArray::new(array.offsets().clone(), array.values().clone(), nulls))
        }
        DataType::Date32 => {
            Arc::new(Date32Array::new((0..len).map(|_| rng.next_u64() as i32).collect(), nulls))
        }
        DataType::Timestamp(..) => {
            let values = (0..len).map(|_| rng.next_u64() as i64).collect();
            Arc::new(TimestampMicrosecondArray::new(values, nulls).with_timezone("UTC"))
        }
        DataType::FixedSizeBinary(16) => {
            Arc::new(FixedSizeBinaryArray::new(16, Buffer::from(rng.bytes(len * 16)), nulls))
        }
        DataType::List(item) => {
            let offsets = starts(rng);
            let values = random_array(rng, item.data_type(), offsets[len] as usize, item.is_nullable());
            Arc::new(ListArray::new(Arc::clone(item), offsets, values, nulls))
        }
        DataType::Struct(fields) => {
            let columns =
                fields.iter().map(|f| random_array(rng, f.data_type(), len, f.is_nullable())).collect();
            Arc::new(StructArray::new(fields.clone(), columns, nulls))
        }
        DataType::FixedSizeList(item, size) => {
            let values = random_array(rng, item.data_type(), len * *size as usize, item.is_nullable());
            Arc::new(FixedSizeListArray::new(Arc::clone(item), *size, values, nulls))
        }
        other => panic!("no random {other}"),
    }
}

fn random_batch(rng: &mut Rng, schema: &SchemaRef) -> RecordBatch {
    let rows = if rng.one_in(8) { 0 } else { rng.index(70) };
    let columns = schema.fields().iter().map(|f| random_array(rng, f.data_type(), rows, f.is_nullable()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns.collect(), &options).unwrap()
}

/// Copies bytes into aligned memory, like that into which a frame is read.
fn aligned(bytes: &[u8]) -> Buffer {
    let mut buffer = MutableBuffer::with_capacity(bytes.len());
    buffer.extend_from_slice(bytes);
    buffer.into()
}

#[test]
fn every_batch_of_every_type_comes_back_equal_also_when_it_is_a_slice() {
    let _limit = testkit::limit(120);
    for_each_seed(400, |seed| {
        let mut rng = Rng::new(seed);
        let schema = random_schema(&mut rng);
        let whole = random_batch(&mut rng, &schema);
        let start = rng.index(whole.num_rows() + 1);
        let len = rng.index(whole.num_rows() - start + 1);
        for batch in [whole.clone(), whole.slice(start, len)] {
            let bytes = encode(&batch).unwrap();
            let decoded = decode(&aligned(&bytes)).unwrap();
            assert_eq!(decoded.schema(), batch.schema());
            assert_eq!(decoded, batch);
            for column in decoded.columns() {
                column.to_data().validate_full().unwrap();
            }
            assert_eq!(encode(&decoded).unwrap(), bytes, "what was decoded is in normal form");
            // The bytes may have any alignment.
            let mut shifted = vec![0u8; 3];
            shifted.extend_from_slice(&bytes);
            assert_eq!(decode(&aligned(&shifted).slice(3)).unwrap(), batch);
        }
    });
}

#[test]
fn a_slice_is_stored_without_the_rows_around_it() {
    let text = StringArray::from_iter_values((0..10_000).map(|i| format!("row {i}")));
    let numbers = Int64Array::from_iter_values(0..10_000);
    let columns: Vec<(&str, ArrayRef)> = vec![("t", Arc::new(text)), ("n", Arc::new(numbers))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let bytes = encode(&batch.slice(5000, 2)).unwrap();
    assert!(bytes.len() < 100, "{} bytes for two rows", bytes.len());
}

#[test]
fn a_column_of_nulls_takes_one_byte_and_no_child_of_a_vector_becomes_null() {
    let data_type = Type::Vector(384).to_arrow();
    let schema = Arc::new(Schema::new(vec![
        arrow::datatypes::Field::new("v", data_type.clone(), true),
        arrow::datatypes::Field::new("s", DataType::Utf8, true),
    ]));
    let vectors = null::array(&data_type, 1000).unwrap();
    let columns = vec![vectors, new_null_array(&DataType::Utf8, 1000)];
    let batch = RecordBatch::try_new(schema, columns).unwrap();
    let bytes = encode(&batch).unwrap();
    assert!(bytes.len() < 40, "{} bytes", bytes.len());
    let decoded = decode(&aligned(&bytes)).unwrap();
    assert_eq!(decoded, batch);
    let data = decoded.column(0).to_data();
    assert_eq!(data.child_data()[0].null_count(), 0);
}

#[test]
fn few_bytes_cannot_ask_for_much_memory() {
    let field = arrow::datatypes::Field::new("v", Type::Vector(65_536).to_arrow(), true);
    let mut e = types::codec::Encoder::new();
    e.varint(1 << 30);
    e.blob(&schema::encode(&Schema::new(vec![field])).unwrap());
    e.blob(&[ALL_NULL]);
    assert_eq!(decode(&aligned(&e.bytes)).unwrap_err().kind(), Kind::Damaged);
}

#[test]
fn damaged_bytes_are_refused_or_give_some_batch_but_never_panic() {
    let _limit = testkit::limit(120);
    for_each_seed(60, |seed| {
        let mut rng = Rng::new(seed);
        let schema = random_schema(&mut rng);
        let bytes = encode(&random_batch(&mut rng, &schema)).unwrap();
        for cut in 0..bytes.len() {
            assert!(decode(&aligned(&bytes[..cut])).is_err(), "cut at {cut}");
        }
        for _ in 0..300 {
            let mut bad = bytes.clone();
            for _ in 0..rng.range(1..4) {
                let at = rng.index(bad.len());
                bad[at] = rng.next_u64() as u8;
            }
            if let Ok(batch) = decode(&aligned(&bad)) {
                for column in batch.columns() {
                    column.to_data().validate_full().unwrap();
                }
            }
        }
    });
}

#[test]
fn a_type_that_no_column_can_have_is_refused_by_name() {
    let column: ArrayRef = Arc::new(arrow::array::UInt8Array::from(vec![1]));
    let batch = RecordBatch::try_from_iter([("small", column)]).unwrap();
    let error = encode(&batch).unwrap_err();
    assert_eq!(error.kind(), Kind::Internal);
    assert!(error.to_string().contains("UInt8") && error.to_string().contains("small"), "{error}");
}

#[test]
fn a_schema_is_encoded_once_and_decoded_once_as_long_as_it_does_not_change() {
    let schema = random_schema(&mut Rng::new(3));
    let mut writer = SchemaWriter::default();
    let first = writer.encoded(TableId(1), SchemaVersion(1), &schema).unwrap();
    let second = writer.encoded(TableId(1), SchemaVersion(1), &Arc::new(schema.as_ref().clone())).unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    let other = Arc::new(Schema::new(vec![arrow::datatypes::Field::new("x", DataType::Int64, true)]));
    assert_ne!(writer.encoded(TableId(1), SchemaVersion(2), &other).unwrap(), first);
    let mut reader = SchemaReader::default();
    let one = reader.decoded(TableId(1), &first).unwrap();
    assert!(Arc::ptr_eq(&one, &reader.decoded(TableId(1), &first).unwrap()));
    assert_eq!(one, schema);
}

#[test]
fn no_batch_gets_longer_than_was_told_beforehand_not_even_when_joined_with_others() {
    for_each_seed(400, |seed| {
        let mut rng = Rng::new(seed);
        let schema = random_schema(&mut rng);
        let whole = random_batch(&mut rng, &schema);
        let start = rng.index(whole.num_rows() + 1);
        let part = whole.slice(start, rng.index(whole.num_rows() - start + 1));
        let other = random_batch(&mut rng, &schema);
        let (told, others) = (bytes_max(&part), bytes_max(&other));
        assert!(encode(&part).unwrap().len() as u64 <= told, "seed {seed}");
        if schema.fields().is_empty() {
            return;
        }
        let joined = arrow::compute::concat_batches(&schema, [&part, &other]).unwrap();
        assert!(encode(&joined).unwrap().len() as u64 <= told + others, "seed {seed}, joined");
        assert!(bytes_max(&joined) <= told + others, "seed {seed}: a bound of the whole");
    });
}
