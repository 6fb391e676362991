//! Compaction: merges neighbouring segments into one, without their deleted rows.

use std::path::Path;
use std::sync::Arc;

use types::{Error, HotLimit, Micros, Result, SegmentId};
use vfs::Env;

use crate::parts::Entry;
use crate::segment::{BlockCompression, Writer, discard};
use crate::{Segment, SegmentMeta, Snapshot, cluster};

/// The conditions under which segments are merged.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Number of neighbours of one size class (factor 4) or smaller that are merged.
    pub fan_in: usize,
    /// Number of neighbours that are merged if all are large and readers find no row by key or time. A further segment then costs
    /// a reader next to nothing, and each merge writes every row once more.
    pub large_fan_in: usize,
    /// Bytes that a merged segment can have before compression.
    pub segment_bytes_max: u64,
    /// Rows that a merged segment can have if the table has a key or a time column. While such a segment is written, each row
    /// takes 16 bytes of memory for its key's hash, and 24 more while the hashes are sorted and encoded at the end. Sorting rows
    /// by time takes 28 bytes a row.
    pub keyed_rows_max: u64,
    /// Share of deleted rows above which a segment is rewritten.
    pub deleted_ratio_max: f64,
    /// Bytes below which a segment is not compressed.
    pub compressed_bytes_min: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            fan_in: 4,
            large_fan_in: 16,
            segment_bytes_max: 1 << 30,
            keyed_rows_max: 8 << 20,
            deleted_ratio_max: 0.3,
            compressed_bytes_min: 64 << 10,
        }
    }
}

/// Bytes below which all segments are in one size class. Sizes are those before compression; otherwise compressed segments would
/// be merged again and again with younger ones.
const SMALLEST_CLASS_BYTES: u64 = 1 << 20;
/// Bytes from which on a segment is large.
const LARGE_BYTES: u64 = if cfg!(test) { 1 << 20 } else { 16 << 20 };

/// Number of parts of the local data of a table with eviction; a segment is at most one of them.
const LEAVING_PARTS: u64 = 16;
/// Bytes that a segment may always have, even if that is more than one such part.
const LEAVING_BYTES_MIN: u64 = if cfg!(test) { 1 << 20 } else { 64 << 20 };

/// Number of segments, evicted ones included, from which on it matters more to have few: each is a list entry and an open file.
const LEAVING_SEGMENTS_MAX: usize = if cfg!(test) { 30 } else { 1_024 };

/// Returns the neighbours to merge next, in row-id order; `None` if no merge is worth it. Segments that cannot be read are left
/// alone, whatever they cost: merging them would drop their rows.
///
/// No merge takes a segment that is larger than the others together. So a row's segment at least doubles whenever the row is
/// rewritten, which happens O(log size) times. A rewrite because of deletes pays for itself, since more than `deleted_ratio_max`
/// of the rows must have been deleted first.
pub fn plan(snapshot: &Snapshot, policy: &Policy) -> Option<Vec<SegmentId>> {
    let entries = &snapshot.parts.segments;
    // Evicted rows are merged in the lake.
    let usable = |e: &Entry| !e.segment.is_damaged() && !e.segment.is_evicted();
    let bounded = snapshot.def().is_keyed() || cluster::time_column(snapshot.def()).is_some();
    let bytes_max = policy.segment_bytes_max.min(leaving_bytes_max(snapshot));
    let rows_max = if bounded { policy.keyed_rows_max } else { u64::MAX };
    let alone = entries.iter().find(|e| {
        let rows = e.segment.meta().rows;
        let is_deleted = rows == 0 || e.deletes.len() as f64 > policy.deleted_ratio_max * rows as f64;
        // An evicted segment without live rows is dropped: no row of it is left in the lake to find. A rewrite makes a segment
        // with rebuilt sections intact.
        let is_empty = e.segment.is_evicted() && e.live() == 0;
        is_empty || usable(e) && (is_deleted || e.segment.is_rebuilt())
    });
    if let Some(entry) = alone {
        return Some(vec![entry.segment.id()]);
    }
    // Prefers the smallest class: there a merge costs least and helps readers most.
    let mut best: Option<(u32, &[Entry])> = None;
    let mut start = 0;
    while start < entries.len() {
        if !usable(&entries[start]) {
            start += 1;
            continue;
        }
        let class = class_of(&entries[start]);
        let run = entries[start..].iter().take_while(|e| usable(e) && class_of(e) <= class).count();
        let mut run = &entries[start..start + run];
        // Takes as many as fit.
        let (mut bytes, mut rows) = (0, 0);
        let fits = run.iter().take_while(|e| {
            bytes += e.segment.raw_bytes();
            rows += e.live();
            bytes <= bytes_max && rows <= rows_max
        });
        run = &run[..fits.count()];
        let is_large = |e: &Entry| e.segment.raw_bytes() >= LARGE_BYTES;
        let fan_in = if !bounded && run.iter().all(is_large) { policy.large_fan_in } else { policy.fan_in };
        if run.len() >= fan_in.max(2)
            && at_least_doubles(run)
            && best.is_none_or(|(smallest, _)| class < smallest)
        {
            best = Some((class, run));
        }
        start += 1;
    }
    best.map(|(_, run)| run.iter().map(|e| e.segment.id()).collect())
}

/// Bytes that a segment may have if its rows will be evicted: a part of the data that stays here. A segment is evicted whole, so
/// a larger one would stay too long, and a merge of rows that will be evicted soon is wasted work.
fn leaving_bytes_max(snapshot: &Snapshot) -> u64 {
    let def = snapshot.def();
    if snapshot.segments().len() >= LEAVING_SEGMENTS_MAX {
        return u64::MAX;
    }
    let stays = match def.options.hot.filter(|_| !def.is_keyed()) {
        None => return u64::MAX,
        Some(HotLimit::Bytes(bytes)) => bytes,
        Some(HotLimit::Micros(_)) => {
            let here = snapshot.segments().filter(|segment| !segment.is_evicted());
            here.map(|segment| segment.raw_bytes()).sum()
        }
    };
    (stays / LEAVING_PARTS).max(LEAVING_BYTES_MIN)
}

fn at_least_doubles(run: &[Entry]) -> bool {
    let bytes = |entry: &Entry| entry.segment.raw_bytes();
    let (all, largest) = (run.iter().map(bytes).sum::<u64>(), run.iter().map(bytes).max());
    largest.is_some_and(|largest| largest <= all / 2)
}

fn class_of(entry: &Entry) -> u32 {
    (entry.segment.raw_bytes() / SMALLEST_CLASS_BYTES).checked_ilog(4).map_or(0, |class| class + 1)
}

/// Returns the segments that may be compressed, each with the newest arrival time of its rows: it is cold once that time is far
/// enough in the past. Segments that cannot be read are left out.
pub fn compressible<'a>(
    snapshot: &'a Snapshot,
    policy: &Policy,
) -> impl Iterator<Item = (&'a Arc<Segment>, Micros)> {
    let bytes_min = policy.compressed_bytes_min;
    let wanted = move |e: &&Entry| {
        let is_large = e.live() > 0 && e.segment.meta().bytes >= bytes_min;
        is_large && !e.segment.is_evicted() && !e.segment.is_compressed() && !e.segment.is_damaged()
    };
    snapshot.parts.segments.iter().filter(wanted).map(|e| (&e.segment, e.segment.meta().last_time))
}

/// Returns the form of a merged segment: compressed if all inputs are, so that it need not be compressed again.
pub fn form_of(snapshot: &Snapshot, inputs: &[SegmentId]) -> BlockCompression {
    let mut taken = snapshot.segments().filter(|s| inputs.contains(&s.id()));
    if taken.all(|segment| segment.is_compressed()) {
        BlockCompression::Zstd
    } else {
        BlockCompression::Plain
    }
}

/// Writes the live rows of `inputs` into segment `id` in `dir`, durably; row ids are kept. Returns `None` if no row was live.
/// `tick` works as in [`seal`](crate::seal()). The caller logs the edit, then calls
/// [`Tip::apply_compact`](crate::Tip::apply_compact).
pub fn merge(
    snapshot: &Snapshot,
    inputs: &[SegmentId],
    env: &Env,
    dir: &Path,
    id: SegmentId,
    form: BlockCompression,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Option<SegmentMeta>> {
    let entries = &snapshot.parts.segments;
    let start = inputs.first().and_then(|first| entries.iter().position(|e| e.segment.id() == *first));
    let taken = start.and_then(|at| entries.get(at..at + inputs.len()));
    let Some(taken) = taken.filter(|taken| taken.iter().map(|e| e.segment.id()).eq(inputs.iter().copied()))
    else {
        return Err(Error::internal("the inputs of a compaction are not neighbours of this snapshot"));
    };
    for entry in taken {
        entry.segment.check()?;
    }
    if taken.iter().all(|e| e.live() == 0) {
        return Ok(None);
    }
    if taken.iter().any(|e| e.segment.is_evicted()) {
        return Err(Error::internal("rows that are only in the lake were to be merged"));
    }
    let (first, last) = (taken[0].segment.meta().first_row, taken[taken.len() - 1].segment.meta().last_row);
    let mut write = || {
        let layout = &snapshot.parts.compiled.layout;
        let mut writer = Writer::create(env, dir, id, snapshot.def(), layout, form, tick)?;
        cluster::write(snapshot, &mut writer, first.0, last.0.saturating_add(1))?;
        writer.finish(first, last)
    };
    write().map(Some).inspect_err(|_| discard(env, dir, id))
}
