//! Restores a data directory from a backup, and from the archive of the log for later commits.
//!
//! The manifest is written last, and a directory without one is not opened: a half-restored directory never serves.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use table::segment;
use types::{Error, Kind, Lsn, Micros, Result};
use vfs::Env;

use super::copy::{CreatedFiles, copy};
use super::file_sum::FileSum;
use super::forward;
use super::marker::{LAKE, ListedFile, Marker};
use super::store::{BackupSource, LocalFolder, read_whole};
use super::{MANIFEST_NAME, Progress};
use crate::database_root::DatabaseRoot;
use crate::manifest::{self, Manifest};
use crate::open::Replay;

/// The point up to which a backup is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestorePoint {
    /// The commits up to this one.
    Lsn(Lsn),
    /// The commits made up to this time.
    Time(Micros),
}

/// Options of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restore {
    /// The target; `None` restores everything.
    pub to: Option<RestorePoint>,
    /// The archive of the log that has the commits after the backup.
    pub archive: Option<PathBuf>,
}

/// Result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The directory holds exactly the commits up to this one.
    pub lsn: Lsn,
    /// Time of the last of them.
    pub time: Micros,
    pub tables: usize,
    pub rows: u64,
    /// Number of commits that came from the archive.
    pub replayed: u64,
    /// True if the archive has no commit after the target time. Commits between its last one and that time, if there were
    /// any, are missing.
    pub is_short: bool,
    /// One line for each table with rows that only the lake had when the backup was taken, and that are not in it: their
    /// number, table and place.
    pub lacks: Vec<String>,
}

/// Makes a data directory in `dest`, which must be empty or absent, out of the backup in `src`.
///
/// Every file is compared with its checksum: [`types::Kind::Damaged`] names one that differs. `progress` is called after
/// every step, of a few MiB at most; an error from it ends the restore. After a failure the files made so far are removed.
pub fn restore(
    env: &Env,
    src: &Path,
    dest: &Path,
    options: &Restore,
    progress: &mut dyn FnMut(Progress) -> Result<()>,
) -> Result<Restored> {
    let archive = options.archive.as_ref().map(|dir| LocalFolder::new(env, dir));
    let from = RestoreSources {
        backup: &LocalFolder::new(env, src),
        archive: archive.as_ref().map(|folder| folder as _),
    };
    restore_from(env, from, dest, options.to, progress)
}

/// The sources of a restore.
#[derive(Clone, Copy)]
pub struct RestoreSources<'a> {
    pub backup: &'a dyn BackupSource,
    /// The archive of the log that has the commits after the backup.
    pub archive: Option<&'a dyn BackupSource>,
}

/// Restores like [`restore`], from any kind of source.
pub fn restore_from(
    env: &Env,
    from: RestoreSources<'_>,
    dest: &Path,
    to: Option<RestorePoint>,
    progress: &mut dyn FnMut(Progress) -> Result<()>,
) -> Result<Restored> {
    if let Some(src) = from.backup.path("")
        && (dest.starts_with(&src) || src.starts_with(dest))
    {
        return Err(Error::invalid(format!(
            "{} and {} lie within each other",
            src.display(),
            dest.display()
        )));
    }
    let marker = Marker::read(from.backup)?;
    check_target(&marker, from, to)?;
    let mut made = CreatedFiles::claim(env, dest)?;
    write(env, from, dest, &marker, to, &mut made, progress).inspect_err(|_| made.remove(env))
}

/// Refuses a target that cannot be reached, before anything is copied.
fn check_target(marker: &Marker, from: RestoreSources<'_>, to: Option<RestorePoint>) -> Result<()> {
    let (what, order) = match to {
        None => return Ok(()),
        Some(RestorePoint::Lsn(lsn)) => (format!("lsn {lsn}"), lsn.cmp(&marker.lsn)),
        Some(RestorePoint::Time(time)) => ("that time".to_owned(), time.cmp(&marker.time)),
    };
    if order.is_lt() {
        return Err(Error::invalid(format!(
            "the backup was taken at lsn {}, after {what}: a backup only goes forward",
            marker.lsn
        ))
        .hint("restore an older backup"));
    }
    if order.is_gt() && from.archive.is_none() {
        return Err(Error::invalid(format!("the backup was taken at lsn {}, before {what}", marker.lsn))
            .hint("name the archive of the log that holds the later commits"));
    }
    Ok(())
}

fn write(
    env: &Env,
    from: RestoreSources<'_>,
    dest: &Path,
    marker: &Marker,
    to: Option<RestorePoint>,
    made: &mut CreatedFiles,
    progress: &mut dyn FnMut(Progress) -> Result<()>,
) -> Result<Restored> {
    let source = from.backup;
    let total_bytes = marker.files.iter().map(|file| file.sum.bytes).sum();
    let mut done_bytes = 0;
    let mut tick = |bytes: u64| {
        done_bytes += bytes;
        progress(Progress { done_bytes, total_bytes })
    };
    made.dir(env, dest.join("tables"))?;
    made.dir(env, dest.join("log"))?;
    let dirs: BTreeSet<&Path> = marker.files.iter().filter_map(|file| file.path.parent()).collect();
    for dir in dirs.into_iter().filter(|dir| !dir.as_os_str().is_empty()) {
        made.dir(env, dest.join(dir))?;
    }
    let (mut kept, mut lacks) = (None, Vec::new());
    for file in &marker.files {
        if file.path == Path::new(MANIFEST_NAME) {
            kept = Some(read_manifest(source, marker, file)?);
            continue;
        }
        if file.path == Path::new(LAKE) {
            lacks = read_lacks(source, marker, file)?;
            continue;
        }
        let name = marker.name_of(file);
        let copied = copy(env, source, &name, &made.file(dest.join(&file.path)), &mut tick)?;
        check_file(source, &name, file, copied)?;
    }
    let kept = kept.ok_or_else(|| {
        Error::damaged("the backup lists no manifest").with("backup", source.display_name(""))
    })?;
    check_complete(source, &kept, marker)?;
    let (mut lsn, mut replayed, mut is_short) = (kept.lsn, 0, false);
    let mut replay = Replay::new(env, dest, &kept)?;
    if let Some(archive) = from.archive {
        let pieces = forward::pieces_of(archive, marker, &mut tick)?;
        (lsn, is_short) =
            forward::replay(env, dest, &mut replay, made, archive, &pieces, marker.lsn, to, &mut tick)?;
        replayed = lsn.0 - marker.lsn.0;
    }
    made.sync_dirs(env)?;
    // Removes the files of tables that were dropped after the backup.
    replay.remove_orphans()?;
    let manifest = finish(env, replay, lsn);
    commitlog::create_empty(env, &dest.join("log"), manifest.replay_from)?;
    let rows = manifest.tables.iter().map(rows_of).sum();
    let (lsn, time, tables) = (manifest.lsn, manifest.time, manifest.tables.len());
    let restored = Restored { lsn, time, tables, rows, replayed, is_short, lacks };
    manifest::write(env, dest, &manifest)?;
    Ok(restored)
}

pub(super) fn check_file(
    source: &dyn BackupSource,
    name: &str,
    file: &ListedFile,
    read: FileSum,
) -> Result<()> {
    if file.sum.matches(&read) {
        return Ok(());
    }
    Err(Error::damaged("a file of the backup is not what was written")
        .with("file", source.display_name(name))
        .hint("use another backup"))
}

pub(super) fn read_manifest(
    source: &dyn BackupSource,
    marker: &Marker,
    listed: &ListedFile,
) -> Result<Manifest> {
    let name = marker.name_of(listed);
    // A file that is longer than listed is not read at all.
    let bytes = read_whole(source, &name, listed.sum.bytes).map_err(|error| match error.kind() {
        Kind::NotFound => {
            Error::damaged("the backup's manifest is missing").with("file", source.display_name(&name))
        }
        _ => error,
    })?;
    check_file(source, &name, listed, FileSum::of(&bytes))?;
    Manifest::decode(&bytes).map_err(|e| e.with("file", source.display_name(&name)))
}

/// Returns the lines about the rows that a backup lacks.
pub(super) fn lacks_of(source: &dyn BackupSource, marker: &Marker) -> Result<Vec<String>> {
    marker.lake().map_or_else(|| Ok(Vec::new()), |listed| read_lacks(source, marker, listed))
}

/// Reads the lines about the rows that the backup lacks. The file is for people, so its damage does not stop a restore.
fn read_lacks(source: &dyn BackupSource, marker: &Marker, listed: &ListedFile) -> Result<Vec<String>> {
    let name = marker.name_of(listed);
    let read = read_whole(source, &name, listed.sum.bytes).and_then(|bytes| {
        check_file(source, &name, listed, FileSum::of(&bytes))?;
        Ok(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
    });
    match read {
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Damaged) => {
            Ok(vec![format!("rows of some table are only in the lake; their list cannot be read: {error}")])
        }
        read => read,
    }
}

/// Checks that everything the manifest names is listed, and thus was copied.
pub(super) fn check_complete(source: &dyn BackupSource, manifest: &Manifest, marker: &Marker) -> Result<()> {
    let listed: BTreeSet<&Path> = marker.files.iter().map(|file| file.path.as_path()).collect();
    let has_lake = marker.lake().is_some();
    for state in &manifest.tables {
        let dir = segment::table_dir(Path::new(""), state.def.id);
        for name in state.segments.iter().flat_map(|meta| segment::file_names(meta.id)) {
            let is_here = listed.contains(dir.join(&name).as_path());
            // A segment whose rows only the lake has consists of a sidecar only, which says so itself.
            let is_away = name.ends_with(".arrow") && has_lake;
            if !is_here && !is_away {
                return Err(Error::damaged(format!("the backup lacks {}", dir.join(&name).display()))
                    .with("backup", source.display_name("")));
            }
        }
    }
    if manifest.lsn != marker.lsn {
        return Err(Error::damaged(format!(
            "the backup's manifest is at lsn {}, the backup at {}",
            manifest.lsn, marker.lsn
        ))
        .with("backup", source.display_name("")));
    }
    Ok(())
}

fn rows_of(state: &table::State) -> u64 {
    let stored: u64 = state.segments.iter().map(|meta| meta.rows).sum();
    stored - state.deletes.iter().map(|deletes| deletes.len()).sum::<u64>()
}

/// Builds the manifest of the replayed tables, whose rows are all in segments.
fn finish(env: &Env, replay: Replay<'_>, lsn: Lsn) -> Manifest {
    let Replay { tips, meta, time, times, next_segment, .. } = replay;
    let root = DatabaseRoot {
        lsn,
        time,
        made: env.clock.monotonic(),
        tables: tips.values().map(|tip| (Arc::from(tip.def().name.as_str()), tip.snapshot(lsn))).collect(),
        meta: Arc::new(meta),
        times,
        derived: imbl::OrdMap::new(),
    };
    Manifest::of(&root, next_segment)
}
