use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, Int64Type};
use types::{ColumnId, TableDef, TableId, Value};

use super::*;
use crate::out;

fn table(columns: &[(&str, &str)]) -> TableDef {
    let mut def = TableDef::new(TableId(1), "main.t");
    for (name, data_type) in columns {
        let data_type = DataType::parse(data_type, &mut ColumnId(0)).unwrap();
        def.add_column(name, &data_type, true, None).unwrap();
    }
    def
}

fn read(body: &str, def: Option<&TableDef>) -> Result<Rows, Refused> {
    decode(body.as_bytes(), Target { table: "t", def, may_add_columns: true }, &Limits::default())
}

fn names(rows: &Rows) -> Vec<String> {
    rows.new_columns.iter().map(|c| format!("{} {}", c.name, c.data_type)).collect()
}

/// The rows as NDJSON.
fn shown(rows: &Rows) -> String {
    let mut text = Vec::new();
    out::json::Writer::new(&rows.batch.schema()).rows(&rows.batch, &mut text);
    String::from_utf8(text).unwrap()
}

fn message(refused: Refused) -> String {
    refused.error.to_string()
}

#[test]
fn every_shape_of_body_gives_the_same_rows() {
    let expected = "{\"a\":1,\"b\":\"x\"}\n{\"a\":2,\"b\":null}\n{\"a\":3,\"b\":\"z\"}\n";
    for body in [
        r#"[{"a":1,"b":"x"},{"a":2},{"b":"z","a":3}]"#,
        "{\"a\":1,\"b\":\"x\"}\n{\"a\":2}\r\n\n{\"b\":\"z\",\"a\":3}\n",
        "{\"a\":1,\"b\":\"x\"}{\"a\":2,\"b\":null}{ \"b\" : \"\\u007a\" , \"\\u0061\":3}",
    ] {
        assert_eq!(shown(&read(body, None).unwrap()), expected);
    }
    assert_eq!(read("[]", None).unwrap().batch.num_rows(), 0);
    assert_eq!(read("[{},{}]", None).unwrap().batch.num_rows(), 2);
}

#[test]
fn types_are_inferred_and_null_waits() {
    let rows = read(
        r#"[{"i":1,"n":null,"late":null,"f":1,"j":{"x":[1, 2]}},{"i":-5,"late":true,"f":2.5,"s":"a","j":[null]},{"f":3}]"#,
        None,
    )
    .unwrap();
    assert_eq!(names(&rows), ["i int64", "late bool", "f float64", "j json", "s string"]);
    assert_eq!(
        rows.batch.column_by_name("f").unwrap().as_primitive::<Float64Type>().values(),
        &[1.0, 2.5, 3.0]
    );
    assert_eq!(rows.batch.column_by_name("i").unwrap().null_count(), 1);
    assert_eq!(rows.batch.column_by_name("j").unwrap().as_string::<i32>().value(0), r#"{"x":[1, 2]}"#);
}

#[test]
fn declared_types_are_read_from_json() {
    let def = table(&[
        ("b", "bool"),
        ("i", "int32"),
        ("f", "float32"),
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
    ]);
    let full = concat!(
        r#"{"b":true,"i":-7,"f":0.5,"d":"123456789012345678901234567890.12","s":"é\n","x":"AQID","day":"2026-11-21","#,
        r#""t":"2026-11-21T08:06:51.000001Z","u":"01234567-89ab-cdef-0123-456789abcdef","j":{"k":[1]},"l":[1,null,3],"#,
        r#""st":{"a":1,"b":["x"]},"v":[1.0,2.0,3.0],"p":{"lon":1.5,"lat":2.0},"q":{"x":1.0,"y":2.0,"z":3.0}}"#,
    );
    let rows = read(full, Some(&def)).unwrap();
    assert!(rows.new_columns.is_empty());
    let schema = def.schema.to_arrow_user();
    let batch = RecordBatch::try_new(schema.clone(), rows.batch.columns().to_vec()).unwrap();
    let mut text = Vec::new();
    out::json::Writer::new(&schema).rows(&batch, &mut text);
    assert_eq!(String::from_utf8(text).unwrap().trim_end(), full);

    let other = r#"[{"d":1.5,"t":1700000000000000,"p":[1,2],"q":[1,2,3],"j":"text","st":null,"v":null},{}]"#;
    let rows = read(other, Some(&def)).unwrap();
    let value = |name: &str, row| {
        let column = def.schema.column_named(name).unwrap();
        Value::from_array(rows.batch.column_by_name(name).unwrap(), &column.data_type, row)
    };
    assert_eq!(value("d", 0), Value::Decimal(150));
    assert_eq!(value("t", 0), Value::Timestamp(1_700_000_000_000_000));
    assert_eq!(value("p", 0), Value::Point([1.0, 2.0]));
    assert_eq!(value("j", 0), Value::Json("\"text\"".into()));
    assert_eq!((value("st", 0), value("v", 1)), (Value::Null, Value::Null));
}

#[test]
fn a_wrong_type_names_row_column_and_cure() {
    let def = table(&[("n", "int64"), ("s", "string")]);
    let rows: Vec<String> =
        (1..=100).map(|i| if i == 57 { "{\"n\":\"x\"}".into() } else { format!("{{\"n\":{i}}}") }).collect();
    let refused = read(&rows.join("\n"), Some(&def)).unwrap_err();
    assert_eq!(refused.rows.len(), 1);
    assert_eq!(
        message(refused),
        "row 57, column `n`: int64 expected, string `\"x\"` found; a column keeps its type; add one and \
         send the value as `n_string`: PUT /v1/tables/t {\"columns\":[{\"name\":\"n_string\",\"type\":\"string\"}]}"
    );
    let text = message(read(r#"{"n":1.5}"#, Some(&def)).unwrap_err());
    assert!(text.contains("int64 expected, `1.5` found") && text.contains(r#""type":"float64""#), "{text}");
    let text = message(read(r#"{"new":1}{"new":"x"}"#, None).unwrap_err());
    assert!(text.contains("row 2, column `new`") && text.contains("declare the column before"), "{text}");
}

#[test]
fn all_bad_rows_are_named_up_to_the_limit() {
    let def = table(&[("n", "int64")]);
    let refused = read(r#"[{"n":true},{"n":1},{"n":"x","m":[}]}]"#, Some(&def)).unwrap_err();
    assert!(
        message(refused).contains("row 3 is no JSON"),
        "malformed beats misfit: nothing behind it is known"
    );
    let refused = read(r#"[{"n":true},{"n":1},{"n":"x"}]"#, Some(&def)).unwrap_err();
    assert_eq!(refused.rows.iter().map(|r| r.row).collect::<Vec<_>>(), [1, 3]);
    let refused = read(&"{\"n\":{}}".repeat(50), Some(&def)).unwrap_err();
    assert_eq!(refused.rows.len(), 10);
    assert!(message(refused).contains("10 or more rows"));
}

#[test]
fn what_is_no_json_is_pointed_at() {
    for (body, part) in [
        ("{\"a\":1}\n{\"a\":}", "row 2 is no JSON: a value expected at byte 13 (line 2), `}` found"),
        ("[{\"a\":1}", "`,` or `]` expected at byte 8 (line 1), the end of the body found"),
        ("[{\"a\":1}]x", "the end of the body behind `]`"),
        ("[{\"a\":1},]", "an object (`{`) for each row"),
        ("{\"a\":1,}", "a field name in double quotes"),
        ("{a:1}", "a field name in double quotes"),
        ("7", "an object"),
        ("{\"a\":\"\u{1}\"}", "control character"),
        ("{\"a\":01}", "a number"),
    ] {
        let text = message(read(body, None).unwrap_err());
        assert!(text.contains(part), "{body}: {text}");
    }
    let refused = decode(
        b"{\"a\":\"\xff\"}",
        Target { table: "t", def: None, may_add_columns: true },
        &Limits::default(),
    );
    assert!(message(refused.unwrap_err()).contains("no UTF-8: byte 6"));
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(message(read(&deep, None).unwrap_err()).contains("at most 64 levels"));
}

#[test]
fn names_are_checked_and_resolved_without_case() {
    let def = table(&[("Id", "int64")]);
    let rows = read(r#"[{"id":1,"New":1},{"ID":2,"new":2}]"#, Some(&def)).unwrap();
    assert_eq!(rows.batch.column_by_name("Id").unwrap().as_primitive::<Int64Type>().values(), &[1, 2]);
    assert_eq!(names(&rows), ["New int64"]);
    for (body, part) in [
        (r#"{"id":1,"ID":2}"#, "the field `Id` is given twice"),
        (r#"{"a":1,"a":2}"#, "the field `a` is given twice"),
        (r#"{"_row_id":1}"#, "names starting with `_` belong to Polynya"),
        (r#"{"a\u0000b":1}"#, "control character"),
        (r#"{"":1}"#, "it is empty"),
    ] {
        let text = message(read(body, Some(&def)).unwrap_err());
        assert!(text.contains(part), "{body}: {text}");
    }
    let target = Target { table: "t", def: Some(&def), may_add_columns: false };
    let text = message(decode(br#"{"x":1}"#, target, &Limits::default()).unwrap_err());
    assert!(text.contains("no such column"), "{text}");
}

#[test]
fn twenty_thousand_new_columns_are_refused() {
    let fields: Vec<String> = (0..20_000).map(|i| format!("\"c{i}\":1")).collect();
    let refused = read(&format!("{{{}}}", fields.join(",")), None).unwrap_err();
    assert_eq!(refused.error.kind(), Kind::Schema);
    assert!(message(refused).contains("row 1 would give the table more than 1000 columns"));
}

#[test]
fn few_bytes_cannot_become_much_memory() {
    let def = table(&[("v", "vector(65536)"), ("l", "list<vector(65536)>"), ("n", "int64")]);
    for body in [
        format!("[{}{{\"v\":null}}]", "{},".repeat(100_000)),
        format!("[{}{{}}]", "{\"n\":1},".repeat(100_000)),
        format!("{{\"l\":[{}null]}}", "null,".repeat(100_000)),
    ] {
        let refused = read(&body, Some(&def)).unwrap_err();
        assert_eq!(refused.error.kind(), Kind::TooLarge, "{}", refused.error);
    }
}

#[test]
fn numbers_that_would_lose_something_are_refused() {
    let def = table(&[("i", "int64"), ("f", "float64"), ("g", "float32"), ("d", "decimal(4,1)")]);
    for body in [
        r#"{"i":9223372036854775808}"#,
        r#"{"f":9007199254740993}"#,
        r#"{"f":1e400}"#,
        r#"{"g":16777217}"#,
        r#"{"g":1e39}"#,
        r#"{"d":1.25}"#,
        r#"{"d":1000}"#,
        r#"{"new":9223372036854775808}"#,
        r#"[{"new":9007199254740993},{"new":0.5}]"#,
    ] {
        assert_eq!(read(body, Some(&def)).unwrap_err().error.kind(), Kind::Schema, "{body}");
    }
    read(r#"{"f":9007199254740994,"g":0.1,"d":1.50}"#, Some(&def)).unwrap();
}

/// Few bytes, a column more with each row: what their nulls would take is refused when the rows and columns so far come
/// to it, and not when they are made. The bad byte behind is never reached.
#[test]
fn rows_times_columns_are_bounded_while_they_are_read() {
    let body: String = (0..400).map(|i| format!("{{\"c{i}\":1}}")).collect();
    let limits = Limits { decoded_bytes_max: 1 << 20, ..Limits::default() };
    let target = Target { table: "t", def: None, may_add_columns: true };
    // 362 rows of as many columns, 8 bytes each.
    let refused = decode((body.clone() + "?").as_bytes(), target, &limits).unwrap_err();
    assert_eq!(refused.error.kind(), Kind::TooLarge, "{}", refused.error);
    let few: String = (0..300).map(|i| format!("{{\"c{i}\":1}}")).collect();
    assert_eq!(decode(few.as_bytes(), target, &limits).unwrap().batch.num_columns(), 300);
}
