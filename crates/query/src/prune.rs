//! Derives from a filter the rows that can match: row-id ranges, keys, and tests against zone maps.
//!
//! Pruning may leave out only rows that the filter refuses; DataFusion applies the filter again.

mod physical;

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{Case, InList};
use datafusion::logical_expr::{BinaryExpr, Expr, Like, Operator};
use dialect::rewrites::coercion::before_wildcards;
use table::{ScanPiece, Snapshot, Zone};
use types::{ColumnId, DataType, ROW_ID, ROW_ID_NAME, Result, RowId, TIME, TIME_NAME, TableDef, Value, key};

/// Number of rows that a lookup by key or row id may find; for more rows a scan is as fast.
const LOOKUPS_MAX: usize = 1_024;

/// A condition on one column, or a combination of such, that a filter implies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ColumnTest {
    Compare {
        column: ColumnId,
        op: Operator,
        value: Value,
    },
    OneOf {
        column: ColumnId,
        values: Vec<Value>,
    },
    /// The text begins with the prefix.
    StartsWith {
        column: ColumnId,
        prefix: String,
    },
    IsNull(ColumnId),
    IsNotNull(ColumnId),
    And(Vec<ColumnTest>),
    Or(Vec<ColumnTest>),
    Unknown,
}

/// The rows that can match.
#[derive(Debug, PartialEq)]
pub(crate) enum RowLocation {
    /// These rows only, in ascending order; some of them may be deleted.
    Rows(Vec<RowId>),
    /// The rows from the first id up to, but not including, the second.
    Range(RowId, RowId),
}

/// Returns the tests of a scan's filters. A row must pass all of them.
pub(crate) fn tests(filters: &[Expr], def: &TableDef) -> Vec<ColumnTest> {
    let mut all = Vec::new();
    for filter in filters {
        flatten(test(filter, def), &mut all);
    }
    all
}

pub(crate) fn flatten(test: ColumnTest, all: &mut Vec<ColumnTest>) {
    match test {
        ColumnTest::And(parts) => parts.into_iter().for_each(|part| flatten(part, all)),
        ColumnTest::Unknown => {}
        other => all.push(other),
    }
}

fn test(expr: &Expr, def: &TableDef) -> ColumnTest {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            ColumnTest::And(vec![test(left, def), test(right, def)])
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let mut sides = sides(test(left, def));
            sides.extend(self::sides(test(right, def)));
            ColumnTest::Or(sides)
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::IsNotDistinctFrom, right }) => {
            not_distinct_test(left, right, def)
                .or_else(|| not_distinct_test(right, left, def))
                .unwrap_or(ColumnTest::Unknown)
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => compare(left, *op, right, def)
            .or_else(|| compare(right, op.swap()?, left, def))
            .unwrap_or(ColumnTest::Unknown),
        Expr::Case(case) => case_test(case, def).unwrap_or(ColumnTest::Unknown),
        Expr::IsTrue(inner) => test(inner, def),
        Expr::Column(_) => is_bool(expr, true, def).unwrap_or(ColumnTest::Unknown),
        Expr::Not(inner) => is_bool(inner, false, def).unwrap_or(ColumnTest::Unknown),
        Expr::InList(InList { expr, list, negated: false }) => {
            one_of(expr, list, def).unwrap_or(ColumnTest::Unknown)
        }
        Expr::Between(between) if !between.negated => {
            let low =
                compare(&between.expr, Operator::GtEq, &between.low, def).unwrap_or(ColumnTest::Unknown);
            let high =
                compare(&between.expr, Operator::LtEq, &between.high, def).unwrap_or(ColumnTest::Unknown);
            ColumnTest::And(vec![low, high])
        }
        Expr::Like(like) => starts_with(like, def).unwrap_or(ColumnTest::Unknown),
        Expr::IsNull(inner) => {
            column(inner, def).map_or(ColumnTest::Unknown, |(id, _)| ColumnTest::IsNull(id))
        }
        Expr::IsNotNull(inner) => {
            column(inner, def).map_or(ColumnTest::Unknown, |(id, _)| ColumnTest::IsNotNull(id))
        }
        Expr::Alias(alias) => test(&alias.expr, def),
        _ => ColumnTest::Unknown,
    }
}

/// Returns the operands of nested ORs: `a OR b OR c` has three.
fn sides(test: ColumnTest) -> Vec<ColumnTest> {
    match test {
        ColumnTest::Or(sides) => sides,
        other => vec![other],
    }
}

/// A test that no row passes.
const NEVER: ColumnTest = ColumnTest::Or(Vec::new());

/// Returns the test of `left IS NOT DISTINCT FROM right`, if the right side is a literal.
fn not_distinct_test(left: &Expr, right: &Expr, def: &TableDef) -> Option<ColumnTest> {
    let Expr::Literal(scalar, _) = right else { return None };
    match scalar {
        null if null.is_null() => Some(ColumnTest::IsNull(column(left, def)?.0)),
        ScalarValue::Boolean(Some(true)) => Some(test(left, def)),
        _ => compare(left, Operator::Eq, right, def),
    }
}

/// Returns the test of a searched CASE used as a condition. A row that passes meets the condition of a branch, and that branch's
/// value is true.
fn case_test(case: &Case, def: &TableDef) -> Option<ColumnTest> {
    if case.expr.is_some() {
        return None;
    }
    let branches = case.when_then_expr.iter().map(|(when, then)| {
        let mut both = Vec::new();
        [when, then].into_iter().for_each(|part| flatten(branch_test(part, def), &mut both));
        ColumnTest::And(both)
    });
    let other = case.else_expr.as_ref().map_or(NEVER, |other| branch_test(other, def));
    let possible = branches.chain([other]).filter(|branch| !is_never(branch));
    Some(match possible.collect::<Vec<_>>().as_mut_slice() {
        [only] => std::mem::replace(only, ColumnTest::Unknown),
        several => ColumnTest::Or(several.to_vec()),
    })
}

fn branch_test(expr: &Expr, def: &TableDef) -> ColumnTest {
    match expr {
        Expr::Literal(ScalarValue::Boolean(Some(false) | None) | ScalarValue::Null, _) => NEVER,
        other => test(other, def),
    }
}

fn is_never(test: &ColumnTest) -> bool {
    match test {
        ColumnTest::And(parts) => parts.iter().any(is_never),
        ColumnTest::Or(parts) => parts.iter().all(is_never),
        _ => false,
    }
}

/// Returns the test of a boolean column that is used as a condition.
fn is_bool(expr: &Expr, wanted: bool, def: &TableDef) -> Option<ColumnTest> {
    let (id, DataType::Bool) = column(expr, def)? else { return None };
    Some(ColumnTest::Compare { column: id, op: Operator::Eq, value: Value::Bool(wanted) })
}

fn compare(left: &Expr, op: Operator, right: &Expr, def: &TableDef) -> Option<ColumnTest> {
    if !matches!(op, Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq) {
        return None;
    }
    let (id, data_type) = column(left, def)?;
    Some(ColumnTest::Compare { column: id, op, value: literal(right, &data_type)? })
}

/// Returns the test of a LIKE pattern: the text before its first wildcard is a prefix.
fn starts_with(like: &Like, def: &TableDef) -> Option<ColumnTest> {
    let plain = !like.negated && !like.case_insensitive && like.escape_char.is_none();
    let (id, DataType::String) = column(&like.expr, def)? else { return None };
    let Value::String(pattern) = literal(&like.pattern, &DataType::String)? else { return None };
    let (prefix, rest) = before_wildcards(&pattern);
    match rest {
        _ if !plain => None,
        None => Some(ColumnTest::Compare { column: id, op: Operator::Eq, value: Value::String(prefix) }),
        Some(_) => (!prefix.is_empty()).then_some(ColumnTest::StartsWith { column: id, prefix }),
    }
}

fn one_of(expr: &Expr, list: &[Expr], def: &TableDef) -> Option<ColumnTest> {
    let (id, data_type) = column(expr, def)?;
    let values: Option<Vec<Value>> = list.iter().map(|item| literal(item, &data_type)).collect();
    Some(ColumnTest::OneOf { column: id, values: values? })
}

fn column(expr: &Expr, def: &TableDef) -> Option<(ColumnId, DataType)> {
    let Expr::Column(column) = expr else { return None };
    match column.name.as_str() {
        ROW_ID_NAME => Some((ROW_ID, DataType::Int64)),
        TIME_NAME => Some((TIME, DataType::Timestamp)),
        name => def.schema.columns.iter().find(|c| c.name == name).map(|c| (c.id, c.data_type.clone())),
    }
}

/// Returns a literal as a value of the column's type; `None` for types without an order.
fn literal(expr: &Expr, data_type: &DataType) -> Option<Value> {
    let Expr::Literal(scalar, _) = expr else { return None };
    value(scalar, data_type)
}

/// Returns a scalar as a value of the type of `column`; `None` for types without an order.
pub(crate) fn value_of(scalar: &ScalarValue, column: ColumnId, def: &TableDef) -> Option<Value> {
    match column {
        ROW_ID => value(scalar, &DataType::Int64),
        TIME => value(scalar, &DataType::Timestamp),
        id => value(scalar, &def.schema.column(id)?.data_type),
    }
}

fn value(scalar: &ScalarValue, data_type: &DataType) -> Option<Value> {
    Some(match (scalar, data_type) {
        (ScalarValue::Boolean(Some(v)), DataType::Bool) => Value::Bool(*v),
        (ScalarValue::Int32(Some(v)), DataType::Int32) => Value::Int32(*v),
        (ScalarValue::Int64(Some(v)), DataType::Int64) => Value::Int64(*v),
        (ScalarValue::Float32(Some(v)), DataType::Float32) => Value::Float32(*v),
        (ScalarValue::Float64(Some(v)), DataType::Float64) => Value::Float64(*v),
        (ScalarValue::Date32(Some(v)), DataType::Date) => Value::Date(*v),
        (ScalarValue::TimestampMicrosecond(Some(v), Some(_)), DataType::Timestamp) => Value::Timestamp(*v),
        (ScalarValue::Decimal128(Some(v), _, scale), DataType::Decimal { scale: wanted, .. })
            if *scale == *wanted as i8 =>
        {
            Value::Decimal(*v)
        }
        (ScalarValue::FixedSizeBinary(16, Some(v)), DataType::Uuid) => {
            Value::Uuid(v.as_slice().try_into().ok()?)
        }
        (ScalarValue::Binary(Some(v)), DataType::Binary) => Value::Binary(v.clone()),
        (ScalarValue::Utf8(Some(v)), DataType::String) => Value::String(v.clone()),
        (ScalarValue::Utf8View(Some(v)), DataType::String) => Value::String(v.clone()),
        _ => return None,
    })
}

pub(crate) use physical::{exact_tests, possible_tests};

/// Returns the rows of `snapshot` that can pass `tests`.
pub(crate) fn locate_rows(snapshot: &Snapshot, tests: &[ColumnTest]) -> Result<RowLocation> {
    if let Some((_, rows)) = rows_by_id(snapshot, tests, |_| true)? {
        return Ok(RowLocation::Rows(rows));
    }
    let (mut first, mut end) = (RowId(0), snapshot.next_row());
    for test in tests {
        let ColumnTest::Compare { column, op, value } = test else { continue };
        match (*column, value) {
            (ROW_ID, Value::Int64(v)) => {
                let v = RowId((*v).max(0) as u64);
                let negative = matches!(value, Value::Int64(..0));
                match op {
                    Operator::GtEq if !negative => first = first.max(v),
                    Operator::Gt if !negative => first = first.max(v.next()),
                    Operator::Lt if !negative => end = end.min(v),
                    Operator::LtEq if !negative => end = end.min(RowId(v.0.saturating_add(1))),
                    Operator::Lt | Operator::LtEq | Operator::Eq => end = first,
                    _ => {}
                }
            }
            (TIME, Value::Timestamp(v)) => match op {
                Operator::GtEq => first = first.max(snapshot.row_at_time(*v)?),
                Operator::Gt => first = first.max(snapshot.row_at_time(v.saturating_add(1))?),
                Operator::Lt => end = end.min(snapshot.row_at_time(*v)?),
                Operator::LtEq => end = end.min(snapshot.row_at_time(v.saturating_add(1))?),
                _ => {
                    first = first.max(snapshot.row_at_time(*v)?);
                    end = end.min(snapshot.row_at_time(v.saturating_add(1))?);
                }
            },
            _ => {}
        }
    }
    Ok(RowLocation::Range(first, end.max(first)))
}

/// Returns the rows that can pass `tests`, if these name them by row id or key and `pays` accepts their number; and the name of
/// the method.
pub(crate) fn rows_by_id(
    snapshot: &Snapshot,
    tests: &[ColumnTest],
    pays: impl Fn(u64) -> bool,
) -> Result<Option<(&'static str, Vec<RowId>)>> {
    let is_few = |count: usize| count <= LOOKUPS_MAX && pays(count as u64);
    if let Some(rows) = by_row_id(tests, is_few) {
        return Ok(Some(("by row id", rows)));
    }
    Ok(by_key(snapshot, tests, is_few)?.map(|rows| ("by key", rows)))
}

fn by_row_id(tests: &[ColumnTest], is_few: impl Fn(usize) -> bool) -> Option<Vec<RowId>> {
    let values = constants(tests, ROW_ID)?;
    if !is_few(values.len()) {
        return None;
    }
    let mut rows: Vec<RowId> = values
        .iter()
        .filter_map(|value| match value {
            Value::Int64(v @ 1..) => Some(RowId(*v as u64)),
            _ => None,
        })
        .collect();
    rows.sort_unstable();
    rows.dedup();
    Some(rows)
}

fn by_key(
    snapshot: &Snapshot,
    tests: &[ColumnTest],
    is_few: impl Fn(usize) -> bool,
) -> Result<Option<Vec<RowId>>> {
    let def = snapshot.def();
    if !def.is_keyed() {
        return Ok(None);
    }
    let mut keys: Vec<Vec<Value>> = vec![Vec::new()];
    let mut types = Vec::new();
    for column in def.key_columns() {
        let Some(values) = constants(tests, column.id) else { return Ok(None) };
        if !is_few(keys.len() * values.len()) {
            return Ok(None);
        }
        let longer = |key: &Vec<Value>| {
            let key = key.clone();
            values.iter().map(move |value| key.iter().cloned().chain([value.clone()]).collect())
        };
        keys = keys.iter().flat_map(longer).collect();
        types.push(column.data_type.clone());
    }
    let mut rows = Vec::with_capacity(keys.len());
    for values in keys {
        rows.extend(snapshot.find(&key::encode_values(&types, &values)?)?);
    }
    rows.sort_unstable();
    rows.dedup();
    Ok(Some(rows))
}

/// Returns the only values that a column can have, if the tests restrict it to such.
pub(crate) fn constants(tests: &[ColumnTest], wanted: ColumnId) -> Option<Vec<Value>> {
    tests.iter().find_map(|test| match test {
        ColumnTest::Compare { column, op: Operator::Eq, value } if *column == wanted => {
            Some(vec![value.clone()])
        }
        ColumnTest::OneOf { column, values } if *column == wanted => Some(values.clone()),
        ColumnTest::Or(parts) => {
            let values: Option<Vec<Vec<Value>>> =
                parts.iter().map(|part| constants(std::slice::from_ref(part), wanted)).collect();
            values.map(|values| values.concat())
        }
        _ => None,
    })
}

/// Returns the range that the tests leave for a timestamp column. All tests must hold.
pub(crate) fn time_range<'a>(
    tests: impl Iterator<Item = &'a ColumnTest>,
    column: ColumnId,
) -> RangeInclusive<i64> {
    let (mut low, mut high) = (i64::MIN, i64::MAX);
    for test in tests {
        let ColumnTest::Compare { column: id, op, value: Value::Timestamp(v) } = test else { continue };
        if *id != column {
            continue;
        }
        match op {
            Operator::Eq => (low, high) = (low.max(*v), high.min(*v)),
            Operator::GtEq => low = low.max(*v),
            Operator::LtEq => high = high.min(*v),
            // No timestamp is greater than the greatest one.
            Operator::Gt if *v == i64::MAX => (low, high) = (1, 0),
            Operator::Lt if *v == i64::MIN => (low, high) = (1, 0),
            Operator::Gt => low = low.max(v + 1),
            Operator::Lt => high = high.min(v - 1),
            _ => {}
        }
    }
    low..=high
}

/// Returns true if a piece can hold a row that passes all tests.
pub(crate) fn may_match(piece: &ScanPiece, tests: &[ColumnTest]) -> bool {
    tests.iter().all(|test| possible(test, &|column| zone(piece, column)) && !partition_lacks(piece, test))
}

/// Returns true if a piece belongs to a partition without a row that passes the test.
fn partition_lacks(piece: &ScanPiece, test: &ColumnTest) -> bool {
    match test {
        ColumnTest::And(parts) => parts.iter().any(|part| partition_lacks(piece, part)),
        ColumnTest::Or(parts) => !parts.is_empty() && parts.iter().all(|part| partition_lacks(piece, part)),
        ColumnTest::Compare { column, op: Operator::Eq, value } => piece.lacks(*column, value),
        ColumnTest::OneOf { column, values } => values.iter().all(|value| piece.lacks(*column, value)),
        _ => false,
    }
}

fn zone(piece: &ScanPiece, column: ColumnId) -> Option<Zone> {
    if column == ROW_ID {
        let (first, last) = piece.row_range();
        let value = |row: RowId| Some(Value::Int64(row.0 as i64));
        return Some(Zone { min: value(first), max: value(last), nulls: 0 });
    }
    piece.zone(column)
}

fn possible(test: &ColumnTest, zone: &dyn Fn(ColumnId) -> Option<Zone>) -> bool {
    match test {
        ColumnTest::And(parts) => parts.iter().all(|part| possible(part, zone)),
        ColumnTest::Or(parts) => parts.iter().any(|part| possible(part, zone)),
        ColumnTest::Unknown => true,
        ColumnTest::IsNull(column) => zone(*column).is_none_or(|zone| zone.nulls > 0),
        ColumnTest::IsNotNull(column) => zone(*column).is_none_or(|zone| zone.min.is_some()),
        ColumnTest::Compare { column, op, value } => {
            zone(*column).is_none_or(|zone| in_zone(&zone, *op, value))
        }
        ColumnTest::OneOf { column, values } => {
            zone(*column).is_none_or(|zone| values.iter().any(|value| in_zone(&zone, Operator::Eq, value)))
        }
        ColumnTest::StartsWith { column, prefix } => zone(*column).is_none_or(|zone| {
            let is_above = |min: &str| min > prefix.as_str() && !min.starts_with(prefix.as_str());
            match (&zone.min, &zone.max) {
                (None, _) => false,
                (Some(Value::String(min)), _) if is_above(min) => false,
                (_, Some(Value::String(max))) => max.as_str() >= prefix.as_str(),
                _ => true,
            }
        }),
    }
}

fn in_zone(zone: &Zone, op: Operator, value: &Value) -> bool {
    // All values are null: no comparison holds.
    let Some(min) = &zone.min else { return false };
    let min_to = compare_values(min, value);
    let max_to = zone.max.as_ref().and_then(|max| compare_values(max, value));
    let min_above = min_to == Some(Ordering::Greater);
    let max_below = max_to == Some(Ordering::Less);
    match op {
        Operator::Eq => !min_above && !max_below,
        Operator::Lt => !matches!(min_to, Some(Ordering::Greater | Ordering::Equal)),
        Operator::LtEq => !min_above,
        Operator::Gt => !matches!(max_to, Some(Ordering::Less | Ordering::Equal)),
        Operator::GtEq => !max_below,
        _ => true,
    }
}

/// Compares two values; `None` if they cannot be ordered.
pub(crate) fn compare_values(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Int32(a), Value::Int32(b)) => Some(a.cmp(b)),
        (Value::Int64(a), Value::Int64(b)) => Some(a.cmp(b)),
        (Value::Float32(a), Value::Float32(b)) => float_order((*a).into(), (*b).into()),
        (Value::Float64(a), Value::Float64(b)) => float_order(*a, *b),
        (Value::Date(a), Value::Date(b)) => Some(a.cmp(b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => Some(a.cmp(b)),
        (Value::Decimal(a), Value::Decimal(b)) => Some(a.cmp(b)),
        (Value::String(a), Value::String(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
        (Value::Binary(a), Value::Binary(b)) => Some(a.cmp(b)),
        (Value::Uuid(a), Value::Uuid(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

/// Compares two floats. Zone maps do not distinguish the two zeros, and know nothing of NaN.
fn float_order(a: f64, b: f64) -> Option<Ordering> {
    if a == 0.0 && b == 0.0 { None } else { a.partial_cmp(&b) }
}

#[cfg(test)]
mod tests;
