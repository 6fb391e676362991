//! Answers of writing statements at the limits of commit, deadline and memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use query::{Answer, Limits};
use sim::SlowDisk;
use types::Kind;
use vfs::Env;

use crate::database::{Database, open_engine, open_on, open_with};

const SYNC_TAKES: Duration = Duration::from_millis(1_500);

/// The deadline also ran while the commit was on its way: an answer `timeout` hid that the row was stored.
#[test]
fn a_statement_that_was_handed_over_answers_with_its_outcome_not_with_a_timeout() {
    let _limit = testkit::limit(120);
    let real = Env::real();
    let slow = Arc::new(SlowDisk::new(real.disk.clone()));
    let env = Env { disk: slow.clone(), ..real };
    let database = open_on(env, engine::Options::default(), |_| ());
    database.execute("create table t (id bigint)");
    slow.let_syncs_take(SYNC_TAKES);
    let start = Instant::now();
    let limits = Limits { deadline: Some(Duration::from_millis(300)), ..Limits::default() };
    let answer = database.run("insert into t values (1)", vec![], limits);
    assert!(start.elapsed() > Duration::from_millis(300), "the disk was not slow");
    assert!(matches!(answer, Ok(Answer::Done(done)) if done.count == 1), "{answer:?}");
    slow.let_syncs_take(Duration::ZERO);
    assert_eq!(database.query("select count(*) from t"), [["1"]]);
}

fn copy(database: &Database) -> Result<Answer, types::Error> {
    database.run("insert into target select id, repeat(kind, 20), x from n", vec![], Limits::default())
}

/// The rows that a statement collected before it wrote were not counted: a few statements at once took more memory than SQL has.
#[test]
fn rows_to_be_written_count_towards_the_memory_of_all_statements() {
    let _limit = testkit::limit(120);
    let prepare = |database: &Database| {
        database.numbers("n", 100_000, false);
        database.execute("create table target (id bigint, kind text, x bigint)");
    };
    // About 14 MB of rows, and as much again while they are concatenated.
    let small = open_with(|options| options.memory_bytes = 8 << 20);
    prepare(&small);
    let error = copy(&small).unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge, "{error}");
    // Tasks of the statement end a little later.
    while small.sql.status().running > 0 {
        std::thread::yield_now();
    }
    assert_eq!(small.sql.status().memory_bytes, 0);
    assert_eq!(small.query("select count(*) from target"), [["0"]]);

    let large = open_engine(engine::Options::default(), |options| options.memory_bytes = 128 << 20);
    prepare(&large);
    assert!(matches!(copy(&large).unwrap(), Answer::Done(done) if done.count == 100_000));
    while large.sql.status().running > 0 {
        std::thread::yield_now();
    }
    assert_eq!(large.sql.status().memory_bytes, 0, "it is given back with the commit");
}

/// Each slice of a batch was counted as the whole batch.
#[test]
fn all_rows_that_one_statement_wrote_can_be_changed_by_another() {
    let _limit = testkit::limit(120);
    let database = open_with(|_| ());
    database.execute("create table t (id bigint primary key, k int, s text)");
    database
        .execute("insert into t select g, g, repeat('v', 40) || g from generate_series(1, 300000) as s(g)");
    assert_eq!(database.execute("update t set k = -k"), 300_000);
    assert_eq!(database.query("select sum(k), count(*) from t"), [["-45000150000", "300000"]]);
    assert_eq!(database.sql.status().memory_bytes, 0);
}
