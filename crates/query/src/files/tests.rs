use super::*;

fn read(text: &str) -> Result<Option<Copy>> {
    parse_copy(text, 1_000)
}

#[test]
fn copy_is_read_and_nothing_else_is_taken_for_one() {
    assert_eq!(read("select 1").unwrap(), None);
    assert_eq!(read("co").unwrap(), None);
    assert_eq!(read("-- copy t to 'x'\nselect 1").unwrap(), None);
    let to = read(" copy t (a, \"B c\") to '/x/y.csv' with (header, delimiter ';', null '-') allowoverwrite")
        .unwrap()
        .unwrap();
    assert_eq!(to.direction, CopyDirection::To { query: "SELECT a, \"B c\" FROM t".into() });
    assert_eq!(
        (to.format, to.header, to.delimiter, to.null.as_str(), to.overwrite),
        (Format::Csv, true, ';', "-", true)
    );
    let from = read("-- why\nCOPY main.\"T\" FROM 'rows.jsonl';").unwrap().unwrap();
    assert_eq!(from.direction, CopyDirection::From { table: "main.T".into(), columns: vec![] });
    assert_eq!((from.format, from.overwrite), (Format::Ndjson, false));
    assert_eq!(read("copy (select 1) to 'a' (format parquet)").unwrap().unwrap().format, Format::Parquet);
    for text in [
        "copy t to stdin",
        "copy t from stdout",
        "copy t from program 'ls'",
        "copy t to 'x' (format xml)",
        "copy t to 'x' (freeze)",
        "copy t from stdin;\n1\t2\n\\.",
        "copy t to stdout (null ',')",
        "copy t to stdout (null 'a\"')",
    ] {
        assert!(read(text).is_err(), "{text}");
    }
}

#[test]
fn streams_need_no_semicolon_and_may_have_one() {
    for end in ["", ";", " ;\n", " -- all of it", "/* all */;"] {
        let text = format!("copy t (a) from stdin with (format ndjson){end}");
        let from = read(&text).unwrap().unwrap();
        assert_eq!((from.endpoint, from.format), (CopyEndpoint::Stream, Format::Ndjson), "{text}");
        let to = read(&format!("copy t to stdout{end}")).unwrap().unwrap();
        assert_eq!((to.endpoint, to.format), (CopyEndpoint::Stream, Format::Csv));
    }
}

/// The writes would stay even if the file could not be made.
#[test]
fn a_query_that_writes_is_not_copied() {
    for query in [
        "delete from t returning *",
        "insert into t values (1) returning a",
        "update t set a = 1 returning a",
        "with gone as (delete from t returning a) select * from gone",
    ] {
        for place in ["'x.csv'", "stdout"] {
            let refused = read(&format!("copy ({query}) to {place}")).unwrap_err().to_string();
            assert!(refused.contains("this one writes"), "{query}: {refused}");
        }
    }
}

/// The statement that a command sends for a file means the same as the statement about the file.
#[test]
fn the_streamed_statement_says_the_same_of_a_stream() {
    for text in [
        "copy t to 'x.parquet'",
        "copy main.\"T\" (a, \"B c\") from 'in.ndjson'",
        "copy (select 'it''s', E'a\\'b', \"x\"\"y\" from t as of lsn 3 where s <> ';') to 'out' with (header, delimiter E'\\t', null '''')",
        "copy t from 'x' (header, delimiter ';', null '\\N')",
    ] {
        let (copy, sent) = parse_streamed_copy(text, 1_000).unwrap().unwrap();
        let understood = parse_copy(&sent, 1_000).unwrap().unwrap();
        assert_eq!(understood, Copy { endpoint: CopyEndpoint::Stream, overwrite: false, ..copy }, "{sent}");
    }
    assert_eq!(parse_streamed_copy("select 1", 1_000).unwrap(), None);
}
