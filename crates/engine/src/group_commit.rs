//! Group commit: the one thread at a time that holds the core commits.
//!
//! Usually this is the commit thread. It takes the requests from the inbox and keeps the core until everything is durable
//! and answered. While it sleeps the core is free, and a thread that waits for its own small transaction may take it,
//! commit, sync and publish. That saves two thread wakes, which on an idle machine take as long as the sync of a fast disk.
//! Requests that come meanwhile go to the inbox, and the commit thread gets the core next.
//!
//! If many writers wait for their commits, those just answered usually come back a moment later. The commit thread gives
//! them that moment ([`GatherPolicy`]), so that one sync serves many of them. The cost of a sync beside the disk's own time
//! (building a root, publishing it, waking the waiters) is the same for one transaction and for a hundred.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use types::{Error, Kind, Lsn, Result};
use vfs::heartbeat::Heartbeat;
use vfs::{Condvar, Mutex, Rank};

use crate::core::Core;
use crate::inbox::{InboxBatch, Request};
use crate::shared_state::Shared;
use crate::threads;

/// Bytes of a group up to which the thread that committed it also syncs it: a lone writer saves two thread switches.
const INLINE_SYNC_BYTES: u64 = 64 << 10;

pub(crate) struct GroupCommit {
    shared: Arc<Shared>,
    slot: Mutex<CoreSlot>,
    /// Signals that the core was put back.
    returned: Condvar,
    /// The requests to the sync thread.
    sync: Mutex<SyncState>,
    asked: Condvar,
}

/// Location of the core.
enum CoreSlot {
    /// Free: nothing is being synced, and all requests that were taken from the inbox are answered.
    Free(Box<Core>),
    /// A thread is using it.
    Taken,
    /// Lost after a panic, or handed out because the database closed.
    Gone,
}

/// Decides how long the commit thread waits for more transactions before the next sync, and learns whether waiting paid.
#[derive(Default)]
struct GatherPolicy {
    /// A decaying maximum of the number of transactions that were present at once.
    most: usize,
    /// Back-off of waiting for the writers that were just answered.
    rejoin: GatherBackoff,
    /// Back-off of waiting for a stream.
    stream: GatherBackoff,
    /// Number of transactions that are present only because the last wait gathered them from a stream.
    gathered: usize,
    /// Transactions answered in a millisecond, averaged over about a tenth of a second.
    per_ms: f64,
    /// Time of the last answers.
    answered_at: Option<Instant>,
}

/// Back-off: tries become rarer while nobody comes.
#[derive(Default)]
struct GatherBackoff {
    /// Binary logarithm of the next rest; rises with each wait in vain and falls with each success.
    missed: u32,
    /// Number of syncs until the next try.
    resting: u32,
}

impl GatherBackoff {
    fn is_due(&mut self) -> bool {
        let due = self.resting == 0;
        self.resting = self.resting.saturating_sub(1);
        due
    }

    /// Records whether a wait paid. The rest doubles at most `doublings` times.
    fn learn(&mut self, came: bool, doublings: u32) {
        if came {
            self.missed = self.missed.saturating_sub(1);
        } else {
            self.resting = 1 << self.missed;
            self.missed = (self.missed + 1).min(doublings);
        }
    }
}

/// A sync that ended.
struct Synced {
    began: Instant,
    result: Result<Lsn>,
}

/// The goal of a wait before the next sync. Every queued request counts as a transaction, even a background edit or a
/// request that will be refused.
#[derive(Debug, PartialEq)]
struct GatherGoal {
    transactions: usize,
    until: Instant,
    /// Time without a new request after which the wait ends.
    quiet: Duration,
    streamed: bool,
}

impl GatherPolicy {
    /// Longest wait for threads, however long a sync takes.
    const THREAD_WAIT_MAX: Duration = Duration::from_millis(20);
    /// Longest time between the beginnings of two syncs while more transactions are expected. If a sync itself takes that
    /// long, there is no wait.
    const CADENCE: Duration = Duration::from_millis(8);
    /// Shortest `quiet`. Clients that have not come for this time, or for half the time of a sync, are waiting for something
    /// else.
    const QUIET_MIN: Duration = Duration::from_millis(1);
    /// Bytes written at most before the next sync: the rest is better written while that sync runs.
    const WRITTEN_MAX: u64 = 4 << 20;
    /// Doublings of the rest after waits in vain: a rest lasts at most 256 syncs, or 1,024 where all present transactions
    /// had to wait.
    const DOUBLINGS: u32 = 8;
    const DOUBLINGS_STREAMED: u32 = 10;
    /// Time between two syncs of a stream; half of the transactions that come in it share a sync.
    const PACE: Duration = Duration::from_millis(4);
    /// Transactions in that time below which each is answered by itself: there are too few for sharing to matter.
    const STREAM_MIN: usize = 10;
    /// Third of the present transactions from which on they share syncs without being treated as a stream.
    const STREAM_SHARED: usize = 6;
    /// A stream counts as dry after a pause in which this many transactions were expected.
    const STREAM_DRY: f64 = 5.0;

    /// Records that `answered` transactions were answered at `now`.
    fn note(&mut self, answered: usize, now: Instant) {
        if let Some(before) = self.answered_at.replace(now) {
            let passed = (now - before).as_secs_f64() * 1e3;
            // The average covers mostly the last tenth of a second.
            let part = (passed / 100.0).min(1.0);
            self.per_ms += part * (answered as f64 / passed.max(0.01) - self.per_ms);
        }
    }

    /// Returns the goal of the wait after a sync, or `None` if the next sync need not wait. `transactions` are present now.
    ///
    /// The `threads` wait for their commits and do nothing else. All of them are waited for, during half the time of a sync:
    /// one sync for all of them saves as much. Other writers, such as clients over the network, do not come back at once,
    /// and work is done for them meanwhile. A third as many are waited for as were lately present at once. Where few are
    /// present at a time because they are answered at once, and many come all the same, half of those that come in
    /// [`GatherPolicy::PACE`] are waited for.
    ///
    /// Clients that wait for their answers and come again within two milliseconds look like such a stream but are too few.
    /// The back-off learns that.
    fn goal_after(
        &mut self,
        threads: usize,
        transactions: usize,
        began: Instant,
        ended: Instant,
    ) -> Option<GatherGoal> {
        let by_themselves = transactions.saturating_sub(std::mem::take(&mut self.gathered));
        self.most = by_themselves.max((self.most * 15 + by_themselves) / 16);
        let some = self.most / 3;
        let part = ((ended - began) / 2).min(Self::THREAD_WAIT_MAX);
        let streamed = (self.per_ms * Self::PACE.as_secs_f64() * 1e3) as usize;
        let is_stream = threads == 0
            && some < Self::STREAM_SHARED
            && streamed >= Self::STREAM_MIN
            && streamed / 2 > some
            && began + Self::PACE > ended;
        if is_stream && self.stream.is_due() {
            let dry = Duration::from_secs_f64(Self::STREAM_DRY / self.per_ms / 1e3);
            self.gathered = streamed / 2;
            return Some(GatherGoal {
                transactions: self.gathered,
                until: began + Self::PACE,
                quiet: dry,
                streamed: true,
            });
        }
        let goal = if some > threads && began + Self::CADENCE > ended {
            let (until, quiet) = (began + Self::CADENCE, part.max(Self::QUIET_MIN));
            GatherGoal { transactions: some, until, quiet, streamed: false }
        } else {
            GatherGoal { transactions: threads, until: ended + part, quiet: part, streamed: false }
        };
        if goal.transactions < 2 || goal.until <= ended {
            return None;
        }
        self.rejoin.is_due().then_some(goal)
    }

    fn learn(&mut self, goal: &GatherGoal, came: bool) {
        if goal.streamed {
            self.stream.learn(came, Self::DOUBLINGS_STREAMED)
        } else {
            self.rejoin.learn(came, Self::DOUBLINGS)
        }
    }
}

#[derive(Default)]
struct SyncState {
    asked: bool,
    ended: bool,
}

impl GroupCommit {
    pub fn new(shared: Arc<Shared>, core: Core) -> Self {
        GroupCommit {
            shared,
            slot: Mutex::new(Rank::new(47, "engine core slot"), CoreSlot::Free(Box::new(core))),
            returned: Condvar::new(),
            sync: Mutex::new(Rank::new(55, "engine sync"), SyncState::default()),
            asked: Condvar::new(),
        }
    }

    /// Runs the commit thread. Returns the core once the inbox is closed and every request is answered, or `None` after a
    /// panic.
    pub fn run_commit(&self) -> Option<Core> {
        let shared = &*self.shared;
        let heart = vfs::heartbeat::register(shared.env.clock.clone(), "commit", "interactive");
        let mut policy = GatherPolicy::default();
        loop {
            heart.idle();
            shared.inbox.wait_for_any();
            heart.busy();
            let Some(mut core) = self.take() else {
                self.refuse_all();
                return None;
            };
            let mut began = Instant::now();
            while core.syncing() || core.owes_sync() || !shared.inbox.is_empty() {
                if core.syncing() {
                    heart.idle();
                    let taken = shared.inbox.wait_beside_sync(shared.options.group_bytes_max);
                    heart.busy();
                    match taken.synced {
                        Some(result) => {
                            self.answer(&mut core, &mut policy, &heart, Synced { began, result })?
                        }
                        None => self.guarded(&mut core, |core| core.answer_and_write(taken))?,
                    }
                    continue;
                }
                let owed = core.owes_sync();
                let taken = shared.inbox.take(shared.options.group_bytes_max);
                let small =
                    !owed && taken.requests.iter().map(Request::bytes).sum::<u64>() <= INLINE_SYNC_BYTES;
                let wants_sync = self.guarded(&mut core, |core| core.step(taken))?;
                began = Instant::now();
                if wants_sync && small && !shared.inbox.has_enough_for_a_frame() {
                    let result = shared.syncer.sync();
                    self.answer(&mut core, &mut policy, &heart, Synced { began, result })?;
                } else if wants_sync {
                    self.sync.lock().asked = true;
                    self.asked.notify_one();
                }
            }
            if shared.inbox.is_done() {
                *self.slot.lock() = CoreSlot::Gone;
                return Some(*core);
            }
            self.put_back(core);
        }
    }

    /// Answers the writers whose sync ended, and waits for more of them before the next sync. Requests that come meanwhile
    /// are written.
    fn answer(
        &self,
        core: &mut Core,
        policy: &mut GatherPolicy,
        heart: &Heartbeat,
        synced: Synced,
    ) -> Option<()> {
        let (inbox, ended) = (&self.shared.inbox, Instant::now());
        let (answered, written) = core.answers_due();
        policy.note(answered, ended);
        let (threads, there) =
            (self.shared.waiting_writers.load(Ordering::Relaxed), answered + written + inbox.len());
        self.guarded(core, |core| {
            core.answer_and_write(InboxBatch { synced: Some(synced.result), ..InboxBatch::default() });
        })?;
        let Some(goal) = policy.goal_after(threads, there, synced.began, ended) else { return Some(()) };
        let missing = |core: &Core| goal.transactions.saturating_sub(core.answers_due().1);
        if inbox.len() >= missing(core) {
            return Some(());
        }
        let mut bytes = 0;
        loop {
            heart.idle();
            let came = inbox.gather(missing(core), goal.until, goal.quiet);
            heart.busy();
            if !came || inbox.len() >= missing(core) {
                policy.learn(&goal, came);
                return Some(());
            }
            if bytes >= GatherPolicy::WRITTEN_MAX || Instant::now() >= goal.until {
                return Some(());
            }
            let taken = inbox.take(self.shared.options.group_bytes_max);
            bytes += taken.requests.iter().map(Request::bytes).sum::<u64>();
            self.guarded(core, |core| core.answer_and_write(taken))?;
        }
    }

    /// Runs work of the commit thread on the core. Returns `None` if it panicked, after the inbox was closed and every
    /// request refused.
    fn guarded<T>(&self, core: &mut Core, work: impl FnOnce(&mut Core) -> T) -> Option<T> {
        let worked = catch_unwind(AssertUnwindSafe(|| work(core))).ok();
        if worked.is_none() {
            self.give_up_core();
            core.abandon();
            self.refuse_all();
        }
        worked
    }

    /// Commits in the calling thread and waits until the commit is durable. Returns the request if the commit thread must do
    /// it.
    pub fn commit_here(&self, request: Request) -> Option<Request> {
        let shared = &*self.shared;
        // Requests that already wait come first.
        if request.bytes() > INLINE_SYNC_BYTES || !shared.inbox.is_empty() || !threads::is_interactive() {
            return Some(request);
        }
        let Some(mut core) = self.take_if_free() else { return Some(request) };
        let commit = || {
            if core.step(InboxBatch { requests: vec![request], ..InboxBatch::default() }) {
                core.step(InboxBatch { synced: Some(shared.syncer.sync()), ..InboxBatch::default() });
            }
        };
        match catch_unwind(AssertUnwindSafe(commit)) {
            Ok(()) => self.put_back(core),
            Err(_) => self.give_up_core(),
        }
        None
    }

    fn take_if_free(&self) -> Option<Box<Core>> {
        let mut slot = self.slot.lock();
        match std::mem::replace(&mut *slot, CoreSlot::Taken) {
            CoreSlot::Free(core) => Some(core),
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Waits for the core; returns `None` if it is lost.
    fn take(&self) -> Option<Box<Core>> {
        let mut slot = self.slot.lock();
        while matches!(*slot, CoreSlot::Taken) {
            self.returned.wait(&mut slot);
        }
        match std::mem::replace(&mut *slot, CoreSlot::Taken) {
            CoreSlot::Free(core) => Some(core),
            _ => {
                *slot = CoreSlot::Gone;
                None
            }
        }
    }

    fn put_back(&self, core: Box<Core>) {
        *self.slot.lock() = CoreSlot::Free(core);
        self.returned.notify_one();
    }

    /// Gives the core up after a panic: the tips are in doubt. Readers keep the last root, writers are refused.
    fn give_up_core(&self) {
        self.shared.refuse_writes(
            Error::new(Kind::Latched, "the commit thread failed; nothing more is accepted")
                .hint("restart Polynya; what was acknowledged is safe"),
        );
        *self.slot.lock() = CoreSlot::Gone;
        self.returned.notify_one();
    }

    /// Refuses the requests that still come after the core was lost, until the database closes.
    fn refuse_all(&self) {
        let shared = &*self.shared;
        loop {
            let taken = shared.inbox.wait(u64::MAX);
            let error = shared.check_writable().err();
            let error = error.unwrap_or_else(|| Error::new(Kind::Latched, "nothing more is accepted"));
            // Each round takes at most one frame's worth.
            let is_empty = taken.requests.is_empty();
            taken.requests.into_iter().for_each(|request| request.refuse(error.clone()));
            if taken.closed && is_empty {
                return;
            }
        }
    }

    /// Runs the sync thread.
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

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_lone_writer_is_not_waited_for() {
        let (mut policy, now) = (GatherPolicy::default(), Instant::now());
        for (threads, transactions) in [(0, 0), (0, 1), (1, 1), (0, 5), (1, 2)] {
            assert_eq!(policy.goal_after(threads, transactions, now, now + MS), None);
        }
        let mut beside = GatherPolicy::default();
        let now = stream(&mut beside, now, MS / 5);
        assert_eq!(beside.goal_after(1, 2, now, now + MS), None, "a thread, beside a stream");
    }

    /// Notes 5,000 single answers, one after each `every`. Returns the time of the last.
    fn stream(policy: &mut GatherPolicy, from: Instant, every: Duration) -> Instant {
        (1..=5_000).for_each(|n| policy.note(1, from + every * n));
        from + every * 5_000
    }

    #[test]
    fn threads_are_waited_for_in_proportion_to_a_sync_and_clients_until_the_next_is_due() {
        let now = Instant::now();
        let wants = |policy: &mut GatherPolicy, threads, transactions, sync| {
            let goal = policy.goal_after(threads, transactions, now, now + sync)?;
            Some((goal.transactions, goal.until - now, goal.quiet))
        };
        let mut policy = GatherPolicy::default();
        assert_eq!(wants(&mut policy, 4, 4, 2 * MS), Some((4, 3 * MS, MS)));
        assert_eq!(wants(&mut policy, 0, 50, MS), Some((16, 8 * MS, MS)));
        assert_eq!(wants(&mut policy, 0, 18, MS), Some((16, 8 * MS, MS)), "fewer were there only now");
        assert_eq!(wants(&mut policy, 2, 50, 6 * MS), Some((16, 8 * MS, 3 * MS)));
        // On a slow disk the clients present by now go with the next sync; threads are waited for as ever.
        assert_eq!(wants(&mut policy, 0, 50, 8 * MS), None);
        assert_eq!(wants(&mut policy, 2, 6, 10 * MS), Some((2, 15 * MS, 5 * MS)));
        assert_eq!(wants(&mut policy, 4, 4, 1_000 * MS), Some((4, 1_020 * MS, 20 * MS)));
    }

    #[test]
    fn a_stream_of_which_few_are_there_at_a_time_shares_syncs() {
        let (mut policy, start) = (GatherPolicy::default(), Instant::now());
        let mut now = stream(&mut policy, start, MS / 5);
        let goal = policy.goal_after(0, 2, now, now + MS / 5).unwrap();
        assert_eq!((goal.until - now, goal.streamed), (4 * MS, true));
        assert!((8..=10).contains(&goal.transactions), "{goal:?}: five come in a millisecond");
        assert!((900..=1_100).contains(&goal.quiet.as_micros()), "{goal:?}: five are missing by then");
        for _ in 0..50 {
            assert!(
                policy.goal_after(0, 12, now, now + MS / 5).unwrap().streamed,
                "they are there as they are waited for"
            );
        }
        assert_eq!(policy.goal_after(0, 2, now, now + 4 * MS), None, "a slower disk");
        assert_eq!(
            policy.goal_after(4, 4, now, now + MS).unwrap().transactions,
            4,
            "threads come back at once"
        );
        // Clients that wait for their answers before they come again do not come.
        policy.learn(&goal, false);
        assert_eq!(policy.goal_after(0, 2, now, now + MS / 5), None);
        // Many that are present at once share syncs without being a stream.
        assert!(policy.goal_after(0, 2, now, now + MS / 5).unwrap().streamed);
        assert_eq!(policy.goal_after(0, 60, now, now + MS / 5).map(|goal| goal.streamed), Some(false));
        let mut few = GatherPolicy::default();
        now = stream(&mut few, now, MS / 2);
        for _ in 0..3 {
            assert_eq!(few.goal_after(0, 1, now, now + MS / 5), None, "too few come");
        }
    }

    #[test]
    fn what_was_answered_before_a_rest_is_no_stream() {
        let mut policy = GatherPolicy::default();
        let now = stream(&mut policy, Instant::now(), MS / 5);
        policy.note(1, now + 1_000 * MS);
        assert!(policy.per_ms < 0.01, "{}", policy.per_ms);
        policy.note(50, now + 1_001 * MS);
        assert!(policy.per_ms < 1.0, "{}: fifty at once", policy.per_ms);
    }

    #[test]
    fn those_that_do_something_else_first_are_waited_for_less_and_less() {
        let (mut policy, now) = (GatherPolicy::default(), Instant::now());
        let mut waits = 0;
        for _ in 0..1_000 {
            if let Some(goal) = policy.goal_after(2, 2, now, now + MS) {
                waits += 1;
                policy.learn(&goal, false);
            }
        }
        assert!((8..=16).contains(&waits), "{waits} waits for nobody");
        for _ in 0..GatherPolicy::DOUBLINGS {
            let mut tries = (0..1_000).filter_map(|_| policy.goal_after(2, 2, now, now + MS));
            let goal = tries.next().unwrap();
            drop(tries);
            policy.learn(&goal, true);
        }
        policy.rejoin.learn(false, GatherPolicy::DOUBLINGS);
        assert_eq!(policy.rejoin.resting, 1, "they came as often as they had not");
    }
}
