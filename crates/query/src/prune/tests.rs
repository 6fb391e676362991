use super::*;
use datafusion::prelude::{col, lit};
use types::TableId;

fn def() -> TableDef {
    let mut def = TableDef::new(TableId(1), "main.t");
    def.add_column("id", &DataType::Int64, false, None).unwrap();
    def.add_column("name", &DataType::String, true, None).unwrap();
    def.add_column("x", &DataType::Float64, true, None).unwrap();
    def
}

fn holds(filter: Expr, min: i64, max: i64, nulls: u64) -> bool {
    let tests = tests(&[filter], &def());
    let zone = Zone { min: Some(Value::Int64(min)), max: Some(Value::Int64(max)), nulls };
    tests.iter().all(|test| possible(test, &|_| Some(zone.clone())))
}

#[test]
fn a_zone_is_left_out_only_if_no_value_in_it_can_pass() {
    let values = [-3i64, 0, 1, 5, 9, 10, 11];
    for (min, max) in [(0, 10), (5, 5), (-1, 1)] {
        for v in values {
            let inside: Vec<i64> = (min..=max).collect();
            let c = || col("id");
            for (filter, expected) in [
                (c().eq(lit(v)), inside.contains(&v)),
                (c().lt(lit(v)), inside.iter().any(|x| *x < v)),
                (c().lt_eq(lit(v)), inside.iter().any(|x| *x <= v)),
                (c().gt(lit(v)), inside.iter().any(|x| *x > v)),
                (c().gt_eq(lit(v)), inside.iter().any(|x| *x >= v)),
                (lit(v).lt(c()), inside.iter().any(|x| v < *x)),
                (c().between(lit(v), lit(v + 1)), inside.contains(&v) || inside.contains(&(v + 1))),
                (c().in_list(vec![lit(v), lit(100i64)], false), inside.contains(&v)),
                (c().eq(lit(v)).or(c().eq(lit(5i64))), inside.contains(&v) || inside.contains(&5)),
            ] {
                assert_eq!(holds(filter.clone(), min, max, 0), expected, "{filter} in {min}..={max}");
            }
        }
    }
    assert!(!holds(col("id").is_null(), 0, 1, 0));
    assert!(holds(col("id").is_null(), 0, 1, 2));
}

#[test]
fn what_is_not_understood_leaves_nothing_out() {
    for filter in [
        col("id").not_eq(lit(5i64)),
        col("x").gt(lit(1e300)),
        (col("id") + lit(1i64)).eq(lit(5i64)),
        col("id").in_list(vec![lit(500i64)], true),
        col("id").eq(lit(500i64)).or(col("x").eq(lit(1.0))),
        col("id").eq(lit("500")),
    ] {
        assert!(holds(filter.clone(), 0, 1, 0), "{filter}");
    }
}

#[test]
fn a_piece_of_nulls_passes_no_comparison() {
    let tests = tests(&[col("name").eq(lit("a"))], &def());
    let zone = Zone { min: None, max: None, nulls: 7 };
    assert!(!tests.iter().all(|test| possible(test, &|_| Some(zone.clone()))));
    // An unknown upper bound bounds nothing.
    let zone = Zone { min: Some(Value::String("b".into())), max: None, nulls: 0 };
    let at_least = super::tests(&[col("name").gt(lit("zzz"))], &def());
    assert!(at_least.iter().all(|test| possible(test, &|_| Some(zone.clone()))));
}

#[test]
fn equal_and_in_give_the_keys_to_look_up() {
    let id = def().schema.columns[0].id;
    let of = |filter: Expr| constants(&tests(&[filter], &def()), id);
    assert_eq!(of(col("id").eq(lit(1i64))).unwrap(), [Value::Int64(1)]);
    assert_eq!(of(col("id").eq(lit(1i64)).or(col("id").eq(lit(2i64)))).unwrap().len(), 2);
    assert_eq!(of(col("id").eq(lit(1i64)).and(col("name").eq(lit("a")))).unwrap().len(), 1);
    assert!(of(col("id").gt(lit(1i64))).is_none());
    assert!(of(col("id").eq(lit(1i64)).or(col("name").eq(lit("a")))).is_none());
}
