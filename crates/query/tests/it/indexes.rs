//! Column indexes in SQL: they find what a scan finds, and EXPLAIN names the index used.

use query::{Answer, Limits};
use testkit::Rng;
use types::Value;

use crate::database::{Database, open, open_on};

pub const COLUMNS: &str = "(id bigint, i int, b bigint, t text, f double, r real, d decimal(12, 2), at timestamp, day date, ok boolean)";
pub const INDEXES: [&str; 9] = ["i", "b, t", "t", "f", "r, i", "d", "at", "day, ok", "ok, d"];

/// Values of each column of [`COLUMNS`] but the first, as SQL writes them: extreme ones, equal ones, null.
fn values(column: usize) -> &'static [&'static str] {
    match column {
        0 => &["null", "-2147483648", "-7", "0", "1", "2", "2147483647"],
        1 => &["null", "-9223372036854775808", "-1", "0", "3", "4", "9223372036854775807"],
        2 => &["null", "''", "'a'", "'ab'", "'abc'", "'b%'", "'é'", "'zz'", "'A'"],
        3 => &[
            "null",
            "-1e300",
            "-2.5",
            "-0.0",
            "0.0",
            "1e-300",
            "2.5",
            "1e300",
            "'NaN'::double",
            "'-inf'::double",
        ],
        4 => &["null", "-1.5", "0", "0.25", "3e20"],
        5 => &["null", "-9999999999.99", "-0.01", "0", "0.01", "12.5", "9999999999.99"],
        6 => &["null", "'1969-12-31 23:59:59'", "'2024-02-29 00:00:00'", "'2026-01-01 00:00:00.000001'"],
        7 => &["null", "'1900-01-01'", "'1970-01-01'", "'2024-02-29'"],
        _ => &["null", "true", "false"],
    }
}

pub const NAMES: [&str; 9] = ["i", "b", "t", "f", "r", "d", "at", "day", "ok"];

pub fn one_of<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
    of[rng.below(of.len() as u64) as usize]
}

/// A value of a column, or null.
fn any(rng: &mut Rng, column: usize) -> String {
    if column < 3 && rng.below(4) > 0 {
        let number = rng.below(80) as i64 - 40;
        return if column == 2 { format!("'{number}'") } else { number.to_string() };
    }
    one_of(rng, values(column)).to_owned()
}

pub fn value(rng: &mut Rng, column: usize) -> String {
    loop {
        let value = any(rng, column);
        // A comparison with null is never true.
        if value != "null" {
            return value;
        }
    }
}

pub fn condition(rng: &mut Rng, depth: u64) -> String {
    if depth > 0 && rng.below(3) > 0 {
        let join = if rng.below(4) == 0 { "or" } else { "and" };
        return format!("({} {join} {})", condition(rng, depth - 1), condition(rng, depth - 1));
    }
    let column = rng.below(NAMES.len() as u64) as usize;
    let name = NAMES[column];
    match rng.below(12) {
        0 => format!("{name} is null"),
        1 => format!("{name} is not null"),
        2 => format!("{name} in ({}, {})", value(rng, column), value(rng, column)),
        3 => format!("{name} between {} and {}", value(rng, column), value(rng, column)),
        4 => format!("not ({name} = {})", value(rng, column)),
        5 if name == "t" => format!("t like '{}%'", one_of(rng, &["a", "ab", "b\\%", "", "a_", "é", "A"])),
        6 => format!("{} {} {name}", value(rng, column), one_of(rng, &["=", "<", ">="])),
        7 => format!("{name} <> {}", value(rng, column)),
        _ => format!("{name} {} {}", one_of(rng, &["=", "=", "<", "<=", ">", ">="]), value(rng, column)),
    }
}

pub fn insert(database: &Database, rng: &mut Rng, first: u64, count: u64) {
    let rows: Vec<String> = (first..first + count)
        .map(|id| {
            let cells: Vec<String> = (0..NAMES.len()).map(|column| any(rng, column)).collect();
            format!("({id}, {})", cells.join(", "))
        })
        .collect();
    for table in ["with_indexes", "without"] {
        database.execute(&format!("insert into {table} values {}", rows.join(", ")));
    }
}

/// M2: before, during and after the indexes are built, while rows are inserted, updated and deleted.
#[test]
fn a_query_finds_the_same_with_and_without_indexes() {
    let _limit = testkit::limit(570);
    testkit::for_each_seed(3, |seed| {
        let mut rng = Rng::new(seed);
        let database = open();
        for table in ["with_indexes", "without"] {
            database.execute(&format!("create table {table} {COLUMNS}"));
        }
        let (mut next, mut declared, mut used) = (0, 0, 0);
        for round in 0..12 {
            let count = 1 + rng.below(400);
            insert(&database, &mut rng, next, count);
            next += count;
            if let Some(index) = INDEXES.get(declared).filter(|_| rng.below(4) > 0) {
                database.execute(&format!("create index on with_indexes ({index})"));
                declared += 1;
            }
            if rng.below(2) == 0 {
                let gone = condition(&mut rng, 1);
                for table in ["with_indexes", "without"] {
                    database.execute(&format!("delete from {table} where {gone} and id % 3 = 0"));
                    database
                        .execute(&format!("update {table} set i = 2, t = 'ab' where {gone} and id % 5 = 0"));
                }
            }
            if rng.below(2) == 0 {
                database.wait_for_indexes("with_indexes");
            }
            for _ in 0..25 {
                let filter = condition(&mut rng, 2);
                let select = |table: &str| format!("select * from {table} where {filter} order by id");
                let (text, expected) = (select("with_indexes"), database.query(&select("without")));
                let found = database.query(&text);
                assert_eq!(found, expected, "seed {seed}, round {round}: {filter}");
                let plan = database.query(&format!("explain {text}"));
                used += u64::from(plan.iter().flatten().any(|line| line.contains("index=")));
            }
        }
        // The number is small if conditions match many rows, or if indexes are built late.
        assert!(used > 2, "an index was asked {used} times only");
    });
}

#[test]
fn explain_says_which_index_was_asked_and_a_lookup_is_light_work() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 60_000, true);
    let plan = |text: &str| {
        let rows = database.query(&format!("explain {text}"));
        rows.into_iter().flatten().collect::<Vec<_>>().join("\n")
    };
    assert!(!plan("select * from n where x = 5").contains("index="));
    database.execute("create index by_x on n (x)");
    database.execute("create index by_kind on n (kind, x)");
    database.wait_for_indexes("n");
    let found = plan("select * from n where x = 5");
    assert!(found.contains("index=by_x, lookup=60 rows"), "{found}");
    let found = plan("select * from n where x in (5, 6, 7) and kind = 'kind 5'");
    assert!(found.contains("index=by_kind, lookup=60 rows"), "{found}");
    let found = plan("select * from n where kind = 'kind 5' and x >= 997");
    assert!(found.contains("index=by_kind"), "{found}");
    let found = plan("select * from n where kind = 'kind 5'");
    assert!(!found.contains("index="), "a tenth of the table is read as it stands: {found}");
    let heavy = database.sql.status().heavy;
    for x in 0..50 {
        let rows = database.try_query("select id from n where x = $1", vec![Value::Int64(x)]).unwrap();
        assert_eq!(rows.len(), 60);
    }
    assert_eq!(database.sql.status().heavy, heavy);
    // Later rows are in the tail.
    database.execute("insert into n values (1000000, 'new', 5)");
    let rows = database.query("select count(*), max(id) from n where x = 5");
    assert_eq!(rows, [["61", "1000000"]]);
    database.execute("drop index by_x");
    assert!(!plan("select * from n where x = 5").contains("by_x"));
}

/// `cust\_17%` defines a prefix just as `cust-17%` does, and `cust\_17` an exact text.
#[test]
fn what_stands_behind_an_escape_is_looked_for_in_the_index() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table c (id bigint primary key, cat text)");
    database.execute("insert into c select i, 'cust_' || i from generate_series(1, 60000) g(i)");
    database.execute("create index by_cat on c (cat)");
    database.wait_for_indexes("c");
    for (filter, found) in [
        (r"cat like 'cust\_1711%'", 11),
        (r"cat like 'cust!_1711%' escape '!'", 11),
        ("starts_with(cat, 'cust_1711')", 11),
        (r"cat like 'cust\_17111'", 1),
        (r"cat like 'cust!_17111' escape '!'", 1),
        (r"cat like 'cust\_1711_'", 10),
        ("cat similar to 'cust[_]17111' and cat like 'cust\\_17111'", 1),
    ] {
        let text = format!("select id from c where {filter}");
        let plan = database.query(&format!("explain {text}")).concat().join("\n");
        assert!(plan.contains("index=by_cat"), "{filter}: {plan}");
        assert_eq!(database.query(&text).len(), found, "{filter}");
    }
    // A pattern that comes as a parameter, with an escape character of its own.
    let text = "select count(*) from c where cat like $1 escape '!'";
    let count = database.try_query(text, vec![Value::String("cust!_1711%".into())]).unwrap();
    assert_eq!(count, [["11"]]);
    let text = "select count(*) from c where cat similar to $1";
    for pattern in ["cust[_]1711(%)", "(%)1711"] {
        let count = database.try_query(text, vec![Value::String(pattern.into())]).unwrap();
        assert_eq!(count, [[if pattern.starts_with('c') { "11" } else { "6" }]], "{pattern}");
    }
}

/// The first run plans, the second looks up without a plan, and with an extra condition that is always true each run plans: all
/// three must agree, including types and names.
#[test]
fn a_lookup_without_a_plan_answers_as_the_plan_does() {
    let _limit = testkit::limit(570);
    testkit::for_each_seed(2, |seed| {
        let mut rng = Rng::new(seed);
        let database = open();
        database.execute(&format!("create table with_indexes {COLUMNS}"));
        database.execute(&format!("create table without {COLUMNS}"));
        insert(&database, &mut rng, 0, 1_500);
        for index in INDEXES {
            database.execute(&format!("create index on with_indexes ({index})"));
        }
        database.wait_for_indexes("with_indexes");
        insert(&database, &mut rng, 1_500, 300);
        database.execute("delete from with_indexes where id % 11 = 0");
        let answer = |text: &str| {
            let Answer::Rows(mut rows) = database.run(text, vec![], Limits::default()).unwrap() else {
                panic!("{text}")
            };
            let fields: Vec<_> =
                rows.schema().fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect();
            let mut rows = crate::database::texts(&database.runtime.block_on(rows.collect()).unwrap());
            rows.sort();
            (fields, rows)
        };
        let before = database.sql.status().direct;
        for round in 0..300 {
            let column = rng.below(NAMES.len() as u64) as usize;
            let op = one_of(&mut rng, &["=", "=", "=", "<", ">="]);
            let mut filter = format!("{} {op} {}", NAMES[column], value(&mut rng, column));
            if rng.below(2) == 0 {
                let other = rng.below(NAMES.len() as u64) as usize;
                filter = format!("{filter} and {} <= {}", NAMES[other], value(&mut rng, other));
            }
            let columns = one_of(&mut rng, &["*", "id, t", "t as words, id", "f, d, _row_id, day, ok"]);
            let text = format!("select {columns} from with_indexes where {filter}");
            let planned = answer(&text);
            assert_eq!(answer(&text), planned, "round {round}: {text}");
            assert_eq!(answer(&format!("{text} and id + 0 >= 0")), planned, "round {round}: {text}");
        }
        let direct = database.sql.status().direct - before;
        assert!(direct > 20, "{direct} lookups without a plan");
    });
}

#[test]
fn indexes_are_listed_with_how_far_they_have_come() {
    let _limit = testkit::limit(120);
    let database = open();
    database.numbers("n", 30_000, true);
    database.execute("create index by_x on n (x, kind)");
    database.wait_for_indexes("n");
    let text = "select table_schema, table_name, index_name, kind, columns, state, missing_rows from polynya.indexes";
    assert_eq!(database.query(text), [["main", "n", "by_x", "column", "x, kind", "ready", "0"]]);
    let bytes: i64 = database.query("select bytes from polynya.indexes")[0][0].parse().unwrap();
    assert!((100_000..2_000_000).contains(&bytes), "{bytes}");
}

/// The list of indexes did not say that an index waited.
#[test]
fn an_index_that_waits_for_room_says_so() {
    let _limit = testkit::limit(120);
    let machine = sim::SimEnv::new(1);
    let env = vfs::Env { disk: machine.env().disk, ..vfs::Env::real() };
    let database = open_on(env, engine::Options::default(), |_| ());
    database.numbers("n", 30_000, true);
    machine.disk.set_free_bytes(Some(100 << 20));
    database.execute("create index by_x on n (x)");
    let until = |condition: &str| {
        let started = std::time::Instant::now();
        let text = format!("select count(*) from polynya.indexes where index_name = 'by_x' and {condition}");
        while database.query(&text)[0][0] != "1" {
            let now = database.query("select * from polynya.indexes");
            assert!(started.elapsed() < std::time::Duration::from_secs(60), "{condition}: {now:?}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    until("state = 'building' and error like '%MiB of the disk are free%128 MiB%'");
    machine.disk.set_free_bytes(None);
    database.wait_for_indexes("n");
    until("state = 'ready' and error is null");
}
