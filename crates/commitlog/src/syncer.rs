//! The syncing handle of an open log.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use types::{Error, Lsn, Result};

use crate::shared::Shared;
use crate::stats::Stats;

/// Makes appended frames durable. It can be cloned to any number of threads; syncs run one at a time.
#[derive(Clone, Debug)]
pub struct Syncer {
    shared: Arc<Shared>,
}

impl Syncer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Syncer { shared }
    }

    /// Makes everything durable that was appended before the call, even if it is in more than one file, and returns the highest
    /// durable lsn. Appends can go on meanwhile. Returns at once if nothing was appended since the last sync.
    ///
    /// A failure latches the log: this call and all later ones return [`types::Kind::Latched`].
    pub fn sync(&self) -> Result<Lsn> {
        let wanted = self.shared.appended_lsn();
        self.shared.check()?;
        if self.shared.durable_lsn() >= wanted {
            return Ok(self.shared.durable_lsn());
        }
        self.flush()
    }

    /// Syncs like [`Syncer::sync`], but even if no frame waits for it.
    pub(crate) fn flush(&self) -> Result<Lsn> {
        let shared = &*self.shared;
        let _one_at_a_time = shared.syncing.lock();
        shared.check()?;
        let (reached, dirty, dir_dirty, epoch) = {
            let mut state = shared.state.lock();
            let dir_dirty = std::mem::take(&mut state.dir_dirty);
            let epoch = state.files.last().map_or(0, |entry| entry.epoch);
            (shared.appended_lsn(), std::mem::take(&mut state.dirty), dir_dirty, epoch)
        };
        for file in &dirty {
            let start = shared.env.clock.monotonic();
            if let Some(delay) = shared.options.sync_delay {
                std::thread::sleep(delay);
            }
            if !cfg!(feature = "canary-skip-fsync") {
                file.sync().map_err(|e| shared.latch(&Error::io("syncing the log", e)))?;
            }
            shared.counters.synced(shared.env.clock.monotonic().saturating_sub(start));
        }
        if dir_dirty {
            let synced = shared.sync_dir();
            synced.map_err(|e| shared.latch(&Error::io("syncing the log's directory", e)))?;
            shared.state.lock().in_place(epoch);
        }
        // The durable lsn is set only after the sync: from here on, a frame may claim it.
        shared.durable.store(reached.0, Ordering::Release);
        shared.note_durable(reached);
        Ok(reached)
    }

    /// The highest durable lsn. Does not wait.
    pub fn durable_lsn(&self) -> Lsn {
        self.shared.durable_lsn()
    }

    /// The error that latched the log, if a write or sync failed.
    pub fn latched(&self) -> Option<Error> {
        self.shared.latched().cloned()
    }

    /// Reads the log's counters. Does not wait.
    pub fn stats(&self) -> Stats {
        let no_room = self.shared.no_room.load(Ordering::Acquire);
        self.shared.counters.read(self.shared.appended_lsn(), self.shared.durable_lsn(), no_room)
    }
}
