//! Which of a table's indexes finds the rows of a filter, and which rows it finds.
//!
//! As with everything that narrows a scan, it may only leave out rows that the filter would refuse: DataFusion applies the
//! filter itself again, also to what an index found.

use std::ops::Bound;

use datafusion::logical_expr::Operator;
use index::column::{self, ColumnCondition, EntryRange, Index, IndexColumns, Indexes};
use table::Snapshot;
use types::{ColumnId, Result, RowId, Value};

use crate::provider::Table;
use crate::prune::{self, Test, constants};

/// Ranges of one lookup: an IN over several columns multiplies.
pub(crate) const RANGES_MAX: usize = 1_024;
/// To find a row costs as much as to read so many one after the other.
pub(crate) const ROWS_FOR_ONE: u64 = 32;
/// So many are looked up without a question.
pub(crate) const FEW: u64 = 64;
/// Sides of one OR that are looked up each.
const PARTS_MAX: usize = 64;
/// ORs of one filter of which that is tried.
const ORS_MAX: usize = 8;
/// What the sides of all ORs may come to, in tests and in ranges, where they are looked for in one index.
const SIDES_MAX: usize = 4 * RANGES_MAX;

/// Rows that an index found, or several.
#[derive(Debug)]
pub(crate) struct Found {
    /// The index's name.
    pub name: String,
    /// Ascending; some may be dead, or be none that the filter wants.
    pub rows: Vec<RowId>,
    /// The index knows of no row after this one.
    pub reached: RowId,
}

impl Found {
    /// What is in any of them.
    pub fn either(all: Vec<Found>) -> Option<Found> {
        let reached = all.iter().map(|found| found.reached).min()?;
        let mut names: Vec<&str> = all.iter().map(|found| found.name.as_str()).collect();
        names.dedup();
        let name = names.join(" + ");
        let mut rows: Vec<RowId> = all.into_iter().flat_map(|found| found.rows).collect();
        rows.sort_unstable();
        rows.dedup();
        // Those are in the tail.
        rows.truncate(rows.partition_point(|row| *row <= reached));
        Some(Found { name, rows, reached })
    }
}

/// Where one index finds the rows of a filter.
struct Way<'a> {
    name: &'a str,
    index: &'a Index,
    /// Dead ones count.
    found: column::EntrySpans,
}

impl Way<'_> {
    fn find(&self) -> Option<Found> {
        // An index that is damaged is none; its materializer finds out too, and builds it anew.
        let rows = self.index.rows_at(&self.found).ok()?;
        Some(Found { name: self.name.to_owned(), rows, reached: self.index.reached() })
    }
}

/// Whether to find so many rows is less work than to read all.
pub(crate) fn pays(table: &Snapshot) -> impl Fn(u64) -> bool {
    let all = table.rows();
    move |rows| rows <= FEW || rows.saturating_mul(ROWS_FOR_ONE) <= all
}

/// The rows that pass `tests` as far as the best index knows; of an OR also as the key and row ids know. `None` if reading all
/// rows is less work.
pub(crate) fn find(table: &Table, tests: &[Test]) -> Option<Found> {
    let pays = pays(&table.snapshot);
    let one = best(table, tests);
    let few = one.as_ref().map_or(u64::MAX, |way| way.found.rows);
    let ors = tests.iter().enumerate().filter_map(|(at, test)| match test {
        Test::Or(parts) if parts.len() <= PARTS_MAX => Some((at, parts)),
        _ => None,
    });
    let other = ors.take(ORS_MAX).filter_map(|(at, parts)| {
        if few <= FEW {
            return None;
        }
        let others: Vec<Test> =
            tests.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, test)| test.clone()).collect();
        sides(table, &others, parts, &pays)
    });
    match other.min_by_key(|sides| sides.rows) {
        Some(sides) if sides.rows < few => {
            let mut all: Vec<Found> = sides.ways.iter().map(Way::find).collect::<Option<_>>()?;
            all.extend(sides.known);
            Found::either(all)
        }
        _ if pays(few) => one?.find(),
        _ => None,
    }
}

/// Where the rows of the sides of an OR are.
struct Sides<'a> {
    ways: Vec<Way<'a>>,
    /// By the key or by row ids, which know every row.
    known: Vec<Found>,
    rows: u64,
}

/// Each side is looked up by itself; `None` if of one nothing is known, or they are too many.
fn sides<'a>(
    table: &'a Table,
    others: &[Test],
    parts: &[Test],
    pays: &impl Fn(u64) -> bool,
) -> Option<Sides<'a>> {
    let snapshot = &table.snapshot;
    let last = RowId(snapshot.next_row().0.saturating_sub(1));
    let mut sides = Sides { ways: Vec::new(), known: Vec::new(), rows: 0 };
    let mut known = 0;
    for part in parts {
        let mut tests = others.to_vec();
        prune::flatten(part.clone(), &mut tests);
        let is_few = |more: u64| known + more <= RANGES_MAX as u64 && pays(sides.rows.saturating_add(more));
        if let Some((how, rows)) = prune::by_id(snapshot, &tests, is_few).ok()? {
            known += rows.len() as u64;
            sides.rows += rows.len() as u64;
            sides.known.push(Found { name: how.to_owned(), rows, reached: last });
        } else {
            let way = best(table, &tests)?;
            sides.rows = sides.rows.saturating_add(way.found.rows);
            sides.ways.push(way);
        }
        if !pays(sides.rows) {
            return None;
        }
    }
    Some(sides)
}

/// The index that finds fewest.
fn best<'a>(table: &'a Table, tests: &[Test]) -> Option<Way<'a>> {
    let (table, indexes) = (&table.snapshot, table.indexes.as_ref()?);
    let declared = table.def().indexes.iter().filter(|index| index.kind == index::column::KIND);
    let ways = declared.filter_map(|declared| {
        // Most tests are about another column.
        let first = *declared.columns.first()?;
        if !tests.iter().any(|test| is_about(test, first)) {
            return None;
        }
        let index = indexes.of(table.def(), declared).filter(|index| covers(table, index))?;
        let ranges = ranges(index.columns(), tests).ok()??;
        let found = index.find(&ranges).ok()?;
        Some(Way { name: &declared.name, index, found })
    });
    ways.min_by_key(|way| way.found.rows)
}

/// With more rows behind it than before it, nothing is won by an index.
pub(crate) fn covers(table: &Snapshot, index: &Index) -> bool {
    index.reached().0 >= (table.next_row().0 - 1) / 2
}

/// How many rows pass `tests`, which say all that is wanted, as far as an index has come; `None` if it does not know.
pub(crate) fn count(table: &Snapshot, indexes: &Indexes, tests: &[Test]) -> Option<(u64, String, RowId)> {
    let declared = table.def().indexes.iter().filter(|index| index.kind == index::column::KIND);
    let mut ways = declared.filter_map(|declared| {
        let index = indexes.of(table.def(), declared).filter(|index| covers(table, index))?;
        let ranges = exact(index.columns(), tests)?;
        // Of what is not readable nobody knows how much lives.
        let is_alive = table.segments().all(|segment| segment.check().is_ok());
        let is_alive = is_alive && index.is_all_alive(table).ok()?;
        Some((index.count(&ranges).ok().filter(|_| is_alive)?, declared.name.clone(), index.reached()))
    });
    ways.next()
}

/// As [`ranges`], if what lies in them is exactly what passes the tests.
fn exact(columns: &IndexColumns, tests: &[Test]) -> Option<Vec<EntryRange>> {
    let ids: Vec<ColumnId> = columns.ids().collect();
    let (mut equal, mut product) = (0, 1);
    while let Some(values) = ids.get(equal).and_then(|id| equal_to(tests, *id)) {
        product *= values.len();
        if product > RANGES_MAX {
            return None;
        }
        equal += 1;
    }
    let (known, next) = (&ids[..equal], ids.get(equal));
    // What says that a column has one of some values is all that is said of it; of the next there may be several conditions.
    let is_exact = |test: &Test| match test {
        Test::IsNull(column) | Test::OneOf { column, .. } => known.contains(column),
        Test::IsNotNull(column) => next == Some(column),
        Test::Compare { column, op, .. } => match op {
            Operator::Eq => known.contains(column),
            _ => next == Some(column),
        },
        Test::StartsWith { .. } | Test::And(_) | Test::Or(_) | Test::Unknown => false,
    };
    let has_float = |test: &Test| match test {
        Test::Compare { value, .. } => is_float(value),
        Test::OneOf { values, .. } => values.iter().any(is_float),
        _ => false,
    };
    let of_known = tests.iter().filter(|test| known.iter().any(|id| is_about(test, *id))).count();
    if of_known != equal || !tests.iter().all(|test| is_exact(test) && !has_float(test)) {
        return None;
    }
    let all = ranges(columns, tests).ok()??;
    all.iter().all(EntryRange::is_exact).then_some(all)
}

fn is_about(test: &Test, id: ColumnId) -> bool {
    match test {
        Test::IsNull(column) | Test::IsNotNull(column) => *column == id,
        Test::Compare { column, .. } | Test::OneOf { column, .. } | Test::StartsWith { column, .. } => {
            *column == id
        }
        Test::And(parts) | Test::Or(parts) => parts.iter().any(|part| is_about(part, id)),
        Test::Unknown => true,
    }
}

fn is_float(value: &Value) -> bool {
    matches!(value, Value::Float64(_) | Value::Float32(_))
}

/// Where in an index the entries of rows lie that pass the tests; `None` if the tests say nothing of its first column.
pub(crate) fn ranges(columns: &IndexColumns, tests: &[Test]) -> Result<Option<Vec<EntryRange>>> {
    let mut left = SIDES_MAX;
    ranges_of(columns, tests, &mut left)
}

/// What passes `a > 1 OR (a = 1 AND b > 2)`, which is also what `(a, b) > (1, 2)` says, lies in the range of one of its sides.
fn ranges_of(columns: &IndexColumns, tests: &[Test], left: &mut usize) -> Result<Option<Vec<EntryRange>>> {
    let mut found = ranges_of_all(columns, tests)?;
    let ors = tests.iter().filter_map(|test| match test {
        Test::Or(parts) if columns.ids().any(|id| is_about(test, id)) => Some(parts),
        _ => None,
    });
    let mut plain: Option<Vec<Test>> = None;
    for parts in ors {
        let is_plain = |test: &&Test| !matches!(test, Test::Or(_));
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
    plain: &[Test],
    parts: &[Test],
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

fn ranges_of_all(columns: &IndexColumns, tests: &[Test]) -> Result<Option<Vec<EntryRange>>> {
    let mut equal: Vec<Vec<Value>> = vec![Vec::new()];
    let mut next = None;
    for id in columns.ids() {
        let Some(values) = equal_to(tests, id).filter(|values| values.len() * equal.len() <= RANGES_MAX)
        else {
            next = Some(id);
            break;
        };
        let values = of_either_zero(values);
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
        let mut range = columns.range(known, ColumnCondition::Any)?;
        for condition in conditions {
            range = range.intersect(columns.range(known, condition.next())?);
        }
        all.push(range);
    }
    all.retain(|range| !range.is_empty());
    Ok(Some(EntryRange::union(all)))
}

/// The only values that a column can have, null among them, if the tests say so.
pub(crate) fn equal_to(tests: &[Test], wanted: ColumnId) -> Option<Vec<Value>> {
    let is_null = |test: &Test| matches!(test, Test::IsNull(column) if *column == wanted);
    if tests.iter().any(is_null) {
        return Some(vec![Value::Null]);
    }
    constants(tests, wanted)
}

/// With both zeros for one.
fn of_either_zero(mut values: Vec<Value>) -> Vec<Value> {
    if let Some(at) = values.iter().position(is_zero) {
        let like = values[at].clone();
        values.retain(|value| !is_zero(value));
        values.extend([-0.0, 0.0].map(|sign| zero(&like, sign)));
    }
    values
}

/// The zeros are two values in an index, and one in some comparisons.
pub(crate) fn is_zero(value: &Value) -> bool {
    matches!(value, Value::Float64(v) if *v == 0.0) || matches!(value, Value::Float32(v) if *v == 0.0)
}

/// What a test says of a column behind the known ones.
pub(crate) enum Condition<'a> {
    Between(Bound<Value>, Bound<Value>),
    StartsWith(&'a str),
}

impl Condition<'_> {
    pub fn next(&self) -> ColumnCondition<'_> {
        match self {
            Condition::Between(low, high) => ColumnCondition::Between(low.as_ref(), high.as_ref()),
            Condition::StartsWith(prefix) => ColumnCondition::StartsWith(prefix),
        }
    }
}

pub(crate) fn conditions(tests: &[Test], wanted: ColumnId) -> Vec<Condition<'_>> {
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
