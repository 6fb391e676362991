//! The background pool: a few threads of the lowest class for all databases of the process.
//!
//! A database that may have work sets its flag and wakes the pool. A pool thread does one piece of that work and goes on to
//! the next database, so many databases share the threads fairly. While no flag is set the process sleeps.
//!
//! There is one thread more than may be in long work ([`LongWorkPermit`]). So a full head, and a manifest that lets the log be
//! trimmed, never wait until a merge or a lake commit has ended; writers would have to wait with them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use vfs::{Condvar, Mutex, Rank};

use crate::background::{self, StepOutcome};
use crate::shared_state::Shared;
use crate::threads::Class;

struct Pool {
    state: Mutex<PoolState>,
    woken: Condvar,
}

#[derive(Default)]
struct PoolState {
    databases: Vec<Weak<Shared>>,
    next: usize,
    threads: usize,
    /// Times at which the flags of databases go up again, for retries and for work that is due later.
    alarms: Vec<(Instant, Weak<Shared>)>,
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool {
        state: Mutex::new(Rank::new(42, "engine background pool"), PoolState::default()),
        woken: Condvar::new(),
    })
}

/// Number of threads that may be in long work: two, more on larger machines, and those of [`add_thread`].
pub(crate) fn long_max() -> usize {
    let cores = std::thread::available_parallelism().map_or(2, |n| (n.get() / 2).max(2));
    cores + EXTRA_THREADS.load(Ordering::Relaxed)
}

/// Number of threads added for work that mostly waits for another machine.
static EXTRA_THREADS: AtomicUsize = AtomicUsize::new(0);
/// Number of threads in long work.
static IN_LONG_WORK: AtomicUsize = AtomicUsize::new(0);

/// Permission of a thread to do work that takes seconds: merges, erasures, derived data, evictions and compressions.
pub(crate) enum LongWorkPermit {
    /// The limit does not apply.
    Unlimited,
    Granted(LongWorkGuard),
    /// One more thread in long work would leave none for urgent work.
    Refused,
}

/// Counts one thread as being in long work, until dropped.
pub(crate) struct LongWorkGuard(());

impl LongWorkPermit {
    pub fn take() -> LongWorkPermit {
        let one_more = |count: usize| (count < long_max()).then_some(count + 1);
        match IN_LONG_WORK.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more) {
            Ok(_) => LongWorkPermit::Granted(LongWorkGuard(())),
            Err(_) => LongWorkPermit::Refused,
        }
    }
}

impl Drop for LongWorkGuard {
    fn drop(&mut self) {
        IN_LONG_WORK.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Adds a database to the pool, until it leaves or is dropped.
pub(crate) fn join(shared: &Arc<Shared>) -> std::io::Result<()> {
    let pool = pool();
    let mut state = pool.state.lock();
    state.databases.retain(|m| m.strong_count() > 0);
    state.databases.push(Arc::downgrade(shared));
    state.fill()?;
    drop(state);
    pool.woken.notify_one();
    Ok(())
}

/// Adds one more thread, for work that mostly waits for another machine.
pub(crate) fn add_thread() -> std::io::Result<()> {
    let mut state = pool().state.lock();
    EXTRA_THREADS.fetch_add(1, Ordering::Relaxed);
    state.fill()
}

impl PoolState {
    /// Sets the alarm of a database. An earlier alarm stays: another thread saw something that this one did not.
    fn set_alarm(&mut self, at: Instant, shared: &Arc<Shared>) {
        match self.alarms.iter_mut().find(|(_, of)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(shared))) {
            Some((sooner, _)) => *sooner = at.min(*sooner),
            None => self.alarms.push((at, Arc::downgrade(shared))),
        }
    }

    fn fill(&mut self) -> std::io::Result<()> {
        while self.threads < long_max() + 1 {
            Class::Background.spawn(&format!("pn-background-{}", self.threads), run)?;
            self.threads += 1;
        }
        Ok(())
    }
}

pub(crate) fn leave(shared: &Arc<Shared>) {
    pool().state.lock().databases.retain(|m| !std::ptr::eq(m.as_ptr(), Arc::as_ptr(shared)));
}

/// Lets a thread check the flags. Takes the lock: otherwise the wake could come between a thread's check and its sleep. It
/// would be lost for good, since a caller that finds a flag already up does not wake anybody.
pub(crate) fn wake() {
    let pool = pool();
    drop(pool.state.lock());
    pool.woken.notify_one();
}

fn run() {
    let pool = pool();
    loop {
        let mut state = pool.state.lock();
        let shared = loop {
            let alarm = raise_due_flags(&mut state);
            match (next(&mut state), alarm) {
                (Some(shared), _) => break shared,
                (None, None) => pool.woken.wait(&mut state),
                (None, Some(patience)) => {
                    pool.woken.wait_for(&mut state, patience);
                }
            }
        };
        drop(state);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| background::step(&shared)));
        match outcome {
            // There may be more work: the flag stays up for the next thread.
            Ok(StepOutcome::Worked) => {
                shared.work.store(true, Ordering::Release);
                wake();
            }
            Ok(StepOutcome::Idle { again: None }) => {}
            Ok(StepOutcome::Idle { again: Some(after) }) => {
                // A simulated clock may stand still; this loop must not spin on it.
                let at = Instant::now() + after.max(Duration::from_millis(100));
                pool.state.lock().set_alarm(at, &shared);
            }
            Err(_) => {
                // The failed work is due again after a while; the rest of the database's work goes on.
                shared.counters.background_errors.add(1);
                shared.work.store(true, Ordering::Release);
                wake();
            }
        }
    }
}

/// Raises the flags that are due. Returns the time until the next one is.
fn raise_due_flags(state: &mut PoolState) -> Option<Duration> {
    let now = Instant::now();
    state.alarms.retain(|(at, shared)| {
        let due = *at <= now;
        if due && let Some(shared) = shared.upgrade() {
            shared.work.store(true, Ordering::Release);
        }
        !due
    });
    state.alarms.iter().map(|(at, _)| at.saturating_duration_since(now)).min()
}

/// Returns the next database in turn that may have work. Its flag is lowered before the work is looked for, so that a wake
/// in between is not lost.
fn next(state: &mut PoolState) -> Option<Arc<Shared>> {
    let count = state.databases.len();
    for i in 0..count {
        let position = (state.next + i) % count;
        if let Some(shared) = state.databases[position].upgrade()
            && shared.work.swap(false, Ordering::AcqRel)
        {
            state.next = position + 1;
            return Some(shared);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that found nothing to do postponed the alarm that another thread had set.
    #[test]
    fn the_sooner_alarm_of_a_database_stays() {
        let machine = sim::SimEnv::new(1);
        let open = |dir: &str| {
            let options = crate::Options::default();
            crate::Engine::open_stepped(machine.env(), std::path::Path::new(dir), options).unwrap()
        };
        let (one, other) = (open("one"), open("other"));
        let shared = |engine: &crate::Engine| engine.shared_weak().upgrade().unwrap();
        let mut state = PoolState::default();
        let now = Instant::now();
        for (engine, seconds) in [(&one, 50), (&one, 20), (&one, 90), (&other, 70)] {
            state.set_alarm(now + Duration::from_secs(seconds), &shared(engine));
        }
        let mut alarms: Vec<Duration> = state.alarms.iter().map(|(at, _)| *at - now).collect();
        alarms.sort_unstable();
        assert_eq!(alarms, [Duration::from_secs(20), Duration::from_secs(70)]);
        assert!(raise_due_flags(&mut state).is_some_and(|left| left <= Duration::from_secs(20)));
    }
}
