//! Lookups by join keys: the few values of a subquery, or of one side of a join, are looked up in the other side by key, row id,
//! or an index.

use testkit::Rng;

use crate::database::{Database, open};
use crate::index_advice::{analyzed, figure};
use crate::indexes::{COLUMNS, INDEXES, NAMES, condition, insert};

/// Columns that are compared as one type, though they may have two.
const PAIRS: [(&str, &str); 14] = [
    ("i", "b"),
    ("b", "i"),
    ("f", "i"),
    ("i", "f"),
    ("f", "r"),
    ("r", "f"),
    ("d", "i"),
    ("b", "d"),
    ("at", "day"),
    ("day", "at"),
    ("id", "i"),
    ("id", "b"),
    ("id", "id"),
    ("i", "id"),
];

fn pair(rng: &mut Rng) -> (&'static str, &'static str) {
    if rng.below(2) == 0 {
        return PAIRS[rng.below(PAIRS.len() as u64) as usize];
    }
    let name = NAMES[rng.below(NAMES.len() as u64) as usize];
    (name, name)
}

/// A statement over `TABLE` and `few` whose rows have one order.
fn statement(rng: &mut Rng) -> String {
    let (own, other) = pair(rng);
    let few = match rng.below(4) {
        0 => format!("(select * from few where {})", condition(rng, 1)),
        // A subquery with many rows.
        1 if rng.below(3) == 0 => "TABLE".to_owned(),
        _ => "few".to_owned(),
    };
    let not = if rng.below(3) == 0 { "not " } else { "" };
    let equal = format!("x.{own} = w.{other}");
    let also = match rng.below(4) {
        0 => " and x.id <> w.id".to_owned(),
        1 => " and w.id % 3 = 0".to_owned(),
        _ => String::new(),
    };
    let filter = match rng.below(3) {
        0 => format!(" and {}", condition(rng, 1)),
        _ => String::new(),
    };
    match rng.below(11) {
        0..3 => format!(
            "select * from TABLE x where x.{own} {not}in (select w.{other} from {few} w where true{}){filter} order by id",
            also.replace(" and x.id <> w.id", "")
        ),
        3 | 4 => format!(
            "select * from TABLE x where {not}exists (select 1 from {few} w where {equal}{also}){filter} order by id"
        ),
        5 => format!(
            "select * from {few} w where {not}exists (select 1 from TABLE x where {equal}{also}) order by id"
        ),
        6 => format!(
            "select w.id as a, x.id as b, x.t from {few} w left join TABLE x on {equal}{also} order by 1, 2"
        ),
        7 => format!("select w.id as a, x.* from {few} w join TABLE x on {equal}{also} order by 1, 2"),
        8 => format!(
            "select w.id as a, x.id as b from {few} w join TABLE x on x.{own} is not distinct from w.{own} order by 1, 2"
        ),
        9 => format!("select {own} from TABLE intersect select {own} from {few} w order by 1"),
        _ => {
            let (second, there) = pair(rng);
            format!(
                "select * from TABLE x where x.{own} in (select w.{other} from few w) and x.{second} in (select w.{there} from {few} w) order by id"
            )
        }
    }
}

/// M2: before, during and after the indexes are built, while rows are inserted, updated and deleted.
#[test]
fn a_query_within_a_condition_finds_the_same_with_and_without_indexes() {
    let _limit = testkit::limit(570);
    testkit::for_each_seed(3, |seed| {
        let mut rng = Rng::new(seed);
        let database = open();
        let key = |table: &str| match table {
            "with_indexes" => COLUMNS.replacen("id bigint", "id bigint primary key", 1),
            _ => COLUMNS.to_owned(),
        };
        for table in ["with_indexes", "without", "few"] {
            database.execute(&format!("create table {table} {}", key(table)));
        }
        let (mut next, mut declared, mut used) = (0, 0, 0);
        for round in 0..12 {
            let count = 1 + rng.below(700);
            insert(&database, &mut rng, next, count);
            database.execute("delete from few");
            let (first, wanted) = (rng.below(next + count), rng.below(12));
            database.execute(&format!(
                "insert into few select * from without where id >= {first} order by id limit {wanted}"
            ));
            if rng.below(2) == 0 {
                database.execute("insert into few select * from few");
                database.execute("insert into few (id, i) values (null, 1), (-5, null)");
            }
            next += count;
            if let Some(index) = INDEXES.get(declared).filter(|_| rng.below(4) > 0) {
                database.execute(&format!("create index on with_indexes ({index})"));
                declared += 1;
            }
            if rng.below(2) == 0 {
                let (own, other) = pair(&mut rng);
                let chosen = format!("{own} in (select {other} from few)");
                for table in ["with_indexes", "without"] {
                    database.execute(&format!("delete from {table} where {chosen} and id % 3 = 0"));
                    database.execute(&format!(
                        "update {table} set i = 2, t = 'ab' where {chosen} and id % 5 = 0"
                    ));
                }
            }
            if rng.below(3) > 0 {
                database.wait_for_indexes("with_indexes");
            }
            for _ in 0..25 {
                let text = statement(&mut rng);
                let of = |table: &str| text.replace("TABLE", table);
                let expected = database.query(&of("without"));
                let found = database.query(&of("with_indexes"));
                assert_eq!(found, expected, "seed {seed}, round {round}: {text}");
                if rng.below(3) == 0 {
                    used += u64::from(analyzed(&database, &of("with_indexes")).contains("while joining: "));
                }
            }
        }
        assert!(used > 15, "only {used} were looked up");
    });
}

fn filled() -> Database {
    let database = open();
    database.numbers("n", 60_000, true);
    for index in ["x", "kind, x"] {
        database.execute(&format!("create index on n ({index})"));
    }
    database.wait_for_indexes("n");
    database.execute("create table few (id bigint, want bigint, small int, what text)");
    database.execute(
        "insert into few values (1, 5, 5, 'kind 5'), (2, 7, 7, 'kind 5'), (3, null, null, null), (4, 99999, -1, ''), (5, 5, 5, 'kind 5')",
    );
    // A row in the indexes' tail.
    database.execute("insert into n values (70000, 'new', 7)");
    database
}

#[test]
fn what_few_rows_want_is_looked_up() {
    let _limit = testkit::limit(300);
    let database = filled();
    let reads = |text: &str, how: &str, rows: &[&str], looked_up: f64| {
        let found: Vec<String> = database.query(text).into_iter().map(|row| row.join(" ")).collect();
        assert_eq!(found, rows, "{text}");
        let plan = analyzed(&database, text);
        assert!(plan.contains(&format!("while joining: {how}")), "{text}: {plan}");
        assert!(figure(&plan, "rows_looked_up") <= looked_up, "{text}: {plan}");
        assert!(figure(&plan, "rows_scanned") < 20.0, "{text}: {plan}");
    };
    let (key, index) = ("by key", "index=n_x_idx");
    reads("select id from n where id in (select want from few) order by id", key, &["5", "7"], 3.0);
    reads("select id from n where id in (select small from few) order by id", key, &["5", "7"], 3.0);
    reads("select count(*) from n where x in (select want from few)", index, &["121"], 125.0);
    reads(
        "select count(*) from n where x in (select want from few where what like 'kind%')",
        index,
        &["121"],
        125.0,
    );
    reads(
        "select count(*) from n where exists (select 1 from few where few.want = n.x)",
        index,
        &["121"],
        125.0,
    );
    reads(
        "select count(*) from n where exists (select 1 from few where few.small = n.x and few.what = n.kind)",
        "index=",
        &["60"],
        125.0,
    );
    reads(
        "select few.id, count(n.id) from few left join n on n.x = few.want group by few.id order by 1",
        index,
        &["1 60", "2 61", "3 0", "4 0", "5 60"],
        125.0,
    );
    reads(
        "select id from few where not exists (select 1 from n where n.x = few.want) order by id",
        index,
        &["3", "4"],
        125.0,
    );
    reads(
        "select id from few where exists (select 1 from n where n.id = few.want) order by id",
        key,
        &["1", "2", "5"],
        3.0,
    );
    reads("select id from n intersect select want from few order by 1", key, &["5", "7"], 3.0);
    // A condition leaves few rows of a large table.
    let text = "select count(*) from n where x in (select x from n m where m.id % 60000 = 3)";
    assert_eq!(database.query(text), [["60"]]);
    let plan = analyzed(&database, text);
    assert!(plan.contains("while joining: index=n_x_idx"), "{plan}");
    assert_eq!((figure(&plan, "rows_looked_up"), figure(&plan, "rows_scanned")), (60.0, 60_000.0), "{plan}");
    reads(
        "select kind from n where _row_id in (select _row_id from n order by x desc, id limit 2)",
        "by row id",
        &["kind 7", "kind 7"],
        100.0,
    );
    reads("select id from n where id in (select want from few where want % 7 = 6)", "nothing", &[], 0.0);
}

#[test]
fn what_few_rows_want_is_changed_and_deleted_by_lookup() {
    let _limit = testkit::limit(120);
    let database = filled();
    assert_eq!(database.execute("update n set kind = 'changed' where id in (select want from few)"), 2);
    assert_eq!(database.query("select id from n where kind = 'changed' order by id"), [["5"], ["7"]]);
    assert_eq!(database.execute("delete from n where x in (select want from few)"), 121);
    assert_eq!(database.query("select count(*), min(id) from n"), [["59880", "0"]]);
    assert_eq!(database.query("select count(*) from n where x in (select want from few)"), [["0"]]);
}

#[test]
fn what_many_rows_want_is_read_as_it_lies() {
    let _limit = testkit::limit(120);
    let database = filled();
    let text = "select count(*) from n where x in (select id from n m where id < 900)";
    assert_eq!(database.query(text), [["54001"]]);
    let plan = analyzed(&database, text);
    assert!(!plan.contains("while joining"), "{plan}");
    // Many values lie in one range: the pieces outside of it are not read.
    let text = "select count(*) from n where id in (select id from n m where id between 20000 and 25000)";
    assert_eq!(database.query(text), [["5001"]]);
    let plan = analyzed(&database, text);
    assert!(figure(&plan, "pieces_skipped") >= 4.0, "{plan}");
}

/// A filter learned for one column while a plan runs must not be applied to another column of the same name.
#[test]
fn columns_of_one_name_are_told_apart() {
    let _limit = testkit::limit(300);
    let database = open();
    for (table, rows) in [("a", 250_000), ("b", 200_000), ("c", 150_000)] {
        database.execute(&format!("create table {table} (id bigint, other bigint)"));
        database.execute(&format!(
            "insert into {table} select value, 199999 - value from generate_series(0, {}) order by value",
            rows - 1
        ));
    }
    let joined = "from b join a on a.other = b.id join c on c.id = b.id";
    let text = format!("select a.id, b.id {joined} order by b.id limit 3");
    assert_eq!(database.query(&text), [["199999", "0"], ["199998", "1"], ["199997", "2"]]);
    database.execute("create table few (want bigint)");
    database.execute("insert into few values (3), (100000)");
    let text = format!(
        "select few.want, s.a from few join (select b.id as b, a.id as a {joined}) s on s.b = few.want order by 1"
    );
    assert_eq!(database.query(&text), [["3", "199996"], ["100000", "99999"]]);
    // The outer key has the name of an inner column that it is not compared with.
    database.execute("create table u (id bigint, x bigint)");
    database.execute("insert into u select 1000000 + value, value from generate_series(0, 20000)");
    let text = "select a.id from few join a on few.want = a.id where a.id in (select u.x from u where u.id <> a.other) order by a.id limit 3";
    assert_eq!(database.query(text), [["3"]]);
}
