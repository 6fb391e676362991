//! The syncing end of an open log.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use types::{Error, Lsn, Result};

use crate::shared::Shared;
use crate::stats::Stats;

/// Makes appended frames durable. Any number of clones, in any threads; syncs run one at a time.
#[derive(Clone, Debug)]
pub struct Syncer {
    shared: Arc<Shared>,
}

impl Syncer {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Syncer { shared }
    }

    /// Makes durable everything appended before the call, also over a change of files, and returns the highest durable
    /// lsn. Appends go on meanwhile. Returns at once if nothing was appended since the last one.
    ///
    /// A failure latches the log: [`types::Kind::Latched`] now and for ever.
    pub fn sync(&self) -> Result<Lsn> {
        let wanted = self.shared.appended_lsn();
        self.shared.check()?;
        if self.shared.durable_lsn() >= wanted {
            return Ok(self.shared.durable_lsn());
        }
        self.flush()
    }

    /// As [`Syncer::sync`], but also if no frame waits for it.
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
        // Only now: a frame that claims this lsn to be durable may be written from here on.
        shared.durable.store(reached.0, Ordering::Release);
        shared.note_durable(reached);
        Ok(reached)
    }

    /// The highest durable lsn, without waiting.
    pub fn durable_lsn(&self) -> Lsn {
        self.shared.durable_lsn()
    }

    /// Why the log accepts nothing any more, if a failed write or sync latched it.
    pub fn latched(&self) -> Option<Error> {
        self.shared.latched().cloned()
    }

    /// Reads counters; never waits.
    pub fn stats(&self) -> Stats {
        let no_room = self.shared.no_room.load(Ordering::Acquire);
        self.shared.counters.read(self.shared.appended_lsn(), self.shared.durable_lsn(), no_room)
    }
}
