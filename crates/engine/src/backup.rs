//! Backups: a folder with the complete state of a database at one lsn, taken while it serves.
//!
//! A backup is made of one published root (S2). The segments of that root never change, so their files are copied as they
//! are; they stay for as long as the backup holds them (G1). The heads, whose truth is the log, are written as segments of
//! their own, and first of all, so that the root can be released. A long backup then holds back files, at most those of that
//! root, but no memory. The log is not copied. Derived data (indexes, pages, the lake) is not in a backup.
//!
//! `BACKUP` is written last and names every file with its checksum. A folder without it is not a backup, so half of one
//! never passes for a whole. Files are copied, not linked: a link would share its bytes, and with them their damage.
//! `docs/format.md` draws the bytes.
//!
//! A backup that goes to a [`BackupStore`] instead of a folder is sent by `send.rs`.

mod copy;
mod file_sum;
mod forward;
mod marker;
mod restore;
mod send;
mod store;
mod verify;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use commitlog::edit::SegmentMeta;
use table::{Segment, Snapshot, segment};
use types::{Error, Kind, Lsn, Micros, Result, TableDef, ViewDef};

use crate::commit_times::CommitTimes;
use crate::manifest::Manifest;
use crate::shared_state::Shared;
use copy::{CreatedFiles, copy, read_sum};
use marker::{ListedFile, Marker};

pub(crate) use file_sum::FileSum;
use restore::lacks_of;
pub use restore::{Restore, RestorePoint, RestoreSources, Restored, restore, restore_from};
#[cfg(test)]
pub(crate) use send::OUTGOING;
pub use send::SentBackup;
pub(crate) use send::{clear_outgoing, send};
pub(crate) use store::checksum;
pub use store::{BackupSource, BackupStore, LocalFolder, SourceFile};
pub use verify::{VerifiedBackup, is_backup, verify};

/// Name of the manifest in a backup. It differs from that in a data directory, so that no backup is opened and changed by
/// mistake.
pub(crate) const MANIFEST_NAME: &str = "manifest";

/// Progress of a backup or a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub done_bytes: u64,
    /// An estimate.
    pub total_bytes: u64,
}

/// Summary of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// It holds exactly the commits up to this one.
    pub lsn: Lsn,
    /// Time of the last of them.
    pub time: Micros,
    pub tables: usize,
    pub rows: u64,
    pub files: usize,
    pub bytes: u64,
    /// One line for each table with rows that are counted and not in the backup, since only the lake has them.
    pub lacks: Vec<String>,
}

/// A segment to be copied, held so that its files stay.
struct HeldSegment {
    def: Arc<TableDef>,
    segment: Arc<Segment>,
}

/// Takes a backup of the newest root into the folder `dest`, which must be empty or absent.
///
/// `progress` is called after every step, of a few MiB at most; an error from it ends the backup. The files written by then
/// are removed, as after any failure.
pub(crate) fn take(
    shared: &Arc<Shared>,
    dest: &Path,
    progress: &mut dyn FnMut(Progress) -> Result<()>,
) -> Result<Backup> {
    shared.check_open()?;
    if let Some(error) = shared.write_error.load().as_deref().filter(|error| error.kind() == Kind::Damaged) {
        return Err(error.clone().hint(
            "a backup would lack those commits too: restore an earlier one; COPY … TO writes out what can still be read",
        ));
    }
    if dest.starts_with(&shared.dir) {
        return Err(Error::invalid(format!("{} lies in the data directory itself", dest.display()))
            .hint("name a folder elsewhere, best on another disk"));
    }
    if let Some(database) = database_around(&shared.env, dest) {
        return Err(Error::invalid(format!(
            "{} lies in a data directory, {}",
            dest.display(),
            database.display()
        ))
        .hint("name a folder elsewhere, best on another disk"));
    }
    let mut made = CreatedFiles::claim(&shared.env, dest)?;
    match write(shared, dest, &mut made, progress) {
        Ok(backup) => Ok(backup),
        Err(error) => {
            made.remove(&shared.env);
            Err(with_damage_hint(error))
        }
    }
}

/// Adds the hint for damage to an error that has none.
fn with_damage_hint(error: Error) -> Error {
    match error.kind() {
        Kind::Damaged if error.hint_text().is_none() => error.hint(
            "no backup was taken of damaged data: restore the table from an earlier backup, or drop it",
        ),
        _ => error,
    }
}

/// Returns the data directory in which a folder lies, also by a link.
fn database_around(env: &vfs::Env, dest: &Path) -> Option<PathBuf> {
    let exists = |path: PathBuf| env.disk.exists(&path).unwrap_or(false);
    let is_database = |dir: &&Path| {
        exists(dir.join("log")) && exists(dir.join("tables")) && crate::manifest::exists(env, dir)
    };
    let whole = std::path::absolute(dest).unwrap_or_else(|_| dest.to_owned());
    let real = whole.ancestors().find_map(|dir| dir.canonicalize().ok());
    let around =
        dest.ancestors().chain(whole.ancestors()).chain(real.iter().flat_map(|real| real.ancestors()));
    around.filter(|dir| !dir.as_os_str().is_empty()).find(is_database).map(Path::to_owned)
}

/// The contents of a backup. From here on only segments are held: files and no memory.
struct BackupContent {
    held: Vec<HeldSegment>,
    /// Paths of the segments made of heads.
    sealed: Vec<PathBuf>,
    /// Text of the `LAKE` file: the rows that only the lake has, which the backup lacks.
    lacks: Option<String>,
    manifest: Manifest,
    rows: u64,
}

impl BackupContent {
    /// Gathers the contents of the newest root. Its heads become segments in `dir`.
    fn gather(
        shared: &Arc<Shared>,
        dir: &Path,
        made: &mut CreatedFiles,
        total_bytes: &Cell<u64>,
        tick: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<BackupContent> {
        let env = &shared.env;
        let root = shared.root.load_full();
        total_bytes.set(root.tables().map(|table| table.bytes()).sum());
        made.dir(env, dir.join("tables"))?;
        let (mut held, mut sealed) = (Vec::new(), Vec::new());
        let mut states = Vec::with_capacity(root.table_count());
        let lacks: String =
            root.tables().filter(|table| table.has_evicted()).map(|t| evicted_rows_line(t)).collect();
        let lacks = Some(lacks).filter(|text| !text.is_empty());
        for table in root.tables() {
            let def = table.def();
            let table_dir = segment::table_dir(dir, def.id);
            if table.head_rows() > 0 || table.segments().len() > 0 {
                made.dir(env, table_dir.clone())?;
            }
            held.extend(table.segments().map(|s| HeldSegment { def: def.clone(), segment: s.clone() }));
            if table.head_rows() == 0 {
                states.push(table.state().without_past());
                continue;
            }
            let meta = seal_head(shared, table, &table_dir, made, tick)?;
            let relative = segment::table_dir(Path::new(""), def.id);
            sealed.extend(segment::file_names(meta.id).into_iter().map(|name| relative.join(name)));
            states.push(table.state_sealed(meta));
        }
        let manifest = Manifest {
            lsn: root.lsn,
            time: root.time,
            replay_from: root.lsn.next(),
            next_table: root.meta.next_table,
            next_segment: shared.next_segment(),
            keys: root.meta.keys.clone(),
            // Derived data begins anew in a restored database.
            checkpoints: Vec::new(),
            tables: states,
            views: root.views().map(|view| ViewDef::clone(view)).collect(),
            times: CommitTimes::from(root.time, root.lsn),
        };
        Ok(BackupContent {
            held,
            sealed,
            lacks,
            manifest,
            rows: root.tables().map(|table| table.rows()).sum(),
        })
    }

    fn lacks(&self) -> Vec<String> {
        self.lacks.iter().flat_map(|text| text.lines()).map(str::to_owned).collect()
    }

    /// Returns the marker of a backup whose other files are in place.
    fn marker(&self, shared: &Shared, is_named_by_content: bool, files: Vec<ListedFile>) -> Marker {
        Marker {
            lsn: self.manifest.lsn,
            time: self.manifest.time,
            rows: self.rows,
            tables: self.manifest.tables.len() as u64,
            archive: shared.archive.as_ref().map(|archive| archive.id),
            is_named_by_content,
            files,
        }
    }
}

fn write(
    shared: &Arc<Shared>,
    dest: &Path,
    made: &mut CreatedFiles,
    progress: &mut dyn FnMut(Progress) -> Result<()>,
) -> Result<Backup> {
    let env = &shared.env;
    let total_bytes = Cell::new(0);
    let mut tick = ticker(shared, &total_bytes, progress);
    let content = BackupContent::gather(shared, dest, made, &total_bytes, &mut tick)?;
    let mut files: Vec<ListedFile> = Vec::new();
    for relative in &content.sealed {
        files.push(read_sum(env, dest, relative)?);
    }
    for held in &content.held {
        let id = held.def.id;
        let (from_dir, to_dir) = (segment::table_dir(&shared.dir, id), segment::table_dir(dest, id));
        let from = LocalFolder::new(env, &from_dir);
        for name in segment::names_of(&held.segment) {
            let relative = segment::table_dir(Path::new(""), id).join(&name);
            let to = made.file(to_dir.join(&name));
            let sum = copy(env, &from, &name, &to, &mut tick)?;
            files.push(ListedFile { path: relative, sum });
        }
        // The copy is checked, so that earlier damage is noticed now and not when the backup is needed.
        let copied = Segment::open(env, &to_dir, &held.def, held.segment.meta().clone());
        let checked = copied.verify_checksums(&mut |_| tick(0));
        checked.map_err(|error| match error.kind() {
            Kind::Damaged => find_damaged_file(shared, held, &from_dir, error, &mut tick),
            _ => error,
        })?;
    }
    if let Some(text) = &content.lacks {
        let path = made.file(dest.join(marker::LAKE));
        copy::write_file(env, &path, text.as_bytes())?;
        files.push(listed(marker::LAKE, text.as_bytes()));
    }
    let bytes = content.manifest.encode();
    let path = made.file(dest.join(MANIFEST_NAME));
    copy::write_file(env, &path, &bytes)?;
    files.push(listed(MANIFEST_NAME, &bytes));
    made.sync_dirs(env)?;
    let marker = content.marker(shared, false, files);
    marker.write(env, dest, made)?;
    Ok(describe_marker(&marker, content.lacks()))
}

fn listed(name: &str, bytes: &[u8]) -> ListedFile {
    ListedFile { path: PathBuf::from(name), sum: FileSum::of(bytes) }
}

/// Returns a callback that counts the bytes done, and ends the backup if the database closes.
fn ticker<'a>(
    shared: &'a Shared,
    total_bytes: &'a Cell<u64>,
    progress: &'a mut dyn FnMut(Progress) -> Result<()>,
) -> impl FnMut(u64) -> Result<()> + 'a {
    let mut done_bytes = 0;
    move |bytes| {
        if shared.closing.load(Ordering::Acquire) {
            return Err(Error::new(Kind::Closed, "the database is closing; the backup was not taken"));
        }
        done_bytes += bytes;
        progress(Progress { done_bytes, total_bytes: total_bytes.get() })
    }
}

/// Returns the line about the rows of a table that the backup lacks, and their place.
fn evicted_rows_line(table: &Snapshot) -> String {
    let (rows, _) = table.evicted();
    let place = table.lake_place().unwrap_or_else(|| "a lake that is not open".into());
    format!(
        "table {}: {rows} rows up to row id {} are only in the lake: {place}\n",
        types::name::short_table_name(&table.def().name),
        table.hot_from().0 - 1
    )
}

/// Finds the damaged file if the copy of a segment is damaged: usually that of the database, otherwise the copy itself.
fn find_damaged_file(
    shared: &Arc<Shared>,
    held: &HeldSegment,
    from_dir: &Path,
    error: Error,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Error {
    match check_source(shared, held, from_dir, tick) {
        Err(found) => found,
        Ok(()) => error.with("table", &held.def.name).hint(
            "the database's own file is whole, so the disk of the backup does not keep what is written to it: check that \
             disk, or name a folder on another one",
        ),
    }
}

/// Checks the files of a segment in the database itself. A file that can be made anew from the others is marked for that.
fn check_source(
    shared: &Arc<Shared>,
    held: &HeldSegment,
    from_dir: &Path,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let source = Segment::open(&shared.env, from_dir, &held.def, held.segment.meta().clone());
    let found = match source.verify_checksums(&mut |_| tick(0)) {
        Err(found) if found.kind() == Kind::Damaged => found.with("table", &held.def.name),
        checked => return checked,
    };
    if !source.is_mendable(&mut |_| tick(0)) {
        return Err(found);
    }
    held.segment.mark_for_rewrite();
    shared.wake_background();
    Err(found.hint(
        "no rows are lost: that file is being rebuilt from them in the background; take the backup again in a moment",
    ))
}

/// Writes the head of a table as a segment of the backup.
fn seal_head(
    shared: &Arc<Shared>,
    table: &Snapshot,
    dir: &Path,
    made: &mut CreatedFiles,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<SegmentMeta> {
    // The id is one that no segment of the database has or will have.
    let id = shared.take_segment_id();
    segment::file_names(id).into_iter().for_each(|name| drop(made.file(dir.join(name))));
    table::seal(table, &shared.env, dir, id, table.next_row(), tick)
}

/// Reads the summary of a backup, without reading its files.
pub fn describe(env: &vfs::Env, dir: &Path) -> Result<Backup> {
    let source = LocalFolder::new(env, dir);
    let marker = Marker::read(&source)?;
    Ok(describe_marker(&marker, lacks_of(&source, &marker)?))
}

fn describe_marker(marker: &Marker, lacks: Vec<String>) -> Backup {
    Backup {
        lsn: marker.lsn,
        time: marker.time,
        tables: marker.tables as usize,
        rows: marker.rows,
        files: marker.files.len(),
        bytes: marker.files.iter().map(|file| file.sum.bytes).sum(),
        lacks,
    }
}
