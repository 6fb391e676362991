//! What cannot be seen from outside: who holds which memory.

use datafusion::execution::memory_pool::MemoryConsumer;

use super::*;

/// R3: heavy statements that hold all the memory there is for them leave light ones theirs.
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
