//! Finds the first rows in the order of an index, and one row for each distinct value in it.
//!
//! These rows replace a scan of all rows below a sort with a limit, `min` and `max`, or DISTINCT, which process them and the
//! index's tail as they would have processed all rows. So only rows may be left out that are certainly not needed.

use std::ops::Bound;

use index::column::{ColumnCondition, EntryRange, Index};
use types::{ColumnId, DataType, Result, RowId, TableDef, Value};

use crate::index_lookup::{self, CHEAP_LOOKUPS, IndexedRows, ROWS_FOR_ONE, covers, is_zero, single_values};
use crate::provider::Table;
use crate::prune::ColumnTest;

/// Rows that may be examined to find the few that are wanted, those that the filter refuses included.
const LOOKED_AT_MAX: usize = 4_096;
/// Rows that are examined at once.
const CHUNK_ROWS_MAX: usize = 512;

/// A column of a sort order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SortColumn {
    pub column: ColumnId,
    pub descending: bool,
    pub nulls_first: bool,
}

/// Returns those of the given rows that are live and pass the filter, in any order.
pub(crate) type FilterRows<'a> = &'a mut dyn FnMut(Vec<RowId>) -> Result<Vec<RowId>>;

/// Returns the number of rows up to which a lookup is faster than a scan.
pub(crate) fn lookup_rows_max(table: &Table) -> usize {
    usize::try_from((table.snapshot.rows() / ROWS_FOR_ONE).max(CHEAP_LOOKUPS)).unwrap_or(usize::MAX)
}

/// Finds at least the first `count` rows, in `order`, of those that pass `tests` and that `keep` returns. `None` if no index is
/// in this order, or if many rows would have to be examined.
pub(crate) fn first_rows(
    table: &Table,
    tests: &[ColumnTest],
    order: &[SortColumn],
    count: usize,
    keep: FilterRows<'_>,
) -> Option<IndexedRows> {
    if count == 0 || count > lookup_rows_max(table) {
        return None;
    }
    let snapshot = &table.snapshot;
    let indexes = table.indexes.as_ref()?;
    let def = snapshot.def();
    let ways = def.indexes.iter().filter(|declared| declared.kind == index::column::KIND);
    let ways = ways.filter_map(|declared| {
        let index = indexes.of(def, declared).filter(|index| covers(snapshot, index))?;
        Some((IndexWalk::of(index, def, tests, order).ok()??, declared, index))
    });
    let (way, declared, index) = ways.max_by_key(|(way, ..)| (way.known, way.ordered))?;
    // A damaged index is ignored.
    let rows = way.first(index, count, lookup_rows_max(table).max(LOOKED_AT_MAX), keep).ok()??;
    Some(IndexedRows { name: declared.name.clone(), rows, reached: index.reached() })
}

/// A walk over an index in a sort order.
struct IndexWalk {
    /// The ranges to walk, one after the other.
    ranges: Vec<EntryRange>,
    descending: bool,
    /// The number of leading index columns with a single value, and of those after them that are in the order.
    known: usize,
    ordered: usize,
    /// True if the order has further columns.
    more: bool,
}

impl IndexWalk {
    fn of(
        index: &Index,
        def: &TableDef,
        tests: &[ColumnTest],
        order: &[SortColumn],
    ) -> Result<Option<IndexWalk>> {
        let columns = index.columns();
        let mut order: Vec<&SortColumn> =
            order.iter().filter(|by| constant(tests, by.column).is_none()).collect();
        let Some(first) = order.first().copied() else { return Ok(None) };
        let mut equal = Vec::new();
        let mut ids = columns.ids().peekable();
        while let Some(value) = ids.peek().and_then(|id| constant(tests, *id)) {
            equal.push(value);
            ids.next();
        }
        let is_null_free = |id: ColumnId| def.schema.column(id).is_some_and(|column| !column.nullable);
        let is_natural = |by: &SortColumn| is_null_free(by.column) || by.nulls_first == by.descending;
        let fits = |by: &SortColumn, id: ColumnId| {
            by.column == id && by.descending == first.descending && (by == first || is_natural(by))
        };
        let ordered = order.iter().zip(ids).take_while(|(by, id)| fits(by, *id)).count();
        if ordered == 0 || !is_in_order(index, def, &equal, &order)? {
            return Ok(None);
        }
        // After a float column, later columns are out of order where zeros of both signs meet.
        let later = (1..ordered).find(|at| is_float(def, order[*at].column) && at + 1 < order.len());
        let ordered = later.unwrap_or(ordered);
        let more = order.split_off(ordered);
        let mut ranges = if is_natural(first) {
            vec![columns.range(&equal, ColumnCondition::Any)?]
        } else {
            let unbounded = Bound::Unbounded;
            let values = columns.range(&equal, ColumnCondition::Between(unbounded, unbounded))?;
            let known: Vec<Value> = equal.iter().cloned().chain([Value::Null]).collect();
            let nulls = columns.range(&known, ColumnCondition::Any)?;
            if first.nulls_first { vec![nulls, values] } else { vec![values, nulls] }
        };
        if let Some(wanted) = index_lookup::ranges(columns, tests)? {
            let within = |range: &EntryRange| {
                let mut within = EntryRange::intersection(std::slice::from_ref(range), &wanted);
                if first.descending {
                    within.reverse();
                }
                within
            };
            ranges = ranges.iter().flat_map(within).collect();
        }
        let known = equal.len();
        Ok(Some(IndexWalk { ranges, descending: first.descending, known, ordered, more: !more.is_empty() }))
    }

    fn first(
        &self,
        index: &Index,
        count: usize,
        looked_at_max: usize,
        keep: FilterRows<'_>,
    ) -> Result<Option<Vec<RowId>>> {
        let columns = self.known + self.ordered;
        let (mut kept, mut pending, mut looked_at) = (Vec::new(), Vec::new(), 0);
        let mut chunk = count.min(CHUNK_ROWS_MAX);
        // Rows whose entries have the same ordered columns may be in any order.
        let tie = |entry: &[u8]| index.columns().prefix_len(entry, columns).unwrap_or(entry.len());
        let is_cut = |entry: &[u8]| index.columns().prefix_len(entry, columns).is_none();
        let mut last: Option<&[u8]> = None;
        'all: for range in &self.ranges {
            let mut walk = index.walk(range.clone(), self.descending)?;
            while let Some((entry, rows)) = walk.next()? {
                if let Some(last) = last
                    && !entry.starts_with(last)
                {
                    break 'all;
                }
                for row in rows {
                    pending.push(row);
                    looked_at += 1;
                    if looked_at > looked_at_max {
                        return Ok(None);
                    }
                    if last.is_some() || pending.len() < chunk {
                        continue;
                    }
                    kept.extend(keep(std::mem::take(&mut pending))?);
                    chunk = (chunk * 2).min(CHUNK_ROWS_MAX);
                    if kept.len() >= count {
                        if !self.more && !is_cut(entry) {
                            break 'all;
                        }
                        last = Some(&entry[..tie(entry)]);
                    }
                }
            }
        }
        kept.extend(keep(pending)?);
        kept.sort_unstable();
        Ok(Some(kept))
    }
}

/// Returns true if an index sorts the floats of an order's first column like SQL does. An index sorts them by their bits: `-0`
/// comes before `0`, which matters if more columns follow, and a negative NaN, which old tables may contain, before all numbers.
fn is_in_order(index: &Index, def: &TableDef, equal: &[Value], order: &[&SortColumn]) -> Result<bool> {
    let Some(first) = order.first().filter(|first| is_float(def, first.column)) else { return Ok(true) };
    let is_single = def.schema.column(first.column).is_some_and(|c| c.data_type == DataType::Float32);
    let float = |v: f64| if is_single { Value::Float32(v as f32) } else { Value::Float64(v) };
    let (zero, least) = (float(-0.0), float(f64::NEG_INFINITY));
    let columns = index.columns();
    let odd = ColumnCondition::Between(Bound::Unbounded, Bound::Excluded(&least));
    let mut wrong = vec![columns.range(equal, odd)?];
    if order.len() > 1 {
        wrong.push(
            columns.range(equal, ColumnCondition::Between(Bound::Included(&zero), Bound::Included(&zero)))?,
        );
    }
    wrong.retain(|range| !range.is_empty());
    Ok(index.count(&wrong)? == 0)
}

fn is_float(def: &TableDef, id: ColumnId) -> bool {
    let column = def.schema.column(id);
    column.is_some_and(|column| matches!(column.data_type, DataType::Float32 | DataType::Float64))
}

/// Returns the only value, null included, that a column can have.
fn constant(tests: &[ColumnTest], wanted: ColumnId) -> Option<Value> {
    match single_values(tests, wanted)?.as_slice() {
        [value] if !is_zero(value) => Some(value.clone()),
        _ => None,
    }
}

/// Finds at least one row for each combination of values in `columns`, of the rows that pass a filter. `filtered` are the
/// filter's columns: it must treat rows with equal values in them alike.
pub(crate) fn distinct(
    table: &Table,
    tests: &[ColumnTest],
    columns: &[ColumnId],
    filtered: &[ColumnId],
    keep: FilterRows<'_>,
) -> Option<IndexedRows> {
    let snapshot = &table.snapshot;
    let indexes = table.indexes.as_ref()?;
    let def = snapshot.def();
    let wanted = |id: &ColumnId| columns.contains(id);
    let declared = def.indexes.iter().filter(|declared| declared.kind == index::column::KIND);
    let ways = declared.filter_map(|declared| {
        let index = indexes.of(def, declared).filter(|index| covers(snapshot, index))?;
        let ids: Vec<ColumnId> = index.columns().ids().collect();
        let first = ids.iter().take_while(|id| wanted(id) || constant(tests, **id).is_some()).count();
        let all = columns.iter().chain(filtered).all(|id| ids[..first].contains(id));
        (all && first > 0).then_some((first, declared, index))
    });
    let (first, declared, index) = ways.min_by_key(|(first, ..)| *first)?;
    let ranges =
        index_lookup::ranges(index.columns(), tests).ok()?.unwrap_or_else(|| vec![EntryRange::all()]);
    let rows = one_row_per_value(index, first, ranges, lookup_rows_max(table), keep).ok()??;
    Some(IndexedRows { name: declared.name.clone(), rows, reached: index.reached() })
}

fn one_row_per_value(
    index: &Index,
    columns: usize,
    ranges: Vec<EntryRange>,
    rows_max: usize,
    keep: FilterRows<'_>,
) -> Result<Option<Vec<RowId>>> {
    let (mut kept, mut looked_at) = (Vec::new(), 0);
    for range in ranges {
        let mut walk = index.walk(range, false)?;
        while let Some((entry, rows)) = walk.next()? {
            // Tries the rows of an entry one by one, until one is live.
            for row in rows {
                looked_at += 1;
                if looked_at > rows_max {
                    return Ok(None);
                }
                let Some(live) = keep(vec![row])?.first().copied() else { continue };
                kept.push(live);
                // A truncated entry may stand for several values, so all of its rows are needed.
                if let Some(len) = index.columns().prefix_len(entry, columns) {
                    walk.skip(&entry[..len])?;
                    break;
                }
            }
        }
    }
    kept.sort_unstable();
    kept.dedup();
    Ok(Some(kept))
}
