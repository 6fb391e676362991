//! The log's archive: durable frames are copied into another folder, or sent to a remote store, so that a backup can be
//! carried forward to any commit after it.
//!
//! A thread of its own does it, so a folder that hangs holds up nothing else. The log is not trimmed above the archived
//! position, up to a limit. Beyond the limit, and whenever the log itself finds no room, the log drops files and the archive
//! has a gap. Gaps are reported by [`ArchiveStatus::gaps`] and by a restore that meets one.
//!
//! Pieces lie in a folder named after the database's archive id. The id is made once in the directory of the database and is
//! not copied by a backup: a restored database begins an archive of its own, so two histories never mix.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use commitlog::{ArchivePiece, Archiver, NextPiece};
use types::{Error, Kind, Lsn, Result};
use vfs::{Access, Condvar, Env, Mutex, Rank};

use crate::backup::{BackupStore, FileSum, checksum};
use crate::inbox::{BackgroundEdit, Request};
use crate::open;
use crate::options::Options;
use crate::shared_state::Shared;

/// Bytes of a piece at which it ends; a single frame may be longer.
const PIECE_BYTES: usize = 8 << 20;
const STEP_BYTES: usize = 1 << 20;
const SYNC_BYTES: usize = 4 << 20;
/// The first and the longest wait after a failure; in between each failure doubles the wait.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// The name of the file with the archive id.
const ID_NAME: &str = "archive-id";
const PROBE_NAME: &str = "probe.tmp";

/// State of the archive.
#[derive(Clone, Debug)]
pub struct ArchiveStatus {
    /// Location of the pieces: a folder, or a name in a remote store.
    pub dir: PathBuf,
    /// Newest commit in the archive, which holds all commits before it too, except for gaps.
    pub lsn: Lsn,
    /// Number of log files that are kept only because the archive lacks them.
    pub files_waiting: u64,
    /// Bytes written to it since the database was opened.
    pub bytes: u64,
    /// Number of parts of the log that were dropped before they were archived, since the database was opened. After a gap a
    /// new backup is needed: older ones cannot be carried beyond it.
    pub gaps: u64,
    /// First and last commit of the newest gap.
    pub gap: Option<(Lsn, Lsn)>,
    /// The error that keeps it from going on at the moment.
    pub error: Option<Error>,
}

/// State of the archive that the threads of a database share.
pub(crate) struct Archive {
    pub id: u64,
    to: Destination,
    wait: Duration,
    signal: Mutex<Signal>,
    signalled: Condvar,
    /// True if something became durable since the thread last looked.
    pending: AtomicBool,
    lsn: AtomicU64,
    bytes: AtomicU64,
    gaps: AtomicU64,
    gap: ArcSwapOption<(Lsn, Lsn)>,
    error: ArcSwapOption<Error>,
}

#[derive(Default)]
struct Signal {
    pending: bool,
    /// Set when a log file is full: the thread stops gathering.
    urgent: bool,
    ending: bool,
}

impl Archive {
    /// Opens the archive of the database in `data`, or returns `None` if it has none. Fails with [`Kind::Invalid`] for a
    /// place that cannot be an archive. A folder that is absent now, as on a disk that is not mounted, may come later.
    pub fn open(env: &Env, data: &Path, options: &Options) -> Result<Option<Archive>> {
        let wait = options.archive_wait;
        let id = |env| archive_id(env, data);
        let (id, to) = match (&options.archive_store, &options.archive) {
            (Some(store), _) => id(env).map(|id| (id, Destination::Store(store.clone(), folder(id))))?,
            (None, Some(dir)) => {
                check_folder(env, data, dir)?;
                id(env).map(|id| (id, Destination::Folder(dir.join(folder(id)))))?
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(Archive {
            id,
            to,
            wait,
            signal: Mutex::new(Rank::new(57, "engine archive"), Signal::default()),
            signalled: Condvar::new(),
            pending: AtomicBool::new(false),
            lsn: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            gaps: AtomicU64::new(0),
            gap: ArcSwapOption::empty(),
            error: ArcSwapOption::empty(),
        }))
    }

    /// Tells the thread that something became durable.
    pub fn wake(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            self.signal.lock().pending = true;
            self.signalled.notify_one();
        }
    }

    /// Tells the thread that a log file is full.
    pub fn hurry(&self) {
        let mut signal = self.signal.lock();
        (signal.pending, signal.urgent) = (true, true);
        drop(signal);
        self.signalled.notify_one();
    }

    /// Lets the thread archive the rest and end.
    pub fn end(&self) {
        self.signal.lock().ending = true;
        self.signalled.notify_one();
    }

    pub fn status(&self, files_waiting: u64) -> ArchiveStatus {
        ArchiveStatus {
            dir: self.to.display_name().into(),
            lsn: Lsn(self.lsn.load(Ordering::Acquire)),
            files_waiting,
            bytes: self.bytes.load(Ordering::Relaxed),
            gaps: self.gaps.load(Ordering::Relaxed),
            gap: self.gap.load().as_deref().copied(),
            error: self.error.load().as_deref().cloned(),
        }
    }

    /// Waits for work, or after a failure for `retry`. Returns false if the database is closing and the next round is the
    /// last.
    fn wait(&self, retry: Option<Duration>) -> bool {
        let mut signal = self.signal.lock();
        match retry {
            Some(delay) => {
                if !signal.ending {
                    self.signalled.wait_for(&mut signal, delay);
                }
            }
            None => {
                while !signal.pending && !signal.ending {
                    self.signalled.wait(&mut signal);
                }
                // Small commits are gathered.
                if !signal.urgent && !signal.ending {
                    self.signalled.wait_for(&mut signal, self.wait);
                }
            }
        }
        (signal.pending, signal.urgent) = (false, false);
        self.pending.store(false, Ordering::Release);
        !signal.ending
    }
}

/// The destination of the pieces.
enum Destination {
    /// A folder of this database in the archive's folder.
    Folder(PathBuf),
    /// A folder of this name in a remote store.
    Store(Arc<dyn BackupStore>, String),
}

impl Destination {
    fn display_name(&self) -> String {
        match self {
            Destination::Folder(dir) => dir.display().to_string(),
            Destination::Store(store, dir) => store.display_name(dir),
        }
    }

    /// Returns the last commit in the archive, and checks as far as possible that more can be written. A piece that may be
    /// incomplete is removed first.
    fn last(&self, env: &Env, doubtful: &mut Option<String>) -> Result<Option<Lsn>> {
        let entries = match self {
            Destination::Folder(dir) => {
                open::make_dir(env, dir).map_err(|e| Error::io(format!("making {}", dir.display()), e))?;
                probe(env, dir)?;
                env.disk.list(dir).map_err(|e| Error::io(format!("listing {}", dir.display()), e))?
            }
            Destination::Store(store, dir) => {
                if let Some(name) = doubtful.as_ref() {
                    store.remove(name)?;
                }
                *doubtful = None;
                store.list(dir)?
            }
        };
        Ok(pieces(entries).into_iter().map(|(_, last, _)| last).max())
    }

    fn store(&self, env: &Env, piece: &ArchivePiece, doubtful: &mut Option<String>) -> Result<()> {
        match self {
            Destination::Folder(dir) => store(env, dir, piece),
            Destination::Store(store, dir) => {
                let name = format!("{dir}/{}", piece.name());
                *doubtful = Some(name.clone());
                let sent = send(store.as_ref(), &name, piece);
                // A piece that another database put there is left alone.
                if sent.as_ref().map_or_else(|error| error.kind() == Kind::Conflict, |()| true) {
                    *doubtful = None;
                }
                sent
            }
        }
    }
}

/// Refuses a folder that cannot be an archive, before anything is done with it.
fn check_folder(env: &Env, data: &Path, dir: &Path) -> Result<()> {
    let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if whole(dir).starts_with(whole(data)) {
        return Err(Error::invalid("the archive of the log would lie in the folder of its own database")
            .with("archive", dir.display())
            .hint("name a folder elsewhere, on another disk at best"));
    }
    if env.disk.list(dir).is_err_and(|error| error.kind() == std::io::ErrorKind::NotADirectory) {
        return Err(Error::invalid("the archive of the log must be a folder, and this is a file")
            .with("archive", dir.display()));
    }
    Ok(())
}

/// Runs the archive's thread until the database closes.
pub(crate) fn run(shared: &Shared, archive: &Archive, mut writer: ArchiveWriter) {
    let mut delay: Option<Duration> = None;
    // The first step runs at once, so that a folder that cannot be written to is reported before there is anything to write.
    let mut goes_on = true;
    loop {
        let outcome = loop {
            match writer.step(shared, archive) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if !goes_on {
            return;
        }
        delay = match outcome {
            Ok(()) => None,
            Err(_) => Some(delay.map_or(RETRY_FIRST, |delay| (delay * 2).min(RETRY_MAX))),
        };
        goes_on = archive.wait(delay);
    }
}

/// Position of the archive, and its writer.
pub(crate) struct ArchiveWriter {
    archiver: Archiver,
    /// True once the contents of the archive are known.
    opened: bool,
    /// Name of the newest piece that was sent and not yet verified by reading it back.
    doubtful: Option<String>,
}

impl ArchiveWriter {
    pub fn new(shared: &Shared) -> Self {
        ArchiveWriter { archiver: shared.preallocator.archiver(), opened: false, doubtful: None }
    }

    /// Archives one piece; returns false if there is none. A failure is logged and retried by the next call.
    pub fn step(&mut self, shared: &Shared, archive: &Archive) -> Result<bool> {
        let outcome = self.try_step(shared, archive);
        // After a failure the folder may be another one, so its contents are read again.
        self.opened &= outcome.is_ok();
        let before = archive.error.swap(outcome.as_ref().err().map(|error| Arc::new(error.clone())));
        // Logged once each, although the step is retried again and again.
        match (&before, &outcome) {
            (None, Err(error)) => tracing::warn!("the log is not archived: {error}"),
            (Some(_), Ok(_)) => tracing::info!("the log is archived again in {}", archive.to.display_name()),
            _ => {}
        }
        outcome
    }

    fn try_step(&mut self, shared: &Shared, archive: &Archive) -> Result<bool> {
        if !self.opened {
            self.open(shared, archive)?;
        }
        match self.archiver.next_piece(PIECE_BYTES)? {
            NextPiece::Nothing => {
                self.trim(shared);
                return Ok(false);
            }
            NextPiece::Gap { first, last } => {
                archive.gap.store(Some(Arc::new((first, last))));
                archive.gaps.fetch_add(1, Ordering::Relaxed);
            }
            NextPiece::Piece(piece) => {
                archive.to.store(&shared.env, &piece, &mut self.doubtful)?;
                archive.bytes.fetch_add(piece.bytes.len() as u64, Ordering::Relaxed);
                archive.lsn.store(piece.last_lsn.0, Ordering::Release);
            }
        }
        self.archiver.set_archived(self.archiver.position());
        Ok(true)
    }

    /// Finds the end of the archive, and continues from there.
    fn open(&mut self, shared: &Shared, archive: &Archive) -> Result<()> {
        let last = archive.to.last(&shared.env, &mut self.doubtful)?;
        let next = last.map_or_else(|| self.archiver.oldest(), Lsn::next);
        let durable = shared.syncer.durable_lsn();
        if next > durable.next() {
            return Err(Error::conflict(format!(
                "the archive holds commits up to lsn {}, this database has {durable}: another one writes to it",
                next.0 - 1
            ))
            .with("archive", archive.to.display_name())
            .hint(format!("remove `{ID_NAME}` from the directory of the copy, so that it gets an archive of its own")));
        }
        self.archiver.seek(next);
        self.archiver.set_archived(next);
        archive.lsn.store(next.0 - 1, Ordering::Release);
        self.opened = true;
        Ok(())
    }

    /// Trims the log files that were kept for the archive.
    fn trim(&self, shared: &Shared) {
        let below = Lsn(shared.trimmed_below.load(Ordering::Acquire));
        if shared.syncer.stats().archive_files > 0 {
            // The next manifest trims them if this fails.
            if shared.preallocator.trim(below).is_ok() {
                let edit = BackgroundEdit::Trimmed;
                let _ = shared.inbox.push(Request::Edit { edit, done: Box::new(|_| ()) });
            }
        }
    }
}

/// The folder name of an archive id.
pub(crate) fn folder(id: u64) -> String {
    format!("{id:016x}")
}

/// Returns the pieces among the entries of a folder, sorted by first lsn: first lsn, last lsn, name.
pub(crate) fn pieces(entries: Vec<vfs::Entry>) -> Vec<(Lsn, Lsn, String)> {
    let piece = |entry: vfs::Entry| {
        let (first, last) = ArchivePiece::lsns(&entry.name).filter(|_| !entry.is_dir)?;
        Some((first, last, entry.name))
    };
    let mut pieces: Vec<_> = entries.into_iter().filter_map(piece).collect();
    pieces.sort();
    pieces
}

/// Stores a piece under an unused name, and verifies it by reading it back.
fn send(store: &dyn BackupStore, name: &str, piece: &ArchivePiece) -> Result<()> {
    let goes_on = "writes go on; the archive goes on by itself once it can be written to";
    store.put_new(name, &piece.bytes).map_err(|error| match error.kind() {
        Kind::Exists => Error::conflict("the archive holds other commits of the same numbers")
            .with("archive", store.display_name(name))
            .hint(format!(
                "another database writes to it: remove `{ID_NAME}` from the directory of the copy"
            )),
        _ if error.hint_text().is_none() => error.hint(goes_on),
        _ => error,
    })?;
    let sent = FileSum::of(&piece.bytes);
    if checksum(store, name, sent.bytes, &mut |_| Ok(()))? == Some(sent) {
        return Ok(());
    }
    let source =
        std::io::Error::new(std::io::ErrorKind::InvalidData, "the bytes read back differ from those sent");
    Err(Error::io(format!("archiving {}", store.display_name(name)), source).hint(goes_on))
}

/// Writes a piece so that it exists as a whole or not at all.
fn store(env: &Env, dir: &Path, piece: &ArchivePiece) -> Result<()> {
    let path = dir.join(piece.name());
    let temporary = dir.join(format!("{}.tmp", piece.name()));
    let write = || -> std::io::Result<()> {
        if env.disk.exists(&temporary)? {
            env.disk.remove(&temporary)?;
        }
        let file = env.disk.create(&temporary)?;
        let mut at = 0;
        for bytes in piece.bytes.chunks(STEP_BYTES) {
            file.write_at(&[IoSlice::new(bytes)], at)?;
            at += bytes.len() as u64;
            if at.is_multiple_of(SYNC_BYTES as u64) {
                file.sync()?;
            }
        }
        file.sync()?;
        env.disk.rename(&temporary, &path)?;
        env.disk.sync_dir(dir)
    };
    write().map_err(|e| {
        // The partial file is removed: others may free more with its room.
        let _ = env.disk.remove(&temporary);
        Error::io(format!("archiving {}", path.display()), e)
            .hint("writes go on; the archive goes on by itself once it can be written to")
    })
}

/// Fails if the folder cannot be written to, so that this is known before the first piece is due.
fn probe(env: &Env, dir: &Path) -> Result<()> {
    let path = dir.join(PROBE_NAME);
    let write = || -> std::io::Result<()> {
        if !env.disk.exists(&path)? {
            env.disk.create(&path)?;
        }
        env.disk.remove(&path)
    };
    write().map_err(|e| {
        Error::io(format!("writing into the archive {}", dir.display()), e)
            .hint("writes go on; the archive goes on by itself once it can be written to")
    })
}

/// Returns the id of a database's archive, and makes one if there is none.
fn archive_id(env: &Env, data: &Path) -> Result<u64> {
    let path = data.join(ID_NAME);
    let failed = |e| Error::io(format!("reading {}", path.display()), e);
    if env.disk.exists(&path).map_err(failed)? {
        let file = env.disk.open(&path, Access::Read).map_err(failed)?;
        let mut bytes = vec![0; file.len().map_err(failed)? as usize];
        file.read_at(&mut bytes, 0).map_err(failed)?;
        return std::str::from_utf8(&bytes).ok().and_then(decode_id).ok_or_else(|| {
            Error::new(Kind::Damaged, "the archive id is damaged").with("file", path.display()).hint(
                "write the name of this database's folder in the archive into it, as its only line; or \
                       remove it: a new archive then begins, and a new backup is needed",
            )
        });
    }
    let id = env.random.next_u64();
    let temporary = data.join(format!("{ID_NAME}.tmp"));
    let write = || -> std::io::Result<()> {
        if env.disk.exists(&temporary)? {
            env.disk.remove(&temporary)?;
        }
        let file = env.disk.create(&temporary)?;
        file.write_at(&[IoSlice::new(encode_id(id).as_bytes())], 0)?;
        file.sync()?;
        env.disk.rename(&temporary, &path)?;
        env.disk.sync_dir(data)
    };
    write().map_err(|e| Error::io(format!("writing {}", path.display()), e))?;
    Ok(id)
}

/// Encodes the id, followed by the checksum of that line: a wrong id would be the archive of another database.
fn encode_id(id: u64) -> String {
    let line = format!("{}\n", folder(id));
    let crc = crc32c::crc32c(line.as_bytes());
    format!("{line}crc {crc:08x}\n")
}

/// Decodes an archive id. The checksum may be missing: earlier versions wrote none, and neither does a person who restores
/// the id.
fn decode_id(text: &str) -> Option<u64> {
    let (line, rest) = match text.split_once('\n') {
        Some((line, rest)) => (line, rest),
        None => (text, ""),
    };
    let id = u64::from_str_radix(line.trim_end(), 16).ok()?;
    (rest.trim().is_empty() || text == encode_id(id)).then_some(id)
}
