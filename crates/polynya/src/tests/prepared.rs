//! Prepared statements of the library.

use crate::{DataType, Database, Kind, Value};

#[test]
fn a_prepared_statement_is_run_from_many_threads() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("prepared");
    let db = Database::open(dir.path()).unwrap();
    db.sql("CREATE TABLE t (id bigint PRIMARY KEY, n bigint)", &[]).unwrap();
    let put = db
        .prepare("INSERT INTO t VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET n = t.n + excluded.n")
        .unwrap();
    let get = db.prepare("SELECT n FROM t WHERE id = $1").unwrap();
    assert_eq!(get.parameter_types(), [Some(DataType::Int64)]);
    std::thread::scope(|scope| {
        for thread in 0..4i64 {
            let (put, get) = (&put, &get);
            scope.spawn(move || {
                for round in 1..=5 {
                    assert_eq!(put.run(&[Value::Int64(thread), Value::Int64(1)]).unwrap().count, 1);
                    let found = get.run(&[Value::Int64(thread)]).unwrap();
                    assert_eq!((found.count, found.value().unwrap()), (1, Value::Int64(round)));
                }
            });
        }
    });
    let returning = db.sql("DELETE FROM t WHERE id < 2 RETURNING id, n", &[]).unwrap();
    assert_eq!((returning.count, returning.batches.len()), (2, 1));
    assert_eq!(db.sql("TRUNCATE t", &[]).unwrap().count, 2);
    assert_eq!(get.run(&[Value::Int64(3)]).unwrap().count, 0);
    db.close().unwrap();
    assert_eq!(get.run(&[Value::Int64(3)]).unwrap_err().kind(), Kind::Closed);
    assert_eq!(db.prepare("SELECT 1").unwrap_err().kind(), Kind::Closed);
}
