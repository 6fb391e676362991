//! Tests of the `polynya lake` commands: status, maintenance, erasure, import and verification.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Value as Json, json};

use crate::polynya::Workdir;

#[test]
fn a_table_that_cannot_be_compared_is_named_and_the_others_are() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    let server = workdir.serve(&["serve"]);
    for table in ["a", "b", "c"] {
        workdir.ok(&["sql", &format!("create table {table} as select 7 as n")]);
    }
    assert_eq!(workdir.ok(&["lake", "verify"]).matches(": equal.").count(), 3);
    // The file is cut in half, as by an interrupted copy.
    let data = workdir.path("polynya-data/lake/main/b/data");
    let file = std::fs::read_dir(data).unwrap().next().unwrap().unwrap().path();
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let output = workdir.run(&["lake", "verify"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(said.matches(": equal.").count(), 2, "{said}");
    assert!(said.contains("b: NOT COMPARED\n"), "{said}");
    let json = String::from_utf8(workdir.run(&["lake", "verify", "b", "--json"]).stdout).unwrap();
    let report: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
    assert!(report["equal"] == false && report["error"].is_string(), "{report}");
    assert!(server.stop().success());
}

/// Makes a table with two partitions (days), several lake commits, and deleted rows.
fn events(workdir: &Workdir) {
    workdir.ok(&["sql", "create table events (n bigint, day date, what text) with (partition_by = 'day')"]);
    for round in 0..4 {
        let insert = format!(
            "insert into events select value + {}, case value % 2 when 0 then date '2026-01-01' else date '2026-01-02' end, 'word ' || value from generate_series(0, 49) as t(value)",
            100 * round
        );
        workdir.ok(&["sql", &insert]);
        workdir.ok(&["lake", "commit", "events"]);
        workdir
            .ok(&["sql", &format!("delete from events where n in ({}, {})", 100 * round, 100 * round + 7)]);
        workdir.ok(&["lake", "commit", "events"]);
    }
}

#[test]
fn the_lake_is_shown_maintained_and_erased_by_commands() {
    let _limit = testkit::limit(240);
    let workdir = Workdir::new();
    let server = workdir.serve(&["serve"]);
    events(&workdir);
    for args in [&["lake"][..], &["lake", "status"], &["lake", "status", "events"]] {
        let shown = workdir.ok(args);
        assert!(shown.contains("snapshots") && shown.contains(".metadata.json"), "{args:?}: {shown}");
        assert!(shown.lines().any(|line| line.contains("events") && line.contains("192")), "{shown}");
    }
    let json = workdir.ok(&["lake", "--json"]);
    let status: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
    assert_eq!((&status["lake"]["rows"], &status["lag"]["rows"]), (&192.into(), &0.into()), "{status}");
    let snapshots = workdir.ok(&["lake", "snapshots", "events"]);
    assert_eq!(snapshots.matches("current").count(), 1, "{snapshots}");
    let files = workdir.ok(&["lake", "files", "events"]);
    assert!(
        files.contains("day=2026-01-01") && files.contains("day=2026-01-02") && files.contains("deletes"),
        "{files}"
    );
    let json: serde_json::Value =
        serde_json::from_str(workdir.ok(&["lake", "files", "events", "--json"]).trim()).unwrap();
    let count = json["files"].as_array().unwrap().len();
    assert_eq!(files.lines().count(), count + 2, "{files}");

    let done = workdir.ok(&["lake", "maintain", "events"]);
    assert!(done.starts_with("events: data files ") && done.contains("→ 2"), "{done}");
    assert_eq!(workdir.ok(&["lake", "verify", "events"]).matches(": equal.").count(), 1);

    let done = workdir.ok(&["lake", "erase", "events"]);
    for said in ["erased the rows deleted", "snapshot", "AS OF", "log: ", "backups: "] {
        assert!(done.contains(said), "{said}: {done}");
    }
    let json: serde_json::Value =
        serde_json::from_str(workdir.ok(&["lake", "snapshots", "events", "--json"]).trim()).unwrap();
    assert_eq!(json["snapshots"].as_array().unwrap().len(), 1);
    assert_eq!(workdir.ok(&["lake", "verify", "events"]).matches(": equal.").count(), 1);
    assert!(workdir.fails(&["lake", "erase", "nobody"]).contains("nobody"));
    assert!(workdir.fails(&["lake", "files", "nobody"]).contains("nobody"));
    assert!(server.stop().success());
    // Without a server the commands open the directory.
    assert!(workdir.ok(&["lake", "erase", "events"]).contains("erased"));
    assert!(workdir.ok(&["lake"]).contains("192"));
    assert_eq!(workdir.number("select count(*) from events"), 192);
}

#[test]
fn a_table_of_the_catalog_and_a_directory_are_imported_once() {
    let _limit = testkit::limit(240);
    let workdir = Workdir::new();
    let server = workdir.serve(&["serve"]);
    events(&workdir);
    // The table is named as in this server's catalog. Some of its rows are deleted by position.
    let said = workdir.ok(&["lake", "import", "events", "copied"]);
    assert!(said.contains("copied: 192 rows"), "{said}");
    let same =
        "select count(*) from events e join copied c on e.n = c.n and e.day = c.day and e.what = c.what";
    assert_eq!((workdir.number("select count(*) from copied"), workdir.number(same)), (192, 192));
    assert!(workdir.ok(&["lake", "import", "events", "copied"]).contains("nothing new"));
    assert_eq!(workdir.number("select count(*) from copied"), 192);
    // The source changes after the import. The command refuses, because it cannot tell the changed rows.
    workdir.ok(&["sql", "insert into events (n) values (1000)"]);
    workdir.ok(&["lake", "commit", "events"]);
    let refused = workdir.fails(&["lake", "import", "events", "copied"]);
    assert!(refused.contains("another one by now") && refused.contains("--again"), "{refused}");
    assert!(server.stop().success());

    let dir = "polynya-data/lake/main/events";
    let json = workdir.ok(&["lake", "import", dir, "by_path", "--rename", "what=kind", "--json"]);
    let done: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
    assert_eq!((&done["rows"], &done["table"]), (&193.into(), &"by_path".into()), "{done}");
    assert_eq!(workdir.number("select count(kind) from by_path"), 192);
    assert!(workdir.fails(&["lake", "import", "nowhere", "x"]).contains("nowhere"));
    assert!(workdir.fails(&["lake", "import", dir, "y", "--rename", "nothing=x"]).contains("nothing"));
    assert!(workdir.fails(&["tables", "y"]).contains('y'), "nothing was made");
    // A table with other types is refused before the first row.
    workdir.ok(&["sql", "create table narrow (n text, day date)"]);
    let refused = workdir.fails(&["lake", "import", dir, "narrow"]);
    assert!(refused.contains("`n` is int64, and string in the table"), "{refused}");
    assert_eq!(workdir.number("select count(*) from narrow"), 0);
}

#[test]
fn parquet_files_are_imported_each_once_and_what_does_not_fit_is_told_before() {
    let _limit = testkit::limit(240);
    let workdir = Workdir::new();
    std::fs::create_dir_all(workdir.path("files/deeper")).unwrap();
    let rows: String = (1..=100).map(|n| format!("{{\"n\":{n},\"word\":\"a\"}}\n")).collect();
    std::fs::write(workdir.path("a.ndjson"), rows).unwrap();
    workdir.ok(&["ingest", "a.ndjson"]);
    workdir.ok(&["sql", "copy a to 'files/1.parquet'"]);
    workdir.ok(&["sql", "copy a to 'files/deeper/2.parquet'"]);
    let said = workdir.ok(&["lake", "import", "files", "b"]);
    assert_eq!(said.matches("b: 100 rows from").count(), 2, "{said}");
    workdir.ok(&["sql", "copy (select 7 as n, 'late' as word) to 'files/3.parquet'"]);
    let said = workdir.ok(&["lake", "import", "files", "b"]);
    assert_eq!(
        (said.matches("nothing new").count(), said.matches("b: 1 row from").count()),
        (2, 1),
        "{said}"
    );
    assert_eq!(workdir.number("select count(*) from b"), 201);
    workdir.ok(&["lake", "import", "files/*.parquet", "c", "--rename", "word=term"]);
    assert_eq!(workdir.number("select count(term) from c"), 101);
    workdir.ok(&["sql", "copy (select 'x' as n, 'y' as word) to 'files/odd.parquet'"]);
    let refused = workdir.fails(&["lake", "import", "files", "d"]);
    assert!(refused.contains("column `n` is") && refused.contains("odd.parquet"), "{refused}");
    assert!(workdir.fails(&["tables", "d"]).contains('d'), "nothing was made");
}

/// Makes a table with two lake commits, the second of which has one small file, and copies its lake to `copied`. Returns the
/// copy's newest metadata file and the copy of that small file.
fn trips(workdir: &Workdir) -> (PathBuf, PathBuf) {
    let server = workdir.serve(&["serve"]);
    let files = || {
        let dir = workdir.path("polynya-data/lake/main/trips/data");
        let mut files: Vec<PathBuf> = Vec::new();
        walk(&dir, &mut files);
        files
    };
    let rows = |from: i64, to: i64| {
        format!(
            "select value as n, 'word ' || value as word, named_struct('a', value, 'b', 'x') as pair from generate_series({from}, {to})"
        )
    };
    workdir.ok(&["sql", &format!("create table trips as {}", rows(1, 150_000))]);
    workdir.ok(&["lake", "commit", "trips"]);
    let before = files();
    workdir.ok(&["sql", &format!("insert into trips {}", rows(150_001, 150_010))]);
    workdir.ok(&["lake", "commit", "trips"]);
    let second: Vec<PathBuf> = files().into_iter().filter(|file| !before.contains(file)).collect();
    assert_eq!(second.len(), 1, "{second:?}");
    assert!(server.stop().success());
    let (from, to) = (workdir.path("polynya-data/lake/main/trips"), workdir.path("copied"));
    copy(&from, &to);
    let metadata = fs::read_dir(to.join("metadata")).unwrap().map(|entry| entry.unwrap().path());
    let metadata = metadata.filter(|path| path.to_string_lossy().ends_with(".metadata.json"));
    let newest = metadata.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap()).unwrap();
    (newest, to.join(second[0].strip_prefix(&from).unwrap()))
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { walk(&path, files) } else { files.push(path) }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let mut entries: Vec<PathBuf> = fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort_by_key(|path| fs::metadata(path).unwrap().modified().unwrap());
    for path in entries {
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).unwrap();
        }
    }
}

fn edit(path: &Path, change: impl FnOnce(&mut Json)) {
    let mut json = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut json);
    fs::write(path, json.to_string()).unwrap();
}

fn columns(workdir: &Workdir, table: &str) -> Vec<String> {
    let described: Json = serde_json::from_str(workdir.ok(&["tables", table, "--json"]).trim()).unwrap();
    let columns = described["columns"].as_array().unwrap().iter();
    columns.map(|column| column["name"].as_str().unwrap().to_owned()).collect()
}

/// An import was interrupted in its second file, and then the source's columns or the `--rename` changed. The resumed import
/// stored the rest of the rows in other columns.
#[test]
fn an_interrupted_import_goes_on_with_the_columns_that_it_began_with() {
    let _limit = testkit::limit(240);
    let workdir = Workdir::new();
    let (metadata, second) = trips(&workdir);
    let whole = fs::read(&second).unwrap();
    let mut broken = whole.clone();
    broken[4..200].fill(0xff);
    fs::write(&second, broken).unwrap();
    let import = ["lake", "import", "copied", "p1", "--rename", "word=term"];
    let said = workdir.fails(&import);
    assert!(said.contains("before are stored, and the same command goes on after them"), "{said}");
    let taken = workdir.number("select count(term) from p1");
    assert!(0 < taken && taken < 150_000, "{taken}");
    fs::write(&second, &whole).unwrap();

    for other in [&import[..4], &["lake", "import", "copied", "p1", "--rename", "word=other"]] {
        let refused = workdir.fails(other);
        assert!(refused.contains("other names of columns (--rename word=term)"), "{refused}");
    }
    // The snapshot with which the import began is removed from the metadata.
    let before = fs::read(&metadata).unwrap();
    edit(&metadata, |json| {
        let snapshots = json["snapshots"].as_array_mut().unwrap();
        snapshots.last_mut().unwrap()["snapshot-id"] = json!(77);
        json["current-snapshot-id"] = json!(77);
    });
    let refused = workdir.fails(&import);
    assert!(
        refused.contains(&format!("{taken} rows of"))
            && refused.contains("import into a new table, or drop `p1`"),
        "{refused}"
    );
    fs::write(&metadata, before).unwrap();
    // A column is renamed and another one added, without new rows.
    edit(&metadata, |json| {
        let mut schema = json["schemas"].as_array().unwrap().last().unwrap().clone();
        schema["schema-id"] = json!(77);
        let fields = schema["fields"].as_array_mut().unwrap();
        let word = fields.iter_mut().find(|field| field["name"] == "word").unwrap();
        word["name"] = json!("phrase");
        fields.push(json!({ "id": 900, "name": "more", "type": "int", "required": false }));
        json["schemas"].as_array_mut().unwrap().push(schema);
        json["current-schema-id"] = json!(77);
    });
    workdir.ok(&import);
    let all = "select count(*) from p1 where term = 'word ' || n and pair['a'] = n and pair['b'] = 'x'";
    assert_eq!(workdir.number(all), 150_010);
    assert_eq!(columns(&workdir, "p1"), ["n", "term", "pair"]);

    // The import is complete, by whichever name the table is called. Another `--rename` is refused.
    for table in ["p1", "P1", "main.p1", "MAIN.P1"] {
        let said = workdir.ok(&["lake", "import", "copied", table, "--rename", "word=term"]);
        assert!(said.contains("p1: nothing new"), "{table}: {said}");
    }
    let refused = workdir.fails(&["lake", "import", "copied", "p1", "--rename", "n=number"]);
    assert!(refused.contains("--again"), "{refused}");
    assert_eq!((workdir.number("select count(*) from p1"), columns(&workdir, "p1").len()), (150_010, 3));
    // `--again` imports all rows once more; the struct's type still fits the table.
    workdir.ok(&["lake", "import", "copied", "p1", "--rename", "phrase=term", "--again"]);
    assert_eq!(workdir.number("select count(term) from p1"), 300_020);
}

fn numbers(path: &Path, last: i64) {
    let n: ArrayRef = Arc::new(Int64Array::from_iter_values((1..160_000).chain([last])));
    let word: ArrayRef = Arc::new(StringArray::from_iter_values((0..160_000).map(|n| format!("word {n}"))));
    let batch = RecordBatch::try_from_iter([("n", n), ("_time", word)]).unwrap();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(150_000)).build();
    let mut writer =
        ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// A change after a file's first 4 KiB was not noticed: the command reported nothing new, or mixed rows of both files. Other
/// names of columns were not noticed either.
#[test]
fn a_parquet_file_that_is_another_one_by_now_is_refused() {
    let _limit = testkit::limit(240);
    let workdir = Workdir::new();
    let path = workdir.path("a.parquet");
    numbers(&path, 160_000);
    let whole = fs::read(&path).unwrap();
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let (start, _) = reader.metadata().row_group(1).column(0).byte_range();
    let mut broken = whole.clone();
    broken[start as usize..][..100].fill(0xff);
    fs::write(&path, broken).unwrap();
    let import = ["lake", "import", "a.parquet", "b", "--rename", "n=number"];
    workdir.fails(&import);
    let taken = workdir.number("select count(number) from b");
    assert!(0 < taken && taken < 150_000, "{taken}");
    // The file changes in one value and keeps its size.
    numbers(&path, 160_001);
    let refused = workdir.fails(&import);
    assert!(refused.contains("another file by now") && refused.contains("--again"), "{refused}");
    fs::write(&path, &whole).unwrap();
    let refused = workdir.fails(&["lake", "import", "a.parquet", "b"]);
    assert!(refused.contains("--rename n=number --rename _time=time"), "{refused}");
    workdir.ok(&import);
    for table in ["b", "B", "main.b"] {
        let said = workdir.ok(&["lake", "import", "a.parquet", table, "--rename", "n=number"]);
        assert!(said.contains("b: nothing new"), "{table}: {said}");
    }
    assert_eq!(workdir.number("select count(*) from b where time = 'word ' || number - 1"), 160_000);
    numbers(&path, 160_001);
    let refused = workdir.fails(&import);
    assert!(refused.contains("another file by now"), "{refused}");
    assert_eq!(workdir.number("select count(*) from b"), 160_000);

    // `polynya ingest` checks the columns too, and cannot rename any.
    let refused = workdir.fails(&["ingest", "a.parquet", "--table", "c"]);
    assert!(refused.contains("_time"), "{refused}");
}

#[test]
fn parquet_that_the_server_would_not_take_is_refused_before_the_first_row() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    fs::create_dir(workdir.path("files")).unwrap();
    let write = |name: &str, column: &str, values: ArrayRef| {
        let n: ArrayRef = Arc::new(Int64Array::from_iter_values(0..values.len() as i64));
        let batch = RecordBatch::try_from_iter([("n", n), (column, values)]).unwrap();
        let file = File::create(workdir.path("files").join(name)).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    };
    write("1.parquet", "word", Arc::new(StringArray::from(vec!["a", "b"])));
    write("2.parquet", "took", Arc::new(arrow::array::DurationSecondArray::from(vec![1, 2])));
    let refused = workdir.fails(&["lake", "import", "files", "a"]);
    assert!(refused.contains("column `took` is Duration(s), which no table here holds"), "{refused}");
    assert!(refused.contains("2.parquet"), "{refused}");
    assert!(workdir.fails(&["tables", "a"]).contains('a'), "nothing was made");
    // Numbers do not become text, although Arrow could cast them.
    fs::remove_file(workdir.path("files/2.parquet")).unwrap();
    workdir.ok(&["sql", "create table a (n text)"]);
    let refused = workdir.fails(&["lake", "import", "files", "a"]);
    assert!(refused.contains("column `n` is Int64, and string in the table"), "{refused}");
    assert_eq!(workdir.number("select count(*) from a"), 0);
    // One of the files lacks a column that is NOT NULL in the table.
    workdir.ok(&["sql", "create table b (n bigint, word text not null)"]);
    write("0.parquet", "other", Arc::new(StringArray::from(vec!["a", "b"])));
    write("1.parquet", "word", Arc::new(StringArray::from(vec!["a", "b"])));
    let refused = workdir.fails(&["lake", "import", "files", "b"]);
    assert!(
        refused.contains("`word` of the table is NOT NULL") && refused.contains("0.parquet"),
        "{refused}"
    );
    assert_eq!(workdir.number("select count(*) from b"), 0);
}

/// Iceberg has no types for vectors, points and JSON, so a table that Polynya had landed could not be imported back.
#[test]
fn a_table_of_polynyas_own_comes_back_into_one_of_its_types() {
    let _limit = testkit::limit(120);
    let workdir = Workdir::new();
    let server = workdir.serve(&["serve"]);
    let columns = json!({ "columns": [
        { "name": "v", "type": "vector(2)" }, { "name": "at", "type": "point" }, { "name": "place", "type": "point3d" },
        { "name": "more", "type": "json" }, { "name": "who", "type": "uuid" },
    ]});
    let json = ["Content-Type: application/json"];
    for table in ["from", "into"] {
        let (status, said) = server.ask("PUT", &format!("/v1/tables/{table}"), &json, &columns.to_string());
        assert!((200..300).contains(&status), "{said}");
    }
    let rows = json!([
        { "v": [1.5, 2.5], "at": [8.5, 53], "place": { "x": 1, "y": 2, "z": 3 }, "more": { "a": [1] },
          "who": "00000000-0000-0000-0000-000000000007" },
        {},
    ]);
    let (status, said) = server.ask("POST", "/v1/tables/from/rows", &json, &rows.to_string());
    assert!((200..300).contains(&status), "{said}");
    workdir.ok(&["lake", "commit", "from"]);
    assert!(server.stop().success());
    let dir = "polynya-data/lake/main/from";
    workdir.ok(&["lake", "import", dir, "into"]);
    let all =
        |table: &str| workdir.ok(&["sql", "--json", &format!("select * from \"{table}\" order by who")]);
    assert_eq!(all("into"), all("from"));
    assert_eq!(all("into").lines().count(), 2);
    // A text that is not JSON is refused at its row.
    let server = workdir.serve(&["serve"]);
    workdir.ok(&["sql", "create table words as select 'no json' as more"]);
    workdir.ok(&["lake", "commit", "words"]);
    assert!(server.stop().success());
    let refused = workdir.fails(&["lake", "import", "polynya-data/lake/main/words", "into"]);
    assert!(refused.contains("row 1, column `more`: not JSON"), "{refused}");
    assert_eq!(workdir.number("select count(*) from \"into\""), 2);
}

/// `lake verify` reported "every value the same" for a table whose file had a flipped bit, because it compared the file with
/// itself. And Parquet files of other programs were read without checking the checksums of their pages.
#[test]
fn a_flipped_bit_in_a_file_is_named_by_verify_and_refused_by_import_ingest_and_copy() {
    let _limit = testkit::limit(240);
    let workdir = Workdir::new();
    let server = workdir.serve(&["serve"]);
    workdir.ok(&[
        "sql",
        "create table a as select value as n, value * 1.5 as x from generate_series(1, 5000) as t(value)",
    ]);
    let said = workdir.ok(&["lake", "verify", "a"]);
    assert!(said.contains("a: equal.") && said.contains("1 file as written"), "{said}");
    let data = workdir.path("polynya-data/lake/main/a/data");
    let file = fs::read_dir(data).unwrap().next().unwrap().unwrap().path();
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    let reader = SerializedFileReader::new(File::open(&file).unwrap()).unwrap();
    let column = reader.metadata().row_group(0).column(2);
    let at = (column.byte_range().0 + column.byte_range().1 / 2) as usize;
    let mut bytes = fs::read(&file).unwrap();
    bytes[at] ^= 16;
    fs::write(&file, &bytes).unwrap();
    fs::write(workdir.path("flipped.parquet"), &bytes).unwrap();

    let output = workdir.run(&["lake", "verify", "a"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("a: NOT COMPARED") && said.contains("1 file of the lake: ") && said.contains(&name),
        "{said}"
    );
    workdir.ok(&["sql", "create table c (n bigint, x double)"]);
    for refused in [
        workdir.fails(&["ingest", "flipped.parquet", "b"]),
        workdir.fails(&["sql", "copy c (n, x) from 'flipped.parquet'"]),
        workdir.fails(&["lake", "import", "polynya-data/lake/main/a", "d"]),
    ] {
        assert!(refused.contains("checksum"), "{refused}");
    }
    assert!(server.stop().success());
}
