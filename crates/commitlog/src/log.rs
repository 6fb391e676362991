//! Opening a log.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use types::{Error, Kind, Lsn, Result};
use vfs::Env;

use crate::durable_file::{self, DurableFile};
use crate::layout::FILE_HEADER_BYTES;
use crate::record::Frame;
use crate::recover::{self, FileRole, RecoveredLog};
use crate::shared::{Entry, Leftover, Shared};
use crate::spare_files;
use crate::writer::Writer;

/// The log of one data directory.
#[derive(Debug)]
pub struct Log;

/// The settings of a log.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes with which files are preallocated. A longer frame gets a file of its own length.
    pub file_bytes: u64,
    /// Number of files kept ready besides the current one: made by [`crate::Preallocator::prepare`], or left over from a trim.
    /// With at least two, a full disk still accepts frames that make room: see [`crate::Purpose`].
    pub spare_files: usize,
    /// Number of files that a trim keeps only because an archive does not have them yet. Beyond it the oldest are removed and the
    /// archive gets a gap: an archive that is full or unreachable must not fill the log's disk.
    pub archive_files_max: usize,
    /// Time to sleep before each fsync of the log, for measurements: it shows the server on a slower disk. Never set outside
    /// benchmarks and tests.
    pub sync_delay: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Options { file_bytes: 64 << 20, spare_files: 2, archive_files_max: 16, sync_delay: None }
    }
}

/// The result of recovery in [`Log::open`].
#[derive(Clone, Debug)]
pub struct Recovery {
    /// The last lsn that was replayed or skipped; all lsns up to it are durable. `replay_from - 1` if there was none.
    pub last_lsn: Lsn,
    /// Number of frames passed to the caller.
    pub frames: u64,
    /// Bytes of the frames that were read.
    pub bytes: u64,
    /// Bytes of the torn tail that were cut, as far as they can be distinguished from bytes that were never written. They are of
    /// commits that were not acknowledged. 0 after a clean close.
    pub torn_bytes: u64,
    /// Set if bytes that were once durable differ from what was written. Commits before the damage were replayed; the
    /// writer refuses every append with this error, which is [`Kind::Damaged`] and names file and offset.
    pub damage: Option<Error>,
}

impl Log {
    /// Recovers the log in `dir` and prepares it for appending. `dir` is made if it is missing; its parent must exist durably.
    ///
    /// `replay_from` is the first lsn that the caller does not have yet: its durable manifest has everything below. Frames with
    /// any lsn at or above it are passed to `visit` in order and whole: the first may begin below `replay_from`, and the caller
    /// skips those commits. Frames wholly below are checked but not decoded; files wholly below are not read. An error of `visit`
    /// ends the opening.
    ///
    /// On return, everything that was passed to `visit` is durable, even frames that were read but had never been synced. A new
    /// file is started; its first lsn bounds the valid frames in the files before it.
    ///
    /// The caller holds the directory's lock. Fails with [`Kind::Newer`] if a newer version wrote the log, with
    /// [`Kind::Io`] if the machine cannot read it. Damage is not an error but reported in [`Recovery::damage`]; then nothing on
    /// disk is changed. A full disk is not an error either: appends fail until there is room.
    pub fn open(
        env: &Env,
        dir: &Path,
        options: Options,
        replay_from: Lsn,
        visit: &mut dyn FnMut(Frame) -> Result<()>,
    ) -> Result<(Writer, Recovery)> {
        Self::open_known(env, dir, options, replay_from, Lsn(0), visit)
    }

    /// Opens a log like [`Log::open`], for a caller whose manifest proves that everything up to `known_durable` was durable. A
    /// log that cannot be read up to there is damaged, never torn, even if the log itself has no evidence of it.
    pub fn open_known(
        env: &Env,
        dir: &Path,
        options: Options,
        replay_from: Lsn,
        known_durable: Lsn,
        visit: &mut dyn FnMut(Frame) -> Result<()>,
    ) -> Result<(Writer, Recovery)> {
        make_dir(env, dir)?;
        let recovered = recover::read_log(env, dir, replay_from, known_durable, visit)?;
        let last_lsn = Lsn(recovered.next_lsn.0 - 1);
        let recovery = Recovery {
            last_lsn,
            frames: recovered.frames,
            bytes: recovered.bytes,
            torn_bytes: recovered.torn_bytes,
            damage: recovered.damage.clone(),
        };
        let handle = env.disk.open_dir(dir);
        let handle = handle
            .map_err(|e| Error::io("opening the log's directory", e).with("directory", dir.display()))?;
        let shared = Arc::new(Shared::new(
            env.clone(),
            dir.to_owned(),
            handle,
            options,
            last_lsn,
            recovery.damage.clone(),
        ));
        adopt(&shared, &recovered);
        let mut epoch_max = recovered.epoch_max;
        if recovery.damage.is_none() {
            open_durable_file(&shared, recovered.durable_lsn)?;
            let headers: Vec<_> = recovered.files.iter().filter_map(|file| file.header).collect();
            epoch_max = epoch_max.max(spare_files::find_spares(&shared, &headers)?);
        }
        let mut writer = Writer::new(Arc::clone(&shared), recovered.next_lsn, epoch_max + 1);
        if recovery.damage.is_none() {
            match writer.start_with(&recovered) {
                Ok(()) => {
                    cut_to_frames(&recovered)?;
                    spare_files::clear_leftovers(&shared)?;
                    spare_files::remove_excess_spares(&shared)?;
                }
                Err(error) if error.kind() == Kind::DiskFull => rewrite(&shared, &recovered)?,
                Err(error) => return Err(error),
            }
            shared.note_durable(last_lsn);
        }
        Ok((writer, recovery))
    }
}

/// Makes the directory durable, even an existing one: the process that made it may have been killed before that.
fn make_dir(env: &Env, dir: &Path) -> Result<()> {
    let failed = |e| Error::io("making the log's directory", e).with("directory", dir.display());
    env.disk.create_dir_all(dir).map_err(failed)?;
    match dir.parent() {
        Some(parent) => env.disk.sync_dir(parent).map_err(failed),
        None => Ok(()),
    }
}

/// Opens the durable file. A full disk does without it: the log then has only the evidence in its frames.
fn open_durable_file(shared: &Shared, durable: Lsn) -> Result<()> {
    match DurableFile::open(&shared.env, &shared.dir, durable) {
        Ok(file) => {
            shared.durable_file.get_or_init(|| file);
            Ok(())
        }
        Err(error) => {
            let path = shared.dir.join(durable_file::NAME);
            let error = Error::io("opening the log's durable file", error).with("file", path.display());
            if error.kind() == Kind::DiskFull { Ok(()) } else { Err(error) }
        }
    }
}

/// Cuts the recovered files behind their last frame, now that a new file bounds their valid frames. A database that is started
/// again and again then keeps the bytes of its frames for each start, not a whole preallocated file.
fn cut_to_frames(recovered: &RecoveredLog) -> Result<()> {
    for found in recovered.files.iter().filter(|found| found.role == FileRole::Live && found.end < found.len)
    {
        let cut = found.file.set_len(found.end);
        cut.map_err(|e| Error::io("cutting a log file", e).with("file", found.path.display()))?;
    }
    Ok(())
}

/// Makes frames durable in place that may never have been, if there is no room for a new file. They are rewritten, not just
/// synced: if a sync failed before the restart, the kernel may hold their pages as clean although the disk never got them.
fn rewrite(shared: &Shared, recovered: &RecoveredLog) -> Result<()> {
    let Some(first) = recovered.undurable.front() else { return Ok(()) };
    for (i, found) in recovered.files.iter().enumerate().skip(first.file) {
        if found.role != FileRole::Live {
            continue;
        }
        let failed = |e| Error::io("securing the log's tail", e).with("file", found.path.display());
        // If the first such frame is the first of its file, the file's header may not be durable either.
        let whole = i > first.file || first.offset == FILE_HEADER_BYTES;
        let mut position = if whole { 0 } else { first.offset };
        let mut block = vec![0; 1 << 20];
        while position < found.end {
            let count = (found.end - position).min(block.len() as u64) as usize;
            found.file.read_at(&mut block[..count], position).map_err(failed)?;
            found.file.write_at(&[IoSlice::new(&block[..count])], position).map_err(failed)?;
            position += count as u64;
        }
        found.file.sync().map_err(failed)?;
    }
    shared.sync_dir().map_err(|e| Error::io("securing the log's tail", e))
}

/// Registers the recovered files with the open log.
fn adopt(shared: &Shared, recovered: &RecoveredLog) {
    let mut state = shared.state.lock();
    for found in &recovered.files {
        let (path, file) = (found.path.clone(), Arc::clone(&found.file));
        match found.role {
            FileRole::Void if recovered.damage.is_none() => {
                // A file without a header of its own may be another file's old name.
                state.voids.push(Leftover { path, file, reusable: found.header.is_some() });
            }
            FileRole::Void => {}
            FileRole::Below | FileRole::Live => {
                // Files of both roles have a header.
                let first_lsn = found.header.map_or(found.next_lsn, |header| header.first_lsn);
                let last_lsn = Lsn(found.next_lsn.0 - 1);
                state.files.push(Entry {
                    epoch: found.epoch,
                    path,
                    file,
                    first_lsn,
                    last_lsn,
                    in_place: true,
                });
            }
        }
    }
    shared.counters.files(&state.files);
}
