//! ALTER TABLE and views beside cached plans, other principals, and writers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use arrow::array::RecordBatch;
use query::Limits;
use types::{Kind, Principal, Scope, TableSet, Value};

use crate::database::{open, texts};

#[test]
fn a_kept_plan_follows_what_its_names_mean() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table a (id bigint primary key, x int)");
    database.execute("insert into a values (1, 5)");
    database.execute("create table b (id bigint primary key, x int)");
    database.execute("insert into b values (1, 6)");
    let by_key = || database.try_query("select x from a where id = $1", vec![Value::Int64(1)]);
    assert_eq!(by_key().unwrap(), [["5"]]);
    assert_eq!(by_key().unwrap(), [["5"]]);
    database.execute("alter table a alter column x type bigint, rename id to key");
    assert!(by_key().unwrap_err().message().contains("id"));
    database.execute("alter table a rename key to id, drop column x, add column x text default 'new'");
    assert_eq!(by_key().unwrap(), [["new"]]);
    database.execute("alter table a rename to c");
    assert_eq!(by_key().unwrap_err().kind(), Kind::NotFound);
    database.execute("alter table b rename to a");
    assert_eq!(by_key().unwrap(), [["6"]]);

    database.execute("create view v as select x from a");
    let view = || database.query("select * from v");
    assert_eq!((view(), view()), (vec![vec!["6".to_owned()]], vec![vec!["6".to_owned()]]));
    database.execute("create or replace view v as select x || '!' as x from c");
    assert_eq!(view(), [["new!"]]);
    database.execute("drop view v");
    assert!(database.try_query("select * from v", vec![]).is_err());
    database.execute("create table v (y int)");
    assert!(view().is_empty());
}

/// A1: a view gives no principal rows that it may not read itself, and does not reveal the names in its query.
#[test]
fn a_view_reads_with_the_rights_of_its_reader() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table open_ (id bigint)");
    database.execute("create table secret (id bigint)");
    database.execute("insert into secret values (7)");
    database.execute("create view shown as select id from secret");
    database.execute("create view hidden as select id from open_");
    let text = "select id from shown";
    assert_eq!(database.query(text), [["7"]], "the plan is kept");
    let names = ["main.shown", "main.open_"].map(str::to_owned).to_vec();
    let principal = Principal { name: "web".into(), scope: Scope::Write, tables: TableSet::Only(names) };
    let ask = |text: &str| {
        let answer = database.runtime.block_on(database.sql.run(&principal, text, vec![], Limits::default()));
        answer.and_then(|answer| match answer {
            query::Answer::Rows(mut rows) => database.runtime.block_on(rows.collect()).map(|b| texts(&b)),
            query::Answer::Done(_) => Ok(Vec::new()),
        })
    };
    let refused = ask(text).unwrap_err().to_string();
    assert!(refused.contains("view `shown` cannot be read") && !refused.contains("secret"), "{refused}");
    let unseen = ask("select * from hidden").unwrap_err().to_string();
    assert!(unseen.contains("there is no table `hidden`"), "{unseen}");
    let listed = "select table_name, view_definition from information_schema.views";
    assert_eq!(ask(listed).unwrap(), [["shown", "NULL"]]);
    // The view does not reveal its columns either.
    let columns = "select table_name, column_name from information_schema.columns";
    assert_eq!(ask(columns).unwrap(), [["open_", "id"]]);
    assert_eq!(ask("show views").unwrap(), [["main", "shown", "NULL"]]);
    assert_eq!(ask("describe shown").unwrap_err().to_string(), refused);
    assert_eq!(database.query("show views"), [["main", "hidden", "id"], ["main", "shown", "id"]]);
    assert_eq!(ask("create view other as select 1 as x").unwrap_err().kind(), Kind::Forbidden);
    assert_eq!(ask("alter table open_ rename to mine").unwrap_err().kind(), Kind::Forbidden);
    assert_eq!(ask("drop view hidden").unwrap_err().kind(), Kind::NotFound);
}

/// A change that was computed under an older definition is written under the new one, or computed again.
#[test]
fn writers_go_on_while_a_table_is_altered() {
    let _limit = testkit::limit(240);
    let database = open();
    database.execute("create table t (id bigint primary key, n int, note text default 'a')");
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let rounds = 12;
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let (principal, mut id) = (Principal::local(), 0);
            while !stop.load(Ordering::Relaxed) || id < 20 {
                let text = format!("insert into t (id, n) values ({id}, {id})");
                let run = database.sql.run(&principal, &text, vec![], Limits::default());
                match runtime.block_on(run) {
                    Ok(_) => id += 1,
                    // The statement lost against the other side too often.
                    Err(error) => assert_eq!(error.kind(), Kind::Conflict, "{error}"),
                }
                written.store(id, Ordering::Relaxed);
            }
        });
        for round in 0..rounds {
            database.execute(&format!("alter table t add column x{round} int default {round}"));
            database.execute("alter table t alter n set not null");
            database.execute(&format!("alter table t rename column x{round} to y, alter n drop not null"));
            assert_eq!(database.query("select count(*) from t where n is null or y is null"), [["0"]]);
            database.execute("alter table t drop column y");
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    let count = written.load(Ordering::Relaxed);
    let sums = database.query("select count(*), sum(n), count(distinct note) from t");
    assert_eq!(sums, [[count.to_string(), (count * (count - 1) / 2).to_string(), "1".to_owned()]]);
}

/// Rows that were read under the old names were written by the new ones.
#[test]
fn updates_beside_columns_that_exchange_their_names_leave_each_value_in_its_column() {
    let _limit = testkit::limit(240);
    let database = open();
    database.execute("create table t (id bigint primary key, n int, a int, b int)");
    database.execute("insert into t select g, 0, 1, 2 from generate_series(1, 20) as s(g)");
    let (stop, changed) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let write = |upsert: bool| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let (principal, mut id) = (Principal::local(), 0);
            while !stop.load(Ordering::Relaxed) {
                id = id % 20 + 1;
                let text = match upsert {
                    true => {
                        format!("insert into t (id) values ({id}) on conflict (id) do update set n = t.n + 1")
                    }
                    false => format!("update t set n = n + 1 where id = {id}"),
                };
                let run = database.sql.run(&principal, &text, vec![], Limits::default());
                match runtime.block_on(run) {
                    Ok(_) => _ = changed.fetch_add(1, Ordering::Relaxed),
                    Err(error) => assert_eq!(error.kind(), Kind::Conflict, "{error}"),
                }
            }
        };
        scope.spawn(move || write(false));
        scope.spawn(move || write(true));
        for _ in 0..60 {
            database.execute("alter table t rename a to x, rename b to a, rename x to b, add column y int");
            thread::sleep(std::time::Duration::from_millis(5));
            database.execute("alter table t drop column y");
        }
        stop.store(true, Ordering::Relaxed);
    });
    let changed = changed.load(Ordering::Relaxed);
    assert!(changed > 20, "{changed}");
    let rows = database.query("select min(a), max(a), min(b), max(b), count(*), sum(n) from t");
    assert_eq!(rows, [["1", "1", "2", "2", "20", &changed.to_string()]]);
}

/// A file is read for minutes: its rows went to the columns, or to the table, that had taken the names meanwhile.
#[test]
fn a_file_is_copied_to_the_table_and_columns_that_it_was_read_for() {
    let _limit = testkit::limit(120);
    let database = open();
    let local = Principal::local();
    let column = |value: i64| Value::to_array(&[Value::Int64(value)], &types::DataType::Int64).unwrap();
    let rows = RecordBatch::try_from_iter([("a", column(1)), ("b", column(2))]).unwrap();
    for (change, is_taken) in [
        ("alter table t add column c int default 5", true),
        ("create index on t (a)", true),
        ("alter table t rename a to x, rename b to a, rename x to b", false),
        ("alter table t drop column b, add column b bigint", false),
        ("alter table t drop column b", false),
        ("alter table t rename to t2", false),
        ("drop table t", false),
    ] {
        database.execute("create table if not exists t (a bigint, b bigint)");
        let def = database.engine.view(&local).unwrap().table("t").unwrap().def().clone();
        let commit = || query::files::commit(&database.engine, &local, &def, rows.clone());
        commit().unwrap();
        database.execute(change);
        let is_gone = change == "drop table t" || change == "alter table t rename to t2";
        if is_gone {
            assert_eq!(commit().unwrap_err().kind(), Kind::Conflict);
            database.execute("create table t (a bigint, b bigint)");
        }
        match commit() {
            Ok(_) => assert!(is_taken, "{change}"),
            Err(error) => {
                assert!(!is_taken && error.kind() == Kind::Conflict, "{change}: {error}");
                assert!(error.message().contains("while the file was read"), "{error}");
            }
        }
        let expected = if is_gone { 0 } else { 1 + u64::from(is_taken) };
        assert_eq!(database.query("select count(*) from t"), [[expected.to_string()]], "{change}");
        database.execute("drop table t");
    }
}

/// After an error, a second copy of the whole file inserted its beginning twice.
#[test]
fn what_is_left_of_a_file_is_what_its_error_tells_to_copy() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (s text)");
    let local = Principal::local();
    let def = database.engine.view(&local).unwrap().table("t").unwrap().def().clone();
    let batch = |bytes: usize| {
        let column = Value::to_array(&[Value::String("x".repeat(bytes))], &types::DataType::String).unwrap();
        RecordBatch::try_from_iter([("s", column)]).unwrap()
    };
    let copy = |pieces: usize| {
        let lines = |at: u64| query::files::LineRange { first: at, last: at };
        let rows = (1..=2).map(move |at| Ok((batch(query::files::PIECE_BYTES + 1), lines(at))));
        let mut commits = 0;
        query::files::load(Box::new(rows), |whole| {
            assert!(whole.get_array_memory_size() > query::files::PIECE_BYTES);
            if commits == pieces {
                database.execute("alter table t rename column s to x");
            }
            commits += 1;
            query::files::commit(&database.engine, &local, &def, batch(1))
        })
    };
    let error = copy(1).unwrap_err();
    assert_eq!(
        (error.kind(), error.hint_text()),
        (Kind::Conflict, Some("those before are there: copy the rest"))
    );
    assert_eq!(database.query("select count(*) from t"), [["1"]]);
    database.execute("alter table t rename column x to s");
    let error = copy(0).unwrap_err();
    assert_eq!((error.kind(), error.hint_text()), (Kind::Conflict, Some("copy the file again")));
}
