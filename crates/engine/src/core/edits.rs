//! What background work hands in: sealed and merged segments, and how far what derives from a table has come.

use std::sync::Arc;

use commitlog::edit::Edit;
use table::materializer::{Checkpoint, Position};
use types::{Lsn, Result, TableId};

use super::{Core, Group};
use crate::inbox::BackgroundEdit;
use crate::shared::Obsolete;
use crate::transaction::Committed;

impl Core {
    pub(super) fn retire_segments(
        &self,
        table: TableId,
        segments: impl Iterator<Item = Arc<table::Segment>>,
        since: Lsn,
    ) {
        let mut background = self.shared.background.lock();
        for segment in segments {
            self.shared.counters.held_bytes.add(segment.meta().bytes);
            background.obsolete.push(Obsolete { table, segment, since });
        }
        drop(background);
        self.shared.wake_background();
    }

    pub(super) fn edit(&mut self, group: &mut Group, edit: BackgroundEdit) -> Result<Committed> {
        let (table, inputs, output) = match edit {
            BackgroundEdit::Trim { .. } => return Ok(Committed::default()),
            BackgroundEdit::Derive { table, name, position } => {
                return self.derive(group, table, name, position);
            }
            BackgroundEdit::Seal { table, segment } => (table, Vec::new(), Some(segment)),
            BackgroundEdit::Compact { table, inputs, output } => (table, inputs, output),
        };
        // Rows staged by earlier transactions of the group go first: row ids and sections keep their order.
        self.flush_staged(group)?;
        let offset = group.frame.commit();
        let lsn = group.lsn(offset);
        let committed = Committed { lsn, ..Committed::default() };
        let Some(tip) = self.tips.get_mut(&table) else {
            // The table was dropped meanwhile; nobody needs what was made.
            self.retire_segments(table, output.into_iter(), lsn);
            return Ok(committed);
        };
        if inputs.is_empty() {
            let Some(segment) = output else { return Ok(committed) };
            group.frame.edit(offset, Edit::Seal { table, segment: segment.meta().clone() });
            tip.apply_seal(segment)?;
        } else {
            let before = tip.snapshot(lsn);
            let meta = output.as_ref().map(|segment| segment.meta().clone());
            group.frame.edit(offset, Edit::Compact { table, inputs: inputs.clone(), output: meta });
            tip.apply_compact(&inputs, output)?;
            let replaced = before.segments().filter(|s| inputs.contains(&s.id())).cloned();
            self.retire_segments(table, replaced, lsn);
        }
        self.dirty.insert(table);
        Ok(committed)
    }

    /// Notes how far a materializer has come.
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
            self.leave(table, materializer, Some(position), since);
            return Ok(Committed::default());
        }
        let offset = group.frame.commit();
        let Checkpoint { row, lsn, state } = position.checkpoint.clone();
        let materializer = name.to_owned();
        group.frame.edit(offset, Edit::Checkpoint { materializer, table, row, lsn, state });
        self.meta.checkpoints.insert((name.to_owned(), table), position.checkpoint.clone());
        self.meta_changed = true;
        self.settle_uniques(group, offset, table, &position)?;
        self.derived.push((table, name, Some(position)));
        Ok(Committed { lsn: group.lsn(offset), ..Committed::default() })
    }
}
