use arrow::array::Array;
use prost::Message as _;
use serde_json::Value as Json;
use types::{Kind as ErrorKind, Result, Value};

use super::json::{key_value, list, log_record};
use super::message::{
    AnyValue, ArrayValue, KeyValue, KeyValueList, LogRecord, Resource, Scope, any_value::Kind,
};
use super::{COLUMNS, DecodedLogs, MANY_VALUES, RECORD_BYTES_MAX, RECORD_VALUES_MAX, answer};
use crate::{Limits, RAW_BYTES_MAX};

#[derive(Clone, PartialEq, prost::Message)]
struct Export {
    #[prost(message, repeated, tag = "1")]
    resource_logs: Vec<ResourceLogs>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResourceLogs {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_logs: Vec<ScopeLogs>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ScopeLogs {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    log_records: Vec<Vec<u8>>,
}

fn decode_json(body: &[u8]) -> Result<DecodedLogs> {
    super::decode_json(body, &Limits::default())
}

fn decode_protobuf(body: &[u8]) -> Result<DecodedLogs> {
    super::decode_protobuf(body, &Limits::default())
}

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

type Decode = fn(&[u8], &Limits) -> Result<DecodedLogs>;

/// Formats a row as texts; `-` is null.
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

/// Encodes the same request in Protobuf, with the first record changed.
fn in_protobuf(change: impl FnOnce(&mut LogRecord)) -> Vec<u8> {
    let all: Json = serde_json::from_str(JSON).unwrap();
    let mut change = Some(change);
    let mut record = |json: &Json| {
        let mut record = log_record(json)?;
        if let Some(change) = change.take() {
            change(&mut record);
        }
        Ok(record.encode_to_vec())
    };
    let mut scope_logs = |json: &Json| {
        let name = json["scope"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(ScopeLogs { scope: Some(Scope { name }), log_records: list(json, "logRecords", &mut record)? })
    };
    let resource_logs = list(&all, "resourceLogs", |json| {
        let attributes = list(&json["resource"], "attributes", key_value)?;
        let scope_logs = list(json, "scopeLogs", &mut scope_logs)?;
        Ok(ResourceLogs { resource: Some(Resource { attributes }), scope_logs })
    });
    Export { resource_logs: resource_logs.unwrap() }.encode_to_vec()
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
    let DecodedLogs { rows, refused } = decode_json(body.as_bytes()).unwrap();
    assert_eq!((shown(&rows, 0)[6].as_str(), shown(&rows, 1)[6].as_str(), rows.num_rows()), ("a", "b", 2));
    let numbers: Vec<usize> = refused.iter().map(|refused| refused.record).collect();
    assert_eq!(numbers, [2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(refused[3].raw, records[4]);
    assert!(refused[3].reason.contains("`traceId`: hexadecimal digits"), "{}", refused[3].reason);

    let many =
        format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{}0]}}]}}]}}"#, "0,".repeat(10_000));
    let error = decode_json(many.as_bytes()).unwrap_err();
    assert!(error.message().starts_with("more than 10000 records cannot be read; record 1: "), "{error}");

    // The request has a text with invalid UTF-8 in its middle.
    let broken = LogRecord { severity_text: "~~".into(), ..LogRecord::default() }.encode_to_vec();
    let broken = broken.iter().map(|byte| if *byte == b'~' { 0xff } else { *byte }).collect();
    let good = LogRecord { severity_text: "good".into(), ..LogRecord::default() }.encode_to_vec();
    let of_scope = ScopeLogs { scope: None, log_records: vec![good.clone(), broken, good] };
    let logs = ResourceLogs { resource: None, scope_logs: vec![of_scope] };
    let DecodedLogs { rows, refused } =
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
    for body in [
        "[[]]",
        r#"{"resourceLogs":[[]]}"#,
        r#"{"resourceLogs":[7]}"#,
        r#"{"resourceLogs":[{"resource":[]}]}"#,
        r#"{"resourceLogs":[{"resource":{"attributes":[[]]}}]}"#,
        r#"{"resourceLogs":[{"scopeLogs":[[]]}]}"#,
        r#"{"resourceLogs":[{"scopeLogs":[{"scope":[]}]}]}"#,
        r#"{"resource_logs":[{"scopeLogs":[{"logRecords":[{}]}]}]}"#,
        r#"{"resourceSpans":[]}"#,
        r#"{"resourceLogs":[]} {"#,
    ] {
        assert_eq!(decode_json(body.as_bytes()).expect_err(body).kind(), ErrorKind::Invalid, "{body}");
    }
    for body in ["{}", r#"{"resourceLogs":null}"#, r#"{"more":[],"resource\u004cogs":[{}]}"#] {
        assert_eq!(decode_json(body.as_bytes()).unwrap().rows.num_rows(), 0, "{body}");
    }

    let bytes = in_protobuf(|_| ());
    let mut refused = 0;
    for end in 0..bytes.len() {
        refused += usize::from(decode_protobuf(&bytes[..end]).is_err());
    }
    assert!(refused > bytes.len() / 2, "{refused} of {}", bytes.len());
    let narrow = Limits { decoded_bytes_max: 700, ..Limits::default() };
    let reads: [(&[u8], Decode); 2] =
        [(&bytes, super::decode_protobuf), (JSON.as_bytes(), super::decode_json)];
    for (whole, read) in reads {
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            for limits in [&Limits::default(), &narrow] {
                match read(&damaged, limits) {
                    Ok(found) => assert_eq!(found.rows.num_columns(), COLUMNS.len()),
                    Err(e) => assert!(matches!(e.kind(), ErrorKind::Invalid | ErrorKind::TooLarge), "{e}"),
                }
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
    let DecodedLogs { rows, refused } = decode_protobuf(&bytes).unwrap();
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

#[test]
fn json_that_is_nested_too_deep_spoils_its_record_alone() {
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    let record = format!(r#"{{"body":{{"arrayValue":{{"values":{deep}}}}}}}"#);
    let of_scope = format!(r#"[{{"logRecords":[{{}},{record},{{}}],"unknown":{deep}}}]"#);
    let body = format!(r#"{{"unknown":{deep},"resourceLogs":[{{"scopeLogs":{of_scope}}}]}}"#);
    let DecodedLogs { rows, refused } = decode_json(body.as_bytes()).unwrap();
    assert_eq!((rows.num_rows(), refused.len(), refused[0].record), (2, 1, 2));
    assert!(refused[0].reason.contains("recursion limit"), "{}", refused[0].reason);
    assert_eq!(refused[0].raw, record[..RAW_BYTES_MAX]);
    let body = format!(r#"{{"resourceLogs":[{{"resource":{{"attributes":{deep}}}}}]}}"#);
    assert_eq!(decode_json(body.as_bytes()).unwrap_err().kind(), ErrorKind::Invalid);
}

/// An export of 30 MB of empty records made 5 GB before it was refused.
#[test]
fn many_records_of_nothing_are_refused_before_they_take_much() {
    let field = |bytes: &[u8]| {
        let mut field = vec![0x12];
        prost::encoding::encode_varint(bytes.len() as u64, &mut field);
        [&field, bytes].concat()
    };
    let mut body = field(&[0x12, 0].repeat(15_000_000));
    let mut head = vec![0x0a];
    prost::encoding::encode_varint(body.len() as u64, &mut head);
    body.splice(..0, head);
    assert_eq!(decode_protobuf(&body).unwrap_err().kind(), ErrorKind::TooLarge);

    let of = |records: usize| {
        format!(
            r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{}{{}}]}}]}}]}}"#,
            "{},".repeat(records - 1)
        )
    };
    let narrow = Limits { decoded_bytes_max: 64_000, ..Limits::default() };
    let rows =
        |records| super::decode_json(of(records).as_bytes(), &narrow).map(|found| found.rows.num_rows());
    assert_eq!(rows(1_000).unwrap(), 1_000);
    assert_eq!(rows(1_001).unwrap_err().kind(), ErrorKind::TooLarge);
}

/// A resource of a megabyte was repeated in each row, and more than two gigabytes of it caused a panic.
#[test]
fn what_stands_in_each_row_counts_for_each() {
    let text = "x".repeat(1 << 20);
    let export = |resource: bool, records: usize| {
        let attributes = if resource {
            format!(r#"{{"key":"service.name","value":{{"stringValue":"{text}"}}}}"#)
        } else {
            String::new()
        };
        let scope = if resource { "" } else { &text };
        let records = vec!["{}"; records].join(",");
        format!(
            r#"{{"resourceLogs":[{{"resource":{{"attributes":[{attributes}]}},
            "scopeLogs":[{{"scope":{{"name":"{scope}"}},"logRecords":[{records}]}}]}}]}}"#
        )
    };
    // The text occurs as the resource and as the service.
    assert_eq!(decode_json(export(true, 3_000).as_bytes()).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(decode_json(export(false, 3_000).as_bytes()).unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(decode_json(export(true, 3).as_bytes()).unwrap().rows.num_rows(), 3);

    let of_scope = ScopeLogs { scope: Some(Scope { name: text }), log_records: vec![Vec::new(); 3_000] };
    let logs = ResourceLogs { resource: None, scope_logs: vec![of_scope] };
    let bytes = Export { resource_logs: vec![logs] }.encode_to_vec();
    assert_eq!(decode_protobuf(&bytes).unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn a_record_that_is_too_large_is_refused_and_a_resource_refuses_all() {
    let text = "ä".repeat(RECORD_BYTES_MAX / 2);
    let record = format!(r#"{{ "body":{{"stringValue":"{text}"}}}}"#);
    let body = format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{record},{{}}]}}]}}]}}"#);
    let DecodedLogs { rows, refused } = decode_json(body.as_bytes()).unwrap();
    assert_eq!((rows.num_rows(), refused.len(), refused[0].record), (1, 1, 1));
    assert_eq!(refused[0].reason, "takes more than 4 MiB");
    // The limit is in the middle of a character.
    assert_eq!(refused[0].raw, record[..RAW_BYTES_MAX - 1]);
    for field in ["resource", "scope"] {
        let large = format!(r#""{field}":{{"name":"{text}"}}"#);
        let body = match field {
            "resource" => format!(r#"{{"resourceLogs":[{{{large}}}]}}"#),
            _ => format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{{large}}}]}}]}}"#),
        };
        let error = decode_json(body.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert_eq!(error.message(), format!("a {field} takes more than 4 MiB"));
    }

    let large = LogRecord { event_name: text.clone(), ..LogRecord::default() }.encode_to_vec();
    let scope = Some(Scope { name: text });
    let of_scope = ScopeLogs { scope: None, log_records: vec![large, Vec::new()] };
    let export = |of_scope: &ScopeLogs| {
        let logs = ResourceLogs { resource: None, scope_logs: vec![of_scope.clone()] };
        decode_protobuf(&Export { resource_logs: vec![logs] }.encode_to_vec())
    };
    let DecodedLogs { rows, refused } = export(&of_scope).unwrap();
    assert_eq!((rows.num_rows(), refused[0].reason.as_str()), (1, "takes more than 4 MiB"));
    assert_eq!(refused[0].raw.len(), RAW_BYTES_MAX);
    assert!(refused[0].raw.starts_with("YoCAgALDpMOk"), "{}", &refused[0].raw[..20]);
    assert_eq!(export(&ScopeLogs { scope, ..of_scope }).unwrap_err().kind(), ErrorKind::TooLarge);

    // The memory for refused records is charged too.
    let body = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[7,7,7]}]}]}"#;
    let narrow = Limits { decoded_bytes_max: 100, ..Limits::default() };
    assert_eq!(super::decode_json(body.as_bytes(), &narrow).unwrap_err().kind(), ErrorKind::TooLarge);
}

/// A record of 4 MiB became 260 MiB of empty values before it was refused.
#[test]
fn a_record_of_too_many_values_is_refused_before_it_is_read() {
    let in_json = |values: &str| {
        let record = format!(r#"{{"body":{{"arrayValue":{{"values":[{values}]}}}}}}"#);
        decode_json(
            format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{record},{{}}]}}]}}]}}"#).as_bytes(),
        )
        .unwrap()
    };
    // The surrounding text has five values; each item adds a comma and an object.
    let most = RECORD_VALUES_MAX / 2 - 2;
    for (values, refused) in [
        (vec!["{}"; most].join(","), 0),
        (vec!["{}"; most + 1].join(","), 1),
        (vec!["0"; 2_000_000].join(","), 1),
        // Characters inside of a text are not counted.
        (format!(r#"{{"stringValue":"{}"}}"#, ",[{".repeat(RECORD_VALUES_MAX)), 0),
    ] {
        let found = in_json(&values);
        assert_eq!((found.rows.num_rows(), found.refused.len()), (2 - refused, refused));
        assert!(found.refused.iter().all(|refused| refused.reason == MANY_VALUES), "{:?}", found.refused);
    }
    for field in ["resource", "scope"] {
        let many = format!(r#""{field}":{{"attributes":[{}]}}"#, vec!["{}"; most + 3].join(","));
        let body = match field {
            "resource" => format!(r#"{{"resourceLogs":[{{{many}}}]}}"#),
            _ => format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{{many}}}]}}]}}"#),
        };
        let error = decode_json(body.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert_eq!(error.message(), format!("a {field} has more than 65,536 values"));
    }

    let of = |resource, record| {
        let scope_logs = vec![ScopeLogs { scope: None, log_records: vec![record, Vec::new()] }];
        let logs = ResourceLogs { resource, scope_logs };
        decode_protobuf(&Export { resource_logs: vec![logs] }.encode_to_vec())
    };
    let record = |body: Option<Kind>, attributes: usize| LogRecord {
        body: Some(AnyValue { value: body }),
        attributes: vec![KeyValue::default(); attributes],
        ..LogRecord::default()
    };
    let nested = |pairs| {
        let values = vec![KeyValue { key: "k".into(), value: None }; pairs];
        let values = vec![AnyValue { value: Some(Kind::KvlistValue(KeyValueList { values })) }];
        Some(Kind::ArrayValue(ArrayValue { values }))
    };
    let text = Some(Kind::StringValue("2".repeat(RECORD_VALUES_MAX * 3)));
    for (record, refused) in [
        (record(None, RECORD_VALUES_MAX - 1), 0),
        (record(None, RECORD_VALUES_MAX), 1),
        (record(None, 2_000_000), 1),
        (record(text, 1), 0),
        // The body, its list, that list's one value, and that value's list are four.
        (record(nested(RECORD_VALUES_MAX / 2 - 2), 0), 0),
        (record(nested(RECORD_VALUES_MAX / 2 - 2), 1), 1),
    ] {
        let found = of(None, record.encode_to_vec()).unwrap();
        assert_eq!((found.rows.num_rows(), found.refused.len()), (2 - refused, refused));
        assert!(found.refused.iter().all(|refused| refused.reason == MANY_VALUES), "{:?}", found.refused);
    }
    let resource = |attributes| Some(Resource { attributes: vec![KeyValue::default(); attributes] });
    assert_eq!(of(resource(RECORD_VALUES_MAX), Vec::new()).unwrap().rows.num_rows(), 2);
    let error = of(resource(RECORD_VALUES_MAX + 1), Vec::new()).unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::TooLarge, "a resource has more than 65,536 values")
    );
}

/// Fields come in any order, and a message may come in parts.
#[test]
fn a_resource_holds_for_what_came_before_it() {
    let body = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}],"scope":{"name":"s"}}],
        "resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]}}]}"#;
    let shop = |rows: &arrow::array::RecordBatch| {
        let row = shown(rows, 0);
        (row[3].clone(), row[4].clone(), row[8].clone())
    };
    let expected = ("shop".to_owned(), "s".to_owned(), r#"{"service.name":"shop"}"#.to_owned());
    assert_eq!(shop(&decode_json(body.as_bytes()).unwrap().rows), expected);

    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
    let attribute = |key: &str, value: &str| {
        let value = Some(AnyValue { value: Some(Kind::StringValue(value.into())) });
        Resource { attributes: vec![KeyValue { key: key.into(), value }] }.encode_to_vec()
    };
    let scope = |name: &str| Scope { name: name.into() }.encode_to_vec();
    let of_scope = [field(2, &[]), field(1, &scope("first")), field(1, &scope("s"))].concat();
    let resources = [attribute("a", "b"), attribute("service.name", "shop")].map(|of| field(1, &of)).concat();
    // Between the fields is an unknown field of each wire type.
    let unknown = [&[15 << 3, 0x80, 1][..], &[15 << 3 | 1; 9], &field(15, b"?"), &[15 << 3 | 5; 5]].concat();
    let logs = [unknown.clone(), field(2, &of_scope), unknown.clone(), resources].concat();
    let found = decode_protobuf(&[unknown, field(1, &logs)].concat()).unwrap();
    let expected = ("shop".to_owned(), "s".to_owned(), r#"{"a":"b","service.name":"shop"}"#.to_owned());
    assert_eq!((found.rows.num_rows(), shop(&found.rows)), (1, expected));
    // A field that should be a message holds a number.
    assert_eq!(decode_protobuf(&[1 << 3, 7]).unwrap_err().kind(), ErrorKind::Invalid);
}
