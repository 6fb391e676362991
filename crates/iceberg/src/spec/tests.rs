use serde_json::json;

use super::*;
use crate::layout::Layout;

/// Returns a spec of `fields`: each a transform and the type of its source column.
fn spec(fields: &[(&str, &str)]) -> Spec {
    let columns: Vec<Json> = fields
        .iter()
        .enumerate()
        .map(
            |(at, (_, of))| json!({ "id": at + 16, "name": format!("c{at}"), "required": false, "type": of }),
        )
        .collect();
    let schema = json!({ "type": "struct", "fields": columns });
    let metadata = Metadata::new("u".into(), "/t".into(), &schema, 100, &Layout::default(), 1);
    let field = |(at, (transform, _)): (usize, &(&str, &str))| {
        let name = format!("c{at} über {transform}");
        json!({ "source-id": at + 16, "field-id": 1000 + at, "name": name, "transform": transform })
    };
    let fields: Vec<Json> = fields.iter().enumerate().map(field).collect();
    Spec::parse(&json!({ "spec-id": 3, "fields": fields }), &metadata).unwrap()
}

const TYPES: [(&str, &str); 12] = [
    ("identity", "boolean"),
    ("identity", "int"),
    ("bucket[7]", "long"),
    ("identity", "float"),
    ("identity", "double"),
    ("truncate[10]", "decimal(9, 2)"),
    ("identity", "decimal(38, 0)"),
    ("day", "timestamptz"),
    ("identity", "timestamptz"),
    ("truncate[3]", "string"),
    ("identity", "binary"),
    ("identity", "uuid"),
];

fn values() -> Vec<Option<SingleValue>> {
    let all = [
        SingleValue::Bool(true),
        SingleValue::Int(-5),
        SingleValue::Int(6),
        SingleValue::Float(-0.0),
        SingleValue::Float(f64::NAN),
        SingleValue::Decimal(-1_000),
        SingleValue::Decimal(1 - 10i128.pow(38)),
        SingleValue::Int(-719_162),
        SingleValue::Int(i64::MIN),
        SingleValue::Bytes("äbc".into()),
        SingleValue::Bytes(vec![0, 255]),
        SingleValue::Bytes(vec![7; 16]),
    ];
    all.into_iter().map(Some).collect()
}

#[test]
fn values_of_each_type_are_read_back() {
    let spec = spec(&TYPES);
    for values in [values(), vec![None; TYPES.len()]] {
        let partition = Partition::new(values);
        let mut body = Body::new();
        spec.put_avro(&mut body, &partition);
        body.end_record();
        let parsed: Json = serde_json::from_str(&spec.entry_schema).unwrap();
        let file = parsed["fields"].as_array().unwrap().iter().find(|f| f["name"] == "data_file").unwrap();
        let fields = file["type"]["fields"].as_array().unwrap();
        let of_partition = fields.iter().find(|f| f["name"] == "partition").unwrap();
        let (_, records) =
            crate::avro::read(&body.into_file(&of_partition["type"].to_string(), &[])).unwrap();
        assert_eq!(*spec.partition(Some(&records[0])), partition);
    }
}

#[test]
fn a_summary_bounds_what_is_neither_null_nor_nan() {
    let spec = spec(&[("identity", "double"), ("bucket[9]", "string"), ("identity", "int")]);
    let partition = |f: f64, bucket: Option<i64>| {
        Partition::new(vec![Some(SingleValue::Float(f)), bucket.map(SingleValue::Int), None])
    };
    let all = [partition(f64::NAN, Some(3)), partition(2.0, None), partition(-1.0, Some(-1))];
    let bytes = |n: i32| Some(n.to_le_bytes().to_vec());
    let expected = [
        FieldSummary {
            contains_null: false,
            contains_nan: true,
            lower: Some((-1.0f64).to_le_bytes().to_vec()),
            upper: Some(2.0f64.to_le_bytes().to_vec()),
        },
        FieldSummary { contains_null: true, contains_nan: false, lower: bytes(-1), upper: bytes(3) },
        FieldSummary { contains_null: true, ..FieldSummary::default() },
    ];
    assert_eq!(spec.summaries(all.iter()), expected);
    assert!(spec.summaries([].iter())[0].lower.is_none());
}

#[test]
fn partitions_are_equal_if_their_values_are() {
    let of = |values: &[SingleValue]| Partition::new(values.iter().cloned().map(Some).collect());
    assert_eq!(of(&[SingleValue::Float(f64::NAN)]), of(&[SingleValue::Float(f64::NAN)]));
    assert_ne!(of(&[SingleValue::Float(0.0)]), of(&[SingleValue::Float(-0.0)]));
    // A column's widening keeps its partitions.
    assert_eq!(of(&[SingleValue::Float(1.5f32.into())]), of(&[SingleValue::Float(1.5)]));
    let texts = |a: &str, b: &str| of(&[SingleValue::Bytes(a.into()), SingleValue::Bytes(b.into())]);
    assert_ne!(texts("a", "bc"), texts("ab", "c"));
    assert_ne!(Partition::new(vec![None]), of(&[SingleValue::Bool(false)]));
}

#[test]
fn names_are_such_as_avro_takes() {
    for (name, expected) in
        [("at_day", "at_day"), ("9 lives", "_9_x20lives"), ("ä", "_xE4"), ("_time_day", "_time_day")]
    {
        assert_eq!(avro_name(name), expected);
    }
    let schema: Json = serde_json::from_str(&spec(&[("identity", "int")]).entry_schema).unwrap();
    assert!(schema.to_string().contains(r#""iceberg-field-name":"c0 über identity""#));
}
