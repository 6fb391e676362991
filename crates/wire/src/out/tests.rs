use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Date64Array, DictionaryArray, Float32Array, Float64Array, Int64Array, NullArray,
    StringArray, StringViewArray, Time64MicrosecondArray, TimestampNanosecondArray, UInt64Array,
};
use arrow::datatypes::{Int8Type, Schema};
use types::{ColumnId, DataType, TableDef, TableId};

use super::*;

fn written(format: Format, batch: &RecordBatch) -> String {
    let mut out = Vec::new();
    let mut writer = Writer::new(format, &batch.schema()).unwrap();
    writer.begin(&mut out);
    writer.batch(batch, &mut out).unwrap();
    writer.end(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn one(array: impl Array + 'static) -> RecordBatch {
    RecordBatch::try_from_iter([("c", Arc::new(array) as ArrayRef)]).unwrap()
}

#[test]
fn what_javascript_would_round_is_a_string() {
    let ints = Int64Array::from(vec![
        Some(9_007_199_254_740_992),
        Some(9_007_199_254_740_993),
        Some(i64::MIN),
        None,
    ]);
    assert_eq!(
        written(Format::Ndjson, &one(ints)),
        "{\"c\":9007199254740992}\n{\"c\":\"9007199254740993\"}\n{\"c\":\"-9223372036854775808\"}\n{\"c\":null}\n"
    );
    assert_eq!(
        written(Format::Ndjson, &one(UInt64Array::from(vec![u64::MAX]))),
        "{\"c\":\"18446744073709551615\"}\n"
    );
}

#[test]
fn floats_read_back_equal_and_nan_is_null() {
    let floats = [0.1, 1e300, 5e-324, -0.0, 1.0 / 3.0, f64::NAN, f64::INFINITY];
    let text = written(Format::Ndjson, &one(Float64Array::from(floats.to_vec())));
    for (line, float) in text.lines().zip(floats) {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(row["c"].as_f64().map(f64::to_bits), float.is_finite().then(|| float.to_bits()), "{line}");
    }
    assert_eq!(written(Format::Ndjson, &one(Float32Array::from(vec![0.1]))), "{\"c\":0.1}\n");
}

#[test]
fn foreign_arrow_types_have_a_form() {
    let dictionary: DictionaryArray<Int8Type> = vec![Some("a"), None, Some("a")].into_iter().collect();
    assert_eq!(written(Format::Ndjson, &one(dictionary)), "{\"c\":\"a\"}\n{\"c\":null}\n{\"c\":\"a\"}\n");
    assert_eq!(written(Format::Ndjson, &one(StringViewArray::from(vec!["x\"\n"]))), "{\"c\":\"x\\\"\\n\"}\n");
    assert_eq!(
        written(Format::Ndjson, &one(TimestampNanosecondArray::from(vec![-1]))),
        "{\"c\":\"1969-12-31T23:59:59.999999\"}\n"
    );
    assert_eq!(written(Format::Ndjson, &one(NullArray::new(1))), "{\"c\":null}\n");
    assert_eq!(
        written(Format::Ndjson, &one(Date64Array::from(vec![86_400_000]))),
        "{\"c\":\"1970-01-02\"}\n"
    );
    let time = written(Format::Ndjson, &one(Time64MicrosecondArray::from(vec![3_600_000_001])));
    assert_eq!(time, "{\"c\":\"01:00:00.000001\"}\n");
}

#[test]
fn csv_tells_null_from_empty() {
    let batch = RecordBatch::try_from_iter([
        (
            "a,b",
            Arc::new(StringArray::from(vec![Some("x"), None, Some(""), Some("q\"u\r\no,te")])) as ArrayRef,
        ),
        ("n", Arc::new(Int64Array::from(vec![Some(1), None, Some(3), Some(i64::MAX)])) as ArrayRef),
    ])
    .unwrap();
    assert_eq!(
        written(Format::Csv, &batch),
        "\"a,b\",n\r\nx,1\r\n,\r\n\"\",3\r\n\"q\"\"u\r\no,te\",9223372036854775807\r\n"
    );
}

#[test]
fn a_json_column_that_holds_no_json_does_not_break_the_answer() {
    let mut def = TableDef::new(TableId(1), "main.t");
    def.add_column("j", &DataType::parse("json", &mut ColumnId(0)).unwrap(), true, None).unwrap();
    let schema = def.schema.to_arrow_user();
    let array = StringArray::from(vec![Some("{\"a\":\n1}"), Some("}{"), Some(""), None]);
    let batch = RecordBatch::try_new(schema, vec![Arc::new(array)]).unwrap();
    assert_eq!(
        written(Format::Ndjson, &batch),
        "{\"j\":{\"a\": 1}}\n{\"j\":\"}{\"}\n{\"j\":\"\"}\n{\"j\":null}\n"
    );
}

#[test]
fn an_arrow_stream_is_read_back_by_arrow() {
    let batch = one(Int64Array::from(vec![1, 2, 3]));
    let mut out = Vec::new();
    let mut writer = Writer::new(Format::ArrowStream, &batch.schema()).unwrap();
    writer.begin(&mut out);
    writer.batch(&batch, &mut out).unwrap();
    writer.batch(&batch, &mut out).unwrap();
    writer.end(&mut out).unwrap();
    let back: Vec<_> =
        arrow::ipc::reader::StreamReader::try_new(&out[..], None).unwrap().map(Result::unwrap).collect();
    assert_eq!(back, [batch.clone(), batch]);
}

#[test]
fn accept_chooses_by_quality_then_order() {
    for (accept, format) in [
        (None, Some(Format::Json)),
        (Some("*/*"), Some(Format::Json)),
        (Some("text/csv;q=0.5, application/x-ndjson"), Some(Format::Ndjson)),
        (Some("image/png, application/vnd.apache.arrow.stream;q=0.1"), Some(Format::ArrowStream)),
        (Some("text/csv;q=0"), None),
        (Some("image/png"), None),
    ] {
        assert_eq!(Format::negotiate(accept), format, "{accept:?}");
    }
}

#[test]
fn types_have_our_names() {
    let schema = Schema::new(vec![
        Field::new("a", Arrow::Utf8View, true),
        Field::new("b", Arrow::List(Arc::new(Field::new("item", Arrow::Int64, true))), true),
    ]);
    assert_eq!(schema.fields().iter().map(|f| type_name(f)).collect::<Vec<_>>(), ["string", "list<int64>"]);
}
