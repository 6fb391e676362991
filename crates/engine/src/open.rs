//! Opens a directory: reads the manifest, replays the log after it, and removes files that a crash left over.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use commitlog::edit::{self, Edit, SegmentMeta};
use commitlog::record::{Frame, InsertedRows, Section};
use table::materializer::Checkpoint;
use table::{Segment, Tip, segment};
use types::{Error, Kind, Lsn, Micros, Result, RowId, SegmentId, TableDef, TableId};
use vfs::Env;

use crate::backup;
use crate::commit_times::CommitTimes;
use crate::database_root::{DatabaseRoot, Meta};
use crate::manifest::{self, Manifest};
use crate::options::Options;

/// The state that opening a directory recovered.
pub(crate) struct RecoveredState {
    pub log: commitlog::Writer,
    pub tips: HashMap<TableId, Tip>,
    pub meta: Meta,
    pub root: DatabaseRoot,
    pub next_segment: SegmentId,
    pub manifest_lsn: Lsn,
    /// Set if the log is damaged: the recovered part serves reads.
    pub damage: Option<Error>,
    /// Bytes of unacknowledged commits that recovery cut off the end of the log ([`commitlog::Recovery::torn_bytes`]).
    pub torn_bytes: u64,
}

/// Recovers the database in `dir`, which must exist and be locked.
pub(crate) fn open(env: &Env, dir: &Path, options: &Options) -> Result<RecoveredState> {
    make_dirs(env, dir)?;
    let manifest = match manifest::recover(env, dir)? {
        Some(manifest) => manifest,
        None => new_manifest(env, dir)?,
    };
    let mut replay = Replay::new(env, dir, &manifest)?;
    let visit = &mut |frame: Frame| replay.frame(frame);
    // Everything in a manifest was durable when it was made, so a log that lacks a part of it is damaged.
    let (log, recovery) = commitlog::Log::open_known(
        env,
        &dir.join("log"),
        options.log.clone(),
        manifest.replay_from,
        manifest.lsn,
        visit,
    )?;
    let lsn = recovery.last_lsn.max(manifest.lsn);
    if recovery.damage.is_none() {
        replay.remove_orphans()?;
        manifest::remove_temporaries(env, dir)?;
        backup::clear_outgoing(env, dir)?;
    }
    let Replay { tips, meta, time, times, next_segment, .. } = replay;
    let snapshot = |tip: &Tip| (Arc::from(tip.def().name.as_str()), tip.snapshot(lsn));
    let root = DatabaseRoot {
        lsn,
        time,
        made: env.clock.monotonic(),
        tables: tips.values().map(snapshot).collect(),
        meta: Arc::new(meta.clone()),
        times,
        derived: imbl::OrdMap::new(),
    };
    if let Some(damage) = &recovery.damage {
        // A lake is opened by a commit, and there are no commits until the log is repaired.
        root.tables
            .values()
            .flat_map(|table| table.segments())
            .for_each(|segment| segment.note_lake_error(damage));
    }
    Ok(RecoveredState {
        log,
        tips,
        meta,
        root,
        next_segment,
        manifest_lsn: manifest.lsn,
        damage: recovery.damage,
        torn_bytes: recovery.torn_bytes,
    })
}

/// Makes a directory and its missing parents, each durable by name.
pub(crate) fn make_dir(env: &Env, dir: &Path) -> std::io::Result<()> {
    let parent = dir.parent().unwrap_or(Path::new(""));
    if !env.disk.exists(dir)? {
        if !parent.as_os_str().is_empty() {
            make_dir(env, parent)?;
        }
        env.disk.create_dir_all(dir)?;
    }
    // Synced even if the directory exists: its creator may have died before the name was durable.
    env.disk.sync_dir(parent)
}

fn make_dirs(env: &Env, dir: &Path) -> Result<()> {
    let make = || -> std::io::Result<()> {
        for name in ["log", "tables", "derived"] {
            let path = dir.join(name);
            if !env.disk.exists(&path)? {
                env.disk.create_dir_all(&path)?;
            }
        }
        env.disk.sync_dir(dir)?;
        // A process that was killed may have left a table's directory whose name is not durable yet. From now on, segments
        // in it count as stored.
        env.disk.sync_dir(&dir.join("tables"))
    };
    make().map_err(|e| Error::io(format!("making the directories in {}", dir.display()), e))
}

/// Writes the first manifest. A directory without a manifest is new, unless it holds data that only a manifest could
/// explain.
fn new_manifest(env: &Env, dir: &Path) -> Result<Manifest> {
    let list = |name: &str| {
        env.disk
            .list(&dir.join(name))
            .map_err(|e| Error::io(format!("listing {name} in {}", dir.display()), e))
    };
    if !list("tables")?.is_empty() || !list("log")?.is_empty() {
        return Err(Error::damaged(format!("{} holds data but no manifest", dir.display()))
            .hint("nothing can be read without it: restore a backup, see docs/backup.md"));
    }
    let manifest = Manifest {
        replay_from: Lsn(1),
        next_table: TableId(1),
        next_segment: SegmentId(1),
        ..Manifest::default()
    };
    manifest::write(env, dir, &manifest)?;
    Ok(manifest)
}

/// Applies the log's frames to the state that the manifest describes.
pub(crate) struct Replay<'a> {
    env: &'a Env,
    dir: &'a Path,
    manifest_lsn: Lsn,
    pub tips: HashMap<TableId, Tip>,
    pub meta: Meta,
    pub time: Micros,
    pub times: CommitTimes,
    pub next_segment: SegmentId,
}

impl<'a> Replay<'a> {
    pub fn new(env: &'a Env, dir: &'a Path, manifest: &Manifest) -> Result<Self> {
        let mut replay = Replay {
            env,
            dir,
            manifest_lsn: manifest.lsn,
            tips: HashMap::new(),
            meta: manifest.meta(),
            time: manifest.time,
            times: manifest.times.clone(),
            next_segment: manifest.next_segment,
        };
        for state in &manifest.tables {
            let segments =
                state.segments.iter().map(|meta| replay.open_segment(&state.def, meta.clone())).collect();
            let put_away = state.past.segments.iter();
            let past = put_away.map(|(meta, _)| replay.open_segment(&state.def, meta.clone())).collect();
            let id = state.def.id;
            replay.tips.insert(id, Tip::restore(state.clone(), segments, past)?);
        }
        Ok(replay)
    }

    fn open_segment(&mut self, def: &TableDef, meta: SegmentMeta) -> Arc<Segment> {
        self.next_segment = self.next_segment.max(meta.id.next());
        Segment::open(self.env, &segment::table_dir(self.dir, def.id), def, meta)
    }

    pub fn frame(&mut self, frame: Frame) -> Result<()> {
        let at = |offset: u32| Lsn(frame.first_lsn.0 + u64::from(offset));
        if frame.last_lsn() > self.manifest_lsn {
            self.time = self.time.max(frame.time);
            self.times.push(self.time, frame.last_lsn());
        }
        for section in frame.sections {
            match section {
                Section::Rows(rows) => self.rows(rows, frame.first_lsn, frame.time)?,
                Section::Deletes(deletes) => {
                    let mut rows = deletes.rows.into_iter();
                    for run in &deletes.runs {
                        let ended: Vec<RowId> = rows.by_ref().take(run.count as usize).collect();
                        if let Some(tip) = self.tip(deletes.table, at(run.lsn_offset))? {
                            tip.delete(ended, at(run.lsn_offset));
                        }
                    }
                }
                Section::Edit { lsn_offset, edit } => {
                    let lsn = at(lsn_offset);
                    if lsn > self.manifest_lsn {
                        self.edit(edit, lsn).map_err(|e| e.with("lsn", lsn))?;
                    }
                }
                // This version writes none of them. A directory that has them was written by a later version, and its
                // manifest says so.
                Section::Idempotency(_) | Section::Cursor(_) => {
                    return Err(Error::new(
                        Kind::Newer,
                        "the log holds records that this program does not know",
                    )
                    .hint("open this directory with the newer Polynya that wrote it"));
                }
            }
        }
        Ok(())
    }

    fn rows(&mut self, rows: InsertedRows, first_lsn: Lsn, time: Micros) -> Result<()> {
        let InsertedRows { table, first_row, runs, batch, .. } = rows;
        let runs: Vec<(Lsn, u64)> = runs
            .iter()
            .map(|run| (Lsn(first_lsn.0 + u64::from(run.lsn_offset)), u64::from(run.count)))
            .collect();
        let Some(last) = runs.last() else { return Ok(()) };
        if let Some(tip) = self.tip(table, last.0)? {
            tip.append(first_row, time, &runs, &batch)?;
        }
        Ok(())
    }

    /// Returns the table that a record is about, or `None` if it was dropped before the manifest was written.
    fn tip(&mut self, table: TableId, lsn: Lsn) -> Result<Option<&mut Tip>> {
        match self.tips.get_mut(&table) {
            Some(tip) => Ok(Some(tip)),
            None if lsn <= self.manifest_lsn => Ok(None),
            None => Err(Error::damaged("the log speaks of a table that does not exist")
                .with("table id", table)
                .with("lsn", lsn)),
        }
    }

    fn edit(&mut self, edit: Edit, lsn: Lsn) -> Result<()> {
        match edit {
            Edit::CreateTable(def) => {
                self.meta.next_table = self.meta.next_table.max(def.id.next());
                self.tips.insert(def.id, Tip::created(def, lsn));
            }
            Edit::AlterTable(def) => {
                if let Some(tip) = self.tips.get_mut(&def.id) {
                    tip.alter(def, lsn)?;
                }
            }
            Edit::DropTable(table) => {
                self.tips.remove(&table);
                self.meta.checkpoints.retain(|(_, of), _| *of != table);
            }
            Edit::Seal { table, segment, kept } => {
                let Some(kept) = self.kept(table, kept) else { return Ok(()) };
                self.add_segment(table, segment, |tip, s| tip.apply_seal(s, kept))?;
            }
            Edit::Compact { table, inputs, output: Some(meta), kept } => {
                let Some(kept) = self.kept(table, kept) else { return Ok(()) };
                self.add_segment(table, meta, |tip, s| tip.apply_compact(&inputs, Some(s), kept))?;
            }
            Edit::Compact { table, inputs, output: None, kept } => {
                let Some(kept) = self.kept(table, kept) else { return Ok(()) };
                if let Some(tip) = self.tips.get_mut(&table) {
                    tip.apply_compact(&inputs, None, kept)?;
                }
            }
            Edit::Forget { table, segments, floor } => {
                if let Some(tip) = self.tips.get_mut(&table) {
                    tip.forget(&segments, floor);
                }
            }
            Edit::Checkpoint { materializer, table, row, lsn, state } => {
                self.meta.checkpoints.insert((materializer, table), Checkpoint { row, lsn, state });
            }
            Edit::PutKey(api_key) => self.meta.put_key(api_key),
            Edit::RemoveKey { name } => self.meta.keys.retain(|key| key.name != name),
            Edit::PutView(view) => drop(self.meta.views.insert(view.name.clone(), Arc::new(view))),
            Edit::DropView { name } => drop(self.meta.views.remove(&name)),
        }
        Ok(())
    }

    /// Opens the rows that a seal or a compaction retained for readers of the past. The outer `None` means that the table is
    /// gone.
    fn kept(
        &mut self,
        table: TableId,
        kept: Option<edit::RetainedRowsMeta>,
    ) -> Option<Option<table::RetainedRows>> {
        let def = self.tips.get(&table).map(|tip| tip.def().clone())?;
        Some(kept.map(|edit::RetainedRowsMeta { floor, last_end, segment }| {
            let segment = segment.map(|meta| self.open_segment(&def, meta));
            table::RetainedRows { after: floor, floor: Some(floor), last_end, segment }
        }))
    }

    fn add_segment(
        &mut self,
        table: TableId,
        meta: SegmentMeta,
        apply: impl FnOnce(&mut Tip, Arc<Segment>) -> Result<()>,
    ) -> Result<()> {
        let Some(def) = self.tips.get(&table).map(|tip| tip.def().clone()) else { return Ok(()) };
        let segment = self.open_segment(&def, meta);
        match self.tips.get_mut(&table) {
            Some(tip) => apply(tip, segment),
            None => Ok(()),
        }
    }

    /// Removes files that an interrupted seal, compaction or drop left behind and that nothing names. Only files with names
    /// that Polynya gives go: a copy that somebody put beside them stays.
    pub fn remove_orphans(&self) -> Result<()> {
        let disk = &self.env.disk;
        let list =
            |path: &Path| disk.list(path).map_err(|e| Error::io(format!("listing {}", path.display()), e));
        let tables = self.dir.join("tables");
        for entry in list(&tables)?.into_iter().filter(|entry| entry.is_dir) {
            let dir = tables.join(&entry.name);
            let Some(table) = canonical(&entry.name).map(TableId) else { continue };
            let tip = self.tips.get(&table);
            let snapshot = tip.map(|tip| tip.snapshot(Lsn(0)));
            let known: Vec<String> = snapshot
                .iter()
                .flat_map(|s| s.segments().chain(s.past_segments().map(|(segment, _)| segment)))
                .flat_map(|s| segment::file_names(s.id()))
                .collect();
            let orphan = |file: &vfs::Entry| {
                !file.is_dir && is_segment_file(&file.name) && !known.contains(&file.name)
            };
            for file in list(&dir)?.into_iter().filter(orphan) {
                let path = dir.join(&file.name);
                disk.remove(&path).map_err(|e| Error::io(format!("removing {}", path.display()), e))?;
            }
            if tip.is_none() {
                // The directory stays if files of others are in it.
                let _ = disk.remove_dir(&dir);
            }
        }
        Ok(())
    }
}

/// Parses a number as Polynya writes it in a name: without a sign and without leading zeros.
pub(crate) fn canonical<T: std::str::FromStr + ToString>(name: &str) -> Option<T> {
    name.parse().ok().filter(|number: &T| number.to_string() == name)
}

/// Returns true for the name of a segment's file, finished or being written.
pub(crate) fn is_segment_file(name: &str) -> bool {
    let name = name.strip_suffix(".tmp").unwrap_or(name);
    let stem = name.strip_suffix(".arrow").or_else(|| name.strip_suffix(".meta"));
    stem.is_some_and(|stem| canonical::<u64>(stem).is_some())
}
