use types::{ColumnId, RejectedRow, TableDef, TableId};

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

fn read(body: &[u8], def: Option<&TableDef>) -> Result<DecodedRows, RefusedBody> {
    decode(body, DecodeTarget { table: "t", def, may_add_columns: true }, &Limits::default())
}

fn types(rows: &DecodedRows) -> Vec<String> {
    rows.new_columns.iter().map(|c| format!("{} {}", c.name, c.data_type)).collect()
}

fn shown(rows: &DecodedRows) -> String {
    let mut text = Vec::new();
    out::json::Writer::new(&rows.batch.schema()).rows(&rows.batch, &mut text);
    String::from_utf8(text).unwrap()
}

fn message(refused: RefusedBody) -> String {
    refused.error.to_string()
}

#[test]
fn columns_that_the_table_lacks_get_the_narrowest_type_of_their_values() {
    let body = "\
i,f,late,b,zip,big,mixed,none,t,wide
1,1.5,,true,01234,12345678901234567890,1,,2026-11-21,9007199254740993
-2,2,x,FALSE,99999,1,x,,2026-11-22,0.5
";
    let rows = read(body.as_bytes(), None).unwrap();
    assert_eq!(
        types(&rows),
        [
            "i int64",
            "f float64",
            "late string",
            "b bool",
            "zip string",
            "big string",
            "mixed string",
            "t string",
            "wide string"
        ]
    );
    assert_eq!(
        shown(&rows).lines().next().unwrap(),
        r#"{"i":1,"f":1.5,"late":null,"b":true,"zip":"01234","big":"12345678901234567890","mixed":"1","t":"2026-11-21","wide":"9007199254740993"}"#
    );
}

#[test]
fn ends_of_lines_marks_and_quotes_change_nothing() {
    let expected = "{\"a\":1,\"b\":\"x, y\\n\\\"z\\\"\"}\n{\"a\":2,\"b\":\"\"}\n{\"a\":3,\"b\":null}\n";
    for body in [
        "a,b\n1,\"x, y\n\"\"z\"\"\"\n2,\"\"\n3,\n",
        "a,b\r\n1,\"x, y\n\"\"z\"\"\"\r\n\r\n2,\"\"\r\n3,",
        "\u{feff}a,b\n1,\"x, y\n\"\"z\"\"\"\n2,\"\"\n3,\n\n",
        "\u{feff}\"a\",\"b\"\n\"1\",\"x, y\n\"\"z\"\"\"\n\"2\",\"\"\n\"3\",\n",
    ] {
        assert_eq!(shown(&read(body.as_bytes(), None).unwrap()), expected, "{body:?}");
    }
    assert_eq!(read(b"a,b\n", None).unwrap().batch.num_rows(), 0);
    assert_eq!(read(b"a", None).unwrap().batch.num_rows(), 0);
}

/// A value in a CSV answer must mean the same in a CSV body.
#[test]
fn what_is_written_is_read_again() {
    let columns = [
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
        ("l", "list<string>"),
        ("st", "struct<a: int64 not null, b: list<string>>"),
        ("v", "vector(3)"),
        ("p", "point"),
        ("q", "point3d"),
    ];
    let def = table(&columns);
    let json = concat!(
        r#"[{"B":true,"i":-7,"n":9223372036854775807,"f":0.1,"g":1e-300,"d":"123456789012345678901234567890.12","s":"é\n, \"q\"","#,
        r#""x":"AQID","day":"2026-11-21","t":"2026-11-21T08:06:51.000001Z","u":"01234567-89ab-cdef-0123-456789abcdef","#,
        r#""j":{"k":[1,"a,b"]},"l":["x",null],"st":{"a":1,"b":["x"]},"v":[1,2,3],"p":[1.5,2],"q":[1,2,3]},"#,
        r#"{"s":"","x":"","g":0.5},{}]"#
    );
    let target = DecodeTarget { table: "t", def: Some(&def), may_add_columns: false };
    let expected = crate::json::decode(json.as_bytes(), target, &Limits::default()).unwrap();
    let schema = def.schema.to_arrow_user();
    let batch =
        arrow::record_batch::RecordBatch::try_new(schema.clone(), expected.batch.columns().to_vec()).unwrap();
    let mut csv = Vec::new();
    let mut writer = out::Writer::new(out::Format::Csv, &schema).unwrap();
    writer.begin(&mut csv);
    writer.batch(&batch, &mut csv).unwrap();
    let found = decode(&csv, target, &Limits::default()).unwrap();
    assert_eq!(found.batch, expected.batch, "{}", String::from_utf8(csv).unwrap());
}

#[test]
fn a_bad_row_is_named_with_line_and_column() {
    let def = table(&[("n", "int64"), ("s", "string")]);
    let body = "N,s\n1,a\n\n2,\"b\nc\"\nx,d\n3\n4,e\n";
    let refused = read(body.as_bytes(), Some(&def)).unwrap_err();
    let bad: Vec<_> =
        refused.rows.iter().map(|bad| (bad.row, bad.line.unwrap(), bad.column.as_deref())).collect();
    assert_eq!(bad, [(3, 6, Some("n")), (4, 7, None)]);
    let text = message(refused);
    assert!(
        text.starts_with("row 3 (line 6), column `n`: int64 expected, `x` found; 2 rows are bad"),
        "{text}"
    );
    let refused = read(b"n,s\n1,\xff\n", Some(&def)).unwrap_err();
    assert!(message(refused).contains("row 1 (line 2), column `s`: not UTF-8"));
    let many: String = "n\n".to_owned() + &"x\n".repeat(50);
    let refused = read(many.as_bytes(), Some(&def)).unwrap_err();
    assert_eq!(refused.rows.len(), 10);
    assert!(message(refused).contains("10 or more rows are bad"));
}

#[test]
fn an_empty_line_that_is_a_row_counts_as_the_line_that_it_is() {
    let mut reader = Reader::new(&b"1\n\n\r\n2\n"[..], b',', 0);
    reader.take_empty_lines();
    let mut lines = Vec::new();
    while let Some(record) = reader.read().unwrap() {
        lines.push(record.line);
    }
    assert_eq!(lines, [1, 2, 3, 4]);
}

/// The error named `row 2 (line 4)`, but the row was in line 3.
#[test]
fn a_row_that_the_table_refuses_is_named_with_its_line_also_where_that_is_empty() {
    for body in ["n\n1\n\n2\n", "n\r\n1\r\n\r\n2\r\n"] {
        let target = DecodeTarget { table: "t", def: Some(&table(&[("n", "int64")])), may_add_columns: true };
        let sifted = sift(body.as_bytes(), target, &Limits::default()).unwrap();
        let unfit = [1, 2].map(|row| RejectedRow { row, column: None, message: "no".into() }).into();
        let refused = sifted.refuse(body.as_bytes(), unfit, &Limits::default()).unwrap().unwrap();
        let lines: Vec<_> = refused.rows.iter().map(|bad| (bad.row, bad.line)).collect();
        assert_eq!(lines, [(2, Some(3)), (3, Some(4))]);
    }
}

/// A body of 64 MiB of line feeds took a gigabyte of memory.
#[test]
fn very_many_empty_lines_are_refused() {
    let text = "\n".repeat(3 << 20);
    let mut reader = Reader::new(text.as_bytes(), b',', 0);
    reader.take_empty_lines();
    assert_eq!(reader.read().err().unwrap().error.kind(), Kind::TooLarge);
}

#[test]
fn a_first_line_that_names_no_columns_is_refused() {
    let def = table(&[("n", "int64")]);
    for (body, part) in [
        (&b""[..], "no line"),
        (b"\n\n", "no line"),
        (b"n,N\n1,2\n", "column `N`: the column is given twice"),
        (b"n,\n1,2\n", "it is empty"),
        (b"n,_row_id\n1,2\n", "names starting with `_` belong to Polynya"),
        (b"n,\xff\n", "not UTF-8"),
    ] {
        let text = message(read(body, Some(&def)).unwrap_err());
        assert!(text.contains(part), "{body:?}: {text}");
    }
    let target = DecodeTarget { table: "t", def: Some(&def), may_add_columns: false };
    let text = message(decode(b"n,m\n1,2\n", target, &Limits::default()).unwrap_err());
    assert!(text.contains("column `m`: the table has no such column"), "{text}");
    let names: Vec<String> = (0..1_100).map(|i| format!("c{i}")).collect();
    let text = message(read(names.join(",").as_bytes(), None).unwrap_err());
    assert!(text.contains("more than 1000 columns"), "{text}");
}

#[test]
fn a_quote_that_is_never_closed_is_refused() {
    let text = message(read(b"a,b\n1,\"2\n3,4\n", None).unwrap_err());
    assert!(text.starts_with("line 2: a quote opens here and is never closed"), "{text}");
}

/// CSV readers silently turn these into two rows and into a joined text.
#[test]
fn a_carriage_return_alone_and_text_behind_a_quote_are_refused() {
    for (body, told) in [
        (&b"a\nfoo\rbar\n"[..], "line 2: a carriage return without a line feed"),
        (b"a\n\"x\"y\n", "line 2: text follows the quote that closes a field"),
    ] {
        let text = message(read(body, None).unwrap_err());
        assert!(text.starts_with(told), "{text}");
        let target = DecodeTarget { table: "t", def: None, may_add_columns: true };
        assert!(message(sift(body, target, &Limits::default()).unwrap_err()).starts_with(told));
    }
    assert_eq!(shown(&read(b"a\r\n\"x\ry\"\r\n", None).unwrap()), "{\"a\":\"x\\ry\"}\n");
}

#[test]
fn few_bytes_cannot_become_much_memory() {
    let def = table(&[("v", "vector(65536)"), ("n", "int64")]);
    for body in ["v\n".to_owned() + &"\"\"\n".repeat(5_000), "n\n".to_owned() + &"1\n".repeat(5_000)] {
        let refused = read(body.as_bytes(), Some(&def)).unwrap_err();
        assert_eq!(refused.error.kind(), Kind::TooLarge, "{}", refused.error);
    }
}
