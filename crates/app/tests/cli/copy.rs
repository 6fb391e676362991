//! Tests of COPY in `polynya sql`: files and pipes, with a server and without one.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::polynya::{Workdir, text};

const COLUMNS: &str = "id bigint primary key, s text, n int, f double, at timestamptz, j json";

fn workdir() -> Workdir {
    let workdir = Workdir::new();
    // The ingestion makes a data directory, which `polynya sql` needs.
    workdir.write("one.ndjson", "{\"a\":1}\n");
    workdir.ok(&["ingest", "one.ndjson"]);
    workdir.ok(&["sql", &format!("CREATE TABLE t ({COLUMNS})")]);
    workdir.ok(&[
        "sql",
        "INSERT INTO t VALUES (1, E'comma, \"quote\"\\nß 雪', -7, 0.1, '2024-01-02T03:04:05.678901Z', '[1, null]'), (2, NULL, NULL, NULL, NULL, NULL)",
    ]);
    workdir
}

fn same(workdir: &Workdir, a: &str, b: &str) {
    for (a, b) in [(a, b), (b, a)] {
        let differ = format!("SELECT count(*) FROM (SELECT * FROM {a} EXCEPT SELECT * FROM {b})");
        assert_eq!(workdir.number(&differ), 0);
    }
}

/// Returns the names of files that a COPY has left in the directory.
fn left(workdir: &Workdir) -> Vec<String> {
    let names = std::fs::read_dir(workdir.path(".")).unwrap().map(|e| e.unwrap().file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.contains("tmp") || name.contains("out")).collect()
}

#[test]
fn files_of_the_commands_directory_go_out_and_come_back() {
    let _limit = testkit::limit(240);
    let workdir = workdir();
    let server = workdir.serve(&["serve"]);
    // The command runs in another directory than the server.
    std::fs::create_dir(workdir.path("elsewhere")).unwrap();
    for (file, how) in [
        ("t.csv", "WITH (HEADER)"),
        ("t.ndjson", ""),
        ("t.parquet", ""),
        ("t.data", "WITH (FORMAT csv, DELIMITER ';', NULL '\\N')"),
    ] {
        let run = |statement: &str| {
            let mut command = workdir.command(&["sql", "--url", &server.url, statement]);
            let output = command.current_dir(workdir.path("elsewhere")).output().unwrap();
            assert!(output.status.success(), "{statement}: {}", text(&output.stderr));
            text(&output.stdout)
        };
        assert_eq!(run(&format!("COPY t TO '{file}' {how}")), "{\"count\":2,\"statement\":\"COPY\"}\n");
        assert!(workdir.path("elsewhere").join(file).is_file());
        run(&format!("CREATE TABLE back ({COLUMNS})"));
        assert_eq!(run(&format!("COPY back FROM '{file}' {how}")), "{\"count\":2,\"statement\":\"COPY\"}\n");
        same(&workdir, "t", "back");
        run("DROP TABLE back");
    }
    assert!(server.stop().success());
}

#[test]
fn pipes_are_files_too() {
    let _limit = testkit::limit(120);
    let workdir = workdir();
    workdir.ok(&["sql", "CREATE TABLE p (id bigint, s text)"]);
    for (target, body) in [("STDIN", "1,a\n2,b\n"), ("'-'", "3,c\n")] {
        let mut command = workdir.command(&["sql", &format!("COPY p FROM {target}")]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let lines = body.lines().count();
        assert_eq!(text(&output.stdout), format!("{{\"count\":{lines},\"statement\":\"COPY\"}}\n"));
    }
    for target in ["STDOUT", "'-'"] {
        let out =
            workdir.ok(&["sql", &format!("COPY (SELECT * FROM p ORDER BY id) TO {target} WITH (HEADER);")]);
        assert_eq!(out, "id,s\n1,a\n2,b\n3,c\n");
    }
    // Standard input with statements cannot contain rows too.
    let mut command = workdir.command(&["sql"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"COPY p FROM STDIN;\n1,a\n").unwrap();
    let said = text(&child.wait_with_output().unwrap().stderr);
    assert!(said.contains("standard input holds the statements"), "{said}");
    // Several COPY statements may be in one file; their paths are relative to the working directory.
    workdir.write("copies.sql", "COPY p TO 'p.csv';\nCOPY p FROM 'p.csv';\nSELECT count(*) AS n FROM p;\n");
    assert!(workdir.ok(&["sql", "-f", "copies.sql"]).ends_with("{\"n\":6}\n"));
}

#[test]
fn a_failed_copy_is_one_sentence_and_leaves_no_file() {
    let _limit = testkit::limit(240);
    let workdir = workdir();
    workdir.write("out.csv", "mine\n");
    let said = workdir.fails(&["sql", "COPY t TO 'out.csv'"]);
    assert!(said.contains("there is a file `out.csv` already") && said.contains("ALLOWOVERWRITE"), "{said}");
    assert_eq!(std::fs::read_to_string(workdir.path("out.csv")).unwrap(), "mine\n");
    workdir.ok(&["sql", "COPY (SELECT id FROM t ORDER BY id) TO 'out.csv' ALLOWOVERWRITE"]);
    assert_eq!(std::fs::read_to_string(workdir.path("out.csv")).unwrap(), "1\n2\n");
    std::fs::remove_file(workdir.path("out.csv")).unwrap();

    // The query fails half way, when much of the file is written.
    for format in ["csv", "ndjson", "parquet"] {
        let query =
            "SELECT i, 1 / (900000 - i) AS x, repeat('y', 100) AS s FROM generate_series(1, 1000000) AS g(i)";
        let said = workdir.fails(&["sql", &format!("COPY ({query}) TO 'out.{format}'")]);
        assert!(said.contains("zero") && said.contains(&format!("out.{format}")), "{said}");
        assert_eq!(left(&workdir), Vec::<String>::new());
    }
    assert!(workdir.fails(&["sql", "COPY t TO 'nowhere/out.csv'"]).contains("there is no folder"));
    assert!(workdir.fails(&["sql", "COPY t FROM 'nothing.csv'"]).contains("there is no file `nothing.csv`"));
    assert!(workdir.fails(&["sql", "COPY t FROM '.'"]).contains("folder"));
    assert!(workdir.fails(&["sql", "COPY nothing TO 'out.csv'"]).contains("nothing"));
    assert!(workdir.fails(&["sql", "COPY (SELECT $1) TO 'out.csv'", "-p", "1"]).contains("no parameters"));
    workdir.write("bad.csv", "3,x,1\n4,y,z\n");
    let said = workdir.fails(&["sql", "COPY t (id, s, n) FROM 'bad.csv'"]);
    assert!(
        said.contains("line 2, column `n`: `z` is not a valid int32") && said.contains("file bad.csv"),
        "{said}"
    );
    assert_eq!(workdir.number("SELECT count(*) FROM t"), 2);
    assert_eq!(left(&workdir), Vec::<String>::new());
}

#[test]
fn a_large_file_goes_through_and_an_interrupted_one_leaves_nothing() {
    let _limit = testkit::limit(300);
    let workdir = workdir();
    let server = workdir.serve(&["serve"]);
    workdir.ok(&["sql", "CREATE TABLE big (id bigint, s text)"]);
    let query = "SELECT i AS id, repeat('x', 200) AS s FROM generate_series(1, 600000) AS g(i)";
    let said = workdir.ok(&["sql", &format!("COPY ({query}) TO 'big.csv'")]);
    assert_eq!(said, "{\"count\":600000,\"statement\":\"COPY\"}\n");
    let said = workdir.ok(&["sql", "COPY big FROM 'big.csv'"]);
    assert_eq!(said, "{\"count\":600000,\"statement\":\"COPY\"}\n");
    assert_eq!(workdir.number("SELECT count(*) FROM big WHERE length(s) = 200"), 600_000);

    let mut command = workdir.command(&[
        "sql",
        "COPY (SELECT a.i FROM generate_series(1, 100000) AS a(i), generate_series(1, 100000) AS b(i)) TO 'out.csv'",
    ]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    while left(&workdir).is_empty() {
        assert!(started.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
    let status =
        std::process::Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(said.contains("interrupted"), "{said}");
    assert_eq!(left(&workdir), Vec::<String>::new());
    assert!(server.stop().success());
}
