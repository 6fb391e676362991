//! Answers for statements whose threads are stuck.
//!
//! A deadline is a timer of SQL's own runtime, and all its threads may be inside one long function call that never checks a
//! clock. The watchdog's thread checks ten times a second for overdue statements, and gives their waiters or readers the answer.
//! After a second without statements it sleeps. Each statement costs two short locks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use tokio::sync::{mpsc, oneshot};
use types::{Error, Result};
use vfs::{Condvar, Mutex, Rank};

use crate::answer::Answer;
use crate::deadline::CommitPhase;

const TICK: Duration = Duration::from_millis(100);
/// Checks without a statement before the thread sleeps: if short statements come often, few of them have to wake it.
const IDLE_TICKS: u32 = 10;
/// Time beyond its deadline that a statement has to answer by itself.
pub(crate) const GRACE: Duration = Duration::from_millis(500);

pub(crate) struct Watchdog {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// The watched statements, in the order of their arrival.
    watched: BTreeMap<u64, WatchedStatement>,
    next: u64,
    asleep: bool,
    closed: bool,
}

struct WatchedStatement {
    since: Instant,
    due: Instant,
    end: Box<dyn FnOnce(EndReason) + Send>,
}

/// The reason for which the watchdog answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    Overdue,
    Closed,
}

impl Watchdog {
    pub fn start() -> Result<Self> {
        let state = Mutex::new(Rank::new(31, "sql watchdog"), State::default());
        let inner = Arc::new(Inner { state, wake: Condvar::new() });
        let watching = inner.clone();
        let thread = std::thread::Builder::new()
            .name("polynya-sql-dog".into())
            .spawn(move || watching.run())
            .map_err(|e| Error::io("starting SQL's watchdog", e))?;
        Ok(Watchdog { inner, thread: Mutex::new(Rank::new(33, "sql watchdog's thread"), Some(thread)) })
    }

    /// Calls `end` at about `due`, or when SQL closes, unless the returned watch is dropped before.
    pub fn watch(&self, due: Instant, end: impl FnOnce(EndReason) + Send + 'static) -> Watch {
        let mut state = self.inner.state.lock();
        let id = state.next;
        state.next += 1;
        state.watched.insert(id, WatchedStatement { since: Instant::now(), due, end: Box::new(end) });
        let asleep = std::mem::take(&mut state.asleep);
        drop(state);
        if asleep {
            self.inner.wake.notify_one();
        }
        Watch { inner: self.inner.clone(), id }
    }

    /// Age of the oldest watched statement.
    pub fn oldest(&self) -> Duration {
        let state = self.inner.state.lock();
        // The map is in the order of arrival.
        state.watched.values().next().map_or(Duration::ZERO, |watched| watched.since.elapsed())
    }

    /// Answers all remaining statements, and ends the thread.
    pub fn close(&self) {
        let mut state = self.inner.state.lock();
        state.closed = true;
        let left = std::mem::take(&mut state.watched);
        drop(state);
        self.inner.wake.notify_one();
        left.into_values().for_each(|watched| (watched.end)(EndReason::Closed));
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // The thread is about to end, and a panic in it could not be reported.
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn run(&self) {
        let mut idle = 0;
        let mut state = self.state.lock();
        while !state.closed {
            let now = Instant::now();
            let overdue: Vec<u64> =
                state.watched.iter().filter(|(_, w)| w.due <= now).map(|(id, _)| *id).collect();
            if !overdue.is_empty() {
                let ends: Vec<_> = overdue.iter().filter_map(|id| state.watched.remove(id)).collect();
                drop(state);
                ends.into_iter().for_each(|watched| (watched.end)(EndReason::Overdue));
                state = self.state.lock();
            } else if !state.watched.is_empty() || idle < IDLE_TICKS {
                idle = if state.watched.is_empty() { idle + 1 } else { 0 };
                self.wake.wait_for(&mut state, TICK);
            } else {
                state.asleep = true;
                self.wake.wait(&mut state);
                idle = 0;
            }
        }
    }
}

/// Keeps a statement watched until it is dropped.
pub(crate) struct Watch {
    inner: Arc<Inner>,
    id: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let watched = self.inner.state.lock().watched.remove(&self.id);
        drop(watched);
    }
}

/// The channel of a statement's only answer, given by the statement or the watchdog, whichever is first.
pub(crate) struct Reply(Mutex<ReplyState>);

enum ReplyState {
    Waited(oneshot::Sender<Result<Answer>>),
    /// The rows are being read.
    Read(mpsc::WeakSender<Result<RecordBatch>>),
    Over,
}

impl Reply {
    pub fn new(sender: oneshot::Sender<Result<Answer>>) -> Self {
        Reply(Mutex::new(Rank::new(32, "sql reply"), ReplyState::Waited(sender)))
    }

    /// Gives the answer; returns false if the waiter is gone or answered. `rows` is the sender of the answer's rows.
    pub fn give(&self, answer: Result<Answer>, rows: Option<mpsc::WeakSender<Result<RecordBatch>>>) -> bool {
        let mut stage = self.0.lock();
        let ReplyState::Waited(sender) = std::mem::replace(&mut *stage, ReplyState::Over) else {
            return false;
        };
        if let Some(rows) = rows {
            *stage = ReplyState::Read(rows);
        }
        drop(stage);
        sender.send(answer).is_ok()
    }

    /// Answers with an error, unless the transaction was handed to the engine: then only its outcome is an answer.
    pub fn end(&self, phase: &CommitPhase, error: Error) {
        let mut stage = self.0.lock();
        if matches!(*stage, ReplyState::Waited(_)) && !phase.expire() {
            return;
        }
        let old = std::mem::replace(&mut *stage, ReplyState::Over);
        drop(stage);
        match old {
            ReplyState::Waited(sender) => drop(sender.send(Err(error))),
            ReplyState::Read(rows) => {
                if let Some(rows) = rows.upgrade() {
                    // A full channel means that the reader is not waiting.
                    let _ = rows.try_send(Err(error));
                }
            }
            ReplyState::Over => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use types::Kind;

    use super::*;

    fn overdue() -> Error {
        Error::new(Kind::Timeout, "late")
    }

    #[test]
    fn a_statement_that_cannot_answer_is_answered_for() {
        let _limit = testkit::limit(60);
        let dog = Watchdog::start().unwrap();
        let (sender, receiver) = oneshot::channel();
        let reply = Arc::new(Reply::new(sender));
        let answered = reply.clone();
        let _watch = dog.watch(Instant::now(), move |_| reply.end(&CommitPhase::default(), overdue()));
        assert_eq!(receiver.blocking_recv().unwrap().unwrap_err().kind(), Kind::Timeout);
        assert!(!answered.give(Err(closed()), None), "there is one answer");
        dog.close();
    }

    #[test]
    fn a_reader_of_rows_hears_of_it_too() {
        let _limit = testkit::limit(60);
        let dog = Watchdog::start().unwrap();
        let (sender, _receiver) = oneshot::channel();
        let (batches, mut reader) = mpsc::channel(2);
        let reply = Arc::new(Reply::new(sender));
        reply.give(Err(closed()), Some(batches.downgrade()));
        let _watch = dog.watch(Instant::now(), move |_| reply.end(&CommitPhase::default(), overdue()));
        assert_eq!(reader.blocking_recv().unwrap().unwrap_err().kind(), Kind::Timeout);
    }

    #[test]
    fn a_transaction_on_its_way_is_not_answered_for() {
        let (sender, mut receiver) = oneshot::channel();
        let reply = Reply::new(sender);
        let phase = CommitPhase::default();
        assert!(phase.begin_commit());
        reply.end(&phase, overdue());
        assert!(receiver.try_recv().is_err());
        assert!(reply.give(Err(closed()), None));
    }

    #[test]
    fn who_is_done_is_left_alone_and_the_rest_hears_of_the_end() {
        let _limit = testkit::limit(60);
        let dog = Watchdog::start().unwrap();
        let (told, heard) = std::sync::mpsc::channel();
        let of = |name: &'static str| {
            let told = told.clone();
            move |why| told.send((name, why)).unwrap()
        };
        let later = Instant::now() + Duration::from_secs(3600);
        drop(dog.watch(Instant::now() + TICK, of("done")));
        let _left = dog.watch(later, of("left"));
        let _overdue = dog.watch(Instant::now() + 2 * TICK, of("overdue"));
        assert_eq!(heard.recv().unwrap(), ("overdue", EndReason::Overdue));
        dog.close();
        assert_eq!(heard.try_recv().unwrap(), ("left", EndReason::Closed));
        assert!(heard.try_recv().is_err());
    }

    fn closed() -> Error {
        Error::new(Kind::Closed, "closed")
    }
}
