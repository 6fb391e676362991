//! Carries a restored backup forward: replays the commits after it from the archive of its log.
//!
//! The log's own seals and compactions name files that the backup does not have, so they are skipped. Rows gather in heads
//! here too, and are sealed when there are many. The result has the same rows with the same ids.

use std::path::{Path, PathBuf};

use commitlog::edit::Edit;
use commitlog::record::{Frame, Section};
use table::{Segment, segment};
use types::{Error, Kind, Lsn, Result, TableId};
use vfs::Env;

use super::copy::{CreatedFiles, copy};
use super::marker::Marker;
use super::restore::RestorePoint;
use super::store::{BackupSource, with_retries};
use crate::archive;
use crate::open::Replay;

/// Bytes of all heads together at which they are sealed.
const HEAD_BYTES_MAX: u64 = 96 << 20;

/// A file of the archive: first lsn, last lsn, name.
pub(crate) type ArchivedPiece = (Lsn, Lsn, String);

/// Returns the archive's files for a backup.
pub(crate) fn pieces_of(
    archive: &dyn BackupSource,
    marker: &Marker,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Vec<ArchivedPiece>> {
    let id = marker.archive.ok_or_else(|| {
        Error::invalid("the backup was taken while its log was not archived").hint(
            "restore it without an archive, or use a backup that was taken since `[log] archive` was set",
        )
    })?;
    let folder = archive::folder(id);
    if !with_retries(archive, tick, |_| archive.list(""))?.iter().any(|entry| entry.name == folder) {
        return Err(Error::not_found(format!(
            "{} has no folder `{folder}`, which is where this backup's log was archived",
            archive.display_name(""),
        ))
        .hint("name the place that `[log] archive` named"));
    }
    let pieces = archive::pieces(with_retries(archive, tick, |_| archive.list(&folder))?);
    Ok(pieces.into_iter().map(|(first, last, name)| (first, last, format!("{folder}/{name}"))).collect())
}

/// Temporary name, in the restored directory, for an archive file that is not on this machine.
const FETCHED: &str = "archived.tmp";

/// Returns a local path at which a piece can be read.
fn local(
    env: &Env,
    archive: &dyn BackupSource,
    name: &str,
    dest: &Path,
    made: &mut CreatedFiles,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<PathBuf> {
    if let Some(path) = archive.path(name) {
        return Ok(path);
    }
    let path = made.file(dest.join(FETCHED));
    copy(env, archive, name, &path, &mut |_| tick(0))?;
    Ok(path)
}

/// Applies the commits after `after`, up to the target, and leaves every row in a segment. Returns the last lsn applied, and
/// true if the archive ended before the target time.
#[allow(clippy::too_many_arguments, reason = "one place, and each is a thing of its own")]
pub(crate) fn replay(
    env: &Env,
    dest: &Path,
    replay: &mut Replay<'_>,
    made: &mut CreatedFiles,
    archive: &dyn BackupSource,
    pieces: &[ArchivedPiece],
    after: Lsn,
    to: Option<RestorePoint>,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<(Lsn, bool)> {
    let (mut at, mut is_short) = (after, matches!(to, Some(RestorePoint::Time(_))));
    let is_reached = |at: Lsn| to == Some(RestorePoint::Lsn(at));
    for (first, last, name) in pieces {
        if *last <= at || is_reached(at) {
            continue;
        }
        if *first > at.next() {
            return Err(Error::new(
                Kind::NotFound,
                format!("the archive lacks lsn {} to {}", at.next(), first.0 - 1),
            )
            .with("archive", archive.display_name(name.split('/').next().unwrap_or_default()))
            .hint(format!("restore to lsn {at} at most, or use a backup that was taken later")));
        }
        let path = local(env, archive, name, dest, made, tick)?;
        let outcome = commitlog::read_piece(env, &path, at, &mut |frame: Frame| {
            let frame = match to {
                Some(RestorePoint::Time(time)) if frame.time > time => return Ok(false),
                Some(RestorePoint::Lsn(lsn)) => frame.up_to(lsn),
                _ => Some(frame),
            };
            let Some(mut frame) = frame else { return Ok(false) };
            frame.sections.retain(is_content);
            let (reached, bytes) = (frame.last_lsn(), frame.bytes);
            replay.frame(frame)?;
            at = reached;
            if replay.tips.values().map(|tip| tip.head_bytes()).sum::<u64>() >= HEAD_BYTES_MAX {
                seal(env, dest, replay, made, at, tick)?;
            }
            tick(bytes)?;
            Ok(!is_reached(at))
        });
        if archive.path(name).is_none() {
            env.disk.remove(&path).map_err(|e| Error::io(format!("removing {}", path.display()), e))?;
        }
        // A damaged piece is damaged in the archive, so the error names its place there.
        let goes_on = outcome.map_err(|error| error.with("archived", archive.display_name(name)))?;
        if !goes_on {
            is_short = false;
            break;
        }
    }
    if let Some(RestorePoint::Lsn(lsn)) = to
        && at < lsn
    {
        return Err(Error::not_found(format!("the archive reaches lsn {at} only")).hint(format!(
            "restore to lsn {at} at most; newer commits are in the log of the directory itself"
        )));
    }
    seal(env, dest, replay, made, at, tick)?;
    Ok((at, is_short))
}

/// Returns true for changes by users (rows, deletes, definitions and keys), and false for the way they were stored.
fn is_content(section: &Section) -> bool {
    !matches!(
        section,
        Section::Edit {
            edit: Edit::Seal { .. } | Edit::Compact { .. } | Edit::Forget { .. } | Edit::Checkpoint { .. },
            ..
        }
    )
}

/// Seals all heads into segments.
fn seal(
    env: &Env,
    dest: &Path,
    replay: &mut Replay<'_>,
    made: &mut CreatedFiles,
    lsn: Lsn,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut tables: Vec<TableId> =
        replay.tips.iter().filter(|(_, tip)| tip.head_rows() > 0).map(|(id, _)| *id).collect();
    tables.sort_unstable();
    for table in tables {
        let dir = segment::table_dir(dest, table);
        let exists = env.disk.exists(&dir);
        if !exists.map_err(|e| Error::io(format!("looking for {}", dir.display()), e))? {
            made.dir(env, dir.clone())?;
        }
        let id = replay.next_segment;
        replay.next_segment = id.next();
        let Some(tip) = replay.tips.get_mut(&table) else { continue };
        let snapshot = tip.snapshot(lsn);
        segment::file_names(id).into_iter().for_each(|name| drop(made.file(dir.join(name))));
        let meta = table::seal(&snapshot, env, &dir, id, snapshot.next_row(), &mut |_| tick(0))?;
        let sealed = Segment::open(env, &dir, snapshot.def(), meta);
        sealed.check()?;
        tip.apply_seal(sealed, None)?;
    }
    Ok(())
}
