//! Applies the log's newest part to the manifest's tables in memory, as recovery would, and collects the problems.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use commitlog::edit::{self, Edit, SegmentMeta};
use commitlog::record::{Frame, InsertedRows, Section};
use engine::manifest::Manifest;
use table::{Segment, Tip, segment};
use types::{Lsn, Result, RowId, TableDef, TableId};
use vfs::Env;

use super::Examination;

/// The tables of a database after the manifest and the frames that were applied so far.
pub struct Replay<'a> {
    env: &'a Env,
    dir: PathBuf,
    manifest_lsn: Lsn,
    pub tips: HashMap<TableId, Tip>,
    key_names: BTreeSet<String>,
    /// Number of API keys.
    pub keys: usize,
    /// Frames that cannot be applied, one message each.
    pub problems: Vec<String>,
}

/// Largest number of problems that are collected: more of them tell nothing new.
const PROBLEMS_MAX: usize = 100;

impl<'a> Replay<'a> {
    pub fn new(env: &'a Env, dir: &Path, manifest: &Manifest, examination: &mut Examination) -> Self {
        let mut replay = Replay {
            env,
            dir: dir.to_owned(),
            manifest_lsn: manifest.lsn,
            tips: HashMap::new(),
            key_names: manifest.keys.iter().map(|key| key.name.clone()).collect(),
            keys: manifest.keys.len(),
            problems: Vec::new(),
        };
        for state in &manifest.tables {
            let open = |meta: &SegmentMeta| replay.open(&state.def, meta.clone());
            let segments = state.segments.iter().map(open).collect();
            let past = state.past.segments.iter().map(|(meta, _)| open(meta)).collect();
            match Tip::restore(state.clone(), segments, past) {
                Ok(tip) => {
                    replay.tips.insert(state.def.id, tip);
                }
                Err(error) => {
                    examination.damage(format!("table {} cannot be restored: {error}", state.def.name))
                }
            }
        }
        replay
    }

    fn open(&self, def: &TableDef, meta: SegmentMeta) -> Arc<Segment> {
        Segment::open(self.env, &segment::table_dir(&self.dir, def.id), def, meta)
    }

    /// Applies one frame of the log. Never fails: a section that cannot be applied becomes a problem.
    pub fn frame(&mut self, frame: Frame) -> Result<()> {
        let at = |offset: u32| Lsn(frame.first_lsn.0 + u64::from(offset));
        for section in frame.sections {
            let (lsn, outcome) = match section {
                Section::Rows(rows) => (frame.first_lsn, self.rows(rows, frame.first_lsn, frame.time)),
                Section::Deletes(deletes) => {
                    let mut rows = deletes.rows.into_iter();
                    for run in &deletes.runs {
                        let ended: Vec<RowId> = rows.by_ref().take(run.count as usize).collect();
                        if let Some(tip) = self.tips.get_mut(&deletes.table) {
                            tip.delete(ended, at(run.lsn_offset));
                        }
                    }
                    (frame.first_lsn, Ok(()))
                }
                Section::Edit { lsn_offset, edit } if at(lsn_offset) > self.manifest_lsn => {
                    (at(lsn_offset), self.edit(edit, at(lsn_offset)))
                }
                // The manifest contains this edit already, or the section concerns no row.
                Section::Edit { .. } | Section::Idempotency(_) | Section::Cursor(_) => continue,
            };
            if let Err(error) = outcome
                && self.problems.len() < PROBLEMS_MAX
            {
                self.problems.push(format!("the log at lsn {lsn} cannot be applied: {error}"));
            }
        }
        Ok(())
    }

    fn rows(&mut self, rows: InsertedRows, first_lsn: Lsn, time: i64) -> Result<()> {
        let lsn_of = |offset: u32| Lsn(first_lsn.0 + u64::from(offset));
        let runs: Vec<(Lsn, u64)> =
            rows.runs.iter().map(|run| (lsn_of(run.lsn_offset), u64::from(run.count))).collect();
        match self.tips.get_mut(&rows.table) {
            Some(tip) => tip.append(rows.first_row, time, &runs, &rows.batch),
            // The table was dropped before the manifest was written.
            None => Ok(()),
        }
    }

    fn edit(&mut self, edit: Edit, lsn: Lsn) -> Result<()> {
        match edit {
            Edit::CreateTable(def) => {
                self.tips.insert(def.id, Tip::created(def, lsn));
            }
            Edit::AlterTable(def) => {
                if let Some(tip) = self.tips.get_mut(&def.id) {
                    tip.alter(def, lsn)?;
                }
            }
            Edit::DropTable(table) => {
                self.tips.remove(&table);
            }
            Edit::Seal { table, segment, kept } => {
                let kept = self.kept(table, kept);
                if let Some((segment, tip)) = self.segment(table, segment) {
                    tip.apply_seal(segment, kept)?;
                }
            }
            Edit::Compact { table, inputs, output: Some(meta), kept } => {
                let kept = self.kept(table, kept);
                if let Some((segment, tip)) = self.segment(table, meta) {
                    tip.apply_compact(&inputs, Some(segment), kept)?;
                }
            }
            Edit::Compact { table, inputs, output: None, kept } => {
                let kept = self.kept(table, kept);
                if let Some(tip) = self.tips.get_mut(&table) {
                    tip.apply_compact(&inputs, None, kept)?;
                }
            }
            Edit::Forget { table, segments, floor } => {
                if let Some(tip) = self.tips.get_mut(&table) {
                    tip.forget(&segments, floor);
                }
            }
            Edit::PutKey(key) => {
                self.key_names.insert(key.name);
            }
            Edit::RemoveKey { name } => {
                self.key_names.remove(&name);
            }
            Edit::Checkpoint { .. } | Edit::PutView(_) | Edit::DropView { .. } => {}
        }
        self.keys = self.key_names.len();
        Ok(())
    }

    fn kept(&self, table: TableId, kept: Option<edit::RetainedRowsMeta>) -> Option<table::RetainedRows> {
        let (edit::RetainedRowsMeta { floor, last_end, segment }, tip) = (kept?, self.tips.get(&table)?);
        let segment = segment.map(|meta| self.open(tip.def(), meta));
        Some(table::RetainedRows { after: floor, floor: Some(floor), last_end, segment })
    }

    fn segment(&mut self, table: TableId, meta: SegmentMeta) -> Option<(Arc<Segment>, &mut Tip)> {
        let def = self.tips.get(&table)?.def().clone();
        let segment = self.open(&def, meta);
        Some((segment, self.tips.get_mut(&table)?))
    }
}
