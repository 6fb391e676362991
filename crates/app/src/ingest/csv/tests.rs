use std::io::Cursor;

use super::*;

fn dialect(text: &str) -> Dialect {
    infer(text.as_bytes(), &CsvOptions::default()).unwrap()
}

fn types(text: &str) -> Vec<String> {
    dialect(text).columns.iter().map(|(name, data_type)| format!("{name}:{data_type}")).collect()
}

fn pieces(text: &str, dialect: Dialect, position: u64) -> Csv {
    Csv::new(Box::new(Cursor::new(text.as_bytes()[position as usize..].to_vec())), dialect, position, 0)
}

#[test]
fn types_are_the_narrowest_that_hold_all_rows() {
    let text = "\
id,price,zip,flag,day,at,note,mixed,empty,big
1,1.5,01234,true,2026-01-02,2026-01-02T03:04:05Z,hello,1,,12345678901234567890
2,2,99999,FALSE,2026-01-03,2026-01-02 03:04:05.25,,x,,1
-3,1e3,00001,true,,2026-01-02,world,,,
";
    assert_eq!(
        types(text),
        [
            "id:int64",
            "price:float64",
            "zip:string",
            "flag:bool",
            "day:date",
            "at:timestamp",
            "note:string",
            "mixed:string",
            "empty:string",
            "big:string"
        ]
    );
}

/// Dates in the year 0 were inferred as times, which the table then refused.
#[test]
fn a_date_outside_the_range_of_times_is_inferred_as_text() {
    for (first, last) in [("2024-01-01", "0000-01-01"), ("2024-01-01 00:00:00", "0000-12-31T23:59:59Z")] {
        assert_eq!(types(&format!("id,d\n1,{first}\n2,{last}\n"))[1], "d:string");
        assert_ne!(types(&format!("id,d\n1,{first}\n2,{}\n", last.replace("0000", "0001")))[1], "d:string");
    }
}

#[test]
fn the_delimiter_and_the_header_are_found() {
    assert_eq!(delimiter(b"a;b;c\n1,5;2;3\n"), Some(b';'));
    assert_eq!(delimiter(b"a\tb\n1\t2\n"), Some(b'\t'));
    assert_eq!(delimiter(b"a|b\n"), Some(b'|'));
    assert_eq!(delimiter(b"word\nword\n"), None);
    assert_eq!(delimiter(b"a,b\n1\n"), None, "rows of different widths");
    assert!(dialect("a,b\n1,2\n").has_header);
    assert!(!dialect("x,1\ny,2\n").has_header);
    assert_eq!(types("x,1\ny,2\n"), ["column1:string", "column2:int64"]);
    assert_eq!(types("a,,b\n1,2,3\n")[0], "column1:string", "an empty title is no header");
}

#[test]
fn declared_types_win_over_inferred_ones() {
    let declared = CsvOptions { types: vec![("ID".into(), DataType::String)], ..CsvOptions::default() };
    let found = infer(b"id,n\n1,2\n", &declared).unwrap();
    assert_eq!(found.columns, [("id".to_owned(), DataType::String), ("n".to_owned(), DataType::Int64)]);
}

#[test]
fn two_columns_of_one_name_are_refused() {
    assert!(infer(b"a,A\n1,2\n", &CsvOptions::default()).unwrap_err().to_string().contains("two columns"));
}

#[test]
fn quoted_newlines_stay_inside_their_row() {
    let text = "id,note\n1,\"two\nlines\"\n\n2,\"say \"\"hi\"\"\"\n";
    let mut csv = pieces(text, dialect(text), 0);
    let piece = csv.next().unwrap().unwrap();
    assert_eq!((piece.rows, piece.end), (2, text.len() as u64));
    assert_eq!(csv.next().unwrap(), None);
}

#[test]
fn a_value_that_does_not_fit_names_its_line_and_the_cure() {
    let known = dialect("id,name\n1,x\n");
    let text = "id,name\n1,x\n\n2,\"y\nz\"\nthree,x\n";
    let error = pieces(text, known.clone(), 0).next().unwrap_err().to_string();
    assert!(error.contains("line 6, column `id`: `three` is not a valid int64"), "{error}");
    assert!(error.contains("--column 'id:string'"), "{error}");
    let error = pieces("id,name\n1,x,y\n", known.clone(), 0).next().unwrap_err().to_string();
    assert!(error.contains("line 2 has 3 fields where 2 are expected"), "{error}");
    let mut latin1 = b"id,name\n1,".to_vec();
    latin1.push(0xe9);
    let mut csv = Csv::new(Box::new(Cursor::new(latin1)), known, 0, 0);
    assert!(csv.next().unwrap_err().to_string().contains("not UTF-8"));
}

/// The time of day was cut off a date, and digits off a decimal. A uuid could not be read at all.
#[test]
fn nothing_is_cut_and_every_type_can_be_declared() {
    let read = |data_type: &str, text: &str| {
        let data_type = DataType::parse(data_type, &mut ColumnId(0)).unwrap();
        let known = Dialect { delimiter: b',', has_header: true, columns: vec![("x".into(), data_type)] };
        pieces(&format!("x\n{text}\n"), known, 0).next()
    };
    for (data_type, text) in [("date", "2026-01-02 03:04:05"), ("decimal(4,1)", "1.25"), ("json", "{a}")] {
        let error = read(data_type, text).unwrap_err().to_string();
        assert!(error.contains("line 2, column `x`") && error.contains("is no"), "{error}");
    }
    for (data_type, text) in [
        ("uuid", "01234567-89ab-cdef-0123-456789abcdef"),
        ("json", "\"[1]\""),
        ("list<int64>", "\"[1, 2]\""),
        ("bool", "yes"),
        ("timestamp", "2026-01-02"),
    ] {
        let piece = read(data_type, text).unwrap().unwrap();
        let target = wire::json::DecodeTarget { table: "t", def: None, may_add_columns: true };
        let rows = wire::ipc::decode(&piece.body, target, &wire::Limits::default()).unwrap();
        assert_eq!(rows.new_columns[0].data_type.to_string(), data_type);
    }
}

/// `a,b\n1,"2\n3,4\n` became one row, and the second row was lost without an error.
#[test]
fn a_quote_that_is_never_closed_names_the_line_where_it_opens() {
    let text = "a,b\n1,\"2\n3,4\n";
    let error = pieces(text, dialect(text), 0).next().unwrap_err().to_string();
    assert!(error.starts_with("line 2: a quote opens here and is never closed"), "{error}");
    // A later piece continues the line count of the earlier ones.
    let known = dialect("a,b\n1,2\n");
    let rest = Box::new(Cursor::new(b"5,6\n7,\"8\n".to_vec()));
    let error = Csv::new(rest, known, 8, 2).next().unwrap_err().to_string();
    assert!(error.starts_with("line 4: a quote opens"), "{error}");
}

#[test]
fn a_file_read_in_pieces_is_the_file_read_at_once() {
    let row = |i: u32| format!("{i},\"text {i}\n{}\"\n", "x".repeat(50));
    let text: String = std::iter::once("id,note\n".to_owned()).chain((0..120_000).map(row)).collect();
    let known = dialect(&text);
    let mut csv = pieces(&text, known.clone(), 0);
    let cut: Vec<SourcePiece> = std::iter::from_fn(|| csv.next().unwrap()).collect();
    assert!(cut.len() > 1);
    assert_eq!(cut.iter().map(|piece| piece.rows).sum::<u64>(), 120_000);
    assert_eq!(cut.last().unwrap().line, 240_001);
    assert_eq!(Dialect::from_text(&known.to_text()).unwrap(), known);
    // Reading from the end of the first piece, as after an interruption, gives the same pieces again.
    let mut resumed = pieces(&text, known, cut[0].end);
    let second = resumed.next().unwrap().unwrap();
    assert_eq!((second.rows, second.end, &second.body), (cut[1].rows, cut[1].end, &cut[1].body));
}
