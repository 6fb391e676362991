//! Requests that once aborted the server, filled its memory or occupied its threads, and others of the same kinds.

use serde_json::json;

pub struct Attack {
    pub name: &'static str,
    pub method: &'static str,
    pub path: String,
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

/// Returns `open` repeated `levels` times, then `middle`, then `close` as often.
fn nested(open: &str, middle: &str, close: &str, levels: usize) -> String {
    format!("{}{middle}{}", open.repeat(levels), close.repeat(levels))
}

fn list(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(", ")
}

/// Returns the hostile statements, grouped by the resource that they exhaust.
fn statements() -> Vec<(&'static str, String)> {
    let chained = list(22, |i| match i {
        0 => "a0 AS (SELECT 1 AS x)".into(),
        i => format!("a{i} AS (SELECT x + x AS x FROM a{} WHERE x > {i})", i - 1),
    });
    vec![
        // The stack.
        ("a type of 4,000 levels", format!("SELECT arrow_cast(1, '{}')", nested("List(", "Int8", ")", 4_000))),
        ("parentheses", format!("SELECT {}", nested("(", "1", ")", 20_000))),
        ("NOT upon NOT", format!("SELECT {} true", "NOT ".repeat(20_000))),
        ("CASE in CASE", format!("SELECT {}", nested("CASE WHEN true THEN ", "1", " END", 5_000))),
        ("a chain of ORs", format!("SELECT {} false", "true OR ".repeat(50_000))),
        ("subqueries in subqueries", format!("SELECT * FROM {}", nested("(SELECT * FROM ", "victim", ") AS t", 2_000))),
        ("a chain of UNIONs", format!("SELECT 1 {}", "UNION ALL SELECT 1 ".repeat(10_000))),
        ("arrays in arrays", format!("SELECT {}", nested("[", "1", "]", 5_000))),
        ("groups in a pattern", format!("SELECT 'a' ~ '{}'", nested("(", "a", ")", 20_000))),
        ("many digits", "SELECT cast(repeat('1', 40000000) AS decimal(38, 2))".into()),
        // Threads.
        ("a slow pattern", "SELECT regexp_count(repeat('a', 10000000), 'a[^z]*z|a')".into()),
        ("a slow replacement", "SELECT length(regexp_replace(repeat('a', 10000000), 'a[^z]*z|a', 'b', 'g'))".into()),
        ("a product", "SELECT count(*) FROM generate_series(1, 3000000) a, generate_series(1, 3000000) b WHERE a.value % 7 = b.value % 11".into()),
        ("a recursion without end", "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r".into()),
        ("a long series", "SELECT sum(value) FROM generate_series(1, 1000000000000)".into()),
        ("a distance of long texts", "SELECT levenshtein(repeat('a', 300000), repeat('b', 300000))".into()),
        ("a pattern of many parts", "SELECT repeat('a', 5000000) LIKE repeat('%a', 2000) || 'b'".into()),
        ("a wide frame", "SELECT max(m) FROM (SELECT median(value) OVER (ORDER BY value ROWS BETWEEN 1000000 PRECEDING AND UNBOUNDED FOLLOWING) m FROM generate_series(1, 300000))".into()),
        ("a wide order", format!("SELECT id FROM victim ORDER BY {}", list(5_000, |i| format!("(id * {i}) % 97")))),
        ("many windows", format!("SELECT {} FROM victim", list(900, |i| format!("sum(id) OVER (ORDER BY id + {i})")))),
        ("many joins", format!("SELECT id FROM victim{}", " NATURAL JOIN (SELECT * FROM victim)".repeat(299))),
        ("a pattern a row", "SELECT count(regexp_match('aaaa', 'a{' || (value % 900 + 1) || '}{100}')) FROM generate_series(1, 8000)".into()),
        ("a long text in a long text", "SELECT strpos(repeat('a', 60000000), repeat('a', 30000000) || 'b')".into()),
        ("one name many times", format!("SELECT {} FROM victim", list(100_000, |_| "id a".into()))),
        ("a wide VALUES", format!("VALUES ({})", list(80_000, |i| i.to_string()))),
        ("many aggregates", format!("SELECT {} FROM victim", list(8_000, |i| format!("avg(id * {i})")))),
        // Memory.
        ("a long pattern of LIKE", "SELECT 'a' LIKE repeat('%a_', 10000000)".into()),
        ("a long regular expression", "SELECT 'a' ~ repeat('a.*', 3000000)".into()),
        ("a long list in a text", "SELECT ('{' || repeat('1,', 30000000) || '1}')::bigint[]".into()),
        ("a long format", "SELECT to_char(now(), repeat('%c', 20000000))".into()),
        ("a long text in CASE", "SELECT sum(length(CASE WHEN value % 2 = 0 THEN repeat('x', 6000000) ELSE repeat('y', 6000000) END)) FROM generate_series(1, 100000)".into()),
        ("parts of a long text", "SELECT sum(length(left(repeat('x', 6000000), -value))) FROM generate_series(1, 100000)".into()),
        ("lists of a window", "SELECT count(a) FROM (SELECT array_agg(value) OVER (ORDER BY value) a FROM generate_series(1, 300000))".into()),
        ("a cube", format!("SELECT count(*) FROM victim GROUP BY CUBE ({})", list(12, |i| format!("id % {}", i + 2)))),
        ("a long row joined", "SELECT sum(length(s || v)) FROM (SELECT repeat('x', 4000000 + value) s FROM generate_series(1, 1)) a, (SELECT value v FROM generate_series(1, 100000)) b".into()),
        ("nulls of a fixed size", "SELECT arrow_cast(NULL, 'FixedSizeBinary(2000000000)') FROM victim".into()),
        ("chained expressions", format!("WITH {chained} SELECT x FROM a21")),
        ("long texts", format!("SELECT {}", list(100, |i| format!("repeat('x', 60000000) AS a{i}")))),
        ("many groups", format!("SELECT count(*) FROM victim GROUP BY {}", list(5_000, |i| format!("id + {i}")))),
        ("a long array", "SELECT array_repeat(1, 2000000000)".into()),
        ("a padded text", "SELECT length(lpad('x', 2000000000, 'y'))".into()),
        ("a repeated pattern", "SELECT 'a' ~ '((a{1000}){1000}){1000}'".into()),
        ("a large sort", "SELECT value FROM generate_series(1, 200000000) ORDER BY value % 1000003 LIMIT 1 OFFSET 100000000".into()),
        ("a joined text", "SELECT length(string_agg(repeat('x', 1000000), ',')) FROM generate_series(1, 100000)".into()),
        // Arithmetic.
        ("an offset of all bits", "SELECT nth_value(id, -9223372036854775808) OVER (ORDER BY id) FROM victim LIMIT 1".into()),
        ("a lag of all bits", "SELECT lag(id, -9223372036854775808) OVER (ORDER BY id) FROM victim LIMIT 1".into()),
        ("a position of all bits", "SELECT substr('abc', -9223372036854775808, 9223372036854775807)".into()),
    ]
}

/// Returns hostile bodies, which are posted as rows.
fn uploads() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    vec![
        ("nested arrays", "application/json", nested("[", "1", "]", 100_000).into_bytes()),
        ("nested objects", "application/json", nested("{\"a\":", "1", "}", 100_000).into_bytes()),
        ("a long number", "application/json", format!("{{\"a\":{}}}", "9".repeat(1_000_000)).into_bytes()),
        (
            "many columns",
            "application/json",
            format!("{{{}}}", list(50_000, |i| format!("\"c{i}\":1"))).into_bytes(),
        ),
        (
            "not Arrow",
            "application/vnd.apache.arrow.stream",
            [[255; 4], [0, 0, 0, 127]].concat().repeat(1_000),
        ),
        ("not protobuf", "application/x-protobuf", vec![0x0a; 1 << 20]),
        ("one long line", "text/csv", vec![b'"'; 4 << 20]),
    ]
}

pub fn attacks() -> Vec<Attack> {
    let sql = statements().into_iter().map(|(name, sql)| Attack {
        name,
        method: "POST",
        path: "/v1/sql".into(),
        content_type: "application/json",
        body: json!({ "sql": sql }).to_string().into_bytes(),
    });
    let rows = uploads().into_iter().map(|(name, content_type, body)| Attack {
        name,
        method: "POST",
        path: "/v1/tables/hostile/rows".into(),
        content_type,
        body,
    });
    let digits = "1".repeat(20_000_000);
    let others = [
        Attack {
            name: "many digits in a parameter",
            method: "POST",
            path: "/v1/sql".into(),
            content_type: "application/json",
            body: json!({ "sql": "SELECT $1::decimal(20, 4)", "params": [digits] }).to_string().into_bytes(),
        },
        Attack {
            name: "many digits in a file",
            method: "POST",
            path: "/v1/copy?sql=COPY%20decimals%20FROM%20STDIN%20WITH%20(FORMAT%20csv)".into(),
            content_type: "text/csv",
            body: format!("{digits}\n").into_bytes(),
        },
    ];
    sql.chain(rows).chain(others).collect()
}
