//! Which of a table's indexes finds the rows of a filter, and which rows it finds.
//!
//! As with everything that narrows a scan, it may only leave out rows that the filter would refuse: DataFusion applies the
//! filter itself again, also to what an index found.

use std::ops::Bound;

use datafusion::logical_expr::Operator;
use index::column::{Columns, Indexes, Next, Range};
use table::Snapshot;
use types::{ColumnId, Result, RowId, Value};

use crate::prune::{Test, constants};

/// Ranges of one lookup: an IN over several columns multiplies.
const RANGES_MAX: usize = 1_024;
/// To find a row costs as much as to read so many one after the other.
const ROWS_FOR_ONE: u64 = 32;
/// So many are looked up without a question.
const FEW: u64 = 64;

/// Rows that an index found.
#[derive(Debug)]
pub(crate) struct Found {
    /// The index's name.
    pub name: String,
    /// Ascending; some may be dead, or be none that the filter wants.
    pub rows: Vec<RowId>,
    /// The index knows of no row after this one.
    pub reached: RowId,
}

/// The rows that pass `tests` as far as the best index knows; `None` if reading all rows is less work.
pub(crate) fn find(table: &Snapshot, indexes: &Indexes, tests: &[Test]) -> Option<Found> {
    let declared = table.def().indexes.iter().filter(|index| index.kind == index::column::KIND);
    let counted = declared.filter_map(|declared| {
        let index = indexes.of(table.def(), declared)?;
        let ranges = ranges(index.columns(), tests).ok()??;
        // An index that is damaged is none; its materializer finds out too, and builds it anew.
        let count = index.count(&ranges).ok()?;
        Some((count, declared, index, ranges))
    });
    let (count, declared, index, ranges) = counted.min_by_key(|(count, ..)| *count)?;
    let (reached, last) = (index.reached(), RowId(table.next_row().0 - 1));
    // With more rows behind it than before it, nothing is won.
    let covers = reached.0 >= last.0 / 2;
    let pays = count <= FEW || count.saturating_mul(ROWS_FOR_ONE) <= table.rows();
    if !(covers && pays) {
        return None;
    }
    Some(Found { name: declared.name.clone(), rows: index.rows(&ranges).ok()?, reached })
}

/// Where in an index the entries of rows lie that pass the tests; `None` if the tests say nothing of its first column.
fn ranges(columns: &Columns, tests: &[Test]) -> Result<Option<Vec<Range>>> {
    let mut equal: Vec<Vec<Value>> = vec![Vec::new()];
    let mut next = None;
    for id in columns.ids() {
        let Some(values) = equal_to(tests, id).filter(|values| values.len() * equal.len() <= RANGES_MAX)
        else {
            next = Some(id);
            break;
        };
        if values.iter().any(is_zero) {
            next = Some(id);
            break;
        }
        let longer = |known: &Vec<Value>| {
            let known = known.clone();
            values.iter().map(move |value| known.iter().cloned().chain([value.clone()]).collect())
        };
        equal = equal.iter().flat_map(longer).collect();
    }
    let mut all = Vec::with_capacity(equal.len());
    for known in &equal {
        let conditions = next.map(|id| conditions(tests, id)).unwrap_or_default();
        if known.is_empty() && conditions.is_empty() {
            return Ok(None);
        }
        let mut range = columns.range(known, Next::Any)?;
        for condition in conditions {
            range = range.and(columns.range(known, condition.next())?);
        }
        all.push(range);
    }
    all.retain(|range| !range.is_empty());
    Ok(Some(Range::apart(all)))
}

/// The only values that a column can have, null among them, if the tests say so.
fn equal_to(tests: &[Test], wanted: ColumnId) -> Option<Vec<Value>> {
    let is_null = |test: &Test| matches!(test, Test::IsNull(column) if *column == wanted);
    if tests.iter().any(is_null) {
        return Some(vec![Value::Null]);
    }
    constants(tests, wanted)
}

/// The zeros are two values in an index, and one in some comparisons.
fn is_zero(value: &Value) -> bool {
    matches!(value, Value::Float64(v) if *v == 0.0) || matches!(value, Value::Float32(v) if *v == 0.0)
}

/// What a test says of a column behind the known ones.
enum Condition<'a> {
    Between(Bound<Value>, Bound<Value>),
    StartsWith(&'a str),
}

impl Condition<'_> {
    fn next(&self) -> Next<'_> {
        match self {
            Condition::Between(low, high) => Next::Between(low.as_ref(), high.as_ref()),
            Condition::StartsWith(prefix) => Next::StartsWith(prefix),
        }
    }
}

fn conditions(tests: &[Test], wanted: ColumnId) -> Vec<Condition<'_>> {
    use Bound::{Excluded, Included, Unbounded};
    let low = |value: &Value| Included(if is_zero(value) { zero(value, -0.0) } else { value.clone() });
    let high = |value: &Value| Included(if is_zero(value) { zero(value, 0.0) } else { value.clone() });
    let compare = |op: Operator, value: &Value| {
        let either = is_zero(value);
        Some(match op {
            Operator::Eq => Condition::Between(low(value), high(value)),
            Operator::Gt if !either => Condition::Between(Excluded(value.clone()), Unbounded),
            Operator::Gt | Operator::GtEq => Condition::Between(low(value), Unbounded),
            Operator::Lt if !either => Condition::Between(Unbounded, Excluded(value.clone())),
            Operator::Lt | Operator::LtEq => Condition::Between(Unbounded, high(value)),
            _ => return None,
        })
    };
    tests
        .iter()
        .filter_map(|test| match test {
            Test::Compare { column, op, value } if *column == wanted => compare(*op, value),
            Test::StartsWith { column, prefix } if *column == wanted => Some(Condition::StartsWith(prefix)),
            Test::IsNotNull(column) if *column == wanted => Some(Condition::Between(Unbounded, Unbounded)),
            _ => None,
        })
        .collect()
}

fn zero(like: &Value, zero: f64) -> Value {
    match like {
        Value::Float32(_) => Value::Float32(zero as f32),
        _ => Value::Float64(zero),
    }
}
