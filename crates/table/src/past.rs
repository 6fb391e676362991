//! Reading the past: a table as it was at an earlier lsn.
//!
//! A row *ended* at the commit that deleted or replaced it. A row is visible at lsn L if a commit up to L wrote it and none up to
//! L ended it. Row ids ascend with lsns, so the first condition is a bound on row ids; the second is answered by the delete
//! history. A seal or a compaction drops ended rows, so those that ended a short while ago are first written into separate *past
//! segments*. Readers of the present never look at these. They are removed whole, once they are older than the time for which the
//! past is kept.
//!
//! [`Snapshot::past_floor`] is the smallest lsn at which no row is missing. It rises only when something is removed, so an answer
//! about the past is exact or an error.

mod lookup;

use std::path::Path;
use std::sync::Arc;

use once_cell::race::OnceBox;
use roaring::RoaringTreemap;
use types::{Error, Lsn, Result, RowId, SegmentId, TableDef};
use vfs::Env;

use crate::SegmentMeta;
use crate::Snapshot;
use crate::deletes::DeleteVector;
use crate::lsn_runs;
use crate::parts::{CompiledDef, Entry, Parts};
use crate::segment::{BlockCompression, Segment, Writer, covers, discard};
use lookup::EndedKeys;

/// Number of former definitions that are kept.
const DEFS_MAX: usize = 64;

/// The data with which a table's past is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    /// The commit that made the table; 0 if unknown.
    pub created: u64,
    /// The lsn from which on nothing is missing, apart from the delete history's own bound: see [`Snapshot::past_floor`].
    pub floor: u64,
    /// Segments of ended rows, in the order in which they were written.
    pub segments: Vec<PastSegment>,
    /// Former definitions, each with the commit that replaced it. Ascending.
    pub defs: Vec<(u64, Arc<CompiledDef>)>,
}

/// A segment of ended rows, which readers of the present do not look at.
#[derive(Clone, Debug)]
pub(crate) struct PastSegment {
    pub segment: Arc<Segment>,
    /// The last commit that ended a row of the segment.
    pub last_end: u64,
}

/// The additional state of a snapshot of the past.
#[derive(Debug)]
pub(crate) struct PastView {
    pub lsn: Lsn,
    /// Segments with rows that ended after `lsn` and that no segment of the present stores. Their ranges overlap those of the
    /// others.
    pub segments: Vec<Entry>,
    /// Number of live rows in `segments`.
    pub live: u64,
    /// Rows of the head that ended after `lsn`: the key map may have forgotten them.
    ended: RoaringTreemap,
    keys: OnceBox<EndedKeys>,
}

/// The ended rows that a seal or a compaction wrote into a past segment.
#[derive(Clone, Debug)]
pub struct RetainedRows {
    /// The lsn at or below which ended rows were dropped instead of kept.
    pub after: Lsn,
    /// [`Tip::kept_from`](crate::Tip::kept_from) after the change, where the log records it: files that are removed by now cannot
    /// tell it.
    pub floor: Option<Lsn>,
    /// The last commit that ended a row of the segment.
    pub last_end: Lsn,
    /// The past segment; `None` if no stored row ended after `after`.
    pub segment: Option<Arc<Segment>>,
}

impl Past {
    /// Drops the definitions that the columns of a rewritten segment no longer fit, and raises the floor above them.
    pub fn drop_unreadable_defs(&mut self, now: &TableDef) {
        let fits = |former: &TableDef| {
            let same = |c: &types::Column| {
                now.schema.column(c.id).is_some_and(|column| column.data_type == c.data_type)
            };
            former.schema.columns.iter().all(same)
        };
        if let Some((lsn, _)) = self.defs.iter().rev().find(|(_, compiled)| !fits(&compiled.def)) {
            self.floor = self.floor.max(*lsn);
            self.drop_defs();
        }
    }

    pub fn add_def(&mut self, lsn: Lsn, before: Arc<CompiledDef>) {
        self.defs.push((lsn.0, before));
        if self.defs.len() > DEFS_MAX {
            self.floor = self.floor.max(self.defs[0].0);
        }
        self.drop_defs();
    }

    fn drop_defs(&mut self) {
        let floor = self.floor;
        self.defs.retain(|(lsn, _)| *lsn > floor);
    }

    /// Raises the floor for rows that were dropped. Of `ended` deleted rows the new segment still stores `stored`; the others
    /// were dropped or are in `kept`. Without `kept` all the others were dropped.
    pub fn note_dropped(&mut self, ended: u64, stored: u64, kept: Option<RetainedRows>, newest: Lsn) {
        let floor = match &kept {
            None if ended > 0 => newest,
            None => Lsn(0),
            Some(RetainedRows { floor: Some(floor), .. }) => *floor,
            Some(kept) => {
                let put_away = kept.segment.as_ref().map_or(0, |segment| segment.meta().rows);
                if ended - stored > put_away { kept.after } else { Lsn(0) }
            }
        };
        self.floor = self.floor.max(floor.0);
        if let Some(RetainedRows { segment: Some(segment), last_end, .. }) = kept {
            self.segments.push(PastSegment { segment, last_end: last_end.0 });
        }
    }

    pub fn forget(&mut self, segments: &[SegmentId], floor: Lsn) -> Vec<Arc<Segment>> {
        self.floor = self.floor.max(floor.0);
        let is_gone = |past: &PastSegment| segments.contains(&past.segment.id());
        let gone = self.segments.iter().filter(|past| is_gone(past)).map(|past| past.segment.clone());
        let gone = gone.collect();
        self.segments.retain(|past| !is_gone(past));
        self.drop_defs();
        gone
    }

    fn def_in_force_at(&self, lsn: Lsn) -> Option<&Arc<CompiledDef>> {
        self.defs.iter().find(|(replaced, _)| *replaced > lsn.0).map(|(_, compiled)| compiled)
    }
}

impl Snapshot {
    /// The smallest lsn that [`Snapshot::at`] accepts.
    pub fn past_floor(&self) -> Lsn {
        let past = &self.parts.past;
        Lsn(past.floor.max(past.created)).max(self.parts.history.floor())
    }

    /// The commit that made the table; `Lsn(0)` if unknown.
    pub fn created(&self) -> Lsn {
        Lsn(self.parts.past.created)
    }

    /// The lsn of a snapshot of the past; `None` for a snapshot of the present.
    pub fn as_of(&self) -> Option<Lsn> {
        self.parts.past_view.as_ref().map(|past_view| past_view.lsn)
    }

    /// Returns the table's definition at an lsn that [`Snapshot::at`] accepts.
    pub fn def_at(&self, lsn: Lsn) -> &Arc<TableDef> {
        &self.parts.past.def_in_force_at(lsn).unwrap_or(&self.parts.compiled).def
    }

    /// The segments of ended rows, in the order in which they were written, each with the last commit that ended one of its rows.
    pub fn past_segments(&self) -> impl ExactSizeIterator<Item = (&Arc<Segment>, Lsn)> {
        self.parts.past.segments.iter().map(|past| (&past.segment, Lsn(past.last_end)))
    }

    /// Bytes of the files of past segments.
    pub fn past_bytes(&self) -> u64 {
        self.past_segments().map(|(segment, _)| segment.meta().bytes).sum()
    }

    /// Returns the table as it was at `lsn`, with its definition of that time. Costs O(segments + rows that ended since).
    ///
    /// Fails with [`types::Kind::NotFound`] below [`Snapshot::past_floor`].
    pub fn at(self: &Arc<Self>, lsn: Lsn) -> Result<Arc<Snapshot>> {
        if self.parts.past_view.is_some() {
            return Err(Error::internal("the past of a past snapshot was requested"));
        }
        if lsn < self.past_floor() {
            let error = if lsn < self.created() {
                Error::not_found("the table did not exist then").with("created at lsn", self.created())
            } else {
                Error::not_found("the table's rows of that time are no longer kept")
            };
            return Err(error
                .with("table", &self.def().name)
                .with("asked for lsn", lsn)
                .with("oldest lsn", self.past_floor()));
        }
        let parts = self.parts.at(lsn)?;
        Ok(Arc::new(Snapshot { parts, lsn: lsn.min(self.lsn) }))
    }
}

impl Parts {
    fn at(&self, lsn: Lsn) -> Result<Parts> {
        let mut parts = self.clone();
        let end = self.first_row_after(lsn)?;
        let mut ended = self.history.ended_after(lsn);
        ended.remove_range(end..);
        if let Some(compiled) = self.past.def_in_force_at(lsn) {
            parts.compiled = compiled.clone();
        }
        parts.next_row = end;
        parts.head = self.head.below(end);
        let mut head_deletes = self.head_deletes.to_bitmap();
        head_deletes.remove_range(end..);
        let ended_in_head = &head_deletes & &ended;
        parts.head_deletes = DeleteVector::from_bitmap(head_deletes - &ended);
        let mut segments = Vec::with_capacity(self.segments.len());
        for entry in self.segments.iter().filter(|entry| entry.segment.meta().first_row.0 < end) {
            segments.push(entry_at(entry, &ended, end));
        }
        parts.segment_live = segments.iter().map(Entry::live).sum();
        parts.segment_bytes = segments.iter().map(|entry| entry.segment.meta().bytes).sum();
        parts.segment_raw_bytes = segments.iter().map(|entry| entry.segment.raw_bytes()).sum();
        parts.segments = Arc::new(segments);
        let mut past_view =
            PastView { lsn, segments: Vec::new(), live: 0, ended: ended_in_head, keys: OnceBox::new() };
        for PastSegment { segment, last_end } in &self.past.segments {
            let meta = segment.meta();
            if *last_end <= lsn.0 || meta.first_row.0 >= end {
                continue;
            }
            let stored = segment.row_ids()?.to_bitmap();
            let entry =
                Entry { segment: segment.clone(), deletes: DeleteVector::from_bitmap(stored - &ended) };
            if entry.live() > 0 {
                past_view.live += entry.live();
                past_view.segments.push(entry);
            }
        }
        parts.past_view = Some(Arc::new(past_view));
        Ok(parts)
    }

    /// Returns the first stored row that a commit after `lsn` wrote. A row of an older commit has a smaller id, wherever it is
    /// stored.
    fn first_row_after(&self, lsn: Lsn) -> Result<u64> {
        let first = |runs: &[lsn_runs::LsnRun]| {
            runs.get(runs.partition_point(|run| run.lsn <= lsn.0)).map_or(u64::MAX, |run| run.first)
        };
        let mut end = self.next_row;
        for entry in self.segments.iter().filter(|entry| entry.segment.meta().last_lsn > lsn).take(1) {
            end = end.min(first(entry.segment.runs()?));
        }
        for past in self.past.segments.iter().filter(|past| past.segment.meta().last_lsn > lsn) {
            end = end.min(first(past.segment.runs()?));
        }
        let in_head = self.head.batches().iter().map(|batch| first(&batch.runs)).find(|row| *row < u64::MAX);
        Ok(in_head.map_or(end, |row| row.min(end)))
    }

    /// Returns the table reduced to the rows of `ended` in the head and in the segments that overlap a range, as if these rows
    /// were live.
    fn only(&self, ended: &RoaringTreemap, first: RowId, last: RowId) -> Result<Parts> {
        let mut parts = self.clone();
        let mut others = RoaringTreemap::new();
        others.insert_range(self.sealed_next..self.next_row);
        parts.head_deletes = DeleteVector::from_bitmap(others - ended);
        let mut segments = Vec::new();
        for entry in self.segments.iter() {
            let meta = entry.segment.meta();
            if meta.last_row < first || meta.first_row > last {
                continue;
            }
            let deletes = DeleteVector::from_bitmap(entry.segment.row_ids()?.to_bitmap() - ended);
            segments.push(Entry { segment: entry.segment.clone(), deletes });
        }
        parts.segments = Arc::new(segments);
        Ok(parts)
    }
}

fn entry_at(entry: &Entry, ended: &RoaringTreemap, end: u64) -> Entry {
    let Entry { segment, deletes } = entry;
    let last = segment.meta().last_row.0;
    if last < end && (deletes.is_empty() || ended.is_empty()) {
        return entry.clone();
    }
    let mut rows = deletes.to_bitmap() - ended;
    if last >= end {
        rows.insert_range(end..=last);
        // A damaged segment counts too few live rows; reading it fails all the same.
        if let Ok(stored) = segment.row_ids() {
            stored.retain_stored(&mut rows);
        }
    }
    Entry { segment: segment.clone(), deletes: DeleteVector::from_bitmap(rows) }
}

/// Writes a past segment `id` into `dir`, durably: the rows with ids from `first` to `last` that ended after `after` and that a
/// seal or a compaction of `snapshot` would drop. `after` must not be below [`Snapshot::past_floor`]. Returns `None` if there are
/// no such rows. `tick` works as in [`seal`](crate::seal()).
///
/// The caller logs the meta together with that of the seal or the compaction, then passes it to
/// [`Tip::apply_seal`](crate::Tip::apply_seal) or [`Tip::apply_compact`](crate::Tip::apply_compact) as [`RetainedRows`].
#[allow(clippy::too_many_arguments, reason = "one caller, and each argument is independent")]
pub fn write_past_segment(
    snapshot: &Snapshot,
    env: &Env,
    dir: &Path,
    id: SegmentId,
    first: RowId,
    last: RowId,
    after: Lsn,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Option<SegmentMeta>> {
    // The seal raises the floor to `after` when it drops rows that ended before. A lower `after` would make the log state a floor
    // that is too low.
    assert!(after >= snapshot.past_floor(), "what can be read no more cannot be kept");
    let mut ended = snapshot.parts.history.ended_after(after);
    ended.remove_range(..first.0);
    ended.remove_range(last.0 + 1..);
    if ended.is_empty() {
        return Ok(None);
    }
    let parts = snapshot.parts.only(&ended, first, last)?;
    let rows = Snapshot { parts, lsn: snapshot.lsn };
    let within = |piece: &crate::ScanPiece| piece.row_range().0 <= last && piece.row_range().1 >= first;
    let pieces: Vec<_> = rows.pieces_from(first.0).take_while(within).collect();
    if pieces.is_empty() {
        return Ok(None);
    }
    let mut write = || {
        let layout = &snapshot.parts.compiled.layout;
        let mut writer = Writer::create(env, dir, id, snapshot.def(), layout, BlockCompression::Plain, tick)?;
        for piece in &pieces {
            let batch = piece.read_rows(first.0, last.0 + 1, usize::MAX, snapshot.all_columns())?;
            if batch.num_rows() > 0 {
                writer.push(&batch, piece.runs()?)?;
            }
        }
        writer.finish(first, last)
    };
    let meta = write().inspect_err(|_| discard(env, dir, id))?;
    if meta.rows == 0 {
        discard(env, dir, id);
        return Ok(None);
    }
    Ok(Some(meta))
}

/// Returns the past segment that stores a row.
pub(crate) fn entry_of(past_view: &PastView, row: u64) -> Result<Option<&Entry>> {
    for entry in past_view.segments.iter().filter(|entry| covers(entry.segment.meta(), RowId(row))) {
        if entry.segment.row_ids()?.contains(row) {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}
