//! Chooses the column index that finds the rows of a filter, and looks the rows up.
//!
//! A lookup may leave out only rows that the filter refuses: DataFusion applies the filter again, also to the rows that an index
//! found.

use std::ops::Bound;

use datafusion::logical_expr::Operator;
use index::column::{self, ColumnCondition, EntryRange, Index, IndexColumns, Indexes};
use table::Snapshot;
use types::{ColumnId, Result, RowId, Value};

use crate::provider::Table;
use crate::prune::{self, ColumnTest, constants};

/// Ranges of one lookup: an IN over several columns multiplies them.
pub(crate) const RANGES_MAX: usize = 1_024;
/// Cost of finding one row by an index, in rows that could be scanned instead.
pub(crate) const ROWS_FOR_ONE: u64 = 32;
/// Number of rows that are always looked up, whatever a scan would cost.
pub(crate) const CHEAP_LOOKUPS: u64 = 64;
/// Operands of one OR that are looked up one by one.
const PARTS_MAX: usize = 64;
/// ORs of one filter for which this is tried.
const ORS_MAX: usize = 8;
/// Tests and ranges that the operands of all ORs may add up to, for a lookup in a single index.
const OPERANDS_MAX: usize = 4 * RANGES_MAX;

/// Rows that one or several indexes found.
#[derive(Debug)]
pub(crate) struct IndexedRows {
    /// The index's name.
    pub name: String,
    /// The rows, ascending. Some may be deleted, or not match the filter.
    pub rows: Vec<RowId>,
    /// The index covers rows up to this one.
    pub reached: RowId,
}

impl IndexedRows {
    /// Returns the union of several results. It covers rows up to the least `reached`.
    pub fn union(all: Vec<IndexedRows>) -> Option<IndexedRows> {
        let reached = all.iter().map(|found| found.reached).min()?;
        let mut names: Vec<&str> = all.iter().map(|found| found.name.as_str()).collect();
        names.dedup();
        let name = names.join(" + ");
        let mut rows: Vec<RowId> = all.into_iter().flat_map(|found| found.rows).collect();
        rows.sort_unstable();
        rows.dedup();
        // Later rows are in the tail.
        rows.truncate(rows.partition_point(|row| *row <= reached));
        Some(IndexedRows { name, rows, reached })
    }
}

/// A lookup in one index: the positions of its entries.
struct IndexPath<'a> {
    name: &'a str,
    index: &'a Index,
    /// The entries found; deleted rows count.
    found: column::EntrySpans,
}

impl IndexPath<'_> {
    fn find(&self) -> Option<IndexedRows> {
        // A damaged index is ignored; its materializer detects the damage too, and rebuilds it.
        let rows = self.index.rows_at(&self.found).ok()?;
        Some(IndexedRows { name: self.name.to_owned(), rows, reached: self.index.reached() })
    }
}

/// Returns a function that decides whether finding a number of rows is less work than scanning the table.
pub(crate) fn pays(table: &Snapshot) -> impl Fn(u64) -> bool {
    let all = table.rows();
    move |rows| rows <= CHEAP_LOOKUPS || rows.saturating_mul(ROWS_FOR_ONE) <= all
}

/// Finds the rows that pass `tests` by the best index. The operands of an OR may also be found by the key or by row ids. Returns
/// `None` if a scan is less work.
pub(crate) fn find(table: &Table, tests: &[ColumnTest]) -> Option<IndexedRows> {
    let pays = pays(&table.snapshot);
    let one = best_path(table, tests);
    let few = one.as_ref().map_or(u64::MAX, |way| way.found.rows);
    let ors = tests.iter().enumerate().filter_map(|(at, test)| match test {
        ColumnTest::Or(parts) if parts.len() <= PARTS_MAX => Some((at, parts)),
        _ => None,
    });
    let other = ors.take(ORS_MAX).filter_map(|(at, parts)| {
        if few <= CHEAP_LOOKUPS {
            return None;
        }
        let others: Vec<ColumnTest> =
            tests.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, test)| test.clone()).collect();
        look_up_operands(table, &others, parts, &pays)
    });
    match other.min_by_key(|sides| sides.rows) {
        Some(sides) if sides.rows < few => {
            let mut all: Vec<IndexedRows> = sides.ways.iter().map(IndexPath::find).collect::<Option<_>>()?;
            all.extend(sides.known);
            IndexedRows::union(all)
        }
        _ if pays(few) => one?.find(),
        _ => None,
    }
}

/// Lookups for all operands of an OR.
struct OrLookup<'a> {
    ways: Vec<IndexPath<'a>>,
    /// Results of the key or of row ids, which cover all rows.
    known: Vec<IndexedRows>,
    rows: u64,
}

/// Looks up each operand by itself. Returns `None` if one of them cannot be looked up, or if there are too many rows.
fn look_up_operands<'a>(
    table: &'a Table,
    others: &[ColumnTest],
    parts: &[ColumnTest],
    pays: &impl Fn(u64) -> bool,
) -> Option<OrLookup<'a>> {
    let snapshot = &table.snapshot;
    let last = RowId(snapshot.next_row().0.saturating_sub(1));
    let mut sides = OrLookup { ways: Vec::new(), known: Vec::new(), rows: 0 };
    let mut known = 0;
    for part in parts {
        let mut tests = others.to_vec();
        prune::flatten(part.clone(), &mut tests);
        let is_few = |more: u64| known + more <= RANGES_MAX as u64 && pays(sides.rows.saturating_add(more));
        if let Some((how, rows)) = prune::rows_by_id(snapshot, &tests, is_few).ok()? {
            known += rows.len() as u64;
            sides.rows += rows.len() as u64;
            sides.known.push(IndexedRows { name: how.to_owned(), rows, reached: last });
        } else {
            let way = best_path(table, &tests)?;
            sides.rows = sides.rows.saturating_add(way.found.rows);
            sides.ways.push(way);
        }
        if !pays(sides.rows) {
            return None;
        }
    }
    Some(sides)
}

/// Returns the lookup in the index that finds the fewest rows.
fn best_path<'a>(table: &'a Table, tests: &[ColumnTest]) -> Option<IndexPath<'a>> {
    let (table, indexes) = (&table.snapshot, table.indexes.as_ref()?);
    let declared = table.def().indexes.iter().filter(|index| index.kind == index::column::KIND);
    let ways = declared.filter_map(|declared| {
        // Skips an index that no test is about.
        let first = *declared.columns.first()?;
        if !tests.iter().any(|test| is_about(test, first)) {
            return None;
        }
        let index = indexes.of(table.def(), declared).filter(|index| covers(table, index))?;
        let ranges = ranges(index.columns(), tests).ok()??;
        let found = index.find(&ranges).ok()?;
        Some(IndexPath { name: &declared.name, index, found })
    });
    ways.min_by_key(|way| way.found.rows)
}

/// Returns true if an index covers at least half of the table; one that covers less saves too little.
pub(crate) fn covers(table: &Snapshot, index: &Index) -> bool {
    index.reached().0 >= (table.next_row().0 - 1) / 2
}

/// Counts the rows that pass `tests` in the part of the table that an index covers; returns its name and that part's end. The
/// tests must be the whole condition. `None` if no index can count them.
pub(crate) fn count_rows(
    table: &Snapshot,
    indexes: &Indexes,
    tests: &[ColumnTest],
) -> Option<(u64, String, RowId)> {
    let declared = table.def().indexes.iter().filter(|index| index.kind == index::column::KIND);
    let mut ways = declared.filter_map(|declared| {
        let index = indexes.of(table.def(), declared).filter(|index| covers(table, index))?;
        let ranges = exact_ranges(index.columns(), tests)?;
        // The number of live rows in an unreadable segment is unknown.
        let is_alive = table.segments().all(|segment| segment.check().is_ok());
        let is_alive = is_alive && index.is_all_alive(table).ok()?;
        Some((index.count(&ranges).ok().filter(|_| is_alive)?, declared.name.clone(), index.reached()))
    });
    ways.next()
}

/// Returns the result of [`ranges`] if exactly the rows that pass the tests are in them.
fn exact_ranges(columns: &IndexColumns, tests: &[ColumnTest]) -> Option<Vec<EntryRange>> {
    let ids: Vec<ColumnId> = columns.ids().collect();
    let (mut equal, mut product) = (0, 1);
    while let Some(values) = ids.get(equal).and_then(|id| single_values(tests, *id)) {
        product *= values.len();
        if product > RANGES_MAX {
            return None;
        }
        equal += 1;
    }
    let (known, next) = (&ids[..equal], ids.get(equal));
    // A test for single values must be the only test of its column. The next column may have several tests.
    let is_exact = |test: &ColumnTest| match test {
        ColumnTest::IsNull(column) | ColumnTest::OneOf { column, .. } => known.contains(column),
        ColumnTest::IsNotNull(column) => next == Some(column),
        ColumnTest::Compare { column, op, .. } => match op {
            Operator::Eq => known.contains(column),
            _ => next == Some(column),
        },
        ColumnTest::StartsWith { .. } | ColumnTest::And(_) | ColumnTest::Or(_) | ColumnTest::Unknown => false,
    };
    let has_float = |test: &ColumnTest| match test {
        ColumnTest::Compare { value, .. } => is_float(value),
        ColumnTest::OneOf { values, .. } => values.iter().any(is_float),
        _ => false,
    };
    let of_known = tests.iter().filter(|test| known.iter().any(|id| is_about(test, *id))).count();
    if of_known != equal || !tests.iter().all(|test| is_exact(test) && !has_float(test)) {
        return None;
    }
    let all = ranges(columns, tests).ok()??;
    all.iter().all(EntryRange::is_exact).then_some(all)
}

fn is_about(test: &ColumnTest, id: ColumnId) -> bool {
    match test {
        ColumnTest::IsNull(column) | ColumnTest::IsNotNull(column) => *column == id,
        ColumnTest::Compare { column, .. }
        | ColumnTest::OneOf { column, .. }
        | ColumnTest::StartsWith { column, .. } => *column == id,
        ColumnTest::And(parts) | ColumnTest::Or(parts) => parts.iter().any(|part| is_about(part, id)),
        ColumnTest::Unknown => true,
    }
}

fn is_float(value: &Value) -> bool {
    matches!(value, Value::Float64(_) | Value::Float32(_))
}

/// Returns the ranges of an index that contain all rows which pass the tests; `None` if the tests do not restrict its first
/// column.
pub(crate) fn ranges(columns: &IndexColumns, tests: &[ColumnTest]) -> Result<Option<Vec<EntryRange>>> {
    let mut left = OPERANDS_MAX;
    ranges_of(columns, tests, &mut left)
}

/// Adds the ranges of ORs: a row that passes `a > 1 OR (a = 1 AND b > 2)`, which is `(a, b) > (1, 2)`, lies in the range of one
/// operand.
fn ranges_of(
    columns: &IndexColumns,
    tests: &[ColumnTest],
    left: &mut usize,
) -> Result<Option<Vec<EntryRange>>> {
    let mut found = ranges_of_all(columns, tests)?;
    let ors = tests.iter().filter_map(|test| match test {
        ColumnTest::Or(parts) if columns.ids().any(|id| is_about(test, id)) => Some(parts),
        _ => None,
    });
    let mut plain: Option<Vec<ColumnTest>> = None;
    for parts in ors {
        let is_plain = |test: &&ColumnTest| !matches!(test, ColumnTest::Or(_));
        let plain = plain.get_or_insert_with(|| tests.iter().filter(is_plain).cloned().collect());
        let Some(either) = ranges_of_either(columns, plain, parts, left)? else { continue };
        found = Some(match found {
            Some(all) => EntryRange::intersection(&all, &either),
            None => either,
        });
    }
    Ok(found)
}

fn ranges_of_either(
    columns: &IndexColumns,
    plain: &[ColumnTest],
    parts: &[ColumnTest],
    left: &mut usize,
) -> Result<Option<Vec<EntryRange>>> {
    let mut either = Vec::new();
    for part in parts {
        let Some(rest) = left.checked_sub(plain.len() + 1) else { return Ok(None) };
        *left = rest;
        let mut all = plain.to_vec();
        prune::flatten(part.clone(), &mut all);
        let Some(ranges) = ranges_of(columns, &all, left)? else { return Ok(None) };
        *left = left.saturating_sub(ranges.len());
        either.extend(ranges);
    }
    let either = EntryRange::union(either);
    Ok((either.len() <= RANGES_MAX).then_some(either))
}

fn ranges_of_all(columns: &IndexColumns, tests: &[ColumnTest]) -> Result<Option<Vec<EntryRange>>> {
    let mut equal: Vec<Vec<Value>> = vec![Vec::new()];
    let mut next = None;
    for id in columns.ids() {
        let Some(values) = single_values(tests, id).filter(|values| values.len() * equal.len() <= RANGES_MAX)
        else {
            next = Some(id);
            break;
        };
        let values = with_both_zeros(values);
        let longer = |known: &Vec<Value>| {
            let known = known.clone();
            values.iter().map(move |value| known.iter().cloned().chain([value.clone()]).collect())
        };
        equal = equal.iter().flat_map(longer).collect();
    }
    let mut all = Vec::with_capacity(equal.len());
    for known in &equal {
        let conditions = next.map(|id| range_conditions(tests, id)).unwrap_or_default();
        if known.is_empty() && conditions.is_empty() {
            return Ok(None);
        }
        let mut range = columns.range(known, ColumnCondition::Any)?;
        for condition in conditions {
            range = range.intersect(columns.range(known, condition.as_column_condition())?);
        }
        all.push(range);
    }
    all.retain(|range| !range.is_empty());
    Ok(Some(EntryRange::union(all)))
}

/// Returns the only values, null included, that a column can have, if the tests restrict it to such.
pub(crate) fn single_values(tests: &[ColumnTest], wanted: ColumnId) -> Option<Vec<Value>> {
    let is_null = |test: &ColumnTest| matches!(test, ColumnTest::IsNull(column) if *column == wanted);
    if tests.iter().any(is_null) {
        return Some(vec![Value::Null]);
    }
    constants(tests, wanted)
}

/// Adds the other zero to a list that contains one of them.
fn with_both_zeros(mut values: Vec<Value>) -> Vec<Value> {
    if let Some(at) = values.iter().position(is_zero) {
        let like = values[at].clone();
        values.retain(|value| !is_zero(value));
        values.extend([-0.0, 0.0].map(|sign| zero_like(&like, sign)));
    }
    values
}

/// Tells whether a float is a zero. An index has two zeros, which some comparisons treat as equal.
pub(crate) fn is_zero(value: &Value) -> bool {
    matches!(value, Value::Float64(v) if *v == 0.0) || matches!(value, Value::Float32(v) if *v == 0.0)
}

/// A condition on the index column that follows the columns with single values.
pub(crate) enum RangeCondition<'a> {
    Between(Bound<Value>, Bound<Value>),
    StartsWith(&'a str),
}

impl RangeCondition<'_> {
    pub fn as_column_condition(&self) -> ColumnCondition<'_> {
        match self {
            RangeCondition::Between(low, high) => ColumnCondition::Between(low.as_ref(), high.as_ref()),
            RangeCondition::StartsWith(prefix) => ColumnCondition::StartsWith(prefix),
        }
    }
}

pub(crate) fn range_conditions(tests: &[ColumnTest], wanted: ColumnId) -> Vec<RangeCondition<'_>> {
    use Bound::{Excluded, Included, Unbounded};
    let low = |value: &Value| Included(if is_zero(value) { zero_like(value, -0.0) } else { value.clone() });
    let high = |value: &Value| Included(if is_zero(value) { zero_like(value, 0.0) } else { value.clone() });
    let compare = |op: Operator, value: &Value| {
        let either = is_zero(value);
        Some(match op {
            Operator::Eq => RangeCondition::Between(low(value), high(value)),
            Operator::Gt if !either => RangeCondition::Between(Excluded(value.clone()), Unbounded),
            Operator::Gt | Operator::GtEq => RangeCondition::Between(low(value), Unbounded),
            Operator::Lt if !either => RangeCondition::Between(Unbounded, Excluded(value.clone())),
            Operator::Lt | Operator::LtEq => RangeCondition::Between(Unbounded, high(value)),
            _ => return None,
        })
    };
    tests
        .iter()
        .filter_map(|test| match test {
            ColumnTest::Compare { column, op, value } if *column == wanted => compare(*op, value),
            ColumnTest::StartsWith { column, prefix } if *column == wanted => {
                Some(RangeCondition::StartsWith(prefix))
            }
            ColumnTest::IsNotNull(column) if *column == wanted => {
                Some(RangeCondition::Between(Unbounded, Unbounded))
            }
            _ => None,
        })
        .collect()
}

fn zero_like(like: &Value, zero: f64) -> Value {
    match like {
        Value::Float32(_) => Value::Float32(zero as f32),
        _ => Value::Float64(zero),
    }
}
