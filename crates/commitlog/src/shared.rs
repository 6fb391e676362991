//! What the handles on an open log share.

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
    /// Held open: a sync that wants a file descriptor could fail for want of one, and a failed sync is for ever.
    dir_handle: Option<Arc<dyn Dir>>,
    pub options: Options,
    pub counters: Counters,
    /// The highest durable lsn.
    pub durable: AtomicU64,
    /// The highest appended lsn. Written under `state`.
    pub appended: AtomicU64,
    /// The lists. Never held during I/O once the log is open, so that an append and a sync do not wait for each other.
    pub state: Mutex<State>,
    /// Held during a sync: one at a time.
    pub syncing: Mutex<()>,
    /// Held while files are made, recycled or removed in the background: one at a time.
    pub keeping: Mutex<()>,
    /// The log is about to be closed: files that nobody waits for are not made any more.
    pub ending: AtomicBool,
    /// The last lsn that an archive holds; `u64::MAX` without one. Files above it are kept, up to
    /// [`Options::archive_files_max`] of them.
    pub archived: AtomicU64,
    /// The last file that was to be made found no room.
    pub no_room: AtomicBool,
    /// Unset while the log is damaged, or where the disk has no room for it.
    pub durable_file: OnceLock<DurableFile>,
    latched: OnceLock<Error>,
    /// Set at opening: the log is damaged and only its readable part was replayed.
    pub damage: Option<Error>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Files in use by epoch; the last is the current one.
    pub files: Vec<Entry>,
    /// Files that were written since their last sync began, in the order of writing.
    pub dirty: Vec<Arc<dyn File>>,
    /// Names changed that a durable frame needs.
    pub dir_dirty: bool,
    /// Ready to be used, newest last.
    pub spares: Vec<Spare>,
    /// So many are kept when files are let go of; [`Options::spare_files`] at least, which are made where there are fewer.
    pub spares_max: usize,
    /// About as many files as were in use at once lately.
    pub files_peak: usize,
    /// How many trims in a row let go of nothing.
    pub trims_idle: u32,
    /// What no longer counts, to be made spares or removed when somebody has time.
    pub leftovers: Vec<Leftover>,
    /// Void files that wait for the first new file to be durable before they may become leftovers: until then one of
    /// their headers may be what bounds an older file.
    pub voids: Vec<Leftover>,
    pub next_spare: u64,
}

/// A file in use.
#[derive(Debug)]
pub(crate) struct Entry {
    pub epoch: u64,
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    pub first_lsn: Lsn,
    /// `first_lsn - 1` while it holds no frame.
    pub last_lsn: Lsn,
    /// Its header and its name are durable. As long as they are not, the file before it is what recovery begins with.
    pub in_place: bool,
}

/// A file that holds nothing that counts and waits to be written.
#[derive(Debug)]
pub(crate) struct Spare {
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    pub len: u64,
}

/// A file whose frames are no longer needed.
#[derive(Debug)]
pub(crate) struct Leftover {
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    /// Whether it may become a spare, else only its name is removed: the file may have another one.
    pub reusable: bool,
}

impl Leftover {
    /// A file that was in use and is no more.
    pub(crate) fn of(entry: Entry) -> Self {
        Leftover { path: entry.path, file: entry.file, reusable: true }
    }
}

impl State {
    /// The files up to this epoch, and their names, are durable.
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

    /// Notes beside the log that everything up to `durable` is.
    pub(crate) fn note_durable(&self, durable: Lsn) {
        if let Some(file) = self.durable_file.get() {
            file.note(durable);
        }
    }

    pub(crate) fn appended_lsn(&self) -> Lsn {
        Lsn(self.appended.load(Ordering::Acquire))
    }

    /// Makes the names in the log's directory durable.
    pub(crate) fn sync_dir(&self) -> io::Result<()> {
        match &self.dir_handle {
            Some(handle) => handle.sync(),
            None => self.env.disk.sync_dir(&self.dir),
        }
    }

    /// Fails if nothing may be written any more.
    pub(crate) fn check(&self) -> Result<()> {
        match self.damage.as_ref().or(self.latched.get()) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    pub(crate) fn latched(&self) -> Option<&Error> {
        self.latched.get()
    }

    /// Latches the log for ever. The first failure is the one that is told.
    pub(crate) fn latch(&self, error: &Error) -> Error {
        let latched =
            Error::new(Kind::Latched, format!("the log accepts no more writes: {}", error.message()))
                .with("directory", self.dir.display())
                .hint("check the disk, then restart; everything acknowledged is kept")
                .caused_by(error.clone());
        self.latched.get_or_init(|| latched).clone()
    }
}
