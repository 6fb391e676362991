//! Backups: a folder with everything that is true of a database at one lsn, taken while it serves.
//!
//! A backup is made of one published root (S2). The segments of that root never change, so their files are copied as
//! they are; they stay for as long as the backup holds them (G1). The heads, whose truth is the log, are written as
//! segments of their own, first of all, so that the root can be let go: a long backup then holds back files, at most
//! those of that root, and no memory. No log is copied. What is derived (indexes, pages, the lake) is not in it.
//!
//! `BACKUP` is written last and names every file with its checksum: a folder without it is no backup, so half of one
//! never passes for a whole. Files are copied, not linked: a link would share its bytes, and with them their damage.
//! The bytes are drawn in `docs/format.md`.

mod copy;
mod forward;
mod marker;
mod restore;
mod verify;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use commitlog::edit::SegmentMeta;
use table::{Segment, Snapshot, segment};
use types::{Error, Kind, Lsn, Micros, Result, TableDef, ViewDef};

use crate::manifest::Manifest;
use crate::shared::Shared;
use crate::times::Times;
use copy::{Made, copy, read_crc};
use marker::{Listed, Marker};

pub use restore::{Restore, Restored, Target, restore};
pub use verify::{Verified, is_backup, verify};

/// The manifest's name in a backup: another than in a data directory, so that none is opened and changed by mistake.
pub(crate) const MANIFEST_NAME: &str = "manifest";

/// How far a backup or a restore has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub done_bytes: u64,
    /// About.
    pub total_bytes: u64,
}

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// It holds exactly the commits up to here.
    pub lsn: Lsn,
    /// When the last of them was made.
    pub time: Micros,
    pub tables: usize,
    pub rows: u64,
    pub files: usize,
    pub bytes: u64,
}

/// A segment to be copied, held so that its files stay.
struct Held {
    def: Arc<TableDef>,
    segment: Arc<Segment>,
}

/// Takes a backup of the newest root into the folder `dest`, which must be empty or not there yet.
///
/// `progress` is called after every step of at most some MiB; an error from it ends the backup. What was written by
/// then is removed, as after any failure.
pub(crate) fn take(
    shared: &Arc<Shared>,
    dest: &Path,
    progress: &mut dyn FnMut(Progress) -> Result<()>,
) -> Result<Backup> {
    shared.check_open()?;
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
    let mut made = Made::claim(&shared.env, dest)?;
    match write(shared, dest, &mut made, progress) {
        Ok(backup) => Ok(backup),
        Err(error) => {
            made.remove(&shared.env);
            Err(match error.kind() {
                Kind::Damaged if error.hint_text().is_none() => error.hint(
                    "no backup was taken of damaged data: restore the table from an earlier backup, or drop it",
                ),
                _ => error,
            })
        }
    }
}

/// The data directory that a folder lies in, if it does, also by a link.
fn database_around(env: &vfs::Env, dest: &Path) -> Option<PathBuf> {
    let exists = |path: PathBuf| env.disk.exists(&path).unwrap_or(false);
    let is_database = |dir: &&Path| {
        exists(dir.join("log")) && exists(dir.join("tables")) && crate::manifest::is_there(env, dir)
    };
    let whole = std::path::absolute(dest).unwrap_or_else(|_| dest.to_owned());
    let real = whole.ancestors().find_map(|dir| dir.canonicalize().ok());
    let around =
        dest.ancestors().chain(whole.ancestors()).chain(real.iter().flat_map(|real| real.ancestors()));
    around.filter(|dir| !dir.as_os_str().is_empty()).find(is_database).map(Path::to_owned)
}

fn write(
    shared: &Arc<Shared>,
    dest: &Path,
    made: &mut Made,
    progress: &mut dyn FnMut(Progress) -> Result<()>,
) -> Result<Backup> {
    let env = &shared.env;
    let root = shared.root.load_full();
    let total_bytes = root.tables().map(|table| table.bytes()).sum();
    let mut done_bytes = 0;
    let mut tick = |bytes: u64| {
        if shared.closing.load(Ordering::Acquire) {
            return Err(Error::new(Kind::Closed, "the database is closing; the backup was not taken"));
        }
        done_bytes += bytes;
        progress(Progress { done_bytes, total_bytes })
    };
    let rows = root.tables().map(|table| table.rows()).sum();
    let mut files: Vec<Listed> = Vec::new();
    made.dir(env, dest.join("tables"))?;
    let mut held: Vec<Held> = Vec::new();
    let mut states = Vec::with_capacity(root.table_count());
    let needs: Vec<String> = root.tables().filter(|table| table.has_evicted()).map(|t| in_lake(t)).collect();
    for table in root.tables() {
        let def = table.def();
        let dir = segment::table_dir(dest, def.id);
        if table.head_rows() > 0 || table.segments().len() > 0 {
            made.dir(env, dir.clone())?;
        }
        held.extend(table.segments().map(|s| Held { def: def.clone(), segment: s.clone() }));
        if table.head_rows() == 0 {
            states.push(table.state().without_past());
            continue;
        }
        let meta = seal_head(shared, table, &dir, made, &mut tick)?;
        for name in segment::file_names(meta.id) {
            let relative = segment::table_dir(Path::new(""), def.id).join(&name);
            files.push(read_crc(env, dest, &relative)?);
        }
        states.push(table.state_sealed(meta));
    }
    let manifest = Manifest {
        lsn: root.lsn,
        time: root.time,
        replay_from: root.lsn.next(),
        next_table: root.meta.next_table,
        next_segment: shared.next_segment(),
        keys: root.meta.keys.clone(),
        // What is derived begins anew in what is restored.
        checkpoints: Vec::new(),
        tables: states,
        views: root.views().map(|view| ViewDef::clone(view)).collect(),
        times: Times::from(root.time, root.lsn),
    };
    let (lsn, time, tables) = (root.lsn, root.time, root.table_count());
    // From here on only the segments are held: files, and no memory.
    drop(root);
    for held in held {
        let id = held.def.id;
        let (from_dir, to_dir) = (segment::table_dir(&shared.dir, id), segment::table_dir(dest, id));
        for name in segment::names_of(&held.segment) {
            let relative = segment::table_dir(Path::new(""), id).join(&name);
            let to = made.file(to_dir.join(&name));
            let (bytes, crc) = copy(env, &from_dir.join(&name), &to, &mut tick)?;
            files.push(Listed { path: relative, bytes, crc });
        }
        // The copy is checked, so what was damaged before is noticed now and not when it is needed.
        let copied = Segment::open(env, &to_dir, &held.def, held.segment.meta().clone());
        let checked = copied.verify_checksums(&mut |_| tick(0));
        checked.map_err(|error| match error.kind() {
            Kind::Damaged => blame(shared, &held, &from_dir, error, &mut tick),
            _ => error,
        })?;
    }
    let text = needs.iter().map(|need| format!("{need}\n")).collect::<String>();
    if !text.is_empty() {
        let path = made.file(dest.join(marker::LAKE));
        copy::write_file(env, &path, text.as_bytes())?;
        files.push(read_crc(env, dest, Path::new(marker::LAKE))?);
    }
    let bytes = manifest.encode();
    let path = made.file(dest.join(MANIFEST_NAME));
    copy::write_file(env, &path, &bytes)?;
    files.push(Listed {
        path: PathBuf::from(MANIFEST_NAME),
        bytes: bytes.len() as u64,
        crc: crc32c::crc32c(&bytes),
    });
    made.sync_dirs(env)?;
    let backup =
        Backup { lsn, time, tables, rows, files: files.len(), bytes: files.iter().map(|f| f.bytes).sum() };
    let archive = shared.archive.as_ref().map(|archive| archive.id);
    Marker { lsn, time, rows, tables: tables as u64, archive, files }.write(env, dest, made)?;
    Ok(backup)
}

/// What a backup lacks of a table, and where that is.
fn in_lake(table: &Snapshot) -> String {
    let (rows, _) = table.evicted();
    let place = table.lake_place().unwrap_or_else(|| "a lake that is not open".into());
    format!(
        "table {}: {rows} rows up to row id {} are in the lake alone: {place}",
        types::name::short_table_name(&table.def().name),
        table.hot_from().0 - 1
    )
}

/// Which of a segment's files is damaged if its copy is: that of the database as a rule, else the copy itself.
fn blame(
    shared: &Arc<Shared>,
    held: &Held,
    from_dir: &Path,
    error: Error,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Error {
    let source = Segment::open(&shared.env, from_dir, &held.def, held.segment.meta().clone());
    let found = match source.verify_checksums(&mut |_| tick(0)) {
        Err(found) if found.kind() == Kind::Damaged => found,
        Err(found) => return found,
        Ok(()) => {
            return error.with("table", &held.def.name).hint(
                "the database's own file is whole, so what is written there does not stay as it is: check that disk, or name a \
                 folder on another one",
            );
        }
    };
    let found = found.with("table", &held.def.name);
    if !source.is_mendable(&mut |_| tick(0)) {
        return found;
    }
    held.segment.write_anew();
    shared.wake_background();
    found.hint(
        "no rows are lost: that file is being made anew out of them, in the background; take the backup again in a moment",
    )
}

/// Writes the head of a table as a segment of the backup.
fn seal_head(
    shared: &Arc<Shared>,
    table: &Snapshot,
    dir: &Path,
    made: &mut Made,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<SegmentMeta> {
    // An id that no segment of the database has, nor will have.
    let id = shared.take_segment_id();
    segment::file_names(id).into_iter().for_each(|name| drop(made.file(dir.join(name))));
    table::seal(table, &shared.env, dir, id, table.next_row(), tick)
}

/// Reads what a backup says it holds, without reading its files.
pub fn describe(env: &vfs::Env, dir: &Path) -> Result<Backup> {
    Marker::read(env, dir).map(|marker| describe_marker(&marker))
}

fn describe_marker(marker: &Marker) -> Backup {
    Backup {
        lsn: marker.lsn,
        time: marker.time,
        tables: marker.tables as usize,
        rows: marker.rows,
        files: marker.files.len(),
        bytes: marker.files.iter().map(|file| file.bytes).sum(),
    }
}
