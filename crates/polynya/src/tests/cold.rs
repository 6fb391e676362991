//! Compressed segments, read in every way.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};

use crate::{DataType, Database, NewTable, Op, Options, Restore, Transaction, Value};

const ROWS: i64 = 40_000;

fn options(zstd_after: Option<Duration>) -> Options {
    let mut options = Options::default();
    // Segments of more than three blocks each, so that the first seal already sorts them by time.
    options.engine.seal_rows = 25_000;
    options.engine.zstd_after = zstd_after;
    options
}

/// Rows with times in no order, so that `log` is stored in another order than it was inserted.
fn part(ids: std::ops::Range<i64>) -> RecordBatch {
    let kinds = ["bolt", "nut", "screw", "washer", "wrench"];
    let at = ids.clone().map(|id| id * 7_919 % ROWS * 1_000_000);
    let price = |id: i64| (id % 11 > 0).then_some((id % 997) as f64 / 4.0);
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(Int64Array::from_iter_values(ids.clone()))),
        ("kind", Arc::new(StringArray::from_iter_values(ids.clone().map(|id| kinds[(id * 7 % 5) as usize])))),
        ("price", Arc::new(Float64Array::from_iter(ids.map(price)))),
        ("at", Arc::new(TimestampMicrosecondArray::from_iter_values(at).with_timezone("UTC"))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn fill(db: &Database) {
    for (name, ordered) in [("stock", false), ("log", true)] {
        let table = NewTable::new(name)
            .column("id", DataType::Int64)
            .column("kind", DataType::String)
            .column("price", DataType::Float64)
            .column("at", DataType::Timestamp);
        let (mut def, if_absent) = table.primary_key(["id"]).into_def().unwrap();
        def.time = def.schema.column_named("at").map(|column| column.id).filter(|_| ordered);
        db.commit(Transaction::new(vec![Op::CreateTable { def, if_absent }])).unwrap();
        db.create_index(name, &["price"]).unwrap();
        for from in (0..ROWS).step_by(2_500) {
            db.insert(name, part(from..from + 2_500)).unwrap();
        }
    }
}

/// Returns the numbers of rows in compressed and in uncompressed segments.
fn counted(db: &Database) -> (u64, u64) {
    let root = db.engine().root();
    let segments = ["main.stock", "main.log"].map(|name| root.table(name).unwrap().clone());
    let (packed, plain): (Vec<_>, Vec<_>) =
        segments.iter().flat_map(|table| table.segments()).partition(|segment| segment.is_compressed());
    let rows = |all: Vec<&Arc<table::Segment>>| all.iter().map(|segment| segment.meta().rows).sum();
    (rows(packed), rows(plain))
}

/// Returns the answers of reads by key, index, order, time, change feed and scan.
fn answers(db: &Database) -> Vec<(String, Option<RecordBatch>)> {
    let mut said = Vec::new();
    for table in ["stock", "log"] {
        for id in (0..ROWS).step_by(1_234) {
            let row = db.get(table, &[Value::Int64(id)]).unwrap();
            said.push((format!("{id}: {:?}", row.map(|row| row.values().unwrap())), None));
        }
        let feed: usize = db.snapshot().scan(table).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
        said.push((format!("{feed} rows of {table}"), None));
        #[cfg(feature = "sql")]
        for question in [
            "SELECT count(*), sum(price), min(at), max(kind) FROM t",
            "SELECT kind, count(*), avg(price) FROM t GROUP BY kind ORDER BY kind",
            "SELECT id, kind FROM t WHERE price = 12.25 ORDER BY id",
            "SELECT id, price FROM t WHERE price BETWEEN 100 AND 101 ORDER BY price, id",
            "SELECT id, kind FROM t ORDER BY price DESC NULLS LAST, id LIMIT 20",
            "SELECT id FROM t WHERE price IS NULL AND kind = 'nut' ORDER BY id LIMIT 50",
            "SELECT count(*) FROM t WHERE at >= TIMESTAMP '1970-01-01 02:00:00' AND at < TIMESTAMP '1970-01-01 03:00:00'",
            "SELECT a.id FROM t a JOIN t b ON a.id = b.id + 1 WHERE b.price = 3.5 ORDER BY a.id",
        ] {
            let answer = db.sql(&question.replace(" t", &format!(" {table}")), &[]).unwrap();
            let rows = answer
                .batches
                .first()
                .map(|first| arrow::compute::concat_batches(&first.schema(), &answer.batches).unwrap());
            said.push((question.to_owned(), rows));
        }
    }
    said
}

#[test]
fn compressed_tables_answer_as_they_did_and_are_backed_up() {
    let _limit = testkit::limit(600);
    let dir = testkit::temp_dir("cold");
    let data = dir.path().join("data");
    let db = Database::open_with(&data, options(None)).unwrap();
    fill(&db);
    ["stock", "log"].iter().for_each(|t| db.wait_for_indexes(t, Duration::from_secs(120)).unwrap());
    let expected = answers(&db);
    #[cfg(feature = "sql")]
    let then = db.snapshot().lsn();
    db.close().unwrap();
    drop(db);

    let db = Database::open_with(&data, options(Some(Duration::ZERO))).unwrap();
    let patience = Instant::now() + Duration::from_secs(300);
    while counted(&db).1 > 0 {
        assert!(Instant::now() < patience, "{:?} rows are compressed and are not", counted(&db));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(counted(&db).0 > ROWS as u64, "{:?}", counted(&db));
    assert!(answers(&db) == expected);
    let root = db.engine().root();
    let log = root.table("main.log").unwrap();
    assert!(log.segments().any(|s| s.is_compressed() && !s.is_in_row_order()), "in the order of time");
    let (compressed, raw) = log.compressed_bytes();
    assert!(compressed * 2 < raw, "{compressed} of {raw} bytes");

    // An index built from compressed rows finds the same rows as a scan.
    db.create_index("log", &["kind"]).unwrap();
    db.wait_for_indexes("log", Duration::from_secs(120)).unwrap();
    assert!(answers(&db) == expected);

    // Compressed rows can be updated and deleted, and their earlier versions be read.
    #[cfg(feature = "sql")]
    {
        let all = "SELECT count(*), sum(price) FROM stock";
        let before = db.sql(all, &[]).unwrap().batches;
        db.sql("UPDATE stock SET price = 1 WHERE id < 500", &[]).unwrap();
        db.sql("DELETE FROM stock WHERE id >= 39000", &[]).unwrap();
        let left = db.sql("SELECT count(*) FROM stock", &[]).unwrap().value().unwrap();
        assert_eq!(left, Value::Int64(39_000));
        let as_of = format!("SELECT count(*), sum(price) FROM stock AS OF LSN {then}");
        assert!(db.sql(&as_of, &[]).unwrap().batches == before);
    }
    let now = answers(&db);
    let backup = dir.path().join("backup");
    db.backup(&backup).unwrap();
    db.close().unwrap();
    let open = |data: &Path| Database::open_with(data, options(None)).unwrap();
    let restored = dir.path().join("restored");
    crate::restore(&backup, &restored, &Restore::default()).unwrap();
    for data in [&data, &restored] {
        let db = open(data);
        assert!(counted(&db).0 > 0, "what is compressed is read with that being off");
        assert!(answers(&db) == now, "{}", data.display());
        db.close().unwrap();
    }
}
