//! Edits of background work: sealed, merged and evicted segments, forgotten rows, and the progress of materializers.

use std::sync::Arc;

use commitlog::edit::{Edit, RetainedRowsMeta};
use table::materializer::{Checkpoint, Position};
use types::{Lsn, Result, SegmentId, TableId};

use super::{Core, Group};
use crate::background::state::ObsoleteSegment;
use crate::inbox::BackgroundEdit;
use crate::transaction::Committed;

impl Core {
    pub(super) fn retire_segments(
        &self,
        table: TableId,
        segments: impl Iterator<Item = Arc<table::Segment>>,
        since: Lsn,
    ) {
        let now = self.shared.env.clock.monotonic();
        let mut background = self.shared.background.lock();
        for segment in segments {
            background.obsolete_since.get_or_insert(now);
            self.shared.counters.held_bytes.add(segment.meta().bytes);
            background.obsolete.push(ObsoleteSegment { table, segment, since });
        }
        drop(background);
        self.shared.wake_background();
    }

    pub(super) fn edit(&mut self, group: &mut Group, edit: BackgroundEdit) -> Result<Committed> {
        let (table, inputs, output, kept) = match edit {
            BackgroundEdit::Trimmed => return Ok(Committed::default()),
            BackgroundEdit::Derive { table, name, position } => {
                return self.derive(group, table, name, position);
            }
            BackgroundEdit::Evict { table, input, output, landed, position, name } => {
                let newest = self.published(table, name).filter(|newest| !Arc::ptr_eq(newest, &position));
                return self.evict(group, table, input, output, &landed, newest.map(|newest| (name, newest)));
            }
            BackgroundEdit::Forget { table, segments, floor } => {
                return Ok(self.forget(group, table, &segments, floor));
            }
            BackgroundEdit::Seal { table, segment, kept, sealing } => {
                self.sealed.push(sealing);
                (table, Vec::new(), Some(segment), kept)
            }
            BackgroundEdit::Compact { table, inputs, output, kept } => (table, inputs, output, kept),
        };
        // Rows staged by earlier transactions of the group go first: row ids and sections keep their order.
        self.flush_staged(group)?;
        let offset = group.frame.commit();
        let lsn = group.lsn(offset);
        let committed = Committed { lsn, ..Committed::default() };
        let Some(tip) = self.tips.get_mut(&table) else {
            // The table was dropped meanwhile; nobody needs the new segments.
            let put_away = kept.and_then(|kept| kept.segment);
            self.retire_segments(table, output.into_iter().chain(put_away), lsn);
            return Ok(committed);
        };
        let put_away = kept
            .as_ref()
            .map(|kept| (kept.last_end, kept.segment.as_ref().map(|segment| segment.meta().clone())));
        let logged = |tip: &table::Tip| {
            put_away.map(|(last_end, segment)| RetainedRowsMeta { floor: tip.kept_from(), last_end, segment })
        };
        if inputs.is_empty() {
            let Some(segment) = output else { return Ok(committed) };
            let meta = segment.meta().clone();
            tip.apply_seal(segment, kept)?;
            group.frame.edit(offset, Edit::Seal { table, segment: meta, kept: logged(tip) });
        } else {
            let before = tip.snapshot(lsn);
            let meta = output.as_ref().map(|segment| segment.meta().clone());
            tip.apply_compact(&inputs, output, kept)?;
            let edit = Edit::Compact { table, inputs: inputs.clone(), output: meta, kept: logged(tip) };
            group.frame.edit(offset, edit);
            let replaced = before.segments().filter(|s| inputs.contains(&s.id())).cloned();
            self.retire_segments(table, replaced, lsn);
        }
        self.dirty.insert(table);
        Ok(committed)
    }

    /// Replaces a segment by one without rows; the lake has them. It is logged as a compaction of one segment into another.
    /// `newest` is the position that was published since the rows were compared with the lake. Rows are then read from that
    /// position: otherwise files that only older positions need would stay until the next publication.
    fn evict(
        &mut self,
        group: &mut Group,
        table: TableId,
        input: SegmentId,
        output: Arc<table::Segment>,
        landed: &Arc<dyn table::LakeSnapshot>,
        newest: Option<(&'static str, Arc<Position>)>,
    ) -> Result<Committed> {
        let meta = output.meta().clone();
        // Rows leave this machine only here, and never before the lake has them durably.
        assert!(landed.row() >= meta.last_row, "K1: rows were to be evicted that the lake does not have");
        self.flush_staged(group)?;
        let offset = group.frame.commit();
        let lsn = group.lsn(offset);
        let committed = Committed { lsn, ..Committed::default() };
        let before = self.tips.get(&table).filter(|tip| tip.has_segment(input)).map(|tip| tip.snapshot(lsn));
        let newest = before.as_ref().zip(newest).and_then(|(before, (name, newest))| {
            let landed = self.lake_snapshot_at(name, &newest, before);
            landed.filter(|landed| landed.row() >= meta.last_row)
        });
        let landed = newest.as_ref().unwrap_or(landed);
        let Some((before, tip)) = before.zip(self.tips.get_mut(&table)) else {
            self.retire_segments(table, std::iter::once(output), lsn);
            return Ok(committed);
        };
        // Deleted rows are not dropped here: they stay marked as deleted.
        let kept = table::RetainedRows { after: Lsn(0), floor: None, last_end: lsn, segment: None };
        let id = output.id();
        tip.apply_compact(&[input], Some(output), Some(kept))?;
        tip.set_landed_of(id, landed);
        let kept = Some(RetainedRowsMeta { floor: tip.kept_from(), last_end: lsn, segment: None });
        group.frame.edit(offset, Edit::Compact { table, inputs: vec![input], output: Some(meta), kept });
        let replaced = before.segments().filter(|s| s.id() == input).cloned();
        self.retire_segments(table, replaced, lsn);
        self.dirty.insert(table);
        Ok(committed)
    }

    /// Returns the lake snapshot of a position, from which evicted rows of the table are read.
    fn lake_snapshot_at(
        &self,
        name: &str,
        position: &Position,
        table: &table::Snapshot,
    ) -> Option<Arc<dyn table::LakeSnapshot>> {
        let materializers = self.shared.materializers.load();
        let materializer = || materializers.iter().find(|materializer| materializer.name() == name);
        let anew = || materializer()?.landed(&position.published, table);
        position.landed.clone().or_else(anew)
    }

    /// Drops segments of deleted rows that were retained for readers of the past, and raises the table's past floor.
    fn forget(&mut self, group: &mut Group, table: TableId, segments: &[SegmentId], floor: Lsn) -> Committed {
        let Some(tip) = self.tips.get_mut(&table) else { return Committed::default() };
        let offset = group.frame.commit();
        group.frame.edit(offset, Edit::Forget { table, segments: segments.to_vec(), floor });
        let gone = tip.forget(segments, floor);
        let lsn = group.lsn(offset);
        self.retire_segments(table, gone.into_iter(), lsn);
        self.dirty.insert(table);
        Committed { lsn, ..Committed::default() }
    }

    /// Records the progress of a materializer.
    fn derive(
        &mut self,
        group: &mut Group,
        table: TableId,
        name: &'static str,
        position: Arc<Position>,
    ) -> Result<Committed> {
        // The table was dropped meanwhile, and with it everything that derives from it.
        let Some(tip) = self.tips.get(&table) else { return Ok(Committed::default()) };
        let materializers = self.shared.materializers.load_full();
        if let Some(materializer) = materializers.iter().find(|m| m.name() == name)
            && !materializer.follows(tip.def())
        {
            let since = Lsn(group.lsn(group.frame.commits()).0 - 1);
            self.stop_following(table, materializer, Some(position), since);
            return Ok(Committed::default());
        }
        let offset = group.frame.commit();
        let Checkpoint { row, lsn, state } = position.checkpoint.clone();
        let materializer = name.to_owned();
        group.frame.edit(offset, Edit::Checkpoint { materializer, table, row, lsn, state });
        self.meta.checkpoints.insert((name.to_owned(), table), position.checkpoint.clone());
        self.meta_changed = true;
        self.update_unique_indexes(group, offset, table, &position)?;
        // Rows may have been evicted since its step began.
        let snapshot = self.tips.get(&table).map(|tip| tip.snapshot(group.lsn(offset)));
        let landed = snapshot.filter(|snapshot| snapshot.has_evicted());
        let landed = landed.and_then(|snapshot| self.lake_snapshot_at(name, &position, &snapshot));
        if let (Some(landed), Some(tip)) = (&landed, self.tips.get_mut(&table)) {
            tip.set_landed(landed);
            self.dirty.insert(table);
        }
        self.derived.push((table, name, Some(position)));
        Ok(Committed { lsn: group.lsn(offset), ..Committed::default() })
    }
}
