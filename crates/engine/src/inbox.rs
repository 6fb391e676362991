//! The queue of requests to the commit thread. Bounded in number and bytes (R2); readers never use it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use table::materializer::Position;
use types::{Error, Kind, Lsn, Result, SegmentId, TableId};
use vfs::{Condvar, Mutex, Rank};

use crate::background::SealProgress;
use crate::prepare::{Prepared, TRANSACTION_BYTES_MAX};
use crate::transaction::Committed;

/// Callback that receives the outcome of a transaction, once, from the commit thread. It must not block.
pub(crate) type CommitCallback = Box<dyn FnOnce(Result<Committed>) + Send>;

/// A request to the commit thread.
pub(crate) enum Request {
    Write {
        prepared: Prepared,
        done: CommitCallback,
    },
    /// Applies a result of background work.
    Edit {
        edit: BackgroundEdit,
        done: CommitCallback,
    },
}

/// The result of background work, to be logged and applied.
#[derive(Debug)]
pub(crate) enum BackgroundEdit {
    Seal {
        table: TableId,
        segment: Arc<table::Segment>,
        kept: Option<table::RetainedRows>,
        sealing: SealProgress,
    },
    Compact {
        table: TableId,
        inputs: Vec<SegmentId>,
        output: Option<Arc<table::Segment>>,
        kept: Option<table::RetainedRows>,
    },
    /// A segment gave up its rows, which are read from the lake from now on.
    Evict {
        table: TableId,
        input: SegmentId,
        output: Arc<table::Segment>,
        /// The lake snapshot in which the rows were compared; `position` and `name` are its position and materializer.
        landed: Arc<dyn table::LakeSnapshot>,
        position: Arc<Position>,
        name: &'static str,
    },
    /// Deleted rows need no longer be retained.
    Forget { table: TableId, segments: Vec<SegmentId>, floor: Lsn },
    /// A materializer made progress.
    Derive { table: TableId, name: &'static str, position: Arc<Position> },
    /// The log dropped files, so a request that found no room may be tried again.
    Trimmed,
}

impl Request {
    pub fn bytes(&self) -> u64 {
        match self {
            Request::Write { prepared, .. } => prepared.bytes,
            Request::Edit { .. } => 0,
        }
    }

    /// Upper bound of the bytes that the request adds to a frame.
    pub fn frame_bytes(&self) -> u64 {
        match self {
            Request::Write { prepared, .. } => prepared.frame_bytes,
            // A segment's description, and the ids of the segments that it replaces.
            Request::Edit { edit: BackgroundEdit::Compact { inputs, .. }, .. } => {
                1024 + inputs.len() as u64 * 10
            }
            Request::Edit { edit: BackgroundEdit::Forget { segments, .. }, .. } => {
                1024 + segments.len() as u64 * 10
            }
            Request::Edit { edit: BackgroundEdit::Derive { position, .. }, .. } => {
                1024 + position.checkpoint.state.len() as u64
            }
            // A trim logs nothing.
            Request::Edit { edit: BackgroundEdit::Trimmed, .. } => 0,
            Request::Edit { .. } => 1024,
        }
    }

    /// Returns true if the request may proceed where others find the disk full. It ends rows, tables or indexes, or it is a
    /// result of background work, which lets the log be trimmed.
    pub fn makes_room(&self) -> bool {
        match self {
            Request::Write { prepared, .. } => prepared.makes_room(),
            Request::Edit { .. } => true,
        }
    }

    pub fn refuse(self, error: Error) {
        match self {
            Request::Write { done, .. } | Request::Edit { done, .. } => done(Err(error)),
        }
    }
}

#[derive(Default)]
struct State {
    requests: VecDeque<Request>,
    bytes: u64,
    /// Result of the last sync, if the commit thread has not taken it yet.
    synced: Option<Result<Lsn>>,
    closed: bool,
    /// Number of requests for which the commit thread waits, while it does so in [`Inbox::gather`].
    gathering: Option<usize>,
}

pub(crate) struct Inbox {
    state: Mutex<State>,
    arrived: Condvar,
    /// A copy of the state's `bytes`, to be read without the lock.
    bytes: AtomicU64,
    len_max: usize,
    bytes_max: u64,
}

/// Contents of the inbox, taken by the commit thread.
#[derive(Default)]
pub(crate) struct InboxBatch {
    pub requests: Vec<Request>,
    pub synced: Option<Result<Lsn>>,
    pub closed: bool,
}

impl Inbox {
    pub fn new(len_max: usize, bytes_max: u64) -> Self {
        let state = Mutex::new(Rank::new(50, "engine inbox"), State::default());
        Inbox { state, arrived: Condvar::new(), bytes: AtomicU64::new(0), len_max, bytes_max }
    }

    /// Queues a request, or gives it back: [`Kind::Closed`] after [`Inbox::close`], [`Kind::Busy`] when full. Background
    /// edits are taken even when it is full: they make room.
    pub fn push(&self, request: Request) -> std::result::Result<(), (Request, Error)> {
        let mut state = self.state.lock();
        let refusal = if state.closed {
            Some(Error::new(Kind::Closed, "the database is closing"))
        } else if matches!(request, Request::Write { .. })
            && (state.requests.len() >= self.len_max || state.bytes + request.bytes() > self.bytes_max)
            && !state.requests.is_empty()
        {
            Some(Error::new(Kind::Busy, "too many writes are waiting").hint("send it again a little later"))
        } else {
            None
        };
        if let Some(error) = refusal {
            return Err((request, error));
        }
        let had_enough = state.enough_for_a_frame();
        state.bytes += request.bytes();
        state.requests.push_back(request);
        // The commit thread sleeps only while the inbox is empty or while it gathers. So it is woken at these two edges, not
        // at every request.
        let first = state.gathering.unwrap_or(1);
        let wake = state.requests.len() == first || (!had_enough && state.enough_for_a_frame());
        self.bytes.store(state.bytes, Ordering::Relaxed);
        drop(state);
        if wake {
            self.arrived.notify_one();
        }
        Ok(())
    }

    pub fn synced(&self, result: Result<Lsn>) {
        self.state.lock().synced = Some(result);
        self.arrived.notify_one();
    }

    pub fn close(&self) {
        self.state.lock().closed = true;
        self.arrived.notify_one();
    }

    /// Bytes of the waiting requests. Takes no lock.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.state.lock().requests.len()
    }

    /// Returns true if no request waits.
    pub fn is_empty(&self) -> bool {
        self.state.lock().requests.is_empty()
    }

    /// Returns true if no request waits and none will come any more.
    pub fn is_done(&self) -> bool {
        let state = self.state.lock();
        state.closed && state.requests.is_empty()
    }

    /// Waits until there is a request, or none will come any more.
    pub fn wait_for_any(&self) {
        let mut state = self.state.lock();
        while state.requests.is_empty() && !state.closed {
            self.arrived.wait(&mut state);
        }
    }

    /// Waits until `count` requests are here, or enough for a frame. Gives up at `until`, and once no request has come for
    /// `quiet`. Returns true if they are here.
    pub fn gather(&self, count: usize, until: Instant, quiet: Duration) -> bool {
        let mut state = self.state.lock();
        state.gathering = Some(count);
        let has_enough = |state: &State| state.requests.len() >= count || state.enough_for_a_frame();
        while !has_enough(&state) && !state.closed {
            let left = until.saturating_duration_since(Instant::now());
            let before = state.requests.len();
            if left.is_zero() {
                break;
            }
            if !self.arrived.wait_for(&mut state, left.min(quiet)) && state.requests.len() == before {
                break;
            }
        }
        state.gathering = None;
        has_enough(&state)
    }

    /// Returns true if enough requests wait that they should be written while a sync runs.
    pub fn has_enough_for_a_frame(&self) -> bool {
        self.state.lock().enough_for_a_frame()
    }

    /// Takes requests for up to `bytes_max` of log, but at least one, without waiting.
    pub fn take(&self, bytes_max: u64) -> InboxBatch {
        self.take_from(&mut self.state.lock(), bytes_max)
    }

    /// Takes the result of the last sync, and no request.
    pub fn take_synced(&self) -> InboxBatch {
        InboxBatch { synced: self.state.lock().synced.take(), ..InboxBatch::default() }
    }

    /// Waits until there is a request, or none will come any more; then takes like [`Inbox::take`].
    pub fn wait(&self, bytes_max: u64) -> InboxBatch {
        let mut state = self.state.lock();
        while state.requests.is_empty() && !state.closed {
            self.arrived.wait(&mut state);
        }
        self.take_from(&mut state, bytes_max)
    }

    /// Waits until the running sync has ended, and takes only its result; or until there is enough for a frame, and takes
    /// that. A few small requests are left to gather: they could not become durable before the next sync anyway, and one
    /// frame for all is cheaper.
    pub fn wait_beside_sync(&self, bytes_max: u64) -> InboxBatch {
        let mut state = self.state.lock();
        while state.synced.is_none() && !state.enough_for_a_frame() {
            self.arrived.wait(&mut state);
        }
        match state.synced.take() {
            None => self.take_from(&mut state, bytes_max),
            synced => InboxBatch { synced, ..InboxBatch::default() },
        }
    }

    fn take_from(&self, state: &mut State, bytes_max: u64) -> InboxBatch {
        let mut taken =
            InboxBatch { requests: Vec::new(), synced: state.synced.take(), closed: state.closed };
        // All of them go into one frame, so the frame's limit counts as well.
        let frame_bytes_max = bytes_max.min(TRANSACTION_BYTES_MAX);
        let (mut bytes, mut frame_bytes) = (0, 0);
        while let Some(request) = state.requests.front() {
            if !taken.requests.is_empty() && frame_bytes + request.frame_bytes() > frame_bytes_max {
                break;
            }
            bytes += request.bytes();
            frame_bytes += request.frame_bytes();
            taken.requests.extend(state.requests.pop_front());
        }
        state.bytes -= bytes;
        self.bytes.store(state.bytes, Ordering::Relaxed);
        taken
    }
}

impl State {
    /// Returns true if a frame is worth writing while a sync runs: enough requests wait that the cost for each is small, and
    /// writing early overlaps with the sync.
    fn enough_for_a_frame(&self) -> bool {
        self.bytes >= 256 << 10 || self.requests.len() >= 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox_of(count: usize) -> Inbox {
        let inbox = Inbox::new(1_000, 1 << 20);
        push(&inbox, count);
        inbox
    }

    fn push(inbox: &Inbox, count: usize) {
        for _ in 0..count {
            let request = Request::Edit { edit: BackgroundEdit::Trimmed, done: Box::new(|_| ()) };
            assert!(inbox.push(request).is_ok());
        }
    }

    #[test]
    fn beside_a_sync_few_requests_are_left_and_many_are_taken() {
        let _limit = testkit::limit(60);
        let inbox = inbox_of(63);
        inbox.synced(Ok(Lsn(7)));
        let taken = inbox.wait_beside_sync(1 << 20);
        assert_eq!((taken.synced.unwrap().unwrap(), taken.requests.len(), inbox.len()), (Lsn(7), 0, 63));
        push(&inbox, 1);
        let taken = inbox.wait_beside_sync(1 << 20);
        assert_eq!((taken.synced.is_some(), taken.requests.len(), inbox.len()), (false, 64, 0));
    }

    #[test]
    fn who_gathers_stops_at_enough_at_the_end_of_its_time_and_when_the_inbox_closes() {
        let _limit = testkit::limit(60);
        let (long, moment) = (Duration::from_secs(600), Duration::from_millis(1));
        let later = || Instant::now() + long;
        let inbox = inbox_of(3);
        assert!(inbox.gather(3, later(), long));
        assert!(!inbox.gather(4, Instant::now(), long));
        assert!(!inbox.gather(4, later(), moment), "nobody came for a moment");
        // Each of these events wakes a thread that already sleeps.
        let gathering = |inbox: &Inbox| while inbox.state.lock().gathering.is_none() {};
        std::thread::scope(|scope| {
            let gathered = scope.spawn(|| inbox.gather(5, later(), long));
            gathering(&inbox);
            push(&inbox, 2);
            assert!(gathered.join().unwrap());
            let gathered = scope.spawn(|| inbox.gather(6, later(), long));
            gathering(&inbox);
            inbox.close();
            assert!(!gathered.join().unwrap());
        });
        let inbox = inbox_of(0);
        std::thread::scope(|scope| {
            let gathered = scope.spawn(|| inbox.gather(100, later(), long));
            gathering(&inbox);
            push(&inbox, 64);
            assert!(gathered.join().unwrap(), "enough for a frame");
        });
    }
}
