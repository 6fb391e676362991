//! Tests of `polynya sql` and `polynya tables` without a server.

use std::io::Write;
use std::process::Stdio;

use crate::polynya::{Workdir, text};

fn workdir() -> Workdir {
    let workdir = Workdir::new();
    workdir.write("people.csv", "name,age,zip\nAnn,41,01234\n\"Bo, jr\",7,99999\n");
    workdir.ok(&["ingest", "people.csv"]);
    workdir
}

#[test]
fn an_answer_comes_as_lines_of_json_or_as_csv() {
    let _limit = testkit::limit(120);
    let workdir = workdir();
    let json = workdir.ok(&["sql", "SELECT name, age FROM people ORDER BY age"]);
    assert_eq!(json, "{\"name\":\"Bo, jr\",\"age\":7}\n{\"name\":\"Ann\",\"age\":41}\n");
    let csv = workdir.ok(&["sql", "--csv", "SELECT name, zip FROM people ORDER BY age"]);
    assert_eq!(csv.replace('\r', ""), "name,zip\n\"Bo, jr\",99999\nAnn,01234\n");
    let found = workdir.ok(&["sql", "SELECT age FROM people WHERE name = $1", "-p", "Ann"]);
    assert_eq!(found, "{\"age\":41}\n");
}

#[test]
fn statements_come_from_files_and_pipes() {
    let _limit = testkit::limit(120);
    let workdir = workdir();
    workdir.write("q.sql", "-- two\nSELECT 1 AS a;\nSELECT ';' AS b;\n");
    assert_eq!(workdir.ok(&["sql", "-f", "q.sql"]), "{\"a\":1}\n{\"b\":\";\"}\n");
    let mut child = workdir.command(&["sql"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"SELECT count(*) AS n FROM people").unwrap();
    assert_eq!(text(&child.wait_with_output().unwrap().stdout), "{\"n\":2}\n");
}

#[test]
fn a_wrong_statement_is_one_sentence_with_near_names() {
    let _limit = testkit::limit(120);
    let workdir = workdir();
    let said = workdir.fails(&["sql", "SELECT * FROM peple"]);
    assert!(said.contains("people"), "{said}");
}

#[test]
fn tables_are_listed_and_described() {
    let _limit = testkit::limit(120);
    let workdir = workdir();
    let list = workdir.ok(&["tables"]);
    assert!(list.contains("people") && list.contains("rows"), "{list}");
    let one = workdir.ok(&["tables", "people"]);
    assert!(one.contains("zip") && one.contains("string") && one.contains("int64"), "{one}");
    let json: serde_json::Value = serde_json::from_str(&workdir.ok(&["tables", "people", "--json"])).unwrap();
    assert_eq!(json["rows"], 2);
    assert!(workdir.fails(&["tables", "peple"]).contains("people"));
}

#[test]
fn backslash_commands_work_in_a_pipe_too() {
    let _limit = testkit::limit(120);
    let workdir = workdir();
    let ask = |text: &str| {
        let mut command = workdir.command(&["sql"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let output = ask("SELECT 1 AS a;\n\\d\n\\d people\n\\help\n\\q\nSELECT 2 AS b;\n");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(said.starts_with("{\"a\":1}\n") && said.contains("people") && said.contains("zip"), "{said}");
    assert!(said.contains("\\timing") && !said.contains("\"b\""), "{said}");
    let output = ask("\\nonsense\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is not a command"), "{}", text(&output.stderr));
}
