use proptest::prelude::*;
use prost::encoding::{WireType, encode_key, encode_varint};
use types::{ColumnId, DataType, Kind, TableDef, TableId};

use super::*;
use crate::{SkippedRow, json, out};

/// A value to be sent.
#[derive(Clone, Debug)]
enum V {
    /// A message without a field.
    Unset,
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    Time(i64),
    Json(String),
    List(Vec<V>),
    Struct(Vec<(String, V)>),
}

fn text(text: &str) -> V {
    V::Text(text.into())
}

fn number(field: u32, number: u64, out: &mut Vec<u8>) {
    encode_key(field, WireType::Varint, out);
    encode_varint(number, out);
}

fn bytes(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn value(sent: &V) -> Vec<u8> {
    let mut out = Vec::new();
    match sent {
        V::Unset => {}
        V::Null => number(1, 0, &mut out),
        V::Bool(v) => number(2, u64::from(*v), &mut out),
        V::Int(v) => number(3, *v as u64, &mut out),
        V::Double(v) => {
            encode_key(4, WireType::SixtyFourBit, &mut out);
            out.extend_from_slice(&v.to_le_bytes());
        }
        V::Text(v) => bytes(5, v.as_bytes(), &mut out),
        V::Bytes(v) => bytes(6, v, &mut out),
        V::Time(v) => number(7, *v as u64, &mut out),
        V::Json(v) => bytes(8, v.as_bytes(), &mut out),
        V::List(v) => bytes(9, &list(v), &mut out),
        V::Struct(v) => {
            let mut fields = Vec::new();
            for (name, v) in v {
                let mut field = Vec::new();
                bytes(1, name.as_bytes(), &mut field);
                bytes(2, &value(v), &mut field);
                bytes(1, &field, &mut fields);
            }
            bytes(10, &fields, &mut out);
        }
    }
    out
}

/// Encodes a message `Row` or `List`.
fn list(values: &[V]) -> Vec<u8> {
    let mut out = Vec::new();
    values.iter().for_each(|v| bytes(1, &value(v), &mut out));
    out
}

fn body(columns: &[&str], rows: &[Vec<V>]) -> Vec<u8> {
    let mut out = Vec::new();
    columns.iter().for_each(|name| bytes(COLUMNS, name.as_bytes(), &mut out));
    rows.iter().for_each(|row| bytes(ROWS, &list(row), &mut out));
    out
}

fn table(columns: &[(&str, &str)]) -> TableDef {
    let mut def = TableDef::new(TableId(1), "main.t");
    for (name, data_type) in columns {
        let data_type = DataType::parse(data_type, &mut ColumnId(0)).unwrap();
        def.add_column(name, &data_type, true, None).unwrap();
    }
    def
}

fn target(def: Option<&TableDef>) -> DecodeTarget<'_> {
    DecodeTarget { table: "t", def, may_add_columns: true }
}

fn read_all(body: &[u8], def: Option<&TableDef>) -> Result<DecodedRows, RefusedBody> {
    decode(body, target(def), &Limits::default())
}

fn shown(rows: &DecodedRows) -> String {
    let mut text = Vec::new();
    out::json::Writer::new(&rows.batch.schema()).rows(&rows.batch, &mut text);
    String::from_utf8(text).unwrap()
}

fn types_of(rows: &DecodedRows) -> Vec<String> {
    rows.new_columns.iter().map(|c| format!("{} {}", c.name, c.data_type)).collect()
}

fn message(refused: RefusedBody) -> String {
    refused.error.to_string()
}

const TYPES: [(&str, &str); 17] = [
    ("B", "bool"),
    ("i", "int32"),
    ("n", "int64"),
    ("f", "float32"),
    ("g", "float64"),
    ("d", "decimal(38,2)"),
    ("s", "string"),
    ("x", "binary"),
    ("day", "date"),
    ("t", "timestamp"),
    ("u", "uuid"),
    ("j", "json"),
    ("l", "list<int64>"),
    ("st", "struct<a: int64 not null, b: list<string>>"),
    ("v", "vector(3)"),
    ("p", "point"),
    ("q", "point3d"),
];

/// A row must mean the same in Protobuf as in JSON.
#[test]
fn every_type_of_column_is_filled_as_from_json() {
    let def = table(&TYPES);
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let names = TYPES.map(|(name, _)| name);
    let field = |name: &str, v: V| (name.to_owned(), v);
    let first = vec![
        V::Bool(true),
        V::Int(-7),
        V::Int(i64::MIN),
        V::Double(0.5),
        V::Double(1e300),
        text("123456789012345678901234567890.12"),
        text("é\n"),
        V::Bytes(vec![1, 2, 3]),
        text("2026-11-21"),
        V::Time(1_795_248_411_000_001),
        text(uuid),
        V::Json(" {\"k\": [1]} ".into()),
        V::List(vec![V::Int(1), V::Unset, V::Int(3)]),
        V::Struct(vec![field("B", V::List(vec![text("x")])), field("a", V::Int(1))]),
        V::List(vec![V::Double(1.0), V::Int(2), V::Double(3.0)]),
        V::Struct(vec![field("lat", V::Int(2)), field("lon", V::Double(1.5))]),
        V::List(vec![V::Int(1), V::Int(2), V::Int(3)]),
    ];
    let second = vec![
        V::Null,
        V::Unset,
        V::Json("null".into()),
        V::Int(3),
        V::Int(1 << 60),
        V::Int(-5),
        V::Unset,
        V::Unset,
        V::Unset,
        text("2026-11-21T08:06:51Z"),
        V::Bytes((0..16).collect()),
        V::Struct(vec![
            field("a", V::List(vec![V::Bool(false), V::Bytes(vec![255])])),
            field("b", V::Time(0)),
        ]),
    ];
    let rows = read_all(&body(&names, &[first, second, vec![]]), Some(&def)).unwrap();
    let json = concat!(
        r#"[{"B":true,"i":-7,"n":-9223372036854775808,"f":0.5,"g":1e300,"d":"123456789012345678901234567890.12","s":"é\n","#,
        r#""x":"AQID","day":"2026-11-21","t":1795248411000001,"u":"01234567-89ab-cdef-0123-456789abcdef","j":{"k": [1]},"#,
        r#""l":[1,null,3],"st":{"a":1,"b":["x"]},"v":[1,2,3],"p":[1.5,2],"q":[1,2,3]},"#,
        r#"{"f":3,"g":1152921504606846976,"d":-5,"t":"2026-11-21T08:06:51Z","u":"00010203-0405-0607-0809-0a0b0c0d0e0f","#,
        r#""j":{"a":[false,"/w=="],"b":"1970-01-01T00:00:00.000000Z"}},{}]"#
    );
    let expected = json::decode(json.as_bytes(), target(Some(&def)), &Limits::default()).unwrap();
    assert_eq!(rows.batch, expected.batch);
}

/// The bytes were made by the Protobuf library for Python from `proto/polynya.proto`.
#[test]
fn what_another_library_wrote_is_read() {
    let hex = concat!(
        "0a016e0a01660a01730a01620a01740a016a0a016c0a016f0a01780a017a12650a0b18fbffffffffffffffff010a0921000000000000e03f",
        "0a042a02c3a90a0210010a09388080f9c0c1c482030a0b42097b226b223a5b315d7d0a0f4a0d0a0218010a0208000a032a01780a10520e0a",
        "070a0161120218070a030a01620a04320200ff0a0012170a091881808080808080100a0218020a0208000a021000"
    );
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    let rows = read_all(&bytes, None).unwrap();
    assert_eq!(
        types_of(&rows),
        [
            "n int64",
            "f float64",
            "s string",
            "b bool",
            "t timestamp",
            "j json",
            "l json",
            "o json",
            "x binary"
        ]
    );
    let shown = shown(&rows);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(
        lines[0],
        r#"{"n":-5,"f":0.5,"s":"é","b":true,"t":"2023-11-14T22:13:20.000000Z","j":"{\"k\":[1]}","l":"[1,null,\"x\"]","o":"{\"a\":7,\"b\":null}","x":"AP8="}"#
    );
    assert!(
        lines[1].starts_with(r#"{"n":"9007199254740993","f":2.0,"s":null,"b":false,"t":null"#),
        "{}",
        lines[1]
    );
}

#[test]
fn the_proto_file_has_the_numbers_that_are_read() {
    let proto = include_str!("../../../../proto/polynya.proto");
    let numbers = |message: &str| -> Vec<(String, u32)> {
        let begin = format!("message {message} {{");
        let inside = proto.split(&begin).nth(1).unwrap().split("\n}").next().unwrap();
        let fields = inside.lines().filter(|line| !line.trim().starts_with("//")).filter_map(|line| {
            let (left, number) = line.trim().strip_suffix(';')?.split_once(" = ")?;
            Some((left.to_owned(), number.parse().unwrap()))
        });
        fields.collect()
    };
    let field = |left: &str, number| (left.to_owned(), number);
    assert_eq!(
        numbers("Rows"),
        [field("repeated string columns", COLUMNS), field("repeated Row rows", ROWS)]
    );
    assert_eq!(numbers("Row"), [field("repeated Value values", 1)]);
    assert_eq!(numbers("List"), [field("repeated Value values", 1)]);
    assert_eq!(numbers("Struct"), [field("repeated Field fields", 1)]);
    assert_eq!(numbers("Field"), [field("string name", 1), field("Value value", 2)]);
    let kinds = numbers("Value");
    assert_eq!(kinds.len(), 10);
    let sent = [
        ("Null null", V::Null, "null"),
        ("bool bool", V::Bool(true), "bool"),
        ("int64 int64", V::Int(1), "int64"),
        ("double double", V::Double(1.0), "double"),
        ("string string", text(""), "string"),
        ("bytes bytes", V::Bytes(vec![]), "bytes"),
        ("int64 timestamp_micros", V::Time(1), "timestamp"),
        ("string json", V::Json("1".into()), "json"),
        ("List list", V::List(vec![]), "list"),
        ("Struct struct", V::Struct(vec![]), "struct"),
    ];
    for ((left, number), (name, v, kind)) in kinds.into_iter().zip(sent) {
        let bytes = value(&v);
        assert_eq!((left.as_str(), number), (name, u32::from(bytes[0] >> 3)));
        assert_eq!(Value::read(&bytes).unwrap().kind(), kind);
    }
}

#[test]
fn types_of_new_columns_follow_from_the_first_values() {
    let rows = [
        vec![V::Unset, V::Int(1), V::Null, V::Struct(vec![]), V::Bytes(vec![1])],
        vec![text("a"), V::Double(1.5), V::Null, V::List(vec![V::Int(1)])],
        vec![text("b"), V::Int(2)],
    ];
    let rows = read_all(&body(&["s", "f", "none", "j", "x"], &rows), None).unwrap();
    assert_eq!(types_of(&rows), ["s string", "f float64", "j json", "x binary"]);
    assert_eq!(rows.batch.num_rows(), 3);
    assert_eq!(read_all(&body(&["a"], &[]), None).unwrap().batch.num_rows(), 0);
    assert_eq!(read_all(&body(&[], &[vec![], vec![]]), None).unwrap().batch.num_rows(), 2);
}

#[test]
fn columns_may_come_behind_the_rows_and_names_are_resolved() {
    let def = table(&[("Id", "int64")]);
    let mut late = Vec::new();
    bytes(ROWS, &list(&[V::Int(7)]), &mut late);
    bytes(COLUMNS, b"ID", &mut late);
    let rows = read_all(&late, Some(&def)).unwrap();
    assert_eq!(shown(&rows), "{\"Id\":7}\n");
    for (names, part) in [
        (&["id", "ID"][..], "the column is given twice"),
        (&["_time"], "names starting with `_` belong to Polynya"),
        (&[""], "it is empty"),
    ] {
        let text = message(read_all(&body(names, &[]), Some(&def)).unwrap_err());
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn values_that_do_not_fit_are_named_and_the_rows_can_be_left_out() {
    let def = table(&TYPES);
    let cases: Vec<(&str, V, &str)> = vec![
        ("B", V::Int(1), "bool expected, int64 `1` found"),
        ("i", V::Int(1 << 31), "int32 expected, `2147483648` found"),
        ("n", text("5"), "int64 expected, string `\"5\"` found"),
        ("n", V::Double(1.0), "int64 expected, double `1.0` found"),
        ("f", V::Int(16_777_217), "float32 expected"),
        ("f", V::Double(1e39), "float32 expected"),
        ("g", V::Int((1 << 53) + 1), "float64 expected, `9007199254740993` found"),
        ("d", text("1.005"), "decimal(38,2) expected, `1.005` found"),
        ("d", V::Double(1.5), "decimal(38,2) expected, double `1.5` found"),
        ("s", V::Bytes(vec![1]), "string expected, bytes"),
        ("x", text("AQID"), "binary expected, string"),
        ("day", V::Int(1), "date expected, int64"),
        ("day", text("2026-02-30"), "date like"),
        ("t", text("yesterday"), "timestamp like"),
        ("u", V::Bytes(vec![0; 15]), "uuid expected, 15 bytes found"),
        ("j", V::Json("{a}".into()), "JSON expected, `{a}` found"),
        ("j", V::Double(f64::NAN), "JSON has no NaN"),
        ("j", V::Struct(vec![("a".into(), V::Null), ("a".into(), V::Null)]), "the field `a` is given twice"),
        ("l", V::List(vec![V::Int(1), text("x")]), "int64 expected"),
        ("l", V::Int(1), "list<int64> expected, int64 `1` found"),
        ("st", V::Struct(vec![]), "the field `a` is missing but NOT NULL"),
        ("st", V::Struct(vec![("c".into(), V::Null)]), "the struct has no field `c`"),
        ("v", V::List(vec![V::Int(1)]), "3 numbers expected, 1 found"),
        ("p", V::List(vec![V::Int(1)]), "2 numbers expected, 1 found"),
        ("p", V::Struct(vec![("lon".into(), V::Int(1))]), "`lat` is missing"),
    ];
    for (name, bad, part) in cases {
        let rows = [vec![V::Unset], vec![bad.clone()], vec![], vec![V::Unset, V::Unset]];
        let sent = body(&[name], &rows);
        let refused = read_all(&sent, Some(&def)).unwrap_err();
        let named: Vec<_> = refused.rows.iter().map(|bad| (bad.row, bad.column.as_deref())).collect();
        assert_eq!(named, [(2, Some(name)), (4, None)], "{bad:?}");
        assert!(refused.rows[0].message.contains(part), "{bad:?}: {}", refused.rows[0].message);
        let sifted = sift(&sent, target(Some(&def)), &Limits::default()).unwrap();
        assert_eq!((sifted.rows.batch.num_rows(), sifted.skipped.len()), (2, 2), "{bad:?}");
        assert_eq!(sifted.skipped[1].bad.message, "1 values at most expected, 2 found");
        assert_eq!(sifted.skipped[1].raw, format!("{{\"{name}\":null,\"2\":null}}"));
        // A value that JSON cannot represent is shown in its own form.
        let raw = &sifted.skipped[0].raw;
        assert_eq!(raw.starts_with(&format!("{{\"{name}\":")), !part.contains("twice"), "{raw}");
    }
}

/// A truncated row is bad, and the next one begins at the position that its length gives.
#[test]
fn a_broken_row_is_left_out_alone() {
    let mut sent = body(&["n"], &[vec![V::Int(1)]]);
    bytes(ROWS, &[0x0a, 0x05, 0x18], &mut sent);
    bytes(ROWS, &list(&[V::Int(2)]), &mut sent);
    let text = message(read_all(&sent, None).unwrap_err());
    assert!(text.contains("row 2: it is not a message `Row`: it is cut off"), "{text}");
    let sifted = sift(&sent, target(None), &Limits::default()).unwrap();
    assert_eq!(shown(&sifted.rows), "{\"n\":1}\n{\"n\":2}\n");
    let [SkippedRow { bad, raw }] = &sifted.skipped[..] else { panic!("{:?}", sifted.skipped) };
    assert_eq!((bad.row, raw.as_str()), (2, "CgUY"));
}

#[test]
fn forms_and_fields_that_the_messages_do_not_have_are_refused() {
    let row = |value: &[u8]| {
        let mut row = Vec::new();
        bytes(1, value, &mut row);
        let mut sent = body(&["a"], &[]);
        bytes(ROWS, &row, &mut sent);
        sent
    };
    let varint = |field| {
        let mut out = Vec::new();
        number(field, 1, &mut out);
        out
    };
    let delimited = |field| {
        let mut out = Vec::new();
        bytes(field, b"\x01", &mut out);
        out
    };
    let two_kinds = [value(&V::Int(1)), value(&V::Null)].concat();
    for (sent, part) in [
        (row(&varint(4)), "the wrong wire type for its kind"),
        (row(&varint(5)), "the wrong wire type for its kind"),
        (row(&varint(9)), "the wrong wire type for its kind"),
        (row(&delimited(2)), "the wrong wire type for its kind"),
        (row(&delimited(3)), "the wrong wire type for its kind"),
        (row(&delimited(11)), "an unknown kind"),
        (row(&two_kinds), "more than one field"),
        (row(&[0x2a, 0x01, 0xff]), "a text is not UTF-8"),
        (row(&[0x0b, 0x0c]), "it contains a group"),
        (row(&[0x15, 0, 0, 0]), "it is cut off"),
        (row(&[0x15, 0, 0, 0, 0]), "the wrong wire type for its kind"),
        (row(&[0x00]), "the tag of a field is invalid"),
        (row(&[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), "cut off or too long"),
        (delimited(3), "a field that `Rows` does not have"),
        (varint(2), "a field has the wrong wire type"),
        (vec![0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], "it is cut off"),
        (vec![0x12, 0x80], "a length is cut off or too long"),
        (b"{\"a\":1}".to_vec(), "the body is not a message `Rows`"),
        (vec![0x0a, 0x01, 0xff], "a column's name is not UTF-8"),
    ] {
        let text = message(read_all(&sent, None).unwrap_err());
        assert!(text.contains(part), "{sent:?}: {text}");
    }
}

#[test]
fn deep_nesting_needs_no_stack_and_little_becomes_no_much() {
    let def = table(&[("j", "json"), ("v", "vector(65536)"), ("l", "list<vector(65536)>"), ("n", "int64")]);
    let mut deep = V::Int(1);
    for _ in 0..64 {
        deep = V::List(vec![deep]);
    }
    read_all(&body(&["j"], &[vec![deep.clone()]]), Some(&def)).unwrap();
    let text = message(read_all(&body(&["j"], &[vec![V::List(vec![deep])]]), Some(&def)).unwrap_err());
    assert!(text.contains("at most 64 levels of nesting"), "{text}");
    // The value nests thousands of lists.
    let mut inner = value(&V::Int(1));
    while inner.len() < 1 << 16 {
        let (mut values, mut next) = (Vec::new(), Vec::new());
        bytes(1, &inner, &mut values);
        bytes(9, &values, &mut next);
        inner = next;
    }
    let mut row = Vec::new();
    bytes(1, &inner, &mut row);
    let mut sent = body(&["j"], &[]);
    bytes(ROWS, &row, &mut sent);
    assert_eq!(read_all(&sent, Some(&def)).unwrap_err().error.kind(), Kind::Schema);
    let nulls = |name: &str, row: Vec<V>, count: usize| body(&[name], &vec![row; count]);
    for sent in [
        nulls("v", vec![], 5_000),
        nulls("n", vec![V::Int(1)], 5_000),
        nulls("l", vec![V::List(vec![V::Unset; 5_000])], 1),
    ] {
        let refused = read_all(&sent, Some(&def)).unwrap_err();
        assert_eq!(refused.error.kind(), Kind::TooLarge, "{}", refused.error);
    }
}

fn sample() -> Vec<u8> {
    let rows = [
        vec![
            V::Int(1),
            text("abc"),
            V::List(vec![V::Int(1), V::Double(2.5)]),
            V::Time(5),
            V::Bytes(vec![7; 9]),
        ],
        vec![V::Double(0.5), V::Unset, V::Struct(vec![("k".into(), V::Json("[1]".into()))]), V::Null],
        vec![V::Int(3), text("é")],
    ];
    body(&["a", "b", "c", "d", "e"], &rows)
}

#[test]
fn no_cut_and_no_flipped_bit_panics_or_adds_a_row() {
    let whole = sample();
    let all = read_all(&whole, None).unwrap().batch.num_rows();
    for cut in 0..whole.len() {
        match read_all(&whole[..cut], None) {
            // A message that is cut at the end of a field is valid.
            Ok(rows) => assert!(rows.batch.num_rows() < all, "{cut}"),
            Err(refused) => assert!(matches!(refused.error.kind(), Kind::Invalid | Kind::Schema), "{cut}"),
        }
        let _ = sift(&whole[..cut], target(None), &Limits::default());
        for bit in 0..8 {
            let mut flipped = whole.clone();
            flipped[cut] ^= 1 << bit;
            let _ = read_all(&flipped, None);
            if let Ok(sifted) = sift(&flipped, target(None), &Limits::default()) {
                assert!(sifted.rows.batch.num_rows() + sifted.skipped.len() <= all, "{cut} {bit}");
            }
        }
    }
}

fn any_value() -> impl Strategy<Value = V> {
    let leaf = prop_oneof![
        Just(V::Unset),
        Just(V::Null),
        any::<bool>().prop_map(V::Bool),
        any::<i64>().prop_map(V::Int),
        (-1e300..1e300f64).prop_map(V::Double),
        any::<String>().prop_map(V::Text),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(V::Bytes),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(V::List),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|fields| V::Struct(fields.into_iter().collect())),
        ]
    })
}

/// Converts the value to JSON by another implementation.
fn as_json(value: &V) -> serde_json::Value {
    use serde_json::Value as Json;
    match value {
        V::Unset | V::Null => Json::Null,
        V::Bool(v) => (*v).into(),
        V::Int(v) => (*v).into(),
        V::Double(v) => (*v).into(),
        V::Text(v) => v.clone().into(),
        V::Bytes(v) => {
            let mut text = Vec::new();
            crate::text::write_base64(v, &mut text);
            String::from_utf8(text).unwrap().into()
        }
        V::Time(_) | V::Json(_) => unreachable!("not generated"),
        V::List(v) => v.iter().map(as_json).collect(),
        V::Struct(v) => Json::Object(v.iter().map(|(name, v)| (name.clone(), as_json(v))).collect()),
    }
}

proptest! {
    #[test]
    fn what_goes_into_a_json_column_is_the_json_of_it(values in prop::collection::vec(any_value(), 0..6)) {
        let def = table(&[("j", "json")]);
        let rows: Vec<Vec<V>> = values.iter().map(|v| vec![v.clone()]).collect();
        let rows = read_all(&body(&["j"], &rows), Some(&def)).unwrap();
        prop_assert_eq!(rows.batch.num_rows(), values.len());
        let column = rows.batch.column_by_name("j").unwrap();
        for (row, v) in values.iter().enumerate() {
            let found = match types::Value::from_array(column, &DataType::Json, row) {
                types::Value::Json(text) => serde_json::from_str(&text).unwrap(),
                types::Value::Null => serde_json::Value::Null,
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(found, as_json(v));
        }
    }

    #[test]
    fn bytes_of_any_kind_never_panic(junk in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..200) {
        let _ = read_all(&junk, None);
        let mut spliced = sample();
        let at = at.min(spliced.len());
        spliced.splice(at..at, junk.iter().copied());
        let _ = read_all(&spliced, None);
        if let Ok(sifted) = sift(&spliced, target(None), &Limits::default()) {
            prop_assert!(sifted.rows.batch.num_rows() + sifted.skipped.len() <= spliced.len());
        }
    }
}
