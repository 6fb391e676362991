//! Merges several sorted files into one.

use std::cmp::Ordering;

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;
use types::{Error, Result};

use crate::live_rows::LiveRows;
use crate::order::{RowOrder, SortKeys};

/// Length of a run of consecutive rows from one file, from which it is passed on as a slice; shorter runs are gathered.
const RUN_ROWS: usize = 512;
/// Number of rows that are gathered at a time.
const GATHERED_ROWS: usize = 4_096;

/// A file and the merge's position in it.
struct Cursor {
    source: LiveRows,
    batch: RecordBatch,
    keys: SortKeys,
    at: usize,
}

/// Passes the rows of all sources to `each` in their common order. The flag is true while the rows follow all rows before
/// them: a file of another program may not have the order that it claims.
pub(crate) fn merge(
    sources: Vec<LiveRows>,
    order: &RowOrder,
    each: &mut dyn FnMut(RecordBatch, bool) -> Result<()>,
) -> Result<()> {
    let mut cursors = Vec::with_capacity(sources.len());
    for mut source in sources {
        if let Some(batch) = source.next()? {
            let keys = order.keys(&batch)?;
            cursors.push(Cursor { source, batch, keys, at: 0 });
        }
    }
    let mut in_order = cursors.iter().all(|cursor| cursor.keys.ascend());
    let mut gathered: Vec<(usize, usize)> = Vec::new();
    while let Some(least) = least(&cursors, None) {
        let next = least_but(&cursors, least);
        let cursor = &cursors[least];
        let end = match next {
            None => cursor.keys.len(),
            Some(next) => run_end(cursor, &cursors[next]),
        };
        let (begin, end) = (cursor.at, end.max(cursor.at + 1));
        if end - begin >= RUN_ROWS {
            flush_gathered(&cursors, &mut gathered, in_order, each)?;
            each(cursors[least].batch.slice(begin, end - begin), in_order)?;
        } else {
            gathered.extend((begin..end).map(|row| (least, row)));
            if gathered.len() >= GATHERED_ROWS {
                flush_gathered(&cursors, &mut gathered, in_order, each)?;
            }
        }
        let cursor = &mut cursors[least];
        cursor.at = end;
        if cursor.at < cursor.keys.len() {
            continue;
        }
        let more = cursor.source.next()?;
        // The gathered rows refer to the batch that is replaced.
        flush_gathered(&cursors, &mut gathered, in_order, each)?;
        match more {
            None => drop(cursors.remove(least)),
            Some(batch) => {
                let keys = order.keys(&batch)?;
                let cursor = &mut cursors[least];
                let follows = cursor.keys.compare(cursor.at - 1, &keys, 0) == Ordering::Less;
                in_order &= follows && keys.ascend();
                (cursor.batch, cursor.keys, cursor.at) = (batch, keys, 0);
            }
        }
    }
    Ok(())
}

/// Returns the cursor with the first row in order, leaving out `without`.
fn least(cursors: &[Cursor], without: Option<usize>) -> Option<usize> {
    let candidates = (0..cursors.len()).filter(|at| Some(*at) != without);
    candidates.min_by(|a, b| {
        let (a, b) = (&cursors[*a], &cursors[*b]);
        a.keys.compare(a.at, &b.keys, b.at)
    })
}

fn least_but(cursors: &[Cursor], without: usize) -> Option<usize> {
    least(cursors, Some(without))
}

/// Returns the first row of a cursor that does not come before the other cursor's row.
fn run_end(cursor: &Cursor, other: &Cursor) -> usize {
    let is_before = |row: usize| cursor.keys.compare(row, &other.keys, other.at) == Ordering::Less;
    let (mut low, mut high) = (cursor.at, cursor.keys.len());
    if high > low && is_before(high - 1) {
        return high;
    }
    // Runs are short where files overlap everywhere, so the search starts nearby with doubling steps.
    let mut step = 1;
    while low + step < high && is_before(low + step) {
        low += step;
        step *= 2;
    }
    high = high.min(low + step);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

fn flush_gathered(
    cursors: &[Cursor],
    gathered: &mut Vec<(usize, usize)>,
    in_order: bool,
    each: &mut dyn FnMut(RecordBatch, bool) -> Result<()>,
) -> Result<()> {
    if gathered.is_empty() {
        return Ok(());
    }
    let batches: Vec<&RecordBatch> = cursors.iter().map(|cursor| &cursor.batch).collect();
    let made = interleave_record_batch(&batches, gathered);
    gathered.clear();
    each(made.map_err(|e| Error::internal(format!("merging files: {e}")))?, in_order)
}
