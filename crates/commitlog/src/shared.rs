//! The state that the handles on an open log share.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use types::{Error, Kind, Lsn, Result};
use vfs::{Dir, Env, File, Mutex, Rank};

use crate::durable_file::DurableFile;
use crate::log::Options;
use crate::stats::Counters;

#[derive(Debug)]
pub(crate) struct Shared {
    pub env: Env,
    pub dir: PathBuf,
    /// The open directory. A sync that had to open a descriptor could fail for lack of one, and a failed sync latches the log.
    dir_handle: Option<Arc<dyn Dir>>,
    pub options: Options,
    pub counters: Counters,
    /// The highest durable lsn.
    pub durable: AtomicU64,
    /// The highest appended lsn. Written while `state` is locked.
    pub appended: AtomicU64,
    /// The lists of files. Not locked during I/O once the log is open, so that an append and a sync do not wait for each other.
    pub state: Mutex<State>,
    /// Locked during a sync: one runs at a time.
    pub syncing: Mutex<()>,
    /// Locked while files are made, recycled or removed in the background: one thread does so at a time.
    pub keeping: Mutex<()>,
    /// True once the log is about to be closed: spare files are not made any more.
    pub ending: AtomicBool,
    /// The last lsn that the archive has; `u64::MAX` without an archive. Files above it are kept, up to
    /// [`Options::archive_files_max`] of them.
    pub archived: AtomicU64,
    /// True if the disk had no room for the last file that was to be made.
    pub no_room: AtomicBool,
    /// The file `durable`; unset while the log is damaged, or if the disk has no room for it.
    pub durable_file: OnceLock<DurableFile>,
    latched: OnceLock<Error>,
    /// The damage found when the log was opened: only the readable part was replayed.
    pub damage: Option<Error>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Files in use, by epoch; the last is the current one.
    pub files: Vec<Entry>,
    /// Files written since the last sync began, in the order of writing.
    pub dirty: Vec<Arc<dyn File>>,
    /// True if names have changed that a durable frame needs.
    pub dir_dirty: bool,
    /// Files ready to be used, newest last.
    pub spares: Vec<SpareFile>,
    /// Number of spares that are kept when files are released. At least [`Options::spare_files`], up to which spares are made
    /// too.
    pub spares_max: usize,
    /// Number of files that were in use at once lately, about.
    pub files_peak: usize,
    /// Number of trims in a row that released no file.
    pub trims_idle: u32,
    /// Files that are no longer needed, to be turned into spares or removed in the background.
    pub leftovers: Vec<Leftover>,
    /// Void files. They become leftovers once the first new file is durable: until then, the header of one of them may be the
    /// bound of an older file.
    pub voids: Vec<Leftover>,
    /// Number in the name of the next spare.
    pub next_spare: u64,
}

/// A file in use.
#[derive(Debug)]
pub(crate) struct Entry {
    pub epoch: u64,
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    pub first_lsn: Lsn,
    /// The last lsn of the file; `first_lsn - 1` while it has no frame.
    pub last_lsn: Lsn,
    /// True once the file's header and name are durable. Until then, recovery begins with the file before it.
    pub in_place: bool,
}

/// A file without needed content that is ready to be written.
#[derive(Debug)]
pub(crate) struct SpareFile {
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    pub len: u64,
}

/// A file whose frames are no longer needed.
#[derive(Debug)]
pub(crate) struct Leftover {
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    /// True if the file may become a spare. Otherwise only its name is removed, because the file may have another name.
    pub reusable: bool,
}

impl Leftover {
    /// Makes a leftover of a file that was in use.
    pub(crate) fn of(entry: Entry) -> Self {
        Leftover { path: entry.path, file: entry.file, reusable: true }
    }
}

impl State {
    /// Marks the files up to an epoch as in place: their headers and names are durable. Voids become leftovers.
    pub(crate) fn in_place(&mut self, epoch: u64) {
        self.files.iter_mut().filter(|entry| entry.epoch <= epoch).for_each(|entry| entry.in_place = true);
        let voids = std::mem::take(&mut self.voids);
        self.leftovers.extend(voids);
    }
}

impl Shared {
    pub(crate) fn new(
        env: Env,
        dir: PathBuf,
        dir_handle: Option<Arc<dyn Dir>>,
        options: Options,
        last_lsn: Lsn,
        damage: Option<Error>,
    ) -> Self {
        let state = State { spares_max: options.spare_files, ..State::default() };
        Shared {
            env,
            dir,
            dir_handle,
            options,
            counters: Counters::default(),
            durable: AtomicU64::new(last_lsn.0),
            appended: AtomicU64::new(last_lsn.0),
            state: Mutex::new(Rank::new(84, "log files"), state),
            syncing: Mutex::new(Rank::new(82, "log sync"), ()),
            keeping: Mutex::new(Rank::new(80, "log file keeping"), ()),
            ending: AtomicBool::new(false),
            archived: AtomicU64::new(u64::MAX),
            no_room: AtomicBool::new(false),
            durable_file: OnceLock::new(),
            latched: OnceLock::new(),
            damage,
        }
    }

    pub(crate) fn durable_lsn(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// Records in the durable file that everything up to `durable` is durable.
    pub(crate) fn note_durable(&self, durable: Lsn) {
        if let Some(file) = self.durable_file.get() {
            file.note(durable);
        }
    }

    pub(crate) fn appended_lsn(&self) -> Lsn {
        Lsn(self.appended.load(Ordering::Acquire))
    }

    /// Syncs the log's directory, so that the names in it are durable.
    pub(crate) fn sync_dir(&self) -> io::Result<()> {
        match &self.dir_handle {
            Some(handle) => handle.sync(),
            None => self.env.disk.sync_dir(&self.dir),
        }
    }

    /// Returns an error if the log is damaged or latched, so that nothing may be written any more.
    pub(crate) fn check(&self) -> Result<()> {
        match self.damage.as_ref().or(self.latched.get()) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    pub(crate) fn latched(&self) -> Option<&Error> {
        self.latched.get()
    }

    /// Latches the log for ever. The first failure is the one that is reported.
    pub(crate) fn latch(&self, error: &Error) -> Error {
        let latched =
            Error::new(Kind::Latched, format!("the log accepts no more writes: {}", error.message()))
                .with("directory", self.dir.display())
                .hint("check the disk, then restart; everything acknowledged is kept")
                .caused_by(error.clone());
        self.latched.get_or_init(|| latched).clone()
    }
}
