//! The background pool: a few threads of the lowest class for all databases of the process.
//!
//! A database that may have work sets its flag and wakes the pool; a pool thread does one piece of it and goes on to
//! the next database, so that many databases share the threads fairly. No flag, no work: an idle process sleeps.
//!
//! One thread more than may be in long work ([`Turn`]): a head that is full, and the manifest that lets go of the log, never
//! wait until a merge or a commit of the lake has ended. What they wait for, writers wait for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use vfs::{Condvar, Mutex, Rank};

use crate::background::{self, Outcome};
use crate::shared::Shared;
use crate::threads::Class;

struct Pool {
    members: Mutex<Members>,
    woken: Condvar,
}

#[derive(Default)]
struct Members {
    databases: Vec<Weak<Shared>>,
    next: usize,
    threads: usize,
    /// When the flags of databases whose work failed go up again.
    alarms: Vec<(Instant, Weak<Shared>)>,
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool {
        members: Mutex::new(Rank::new(42, "engine background pool"), Members::default()),
        woken: Condvar::new(),
    })
}

/// How many threads may be in long work: two, more on larger machines, and those of [`widen`].
pub(crate) fn long_max() -> usize {
    let cores = std::thread::available_parallelism().map_or(2, |n| (n.get() / 2).max(2));
    cores + MORE.load(Ordering::Relaxed)
}

/// Threads for work that mostly waits for another machine.
static MORE: AtomicUsize = AtomicUsize::new(0);
/// Threads that are in long work.
static IN_LONG_WORK: AtomicUsize = AtomicUsize::new(0);

/// Whether a thread may be in work that takes seconds: merges, erasures, what is derived, rows that leave or are compressed.
pub(crate) enum Turn {
    /// Nobody counts.
    Free,
    Taken(Taken),
    /// So many threads are in long work that one more would leave none for what is urgent.
    Refused,
}

/// One thread in long work, until dropped.
pub(crate) struct Taken(());

impl Turn {
    pub fn take() -> Turn {
        let one_more = |count: usize| (count < long_max()).then_some(count + 1);
        match IN_LONG_WORK.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more) {
            Ok(_) => Turn::Taken(Taken(())),
            Err(_) => Turn::Refused,
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        IN_LONG_WORK.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Takes part from now on, until dropped.
pub(crate) fn join(shared: &Arc<Shared>) -> std::io::Result<()> {
    let pool = pool();
    let mut members = pool.members.lock();
    members.databases.retain(|m| m.strong_count() > 0);
    members.databases.push(Arc::downgrade(shared));
    members.fill()?;
    drop(members);
    pool.woken.notify_one();
    Ok(())
}

/// Takes one more thread, for work that mostly waits for another machine.
pub(crate) fn widen() -> std::io::Result<()> {
    let mut members = pool().members.lock();
    MORE.fetch_add(1, Ordering::Relaxed);
    members.fill()
}

impl Members {
    /// The sooner one stays: another thread saw what this one did not.
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
    pool().members.lock().databases.retain(|m| !std::ptr::eq(m.as_ptr(), Arc::as_ptr(shared)));
}

/// Lets a thread look at the flags. Under the lock, or it could come between a thread's look and its sleep and be lost,
/// for good, since who finds a flag up does not wake anybody.
pub(crate) fn wake() {
    let pool = pool();
    drop(pool.members.lock());
    pool.woken.notify_one();
}

fn run() {
    let pool = pool();
    loop {
        let mut members = pool.members.lock();
        let shared = loop {
            let alarm = ring(&mut members);
            match (next(&mut members), alarm) {
                (Some(shared), _) => break shared,
                (None, None) => pool.woken.wait(&mut members),
                (None, Some(patience)) => {
                    pool.woken.wait_for(&mut members, patience);
                }
            }
        };
        drop(members);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| background::step(&shared)));
        match outcome {
            // There may be more: leave the flag up for whoever comes next.
            Ok(Outcome::Worked) => {
                shared.work.store(true, Ordering::Release);
                wake();
            }
            Ok(Outcome::Idle { again: None }) => {}
            Ok(Outcome::Idle { again: Some(after) }) => {
                // A clock that is not real may stand still; this loop must not spin on it.
                let at = Instant::now() + after.max(Duration::from_millis(100));
                pool.members.lock().set_alarm(at, &shared);
            }
            Err(_) => {
                // What failed is due again after a while; the rest of the database's work goes on.
                shared.counters.background_errors.add(1);
                shared.work.store(true, Ordering::Release);
                wake();
            }
        }
    }
}

/// Raises the flags that are due; how long until the next is.
fn ring(members: &mut Members) -> Option<Duration> {
    let now = Instant::now();
    members.alarms.retain(|(at, shared)| {
        let due = *at <= now;
        if due && let Some(shared) = shared.upgrade() {
            shared.work.store(true, Ordering::Release);
        }
        !due
    });
    members.alarms.iter().map(|(at, _)| at.saturating_duration_since(now)).min()
}

/// The next database in turn that may have work; its flag is lowered before the work is looked for, so that a wake that
/// comes in between is not lost.
fn next(members: &mut Members) -> Option<Arc<Shared>> {
    let count = members.databases.len();
    for i in 0..count {
        let position = (members.next + i) % count;
        if let Some(shared) = members.databases[position].upgrade()
            && shared.work.swap(false, Ordering::AcqRel)
        {
            members.next = position + 1;
            return Some(shared);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that found nothing to do put off what another had seen.
    #[test]
    fn the_sooner_alarm_of_a_database_stays() {
        let machine = sim::SimEnv::new(1);
        let open = |dir: &str| {
            let options = crate::Options::default();
            crate::Engine::open_stepped(machine.env(), std::path::Path::new(dir), options).unwrap()
        };
        let (one, other) = (open("one"), open("other"));
        let shared = |engine: &crate::Engine| engine.shared_weak().upgrade().unwrap();
        let mut members = Members::default();
        let now = Instant::now();
        for (engine, seconds) in [(&one, 50), (&one, 20), (&one, 90), (&other, 70)] {
            members.set_alarm(now + Duration::from_secs(seconds), &shared(engine));
        }
        let mut alarms: Vec<Duration> = members.alarms.iter().map(|(at, _)| *at - now).collect();
        alarms.sort_unstable();
        assert_eq!(alarms, [Duration::from_secs(20), Duration::from_secs(70)]);
        assert!(ring(&mut members).is_some_and(|left| left <= Duration::from_secs(20)));
    }
}
