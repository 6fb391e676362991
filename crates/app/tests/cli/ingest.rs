//! Tests of `polynya ingest`, also of runs that are interrupted at any moment.

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::polynya::{Workdir, is_sound, text};

#[test]
fn a_file_is_read_once_however_often_the_command_is_given() {
    let _limit = testkit::limit(180);
    let workdir = Workdir::new();
    let line = |path: &str| {
        format!("1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"curl\"\n")
    };
    workdir.write("access.log", &(line("/a") + &line("/b") + "broken\n"));
    let said = workdir.ok(&["ingest", "access.log"]);
    assert!(said.contains("access: 3 rows") && said.contains("1 line could not be taken apart"), "{said}");
    assert!(workdir.ok(&["ingest", "access.log"]).contains("nothing new"));
    let mut file = std::fs::OpenOptions::new().append(true).open(workdir.path("access.log")).unwrap();
    file.write_all(line("/c").as_bytes()).unwrap();
    assert!(workdir.ok(&["ingest", "access.log"]).contains("1 row from"));
    assert_eq!(workdir.number("SELECT count(*) FROM access"), 4);
    assert_eq!(workdir.number("SELECT count(*) FROM access WHERE path = '/c' AND status = 200"), 1);
    // After a rotation, another file has the same name.
    workdir.write("access.log", &(line("/new").replace("1.2.3.4", "5.6.7.8")));
    workdir.ok(&["ingest", "access.log"]);
    assert_eq!(workdir.number("SELECT count(*) FROM access"), 5);
    workdir.ok(&["ingest", "access.log", "--again"]);
    assert_eq!(workdir.number("SELECT count(*) FROM access"), 6);
}

/// The error said, after a hundred attempts, that another command was reading the file.
#[test]
fn a_row_that_a_unique_index_refuses_is_named() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    workdir.write("first.csv", "k,e\n1,x\n");
    workdir.ok(&["ingest", "first.csv", "--table", "u"]);
    workdir.ok(&["sql", "CREATE UNIQUE INDEX ON u (e)"]);
    workdir.write("u.ndjson", "{\"k\":2,\"e\":\"x\"}\n");
    let said = workdir.fails(&["ingest", "u.ndjson"]);
    assert!(said.contains("e = 'x' exists already"), "{said}");
    assert_eq!(workdir.number("SELECT count(*) FROM u"), 1);
    workdir.write("u.ndjson", "{\"k\":2,\"e\":\"y\"}\n");
    workdir.ok(&["ingest", "u.ndjson"]);
    assert_eq!(workdir.number("SELECT count(*) FROM u"), 2);
}

#[test]
fn standard_input_and_packed_files_come_in() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    let mut child = workdir
        .command(&["ingest", "-", "--table", "piped", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"{\"a\":1}\n{\"a\":2}\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&said["rows"], &said["table"]), (&2.into(), &"piped".into()));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"a,b\n1,x\n").unwrap();
    std::fs::write(workdir.path("packed.csv.gz"), gzip.finish().unwrap()).unwrap();
    workdir.ok(&["ingest", "packed.csv.gz"]);
    assert_eq!(workdir.number("SELECT a FROM packed WHERE b = 'x'"), 1);
}

/// A short line may become a row with a wide vector, so that a piece was too large for one commit. Such a file failed at its
/// first piece, in every run.
#[test]
fn short_rows_come_into_a_wide_table_once() {
    let _limit = testkit::limit(300);
    let workdir = Workdir::new();
    workdir.write("first.ndjson", "{\"id\":0}\n");
    workdir.ok(&["ingest", "first.ndjson"]);
    workdir.ok(&["sql", "CREATE TABLE wide (id bigint, v vector(8192))"]);
    let rows = 8_500;
    workdir.write("wide.ndjson", &(0..rows).map(|id| format!("{{\"id\":{id}}}\n")).collect::<String>());
    workdir.write("more.csv", &(0..rows).fold("id\n".to_owned(), |all, id| format!("{all}{}\n", rows + id)));
    for (file, all) in [("wide.ndjson", rows), ("more.csv", 2 * rows)] {
        let said = workdir.ok(&["ingest", file, "--table", "wide"]);
        assert!(said.contains("8,500 rows"), "{said}");
        assert!(workdir.ok(&["ingest", file, "--table", "wide"]).contains("nothing new"));
        assert_eq!(workdir.number("SELECT count(DISTINCT id) FROM wide WHERE id = _row_id - 1"), all);
        let stands = format!("SELECT line FROM polynya.ingests WHERE file LIKE '%{file}'");
        assert_eq!(workdir.number(&stands), if file.ends_with("csv") { rows + 1 } else { rows });
    }
}

#[test]
fn a_bad_line_is_named_and_what_came_before_is_kept() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    workdir.write("bad.csv", "id,zip\n1,2\n2,x\n");
    workdir.ok(&["ingest", "bad.csv", "--table", "fine"]);
    workdir.write("typed.csv", "id,zip\n1,2\n2,x\n");
    let said = workdir.fails(&["ingest", "typed.csv", "--column", "zip:int64"]);
    assert!(
        said.contains("line 3, column `zip`: `x` is not a valid int64")
            && said.contains("--column 'zip:string'"),
        "{said}"
    );
    // A resumed file keeps the types of its first run. A later `--column` was silently ignored.
    workdir.write("people.csv", "id,zip\n1,2\n");
    workdir.ok(&["ingest", "people.csv", "--column", "zip:string"]);
    assert!(workdir.ok(&["ingest", "people.csv", "--column", "zip:string"]).contains("nothing new"));
    let said = workdir.fails(&["ingest", "people.csv", "--column", "zip:int64"]);
    assert!(said.contains("was read before with `zip` as string") && said.contains("--again"), "{said}");
    workdir.write("bad.ndjson", "{\"a\":1}\n{\"a\":\n");
    let said = workdir.fails(&["ingest", "bad.ndjson"]);
    assert!(said.contains("bad.ndjson") && said.contains("nothing of it is stored"), "{said}");
    assert!(workdir.fails(&["ingest", "missing.csv"]).contains("there is no file"));
}

/// Writes a file of about 60 MB, which is sent in pieces of 4 MB, and returns the number of its rows.
fn big(workdir: &Workdir) -> i64 {
    let rows = 400_000;
    let file = std::fs::File::create(workdir.path("big.ndjson")).unwrap();
    let mut out = std::io::BufWriter::new(file);
    let filling = "x".repeat(120);
    for i in 0..rows {
        writeln!(out, "{{\"n\":{i},\"filling\":\"{filling}\"}}").unwrap();
    }
    out.flush().unwrap();
    rows
}

/// Checks that every number is in the table exactly once.
fn check(workdir: &Workdir, rows: i64) {
    assert_eq!(workdir.number("SELECT count(*) FROM big"), rows);
    assert_eq!(workdir.number("SELECT count(DISTINCT n) FROM big"), rows);
    assert_eq!(workdir.number("SELECT sum(n) FROM big"), rows * (rows - 1) / 2);
    assert!(workdir.ok(&["ingest", "big.ndjson"]).contains("nothing new"));
}

/// Starts the command and kills it after a time that grows with `round`.
fn interrupt(workdir: &Workdir, round: u64) {
    let mut child = workdir
        .command(&["ingest", "big.ndjson"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_millis(300 + 400 * round);
    while Instant::now() < deadline && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    // The kill fails if the command has ended already.
    let _ = child.kill();
    child.wait().unwrap();
}

#[test]
fn a_killed_command_beside_a_server_goes_on_without_a_gap_or_a_repetition() {
    let _limit = testkit::limit(300);
    let workdir = Workdir::new();
    let rows = big(&workdir);
    let server = workdir.serve(&["serve"]);
    for round in 0..3 {
        interrupt(&workdir, round);
    }
    let said = workdir.ok(&["ingest", "big.ndjson"]);
    assert!(said.starts_with("big: "), "{said}");
    check(&workdir, rows);
    assert!(server.stop().success());
}

#[test]
fn a_killed_command_that_had_the_directory_open_goes_on_too() {
    let _limit = testkit::limit(300);
    let workdir = Workdir::new();
    let rows = big(&workdir);
    for round in 0..3 {
        interrupt(&workdir, round);
        if workdir.path("polynya-data/log").exists() {
            assert!(is_sound(&workdir, &workdir.path("polynya-data")));
        }
    }
    workdir.ok(&["ingest", "big.ndjson"]);
    check(&workdir, rows);
}

#[test]
fn a_killed_server_is_no_gap_either() {
    let _limit = testkit::limit(300);
    let workdir = Workdir::new();
    let rows = big(&workdir);
    let server = workdir.serve(&["serve"]);
    let mut child = workdir
        .command(&["ingest", "big.ndjson"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_millis(900);
    while Instant::now() < deadline && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    server.kill();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success() || text(&output.stderr).contains("the same command goes on"),
        "{}",
        text(&output.stderr)
    );
    let server = workdir.serve(&["serve"]);
    workdir.ok(&["ingest", "big.ndjson"]);
    check(&workdir, rows);
    assert!(server.stop().success());
}

/// The page at /_/ is tested with the same cases (tests/browser), so that a file makes the same table there and by
/// `polynya ingest`.
#[test]
fn files_become_the_tables_that_the_shared_cases_say() {
    let _limit = testkit::limit(300);
    let cases = testkit::package().join("../../tests/files/cases.json");
    let cases: Vec<serde_json::Value> =
        serde_json::from_str(&std::fs::read_to_string(cases).unwrap()).unwrap();
    let workdir = Workdir::new();
    let server = workdir.serve(&["serve"]);
    for case in &cases {
        let word = |name: &str| case[name].as_str().unwrap_or_default();
        let file = word("file");
        workdir.write(file, word("text"));
        if !case["error"].is_null() {
            let said = workdir.fails(&["ingest", file]).to_lowercase();
            assert!(said.contains(word("error")), "{file}: {said}");
            continue;
        }
        workdir.ok(&["ingest", file]);
        let table: serde_json::Value =
            serde_json::from_str(&workdir.ok(&["tables", word("table"), "--json"])).unwrap();
        let columns = table["columns"].as_array().unwrap().iter();
        let columns: Vec<serde_json::Value> = columns
            .filter(|column| !column["name"].as_str().unwrap().starts_with('_'))
            .map(|column| serde_json::json!([column["name"], column["type"]]))
            .collect();
        assert_eq!(serde_json::Value::from(columns), case["columns"], "{file}");
        assert_eq!(table["rows"], case["rows"], "{file}");
    }
    assert!(server.stop().success());
}

#[test]
fn a_column_that_is_not_there_is_not_ignored() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    workdir.write("people.csv", "name,zip\nAnn,01234\n");
    let said = workdir.fails(&["ingest", "people.csv", "--column", "zipp:string"]);
    assert!(said.contains("has no column `zipp`") && said.contains("did you mean `zip`?"), "{said}");
    let said = workdir.fails(&["ingest", "people.csv", "--column", "height:string"]);
    assert!(said.contains("its columns are name, zip"), "{said}");
    workdir.write("events.ndjson", "{\"a\":1}\n");
    let said = workdir.fails(&["ingest", "events.ndjson", "--column", "a:string"]);
    assert!(said.contains("is not CSV"), "{said}");
    workdir.ok(&["ingest", "people.csv", "--column", "ZIP:string"]);
}
