mod cold;
#[cfg(feature = "sql")]
mod copy;
mod edge;
mod forgotten_snapshot;
mod json;
#[cfg(feature = "sql")]
mod prepared;
mod unique;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{DataType, Database, Kind, Mode, NewTable, Op, Transaction, Value};

fn stock() -> NewTable {
    NewTable::new("stock")
        .column("item", DataType::String)
        .column("count", DataType::Int64)
        .primary_key(["item"])
}

fn row(item: &str, count: i64) -> [Value; 2] {
    [item.into(), Value::Int64(count)]
}

#[test]
fn rows_go_in_and_come_out_by_key_scan_and_sql() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("library");
    let db = Database::open(dir.path()).unwrap();
    db.create_table(stock()).unwrap();
    db.insert_rows("stock", &["item", "count"], [row("bolt", 40), row("nut", 55)]).unwrap();
    assert_eq!(db.insert_rows("stock", &["item"], [["bolt".into()]]).unwrap_err().kind(), Kind::Exists);
    db.upsert("stock", db.to_batch("stock", &["item", "count"], [row("bolt", 41)]).unwrap()).unwrap();
    let bolt = db.get("Stock", &["bolt".into()]).unwrap().unwrap();
    assert_eq!(bolt.values().unwrap(), ["bolt".into(), Value::Int64(41)]);
    assert!(db.get("stock", &["screw".into()]).unwrap().is_none());
    let rows: usize = db.snapshot().scan("stock").unwrap().map(|b| b.unwrap().num_rows()).sum();
    assert_eq!(rows, 2);
    assert_eq!(db.delete("stock", &["nut".into()]).unwrap().deleted, 1);
    #[cfg(feature = "sql")]
    assert_eq!(
        db.sql("SELECT sum(count) FROM stock WHERE item <> $1", &["x".into()]).unwrap().value().unwrap(),
        Value::Int64(41)
    );
}

#[test]
fn a_snapshot_may_be_of_an_earlier_commit() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("library");
    let db = Database::open(dir.path()).unwrap();
    let made = db.create_table(stock()).unwrap();
    let first = db.insert_rows("stock", &["item", "count"], [row("bolt", 40), row("nut", 55)]).unwrap();
    db.delete("stock", &["nut".into()]).unwrap();
    let last = db.upsert("stock", db.to_batch("stock", &["item", "count"], [row("bolt", 1)]).unwrap());
    let then = db.snapshot_at(first.lsn).unwrap();
    assert_eq!(then.lsn(), first.lsn);
    let count = |snapshot: &crate::Snapshot, item: &str| {
        let row = snapshot.get("Stock", &[item.into()]).unwrap();
        row.map(|row| row.get("count").unwrap())
    };
    assert_eq!((count(&then, "bolt"), count(&then, "nut")), (Some(Value::Int64(40)), Some(Value::Int64(55))));
    let rows: usize = then.scan("stock").unwrap().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!((rows, count(&db.snapshot(), "nut")), (2, None));
    assert_eq!((then.rows("stock").unwrap(), db.snapshot().rows("stock").unwrap()), (2, 1));
    let when = db.snapshot_at_time(first.time).unwrap();
    assert!((first.lsn..=last.unwrap().lsn).contains(&when.lsn()), "to the millisecond: {}", when.lsn());
    let before = crate::Lsn(made.lsn.0 - 1);
    assert_eq!(db.snapshot_at(before).unwrap().table("stock").unwrap_err().kind(), Kind::NotFound);
    assert_eq!(db.snapshot_at(crate::Lsn(99)).unwrap_err().kind(), Kind::Invalid);
    #[cfg(feature = "sql")]
    {
        let text = "SELECT sum(count) FROM stock";
        assert_eq!(db.sql_at(first.lsn, text, &[]).unwrap().value().unwrap(), Value::Int64(95));
        assert_eq!(db.sql_at(first.lsn, "DELETE FROM stock", &[]).unwrap_err().kind(), Kind::Forbidden);
        assert_eq!(db.sql(text, &[]).unwrap().value().unwrap(), Value::Int64(1));
    }
}

#[cfg(feature = "sql")]
#[test]
fn sql_is_there_for_blocking_callers_and_for_any_runtime() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("library");
    let db = Database::open(dir.path()).unwrap();
    db.sql("CREATE TABLE t (a bigint, b text)", &[]).unwrap();
    assert_eq!(db.sql("INSERT INTO t VALUES (1, 'x'), (2, 'y')", &[]).unwrap().count, 2);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let answer = db.sql_async("SELECT max(a) FROM t", &[]).await.unwrap();
        assert_eq!(answer.value().unwrap(), Value::Int64(2));
        // Blocking inside a runtime is slow but correct.
        assert_eq!(db.sql("SELECT count(*) FROM t", &[]).unwrap().value().unwrap(), Value::Int64(2));
    });
}

#[test]
fn many_databases_close_within_two_seconds_while_they_work() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("library");
    let options = || crate::Options {
        engine: engine::Options {
            seal_bytes: 32 << 10,
            log: commitlog::Options { file_bytes: 1 << 20, ..Default::default() },
            ..Default::default()
        },
        ..Default::default()
    };
    let open = |i: usize| Database::open_with(dir.path().join(i.to_string()), options()).unwrap();
    let databases: Vec<Database> = (0..12).map(open).collect();
    for db in &databases {
        db.create_table(stock()).unwrap();
        for round in 0..20i64 {
            let rows: Vec<_> =
                (0..200).map(|i| row(&format!("item {}", (round * 31 + i) % 900), i)).collect();
            db.upsert("stock", db.to_batch("stock", &["item", "count"], rows).unwrap()).unwrap();
        }
    }
    for db in &databases {
        let held = db.snapshot();
        let started = Instant::now();
        db.close().unwrap();
        assert!(started.elapsed() < Duration::from_secs(2), "closing took {:?}", started.elapsed());
        assert!(held.scan("stock").unwrap().all(|batch| batch.is_ok()), "a held snapshot stays readable");
        let op = Op::DropTable { table: "stock".into(), if_exists: true };
        assert_eq!(db.commit(Transaction::new(vec![op])).unwrap_err().kind(), Kind::Closed);
    }
    // All rows are there after reopening.
    for i in 0..12 {
        assert!(open(i).snapshot().rows("stock").unwrap() > 500);
    }
}

/// A forgotten snapshot keeps memory and files only up to its age limit, and its error gives the reason.
#[test]
fn a_held_snapshot_shows_its_age_and_ends_at_its_bound() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("library");
    let max = Duration::from_secs(1);
    let options = crate::Options { snapshot_age_max: Some(max), ..crate::Options::default() };
    let db = Database::open_with(dir.path(), options).unwrap();
    db.create_table(stock()).unwrap();
    db.insert_rows("stock", &["item", "count"], [row("bolt", 40)]).unwrap();
    let started = Instant::now();
    let held = [
        db.snapshot(),
        db.snapshot_at(db.snapshot().lsn()).unwrap(),
        db.begin().unwrap().snapshot().unwrap(),
    ];
    let lsn = held[0].lsn();
    let table = Arc::downgrade(&held[0].table("stock").unwrap());
    let mut scan = held[0].scan("stock").unwrap();
    let mut begun = held[1].scan("stock").unwrap();
    assert_eq!(begun.next().unwrap().unwrap().num_rows(), 1);
    assert!(begun.next().is_none());
    db.delete("stock", &["bolt".into()]).unwrap();
    assert!(db.get("stock", &["bolt".into()]).unwrap().is_none());
    for snapshot in &held {
        assert!(snapshot.get("stock", &["bolt".into()]).unwrap().is_some(), "it never changes (S1)");
    }
    while db.status().oldest_root_age < Duration::from_millis(100) {
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", db.status());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(db.status().roots_retired > 0);
    while table.upgrade().is_some() {
        assert!(started.elapsed() < Duration::from_secs(20), "what it read is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(started.elapsed() >= max, "not before its time: {:?}", started.elapsed());
    assert_eq!(scan.next().unwrap().unwrap_err().kind(), Kind::Timeout);
    assert!(scan.next().is_none() && begun.next().is_none());
    for snapshot in &held {
        assert_eq!(snapshot.lsn(), lsn);
        for error in [
            snapshot.get("stock", &["bolt".into()]).unwrap_err(),
            snapshot.scan("stock").map(|_| ()).unwrap_err(),
        ] {
            assert_eq!(error.kind(), Kind::Timeout);
            assert!(error.to_string().contains("held for 1 s"), "{error}");
        }
    }
    // Other snapshots stay usable, and one held for a short time is not ended.
    for _ in 0..20 {
        let snapshot = db.snapshot();
        std::thread::sleep(Duration::from_millis(100));
        assert!(snapshot.get("stock", &["bolt".into()]).unwrap().is_none());
    }
}

#[test]
fn concurrent_closes_and_writes_end_in_order() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("library");
    let db = Database::open(dir.path()).unwrap();
    db.create_table(stock()).unwrap();
    let acknowledged = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let db = &db;
                scope.spawn(move || {
                    for i in 0i64.. {
                        let rows = [row(&format!("{writer}/{i}"), i)];
                        // Either call may be the first to meet the closed database.
                        let batch = db.to_batch("stock", &["item", "count"], rows);
                        let insert = |batch| db.commit(Transaction::insert("stock", batch, Mode::Append));
                        match batch.and_then(insert) {
                            Ok(_) => {}
                            Err(error) => {
                                assert_eq!(error.kind(), Kind::Closed, "{error}");
                                return i;
                            }
                        }
                    }
                    unreachable!("closing ends the loop")
                })
            })
            .collect();
        while db.snapshot().rows("stock").unwrap() < 200 {
            std::thread::yield_now();
        }
        let closers: Vec<_> = (0..3).map(|_| scope.spawn(|| db.close().unwrap())).collect();
        closers.into_iter().for_each(|closer| closer.join().unwrap());
        writers.into_iter().map(|writer| writer.join().unwrap()).sum::<i64>()
    });
    drop(db);
    let db = Database::open(dir.path()).unwrap();
    assert_eq!(db.snapshot().rows("stock").unwrap() as i64, acknowledged, "L1, and nothing unacknowledged");
}

#[test]
fn a_closed_database_refuses_reads_and_what_is_held_stays_readable() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("library");
    let db = Database::open(dir.path()).unwrap();
    db.create_table(stock()).unwrap();
    db.insert_rows("stock", &["item", "count"], [row("bolt", 40)]).unwrap();
    let held = db.snapshot();
    db.close().unwrap();
    let other = Database::open(dir.path()).unwrap();
    other.drop_table("stock").unwrap();
    assert_eq!(db.get("stock", &["bolt".into()]).unwrap_err().kind(), Kind::Closed);
    #[cfg(feature = "sql")]
    assert_eq!(db.sql("SELECT 1", &[]).unwrap_err().kind(), Kind::Closed);
    assert!(held.get("stock", &["bolt".into()]).unwrap().is_some());
    assert!(db.snapshot().get("stock", &["bolt".into()]).unwrap().is_some(), "as it was last");
}

#[cfg(feature = "text")]
#[test]
fn rows_are_found_by_words_as_soon_as_they_are_committed() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("library-search");
    let db = Database::open(dir.path()).unwrap();
    let notes = NewTable::new("notes").column("id", DataType::Int64).column("body", DataType::String);
    db.create_table(notes.primary_key(["id"]).text_index(["body"])).unwrap();
    let put = |id: i64, body: &str| {
        let batch = db.to_batch("notes", &["id", "body"], [[Value::Int64(id), body.into()]]).unwrap();
        db.upsert("notes", batch).unwrap();
    };
    put(1, "the <b>river</b> bank");
    put(2, "stones");
    let found = db.search("notes", "rivers").unwrap();
    assert_eq!((found.total, found.exact), (1, true));
    assert_eq!(found.hits[0].row.get("id").unwrap(), Value::Int64(1));
    let expected = "the &lt;b&gt;<mark>river</mark>&lt;/b&gt; bank".to_owned();
    assert_eq!(found.hits[0].snippets, [("body".to_owned(), expected)]);
    put(1, "a lake");
    assert_eq!(db.search("notes", "rivers").unwrap().total, 0);
    db.delete("notes", &[Value::Int64(2)]).unwrap();
    assert_eq!(db.search("notes", crate::Search::new("stone* lake").limit(5)).unwrap().total, 1);

    db.drop_index("notes", "notes_body_idx").unwrap();
    assert_eq!(db.search("notes", "lake").unwrap_err().kind(), Kind::NotFound);
    db.create_text_index("notes", &["body"], &[("language", "none")]).unwrap();
    assert_eq!(db.search("notes", "lakes").unwrap().total, 0);
    assert_eq!(db.search("notes", "lake").unwrap().total, 1);
    db.close().unwrap();

    let db = Database::open(dir.path()).unwrap();
    assert_eq!(db.search("notes", "lake").unwrap().total, 1, "after a restart");
    assert!(db.create_text_index("notes", &["id"], &[]).unwrap_err().to_string().contains("not a string"));
    db.close().unwrap();
}

#[cfg(feature = "sql")]
#[test]
fn an_index_is_declared_waited_for_and_there_after_a_restart() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("library-index");
    let patience = std::time::Duration::from_secs(60);
    let db = Database::open(dir.path()).unwrap();
    let table = NewTable::new("sales").column("id", DataType::Int64).column("customer", DataType::String);
    db.create_table(table.column("amount", DataType::Float64).primary_key(["id"]).index(["customer"]))
        .unwrap();
    let rows = (0..20_000i64).map(|id| {
        let customer = format!("cust_{}", id % 2_000);
        [Value::Int64(id), customer.into(), Value::Float64(id as f64 / 4.0)]
    });
    db.insert_rows("sales", &["id", "customer", "amount"], rows).unwrap();
    db.wait_for_indexes("sales", patience).unwrap();
    let of = |db: &Database, customer: &str| {
        let text = "SELECT count(*) FROM sales WHERE customer = $1";
        db.sql(text, &[customer.into()]).unwrap().value().unwrap()
    };
    assert_eq!(of(&db, "cust_17"), Value::Int64(10));
    let [index] = &db.indexes("sales").unwrap()[..] else { panic!("one index") };
    assert_eq!((index.name.as_str(), index.kind.as_str()), ("sales_customer_idx", "column"));
    assert_eq!((index.columns.as_slice(), index.missing_rows), (["customer".to_owned()].as_slice(), 0));
    assert!(index.bytes > 40_000, "{index:?}");
    db.create_index("sales", &["amount", "id"]).unwrap();
    assert!(db.create_index("sales", &["nothing"]).is_err());
    db.close().unwrap();

    let db = Database::open(dir.path()).unwrap();
    assert_eq!(of(&db, "cust_17"), Value::Int64(10), "whether the index is open by now or not");
    db.insert_rows("sales", &["id", "customer"], [[Value::Int64(-1), "cust_17".into()]]).unwrap();
    assert_eq!(of(&db, "cust_17"), Value::Int64(11));
    db.wait_for_indexes("sales", patience).unwrap();
    let plan = db.sql("EXPLAIN SELECT id FROM sales WHERE amount BETWEEN 10 AND 12", &[]).unwrap();
    assert!(format!("{:?}", plan.batches).contains("index=sales_amount_id_idx"), "{plan:?}");
    let lookup = "SELECT id FROM sales WHERE customer = $1";
    for _ in 0..3 {
        assert_eq!(db.sql(lookup, &["cust_17".into()]).unwrap().count, 11);
    }
    db.drop_index("sales", "sales_customer_idx").unwrap();
    assert_eq!(db.sql(lookup, &["cust_17".into()]).unwrap().count, 11);
    db.close().unwrap();
}

/// A follower that restarts often sees each commit once, in order, beside a writer, seals and deletes.
#[test]
fn a_follower_sees_every_commit_once_and_holds_nobody_up() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("library-changes");
    let mut options = crate::Options::default();
    options.engine.seal_rows = 200;
    let db = Database::open_with(dir.path(), options).unwrap();
    db.create_table(stock()).unwrap();
    db.create_table(NewTable::new("other").column("n", DataType::Int64)).unwrap();
    assert_eq!(db.changes("stock", crate::Lsn(1_000)).err().unwrap().kind(), Kind::Invalid);
    assert_eq!(db.changes("none", crate::Lsn(0)).err().unwrap().kind(), Kind::NotFound);
    let mut copy = std::collections::BTreeMap::new();
    let mut seen = crate::Lsn(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..600i64 {
                let rows = [row(&format!("item {}", n % 40), n), row(&format!("one {n}"), n)];
                db.upsert("stock", db.to_batch("stock", &["item", "count"], rows).unwrap()).unwrap();
                if n % 3 == 0 {
                    db.delete("stock", &[format!("one {n}").into()]).unwrap();
                }
                if n % 50 == 0 {
                    db.insert_rows("other", &["n"], [[Value::Int64(n)]]).unwrap();
                }
            }
        });
        loop {
            let finished = writer.is_finished();
            // Each time, the follower restarts from its position only.
            let mut changes = db.changes("stock", seen).unwrap();
            let page = changes.wait(Duration::from_millis(20)).unwrap();
            for (id, lsn) in page.iter().flat_map(|page| &page.deleted) {
                assert!(*lsn > seen && *lsn <= changes.position());
                copy.remove(id);
            }
            for inserted in page.iter().flat_map(|page| &page.inserted) {
                assert!(inserted.runs.iter().all(|(lsn, _)| *lsn > seen && *lsn <= changes.position()));
                let column = |at: usize, of: DataType, row: usize| {
                    Value::from_array(inserted.batch.column(at), &of, row)
                };
                for row in 0..inserted.batch.num_rows() {
                    let Value::Int64(id) = column(0, DataType::Int64, row) else { panic!() };
                    let values = (column(2, DataType::String, row), column(3, DataType::Int64, row));
                    assert!(copy.insert(crate::RowId(id as u64), values).is_none(), "row {id} came twice");
                }
            }
            assert!(changes.position() >= seen);
            seen = changes.position();
            if finished && page.is_none() {
                break;
            }
        }
    });
    let snapshot = db.snapshot();
    assert_eq!(seen, snapshot.lsn());
    assert_eq!(copy.len() as u64, snapshot.rows("stock").unwrap());
    for (id, (item, count)) in &copy {
        let row = snapshot.get("stock", std::slice::from_ref(item)).unwrap().unwrap();
        assert_eq!((row.row_id(), row.get("count").unwrap()), (*id, count.clone()));
    }
    let mut late = db.changes("stock", seen).unwrap();
    db.drop_table("stock").unwrap();
    assert_eq!(late.poll().unwrap_err().kind(), Kind::NotFound);
    db.close().unwrap();
}

#[test]
fn a_waiting_follower_is_told_that_the_database_closes() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("library-changes-close");
    let db = Database::open(dir.path()).unwrap();
    db.create_table(stock()).unwrap();
    let mut changes = db.changes("stock", db.snapshot().lsn()).unwrap();
    assert!(changes.poll().unwrap().is_none());
    let waiting = std::thread::spawn(move || changes.wait(Duration::MAX).map(drop));
    db.close().unwrap();
    assert_eq!(waiting.join().unwrap().unwrap_err().kind(), Kind::Closed);
}

#[test]
fn a_backup_becomes_a_database_again() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("library-backup");
    let db = Database::open(dir.path().join("data")).unwrap();
    db.create_table(stock()).unwrap();
    db.insert_rows("stock", &["item", "count"], [row("bolt", 40)]).unwrap();
    let taken = db.backup(dir.path().join("kept")).unwrap();
    assert_eq!((taken.rows, taken.lsn), (1, db.snapshot().lsn()));
    assert_eq!(db.backup(dir.path().join("kept")).unwrap_err().kind(), Kind::Exists);
    db.close().unwrap();
    let again = dir.path().join("again");
    let restored = crate::restore(dir.path().join("kept"), &again, &crate::Restore::default()).unwrap();
    assert_eq!(restored.lsn, taken.lsn);
    let db = Database::open(&again).unwrap();
    assert_eq!(db.get("stock", &["bolt".into()]).unwrap().unwrap().get("count").unwrap(), Value::Int64(40));
    db.insert_rows("stock", &["item", "count"], [row("nut", 1)]).unwrap();
    db.close().unwrap();
}
