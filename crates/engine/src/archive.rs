//! The log's archive: what became durable, copied into another folder or sent to a place elsewhere, so that a backup can be carried forward to any
//! commit after it.
//!
//! A thread of its own does it, so that a folder that hangs holds up nothing else. The log is not trimmed above what the
//! archive holds, up to a bound; beyond it, and wherever the log itself finds no room, the log lets go and the archive
//! has a gap. A gap is told by [`Archiving::gaps`], and by a restore that meets it.
//!
//! Pieces lie in a folder named after the database's archive id, which is made once in its directory and not copied by a
//! backup: what is restored begins an archive of its own, so two histories never mix.

use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use commitlog::{ArchivePiece, Archiver, NextPiece};
use types::{Error, Kind, Lsn, Result};
use vfs::{Access, Condvar, Env, Mutex, Rank};

use crate::backup::{Place, Sum, checksum};
use crate::inbox::{BackgroundEdit, Request};
use crate::open;
use crate::options::Options;
use crate::shared::Shared;

/// About how long a piece is at most; one frame may be longer.
const PIECE_BYTES: usize = 8 << 20;
const STEP_BYTES: usize = 1 << 20;
const SYNC_BYTES: usize = 4 << 20;
/// How long what failed waits: first, and at most; in between it doubles.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// The name of the file with the archive id.
const ID_NAME: &str = "archive-id";
const PROBE_NAME: &str = "probe.tmp";

/// How the archive is doing.
#[derive(Clone, Debug)]
pub struct Archiving {
    /// Where the pieces lie.
    pub dir: PathBuf,
    /// The archive holds the commits up to here, gaps apart.
    pub lsn: Lsn,
    /// Log files that are kept only because the archive lacks them.
    pub files_waiting: u64,
    /// Bytes written to it since the database was opened.
    pub bytes: u64,
    /// Parts of the log that were let go of before they were archived, since the database was opened. After one a new
    /// backup is needed: older ones cannot be carried beyond it.
    pub gaps: u64,
    /// The first and last commit of the newest of them.
    pub gap: Option<(Lsn, Lsn)>,
    /// Why it does not go on at the moment.
    pub error: Option<Error>,
}

/// What the threads of a database share of its archive.
pub(crate) struct Archive {
    pub id: u64,
    to: To,
    wait: Duration,
    signal: Mutex<Signal>,
    signalled: Condvar,
    /// Something became durable since the thread last looked.
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
    /// A log file is full: do not gather any longer.
    urgent: bool,
    ending: bool,
}

impl Archive {
    /// The archive of the database in `data`, if it is to have one. [`Kind::Invalid`] for a place that cannot be one; a folder
    /// that is not there now, as on a disk that is not mounted, may come.
    pub fn open(env: &Env, data: &Path, options: &Options) -> Result<Option<Archive>> {
        let wait = options.archive_wait;
        let id = |env| archive_id(env, data);
        let (id, to) = match (&options.archive_place, &options.archive) {
            (Some(place), _) => id(env).map(|id| (id, To::Place(place.clone(), folder(id))))?,
            (None, Some(dir)) => {
                check_folder(env, data, dir)?;
                id(env).map(|id| (id, To::Folder(dir.join(folder(id)))))?
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

    /// Something became durable.
    pub fn wake(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            self.signal.lock().pending = true;
            self.signalled.notify_one();
        }
    }

    /// A log file is full.
    pub fn hurry(&self) {
        let mut signal = self.signal.lock();
        (signal.pending, signal.urgent) = (true, true);
        drop(signal);
        self.signalled.notify_one();
    }

    /// Lets the thread do what is left and end.
    pub fn end(&self) {
        self.signal.lock().ending = true;
        self.signalled.notify_one();
    }

    pub fn status(&self, files_waiting: u64) -> Archiving {
        Archiving {
            dir: self.to.named().into(),
            lsn: Lsn(self.lsn.load(Ordering::Acquire)),
            files_waiting,
            bytes: self.bytes.load(Ordering::Relaxed),
            gaps: self.gaps.load(Ordering::Relaxed),
            gap: self.gap.load().as_deref().copied(),
            error: self.error.load().as_deref().cloned(),
        }
    }

    /// Waits for work. False: the database closes, and this is the last round.
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
                // Small commits gather.
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

/// Where the pieces go.
enum To {
    /// The database's own folder.
    Folder(PathBuf),
    /// Below this name.
    Place(Arc<dyn Place>, String),
}

impl To {
    fn named(&self) -> String {
        match self {
            To::Folder(dir) => dir.display().to_string(),
            To::Place(place, dir) => place.named(dir),
        }
    }

    /// The last commit that is there, once it is known that more can be put there as far as that can be known before. What
    /// was put there and perhaps is not what it should be goes first.
    fn last(&self, env: &Env, doubtful: &mut Option<String>) -> Result<Option<Lsn>> {
        let entries = match self {
            To::Folder(dir) => {
                open::make_dir(env, dir).map_err(|e| Error::io(format!("making {}", dir.display()), e))?;
                probe(env, dir)?;
                env.disk.list(dir).map_err(|e| Error::io(format!("listing {}", dir.display()), e))?
            }
            To::Place(place, dir) => {
                if let Some(name) = doubtful.as_ref() {
                    place.remove(name)?;
                }
                *doubtful = None;
                place.list(dir)?
            }
        };
        Ok(pieces(entries).into_iter().map(|(_, last, _)| last).max())
    }

    fn store(&self, env: &Env, piece: &ArchivePiece, doubtful: &mut Option<String>) -> Result<()> {
        match self {
            To::Folder(dir) => store(env, dir, piece),
            To::Place(place, dir) => {
                let name = format!("{dir}/{}", piece.name());
                *doubtful = Some(name.clone());
                let sent = send(place.as_ref(), &name, piece);
                // One that is another database's is left alone.
                if sent.as_ref().map_or_else(|error| error.kind() == Kind::Conflict, |()| true) {
                    *doubtful = None;
                }
                sent
            }
        }
    }
}

/// A folder that cannot be an archive is refused before anything is done with it.
fn check_folder(env: &Env, data: &Path, dir: &Path) -> Result<()> {
    let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if whole(dir).starts_with(whole(data)) {
        return Err(Error::invalid("the archive of the log would lie in the folder of its own database")
            .with("archive", dir.display())
            .hint("name a folder elsewhere, on another disk at best"));
    }
    if env.disk.list(dir).is_err_and(|error| error.kind() == std::io::ErrorKind::NotADirectory) {
        return Err(Error::invalid("the archive of the log is to be a folder, and this is a file")
            .with("archive", dir.display()));
    }
    Ok(())
}

/// The thread's work until the database closes.
pub(crate) fn run(shared: &Shared, archive: &Archive, mut keeper: Keeper) {
    let mut delay: Option<Duration> = None;
    // At once, so that a folder that cannot be written to is told before there is anything to write.
    let mut goes_on = true;
    loop {
        let outcome = loop {
            match keeper.step(shared, archive) {
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

/// Where archiving stands.
pub(crate) struct Keeper {
    archiver: Archiver,
    /// It is known what the folder holds.
    opened: bool,
    /// What was put there last, and not read back as it was sent.
    doubtful: Option<String>,
}

impl Keeper {
    pub fn new(shared: &Shared) -> Self {
        Keeper { archiver: shared.preallocator.archiver(), opened: false, doubtful: None }
    }

    /// Archives one piece; false if there is none. What fails is told and tried again by the next call.
    pub fn step(&mut self, shared: &Shared, archive: &Archive) -> Result<bool> {
        let outcome = self.try_step(shared, archive);
        // After a failure the folder may be another one: it is looked at anew.
        self.opened &= outcome.is_ok();
        let before = archive.error.swap(outcome.as_ref().err().map(|error| Arc::new(error.clone())));
        // Once each: it is tried again and again meanwhile.
        match (&before, &outcome) {
            (None, Err(error)) => tracing::warn!("the log is not archived: {error}"),
            (Some(_), Ok(_)) => tracing::info!("the log is archived again in {}", archive.to.named()),
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

    /// Finds out where the archive stands, and goes on from there.
    fn open(&mut self, shared: &Shared, archive: &Archive) -> Result<()> {
        let last = archive.to.last(&shared.env, &mut self.doubtful)?;
        let next = last.map_or_else(|| self.archiver.oldest(), Lsn::next);
        let durable = shared.syncer.durable_lsn();
        if next > durable.next() {
            return Err(Error::conflict(format!(
                "the archive holds commits up to lsn {}, this database has {durable}: another one writes to it",
                next.0 - 1
            ))
            .with("archive", archive.to.named())
            .hint(format!("remove `{ID_NAME}` from the directory of the copy, so that it gets an archive of its own")));
        }
        self.archiver.seek(next);
        self.archiver.set_archived(next);
        archive.lsn.store(next.0 - 1, Ordering::Release);
        self.opened = true;
        Ok(())
    }

    /// Lets the log go of what it kept for the archive.
    fn trim(&self, shared: &Shared) {
        let below = Lsn(shared.trimmed_below.load(Ordering::Acquire));
        if shared.syncer.stats().archive_files > 0 {
            // If it is not done, the next manifest does it.
            if shared.preallocator.trim(below).is_ok() {
                let edit = BackgroundEdit::Trimmed;
                let _ = shared.inbox.push(Request::Edit { edit, done: Box::new(|_| ()) });
            }
        }
    }
}

/// The folder of an archive id.
pub(crate) fn folder(id: u64) -> String {
    format!("{id:016x}")
}

/// The pieces among what lies in a folder, by their first lsn: first, last, name.
pub(crate) fn pieces(entries: Vec<vfs::Entry>) -> Vec<(Lsn, Lsn, String)> {
    let piece = |entry: vfs::Entry| {
        let (first, last) = ArchivePiece::lsns(&entry.name).filter(|_| !entry.is_dir)?;
        Some((first, last, entry.name))
    };
    let mut pieces: Vec<_> = entries.into_iter().filter_map(piece).collect();
    pieces.sort();
    pieces
}

/// Puts a piece where nothing is, and reads it back.
fn send(place: &dyn Place, name: &str, piece: &ArchivePiece) -> Result<()> {
    let goes_on = "writes go on; the archive goes on by itself once it can be written to";
    place.put_new(name, &piece.bytes).map_err(|error| match error.kind() {
        Kind::Exists => Error::conflict("the archive holds other commits of the same numbers")
            .with("archive", place.named(name))
            .hint(format!(
                "another database writes to it: remove `{ID_NAME}` from the directory of the copy"
            )),
        _ if error.hint_text().is_none() => error.hint(goes_on),
        _ => error,
    })?;
    let sent = Sum::of(&piece.bytes);
    if checksum(place, name, sent.bytes, &mut |_| Ok(()))? == Some(sent) {
        return Ok(());
    }
    let source =
        std::io::Error::new(std::io::ErrorKind::InvalidData, "what is read back is not what was sent");
    Err(Error::io(format!("archiving {}", place.named(name)), source).hint(goes_on))
}

/// Writes a piece so that it is there as a whole or not at all.
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
        // What little was written is better left to those who may free more.
        let _ = env.disk.remove(&temporary);
        Error::io(format!("archiving {}", path.display()), e)
            .hint("writes go on; the archive goes on by itself once it can be written to")
    })
}

/// Whether the folder can be written to, so that this is known before the first piece is.
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

/// The id of a database's archive, made if it has none.
fn archive_id(env: &Env, data: &Path) -> Result<u64> {
    let path = data.join(ID_NAME);
    let failed = |e| Error::io(format!("reading {}", path.display()), e);
    if env.disk.exists(&path).map_err(failed)? {
        let file = env.disk.open(&path, Access::Read).map_err(failed)?;
        let mut bytes = vec![0; file.len().map_err(failed)? as usize];
        file.read_at(&mut bytes, 0).map_err(failed)?;
        return std::str::from_utf8(&bytes).ok().and_then(decode_id).ok_or_else(|| {
            Error::new(Kind::Damaged, "the archive id is not what was written")
                .with("file", path.display())
                .hint(
                    "write the name of this database's folder in the archive into it, as its only line; or \
                       remove it: an archive is begun anew then, and a new backup is needed",
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

/// The id, then the checksum of that line: another id would be another database's archive.
fn encode_id(id: u64) -> String {
    let line = format!("{}\n", folder(id));
    let crc = crc32c::crc32c(line.as_bytes());
    format!("{line}crc {crc:08x}\n")
}

/// Earlier versions wrote no checksum, and a person who puts the id back writes none.
fn decode_id(text: &str) -> Option<u64> {
    let (line, rest) = match text.split_once('\n') {
        Some((line, rest)) => (line, rest),
        None => (text, ""),
    };
    let id = u64::from_str_radix(line.trim_end(), 16).ok()?;
    (rest.trim().is_empty() || text == encode_id(id)).then_some(id)
}
