//! COPY returns the same rows, or an error names the value that the format cannot hold.

use crate::{Database, Kind, Value};

const COLUMNS: &str = "id bigint primary key, s text, n int, f double, d decimal(20, 4), b boolean, at timestamptz, day date, u uuid, j json";

fn open() -> (testkit::TempDir, Database) {
    let dir = testkit::temp_dir("copy");
    let db = Database::open(dir.join("data")).unwrap();
    (dir, db)
}

fn fill(db: &Database, table: &str) {
    db.sql(&format!("CREATE TABLE {table} ({COLUMNS})"), &[]).unwrap();
    let text = format!(
        "INSERT INTO {table} VALUES
         (1, 'plain', 7, 0.1, 1.5, true, '2024-01-02T03:04:05.678901Z', '2024-02-29', '6f9619ff-8b86-d011-b42d-00cf4fc964ff', '{{\"a\": [1, null]}}'),
         (2, E'comma, \"quote\"\\nline ß', -2147483648, -1e300, -0.0001, false, '1969-12-31T23:59:59Z', '0001-01-01', NULL, '[]'),
         (-9223372036854775808, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    );
    assert_eq!(db.sql(&text, &[]).unwrap().count, 3);
}

/// Counts the rows of table `a` that table `b` does not have.
fn difference(db: &Database, a: &str, b: &str) -> u64 {
    // JSON is compared as text.
    let columns = "id, s, n, f, d, b, at, day, u, j";
    let text = format!("SELECT {columns} FROM {a} EXCEPT SELECT {columns} FROM {b}");
    db.sql(&text, &[]).unwrap().count
}

#[test]
fn rows_come_back_from_csv_and_ndjson_as_they_were() {
    let _limit = testkit::limit(120);
    let (dir, db) = open();
    fill(&db, "t");
    for (name, how) in [
        ("a.csv", ""),
        ("b.csv", "WITH (FORMAT csv, HEADER, DELIMITER ';', NULL '\\N')"),
        ("c.ndjson", ""),
        ("d.data", "WITH (FORMAT ndjson)"),
        #[cfg(feature = "parquet")]
        ("e.parquet", ""),
    ] {
        let path = dir.join(name).display().to_string();
        assert_eq!(db.sql(&format!("COPY t TO '{path}' {how}"), &[]).unwrap().count, 3, "{name}");
        db.sql(&format!("CREATE TABLE back ({COLUMNS})"), &[]).unwrap();
        let how = if name == "a.csv" { "WITH (FORMAT csv)" } else { how };
        let copied =
            db.sql(&format!("COPY back FROM '{path}' {how}"), &[]).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(copied.count, 3, "{name}");
        assert_eq!((difference(&db, "t", "back"), difference(&db, "back", "t")), (0, 0), "{name}");
        db.sql("DROP TABLE back", &[]).unwrap();
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with(".tmp")), "{left:?}");
    db.close().unwrap();
}

/// A value that begins with U+FEFF was dropped when a file began with it: readers took it for a byte order mark.
#[test]
fn a_value_that_a_file_begins_with_comes_back_whole() {
    let _limit = testkit::limit(120);
    let (dir, db) = open();
    db.sql("CREATE TABLE t (s text)", &[]).unwrap();
    db.sql("INSERT INTO t VALUES (chr(65279) || 'x'), (chr(65279))", &[]).unwrap();
    for (name, how) in [("a.csv", "(FORMAT csv)"), ("b.csv", "(FORMAT csv, HEADER)"), ("c.ndjson", "")] {
        let path = dir.join(name).display().to_string();
        db.sql(&format!("COPY (SELECT s FROM t ORDER BY _row_id) TO '{path}' {how}"), &[]).unwrap();
        db.sql("CREATE TABLE back (s text)", &[]).unwrap();
        db.sql(&format!("COPY back FROM '{path}' {how}"), &[]).unwrap();
        let same = "SELECT 1 FROM t JOIN back USING (s)";
        assert_eq!(db.sql(same, &[]).unwrap().count, 2, "{name}");
        db.sql("DROP TABLE back", &[]).unwrap();
    }
}

#[test]
fn nested_values_go_through_ndjson() {
    let _limit = testkit::limit(120);
    let (dir, db) = open();
    const COLUMNS: &str = "id bigint, l list<int32>, st struct<x: int64, y: string>, v vector(2), raw bytea, j json, d decimal(20, 2)";
    db.sql(&format!("CREATE TABLE n ({COLUMNS})"), &[]).unwrap();
    db.sql(
        "INSERT INTO n VALUES (1, [1, NULL, 3], named_struct('x', 5, 'y', 'why'), [0.5, 1.5], X'00ff', '{\"a\":[1,null]}', 12.5)",
        &[],
    )
    .unwrap();
    db.sql("INSERT INTO n (id) VALUES (9007199254740993)", &[]).unwrap();
    let path = dir.join("n.ndjson").display().to_string();
    db.sql(&format!("COPY (SELECT * FROM n ORDER BY id) TO '{path}'"), &[]).unwrap();
    // The format is that of rows posted and returned over HTTP.
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "{\"id\":1,\"l\":[1,null,3],\"st\":{\"x\":5,\"y\":\"why\"},\"v\":[0.5,1.5],\"raw\":\"AP8=\",\"j\":{\"a\":[1,null]},\"d\":\"12.50\"}\n\
         {\"id\":9007199254740993,\"l\":null,\"st\":null,\"v\":null,\"raw\":null,\"j\":null,\"d\":null}\n"
    );
    db.sql(&format!("CREATE TABLE back ({COLUMNS})"), &[]).unwrap();
    assert_eq!(db.sql(&format!("COPY back FROM '{path}'"), &[]).unwrap().count, 2);
    let whole = |table: &str| {
        let batches = db.sql(&format!("SELECT * FROM {table} ORDER BY id"), &[]).unwrap().batches;
        arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string()
    };
    assert_eq!(whole("n"), whole("back"));
    let error = db.sql(&format!("COPY n TO '{}'", dir.join("n.csv").display()), &[]).unwrap_err();
    assert!(error.to_string().contains("ndjson"), "{error}");
    assert!(!dir.join("n.csv").exists());
}

#[test]
fn a_value_that_the_format_cannot_hold_is_refused() {
    let _limit = testkit::limit(120);
    let (dir, db) = open();
    db.sql("CREATE TABLE t (s text, f double)", &[]).unwrap();
    db.sql("INSERT INTO t VALUES ('', 1.0), ('x', 'NaN'::double)", &[]).unwrap();
    let (csv, json) = (dir.join("t.csv").display().to_string(), dir.join("t.json").display().to_string());
    // NaN would come back as null.
    assert_eq!(db.sql(&format!("COPY t TO '{json}'"), &[]).unwrap_err().kind(), Kind::Schema);
    assert!(!std::path::Path::new(&json).exists());
    db.sql(&format!("COPY t TO '{csv}' WITH (FORMAT csv)"), &[]).unwrap();
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), "\"\",1.0\nx,NaN\n");
    std::fs::remove_file(&csv).unwrap();
    db.sql(&format!("COPY t TO '{csv}' WITH (FORMAT csv, NULL '-')"), &[]).unwrap();
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), "\"\",1.0\nx,NaN\n");

    // An existing file is kept unless ALLOWOVERWRITE is given.
    let error = db.sql(&format!("COPY (SELECT 1) TO '{csv}'"), &[]).unwrap_err();
    assert_eq!(error.kind(), Kind::Exists, "{error}");
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), "\"\",1.0\nx,NaN\n");
    assert_eq!(
        db.sql(&format!("COPY (SELECT 1 AS a) TO '{csv}' WITH (HEADER) ALLOWOVERWRITE"), &[]).unwrap().count,
        1
    );
    assert_eq!(std::fs::read_to_string(&csv).unwrap(), "a\n1\n");

    // A statement that fails midway leaves no file.
    let half = dir.join("half.csv").display().to_string();
    assert!(
        db.sql(
            &format!("COPY (SELECT 1 / (i - 9000) FROM generate_series(1, 20000) AS g(i)) TO '{half}'"),
            &[]
        )
        .is_err()
    );
    assert_eq!(
        std::fs::read_dir(dir.path())
            .unwrap()
            .filter(|e| e.as_ref().unwrap().file_type().unwrap().is_file())
            .count(),
        1
    );

    let error = db.sql("COPY t FROM '/nothing/here.csv'", &[]).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
    assert_eq!(db.sql(&format!("COPY nothing FROM '{csv}'"), &[]).unwrap_err().kind(), Kind::NotFound);
    assert!(db.sql("COPY t TO STDOUT", &[]).unwrap_err().to_string().contains("name a file"));
    assert!(db.sql(&format!("COPY (SELECT $1) TO '{half}'"), &[Value::Int64(1)]).is_err());
}

#[test]
fn mistakes_in_a_file_are_named_and_change_nothing() {
    let _limit = testkit::limit(120);
    let (dir, db) = open();
    db.sql("CREATE TABLE t (id bigint primary key, n int default 5)", &[]).unwrap();
    let path = dir.join("in").display().to_string();
    for (format, text, wanted) in [
        ("csv", "1,2\n3\n", "line 2: 2 values expected, 1 found"),
        ("csv", "1,2\n3,x\n", "line 2, column `n`: `x` is not a valid int32"),
        ("csv, HEADER", "id,m\n1,2\n", "no column `m`"),
        ("csv", "1,2\n1,3\n", "two rows"),
        ("csv", "1,99999999999\n", "99999999999"),
        ("ndjson", "{\"id\": 1}\n{\"id\": \"x\"}\n", "line 2, column `id`: int64 expected"),
        ("ndjson", "\n{\"id\": 1, \"m\": 2}\n", "line 2, column `m`: the table has no such column"),
        ("ndjson", "{\"id\": 1}\n{\"id\"", "line 2: the last object is not closed"),
        (
            "ndjson",
            "{\"id\": 1}\n[{\"id\": 2}]\n",
            "line 2: not JSON: an object (`{`) for each row expected, `[` found",
        ),
        ("ndjson", "{\"id\": 1}\n{\"id\": tru}\n{\"id\": 3}", "line 2: not JSON: "),
        ("ndjson", "{\"id\": 1} {\"id\":\n 2, \"n\":\n 99999999999}\n", "line 1, column `n`: "),
        ("ndjson", "{\"id\": 1}\n{\n\"n\": 1}\n", "line 2, column `id`: NULL"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = db.sql(&format!("COPY t FROM '{path}' WITH (FORMAT {format})"), &[]).unwrap_err();
        assert!(error.to_string().contains(wanted), "{text}: {error}");
        assert!(error.to_string().contains(&format!("file {path}")), "{text}: {error}");
        assert_eq!(db.sql("SELECT * FROM t", &[]).unwrap().count, 0, "{text}");
    }
    // Columns that are not named get their defaults; a header names columns.
    std::fs::write(&path, "7\n8\n").unwrap();
    assert_eq!(db.sql(&format!("COPY t (ID) FROM '{path}' WITH (FORMAT csv)"), &[]).unwrap().count, 2);
    std::fs::write(&path, "N,id\n1,9\n").unwrap();
    assert_eq!(db.sql(&format!("COPY t FROM '{path}' WITH (FORMAT csv, HEADER)"), &[]).unwrap().count, 1);
    assert_eq!(
        db.sql("SELECT * FROM t WHERE (id, n) IN ((7, 5), (8, 5), (9, 1))", &[])
            .map(|a| a.count)
            .unwrap_or(0),
        3
    );
    std::fs::write(&path, "").unwrap();
    assert_eq!(db.sql(&format!("COPY t FROM '{path}' WITH (FORMAT csv)"), &[]).unwrap().count, 0);
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_names_its_columns_and_keeps_nested_values() {
    let _limit = testkit::limit(120);
    let (dir, db) = open();
    let columns = "id bigint primary key, l list<int32>, st struct<x: int64, y: string>, v vector(2), raw bytea, p point";
    db.sql(&format!("CREATE TABLE n ({columns})"), &[]).unwrap();
    db.sql("INSERT INTO n VALUES (1, [1, NULL], named_struct('x', 5, 'y', 'why'), [0.5, 1.5], X'00ff', [13.4, 52.5]), (2, NULL, NULL, NULL, NULL, NULL)", &[]).unwrap();
    let path = dir.join("n.parquet").display().to_string();
    db.sql(&format!("COPY (SELECT raw, v, p, st, l, id FROM n) TO '{path}'"), &[]).unwrap();
    db.sql(&format!("CREATE TABLE back ({columns})"), &[]).unwrap();
    assert_eq!(db.sql(&format!("COPY back FROM '{path}'"), &[]).unwrap().count, 2);
    let whole = |table: &str| {
        let batches = db.sql(&format!("SELECT * FROM {table} ORDER BY id"), &[]).unwrap().batches;
        arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string()
    };
    assert_eq!(whole("n"), whole("back"));
    db.sql("CREATE TABLE few (id bigint, more text default 'm')", &[]).unwrap();
    let error = db.sql(&format!("COPY few FROM '{path}'"), &[]).unwrap_err();
    assert!(error.to_string().contains("no column `raw`"), "{error}");
    assert_eq!(db.sql(&format!("COPY few (id) FROM '{path}'"), &[]).unwrap().count, 2);
    assert_eq!(db.sql("SELECT * FROM few WHERE more = 'm'", &[]).unwrap().count, 2);
    assert!(db.sql(&format!("COPY few (more) FROM '{path}'"), &[]).is_err());
    for bytes in [&b"PAR1"[..], &[0; 100], &std::fs::read(&path).unwrap()[1..]] {
        std::fs::write(&path, bytes).unwrap();
        let error = db.sql(&format!("COPY few (id) FROM '{path}'"), &[]).unwrap_err();
        assert_eq!(error.kind(), Kind::Schema, "{error}");
    }
}

/// A file larger than one piece is committed in several pieces, completely.
#[test]
fn a_large_file_goes_out_and_in_through_bounded_pieces() {
    let _limit = testkit::limit(240);
    let (dir, db) = open();
    let path = dir.join("large.csv").display().to_string();
    let query = "SELECT i AS id, repeat('x', 200) AS s FROM generate_series(1, 600000) AS g(i)";
    assert_eq!(
        db.sql(&format!("COPY ({query}) TO '{path}' WITH (FORMAT csv, HEADER)"), &[]).unwrap().count,
        600_000
    );
    db.sql("CREATE TABLE t (id bigint, s text)", &[]).unwrap();
    let before = db.snapshot().lsn();
    assert_eq!(
        db.sql(&format!("COPY t FROM '{path}' WITH (FORMAT csv, HEADER)"), &[]).unwrap().count,
        600_000
    );
    assert!(db.snapshot().lsn().0 > before.0 + 1, "120 MB are more than one piece");
    let sum = db.sql("SELECT sum(id) FROM t WHERE length(s) = 200", &[]).unwrap().value().unwrap();
    assert_eq!(sum, Value::Int64(600_000 * 600_001 / 2));
}
