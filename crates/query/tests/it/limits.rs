//! The limits of a statement (rows, time, memory, number), and its end when its answer is dropped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use futures::future::join_all;
use query::{Answer, Limits, Overflow};
use types::{Kind, Principal};

use crate::database::{Database, alone, open, open_with};

/// A query that would run for hours.
const ENDLESS: &str = "select count(*) from n a, n b, n c where (a.x + b.x + c.x) % 7 = 3";

fn limits(deadline: Duration) -> Limits {
    Limits { deadline: Some(deadline), ..Limits::default() }
}

/// CPU time of this process's SQL threads, in seconds.
fn cpu_seconds() -> f64 {
    let mut ticks = 0u64;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let Ok(stat) = std::fs::read_to_string(task.unwrap().path().join("stat")) else { continue };
        if !stat.contains("(polynya-sql") {
            continue;
        }
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        ticks += fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    }
    ticks as f64 / 100.0
}

/// Waits until nothing runs, at most ten seconds.
fn wait_until_idle(database: &Database) {
    let start = Instant::now();
    while database.sql.status().running > 0 {
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", database.sql.status());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_answer_longer_than_allowed_is_an_error_or_says_that_it_is_cut() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 20_000, false);
    let with = |rows_max, overflow| Limits { rows_max: Some(rows_max), overflow, ..Limits::default() };

    let mut rows = database.rows("select id from n", vec![], with(10_000, Overflow::Error)).unwrap();
    let error = database.runtime.block_on(rows.collect()).unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge);
    assert!(database.runtime.block_on(rows.next()).is_none(), "an error is the end");

    let mut rows = database.rows("select id from n", vec![], with(10_000, Overflow::Truncate)).unwrap();
    let batches = database.runtime.block_on(rows.collect()).unwrap();
    assert_eq!(batches.iter().map(|b| b.num_rows()).sum::<usize>(), 10_000);
    assert!(rows.truncated());

    let mut rows = database.rows("select id from n", vec![], with(20_000, Overflow::Truncate)).unwrap();
    database.runtime.block_on(rows.collect()).unwrap();
    assert!(!rows.truncated(), "exactly as many as allowed is the whole answer");
}

#[test]
fn a_statement_ends_at_its_deadline_wherever_it_is() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 50_000, false);
    let start = Instant::now();
    let mut rows = database.rows(ENDLESS, vec![], limits(Duration::from_millis(300))).unwrap();
    let error = database.runtime.block_on(rows.collect()).unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout, "{error}");
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    wait_until_idle(&database);

    // A reader that never reads does not keep the statement beyond the deadline either.
    let mut rows = database.rows("select * from n", vec![], limits(Duration::from_millis(300))).unwrap();
    wait_until_idle(&database);
    let error = database.runtime.block_on(rows.collect()).unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout, "{error}");
}

/// The status reports its age while it is held. At the deadline it releases its snapshot, though its reader keeps the answer.
#[test]
fn a_stream_that_nobody_takes_shows_its_age_and_lets_go_at_its_deadline() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 100_000, true);
    let table = || database.engine.view(&Principal::local()).unwrap().table("n").unwrap();
    let held = std::sync::Arc::downgrade(&table());
    let limits = limits(Duration::from_secs(2));
    let mut rows = database.rows("select * from n", vec![], limits).unwrap();
    // The table changes; the stream's snapshot does not.
    database.execute("delete from n");
    let start = Instant::now();
    while database.sql.status().oldest < Duration::from_millis(300) {
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", database.sql.status());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(database.sql.status().running, 1);
    assert!(held.upgrade().is_some(), "it is still being read");
    wait_until_idle(&database);
    let start = Instant::now();
    while held.upgrade().is_some() || database.sql.status().oldest > Duration::ZERO {
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", database.sql.status());
        std::thread::sleep(Duration::from_millis(5));
    }
    let error = database.runtime.block_on(rows.collect()).unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout);
    assert!(error.to_string().contains("did not finish within 2 s"), "{error}");
}

/// COPY … TO has a deadline of its own, longer than that of other statements, and ends at it too.
#[test]
fn a_copy_may_take_longer_than_other_statements_and_not_for_ever() {
    let _limit = testkit::limit(120);
    let database = open_with(|options| {
        options.deadline = Duration::from_millis(300);
        options.copy_deadline = Duration::from_secs(3);
    });
    database.numbers("n", 50_000, false);
    let principal = Principal::local();
    let out = |query: &str, limits| {
        database.runtime.block_on(database.sql.copy_out(&principal, None, query, limits))
    };
    let start = Instant::now();
    let mut rows = out("select * from n", Limits::default()).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    let batches = database.runtime.block_on(rows.collect()).unwrap();
    assert_eq!(batches.iter().map(|b| b.num_rows()).sum::<usize>(), 50_000);
    let mut rows = out(ENDLESS, Limits::default()).unwrap();
    let error = database.runtime.block_on(rows.collect()).unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout, "{error}");
    assert!(start.elapsed() > Duration::from_secs(3) && start.elapsed() < Duration::from_secs(60));
    let few = Limits { rows_max: Some(10), ..Limits::default() };
    let mut rows = out("select * from n", few).unwrap();
    assert_eq!(database.runtime.block_on(rows.collect()).unwrap_err().kind(), Kind::TooLarge);
    assert_eq!(out("delete from n", Limits::default()).unwrap_err().kind(), Kind::Invalid);
}

/// A request could ask for any deadline, and keep a slot among the statements for as long.
#[test]
fn no_statement_gets_a_longer_deadline_than_all() {
    let _limit = testkit::limit(120);
    let database = open_with(|options| options.deadline = Duration::from_millis(300));
    database.numbers("n", 50_000, false);
    let start = Instant::now();
    let mut rows = database.rows(ENDLESS, vec![], limits(Duration::from_secs(600))).unwrap();
    let error = database.runtime.block_on(rows.collect()).unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout, "{error}");
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn a_dropped_answer_stops_the_work() {
    let _limit = testkit::limit(240);
    let _alone = alone();
    let database = open();
    database.numbers("n", 100_000, false);
    let sort = "select a.id, b.id from n a, n b where a.x <> b.x order by a.id + b.id, a.x";
    let group = "select a.x * 1000000 + b.id, count(*) from n a, n b group by 1";
    for text in [ENDLESS, sort, group] {
        let mut rows = database.rows(text, vec![], limits(Duration::from_secs(600))).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        if database.sql.status().running == 0 {
            panic!("{text} has ended: {:?}", database.runtime.block_on(rows.collect()));
        }
        drop(rows);
        wait_until_idle(&database);
        // A sort of one part's rows in memory is not interrupted; after it the threads must be idle.
        let start = Instant::now();
        loop {
            let before = cpu_seconds();
            std::thread::sleep(Duration::from_millis(300));
            if cpu_seconds() - before < 0.05 {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(6), "`{text}` works on though nobody reads it");
        }
    }
    assert_eq!(database.sql.status().memory_bytes, 0);
}

#[test]
fn a_dropped_future_stops_the_work() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 50_000, true);
    let principal = Principal::local();
    // An UPDATE answers only when it is done.
    let text = "update n set x = (select count(*) from n a, n b, n c where (a.x + b.x + c.x) % 7 = 3)";
    database.runtime.block_on(async {
        let run = database.sql.run(&principal, text, vec![], limits(Duration::from_secs(600)));
        assert!(tokio::time::timeout(Duration::from_millis(300), run).await.is_err());
    });
    wait_until_idle(&database);
}

#[test]
fn more_statements_than_allowed_wait_and_more_than_may_wait_are_refused() {
    let _limit = testkit::limit(120);
    let database = open_with(|options| {
        options.concurrent_max = 2;
        options.waiting_max = 3;
    });
    database.numbers("n", 50_000, false);
    // An answer that is not read to its end keeps its slot.
    let pairs = "select a.id, b.id from n a, n b";
    let held: Vec<_> = (0..2).map(|_| database.rows(pairs, vec![], Limits::default()).unwrap()).collect();
    let principal = Principal::local();
    let heavy = || database.sql.run(&principal, pairs, vec![], limits(Duration::from_millis(500)));
    let answers = database.runtime.block_on(join_all((0..5).map(|_| heavy())));
    let kinds: Vec<Kind> = answers.iter().map(|a| a.as_ref().unwrap_err().kind()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == Kind::Busy).count(), 2, "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == Kind::Timeout).count(), 3, "{kinds:?}");
    assert_eq!(database.sql.status().refused, 2);
    assert_eq!(
        database.query("select count(*) from n"),
        [["50000"]],
        "what is light needs no such place (R3)"
    );
    drop(held);
    assert!(matches!(database.runtime.block_on(heavy()).unwrap(), Answer::Rows(_)));
}

/// R3: with every thread of heavy statements inside a join that never ends.
#[test]
fn a_light_statement_does_not_wait_for_heavy_ones() {
    let _limit = testkit::limit(120);
    let _alone = alone();
    let database = open_with(|options| options.concurrent_max = 4);
    database.numbers("n", 50_000, true);
    let heavy: Vec<_> =
        (0..4).map(|_| database.rows(ENDLESS, vec![], limits(Duration::from_secs(100))).unwrap()).collect();
    let before = database.sql.status();
    assert_eq!(before.running, 4);
    let mut slowest = Duration::ZERO;
    for id in 0..50 {
        let start = Instant::now();
        let params = vec![types::Value::Int64(id)];
        let rows = database.try_query("select id from n where id = $1", params).unwrap();
        assert_eq!(rows, [[id.to_string()]]);
        slowest = slowest.max(start.elapsed());
    }
    assert_eq!(database.sql.status().heavy, before.heavy);
    // The threads of light statements are free; on a machine with fewer cores than busy threads they still have priority.
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    drop(heavy);
    wait_until_idle(&database);
}

/// R3: a new text is planned beside whatever other statements plan and execute.
#[test]
fn a_new_text_does_not_wait_for_slow_functions_and_patterns_of_others() {
    let _limit = testkit::limit(120);
    let _alone = alone();
    let database = open_with(|options| options.concurrent_max = 4);
    database.numbers("n", 1_000, true);
    let slow = [
        "select regexp_count(repeat('a', 10000000), 'a[^z]*z|a')",
        "select length(regexp_replace(repeat('a', 10000000), 'a[^z]*z|a', 'b', 'g'))",
        "select levenshtein(repeat('a', 30000), repeat('b', 30000))",
        "select repeat('a', 100000) like repeat('%a', 2000) || 'b'",
        "select case when true then repeat('a', 5000000) else 'b' end like repeat('%a', 100) || 'b'",
        "select sum(value) from generate_series(1, 1000000000000)",
    ];
    let principal = Principal::local();
    let done = AtomicBool::new(false);
    let slowest = std::thread::scope(|scope| {
        for text in slow {
            let (database, principal, done) = (&database, &principal, &done);
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                while !done.load(Ordering::Relaxed) {
                    let run = database.sql.run(principal, text, vec![], limits(Duration::from_secs(2)));
                    let Ok(Answer::Rows(mut rows)) = runtime.block_on(run) else { continue };
                    while runtime.block_on(rows.next()).is_some_and(|batch| batch.is_ok()) {}
                }
            });
        }
        let slowest = (0..100).map(|id| {
            let start = Instant::now();
            assert_eq!(database.query(&format!("select id from n where id = {id}")), [[id.to_string()]]);
            start.elapsed()
        });
        let slowest = slowest.max().unwrap();
        done.store(true, Ordering::Relaxed);
        slowest
    });
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
}

/// All limits of a light statement with a cached plan.
#[test]
fn a_light_statement_meets_its_limits_too() {
    let _limit = testkit::limit(120);
    let _alone = alone();
    let database = open();
    database.numbers("n", 50_000, true);
    let lookup = "select x from n where id = 7";
    let sum = "select sum(x) from n where id < 7";
    assert_eq!(database.query(lookup), [["49"]]);
    assert_eq!(database.query(sum), [["147"]]);
    for text in [lookup, sum] {
        let error = database.run(text, vec![], limits(Duration::ZERO)).unwrap_err();
        assert_eq!(error.kind(), Kind::Timeout, "{error}");
    }

    // Answers of several batches that are not read keep their slots.
    let many = ["select 1 as x"; 8].join(" union all ");
    let heavy = database.sql.status().heavy;
    let whole = vec![["1".to_owned()]; 8];
    let mut held = Vec::new();
    for _ in 0..256 {
        held.push(database.rows(&many, vec![], Limits::default()).unwrap());
    }
    let status = database.sql.status();
    assert_eq!((status.running, status.heavy), (256, heavy), "all of them are light");
    assert_eq!(database.query(lookup), [["49"]], "a lookup needs no place");
    assert_eq!(database.sql.status().heavy, heavy);
    assert_eq!(database.query(sum), [["147"]], "a further one is answered");
    assert_eq!(database.sql.status().heavy, heavy + 1, "among the heavy ones");
    for mut rows in held {
        let batches = database.runtime.block_on(rows.collect()).unwrap();
        assert_eq!(crate::database::texts(&batches), whole);
    }
    wait_until_idle(&database);
    assert_eq!(database.query(sum), [["147"]]);
    assert_eq!(database.sql.status().heavy, heavy + 1, "the places are free again");
}

#[test]
fn what_is_light_is_known_before_it_runs() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 50_000, true);
    let is_light = |text: &str| {
        let before = database.sql.status().heavy;
        let some = Limits { rows_max: Some(10), overflow: Overflow::Truncate, ..Limits::default() };
        let mut rows = database.rows(text, vec![], some).unwrap();
        database.runtime.block_on(rows.collect()).unwrap();
        database.sql.status().heavy == before
    };
    for light in [
        "select 1",
        "select * from n where id = 7",
        "select count(*) from n",
        "select count(*), sum(x) from n where x > 5",
        "select * from n order by x limit 5",
        "select kind, count(*) from n where id < 5000 group by kind",
        "select a.x from n a join n b on a.id = b.id where a.id = 7 and b.id = 7",
        "select * from n limit 100",
        "select * from n order by _row_id desc limit 10",
        "select x + 1, lower(kind) from n where id = 7",
        "select count(*) from n where kind like '%3'",
    ] {
        assert!(is_light(light), "{light}");
    }
    for heavy in [
        "select a.id, b.id from n a, n b",
        "select a.id from n a join n b on a.x = b.x",
        "select upper(repeat(kind, 5)) from n order by 1",
        "select id, sum(x) over (order by id) from n",
        "with recursive r(i) as (select 1 union all select i + 1 from r where i < 5) select * from r",
        "select * from n",
        "select kind, count(*) from n group by kind",
        "select count(*) from n where kind ~ 'k.*3'",
        "select count(*) filter (where x > 5) from n",
        "select kind, x, count(*) from n group by cube (kind, x)",
        "select array_agg(x) from n",
        "select repeat(kind, 3) from n where id = 7",
        "select * from n order by x limit 20000",
        "select count(*) from n a, n b where a.id < 3 and b.id < 3 and a.x < b.x",
    ] {
        assert!(!is_light(heavy), "{heavy}");
    }
    // A long text is planned where it delays nobody, and is then as light as any.
    let long = format!("select id from n where id = 7 or id in ({})", vec!["1"; 2_000].join(", "));
    assert!(is_light(&long));
}

#[test]
fn a_sort_of_several_times_the_pool_spills() {
    let _limit = testkit::limit(240);
    // With one thread there is one sort, which could take all memory of the consumers that spill.
    for threads in [1, 2] {
        sort_of_several_times_the_pool(threads);
    }
}

fn sort_of_several_times_the_pool(threads: usize) {
    let database = open_with(|options| {
        options.memory_bytes = 16 << 20;
        options.threads = threads;
    });
    // About 100 bytes a row: 60 MB.
    let wanted = 600_000;
    database.numbers("n", wanted, false);
    let text = "select id, k, x from (select id, repeat(kind, 10) as k, x from n) order by x, id desc, k";
    let mut rows = database.rows(text, vec![], Limits::default()).unwrap();
    let done = AtomicBool::new(false);
    let mut count = 0;
    let mut last = (i64::MIN, i64::MAX);
    let spilled = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                most = most.max(database.sql.status().spilled_bytes);
                std::thread::yield_now();
            }
            most
        });
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while let Some(batch) = database.runtime.block_on(rows.next()) {
                let batch = batch.unwrap();
                let column = |i: usize| batch.column(i).as_primitive::<Int64Type>().values().to_vec();
                for (x, id) in column(2).into_iter().zip(column(0)) {
                    assert!((x, -id) > (last.0, -last.1) || count == 0, "{x} {id} after {last:?}");
                    last = (x, id);
                    count += 1;
                }
            }
        }));
        done.store(true, Ordering::Relaxed);
        read.unwrap();
        watcher.join().unwrap()
    });
    assert_eq!(count, wanted);
    assert!(spilled > 16 << 20, "{spilled} bytes were spilled");
    drop(rows);
    wait_until_idle(&database);
    assert_eq!(database.sql.status().spilled_bytes, 0, "spill files go with their statement");
}

#[test]
fn a_statement_that_needs_more_memory_than_there_is_fails_alone() {
    let _limit = testkit::limit(240);
    let database = open_with(|options| {
        options.memory_bytes = 4 << 20;
        options.spill_bytes_max = 1 << 20;
    });
    database.numbers("n", 300_000, false);
    let error = database.try_query("select id, kind, x from n order by x, id", vec![]).unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge, "{error}");
    assert_eq!(database.query("select count(*) from n"), [["300000"]]);
}

#[test]
fn a_recursion_without_end_meets_its_deadline() {
    let _limit = testkit::limit(120);
    let database = open();
    let text = "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n";
    let rows = database.rows(text, vec![], limits(Duration::from_millis(300)));
    let error = database.runtime.block_on(rows.unwrap().collect()).unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout, "{error}");
    wait_until_idle(&database);
}

#[test]
fn closing_ends_answers_with_an_error() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 100_000, false);
    let mut rows = database.rows("select * from n", vec![], Limits::default()).unwrap();
    let start = Instant::now();
    database.sql.close();
    assert!(start.elapsed() < Duration::from_secs(2));
    let error = database.runtime.block_on(rows.collect()).unwrap_err();
    assert_eq!(error.kind(), Kind::Closed);
    assert_eq!(database.run("select 1", vec![], Limits::default()).unwrap_err().kind(), Kind::Closed);
}

#[test]
fn sql_works_on_threads_of_its_own_class() {
    let _limit = testkit::limit(60);
    let database = open();
    database.query("select 1");
    // Other tests of this process start such threads all the time; a new thread has no name or class yet.
    let begun = Instant::now();
    for (name, nice) in [("polynya-sql", "10"), ("pn-sql-plan", "10"), ("pn-sql-light", "0")] {
        while !sql_threads(name).iter().all(|found| found == nice) || sql_threads(name).len() < 2 {
            assert!(begun.elapsed() < Duration::from_secs(20), "{name}: {:?}", sql_threads(name));
            std::thread::yield_now();
        }
    }
}

/// The nice values of the threads that execute SQL in this process.
fn sql_threads(name: &str) -> Vec<String> {
    let nice_of = |task: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        // Field 19 of stat, 17th after the name.
        let nice = stat.rsplit(')').next()?.split_whitespace().nth(16)?.to_owned();
        stat.contains(&format!("({name})")).then_some(nice)
    };
    std::fs::read_dir("/proc/self/task").unwrap().filter_map(nice_of).collect()
}

#[test]
fn a_spill_directory_that_others_could_enter_is_closed_to_them() {
    use std::os::unix::fs::PermissionsExt;
    let mut spill = std::path::PathBuf::new();
    let _database = open_with(|options| {
        spill = options.spill_dir.clone();
        std::fs::create_dir(&spill).unwrap();
        std::fs::set_permissions(&spill, std::fs::Permissions::from_mode(0o755)).unwrap();
    });
    assert_eq!(std::fs::metadata(&spill).unwrap().permissions().mode() & 0o777, 0o700);
}
