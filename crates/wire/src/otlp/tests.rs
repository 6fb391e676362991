use arrow::array::Array;
use prost::Message as _;
use types::{Kind as ErrorKind, Value};

use super::message::{AnyValue, ArrayValue, Export, KeyValue, any_value::Kind};
use super::{COLUMNS, decode_json, decode_protobuf};

const JSON: &str = r#"{"resourceLogs":[
  {"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}},
      {"key":"host.cpus","value":{"intValue":"8"}}]},
   "scopeLogs":[{"scope":{"name":"checkout","version":"1"},"logRecords":[
      {"timeUnixNano":"1767323045123456789","observedTimeUnixNano":1767323046000000000,"severityNumber":9,
       "body":{"stringValue":"paid"},"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174",
       "attributes":[{"key":"cents","value":{"intValue":250}},{"key":"ok","value":{"boolValue":true}},
          {"key":"tags","value":{"arrayValue":{"values":[{"stringValue":"a"},{"doubleValue":0.5},{}]}}},
          {"key":"raw","value":{"bytesValue":"AAE="}}],"flags":1,"unknownField":[1]},
      {"severityText":"Oops","severityNumber":17,"eventName":"e",
       "body":{"kvlistValue":{"values":[{"key":"k","value":{"intValue":"9007199254740993"}}]}}}]}]},
  {"scopeLogs":[{"logRecords":[{"observedTimeUnixNano":"1767323046000000000"}]}]}]}"#;

/// A row as texts; `-` is null.
fn shown(batch: &arrow::array::RecordBatch, row: usize) -> Vec<String> {
    let cell = |(at, (_, data_type)): (usize, &(&str, types::DataType))| match Value::from_array(
        batch.column(at),
        data_type,
        row,
    ) {
        Value::Null => "-".to_owned(),
        Value::String(text) | Value::Json(text) => text,
        Value::Int32(number) => number.to_string(),
        Value::Timestamp(time) => time.to_string(),
        other => panic!("{other:?}"),
    };
    COLUMNS.iter().enumerate().map(cell).collect()
}

#[test]
fn an_export_in_json_becomes_rows() {
    let batch = decode_json(JSON.as_bytes()).unwrap();
    let resource = r#"{"host.cpus":8,"service.name":"shop"}"#;
    let rows: Vec<Vec<String>> = (0..batch.num_rows()).map(|row| shown(&batch, row)).collect();
    let expected = [
        [
            "1767323045123456",
            "9",
            "INFO",
            "shop",
            "checkout",
            "-",
            "paid",
            r#"{"cents":250,"ok":true,"raw":"AAE=","tags":["a",0.5,null]}"#,
            resource,
            "5b8efff798038103d269b633813fc60c",
            "eee19b7ec3c1b174",
            "1767323046000000",
        ],
        [
            "-",
            "17",
            "Oops",
            "shop",
            "checkout",
            "e",
            r#"{"k":9007199254740993}"#,
            "-",
            resource,
            "-",
            "-",
            "-",
        ],
        ["1767323046000000", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "1767323046000000"],
    ];
    assert_eq!(rows, expected.map(|row| row.map(str::to_owned).to_vec()));
}

#[test]
fn protobuf_and_json_say_the_same() {
    let export = super::json::read(JSON.as_bytes()).unwrap();
    let bytes = export.encode_to_vec();
    assert_eq!(decode_protobuf(&bytes).unwrap(), decode_json(JSON.as_bytes()).unwrap());
    assert_eq!(decode_protobuf(&[]).unwrap().num_rows(), 0);
    assert_eq!(decode_json(b"{}").unwrap().num_rows(), 0);
}

#[test]
fn what_is_no_export_is_refused_and_nothing_panics() {
    for body in [
        "",
        "[]",
        "{",
        "7",
        r#"{"resourceLogs":{}}"#,
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[7]}]}]}"#,
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"soon"}]}]}]}"#,
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":-1}]}]}]}"#,
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"traceId":"xyz"}]}]}]}"#,
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"traceId":"é"}]}]}]}"#,
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":"text"}]}]}]}"#,
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":7}}]}]}]}"#,
    ] {
        let error = decode_json(body.as_bytes()).expect_err(body);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{body}");
    }
    let deep = format!("{}{}", r#"{"resourceLogs":["#.repeat(5_000), "]}".repeat(5_000));
    assert!(decode_json(deep.as_bytes()).is_err());

    let bytes = super::json::read(JSON.as_bytes()).unwrap().encode_to_vec();
    let mut refused = 0;
    for end in 0..bytes.len() {
        refused += usize::from(decode_protobuf(&bytes[..end]).is_err());
    }
    assert!(refused > bytes.len() / 2, "{refused} of {}", bytes.len());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            if let Ok(batch) = decode_protobuf(&damaged) {
                assert_eq!(batch.num_columns(), COLUMNS.len());
            }
        }
    }
}

#[test]
fn what_is_nested_too_deep_is_refused_in_protobuf_too() {
    let mut value = AnyValue { value: Some(Kind::IntValue(1)) };
    for _ in 0..200 {
        value = AnyValue { value: Some(Kind::ArrayValue(ArrayValue { values: vec![value] })) };
    }
    let mut export = super::json::read(JSON.as_bytes()).unwrap();
    let record = &mut export.resource_logs[0].scope_logs[0].log_records[0];
    record.attributes = vec![KeyValue { key: "deep".into(), value: Some(value) }];
    assert_eq!(decode_protobuf(&export.encode_to_vec()).unwrap_err().kind(), ErrorKind::Invalid);
    let empty = Export::default();
    assert!(
        decode_protobuf(&empty.encode_to_vec())
            .unwrap()
            .column(0)
            .as_any()
            .is::<arrow::array::TimestampMicrosecondArray>()
    );
}
