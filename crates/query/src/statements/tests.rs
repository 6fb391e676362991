//! Tests of internal state: the owners of memory, and every registered function.

use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use datafusion::execution::memory_pool::MemoryConsumer;

use super::*;

/// R3: heavy statements that hold all of their memory leave light ones theirs.
#[test]
fn what_heavy_statements_hold_is_not_taken_from_light_ones() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("sql-memory");
    let engine = Engine::open(vfs::Env::real(), &dir.join("data"), engine::Options::default()).unwrap();
    let mut options = Options::new(dir.join("spill"));
    options.memory_bytes = 32 << 20;
    let sql = Sql::new(engine.clone(), options).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let run = |text: &str| -> Result<usize> {
        let principal = Principal::local();
        match runtime.block_on(sql.run(&principal, text, Vec::new(), Limits::default()))? {
            Answer::Done(_) => Ok(0),
            Answer::Rows(mut rows) => {
                Ok(runtime.block_on(rows.collect())?.iter().map(|batch| batch.num_rows()).sum())
            }
        }
    };
    run("create table n (id bigint primary key, x bigint)").unwrap();
    let rows: Vec<String> = (0..5_000).map(|id| format!("({id}, {})", id % 4_000)).collect();
    run(&format!("insert into n values {}", rows.join(", "))).unwrap();
    let heavy = "select sum(x) over (order by x) from n";
    let light = "select x, count(*) from n group by x";
    assert_eq!((run(heavy).unwrap(), run(light).unwrap()), (5_000, 4_000));

    let held = MemoryConsumer::new("others").register(sql.0.shared.planner.context().memory_pool());
    held.try_grow(32 << 20).unwrap();
    assert_eq!(run(heavy).unwrap_err().kind(), Kind::TooLarge);
    assert_eq!(run(light).unwrap(), 4_000);
    assert_eq!(sql.status().spilled_bytes, 0);
    drop(held);
    assert_eq!(run(heavy).unwrap(), 5_000);
    sql.close();
    engine.close().unwrap();
}

/// A small machine leaves light statements 2 MiB. One that needed more was refused, though it could have run among the heavy
/// ones.
#[test]
fn what_is_light_but_for_its_memory_runs_among_the_heavy_ones() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("sql-memory");
    let engine = Engine::open(vfs::Env::real(), &dir.join("data"), engine::Options::default()).unwrap();
    let mut options = Options::new(dir.join("spill"));
    options.memory_bytes = 16 << 20;
    let sql = Sql::new(engine.clone(), options).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let run = |text: &str| -> Result<Vec<i64>> {
        let principal = Principal::local();
        let answer = runtime.block_on(sql.run(&principal, text, Vec::new(), Limits::default()))?;
        let Answer::Rows(mut rows) = answer else { return Ok(Vec::new()) };
        let batches = runtime.block_on(rows.collect())?;
        let ids =
            batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec());
        Ok(ids.collect())
    };
    run("create table n (id bigint primary key, s text)").unwrap();
    run(
        "insert into n select i, lpad((i * 7 % 2000)::text, 2000, '0') from generate_series(0, 1999) as g(i)",
    )
    .unwrap();
    // A sort holds the whole batch of each row that it keeps: more than 2 MiB.
    let text = "select id, s from n order by s limit 10";
    let wanted: Vec<i64> =
        (0..10).map(|place| (0..2_000).find(|id| id * 7 % 2_000 == place).unwrap()).collect();
    let before = sql.status().heavy;
    for round in 1..4 {
        assert_eq!(run(text).unwrap(), wanted);
        assert_eq!(sql.status().heavy, before + round, "counted as a heavy one, once each time");
    }
    sql.close();
    engine.close().unwrap();
}

/// `strpos` looked for one long text in another for hours, and a cast to decimal overflowed the stack.
#[test]
fn every_function_and_cast_ends_soon_after_the_deadline_for_long_texts() {
    let _limit = testkit::limit(900);
    let dir = testkit::temp_dir("sql-functions");
    let engine = Engine::open(vfs::Env::real(), &dir.join("data"), engine::Options::default()).unwrap();
    let sql = Sql::new(engine.clone(), Options::new(dir.join("spill"))).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut answered = 0;
    let mut run = |text: &str| {
        let limits = Limits { deadline: Some(Duration::from_millis(500)), ..Limits::default() };
        let start = Instant::now();
        let outcome = match runtime.block_on(sql.run(&Principal::local(), text, Vec::new(), limits)) {
            Ok(Answer::Rows(mut rows)) => runtime.block_on(rows.collect()).map(drop),
            other => other.map(drop),
        };
        answered += usize::from(outcome.is_ok());
        if let Err(error) = outcome {
            assert_ne!(error.kind(), Kind::Internal, "{text}: {error}");
        }
        while sql.status().running > 0 {
            assert!(start.elapsed() < Duration::from_secs(5), "{text} still runs");
            std::thread::yield_now();
        }
    };
    let long = ["repeat('a', 3000000)", "repeat('1', 3000000)", "repeat('1,', 1500000)"];
    let mut names: Vec<String> = sql
        .0
        .shared
        .planner
        .scalar_functions()
        .filter(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_'))
        .collect();
    names.sort();
    assert!(names.len() > 200, "{}", names.len());
    for name in names {
        for count in 1..=3 {
            for at in 0..=count {
                for other in ["'a'", "2", "[2]"] {
                    // At `at == count` all arguments are long.
                    let argument = |i: usize| if i == at || at == count { long[0] } else { other };
                    run(&format!(
                        "SELECT {name}({})",
                        (0..count).map(argument).collect::<Vec<_>>().join(", ")
                    ));
                }
            }
        }
    }
    let types = [
        "decimal(38,2)",
        "decimal(38,2)[]",
        "bigint",
        "bigint[]",
        "text[]",
        "double precision",
        "boolean",
        "date",
        "timestamp",
        "time",
        "interval",
        "uuid",
        "bytea",
        "json",
    ];
    for text in long.into_iter().flat_map(|text| [text.to_owned(), format!("'{{' || {text} || '1}}'")]) {
        for data_type in types {
            run(&format!("SELECT ({text})::{data_type}"));
            run(&format!(
                "SELECT TRY_CAST(x AS {data_type}) FROM (SELECT {text} AS x FROM generate_series(1, 2)) t"
            ));
        }
        for data_type in
            ["Decimal128(38, 2)", "Decimal256(76, 2)", "Dictionary(Int32, Utf8)", "Duration(Second)"]
        {
            run(&format!("SELECT arrow_cast({text}, '{data_type}')"));
        }
        for operator in ["~", "~*", "LIKE", "ILIKE", "=", "<", "||"] {
            run(&format!("SELECT 'a' {operator} {text}"));
            run(&format!("SELECT x {operator} x FROM (SELECT {text} AS x FROM generate_series(1, 2)) t"));
        }
    }
    assert!(answered > 300, "{answered}");
    sql.close();
    engine.close().unwrap();
}
