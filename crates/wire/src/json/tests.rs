use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, Int64Type};
use types::{ColumnId, TableDef, TableId, Value};

use super::*;
use crate::{SiftedRows, out};

fn table(columns: &[(&str, &str)]) -> TableDef {
    let mut def = TableDef::new(TableId(1), "main.t");
    for (name, data_type) in columns {
        let data_type = DataType::parse(data_type, &mut ColumnId(0)).unwrap();
        def.add_column(name, &data_type, true, None).unwrap();
    }
    def
}

fn read(body: &str, def: Option<&TableDef>) -> Result<DecodedRows, RefusedBody> {
    decode(body.as_bytes(), DecodeTarget { table: "t", def, may_add_columns: true }, &Limits::default())
}

fn names(rows: &DecodedRows) -> Vec<String> {
    rows.new_columns.iter().map(|c| format!("{} {}", c.name, c.data_type)).collect()
}

/// Formats the rows as NDJSON.
fn shown(rows: &DecodedRows) -> String {
    let mut text = Vec::new();
    out::json::Writer::new(&rows.batch.schema()).rows(&rows.batch, &mut text);
    String::from_utf8(text).unwrap()
}

fn message(refused: RefusedBody) -> String {
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
        message(refused).contains("row 3 is not JSON"),
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
        ("{\"a\":1}\n{\"a\":}", "row 2 is not JSON: a value expected at byte 13 (line 2), `}` found"),
        ("[{\"a\":1}", "`,` or `]` expected at byte 8 (line 1), the end of the body found"),
        ("[{\"a\":1}]x", "the end of the body after `]`"),
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
        DecodeTarget { table: "t", def: None, may_add_columns: true },
        &Limits::default(),
    );
    assert!(message(refused.unwrap_err()).contains("not UTF-8: byte 6"));
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
    let target = DecodeTarget { table: "t", def: Some(&def), may_add_columns: false };
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

/// A short body in which each row adds a column needs many nulls. It is refused when the rows and columns so far would
/// need too much memory, before the nulls are made, so that the invalid byte at the end is never reached.
#[test]
fn rows_times_columns_are_bounded_while_they_are_read() {
    let body: String = (0..400).map(|i| format!("{{\"c{i}\":1}}")).collect();
    let limits = Limits { decoded_bytes_max: 1 << 20, ..Limits::default() };
    let target = DecodeTarget { table: "t", def: None, may_add_columns: true };
    // The limit allows 362 rows of as many columns, 8 bytes each.
    let refused = decode((body.clone() + "?").as_bytes(), target, &limits).unwrap_err();
    assert_eq!(refused.error.kind(), Kind::TooLarge, "{}", refused.error);
    let few: String = (0..300).map(|i| format!("{{\"c{i}\":1}}")).collect();
    assert_eq!(decode(few.as_bytes(), target, &limits).unwrap().batch.num_columns(), 300);
}

/// Returns the row numbers, columns and texts of the rows left out.
fn left_out(sifted: &SiftedRows) -> Vec<(usize, Option<&str>, &str)> {
    sifted.skipped.iter().map(|s| (s.bad.row, s.bad.column.as_deref(), s.raw.as_str())).collect()
}

fn sifted(body: &[u8], def: Option<&TableDef>, lines: bool) -> Result<SiftedRows, RefusedBody> {
    sift(body, DecodeTarget { table: "t", def, may_add_columns: true }, &Limits::default(), lines)
}

#[test]
fn rows_that_do_not_fit_are_left_out_and_the_others_go_on() {
    let def = table(&[
        ("n", "int64"),
        ("s", "string"),
        ("l", "list<int64>"),
        ("st", "struct<a: int64, b: string>"),
    ]);
    let rows = [
        r#"{"n":1,"s":"a","l":[1,2],"st":{"a":1,"b":"x"}}"#,
        r#"{"n":"x","s":"b"}"#,
        r#"{"s":"c","l":[3,"x"],"n":2}"#,
        r#"{"s":"d","l":[4],"st":{"a":2,"c":1}}"#,
        "7",
        r#"{"n":3,"st":{"b":"y","a":3}}"#,
        r#"{"n":4,"N":5}"#,
        r#"{"_x":1,"n":6}"#,
        r#"{"n":7}"#,
    ];
    let expected = concat!(
        "{\"n\":1,\"s\":\"a\",\"l\":[1,2],\"st\":{\"a\":1,\"b\":\"x\"}}\n",
        "{\"n\":3,\"s\":null,\"l\":null,\"st\":{\"a\":3,\"b\":\"y\"}}\n",
        "{\"n\":7,\"s\":null,\"l\":null,\"st\":null}\n"
    );
    for body in [format!("[{}]", rows.join(",")), rows.join("\r\n"), rows.join(" ")] {
        let found = sifted(body.as_bytes(), Some(&def), false).unwrap();
        assert_eq!(shown(&found.rows), expected, "{body}");
        let gone: Vec<_> = left_out(&found);
        let wanted: Vec<_> =
            [(2, Some("n")), (3, Some("l")), (4, Some("st")), (5, None), (7, Some("n")), (8, Some("_x"))]
                .map(|(row, column)| (row, column, rows[row - 1]))
                .to_vec();
        assert_eq!(gone, wanted, "{body}");
        assert_eq!(found.skipped[0].bad.message, "int64 expected, string `\"x\"` found");
    }
}

/// The types and the existence of new columns follow only from the rows that are taken.
#[test]
fn a_row_that_is_left_out_decides_nothing() {
    let def = table(&[("n", "int64")]);
    let body = r#"[
        {"new":"text","only":1,"n":"bad"},
        {"new":5,"n":1},
        {"new":0.5,"late":true,"n":false},
        {"new":9007199254740993,"n":2},
        {"new":1.5,"n":3},
        {"late":"x","NEW":7,"n":4}
    ]"#;
    let found = sifted(body.as_bytes(), Some(&def), false).unwrap();
    assert_eq!(names(&found.rows), ["new int64", "late string"]);
    assert_eq!(
        shown(&found.rows),
        "{\"new\":5,\"n\":1,\"late\":null}\n{\"new\":\"9007199254740993\",\"n\":2,\"late\":null}\n{\"new\":7,\"n\":4,\"late\":\"x\"}\n"
    );
    assert_eq!(left_out(&found).iter().map(|gone| gone.0).collect::<Vec<_>>(), [1, 3, 5]);
    assert!(found.skipped[2].bad.message.contains("9007199254740993 came before it"));
    // If no row is left, no column is made.
    let found = sifted(br#"{"a":1,"a":2}"#, None, false).unwrap();
    assert_eq!((found.rows.batch.num_rows(), found.rows.new_columns.len(), found.skipped.len()), (0, 0, 1));
}

#[test]
fn a_line_that_is_no_json_is_left_out_and_the_next_line_goes_on() {
    let body = b"{\"n\":1}\n{\"n\":\n{\"n\":2}\n{\"n\":3,\"s\":\"cut\n\n}{\nnot json\n{\"s\":\"\xff\"}\n{\"n\":4}{\"n\":5} x\n{\"n\":6}";
    let found = sifted(body, None, true).unwrap();
    assert_eq!(shown(&found.rows), "{\"n\":1}\n{\"n\":2}\n{\"n\":4}\n{\"n\":5}\n{\"n\":6}\n");
    assert_eq!(
        left_out(&found),
        [
            (2, None, "{\"n\":"),
            (4, None, "{\"n\":3,\"s\":\"cut"),
            (5, None, "}{"),
            (6, None, "not json"),
            (7, None, "{\"s\":\"\u{fffd}\"}"),
            (10, None, "x"),
        ]
    );
    let why: Vec<&str> = found.skipped.iter().map(|s| s.bad.message.as_str()).collect();
    assert_eq!(
        why[0],
        "not JSON: the rest of the row expected at byte 5 of the line, the end of the line found"
    );
    assert_eq!(why[2], "not JSON: an object (`{`) for each row expected at byte 0 of the line, `}` found");
    assert_eq!(why[4], "not UTF-8: byte 6 of the line is invalid");
}

/// A line in the middle of a row could be taken for a row of its own.
#[test]
fn where_rows_may_span_lines_what_is_no_json_refuses_the_body() {
    for body in [
        "{\n \"items\": [\n {\"sku\": 1}\n oops\n]}",
        "{\"a\":[{\"x\":1},\n{\"x\":2},\noops]}\n{\"a\":[]}",
        "{\"a\":\n1}\n{\"a\" 2}\n{\"a\":3}",
        "[{\"a\":1},{\"a\":}]",
        "[{\"a\":1},{\"a\":2}",
        "[{\"a\":1}]x",
        "[{\"a\":1 \n {\"a\":2}]",
    ] {
        let refused = sifted(body.as_bytes(), None, false).unwrap_err();
        assert_eq!(refused.error.kind(), Kind::Invalid, "{body}");
    }
    // If each line is declared to be a row, there is no doubt.
    let found = sifted(b"{\"a\":\n1}\n{\"a\" 2}\n{\"a\":3}", None, true).unwrap();
    assert_eq!((shown(&found.rows).as_str(), found.skipped[0].bad.row), ("{\"a\":1}\n{\"a\":3}\n", 2));
    assert_eq!(sifted(b"[{\"a\":\"\xff\"}]", None, true).unwrap_err().error.kind(), Kind::Invalid);
}

#[test]
fn too_many_columns_or_levels_are_one_bad_row() {
    let fields: Vec<String> = (0..1_200).map(|i| format!("\"c{i}\":1")).collect();
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(70), "]".repeat(70));
    let body = format!("{{\"a\":1}}\n{{{}}}\n{deep}\n{{\"b\":2}}", fields.join(","));
    let found = sifted(body.as_bytes(), None, false).unwrap();
    assert_eq!(names(&found.rows), ["a int64", "b int64"]);
    assert_eq!(found.skipped.len(), 2);
    assert_eq!(found.skipped[0].raw.len(), crate::RAW_BYTES_MAX.min(body.lines().nth(1).unwrap().len()));
}

/// For any bad lines left out, the result equals that of a body without them.
#[test]
fn the_rows_that_stay_are_those_of_a_body_without_the_others() {
    let good = [
        r#"{"n":1,"s":"a","j":{"x":[1]}}"#,
        r#"{"s":"é\n","f":1,"new":1}"#,
        r#"{"f":2.5,"n":null,"l":[1,null]}"#,
        r#"{"new":2.5,"b":true}"#,
        "{}",
    ];
    let bad = [
        r#"{"n":1.5,"x":1}"#,
        r#"{"new":"text"}"#,
        r#"{"f":1,"l":[1,"x"],"y":2}"#,
        r#"{"b":7,"s":"x"}"#,
        r#"{"s":1"#,
        r#"{"st":{"a":1}"#,
        "\"",
        r#"{"z":1,"Z":1}"#,
    ];
    let def = table(&[
        ("n", "int64"),
        ("s", "string"),
        ("f", "float64"),
        ("l", "list<int64>"),
        ("b", "bool"),
        ("j", "json"),
    ]);
    let mut seed = 7_u64;
    for round in 0..500 {
        let mut next = |n: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % n
        };
        let (mut all, mut kept, mut numbers) = (String::new(), String::new(), Vec::new());
        // The first row makes `new` a number.
        let first = format!("{}\n", good[1]);
        (all, kept) = (all + &first, kept + &first);
        for row in 2..12 {
            match next(3) {
                0 => {
                    all += bad[next(bad.len())];
                    numbers.push(row);
                }
                _ => {
                    let row = good[next(good.len())];
                    all += row;
                    kept += &format!("{row}\n");
                }
            }
            all.push('\n');
        }
        let found = sifted(all.as_bytes(), Some(&def), true).unwrap();
        let alone = read(&kept, Some(&def)).unwrap();
        assert_eq!(found.rows.batch, alone.batch, "round {round}: {all}");
        assert_eq!(found.rows.new_columns, alone.new_columns, "round {round}: {all}");
        assert_eq!(left_out(&found).iter().map(|gone| gone.0).collect::<Vec<_>>(), numbers, "{all}");
    }
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    for body in
        ["\u{feff}[{\"a\":1},{\"a\":2}]", "\u{feff}{\"a\":1}\n{\"a\":2}\n", "\u{feff} {\"a\":1}{\"a\":2}"]
    {
        assert_eq!(shown(&read(body, None).unwrap()), "{\"a\":1}\n{\"a\":2}\n");
        let target = DecodeTarget { table: "t", def: None, may_add_columns: true };
        let sifted = sift(body.as_bytes(), target, &Limits::default(), false).unwrap();
        assert_eq!((sifted.rows.batch.num_rows(), sifted.skipped.len()), (2, 0), "{body:?}");
    }
    let text = message(read("\u{feff}{\"a\":1}\n\u{feff}{\"a\":2}", None).unwrap_err());
    assert!(text.contains("row 2 is not JSON") && text.contains("at byte 11 (line 2)"), "{text}");
}

/// A text that was a time in SQL, CSV and COPY was refused in JSON rows, and numbers of seconds silently became times
/// of 1970.
#[test]
fn a_time_is_read_as_everywhere_and_a_number_by_the_unit_that_the_column_declares() {
    let mut def = types::TableDef::new(types::TableId(1), "main.t");
    for name in ["at", "s", "ms"] {
        def.add_column(name, &DataType::Timestamp, true, None).unwrap();
    }
    for (name, unit) in [("s", "epoch_s"), ("ms", "epoch_ms")] {
        let to = Some(types::EpochUnit::parse(unit).unwrap());
        def.alter(&types::AlterAction::SetInput { name: name.into(), to }).unwrap();
    }
    let target = DecodeTarget { table: "t", def: Some(&def), may_add_columns: false };
    let time = |json: &str| -> Result<i64, String> {
        let rows = decode(json.as_bytes(), target, &Limits::default()).map_err(|e| e.error.to_string())?;
        let times = rows.batch.column(0);
        let times = arrow::array::AsArray::as_primitive::<arrow::datatypes::TimestampMicrosecondType>(times);
        Ok(times.value(0))
    };
    const AT: i64 = 1_774_927_057_000_000;
    for text in [
        "2026-03-31 03:17:37+00",
        "2026-03-31 03:17:37 UTC",
        "2026-03-31T03:17:37Z",
        "2026-03-31 05:17:37 +02",
    ] {
        assert_eq!(time(&format!("{{\"at\":\"{text}\"}}")), Ok(AT), "{text}");
    }
    assert_eq!(time(r#"{"at":"2026-03-31"}"#), Ok(1_774_915_200_000_000));
    assert_eq!(time(&format!("{{\"at\":{AT}}}")), Ok(AT));
    assert_eq!(time(r#"{"s":1774927057}"#), Ok(AT));
    assert_eq!(time(r#"{"s":1774927057.25}"#), Ok(AT + 250_000));
    assert_eq!(time(r#"{"s":"2026-03-31T03:17:37Z"}"#), Ok(AT));
    assert_eq!(time(r#"{"ms":1774927057000}"#), Ok(AT));
    for (json, said) in [
        (r#"{"at":1774927057}"#, "1774927057 looks like seconds"),
        (r#"{"at":1774927057000}"#, "\"input\":\"epoch_ms\""),
        (r#"{"at":"2026-03-32"}"#, "timestamp like"),
        (r#"{"s":1e9}"#, "timestamp as epoch_s expected"),
    ] {
        let refused = time(json).unwrap_err();
        assert!(refused.contains(said), "{json}: {refused}");
    }
}
