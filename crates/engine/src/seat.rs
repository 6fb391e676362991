//! Who commits: the one thread at a time that has taken the core.
//!
//! As a rule that is the commit thread, which takes what waits in the inbox and keeps the core until everything is durable
//! and answered. While it sleeps the core lies free, and a thread that waits for its own small transaction anyway may take
//! it, commit, sync and publish: two wakes less, which on an idle machine take as long as a fast disk's sync. Whoever comes
//! meanwhile goes to the inbox, and the commit thread has the core next.
//!
//! Where several threads wait for their commits, those that were just answered come back a moment later as a rule. The commit
//! thread gives them that moment ([`Crew`]), so that one sync does for all of them and not for every other one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use types::{Error, Kind};
use vfs::{Condvar, Mutex, Rank};

use crate::core::Core;
use crate::inbox::{Inbox, Request, Taken};
use crate::shared::Shared;
use crate::threads;

/// Small groups are synced by the thread that committed them: two thread switches less for a lone writer.
const INLINE_SYNC_BYTES: u64 = 64 << 10;

pub(crate) struct Seat {
    shared: Arc<Shared>,
    place: Mutex<Place>,
    /// It is back.
    returned: Condvar,
    /// Asks the sync thread for a sync.
    sync: Mutex<SyncState>,
    asked: Condvar,
}

/// Where the core is.
enum Place {
    /// Nothing is being synced, and all that was taken from the inbox is answered.
    Here(Box<Core>),
    /// A thread works with it.
    Taken,
    /// After a bug, and once the database closed.
    Gone,
}

/// The threads that wait for commits, and whether waiting for them has been worth it.
#[derive(Default)]
struct Crew {
    /// How often in a row they did not come.
    missed: u32,
    /// How many syncs go by before the next try.
    resting: u32,
}

impl Crew {
    /// At most, whatever a sync takes.
    const PATIENCE_MAX: Duration = Duration::from_millis(20);
    /// The rest doubles so many times.
    const MISSED_MAX: u32 = 8;

    /// Waits for as many threads as waited during a sync that took so long: for a part of that, since one sync for all of them
    /// spares as much. If they do something else first they are left alone for longer and longer.
    fn gather(&mut self, inbox: &Inbox, waited: usize, sync: Duration) {
        if waited < 2 {
            return;
        }
        if self.resting > 0 {
            self.resting -= 1;
        } else if inbox.gather(waited, (sync / 2).min(Self::PATIENCE_MAX)) {
            self.missed = 0;
        } else {
            self.resting = 1 << self.missed;
            self.missed = (self.missed + 1).min(Self::MISSED_MAX);
        }
    }
}

#[derive(Default)]
struct SyncState {
    asked: bool,
    ended: bool,
}

impl Seat {
    pub fn new(shared: Arc<Shared>, core: Core) -> Self {
        Seat {
            shared,
            place: Mutex::new(Rank::new(47, "engine seat"), Place::Here(Box::new(core))),
            returned: Condvar::new(),
            sync: Mutex::new(Rank::new(55, "engine sync"), SyncState::default()),
            asked: Condvar::new(),
        }
    }

    /// The commit thread. Returns the core once the inbox is closed and all is answered.
    pub fn run_commit(&self) -> Option<Core> {
        let shared = &*self.shared;
        let heart = vfs::heartbeat::register(shared.env.clock.clone(), "commit", "interactive");
        let mut crew = Crew::default();
        loop {
            heart.idle();
            shared.inbox.wait_for_any();
            heart.busy();
            let Some(mut core) = self.take() else {
                self.refuse_all();
                return None;
            };
            while core.syncing() || !shared.inbox.is_empty() {
                heart.idle();
                let taken = shared.inbox.wait(shared.options.group_bytes_max, core.syncing(), None);
                heart.busy();
                let small = taken.requests.iter().map(Request::bytes).sum::<u64>() <= INLINE_SYNC_BYTES;
                let mut wants_sync = self.step(&mut core, taken)?;
                while wants_sync && small && !shared.inbox.has_enough_for_a_frame() {
                    let began = Instant::now();
                    let synced = Some(shared.syncer.sync());
                    let (took, waited) = (began.elapsed(), shared.committers.load(Ordering::Relaxed));
                    wants_sync = self.step(&mut core, Taken { synced, ..Taken::default() })?;
                    heart.idle();
                    crew.gather(&shared.inbox, waited, took);
                    heart.busy();
                }
                if wants_sync {
                    self.sync.lock().asked = true;
                    self.asked.notify_one();
                }
            }
            if shared.inbox.is_done() {
                *self.place.lock() = Place::Gone;
                return Some(*core);
            }
            self.put_back(core);
        }
    }

    /// The commit thread's [`Core::step`]; `None` after a bug, once nobody asks for anything any more.
    fn step(&self, core: &mut Core, taken: Taken) -> Option<bool> {
        let stepped = catch_unwind(AssertUnwindSafe(|| core.step(taken))).ok();
        if stepped.is_none() {
            self.lose();
            self.refuse_all();
        }
        stepped
    }

    /// Commits in this thread, which waits until that is durable; gives the request back if it is the commit thread's turn.
    pub fn commit_here(&self, request: Request) -> Option<Request> {
        let shared = &*self.shared;
        // Who waits comes first.
        if request.bytes() > INLINE_SYNC_BYTES || !shared.inbox.is_empty() || !threads::is_interactive() {
            return Some(request);
        }
        let Some(mut core) = self.take_if_here() else { return Some(request) };
        let commit = || {
            if core.step(Taken { requests: vec![request], ..Taken::default() }) {
                core.step(Taken { synced: Some(shared.syncer.sync()), ..Taken::default() });
            }
        };
        match catch_unwind(AssertUnwindSafe(commit)) {
            Ok(()) => self.put_back(core),
            Err(_) => self.lose(),
        }
        None
    }

    fn take_if_here(&self) -> Option<Box<Core>> {
        let mut place = self.place.lock();
        match std::mem::replace(&mut *place, Place::Taken) {
            Place::Here(core) => Some(core),
            other => {
                *place = other;
                None
            }
        }
    }

    /// Waits for it; `None` if it is gone.
    fn take(&self) -> Option<Box<Core>> {
        let mut place = self.place.lock();
        while matches!(*place, Place::Taken) {
            self.returned.wait(&mut place);
        }
        match std::mem::replace(&mut *place, Place::Taken) {
            Place::Here(core) => Some(core),
            _ => {
                *place = Place::Gone;
                None
            }
        }
    }

    fn put_back(&self, core: Box<Core>) {
        *self.place.lock() = Place::Here(core);
        self.returned.notify_one();
    }

    /// A bug: the tips are in doubt. Readers keep the last root, writers are refused.
    fn lose(&self) {
        self.shared.refuse_writes(
            Error::new(Kind::Latched, "the commit thread failed; nothing more is accepted")
                .hint("restart Polynya; what was acknowledged is safe"),
        );
        *self.place.lock() = Place::Gone;
        self.returned.notify_one();
    }

    /// Answers whoever still comes after the core is gone, until the database closes.
    fn refuse_all(&self) {
        let shared = &*self.shared;
        loop {
            let taken = shared.inbox.wait(u64::MAX, false, None);
            let error = shared.check_writable().err();
            let error = error.unwrap_or_else(|| Error::new(Kind::Latched, "nothing more is accepted"));
            taken.requests.into_iter().for_each(|request| request.refuse(error.clone()));
            if taken.closed {
                return;
            }
        }
    }

    /// The sync thread.
    pub fn run_sync(&self) {
        loop {
            let mut state = self.sync.lock();
            while !state.asked && !state.ended {
                self.asked.wait(&mut state);
            }
            if state.ended {
                return;
            }
            state.asked = false;
            drop(state);
            self.shared.inbox.synced(self.shared.syncer.sync());
        }
    }

    /// Ends the sync thread.
    pub fn end_sync(&self) {
        self.sync.lock().ended = true;
        self.asked.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_do_something_else_first_are_waited_for_less_and_less() {
        let (inbox, mut crew) = (Inbox::new(10, 1 << 20), Crew::default());
        let began = Instant::now();
        (0..1_000).for_each(|_| crew.gather(&inbox, 1, Duration::from_secs(1)));
        assert!(began.elapsed() < Duration::from_millis(500), "a lone writer was waited for");
        let mut waits = 0;
        for _ in 0..1_000 {
            waits += u32::from(crew.resting == 0);
            crew.gather(&inbox, 2, Duration::from_micros(20));
        }
        assert!((8..=16).contains(&waits), "{waits} waits for nobody");
    }
}
