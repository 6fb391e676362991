//! Statements that need few rows of an indexed table read few: the first of an order, `min` and `max`, DISTINCT, `count`.

use testkit::Rng;

use crate::database::{Database, open};
use crate::index_advice::{analyzed, figure};
use crate::indexes::{COLUMNS, INDEXES, NAMES, condition, insert, one_of, value};

fn plan(database: &Database, text: &str) -> String {
    let rows = database.query(&format!("explain {text}"));
    rows.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// A filter that an index may cover completely, partly, or not at all.
fn filter(rng: &mut Rng) -> String {
    let pick = |rng: &mut Rng| rng.below(NAMES.len() as u64) as usize;
    match rng.below(8) {
        0 | 1 => "true".into(),
        6 | 7 => behind(rng),
        2 => condition(rng, 1),
        3 => {
            let column = pick(rng);
            format!("{} >= {}", NAMES[column], value(rng, column))
        }
        4 => format!("b = {}", value(rng, 1)),
        _ => format!("ok = {}", one_of(rng, &["true", "false"])),
    }
}

/// A condition for the rows after a given one in some order, in both spellings.
fn behind(rng: &mut Rng) -> String {
    let pairs = [[1, 2], [4, 0], [7, 8], [8, 5], [3, 6], [0, 1]];
    let pair = pairs[rng.below(pairs.len() as u64) as usize];
    let [a, b] = pair.map(|column| NAMES[column]);
    let [x, y] = pair.map(|column| value(rng, column));
    let is = one_of(rng, &["<", "<=", ">", ">="]);
    match rng.below(3) {
        0 => format!("{a} {} {x} or ({a} = {x} and {b} {is} {y})", &is[..1]),
        1 => format!("({a}, {b}) {is} ({x}, {y}) and ok = {}", one_of(rng, &["true", "false"])),
        _ => format!("({a}, {b}) {is} ({x}, {y})"),
    }
}

/// A statement over `TABLE` whose rows have one order, or an order that does not matter.
fn statement(rng: &mut Rng) -> String {
    let filter = filter(rng);
    let name = |rng: &mut Rng| one_of(rng, &NAMES).to_owned();
    let by = |rng: &mut Rng| {
        let column = name(rng);
        let way =
            one_of(rng, &["", " desc", " asc nulls first", " desc nulls last", " asc", " desc nulls first"]);
        (column.clone(), format!("{column}{way}"))
    };
    match rng.below(10) {
        0..5 => {
            let (first, order) = by(rng);
            let limit = format!("limit {} offset {}", rng.below(40), rng.below(3) * rng.below(20));
            match rng.below(3) {
                // Equal rows may come in any order; the selected column is equal in them.
                0 => format!("select {first} from TABLE where {filter} order by {order} {limit}"),
                1 => format!("select *, i + 0.5 from TABLE where {filter} order by {order}, id {limit}"),
                _ => {
                    let (second, then) = by(rng);
                    format!(
                        "select {second} as second, {first} as first from TABLE where {filter} order by {order}, {then} {limit}"
                    )
                }
            }
        }
        5 | 6 => {
            let figures: Vec<String> = (0..1 + rng.below(2))
                .map(|at| format!("{}({}) as f{at}", one_of(rng, &["min", "max"]), one_of(rng, &NAMES[..8])))
                .collect();
            format!("select {} from TABLE where {filter}", figures.join(", "))
        }
        7 => format!("select count(*) from TABLE where {filter}"),
        8 => format!("select distinct {} from TABLE where {filter}", name(rng)),
        _ => format!("select count(distinct {}) from TABLE where {filter}", name(rng)),
    }
}

/// Replaces negative zeros: zeros of either sign are equal, so their order is not determined.
fn zeros_as_one(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    for value in rows.iter_mut().flatten().filter(|value| *value == "-0.0") {
        *value = "0.0".into();
    }
    rows
}

/// M2: before, during and after the indexes are built, while rows are inserted and deleted.
#[test]
fn few_rows_of_many_are_those_of_a_scan() {
    let _limit = testkit::limit(570);
    testkit::for_each_seed(3, |seed| {
        let mut rng = Rng::new(seed);
        let database = open();
        for table in ["with_indexes", "without"] {
            database.execute(&format!("create table {table} {COLUMNS}"));
        }
        let (mut next, mut declared, mut used) = (0, 0, 0);
        for round in 0..12 {
            let count = 1 + rng.below(900);
            insert(&database, &mut rng, next, count);
            next += count;
            if let Some(index) = INDEXES.get(declared) {
                database.execute(&format!("create index on with_indexes ({index})"));
                declared += 1;
            }
            // Sometimes without deleted rows.
            if rng.below(2) == 0 && round > 4 {
                let gone = condition(&mut rng, 1);
                for table in ["with_indexes", "without"] {
                    database.execute(&format!("delete from {table} where {gone} and id % 3 = 0"));
                }
            }
            if rng.below(3) > 0 {
                database.wait_for_indexes("with_indexes");
            }
            for _ in 0..25 {
                let text = statement(&mut rng);
                let of = |table: &str| text.replace("TABLE", table);
                let mut expected = zeros_as_one(database.query(&of("without")));
                let mut found = zeros_as_one(database.query(&of("with_indexes")));
                if !text.contains("order by") {
                    expected.sort();
                    found.sort();
                }
                // Zeros of either sign are equal, so either may come first.
                let zeros = [&mut found, &mut expected].into_iter().flatten().flatten();
                zeros.filter(|cell| *cell == "-0.0").for_each(|cell| *cell = "0.0".to_owned());
                assert_eq!(found, expected, "seed {seed}, round {round}: {text}");
                used += u64::from(plan(&database, &of("with_indexes")).contains("index="));
            }
        }
        assert!(used > 60, "an index was asked {used} times only");
    });
}

#[test]
fn the_first_of_an_order_are_looked_up() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 60_000, false);
    for index in ["x", "kind, x", "id"] {
        database.execute(&format!("create index on n ({index})"));
    }
    database.wait_for_indexes("n");
    let reads = |text: &str, what: &str| {
        let plan = plan(&database, text);
        assert!(plan.contains(what), "{text}: {what} is not in {plan}");
    };
    reads("select * from n order by x desc, kind limit 10", "index=n_x_idx, lookup=60 rows");
    reads("select id from n order by x limit 10 offset 5", "index=n_x_idx, lookup=15 rows");
    let text = "select * from n where kind = 'kind 3' order by x desc limit 5";
    reads(text, "index=n_kind_x_idx, lookup=5 rows");
    // A filter on a column outside the index is evaluated on the way.
    reads("select * from n where id % 10 = 3 order by x limit 5", "index=");
    reads("select min(x), max(id) from n", "index=n_x_idx + n_id_idx, lookup=2 rows");
    reads("select max(x) from n where kind = 'kind 3'", "index=n_kind_x_idx, lookup=1 rows");
    reads("select distinct kind from n", "index=n_kind_x_idx, lookup=10 rows");
    reads("select count(distinct kind) from n where kind > 'kind 4'", "index=n_kind_x_idx, lookup=5 rows");
    reads("select count(*) from n where kind = 'kind 3' and x < 500", "counted=3000 rows");
    reads("select count(*) from n where x between 10 and 19", "counted=600 rows");
    reads("select * from n where x = 5 or id = 7", "index=n_x_idx + n_id_idx, lookup=61 rows");
    assert_eq!(database.query("select count(*) from n where x = 5 or id in (7, 8)"), [["62"]]);
    assert_eq!(database.query("select min(x), max(id) from n"), [["0", "59999"]]);
    assert_eq!(database.query("select id from n order by id desc limit 2"), [["59999"], ["59998"]]);
    assert_eq!(database.query("select count(*) from n where x < -5"), [["0"]]);
    assert_eq!(database.query("select * from n where x between 10 and 9"), Vec::<Vec<String>>::new());
    assert_eq!(database.query("select min(x) from n where x > 5000"), [["NULL"]]);
    // A volatile filter cannot be evaluated in advance.
    assert!(!plan(&database, "select * from n where random() < 0.5 order by x limit 5").contains("index="));
    // A query for all rows scans the table.
    assert!(!plan(&database, "select * from n order by x").contains("index="));
    assert!(!plan(&database, "select * from n order by x limit 30000").contains("index="));
    database.execute("delete from n where id >= 59990");
    database.execute("insert into n values (70000, 'kind 3', -1)");
    assert_eq!(database.query("select max(id), min(x) from n where id < 70000"), [["59989", "0"]]);
    assert_eq!(database.query("select id from n order by id desc limit 2"), [["70000"], ["59989"]]);
    assert_eq!(database.query("select id, x from n order by x limit 1"), [["70000", "-1"]]);
    assert_eq!(database.query("select count(*) from n where id > 59980"), [["10"]]);
}

/// A page begins where the previous one ended, even if many rows share its first value.
#[test]
fn a_page_behind_a_row_is_looked_up() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 60_000, false);
    database.execute("insert into n values (60000, null, 5), (60001, null, null), (60002, 'kind 4', null)");
    database.execute("create index on n (kind, x, id)");
    database.wait_for_indexes("n");
    let rows = |text: &str| {
        let plan = analyzed(&database, text);
        assert!(plan.contains("index=n_kind_x_id_idx"), "{text}: {plan}");
        assert_eq!(figure(&plan, "rows_scanned"), 0.0, "{text}: {plan}");
        assert!(figure(&plan, "rows_looked_up") <= 4.0, "{text}: {plan}");
        database.query(text)
    };
    // The last digit of x is that of 7 × the kind's digit, so for `kind 4` x ends in 8.
    let expected = [["kind 4", "488", "57784"], ["kind 4", "488", "58784"], ["kind 4", "488", "59784"]];
    for behind in [
        "(kind, x, id) > ('kind 4', 488, 56784)",
        "kind > 'kind 4' or kind = 'kind 4' and (x > 488 or x = 488 and id > 56784)",
        "kind = 'kind 4' and (x, id) > (488, 56784)",
    ] {
        let text = format!("select kind, x, id from n where {behind} order by kind, x, id limit 3");
        assert_eq!(rows(&text), expected, "{behind}");
    }
    let expected = [["kind 4", "488", "784"], ["kind 4", "478", "59354"], ["kind 4", "478", "58354"]];
    for before in [
        "(kind, x, id) < ('kind 4', 488, 1784)",
        "kind < 'kind 4' or kind = 'kind 4' and (x < 488 or x = 488 and id < 1784)",
    ] {
        let text =
            format!("select kind, x, id from n where {before} order by kind desc, x desc, id desc limit 3");
        assert_eq!(rows(&text), expected, "{before}");
    }
    // A null decides nothing: such a row is neither before nor after.
    let text =
        "select kind, x, id from n where (kind, x, id) > ('kind 9', 993, 59000) order by kind, x, id limit 3";
    assert_eq!(rows(text), [["kind 9", "993", "59999"]]);
    let text = "select kind, x, id from n where (kind, x) >= ('kind 4', 998) order by kind, x, id limit 2";
    assert_eq!(rows(text), [["kind 4", "998", "714"], ["kind 4", "998", "1714"]]);
}

/// Each operand is looked up where it can be: in an index, by the key, or by row id.
#[test]
fn the_sides_of_an_or_are_looked_up_by_index_key_and_row_id() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table n (x int, y int, a int, b int, primary key (x, y))");
    database.execute(
        "insert into n select i / 300, i % 300, i % 1000, i % 5 from generate_series(0, 59999) g(i)",
    );
    let ids = |text: &str, looked_up: f64| {
        let text = format!("select x * 300 + y as i from n where {text} order by i");
        let plan = analyzed(&database, &text);
        assert_eq!(figure(&plan, "rows_scanned"), 0.0, "{text}: {plan}");
        assert_eq!(figure(&plan, "rows_looked_up"), looked_up, "{text}: {plan}");
        database.query(&text).concat()
    };
    assert_eq!(ids("x = 5 and y = 7 or x = 6 and y = 8", 2.0), ["1507", "1808"]);
    assert_eq!(ids("_row_id = 3 or x = 6 and y = 8 or _row_id in (5, 1000000)", 3.0).len(), 3);
    database.execute("create index on n (a)");
    database.wait_for_indexes("n");
    assert_eq!(ids("a = 5 or x = 5 and y = 7", 61.0).len(), 61);
    assert_eq!(ids("a = 5 or x = 5 and y = 7 or a = 6", 121.0).len(), 121);
    assert_eq!(ids("(a = 5 or x = 5 and y = 7) and b = 2", 61.0), ["1507"]);
    assert_eq!(ids("a = 507 or x = 5 and y = 7", 60.0).len(), 60);
    // Later rows are in the tail.
    database.execute("insert into n values (900, 1, 5, 0), (900, 2, 6, 0)");
    database.execute("delete from n where x = 0 and y = 5");
    let found =
        database.query("select x, y from n where (a = 5 or x = 900 and y = 2) and x > 190 order by x, y");
    assert_eq!(found, [["193", "105"], ["196", "205"], ["900", "1"], ["900", "2"]]);
}
