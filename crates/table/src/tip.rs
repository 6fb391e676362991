//! The mutable end of a table, owned by the commit thread.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use types::{Error, Lsn, Micros, Result, RowId, SegmentId, TableDef, key};

use crate::deletes::DeleteVector;
use crate::evicted_rows::LakeSnapshot;
use crate::head::Head;
use crate::history::DeleteHistory;
use crate::key_map::KeyMap;
use crate::key_match;
use crate::lsn_runs::{self, LsnRun};
use crate::parts::{CompiledDef, Entry, Parts};
use crate::past::{Past, PastSegment, RetainedRows};
use crate::segment::Segment;
use crate::{Snapshot, State, unique};

/// A table as of the last commit applied, durable or not. Readers do not share it: they get [`Tip::snapshot`]s.
///
/// A clone costs O(1) and is independent from then on.
#[derive(Clone, Debug)]
pub struct Tip {
    pub(crate) parts: Parts,
}

impl Tip {
    /// Returns an empty table that commit `lsn` made.
    pub fn created(def: TableDef, lsn: Lsn) -> Tip {
        let mut tip = Tip::new(def);
        Arc::make_mut(&mut tip.parts.past).created = lsn.0;
        tip
    }

    /// Returns an empty table that existed from the beginning: its past has no lower bound.
    pub fn new(def: TableDef) -> Tip {
        Tip::empty(CompiledDef::new(def))
    }

    /// Returns an empty table with an existing view.
    pub(crate) fn empty(compiled: Arc<CompiledDef>) -> Tip {
        let uniques = unique::declared(&compiled.def, &[], 1);
        Tip {
            parts: Parts {
                compiled,
                head: Head::default(),
                head_deletes: DeleteVector::default(),
                keys: KeyMap::default(),
                uniques,
                segments: Arc::default(),
                segment_bytes: 0,
                segment_raw_bytes: 0,
                segment_live: 0,
                history: DeleteHistory::default(),
                past: Arc::default(),
                past_view: None,
                next_row: 1,
                sealed_next: 1,
                last_time: i64::MIN,
                sealed_time: i64::MIN,
            },
        }
    }

    /// Returns a private tip that continues from a snapshot: other tips do not see its writes. The row ids that it assigns are
    /// above all of the snapshot's, and valid only within it.
    pub fn over(base: &Snapshot) -> Tip {
        let mut parts = base.parts.clone();
        parts.head.freeze_below(parts.next_row);
        parts.fork_keys();
        Tip { parts }
    }

    /// Restores the table of `state`, whose `segments` and `past_segments` were opened in the state's order. Its head is empty:
    /// [`Tip::append`] replays the rows from [`Tip::sealed_next`] on out of the log. Replaying deletes that the state already has
    /// changes nothing.
    pub fn restore(
        state: State,
        segments: Vec<Arc<Segment>>,
        past_segments: Vec<Arc<Segment>>,
    ) -> Result<Tip> {
        let opened = segments.iter().chain(&past_segments).map(|s| s.meta());
        let expected = state.segments.iter().chain(state.past.segments.iter().map(|(meta, _)| meta));
        if !opened.eq(expected) || state.deletes.len() != segments.len() {
            return Err(Error::internal("the segments given are not those of the table's state"));
        }
        let entry = |(segment, deletes)| Entry { segment, deletes: DeleteVector::from_bitmap(deletes) };
        let entries = segments.into_iter().zip(state.deletes).map(entry).collect();
        let mut tip = Tip::new(state.def);
        let parts = &mut tip.parts;
        parts.segments = Arc::new(entries);
        parts.sealed_next = state.sealed_next.0;
        // The head's rows get their ids again when they are replayed.
        parts.next_row = state.sealed_next.0;
        parts.uniques = unique::declared(&parts.compiled.def, &[], parts.next_row);
        // Gives replayed rows the same times as when they were first appended.
        parts.last_time = state.sealed_time;
        parts.sealed_time = state.sealed_time;
        parts.history = DeleteHistory::restore(&state.history, state.history_floor, state.lsn);
        let defs = state.past.defs.into_iter().map(|(lsn, def)| (lsn.0, CompiledDef::new(def))).collect();
        let put_away = state.past.segments.iter().zip(past_segments);
        let mut past = Past {
            created: state.past.created.0,
            floor: state.past.floor.0,
            segments: put_away
                .map(|((_, last_end), segment)| PastSegment { segment, last_end: last_end.0 })
                .collect(),
            defs,
        };
        // Replay brings the head's rows to the current definition.
        past.drop_unreadable_defs(&parts.compiled.def);
        parts.past = Arc::new(past);
        tip.recount();
        Ok(tip)
    }

    pub fn def(&self) -> &Arc<TableDef> {
        &self.parts.compiled.def
    }

    /// Returns an error if [`Tip::set_def`] would refuse `def`: the key and its types must stay, a column's type may only widen.
    pub fn check_def(&self, def: &TableDef) -> Result<()> {
        let now = self.def();
        let refuse = |what: String| Err(Error::invalid(what).with("table", &now.name));
        if def.id != now.id {
            return refuse(format!("a definition of table {} was given to table {}", def.id, now.id));
        }
        if def.primary_key != now.primary_key {
            return refuse("the primary key of a table cannot change".into());
        }
        for column in &now.schema.columns {
            let is_key = now.primary_key.contains(&column.id);
            let Some(new) = def.schema.column(column.id) else {
                if is_key {
                    return refuse(format!("key column `{}` cannot be dropped", column.name));
                }
                continue;
            };
            if new.data_type == column.data_type {
                continue;
            }
            if is_key {
                return refuse(format!("the type of key column `{}` cannot change", column.name));
            }
            if !column.data_type.widens_to(&new.data_type) {
                return refuse(format!("column `{}` cannot become {}", column.name, new.data_type));
            }
        }
        Ok(())
    }

    /// Changes the definition without a commit, unlike [`Tip::alter`]: the past is then read under the new definition too.
    pub fn set_def(&mut self, def: TableDef) -> Result<()> {
        self.check_def(&def)?;
        self.parts.uniques = unique::declared(&def, &self.parts.uniques, self.parts.next_row);
        self.parts.compiled = CompiledDef::new(def);
        Ok(())
    }

    /// Changes the definition. Rows written before stay unchanged and are projected by column id when they are read. The past
    /// before `lsn` is still read under the former definition.
    pub fn alter(&mut self, def: TableDef, lsn: Lsn) -> Result<()> {
        let before = self.parts.compiled.clone();
        let reads_alike = |a: &TableDef, b: &TableDef| {
            (&a.name, &a.schema, &a.primary_key) == (&b.name, &b.schema, &b.primary_key)
        };
        let is_read_alike = reads_alike(&before.def, &def);
        self.set_def(def)?;
        // Readers of the past do not notice the addition or removal of an index.
        if !is_read_alike {
            let parts = &mut self.parts;
            // Folding would convert the older rows to the new columns.
            parts.head.freeze_below(parts.next_row);
            Arc::make_mut(&mut parts.past).add_def(lsn, before);
            // The lake may rewrite evicted rows under the new columns.
            if parts.last_evicted().is_some() {
                let def = parts.compiled.def.clone();
                Arc::make_mut(&mut parts.past).drop_unreadable_defs(&def);
            }
        }
        Ok(())
    }

    /// Releases the deletes of commits up to `lsn` for readers of the past.
    pub fn keep_deletes_after(&mut self, lsn: Lsn) {
        self.parts.history.keep_deletes_after(lsn);
    }

    /// Removes past segments and raises the past floor to at least `floor`. Returns the segments that were removed.
    pub fn forget(&mut self, segments: &[SegmentId], floor: Lsn) -> Vec<Arc<Segment>> {
        Arc::make_mut(&mut self.parts.past).forget(segments, floor)
    }

    /// Adds rows. `batch` holds user columns only, as [`conform`](crate::conform()) returns them: each field carries its
    /// column id, and columns of an older definition are converted to the present one. `runs` lists the commits of the group in
    /// order, each with its number of rows. `_time` never falls: an earlier `time` is replaced by the table's last.
    ///
    /// Rows below [`Tip::next_row`] are there already and are skipped, so a replayed frame may overlap. Fails, changing
    /// nothing, if row ids in between are missing or the batch does not fit.
    pub fn append(
        &mut self,
        first_row: RowId,
        time: Micros,
        runs: &[(Lsn, u64)],
        batch: &RecordBatch,
    ) -> Result<()> {
        let rows = batch.num_rows() as u64;
        if runs.iter().map(|(_, rows)| rows).sum::<u64>() != rows {
            return Err(Error::internal(format!("the commits given do not add up to {rows} rows")));
        }
        let next = self.parts.next_row;
        if first_row.0 > next {
            return Err(Error::damaged(format!(
                "rows {next} to {} are missing from the log",
                first_row.0 - 1
            ))
            .with("table", &self.def().name));
        }
        let skip = next - first_row.0;
        if skip >= rows {
            return Ok(());
        }
        let user =
            self.parts.compiled.user.apply_user(&batch.slice(skip as usize, (rows - skip) as usize))?;
        let mut all_runs = Vec::with_capacity(runs.len());
        let mut first = first_row.0;
        for (lsn, rows) in runs {
            if *rows > 0 {
                lsn_runs::push(&mut all_runs, LsnRun { lsn: lsn.0, first });
            }
            first += rows;
        }
        let runs = lsn_runs::slice(&all_runs, next, next + user.num_rows() as u64);
        let time = time.max(self.parts.last_time);
        let compiled = self.parts.compiled.clone();
        self.parts.head.push(next, time, runs, &user, &compiled.layout, &compiled.all)?;
        self.parts.last_time = time;
        self.parts.next_row = next + user.num_rows() as u64;
        if compiled.def.is_keyed() {
            self.enter_keys(next, &user, &compiled);
        }
        self.parts.enter_uniques(next, &user)
    }

    fn enter_keys(&mut self, first: u64, user: &RecordBatch, compiled: &CompiledDef) {
        let Parts { keys, head, head_deletes, sealed_next, .. } = &mut self.parts;
        let columns: Vec<&dyn Array> =
            compiled.layout.key.iter().map(|at| user.column(at - 2).as_ref()).collect();
        let mut bytes = Vec::new();
        for row in 0..user.num_rows() {
            bytes.clear();
            key::encode_row(&compiled.layout.key_types, &columns, row, &mut bytes);
            // An older live row with this hash either has the same key and is deleted by the same group, or has another key with
            // the same hash.
            let keeps = |older: u64| {
                older >= *sealed_next
                    && !head_deletes.contains(older)
                    && head.locate(older).is_some_and(|(batch, at)| {
                        !key_match::matches(&batch.stored.layout, &batch.stored.batch, at, &bytes)
                    })
            };
            keys.insert(key::hash(&bytes), first + row as u64, keeps);
        }
    }

    /// Deletes row versions; ids that are not live are ignored. Returns the number of rows that were live.
    ///
    /// A row of a segment that cannot be read counts as live unless it was deleted before: the delete must not be lost.
    pub fn delete(&mut self, rows: impl IntoIterator<Item = RowId>, lsn: Lsn) -> u64 {
        let parts = &mut self.parts;
        let mut count = 0;
        for row in rows {
            if row.0 >= parts.sealed_next {
                if row.0 >= parts.next_row || !parts.head_deletes.insert(row.0) {
                    continue;
                }
            } else {
                let Some((at, entry)) = parts.entry_of(row.0) else { continue };
                let stored = entry.segment.row_ids().map_or(true, |ids| ids.contains(row.0));
                if !stored || entry.deletes.contains(row.0) {
                    continue;
                }
                let entry = &mut Arc::make_mut(&mut parts.segments)[at];
                let before = entry.live();
                entry.deletes.insert(row.0);
                parts.segment_live -= before - entry.live();
            }
            parts.history.push(lsn, row);
            count += 1;
        }
        count
    }

    /// Replaces the head's rows up to the segment's last row by the segment, and carries over the deletes of its rows that came
    /// after the snapshot from which it was made. A segment that was applied already is ignored. `kept` describes the past
    /// segment with the ended rows; without it the ended rows are lost to readers of the past.
    ///
    /// Costs O(head batches + deletes) while an older snapshot lives, as the published root's does. Dropping the last such
    /// snapshot frees the sealed rows and their keys (tens of milliseconds for a million rows), so the caller leaves that to a
    /// reaper thread.
    pub fn apply_seal(&mut self, segment: Arc<Segment>, kept: Option<RetainedRows>) -> Result<()> {
        let meta = segment.meta();
        let below = meta.last_row.0.saturating_add(1);
        if below <= self.parts.sealed_next {
            return Ok(());
        }
        if meta.first_row.0 != self.parts.sealed_next || below > self.parts.next_row {
            return Err(Error::internal(format!(
                "segment {} covers rows {} to {}; the head has {} to {}",
                meta.id,
                meta.first_row,
                meta.last_row,
                self.parts.sealed_next,
                self.parts.next_row - 1
            ))
            .with("table", &self.def().name));
        }
        let parts = &mut self.parts;
        let mut deletes = parts.head_deletes.split_below(below);
        let ended = deletes.len();
        if let Ok(stored) = segment.row_ids() {
            stored.retain_stored(&mut deletes);
        }
        let past = Arc::make_mut(&mut parts.past);
        past.note_dropped(ended, deletes.len(), kept, parts.history.newest());
        past.drop_unreadable_defs(&parts.compiled.def);
        if let Some((batch, at)) = parts.head.locate(below - 1) {
            parts.sealed_time = batch.stored.times()[at];
        }
        let entry = Entry { segment, deletes: DeleteVector::from_bitmap(deletes) };
        Arc::make_mut(&mut parts.segments).push(entry);
        parts.head.drop_below(below);
        parts.keys.drop_below(below);
        parts.sealed_next = below;
        self.recount();
        Ok(())
    }

    /// Replaces `inputs` (neighbours, in order) by `output` (`None` if none of their rows was live), and carries over the
    /// deletes that came after the snapshot from which it was made. Ignored if the inputs are not there any more. `kept` works as
    /// in [`Tip::apply_seal`].
    pub fn apply_compact(
        &mut self,
        inputs: &[SegmentId],
        output: Option<Arc<Segment>>,
        kept: Option<RetainedRows>,
    ) -> Result<()> {
        let segments = &self.parts.segments;
        let Some(at) = inputs.first().and_then(|id| segments.iter().position(|e| e.segment.id() == *id))
        else {
            return Ok(());
        };
        let taken = segments.get(at..at + inputs.len());
        let Some(taken) =
            taken.filter(|taken| taken.iter().map(|e| e.segment.id()).eq(inputs.iter().copied()))
        else {
            return Err(Error::internal("the inputs of a compaction are not neighbours")
                .with("table", &self.def().name));
        };
        let mut deletes = roaring::RoaringTreemap::new();
        for entry in taken {
            deletes |= entry.deletes.to_bitmap();
        }
        let ended = deletes.len();
        let mut still_there = 0;
        let entry = match output {
            None => None,
            Some(segment) => {
                let (first, last) =
                    (taken[0].segment.meta().first_row, taken[taken.len() - 1].segment.meta().last_row);
                if (segment.meta().first_row, segment.meta().last_row) != (first, last) {
                    return Err(Error::internal("the output of a compaction does not cover its inputs"));
                }
                if let Ok(stored) = segment.row_ids() {
                    stored.retain_stored(&mut deletes);
                }
                still_there = deletes.len();
                Some(Entry { segment, deletes: DeleteVector::from_bitmap(deletes) })
            }
        };
        Arc::make_mut(&mut self.parts.segments).splice(at..at + inputs.len(), entry);
        let past = Arc::make_mut(&mut self.parts.past);
        past.note_dropped(ended, still_there, kept, self.parts.history.newest());
        past.drop_unreadable_defs(&self.parts.compiled.def);
        self.recount();
        Ok(())
    }

    /// Returns true if a segment with this id is among those of the present.
    pub fn has_segment(&self, id: SegmentId) -> bool {
        self.parts.segments.iter().any(|entry| entry.segment.id() == id)
    }

    /// Sets the lake position from which one segment, just evicted, is read. The other evicted segments keep their positions,
    /// which may be newer.
    pub fn set_landed_of(&mut self, id: SegmentId, landed: &Arc<dyn LakeSnapshot>) {
        let entries = Arc::make_mut(&mut self.parts.segments);
        if let Some(entry) = entries.iter_mut().find(|entry| entry.segment.id() == id) {
            entry.segment = entry.segment.pinned(landed);
        }
    }

    /// Sets the lake position from which evicted rows are read. Ignored if the position does not yet include all of them.
    pub fn set_landed(&mut self, landed: &Arc<dyn LakeSnapshot>) {
        let Some(last) = self.parts.last_evicted() else { return };
        if landed.row() < last {
            return;
        }
        for entry in Arc::make_mut(&mut self.parts.segments).iter_mut() {
            if entry.segment.is_evicted() {
                entry.segment = entry.segment.pinned(landed);
            }
        }
    }

    fn recount(&mut self) {
        let parts = &mut self.parts;
        parts.segment_live = parts.segments.iter().map(Entry::live).sum();
        parts.segment_bytes = parts.segments.iter().map(|e| e.segment.meta().bytes).sum();
        parts.segment_raw_bytes = parts.segments.iter().map(|e| e.segment.raw_bytes()).sum();
    }

    /// Returns a snapshot of the table for readers, as of `lsn`. Shares everything: costs O(1).
    pub fn snapshot(&self, lsn: Lsn) -> Arc<Snapshot> {
        Arc::new(Snapshot { parts: self.parts.clone(), lsn })
    }

    /// The lsn from which on the past can be read, apart from the bound of the delete history.
    pub fn kept_from(&self) -> Lsn {
        Lsn(self.parts.past.floor)
    }

    /// The id of the next appended row.
    pub fn next_row(&self) -> RowId {
        RowId(self.parts.next_row)
    }

    /// The first row id that no segment covers: replay appends from here on.
    pub fn sealed_next(&self) -> RowId {
        RowId(self.parts.sealed_next)
    }

    /// Returns true if this row version exists and is not deleted.
    pub fn is_live(&self, row: RowId) -> Result<bool> {
        self.parts.is_live(row.0)
    }

    /// Returns the live row of a key, given as [`types::key`] bytes.
    pub fn find(&self, key: &[u8]) -> Result<Option<RowId>> {
        Ok(self.parts.find(key, 0)?.map(|(row, _)| RowId(row)))
    }

    /// Repeats [`Tip::find`] for a caller that found `found` in the snapshot `base`: looks only at changes since then. The commit
    /// thread re-checks keys with it.
    pub fn find_again(&self, base: &Snapshot, key: &[u8], found: Option<RowId>) -> Result<Option<RowId>> {
        if let Some(row) = found
            && self.parts.is_live(row.0)?
        {
            return Ok(found);
        }
        // A key that was absent, or was deleted since, can only have come back as a new row.
        if self.parts.next_row == base.next_row().0 {
            return Ok(None);
        }
        Ok(self.parts.find(key, base.next_row().0)?.map(|(row, _)| RowId(row)))
    }

    /// Number of live rows.
    pub fn rows(&self) -> u64 {
        self.parts.live()
    }

    /// Number of rows in the head, deleted ones included.
    pub fn head_rows(&self) -> u64 {
        self.parts.head.rows()
    }

    /// Bytes of the head's arrays.
    pub fn head_bytes(&self) -> u64 {
        self.parts.head.bytes()
    }

    /// The lsn of the first row that no segment covers: the log is needed from here on. `None` if the head is empty.
    pub fn head_first_lsn(&self) -> Option<Lsn> {
        self.parts.head.batches().first().map(|batch| Lsn(batch.runs[0].lsn))
    }
}
