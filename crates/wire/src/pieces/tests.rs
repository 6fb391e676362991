use std::sync::Arc;

use ::arrow::array::{ArrayRef, DictionaryArray, Int64Array, RecordBatch, StringArray};
use ::arrow::datatypes::Int32Type;
use ::arrow::ipc::writer::StreamWriter;

use super::*;
use crate::{
    DecodeTarget, DecodedRows, Limits, RefusedBody, csv as wire_csv, ipc, json as wire_json, out,
    protobuf as wire_proto,
};

/// A reader that returns a few bytes at a time, in varying numbers.
struct SmallReads<'a> {
    rest: &'a [u8],
    seed: usize,
}

impl Read for SmallReads<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.seed = self.seed.wrapping_mul(31).wrapping_add(7);
        let count = (1 + self.seed % 13).min(bytes.len()).min(self.rest.len());
        bytes[..count].copy_from_slice(&self.rest[..count]);
        self.rest = &self.rest[count..];
        Ok(count)
    }
}

const LINES: StreamFormat = StreamFormat::Json { lines: true };
const VALUES: StreamFormat = StreamFormat::Json { lines: false };

fn cut(
    form: StreamFormat,
    stream: &[u8],
    piece_bytes: usize,
    row_bytes_max: usize,
) -> Result<Vec<StreamPiece>> {
    let source = SmallReads { rest: stream, seed: piece_bytes };
    let mut pieces = Pieces::of(form, source, piece_bytes, row_bytes_max);
    let mut all = Vec::new();
    while let Some(piece) = pieces.next()? {
        all.push(piece);
    }
    assert_eq!(pieces.next()?, None, "the end stays the end");
    Ok(all)
}

fn decode(form: StreamFormat, body: &[u8], before: StreamOffset) -> Result<DecodedRows, RefusedBody> {
    let target = DecodeTarget { table: "t", def: None, may_add_columns: true };
    let limits = Limits { before, ..Limits::default() };
    match form {
        StreamFormat::Json { .. } => wire_json::decode(body, target, &limits),
        StreamFormat::Csv => wire_csv::decode(body, target, &limits),
        StreamFormat::Arrow => ipc::decode(body, target, &limits),
        StreamFormat::Protobuf => wire_proto::decode(body, target, &limits),
    }
}

fn shown(rows: &DecodedRows) -> String {
    let mut text = Vec::new();
    out::json::Writer::new(&rows.batch.schema()).rows(&rows.batch, &mut text);
    String::from_utf8(text).unwrap()
}

/// Returns the rows of all pieces, or the error of the first bad one.
fn rows(form: StreamFormat, stream: &[u8], piece_bytes: usize) -> Result<String, String> {
    let (mut text, mut count) = (String::new(), 0);
    let mut pieces = Pieces::of(form, SmallReads { rest: stream, seed: piece_bytes }, piece_bytes, 10_000);
    while let Some(piece) = pieces.next().map_err(|e| e.to_string())? {
        let before = StreamOffset { rows: count, ..piece.before };
        let rows = decode(form, &piece.body, before).map_err(|refused| refused.error.to_string())?;
        count += rows.batch.num_rows();
        text += &shown(&rows);
    }
    Ok(text)
}

#[test]
fn pieces_of_json_together_are_the_stream() {
    let row = |n: usize| {
        format!("{{\"n\":{n},\"s\":\"{}\",\"j\":{{\"é\":[\"}}\",\"\\\"\"]}}}}", "x".repeat(n % 40))
    };
    let all: Vec<String> = (0..200).map(row).collect();
    let expected = shown(&decode(VALUES, all.join("\n").as_bytes(), StreamOffset::default()).unwrap());
    for (form, body) in [
        (LINES, all.join("\n")),
        (LINES, all.join("\r\n\n") + "\n\n"),
        (LINES, format!("\u{feff}{}", all.join("\n"))),
        (LINES, format!("\n [{}]\n", all.join(","))),
        (VALUES, all.join("\n")),
        (VALUES, all.join("")),
        (VALUES, all.join(" \n\n ").replace("\"s\"", "\n \"s\"")),
        (VALUES, format!("[{}]", all.join(","))),
        (VALUES, format!("\u{feff} [ {}\n]\n ", all.join("\n,\n").replace(":{", ":\n{"))),
    ] {
        for piece_bytes in [1, 60, 500, 4_000, 1 << 20] {
            let found = rows(form, body.as_bytes(), piece_bytes).unwrap();
            assert_eq!(found.replace("\\n", ""), expected, "{piece_bytes}: {}", &body[..80]);
            let pieces = cut(form, body.as_bytes(), piece_bytes, 10_000).unwrap();
            assert_eq!(pieces.len() == 1, piece_bytes == 1 << 20, "{piece_bytes}");
        }
    }
    for empty in ["", " \n", "[]", " [ ] "] {
        assert_eq!(rows(VALUES, empty.as_bytes(), 10).unwrap(), "", "{empty}");
    }
}

#[test]
fn what_is_no_json_is_pointed_at_where_it_stands_in_the_stream() {
    let good = "{\"a\":1}\n".repeat(50);
    for (form, body, said) in [
        (
            LINES,
            format!("{good}{{\"a\":}}\n{good}"),
            "row 51 is not JSON: a value expected at byte 405 (line 51), `}` found",
        ),
        (
            VALUES,
            format!("{good}{{\"a\":}}\n{good}"),
            "row 51 is not JSON: a value expected at byte 405 (line 51), `}` found",
        ),
        (
            VALUES,
            format!("{good}{{\"a\":\"b"),
            "row 51 is not JSON: the end of the string expected at byte 407 (line 51), the end of the body found",
        ),
        (
            VALUES,
            format!("{good}7\n"),
            "row 51 is not JSON: an object (`{`) for each row expected at byte 400 (line 51), `7` found",
        ),
        (
            VALUES,
            format!("[{}{{\"a\":}}]", "{\"a\":1},\n".repeat(50)),
            "not JSON: a value expected at byte 456 (line 51), `}` found",
        ),
        (
            VALUES,
            format!("[{}{{}}", "{},".repeat(50)),
            "not JSON: `,` or `]` expected at byte 153 (line 1), the end of the body found",
        ),
        (
            VALUES,
            format!("[{}{{}} {{}}]", "{},".repeat(50)),
            "not JSON: `,` or `]` expected at byte 154 (line 1), `{` found",
        ),
        (
            VALUES,
            "[{}] x".into(),
            "not JSON: the end of the body after `]` expected at byte 5 (line 1), `x` found",
        ),
        (VALUES, "[{},".into(), "not JSON: a value expected at byte 4 (line 1), the end of the body found"),
        (
            VALUES,
            "{\n \"a\": 1\n}\n{\n \"a\": oops\n}\n".into(),
            "not JSON: a value expected at byte 20 (line 5), `o` found",
        ),
    ] {
        for piece_bytes in [1, 64, 1 << 20] {
            let found = rows(form, body.as_bytes(), piece_bytes).unwrap_err();
            assert!(found.contains(said), "{piece_bytes}: {found} / {said}");
        }
    }
    // Row numbers continue from piece to piece, and count skipped rows too.
    let body = format!("{good}{{\"a\":\"x\"}}\n{good}{{\"a\":{{}}}}\n");
    let mut def = types::TableDef::new(types::TableId(1), "main.t");
    def.add_column("a", &types::DataType::Int64, true, None).unwrap();
    let target = DecodeTarget { table: "t", def: Some(&def), may_add_columns: true };
    let (mut count, mut bad) = (0, Vec::new());
    for piece in cut(LINES, body.as_bytes(), 64, 10_000).unwrap() {
        let limits = Limits { before: StreamOffset { rows: count, ..piece.before }, ..Limits::default() };
        let sifted = wire_json::sift(&piece.body, target, &limits, piece.lines).unwrap();
        count += sifted.rows.batch.num_rows() + sifted.skipped.len();
        bad.extend(sifted.skipped.iter().map(|skipped| skipped.bad.row));
    }
    assert_eq!((count, bad), (102, vec![51, 102]));
    let found = rows(VALUES, b"{\"a\":1}\n{\"a\":\"\xff\"}\n", 8).unwrap_err();
    assert!(found.contains("not UTF-8: byte 14"), "{found}");
    let found = rows(VALUES, b"[{\"a\":1},{\"a\":\"\xff\"}]", 8).unwrap_err();
    assert!(found.contains("UTF-8 expected at byte 15"), "{found}");
}

/// A line of invalid JSON becomes a piece of its own, which can be skipped. If objects span lines, this is not
/// possible.
#[test]
fn a_broken_line_among_objects_is_a_piece_of_its_own() {
    let body = b"{\"a\":1}\n{\"a\":2}\nbroken\n{\"a\":\"cut\n{\"a\":3}\n";
    let target = DecodeTarget { table: "t", def: None, may_add_columns: true };
    for piece_bytes in [1, 20, 1 << 20] {
        let (mut text, mut gone) = (String::new(), Vec::new());
        for piece in cut(VALUES, body, piece_bytes, 1_000).unwrap() {
            let limits = Limits { before: piece.before, ..Limits::default() };
            let sifted = wire_json::sift(&piece.body, target, &limits, piece.lines).unwrap();
            text += &shown(&sifted.rows);
            gone.extend(sifted.skipped.into_iter().map(|skipped| skipped.raw));
        }
        assert_eq!(
            (text.as_str(), gone),
            ("{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n", vec!["broken".to_owned(), "{\"a\":\"cut".to_owned()])
        );
    }
}

#[test]
fn pieces_of_csv_together_are_the_stream() {
    let record = |n: usize| match n % 4 {
        0 => format!("{n},\"a, \"\"b\"\"\nc\""),
        1 => format!("{n},"),
        2 => format!("{n},\"\""),
        _ => format!("{n}, {}", "x".repeat(n)),
    };
    for end in ["\n", "\r\n", "\n\n"] {
        let all: Vec<String> = (0..100).map(record).collect();
        for body in [
            format!("n,s{end}{}", all.join(end)),
            format!("\u{feff}{end}\"n\",s{end}{}{end}", all.join(end)),
            format!("\"n\",\"s\"{end}{}{end}{end}", all.join(end)),
        ] {
            let expected = shown(
                &decode(
                    StreamFormat::Csv,
                    body.trim_start_matches('\u{feff}').as_bytes(),
                    StreamOffset::default(),
                )
                .unwrap(),
            );
            // A piece lacks the columns that are null in all of its rows.
            let without_nulls = |rows: &str| rows.replace(",\"s\":null", "");
            for piece_bytes in [1, 50, 700, 1 << 20] {
                let found = rows(StreamFormat::Csv, body.as_bytes(), piece_bytes).unwrap();
                assert_eq!(without_nulls(&found), without_nulls(&expected), "{piece_bytes} {body:?}");
            }
            // Errors name the rows by their position in the stream.
            let bad = format!("{body}{end}100,x,y{end}");
            let whole = rows(StreamFormat::Csv, bad.as_bytes(), 1 << 20).unwrap_err();
            for piece_bytes in [1, 50, 700] {
                assert_eq!(
                    rows(StreamFormat::Csv, bad.as_bytes(), piece_bytes).unwrap_err(),
                    whole,
                    "{piece_bytes} {bad:?}"
                );
            }
        }
    }
    for (body, said) in [
        ("n,s\n1,a\n2,\"b\n3,c\n", "line 3: a quote opens here and is never closed"),
        ("n,N\n", "the column is given twice"),
        ("n,N", "the column is given twice"),
    ] {
        assert!(rows(StreamFormat::Csv, body.as_bytes(), 4).unwrap_err().contains(said), "{body}");
    }
    assert_eq!(rows(StreamFormat::Csv, b"a,b", 4).unwrap(), "");
    assert!(cut(StreamFormat::Csv, b"", 4, 100).unwrap()[0].body.is_empty());
}

fn stream(batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.into_inner().unwrap()
}

#[test]
fn pieces_of_arrow_together_are_the_stream() {
    let batch = |n: i64, words: [&str; 2]| {
        let keys = ::arrow::array::Int32Array::from(vec![0, 1, 0]);
        let words =
            DictionaryArray::<Int32Type>::try_new(keys, Arc::new(StringArray::from(words.to_vec()))).unwrap();
        RecordBatch::try_from_iter([
            ("n", Arc::new(Int64Array::from(vec![n, n + 1, n + 2])) as ArrayRef),
            ("word", Arc::new(words)),
        ])
        .unwrap()
    };
    // Each batch has a different dictionary.
    let batches = [batch(0, ["a", "b"]), batch(3, ["c", "d"]), batch(6, ["e", "f"])];
    let whole = stream(&batches);
    let expected = shown(&decode(StreamFormat::Arrow, &whole, StreamOffset::default()).unwrap());
    assert_eq!(expected.lines().count(), 9);
    for piece_bytes in [1, 1_000, 1 << 20] {
        assert_eq!(rows(StreamFormat::Arrow, &whole, piece_bytes).unwrap(), expected, "{piece_bytes}");
    }
    assert_eq!(
        rows(StreamFormat::Arrow, &whole[..whole.len() - 8], 1).unwrap(),
        expected,
        "without the mark of the end"
    );
    assert_eq!(cut(StreamFormat::Arrow, &whole, 1, 10_000).unwrap().len(), 3);
    for end in 1..whole.len() - 8 {
        // A stream cut between two messages looks like one that ends there.
        if let Ok(rows) = rows(StreamFormat::Arrow, &whole[..end], 1) {
            assert!(expected.starts_with(&rows) && rows.len() < expected.len(), "{end}");
        }
    }
    let error = rows(StreamFormat::Arrow, &[&whole[..], b"more"].concat(), 1).unwrap_err();
    assert!(error.contains("something follows its end"), "{error}");
    assert_eq!(cut(StreamFormat::Arrow, &whole, 1, 200).unwrap_err().kind(), Kind::TooLarge);
    assert!(cut(StreamFormat::Arrow, b"", 1, 200).unwrap().is_empty());
}

#[test]
fn no_flipped_byte_of_an_arrow_stream_panics() {
    let whole =
        stream(&[
            RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef)]).unwrap()
        ]);
    for at in 0..whole.len() {
        for bit in [0x01, 0x80] {
            let mut flipped = whole.clone();
            flipped[at] ^= bit;
            let _ = rows(StreamFormat::Arrow, &flipped, 1);
        }
    }
}

#[test]
fn pieces_of_protobuf_together_are_the_stream() {
    // Rows { columns: ["n"], rows: [Row { values: [Value { int64 }] }, …] }
    let row = |n: u8| vec![0x12, 0x04, 0x0a, 0x02, 0x18, n];
    let mut whole = vec![0x0a, 0x01, b'n'];
    (1..100).for_each(|n| whole.extend(row(n)));
    let expected: String = (1..100).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    for piece_bytes in [1, 50, 1 << 20] {
        assert_eq!(rows(StreamFormat::Protobuf, &whole, piece_bytes).unwrap(), expected, "{piece_bytes}");
    }
    for end in 0..whole.len() {
        match rows(StreamFormat::Protobuf, &whole[..end], 10) {
            Ok(rows) => assert!(expected.starts_with(&rows) && rows.len() < expected.len(), "{end}"),
            Err(error) => assert!(error.contains("not a message `Rows`"), "{end}: {error}"),
        }
    }
    let error = rows(StreamFormat::Protobuf, &[&whole[..], &[0x0a, 0x01, b'm']].concat(), 1).unwrap_err();
    assert!(error.contains("columns must come before the rows"), "{error}");
    let huge = [0x12, 0xff, 0xff, 0xff, 0xff, 0x0f];
    assert_eq!(cut(StreamFormat::Protobuf, &huge, 1, 200).unwrap_err().kind(), Kind::TooLarge);
}

#[test]
fn a_row_that_never_ends_is_refused_before_it_takes_much_memory() {
    let long = "x".repeat(5_000);
    for (form, body) in [
        (LINES, format!("{{\"a\":1}}\n{{\"a\":\"{long}")),
        (VALUES, format!("{{\"a\":1}}\n{{\"a\":\"{long}")),
        (VALUES, format!("[{{\"a\":1}},{{\"a\":\"{long}")),
        (StreamFormat::Csv, format!("a\n1\n\"{long}")),
        (StreamFormat::Csv, format!("a{long}")),
    ] {
        let error = cut(form, body.as_bytes(), 100, 1_000).unwrap_err();
        assert_eq!(error.kind(), Kind::TooLarge, "{error}");
    }
}

/// A short row needs much memory if its table has many columns: such a stream was refused no matter how it was cut.
#[test]
fn a_piece_that_takes_too_much_is_divided_down_to_single_rows() {
    let mut def = types::TableDef::new(types::TableId(1), "main.t");
    def.add_column("n", &types::DataType::Int64, true, None).unwrap();
    def.add_column("s", &types::DataType::String, true, None).unwrap();
    def.add_column("wide", &types::DataType::Vector(1_000), true, None).unwrap();
    let target = DecodeTarget { table: "t", def: Some(&def), may_add_columns: false };
    let decode = |form, piece: &StreamPiece, rows, decoded_bytes_max| {
        let before = StreamOffset { rows, ..piece.before };
        let limits = Limits { decoded_bytes_max, before, part: piece.part, ..Limits::default() };
        match form {
            StreamFormat::Json { .. } => wire_json::decode(&piece.body, target, &limits),
            StreamFormat::Csv => wire_csv::decode(&piece.body, target, &limits),
            StreamFormat::Arrow => ipc::decode(&piece.body, target, &limits),
            StreamFormat::Protobuf => wire_proto::decode(&piece.body, target, &limits),
        }
    };
    let objects = |bad: &str| -> Vec<String> {
        (0..100).map(|n| format!("{{\"n\":{}}}", if n == 90 { bad.into() } else { n.to_string() })).collect()
    };
    let csv = |bad: &str| -> String {
        let row = |n: usize| format!("{}\n", if n == 90 { bad.into() } else { n.to_string() });
        "n\n".to_owned() + &(0..100).map(row).collect::<String>()
    };
    let words = Arc::new(StringArray::from(vec!["a", "b"]));
    let batch = |from: i64, to: i64| {
        let keys = ::arrow::array::Int32Array::from_iter_values((from..to).map(|n| n as i32 % 2));
        let words = DictionaryArray::<Int32Type>::try_new(keys, words.clone()).unwrap();
        let n = Arc::new(Int64Array::from_iter_values(from..to)) as ArrayRef;
        RecordBatch::try_from_iter([("n", n), ("s", Arc::new(words))]).unwrap()
    };
    let row = |n: u8| vec![0x12, 0x04, 0x0a, 0x02, 0x18, n];
    let protobuf = [vec![0x0a, 0x01, b'n'], (0..100).flat_map(row).collect()].concat();
    let mut bodies = vec![
        (StreamFormat::Arrow, stream(&[batch(0, 100)])),
        (StreamFormat::Arrow, stream(&[batch(0, 1), batch(1, 99), batch(99, 100)])),
        (StreamFormat::Protobuf, protobuf),
    ];
    for bad in ["90", "\"x\""] {
        let objects = objects(bad);
        bodies.push((LINES, objects.join("\n").into_bytes()));
        bodies.push((VALUES, format!("\u{feff}{}", objects.join("\n\n")).into_bytes()));
        bodies.push((VALUES, format!("[{}]", objects.join(",\n")).into_bytes()));
        bodies.push((StreamFormat::Csv, csv(bad).into_bytes()));
    }
    for (form, body) in bodies {
        let all = cut(form, &body, 1 << 20, 1 << 20).unwrap();
        assert_eq!(all.len(), 1, "{form:?}");
        let whole = decode(form, &all[0], 0, usize::MAX);
        let whole = whole.map(|rows| shown(&rows)).map_err(|refused| refused.error.to_string());
        // The limits allow some rows, and one row.
        for bytes_max in [50_000, 6_000] {
            let mut left = all.clone();
            let (mut text, mut count, mut found) = (String::new(), 0, None);
            while let Some(piece) = left.pop() {
                match decode(form, &piece, count, bytes_max) {
                    Ok(rows) => {
                        count += rows.batch.num_rows();
                        text += &shown(&rows);
                    }
                    Err(refused) if refused.error.kind() == Kind::TooLarge => {
                        let smaller = piece.divided(form).unwrap();
                        assert!(smaller.len() > 1, "{form:?} {piece:?}");
                        left.extend(smaller.into_iter().rev());
                    }
                    Err(refused) => {
                        assert!(text.lines().count() >= 80, "{form:?}: {text}");
                        found = Some(refused.error.to_string());
                        break;
                    }
                }
            }
            assert_eq!(found.map_or(Ok(text), Err), whole, "{form:?} {bytes_max}");
        }
        // A single row cannot be divided further.
        let mut piece = all[0].clone();
        while let Some(first) =
            piece.divided(form).unwrap().into_iter().next().filter(|first| *first != piece)
        {
            piece = first;
        }
        let one = decode(form, &piece, 0, usize::MAX).unwrap();
        assert_eq!(one.batch.num_rows(), 1, "{form:?}");
        assert!(decode(form, &piece, 0, 1_000).is_err());
    }
}

/// A line that begins with `[` is a bad row wherever the stream is cut, and not an array of rows.
#[test]
fn no_line_of_a_half_is_taken_for_an_array() {
    let mut def = types::TableDef::new(types::TableId(1), "main.t");
    def.add_column("id", &types::DataType::Int64, true, None).unwrap();
    let target = DecodeTarget { table: "t", def: Some(&def), may_add_columns: false };
    let of =
        |piece: &StreamPiece| Limits { before: piece.before, among_rows: piece.lines, ..Limits::default() };
    let rows: Vec<String> = (0..9).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    let body = format!("{}[1,2,3,44]\n[{{\"id\":7}}]\n[1,2,3,45]\n{}", rows.concat(), rows.concat());
    let mut left = cut(LINES, body.as_bytes(), 1 << 20, 1 << 20).unwrap();
    let (mut text, mut gone, mut singles) = (String::new(), Vec::new(), 0);
    while let Some(piece) = left.pop() {
        let sifted = wire_json::sift(&piece.body, target, &of(&piece), piece.lines).unwrap();
        if sifted.rows.batch.num_rows() + sifted.skipped.len() > 1 {
            left.extend(piece.divided(LINES).unwrap().into_iter().rev());
            continue;
        }
        text += &shown(&sifted.rows);
        gone.extend(sifted.skipped.into_iter().map(|skipped| skipped.raw));
        singles += 1;
        let decoded = wire_json::decode(&piece.body, target, &of(&piece));
        assert_eq!(decoded.is_err(), piece.body.starts_with(b"["), "{piece:?}");
    }
    assert_eq!((text, singles), (rows.concat().repeat(2), 21));
    assert_eq!(gone, ["[1,2,3,44]", "[{\"id\":7}]", "[1,2,3,45]"]);
}

#[test]
fn a_piece_of_two_rows_has_two_halves() {
    let long = "x".repeat(1_000);
    for (form, first, last) in [
        (LINES, "{}\n".to_owned(), "{}".to_owned()),
        (LINES, "{}\n".into(), "\n{}\n".into()),
        (LINES, format!("{{\"s\":\"{long}\"}}\n"), "{}".into()),
        (LINES, "{}\n".into(), format!("{{\"s\":\"{long}\"}}")),
        (StreamFormat::Csv, "1\n".into(), "2\n".into()),
        (StreamFormat::Csv, format!("\"{long}\n\"\n"), "2\n".into()),
        (StreamFormat::Csv, "1\n".into(), format!("{long}\n")),
    ] {
        let header = if form == StreamFormat::Csv { "s\n" } else { "" };
        let pieces = cut(form, format!("{header}{first}{last}").as_bytes(), 1 << 20, 1 << 20).unwrap();
        assert_eq!(pieces.len(), 1);
        let bodies: Vec<Bytes> = pieces[0].divided(form).unwrap().into_iter().map(|half| half.body).collect();
        assert_eq!(
            bodies,
            [format!("{header}{first}"), format!("{header}{}", last.trim_start())],
            "{form:?}"
        );
    }
}
