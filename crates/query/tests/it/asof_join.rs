//! ASOF JOIN, compared with an oracle that checks every pair.

use testkit::Rng;
use types::{Kind, Value};

use crate::database::{Database, open, open_with};

/// A row: id, two keys, time in seconds.
type Row = (i64, Option<String>, Option<i64>, Option<i64>);

fn random_rows(rng: &mut Rng, count: i64, keys: u64, times: u64) -> Vec<Row> {
    let some = |rng: &mut Rng, below: u64| (!rng.one_in(12)).then(|| rng.below(below) as i64);
    (0..count)
        .map(|id| (id, some(rng, keys).map(|k| format!("k{k}")), some(rng, 3), some(rng, times)))
        .collect()
}

fn fill(database: &Database, table: &str, rows: &[Row]) {
    database.execute(&format!("create table {table} (Id bigint, sym text, venue bigint, At timestamptz)"));
    for rows in rows.chunks(2_000) {
        let text = |value: &Option<String>| value.as_ref().map_or("null".into(), |v| format!("'{v}'"));
        let number = |value: &Option<i64>| value.map_or("null".into(), |v| v.to_string());
        let time = |value: &Option<i64>| value.map_or("null".into(), |v| format!("to_timestamp({v})"));
        let row = |r: &Row| format!("({}, {}, {}, {})", r.0, text(&r.1), number(&r.2), time(&r.3));
        let values: Vec<String> = rows.iter().map(row).collect();
        database.execute(&format!("insert into {table} values {}", values.join(", ")));
    }
}

/// The match of each left row, both by id. `keys`: number of key columns that must be equal.
fn oracle(left: &[Row], right: &[Row], keys: usize, op: &str) -> Vec<Vec<String>> {
    let found = |l: &Row| {
        let fits = |r: &&Row| {
            let (Some(a), Some(b)) = (l.3, r.3) else { return false };
            let by_time = match op {
                ">=" => a >= b,
                ">" => a > b,
                "<=" => a <= b,
                _ => a < b,
            };
            by_time && (keys < 1 || l.1.is_some() && l.1 == r.1) && (keys < 2 || l.2.is_some() && l.2 == r.2)
        };
        // The nearest row; of several with one time, the last one written.
        let nearness = |r: &&Row| (if op.starts_with('>') { r.3.unwrap() } else { -r.3.unwrap() }, r.0);
        right.iter().filter(fits).max_by_key(nearness)
    };
    let row = |l: &Row| vec![l.0.to_string(), found(l).map_or("NULL".into(), |r| r.0.to_string())];
    left.iter().map(row).collect()
}

#[test]
fn each_row_meets_the_nearest_of_the_other_side() {
    let _limit = testkit::limit(400);
    testkit::for_each_seed(8, |seed| {
        let mut rng = Rng::new(seed);
        let database = open();
        let (keys, times) = (1 + rng.below(5), *rng.pick(&[4, 60, 5_000]));
        let counts = [rng.below(400) as i64, rng.below(400) as i64];
        let [left, right] = counts.map(|count| random_rows(&mut rng, count, keys, times));
        fill(&database, "l", &left);
        fill(&database, "r", &right);
        for op in [">=", ">", "<=", "<"] {
            for (keys, on) in
                [(0, ""), (1, "on a.sym = b.sym"), (2, "on b.sym = a.sym and a.venue = b.venue")]
            {
                let expected = oracle(&left, &right, keys, op);
                // The condition in either direction, with names in any case.
                let swapped = op.replace('<', "!").replace('>', "<").replace('!', ">");
                for condition in [format!("a.at {op} b.AT"), format!("b.at {swapped} a.at")] {
                    let text = format!(
                        "select a.id, b.ID from l a asof join r b match_condition ({condition}) {on} order by a.id"
                    );
                    assert_eq!(database.query(&text), expected, "seed {seed}: {text}");
                }
                // A condition on the left may be applied before the join, one on the right may not.
                let text = format!(
                    "select l.id, r.id from l asof join r match_condition (l.at {op} r.at) {} where l.venue = 1 and (r.id % 2 = 0) order by 1",
                    on.replace("a.", "l.").replace("b.", "r.")
                );
                let kept = |row: &&Vec<String>| {
                    let id: usize = row[0].parse().unwrap();
                    left[id].2 == Some(1) && row[1].parse::<i64>().is_ok_and(|id| id % 2 == 0)
                };
                let expected: Vec<Vec<String>> = expected.iter().filter(kept).cloned().collect();
                assert_eq!(database.query(&text), expected, "seed {seed}: {text}");
            }
        }
    });
}

/// Many batches on both sides, keys that one side lacks, and long runs without a match.
#[test]
fn what_fills_many_batches_is_joined_as_exactly() {
    let _limit = testkit::limit(300);
    let database = open();
    let mut rng = Rng::new(11);
    let left = random_rows(&mut rng, 3_000, 4, 1_000_000);
    let mut right = random_rows(&mut rng, 60_000, 3, 1_000_000);
    right.iter_mut().for_each(|row| row.1 = row.1.take().map(|key| key.replace("k2", "only here")));
    fill(&database, "l", &left);
    fill(&database, "r", &right);
    for op in [">=", "<"] {
        for (keys, on) in [(0, ""), (1, "on l.sym = r.sym")] {
            let text = format!(
                "select l.id, r.id from l asof join r match_condition (l.at {op} r.at) {on} order by l.id"
            );
            assert!(database.query(&text) == oracle(&left, &right, keys, op), "{text}");
        }
    }
    // With the sides swapped: few right rows, each the match of many.
    let text =
        "select r.id, l.id from r asof join l match_condition (r.at > l.at) on l.sym = r.sym order by 1";
    assert!(database.query(text) == oracle(&right, &left, 1, ">"), "{text}");
}

#[test]
fn an_asof_join_stands_wherever_a_join_does() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table trades (id bigint primary key, sym text, at timestamptz, amount int)");
    database.execute("create table quotes (sym text, at timestamptz, price decimal(10,2))");
    database.execute("create table names (sym text primary key, called text)");
    database.execute(
        "insert into trades values (1, 'A', '2026-01-05 10:00:01Z', 5), (2, 'A', '2026-01-05 10:00:03Z', 6), (3, 'B', '2026-01-05 10:00:00Z', 7), (4, 'C', '2026-01-05 10:00:00Z', 8)",
    );
    database.execute(
        "insert into quotes values ('A', '2026-01-05 10:00:00Z', 1.10), ('A', '2026-01-05 10:00:02Z', 1.20), ('A', '2026-01-05 10:00:02Z', 1.25), ('B', '2026-01-05 10:00:09Z', 9)",
    );
    database.execute("insert into names values ('A', 'Ant'), ('B', 'Bee')");
    let asof = "trades t asof join quotes q match_condition (t.at >= q.at) on t.sym = q.sym";
    let query = |text: &str| database.query(&text.replace("ASOF", asof));
    assert_eq!(
        query("select t.id, q.price from ASOF order by id"),
        [["1", "1.10"], ["2", "1.25"], ["3", "NULL"], ["4", "NULL"]],
        "of one time the last written"
    );
    assert_eq!(query("select * from ASOF where id = 1")[0].len(), 7, "no system columns");
    assert_eq!(query("select t.* from ASOF where id = 1")[0].len(), 4);
    assert_eq!(query("select count(*) from ASOF"), [["4"]]);
    assert_eq!(query("select sum(amount * price) from ASOF where q.price is not null"), [["13.00"]]);
    assert_eq!(
        query("select called, price from ASOF join names n on n.sym = t.sym where t.id < 4 order by t.id"),
        [["Ant", "1.10"], ["Ant", "1.25"], ["Bee", "NULL"]]
    );
    let of_query = "select id, price from trades asof join (select sym, at as since, price from quotes where price < 1.25) as q match_condition (at >= since) on trades.sym = q.sym order by id";
    assert_eq!(query(of_query)[1], ["2", "1.20"], "what a query leaves out is no match");
    let shifted = "select id, price from trades t asof join quotes q match_condition (t.at + interval '1 second' > q.at) on upper(t.sym) = q.sym order by id";
    assert_eq!(query(shifted)[0], ["1", "1.10"]);
    let with = "with w as (select t.id, q.price from ASOF) select max(price) from w";
    assert_eq!(query(with), [["1.25"]]);
    assert_eq!(
        query("select id from trades where id in (select t.id from ASOF where price > 1) order by 1").len(),
        2
    );
    database.execute(&"create view priced as select t.id, q.price from ASOF".replace("ASOF", asof));
    assert_eq!(query("select price from priced where id = 2"), [["1.25"]]);
    let by_value = |id: i64| {
        let text = "select q.price from ASOF where t.id = $1".replace("ASOF", asof);
        database.try_query(&text, vec![Value::Int64(id)]).unwrap()
    };
    assert_eq!((by_value(1), by_value(2)), (vec![vec!["1.10".to_owned()]], vec![vec!["1.25".to_owned()]]));
    database.execute("insert into quotes values ('A', '2026-01-05 10:00:00Z', 1.15)");
    assert_eq!(by_value(1), [["1.15"]], "a kept plan reads what is there now");
    database.execute("create table copied (id bigint, price decimal(10,2))");
    assert_eq!(database.execute(&format!("insert into copied select t.id, q.price from {asof}")), 4);

    let refused = |text: &str| {
        let error = database.try_query(text, Vec::new()).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{text}: {error}");
        error.to_string()
    };
    let from = "select 1 from trades t asof join quotes q match_condition";
    assert!(refused(&format!("{from} (t.at = q.at) on t.sym = q.sym")).contains(">="));
    assert!(refused(&format!("{from} (t.at >= t.at) on t.sym = q.sym")).contains("one of the right"));
    assert!(refused(&format!("{from} (t.at >= q.at) on t.sym > q.sym")).contains("by `=`"));
    assert!(refused(&format!("{from} (t.at >= q.at) on t.sym = q.sym or t.id = 1")).contains("by `=`"));
    assert!(refused(&format!("{from} (t.at >= q.at) using (sym)")).contains("ON"));
    assert!(refused(&format!("{from} (t.at >= q.at) on t.sym = q.smy")).contains("smy"));
    let explained = query("explain select t.id, q.price from ASOF where t.id = 1").concat().concat();
    assert!(explained.contains("AsOfJoin"), "{explained}");
    assert!(explained.contains("lookup=1 rows"), "a condition on the left side comes before it: {explained}");
}

#[test]
fn rows_that_are_dealt_out_by_one_column_meet_those_that_are_by_two() {
    let _limit = testkit::limit(120);
    let database = open_with(|options| options.threads = 8);
    for table in ["l", "r"] {
        database.execute(&format!(
            "create table {table} as select value as id, value % 50 as a, value % 7 as b, to_timestamp(value) as at
             from generate_series(1, 60000) as g(value)"
        ));
    }
    // The left side is grouped, and so is partitioned by `a` alone.
    let found = database.query(
        "select count(*), count(r.id), count(*) filter (where r.a = x.a and r.b = x.b)
         from (select a, max(b) as b, max(at) as at from l group by a) x
         asof join r match_condition (x.at >= r.at) on x.a = r.a and x.b = r.b",
    );
    assert_eq!(found, [["50", "50", "50"]]);
}
