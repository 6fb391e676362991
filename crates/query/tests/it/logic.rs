//! Conditions have the value of three-valued logic: random ones over all combinations of nulls and small numbers, compared with
//! this file's own evaluation.

use std::fmt::Write as _;

use query::Limits;
use testkit::Rng;
use types::Value;

use crate::database::{Database, open, texts};

/// A condition; it evaluates to `None` for null.
#[derive(Debug)]
enum Condition {
    In { operand: Operand, items: Vec<Operand>, negated: bool },
    Compare(Operand, &'static str, Operand),
    Between { operand: Operand, low: Operand, high: Operand, negated: bool },
    IsNull(Operand, bool),
    Is(Box<Condition>, &'static str),
    Not(Box<Condition>),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Case(Box<Condition>, Box<Condition>, Option<Box<Condition>>),
}

#[derive(Clone, Copy, Debug)]
enum Operand {
    Column(usize),
    Number(i64),
    Null,
    /// `$1` and so on.
    Param(usize),
}

const COLUMNS: [&str; 3] = ["x", "y", "z"];
const PARAMS: [i64; 3] = [1, 2, 3];

type Row = [Option<i64>; 3];

impl Operand {
    fn any(rng: &mut Rng, params: bool) -> Operand {
        match rng.below(8) {
            0 | 1 => Operand::Column(rng.index(2)),
            2 if params => Operand::Param(rng.index(PARAMS.len())),
            3 => Operand::Null,
            _ => Operand::Number(rng.below(5) as i64),
        }
    }

    fn value(self, row: &Row) -> Option<i64> {
        match self {
            Operand::Column(at) => row[at],
            Operand::Number(n) => Some(n),
            Operand::Null => None,
            Operand::Param(at) => Some(PARAMS[at]),
        }
    }

    fn text(self) -> String {
        match self {
            Operand::Column(at) => COLUMNS[at].into(),
            Operand::Number(n) => n.to_string(),
            Operand::Null => "null".into(),
            Operand::Param(at) => format!("${}", at + 1),
        }
    }
}

impl Condition {
    fn any(rng: &mut Rng, depth: u32, params: bool) -> Condition {
        let inner = |rng: &mut Rng| Box::new(Condition::any(rng, depth - 1, params));
        if depth == 0 || rng.below(6) == 0 {
            return Condition::leaf(rng, params);
        }
        match rng.below(10) {
            0..4 => Condition::And(inner(rng), inner(rng)),
            4..7 => Condition::Or(inner(rng), inner(rng)),
            7 => Condition::Not(inner(rng)),
            8 => {
                let otherwise = (rng.below(2) == 0).then(|| inner(rng));
                Condition::Case(inner(rng), inner(rng), otherwise)
            }
            _ => {
                let ways = ["true", "false", "unknown", "not true", "not false", "not unknown"];
                Condition::Is(inner(rng), ways[rng.index(ways.len())])
            }
        }
    }

    fn leaf(rng: &mut Rng, params: bool) -> Condition {
        // Mostly about one column, so that conditions interact.
        let operand = Operand::Column(if rng.below(4) == 0 { rng.index(3) } else { 0 });
        let negated = rng.below(2) == 0;
        match rng.below(10) {
            0 => Condition::IsNull(operand, negated),
            1 | 2 => {
                let ways = ["=", "<>", "<", ">=", "is distinct from", "is not distinct from"];
                let way = ways[rng.index(ways.len())];
                Condition::Compare(operand, way, Operand::any(rng, params))
            }
            3 => {
                let (low, high) = (Operand::any(rng, params), Operand::any(rng, params));
                Condition::Between { operand, low, high, negated }
            }
            _ => {
                let items = (0..1 + rng.below(6)).map(|_| Operand::any(rng, params)).collect();
                let operand = if rng.below(12) == 0 { Operand::any(rng, params) } else { operand };
                Condition::In { operand, items, negated }
            }
        }
    }

    fn value(&self, row: &Row) -> Option<bool> {
        let compare = |left: Operand, right: Operand, met: fn(&i64, &i64) -> bool| {
            Some(met(&left.value(row)?, &right.value(row)?))
        };
        let not = |value: Option<bool>, negated: bool| value.map(|value| value != negated);
        match self {
            Condition::In { operand, items, negated } => {
                let any =
                    items.iter().map(|item| compare(*operand, *item, |a, b| a == b)).fold(Some(false), or);
                not(any, *negated)
            }
            Condition::Compare(left, way, right) => match *way {
                "=" => compare(*left, *right, |a, b| a == b),
                "<>" => compare(*left, *right, |a, b| a != b),
                "<" => compare(*left, *right, |a, b| a < b),
                ">=" => compare(*left, *right, |a, b| a >= b),
                "is distinct from" => Some(left.value(row) != right.value(row)),
                _ => Some(left.value(row) == right.value(row)),
            },
            Condition::Between { operand, low, high, negated } => {
                let above = compare(*operand, *low, |a, b| a >= b);
                not(and(above, compare(*operand, *high, |a, b| a <= b)), *negated)
            }
            Condition::IsNull(operand, negated) => Some(operand.value(row).is_none() != *negated),
            Condition::Is(inner, way) => {
                let (way, negated) = way.strip_prefix("not ").map_or((*way, false), |way| (way, true));
                let wanted = match way {
                    "true" => Some(true),
                    "false" => Some(false),
                    _ => None,
                };
                Some((inner.value(row) == wanted) != negated)
            }
            Condition::Not(inner) => not(inner.value(row), true),
            Condition::And(left, right) => and(left.value(row), right.value(row)),
            Condition::Or(left, right) => or(left.value(row), right.value(row)),
            Condition::Case(when, then, otherwise) => match when.value(row) {
                Some(true) => then.value(row),
                _ => otherwise.as_ref().and_then(|otherwise| otherwise.value(row)),
            },
        }
    }

    fn text(&self) -> String {
        let not = |negated: bool| if negated { "not " } else { "" };
        match self {
            Condition::In { operand, items, negated } => {
                let items: Vec<String> = items.iter().map(|item| item.text()).collect();
                format!("{} {}in ({})", operand.text(), not(*negated), items.join(", "))
            }
            Condition::Compare(left, way, right) => format!("{} {way} {}", left.text(), right.text()),
            Condition::Between { operand, low, high, negated } => {
                format!("{} {}between {} and {}", operand.text(), not(*negated), low.text(), high.text())
            }
            Condition::IsNull(operand, negated) => format!("{} is {}null", operand.text(), not(*negated)),
            Condition::Is(inner, way) => format!("({}) is {way}", inner.text()),
            Condition::Not(inner) => format!("not ({})", inner.text()),
            Condition::And(left, right) => format!("({} and {})", left.text(), right.text()),
            Condition::Or(left, right) => format!("({} or {})", left.text(), right.text()),
            Condition::Case(when, then, otherwise) => {
                let otherwise = otherwise.as_ref().map(|o| format!(" else {}", o.text())).unwrap_or_default();
                format!("case when {} then {}{otherwise} end", when.text(), then.text())
            }
        }
    }
}

fn and(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn or(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    and(left.map(|l| !l), right.map(|r| !r)).map(|both| !both)
}

/// All combinations of null and 1 to 3.
fn rows() -> Vec<Row> {
    let value = |digit: usize| (digit > 0).then_some(digit as i64);
    (0..64).map(|n| [value(n % 4), value(n / 4 % 4), value(n / 16)]).collect()
}

fn filled() -> (Database, Vec<Row>) {
    let database = open();
    database.execute("create table t (id bigint primary key, x int, y int, z int)");
    let rows = rows();
    let mut text = String::from("insert into t values ");
    for (id, row) in rows.iter().enumerate() {
        let cell = |value: Option<i64>| value.map_or("null".into(), |v| v.to_string());
        let comma = if id == 0 { "" } else { ", " };
        write!(text, "{comma}({id}, {}, {}, {})", cell(row[0]), cell(row[1]), cell(row[2])).unwrap();
    }
    database.execute(&text);
    (database, rows)
}

fn ask(database: &Database, text: &str, params: bool) -> Vec<Vec<String>> {
    let values = if params { PARAMS.iter().map(|p| Value::Int64(*p)).collect() } else { Vec::new() };
    let mut rows =
        database.rows(text, values, Limits::default()).unwrap_or_else(|error| panic!("{text}: {error}"));
    texts(&database.runtime.block_on(rows.collect()).unwrap_or_else(|error| panic!("{text}: {error}")))
}

fn shown(value: Option<bool>) -> String {
    value.map_or("NULL".into(), |value| value.to_string())
}

#[test]
fn conditions_have_the_value_that_logic_gives_them() {
    let _limit = testkit::limit(300);
    let (database, rows) = filled();
    let check = |condition: &Condition, params: bool| {
        let text = condition.text();
        // A statement must name each of its parameters.
        let all = if params { ", $1 as p, $2 as q, $3 as r" } else { "" };
        let expected: Vec<Option<bool>> = rows.iter().map(|row| condition.value(row)).collect();
        let ids = |wanted: fn(&Option<bool>) -> bool| -> Vec<String> {
            let all = expected.iter().enumerate().filter(|(_, value)| wanted(value));
            all.map(|(id, _)| id.to_string()).collect()
        };
        let first = |text: String| -> Vec<String> {
            ask(&database, &text, params).into_iter().map(|row| row[0].clone()).collect()
        };
        let values: Vec<String> = expected.iter().map(|value| shown(*value)).collect();
        assert_eq!(first(format!("select {text} as v{all} from t order by id")), values, "{text}");
        let met = ids(|value| *value == Some(true));
        assert_eq!(first(format!("select id{all} from t where {text} order by id")), met, "{text}");
        let unmet = ids(|value| *value == Some(false));
        assert_eq!(
            first(format!("select id{all} from t where not ({text}) order by id")),
            unmet,
            "not {text}"
        );
        let unknown = ids(Option::is_none);
        let nested =
            format!("select id{all} from (select id, {text} as v from t) q where v is null order by id");
        assert_eq!(first(nested), unknown, "null: {text}");
        let having = format!("select id{all} from t group by id, x, y, z having {text} order by id");
        assert_eq!(first(having), met, "having {text}");
    };
    testkit::for_each_seed(250, |seed| {
        let mut rng = Rng::new(seed);
        let params = seed % 3 == 0;
        let condition = Condition::any(&mut rng, 1 + (seed % 4) as u32, params);
        check(&condition, params);
        // The second run uses the cached plan.
        check(&condition, params);
    });
}

/// Conditions that only come together when a query is merged into another.
#[test]
fn lists_that_meet_in_the_query_around_them_forget_no_null() {
    let _limit = testkit::limit(120);
    let (database, _) = filled();
    let count = |text: &str| database.query(&format!("select count(*) from {text}"))[0][0].clone();
    let lists = "(select x not in (1, 2, 3, 4) as a, x not in (5, 6, 7, 8) as b, \
        x in (1, 2, 3, 4) as c, x in (5, 6, 7, 8) as d from t) q";
    assert_eq!(count(&format!("{lists} where a or b")), "48");
    assert_eq!(count(&format!("{lists} where not (a or b)")), "0");
    assert_eq!(count(&format!("{lists} where (a or b) is null")), "16");
    assert_eq!(count(&format!("{lists} where (c and d) is null")), "16");
    assert_eq!(count(&format!("{lists} where not (c and d)")), "48");
    assert_eq!(count("t where x not in (1) or x not in (2)"), "48");
    assert_eq!(count("t where not (x in (1) and x in (2))"), "48");
    assert_eq!(count("t where (x = 1 or x = 2) and not (x = 1 or x = 2) is not null"), "0");
    assert_eq!(count("t where x in (1, 2) and x not in (3, null)"), "0");
    assert_eq!(count("t where x in (y, 9) and x in (z, 8)"), "3");
    assert_eq!(count("t where 1 in (x, 9) and 1 in (y, 8)"), "4");
    assert_eq!(count("t where x::text ~ '^(1|2)$' and x::text ~ '^(3|4)$' is null"), "0");
    assert_eq!(count("t where (x::text ~ '^(1|2)$' and x::text ~ '^(3|4)$') is null"), "16");
}

/// The rewriting must not cost this: a list of keys or of an index is still one lookup.
#[test]
fn lists_beside_others_are_still_looked_up() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (id bigint primary key, k bigint, s text)");
    database.execute("insert into t select i, i % 5000, 'n' || i from generate_series(1, 20000) g(i)");
    database.execute("create index t_k on t (k)");
    database.wait_for_indexes("t");
    let plan = |filter: &str| {
        let rows = database.query(&format!("explain select * from t where {filter}"));
        rows.concat().join("\n")
    };
    for filter in [
        "id in (1, 2, 3, 4, 5) and s not in ('n1', 'n2', 'n3', 'n4')",
        "(id = 1 or id = 2 or id = 3 or id = 4 or id = 5) and s not in ('n1', 'n2', 'n3', 'n4')",
        "(id = 1 or id = 2) and (s = 'n1' or s = 'n2')",
    ] {
        assert!(plan(filter).contains("lookup="), "{filter}: {}", plan(filter));
    }
    let found = plan("(k = 1 or k = 2 or 7 = k or k = 8 or k in (9, 10)) and (s = 'n1' or s = 'n7')");
    assert!(found.contains("index=t_k"), "{found}");
    assert_eq!(
        database.query(
            "select count(*) from t where (k = 1 or 7 = k or k in (9, 10)) and (s = 'n1' or s = 'n7')"
        ),
        [["2"]]
    );
}

#[test]
fn long_lists_about_one_value_are_no_deep_tree() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (id bigint, a bigint)");
    database.execute("insert into t values (1, 5), (2, 50000), (3, null)");
    let literals = |count: i64| (0..count).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let (all, columns) =
        (literals(50_000), (0..1_500).map(|n| format!("a + {n}")).collect::<Vec<_>>().join(", "));
    for (filter, expected) in [
        (format!("$1 in ({all}) and a in (5, 6, 7, 50000)"), "2"),
        (format!("($1 not in ({all}) or a in (5, 6, 7, 8)) and a not in (6, 7, 8, 9)"), "1"),
        (format!("$1 in ({columns}) and $1 in (a, id, 9)"), "1"),
    ] {
        let text = format!("select count(*) from t where {filter}");
        for _ in 0..2 {
            let found = database.try_query(&text, vec![types::Value::Int64(5)]);
            assert_eq!(found.unwrap(), [[expected]], "{}", &filter[..60]);
        }
    }
}

/// The optimizer must not conclude that a column has one value because a filter compares an expression of it.
#[test]
fn rows_are_in_order_where_a_filter_computes_of_what_they_are_ordered_by() {
    let _limit = testkit::limit(120);
    let database = open();
    database.execute("create table t (id bigint primary key, f double precision, n int)");
    database.execute(
        "insert into t values (160, 2.5, 1), (161, 3.0, 1), (164, 0.0, 2), (165, 3.4, 3), (168, 1.0, 3), (166, 2.9, 2)",
    );
    for (text, expected) in [
        ("select id from t where id / 7 = 23 order by id desc", "166 165 164 161"),
        ("select id from t where id / 7 = 23 order by cast(id as text) desc", "166 165 164 161"),
        ("select id from t where id / 7 >= 23 and id / 7 <= 23 order by id desc", "166 165 164 161"),
        ("select n from t where 3 = n / 1 order by n, id desc", "3 3"),
        ("select f from t where cast(f as int) = 3 order by f desc", "3.4 3.0 2.9"),
        ("select f from t where f + 1e16 = 1e16 order by f desc", "1.0 0.0"),
        ("select max(id) from t where id / 7 = 23", "166"),
        ("select id from t where id / 7 = 23 order by n, id desc", "161 166 164 165"),
        ("select id from t where id / 7 = 23 and n = 2 order by n, id desc", "166 164"),
        (
            "select a.id from t a join t b on a.n = b.n where a.id / 7 = 23 and b.id = 168 order by a.id",
            "165",
        ),
        (
            "select id, row_number() over (order by id desc) as r from t where id / 7 = 23 order by r limit 1",
            "166",
        ),
    ] {
        let rows: Vec<String> = database.query(text).into_iter().map(|row| row[0].clone()).collect();
        assert_eq!(rows.join(" "), expected, "{text}");
    }
    // A comparison of the column itself may be used.
    let plan = |text: &str| database.query(&format!("explain {text}")).concat().join("\n");
    let sorted = plan("select id, n from t where n = 2 order by n");
    assert!(!sorted.contains("SortExec"), "{sorted}");
}
