//! Aggregates of floats are equal to the bit, wherever the rows are and however they are read.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use engine::{Mode, Transaction};
use testkit::Rng;
use types::Principal;

use crate::database::{Database, open, open_with};

fn insert(database: &Database, table: &str, rows: &[(i64, f64)]) {
    let schema =
        Schema::new(vec![Field::new("g", DataType::Int64, false), Field::new("x", DataType::Float64, false)]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))),
        Arc::new(Float64Array::from_iter_values(rows.iter().map(|row| row.1))),
    ];
    let batch = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
    database.engine.commit(&Principal::local(), Transaction::insert(table, batch, Mode::Append)).unwrap();
}

const FIGURES: &str = "sum(x), avg(x), var_samp(x), var_pop(x), stddev(x), stddev_pop(x), \
    sum(distinct x), avg(distinct x), sum(x) filter (where x > 0)";

#[test]
fn what_plain_addition_loses_is_in_the_answer() {
    let _limit = testkit::limit(120);
    let database = open();
    let sum = |values: &str| database.query(&format!("select sum(x), avg(x) from (values {values}) v(x)"));
    assert_eq!(sum("(1e16), (1.0), (-1e16)"), [["1.0", "0.3333333333333333"]]);
    assert_eq!(sum("(1e308), (1e308), (-1e308)")[0][0], "1e308");
    assert_eq!(
        database
            .query("select sum(x), avg(x) from (select 0.1::float8 as x from generate_series(1, 10000000))"),
        [["1000000.0", "0.1"]]
    );
    // Around 1e9 a variance by plain squares has no correct digit left.
    let spread = "select var_pop(x), var_samp(x), stddev_pop(x) \
        from (values (1e9 + 4), (1e9 + 7), (1e9 + 13), (1e9 + 16)) v(x)";
    assert_eq!(database.query(spread), [["22.5", "30.0", "4.743416490252569"]]);
    let none = "select sum(x), avg(x), var_pop(x), var_samp(x) from (values (1.5)) v(x) where x > 2";
    assert_eq!(database.query(none), [["NULL", "NULL", "NULL", "NULL"]]);
    let one = "select var_pop(x), var_samp(x), stddev(x) from (values (1.5)) v(x)";
    assert_eq!(database.query(one), [["0.0", "NULL", "NULL"]]);
    let odd =
        "select sum(x), avg(x), stddev(x) from (values (float8 '1.5'), (float8 'inf'), (float8 '-inf')) v(x)";
    assert_eq!(database.query(odd), [["NaN", "NaN", "NaN"]]);
    // A frame that values leave again.
    let frame = "select sum(x) over (order by i rows between 1 preceding and current row) as s \
        from (values (1, 1e16), (2, 1.0), (3, -1e16), (4, 2.0), (5, 0.5)) v(i, x) order by i";
    assert_eq!(database.query(frame).concat(), ["1e16", "1e16", "-1e16", "-9999999999999998.0", "2.5"]);
}

/// A mean is at most the largest value, and a deviation at most the distance of the values, even if their sum and squares exceed
/// float64.
#[test]
fn figures_of_large_values_are_as_exact_as_others() {
    let _limit = testkit::limit(120);
    let database = open();
    let figures = |values: &str| {
        let text = format!("select avg(x), var_pop(x), stddev_pop(x), stddev(x) from (values {values}) v(x)");
        database.query(&text).remove(0)
    };
    assert_eq!(figures("(1e308), (1e308)"), ["1e308", "0.0", "0.0", "0.0"]);
    assert_eq!(figures("(1e308), (1e308), (-1e308)")[0], "3.333333333333333e307");
    assert_eq!(figures("(1e200), (1e200)")[1..], ["0.0", "0.0", "0.0"]);
    assert_eq!(figures("(1e200), (-1e200)"), ["0.0", "inf", "1e200", "1.414213562373095e200"]);
    assert_eq!(figures("(1e200), (1e200), (1.0), (1.0)")[2], "5e199");
    assert_eq!(
        figures("(1e150), (-1e150)"),
        ["0.0", "9.999999999999999e299", "1e150", "1.414213562373095e150"]
    );
    let with = figures("(1e300), (float8 'inf')");
    assert_eq!((&with[0][..], &with[1][..]), ("inf", "NaN"));
    // A frame that large values leave again.
    let frame = "select avg(x) over w, stddev_pop(x) over w \
        from (values (1, 1e308), (2, 1e308), (3, 4.0), (4, 8.0)) v(i, x) \
        window w as (order by i rows between 1 preceding and current row) order by i";
    let expected = [["1e308", "0.0"], ["1e308", "0.0"], ["5e307", "5e307"], ["6.0", "2.0"]];
    assert_eq!(database.query(frame), expected);
    // Aggregated in parts that are merged.
    database.execute("create table t (g bigint, x double precision)");
    let rows: Vec<(i64, f64)> =
        (0..40_000).map(|i| (i % 7, if i % 2 == 0 { 3e200 } else { 1e200 })).collect();
    rows.chunks(9_000).for_each(|some| insert(&database, "t", some));
    assert_eq!(database.query("select avg(x), stddev_pop(x) from t"), [["2e200", "1e200"]]);
    let groups = database.query("select g, stddev_pop(x) < 1.0001e200 from t group by g order by g");
    assert!(groups.len() == 7 && groups.iter().all(|row| row[1] == "true"), "{groups:?}");
}

/// Compares equal rows that were inserted in one commit, in many, with deletes, or in reverse order; and reads by one thread, by
/// several, in one step, and in partial ones that spill.
#[test]
fn neither_place_nor_order_nor_threads_change_a_bit() {
    let _limit = testkit::limit(240);
    let mut rng = Rng::new(1);
    let mut rows: Vec<(i64, f64)> = (0..60_000)
        .map(|i| {
            let size = 10f64.powi(rng.below(30) as i32 - 15);
            (i % 97, (rng.unit() - 0.5) * if i % 3 == 0 { size } else { 1_000.0 })
        })
        .collect();
    let answers = |database: &Database, table: &str| {
        let whole = database.query(&format!("select {FIGURES} from {table}"));
        let groups = database.query(&format!("select g, {FIGURES} from {table} group by g order by g"));
        let fine = database
            .query(&format!("select g, x < 0, {FIGURES} from {table} group by g, x < 0 order by 1, 2"));
        (whole, groups, fine)
    };

    let one = open_with(|options| options.threads = 1);
    one.execute("create table t (g bigint, x double precision)");
    insert(&one, "t", &rows);
    let expected = answers(&one, "t");

    let several = open_with(|options| options.threads = 4);
    several.execute("create table t (g bigint, x double precision)");
    rng.shuffle(&mut rows);
    let mut rest = &rows[..];
    while !rest.is_empty() {
        let (some, others) = rest.split_at(rest.len().min(1 + rng.index(9_000)));
        insert(&several, "t", some);
        insert(&several, "t", &[(-1, 1e300), (-1, rng.unit())]);
        rest = others;
    }
    several.execute("delete from t where g = -1");
    assert_eq!(answers(&several, "t"), expected);
}
