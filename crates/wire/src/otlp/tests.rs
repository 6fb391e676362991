use arrow::array::Array;
use prost::Message as _;
use types::{Kind as ErrorKind, Value};

use super::message::{
    AnyValue, ArrayValue, Export, KeyValue, LogRecord, Resource, ResourceLogs, Scope, ScopeLogs,
    any_value::Kind,
};
use super::{COLUMNS, Decoded, Sift, answer, decode_json, decode_protobuf, json};

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
    let batch = decode_json(JSON.as_bytes()).unwrap().rows;
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

/// The same request in Protobuf, with the first record changed.
fn in_protobuf(change: impl FnOnce(&mut LogRecord)) -> Vec<u8> {
    let mut all = json::read(JSON.as_bytes(), &mut Sift::default()).unwrap();
    change(&mut all[0].scopes[0].1[0]);
    let scope_logs = |(name, records): (String, Vec<LogRecord>)| ScopeLogs {
        scope: Some(Scope { name }),
        log_records: records.iter().map(prost::Message::encode_to_vec).collect(),
    };
    let resource_logs = all.into_iter().map(|logs| ResourceLogs {
        resource: Some(Resource { attributes: logs.resource }),
        scope_logs: logs.scopes.into_iter().map(scope_logs).collect(),
    });
    Export { resource_logs: resource_logs.collect() }.encode_to_vec()
}

/// One such record refused the whole export, which exporters do not send again.
#[test]
fn a_bad_record_does_not_keep_the_others_out() {
    let records = [
        r#"{"traceId":"5b8e","body":{"stringValue":"a"}}"#,
        "7",
        r#"{"timeUnixNano":"soon"}"#,
        r#"{"timeUnixNano":-1}"#,
        r#"{"traceId":"xyz"}"#,
        r#"{"traceId":"é"}"#,
        r#"{"body":"text"}"#,
        r#"{"body":{"stringValue":7}}"#,
        r#"{"body":{"stringValue":"b"}}"#,
    ];
    let body = format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{}]}}]}}]}}"#, records.join(","));
    let Decoded { rows, refused } = decode_json(body.as_bytes()).unwrap();
    assert_eq!((shown(&rows, 0)[6].as_str(), shown(&rows, 1)[6].as_str(), rows.num_rows()), ("a", "b", 2));
    let numbers: Vec<usize> = refused.iter().map(|refused| refused.record).collect();
    assert_eq!(numbers, [2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(refused[3].raw, records[4]);
    assert!(refused[3].reason.contains("`traceId`: hexadecimal digits"), "{}", refused[3].reason);

    let many =
        format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{}0]}}]}}]}}"#, "0,".repeat(10_000));
    let error = decode_json(many.as_bytes()).unwrap_err();
    assert!(error.message().starts_with("more than 10000 records cannot be read; record 1: "), "{error}");

    // Text that is no UTF-8, in the middle of a request.
    let broken = LogRecord { severity_text: "~~".into(), ..LogRecord::default() }.encode_to_vec();
    let broken = broken.iter().map(|byte| if *byte == b'~' { 0xff } else { *byte }).collect();
    let good = LogRecord { severity_text: "good".into(), ..LogRecord::default() }.encode_to_vec();
    let of_scope = ScopeLogs { scope: None, log_records: vec![good.clone(), broken, good] };
    let logs = ResourceLogs { resource: None, scope_logs: vec![of_scope] };
    let Decoded { rows, refused } =
        decode_protobuf(&Export { resource_logs: vec![logs] }.encode_to_vec()).unwrap();
    assert_eq!((rows.num_rows(), refused.len(), refused[0].record), (2, 1, 2));
    assert_eq!(refused[0].raw, "GgL//w==");

    assert!(answer(0, "").is_empty());
    assert_eq!(answer(2, "so"), [10, 6, 8, 2, 18, 2, b's', b'o']);
}

#[test]
fn protobuf_and_json_say_the_same() {
    let bytes = in_protobuf(|_| ());
    assert_eq!(decode_protobuf(&bytes).unwrap().rows, decode_json(JSON.as_bytes()).unwrap().rows);
    assert_eq!(decode_protobuf(&[]).unwrap().rows.num_rows(), 0);
    assert_eq!(decode_json(b"{}").unwrap().rows.num_rows(), 0);
}

#[test]
fn what_is_no_export_is_refused_and_nothing_panics() {
    for body in [
        "",
        "[]",
        "{",
        "7",
        r#"{"resourceLogs":{}}"#,
        r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":7}]}]}"#,
        r#"{"resourceLogs":[{"resource":{"attributes":[{"key":7}]}}]}"#,
    ] {
        let error = decode_json(body.as_bytes()).expect_err(body);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{body}");
    }
    let deep = format!("{}{}", r#"{"resourceLogs":["#.repeat(5_000), "]}".repeat(5_000));
    assert!(decode_json(deep.as_bytes()).is_err());

    let bytes = in_protobuf(|_| ());
    let mut refused = 0;
    for end in 0..bytes.len() {
        refused += usize::from(decode_protobuf(&bytes[..end]).is_err());
    }
    assert!(refused > bytes.len() / 2, "{refused} of {}", bytes.len());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            if let Ok(found) = decode_protobuf(&damaged) {
                assert_eq!(found.rows.num_columns(), COLUMNS.len());
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
    let bytes = in_protobuf(|record| {
        record.attributes = vec![KeyValue { key: "deep".into(), value: Some(value) }];
    });
    let Decoded { rows, refused } = decode_protobuf(&bytes).unwrap();
    assert_eq!((rows.num_rows(), refused.len()), (2, 1));
    let empty = Export::default();
    assert!(
        decode_protobuf(&empty.encode_to_vec())
            .unwrap()
            .rows
            .column(0)
            .as_any()
            .is::<arrow::array::TimestampMicrosecondArray>()
    );
}
