//! Fuzzes SQL text, which is planned and run against a small database.

use std::time::Duration;

use engine::Engine;
use polynya_fuzz::fuzz;
use query::{Answer, Limits, Options, Sql};
use types::{Kind, Principal};

/// The time limit of one statement.
const DEADLINE: Duration = Duration::from_millis(500);

const STATEMENTS: [&str; 12] = [
    "SELECT id, name FROM t WHERE id > 3 AND name LIKE 'a%' ORDER BY id DESC LIMIT 2",
    "WITH a AS (SELECT id + 1 AS x FROM t), b AS (SELECT x * x AS y FROM a) SELECT max(y) FROM b",
    "SELECT name, count(*) FILTER (WHERE id % 2 = 0) FROM t GROUP BY name HAVING count(*) > 1",
    "SELECT nth_value(id, 2) OVER (PARTITION BY name ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
    "SELECT CASE WHEN (id = 1) THEN 'a' WHEN NOT (id = 2) THEN 'b' ELSE 'c' END FROM t",
    "SELECT regexp_replace(name, '(a|b)+[^c]{2,3}', '\\1', 'g'), name ~ '^a.*$' FROM t",
    "SELECT arrow_cast(1, 'List(Int8)'), [1, [2]], arrow_typeof(id) FROM t",
    "SELECT lpad(name, 10, 'x'), repeat(name, 3), substr(name, 2, 5), round(1.5, 2) FROM t",
    "SELECT a.id FROM t a JOIN t b ON a.id = b.id WHERE EXISTS (SELECT 1 FROM t c WHERE c.id = a.id)",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT sum(n) FROM r",
    "SELECT date_trunc('day', now() - interval '1 month'), to_char(now(), 'YYYY-MM-DD'), '2026-01-01'::date + 1",
    "SELECT * FROM generate_series(1, 10, 3) WHERE value IN (SELECT id FROM t) UNION ALL SELECT 1",
];

#[test]
fn statements() {
    let _limit = testkit::limit(400);
    let dir = testkit::temp_dir("fuzz-statements");
    let engine =
        Engine::open(vfs::Env::real(), &dir.path().join("data"), engine::Options::default()).unwrap();
    let sql = Sql::new(engine.clone(), Options::new(dir.path().join("spill"))).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let run = |text: &str| {
        let outcome = runtime.block_on(async {
            let limits = Limits { deadline: Some(DEADLINE), ..Limits::default() };
            let local = Principal::local();
            match sql.run(&local, text, Vec::new(), limits).await {
                Ok(Answer::Rows(mut rows)) => rows.collect().await.map(drop),
                Ok(Answer::Done(_)) => Ok(()),
                Err(error) => Err(error),
            }
        });
        if let Err(error) = outcome {
            assert_ne!(error.kind(), Kind::Internal, "{error}");
        }
    };
    run("CREATE TABLE t (id bigint PRIMARY KEY, name text)");
    run("INSERT INTO t VALUES (1, 'a'), (2, 'abc'), (3, NULL), (4, 'öäü')");
    let seeds: Vec<Vec<u8>> = STATEMENTS.iter().map(|text| text.as_bytes().to_vec()).collect();
    fuzz("statements", &seeds, |input| run(&String::from_utf8_lossy(input)));
    sql.close();
    engine.close().unwrap();
}
