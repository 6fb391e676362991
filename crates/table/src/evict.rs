//! Eviction: a sealed segment drops its rows, which the lake has.
//!
//! Segments are evicted from the oldest on, so that the lake's rows come before those on this machine. Eviction writes only a
//! sidecar. It replaces the segment as the output of a compaction does, so a reader that holds the old segment can go on reading
//! it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use types::{Error, Result, RowId, SegmentId};
use vfs::Env;

use crate::evicted_rows::LakeSnapshot;
use crate::parts::Entry;
use crate::segment::{self, discard};
use crate::{BATCH_ROWS, Segment, SegmentMeta, Snapshot};

/// Returns the segment to evict next: the oldest one that still has its rows here. A damaged segment is never evicted, nor are
/// those after it.
pub fn next_segment(snapshot: &Snapshot) -> Option<&Arc<Segment>> {
    let entries = &snapshot.parts.segments;
    let next = entries.iter().find(|entry| !entry.segment.is_evicted())?;
    (!next.segment.is_damaged()).then_some(&next.segment)
}

/// Compares every live row of a segment with the lake's copy, column by column. The error tells which columns differ, or what
/// could not be read.
pub fn compare(
    snapshot: &Snapshot,
    id: SegmentId,
    landed: &Arc<dyn LakeSnapshot>,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let entry = entry(snapshot, id)?;
    let meta = entry.segment.meta();
    if landed.row() < meta.last_row {
        return Err(Error::internal("a segment was to be evicted before the lake had its rows"));
    }
    let projection = snapshot.all_columns();
    let mut left = entry.live();
    for piece in snapshot.pieces_from(meta.first_row.0) {
        if piece.row_range().0 > meta.last_row {
            break;
        }
        let ours = piece.read_rows(meta.first_row.0, meta.last_row.0 + 1, BATCH_ROWS, projection)?;
        let rows = ids(&ours)?;
        let theirs = entry.segment.pinned(landed).fetch(&rows, projection)?;
        if !is_same(&ours, &theirs) {
            return Err(differ(&ours, &theirs).with("table", &snapshot.def().name));
        }
        left = left.saturating_sub(rows.len() as u64);
        tick(piece.bytes())?;
    }
    match left {
        0 => Ok(()),
        rows => Err(Error::internal(format!("{rows} rows of a segment were not compared with the lake"))),
    }
}

/// Writes the sidecar that remains of a segment as segment `id` in `dir`, durably. The caller logs the edit, then calls
/// [`Tip::apply_compact`](crate::Tip::apply_compact) and [`Tip::set_landed`](crate::Tip::set_landed).
pub fn write_sidecar(
    snapshot: &Snapshot,
    segment: SegmentId,
    env: &Env,
    dir: &Path,
    id: SegmentId,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<SegmentMeta> {
    let entry = entry(snapshot, segment)?;
    let written = segment::evict(&entry.segment, env, dir, id, snapshot.def(), tick);
    written.inspect_err(|_| discard(env, dir, id))
}

/// Returns true if the sidecar of an evicted segment has bounds for a block in which rows were deleted or replaced: such a bound
/// may be the value of such a row, which an erasure must remove.
pub fn has_bounds_of_ended_rows(snapshot: &Snapshot, segment: SegmentId) -> bool {
    entry(snapshot, segment).is_ok_and(|entry| telling(entry).next().is_some())
}

/// Writes the sidecar of an evicted segment as segment `id` in `dir`, durably, without the bounds of the blocks that
/// [`has_bounds_of_ended_rows`] finds. Readers then look for the rows of these blocks in the lake, which has bounds of its own. The caller
/// logs the edit like that of an eviction.
pub fn forget_bounds(
    snapshot: &Snapshot,
    segment: SegmentId,
    env: &Env,
    dir: &Path,
    id: SegmentId,
) -> Result<SegmentMeta> {
    let entry = entry(snapshot, segment)?;
    let blocks = telling(entry).collect();
    let written = segment::forget_bounds(&entry.segment, &blocks, env, dir, id, snapshot.def());
    written.inspect_err(|_| discard(env, dir, id))
}

/// Returns the blocks that have bounds in the sidecar and in which rows ended.
fn telling(entry: &Entry) -> impl Iterator<Item = usize> {
    let Entry { segment, deletes } = entry;
    let blocks = if segment.is_evicted() { segment.block_count().unwrap_or(0) } else { 0 };
    (0..blocks).filter(|block| {
        segment.has_bounds(*block).unwrap_or(false)
            && segment.block_info(*block).is_ok_and(|of| deletes.count(of.first_row..=of.last_row) > 0)
    })
}

fn entry(snapshot: &Snapshot, id: SegmentId) -> Result<&Entry> {
    let found = snapshot.parts.segments.iter().find(|entry| entry.segment.id() == id);
    found.ok_or_else(|| Error::internal("a segment was to be evicted that is not there"))
}

fn ids(batch: &RecordBatch) -> Result<Vec<RowId>> {
    use arrow::array::AsArray;
    let ids = batch.column(0).as_primitive_opt::<arrow::datatypes::Int64Type>();
    let ids = ids.ok_or_else(|| Error::internal("a row id was asked for"))?;
    Ok(ids.values().iter().map(|row| RowId(*row as u64)).collect())
}

/// Compares bit for bit, so that NaN equals NaN.
fn is_same(ours: &RecordBatch, theirs: &RecordBatch) -> bool {
    let mut columns = ours.columns().iter().zip(theirs.columns());
    ours.num_rows() == theirs.num_rows() && columns.all(|(a, b)| a.to_data() == b.to_data())
}

fn differ(ours: &RecordBatch, theirs: &RecordBatch) -> Error {
    let schema = ours.schema_ref();
    let columns = ours.columns().iter().zip(theirs.columns()).zip(schema.fields());
    let wrong: BTreeSet<&str> = columns
        .filter(|((a, b), _)| a.to_data() != b.to_data())
        .map(|(_, field)| field.name().as_str())
        .collect();
    let names: Vec<&str> = wrong.into_iter().take(5).collect();
    Error::damaged(format!("the lake has other values than the table in column {}", names.join(", ")))
        .hint("its rows stay on this machine; `polynya lake verify` compares the whole table")
}
