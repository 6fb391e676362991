//! Creation, recycling and removal of log files: all file work that can be done while no commit waits.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use types::{Error, Kind, Lsn, Result};
use vfs::Access;

use crate::layout::{FILE_HEADER_BYTES, FileHeader, HeaderRead};
use crate::shared::{Leftover, Shared, SpareFile};
use crate::writer::Purpose;

const SPARE_SUFFIX: &str = ".spare";

/// Finds the spare files that an earlier process left. If a failed sync of the directory lost a rename, a file may have come back
/// under an old name beside its new one. A spare with the header of a file in `in_use`, or of another spare, is such a second
/// name. It is removed, lest one file be written as two.
///
/// Returns the highest epoch in the spares' headers. A new file must not get an epoch that any header still has: if the new
/// header of a recycled file is lost and its new name is not, the old header would pass for the new one.
pub(crate) fn find_spares(shared: &Shared, in_use: &[FileHeader]) -> Result<u64> {
    let mut epoch_max = 0;
    let entries =
        shared.env.disk.list(&shared.dir).map_err(|e| Error::io("listing the log's directory", e))?;
    let mut known: HashSet<u64> = in_use.iter().map(|header| header.salt).collect();
    let mut state = shared.state.lock();
    for entry in entries.into_iter().filter(|entry| !entry.is_dir) {
        let Some(number) = entry.name.strip_suffix(SPARE_SUFFIX) else { continue };
        let Ok(number) = u64::from_str_radix(number, 16) else { continue };
        let path = shared.dir.join(&entry.name);
        let failed = |e| Error::io("opening a spare log file", e).with("file", path.display());
        let file = shared.env.disk.open(&path, Access::ReadWrite).map_err(failed)?;
        state.next_spare = state.next_spare.max(number.saturating_add(1));
        let salt = match FileHeader::of(&*file, entry.len).map_err(failed)? {
            HeaderRead::Good(header) => {
                epoch_max = epoch_max.max(header.epoch);
                Some(header.salt)
            }
            HeaderRead::Newer(_) | HeaderRead::Bad => None,
        };
        if salt.is_none_or(|salt| known.insert(salt)) {
            state.spares.push(SpareFile { path, file, len: entry.len });
        } else {
            state.leftovers.push(Leftover { path, file, reusable: false });
        }
    }
    Ok(epoch_max)
}

/// Bytes that the log leaves free for a manifest: without a new manifest, dropped data does not free its space.
const LEFT_BYTES: u64 = 1 << 20;

/// Returns true if the disk has no room for a file of `len` bytes. False if that is unknown: creating the file will tell.
fn lacks_room(shared: &Shared, len: u64) -> bool {
    shared.env.disk.free_bytes(&shared.dir).is_ok_and(|free| free < len + len.min(LEFT_BYTES))
}

/// Takes a spare of `len` bytes: a ready one, or one that is made now. On a full disk, the last ready spare is reserved for
/// [`Purpose::MakesRoom`], for which a spare of `least` bytes is enough.
pub(crate) fn take_spare(shared: &Shared, len: u64, least: u64, purpose: Purpose) -> Result<SpareFile> {
    let keeps = purpose == Purpose::Any && shared.options.spare_files >= 2;
    if keeps
        && shared.state.lock().spares.len() <= 1
        && (shared.no_room.load(Ordering::Acquire) || lacks_room(shared, len))
    {
        return make_spare(shared, len);
    }
    let ready = {
        let mut state = shared.state.lock();
        // A spare left by a crash may be shorter than it should be; a longer one is as good.
        let best = state.spares.iter().rposition(|spare| spare.len >= len);
        let any = best.or(state.spares.len().checked_sub(1));
        any.map(|i| state.spares.remove(i))
    };
    let mut spare = match ready {
        Some(spare) => spare,
        None => return make_spare(shared, len),
    };
    if spare.len < len {
        match allocate(&spare, len) {
            Ok(()) => spare.len = len,
            // The spare is long enough for a frame that makes room.
            Err(error)
                if error.kind() == Kind::DiskFull && purpose == Purpose::MakesRoom && spare.len >= least => {}
            Err(error) => {
                note_full(shared, &error);
                shared.state.lock().spares.push(spare);
                return Err(error);
            }
        }
    }
    Ok(spare)
}

/// Makes a spare, and records whether the disk had room: while it has none, the last ready spare is reserved.
fn make_spare(shared: &Shared, len: u64) -> Result<SpareFile> {
    let made = try_make_spare(shared, len);
    match &made {
        Ok(_) => shared.no_room.store(false, Ordering::Release),
        Err(error) if error.kind() == Kind::DiskFull => shared.no_room.store(true, Ordering::Release),
        Err(_) => {}
    }
    made
}

fn try_make_spare(shared: &Shared, len: u64) -> Result<SpareFile> {
    let path = next_spare_path(shared);
    // Space is taken by writing. If there is clearly too little, the disk need not be filled first.
    if lacks_room(shared, len) {
        return Err(no_space(&path, io::ErrorKind::StorageFull.into()));
    }
    let made = shared.env.disk.create(&path);
    let file = made.map_err(|e| Error::io("making a log file", e).with("file", path.display()))?;
    let mut spare = SpareFile { path, file, len: 0 };
    if let Err(error) = allocate(&spare, len) {
        // The little space that it took is better left to frames that may free more.
        let _ = shared.env.disk.remove(&spare.path);
        return Err(error);
    }
    spare.len = len;
    Ok(spare)
}

/// Bytes between two checks of whether the log is closing.
const PREPARE_STEP_BYTES: u64 = 4 << 20;

/// Makes a spare in steps; returns `None` if the log is closing meanwhile.
fn make_spare_unless_ending(shared: &Shared, len: u64) -> Result<Option<SpareFile>> {
    let ending = || shared.ending.load(Ordering::Acquire);
    if ending() {
        return Ok(None);
    }
    // Tries the whole length: a first step that fits would hide that the rest does not.
    if lacks_room(shared, len) {
        return make_spare(shared, len).map(Some);
    }
    let first = len.min(PREPARE_STEP_BYTES);
    let mut spare = try_make_spare(shared, first).inspect_err(|error| note_full(shared, error))?;
    while spare.len < len && !ending() {
        let next = len.min(spare.len + PREPARE_STEP_BYTES);
        if let Err(error) = allocate(&spare, next) {
            let _ = shared.env.disk.remove(&spare.path);
            note_full(shared, &error);
            return Err(error);
        }
        spare.len = next;
    }
    if spare.len < len {
        let removed = shared.env.disk.remove(&spare.path);
        removed.map_err(|e| Error::io("removing a log file", e).with("file", spare.path.display()))?;
        return Ok(None);
    }
    shared.no_room.store(false, Ordering::Release);
    Ok(Some(spare))
}

fn note_full(shared: &Shared, error: &Error) {
    shared.no_room.fetch_or(error.kind() == Kind::DiskFull, Ordering::AcqRel);
}

fn next_spare_path(shared: &Shared) -> PathBuf {
    let mut state = shared.state.lock();
    let number = state.next_spare;
    state.next_spare += 1;
    shared.dir.join(format!("{number:016x}{SPARE_SUFFIX}"))
}

fn allocate(spare: &SpareFile, len: u64) -> Result<()> {
    // The disk allocates in small steps and waits for each, so that the log's own fsync finds little queued before it.
    spare.file.allocate(len).and_then(|()| spare.file.sync()).map_err(|e| no_space(&spare.path, e))
}

fn no_space(path: &Path, e: io::Error) -> Error {
    Error::io("taking space for the log", e).with("file", path.display()).hint(
        "free some space on the disk, or delete rows, drop tables and indexes; writes resume by themselves",
    )
}

/// Makes spares until as many are ready as the options request.
pub(crate) fn prepare(shared: &Shared) -> Result<()> {
    let _one_at_a_time = shared.keeping.lock();
    shared.check()?;
    clear_leftovers(shared)?;
    while shared.state.lock().spares.len() < shared.options.spare_files {
        let Some(spare) = make_spare_unless_ending(shared, file_bytes(shared))? else { return Ok(()) };
        shared.state.lock().spares.push(spare);
    }
    Ok(())
}

/// The length of a new file, unless a frame needs more.
pub(crate) fn file_bytes(shared: &Shared) -> u64 {
    shared.options.file_bytes.max(2 * FILE_HEADER_BYTES)
}

/// Releases files that end below `below`, except the newest `archive_files_max` of those that the archive does not have yet.
pub(crate) fn trim(shared: &Shared, below: Lsn, archive_files_max: usize) -> Result<()> {
    let _one_at_a_time = shared.keeping.lock();
    shared.check()?;
    let least = shared.options.spare_files;
    let is_short = least == 0 || lacks_room(shared, SPARES_MAX as u64 * file_bytes(shared));
    {
        let mut state = shared.state.lock();
        let below = below.min(shared.durable_lsn().next());
        // Never releases the newest file whose name and header are durable: recovery begins with its header.
        let pairs = state.files.iter().zip(state.files.iter().skip(1));
        let gone = pairs.take_while(|(entry, next)| entry.last_lsn < below && next.in_place).count();
        let archived = shared.archived.load(Ordering::Acquire);
        let sent = state.files[..gone].iter().take_while(|entry| entry.last_lsn.0 <= archived).count();
        let kept = (gone - sent).min(archive_files_max);
        shared.counters.archive_files.store(kept as u64, Ordering::Relaxed);
        let in_use = state.files.len();
        let entries: Vec<_> = state.files.drain(..gone - kept).collect();
        if entries.is_empty() {
            state.trims_idle += 1;
        }
        if !entries.is_empty() || state.trims_idle >= TRIMS_IDLE_MAX {
            state.trims_idle = 0;
            state.files_peak = in_use.max(state.files_peak.saturating_sub(1)).min(1 + SPARES_MAX);
        }
        // A log that is written fast releases several files at a time and will need as many again. Removing and remaking a file
        // costs the disk twice the writes of its frames, and the kernel new memory for its pages. A log that is written more
        // slowly keeps one spare less after each trim.
        state.spares_max = if is_short {
            least
        } else {
            let again = state.files_peak.saturating_sub(state.files.len());
            (least + again).min(SPARES_MAX.max(least))
        };
        state.leftovers.extend(entries.into_iter().map(Leftover::of));
        shared.counters.files(&state.files);
    }
    clear_leftovers(shared)?;
    remove_excess_spares(shared)
}

/// Number of released files that are kept as spares, unless the options request more.
const SPARES_MAX: usize = 10;
/// Number of trims without a released file after which one spare less is kept.
const TRIMS_IDLE_MAX: u32 = 16;

/// Turns leftovers into spares, or removes them if there are enough spares. The change of name need not be durable: a file that
/// comes back after a crash is one that recovery does not need, or has another file's header by then.
pub(crate) fn clear_leftovers(shared: &Shared) -> Result<()> {
    loop {
        let leftover = {
            let mut state = shared.state.lock();
            if state.leftovers.is_empty() {
                return Ok(());
            }
            state.leftovers.remove(0)
        };
        if let Err(error) = clear(shared, &leftover) {
            let error = Error::io("removing a log file", error).with("file", leftover.path.display());
            shared.state.lock().leftovers.insert(0, leftover);
            return Err(error);
        }
    }
}

fn clear(shared: &Shared, leftover: &Leftover) -> io::Result<()> {
    let len = leftover.file.len()?;
    let usual = (file_bytes(shared)..=2 * file_bytes(shared)).contains(&len);
    let is_enough = {
        let state = shared.state.lock();
        state.spares.len() >= state.spares_max
    };
    if !leftover.reusable || !usual || is_enough {
        return remove_if_there(shared, &leftover.path);
    }
    let path = next_spare_path(shared);
    shared.env.disk.rename(&leftover.path, &path)?;
    shared.state.lock().spares.push(SpareFile { path, file: Arc::clone(&leftover.file), len });
    Ok(())
}

/// Removes spares beyond the wanted number, which may have fallen.
pub(crate) fn remove_excess_spares(shared: &Shared) -> Result<()> {
    loop {
        let spare = {
            let mut state = shared.state.lock();
            if state.spares.len() <= state.spares_max {
                return Ok(());
            }
            state.spares.remove(0)
        };
        remove_if_there(shared, &spare.path)
            .map_err(|e| Error::io("removing a spare log file", e).with("file", spare.path.display()))?;
    }
}

fn remove_if_there(shared: &Shared, path: &Path) -> io::Result<()> {
    match shared.env.disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
