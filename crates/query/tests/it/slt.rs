//! Runs `tests/slt/*.slt`, each over an empty database.
//!
//! ```text
//! # comment
//! statement ok               the statement succeeds
//! statement count 3          and changes three rows
//! statement error near       it fails, and the error's text holds `near`
//! query [rowsort] [header]   its rows, cells separated by ` | `; sorted; the column names and types first
//! select 1
//! ----
//! 1
//! ```
//! Records are separated by empty lines. With `POLYNYA_SLT_UPDATE=1` the expected rows are rewritten.

use std::fmt::Write as _;
use std::path::PathBuf;

use query::{Answer, Limits};

use crate::database::{Database, open, texts};

macro_rules! files {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            let _limit = testkit::limit(240);
            run_file(concat!(stringify!($name), ".slt"));
        }
    )*

        #[test]
        fn every_file_is_run() {
            let mut found: Vec<String> = std::fs::read_dir(folder())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            found.sort();
            let mut listed = vec![$(concat!(stringify!($name), ".slt")),*];
            listed.sort();
            assert_eq!(found, listed);
        }
    };
}

files!(
    select,
    merged_columns,
    sets,
    grouping_sets,
    row_values,
    same_names,
    data_types,
    identifiers,
    system_columns,
    writing,
    returning,
    on_conflict,
    update_from,
    creating,
    altering,
    views,
    errors,
    information,
    comparing,
    constants,
    guards,
    nulls,
    indexes,
    overflow,
    recursive,
    values_of_queries,
    windows,
    order_by,
    dependent_queries,
    scopes,
    shapes,
    series,
    time,
    far_times,
    patterns,
    lists,
    bytes,
    casts,
    misread,
    standard,
    unique,
    zeros
);

fn folder() -> PathBuf {
    testkit::package().join("tests/slt")
}

fn run_file(name: &str) {
    let path = folder().join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let database = open();
    let mut written = String::new();
    let mut failures = String::new();
    let mut line = 1;
    for record in text.split("\n\n") {
        let first = line;
        line += record.matches('\n').count() + 2;
        let record = record.trim_matches('\n');
        if record.is_empty() {
            continue;
        }
        match run_record(&database, record) {
            Ok(actual) => writeln!(written, "{actual}\n").unwrap(),
            Err(why) => {
                writeln!(failures, "{name}, record at line {first}: {why}\n{record}\n").unwrap();
                writeln!(written, "{record}\n").unwrap();
            }
        }
    }
    let written = format!("{}\n", written.trim_end());
    if std::env::var_os("POLYNYA_SLT_UPDATE").is_some() {
        std::fs::write(&path, &written).unwrap();
    } else {
        for (i, (was, is)) in text.lines().zip(written.lines()).enumerate() {
            if was != is {
                writeln!(failures, "{name}, line {}: expected `{was}`, found `{is}`", i + 1).unwrap();
            }
        }
        if text.lines().count() != written.lines().count() {
            writeln!(failures, "{name}: other number of rows; found\n{written}").unwrap();
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// Runs a record; returns it with the actual rows in place of the expected ones.
fn run_record(database: &Database, record: &str) -> Result<String, String> {
    let comments: String =
        record.lines().take_while(|l| l.starts_with('#')).map(|l| format!("{l}\n")).collect();
    let body = &record[comments.len().min(record.len())..];
    if body.is_empty() {
        return Ok(record.to_owned());
    }
    let (command, rest) = body.split_once('\n').ok_or("a statement is missing")?;
    let (sql, _) = rest.split_once("\n----").unwrap_or((rest, ""));
    let answer = database.run(sql, Vec::new(), Limits::default());
    let mut words = command.splitn(3, ' ');
    match (words.next(), words.next(), words.next()) {
        (Some("statement"), Some("ok"), None) => answer.map(|_| record.to_owned()).map_err(|e| e.to_string()),
        (Some("statement"), Some("count"), Some(count)) => match answer {
            Ok(Answer::Done(done)) if done.count.to_string() == count => Ok(record.to_owned()),
            other => Err(format!("{count} rows expected, {other:?} found")),
        },
        (Some("statement"), Some("error"), Some(part)) => {
            let error = match answer {
                Ok(Answer::Rows(mut rows)) => database.runtime.block_on(rows.collect()).err(),
                Ok(Answer::Done(_)) => None,
                Err(error) => Some(error),
            };
            let text = error.ok_or("an error expected")?.to_string();
            if text.contains(part) {
                Ok(record.to_owned())
            } else {
                Err(format!("`{part}` expected in `{text}`"))
            }
        }
        (Some("query"), ..) => {
            let Answer::Rows(mut rows) = answer.map_err(|e| e.to_string())? else {
                return Err("rows expected".into());
            };
            let header: Vec<String> =
                rows.columns().iter().map(|c| format!("{}: {}", c.name, c.data_type)).collect();
            let batches = database.runtime.block_on(rows.collect()).map_err(|e| e.to_string())?;
            let mut lines: Vec<String> = texts(&batches).iter().map(|row| row.join(" | ")).collect();
            if command.contains("rowsort") {
                lines.sort();
            }
            if command.contains("header") {
                lines.insert(0, header.join(" | "));
            }
            let lines: String = lines.iter().map(|l| format!("\n{}", l.trim_end())).collect();
            Ok(format!("{comments}{command}\n{sql}\n----{lines}"))
        }
        _ => Err(format!("`{command}` is no command")),
    }
}
