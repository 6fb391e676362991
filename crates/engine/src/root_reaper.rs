//! The reaper drops replaced roots, so that no reader pays for freeing memory that others filled.
//!
//! A published root is handed over here when a newer one replaces it, and is kept until nobody else holds it. There is one
//! reaper thread in a process. It sleeps while there is nothing to drop, and the first root that comes then wakes it. While
//! commits follow one another it checks by itself, so no commit pays for waking it.
//!
//! The same thread ends open transactions whose time is up: they hold roots too, and their clients may never come back.

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use vfs::{Condvar, Mutex, Rank};

use crate::database_root::DatabaseRoot;
use crate::shared_state::Shared;
use crate::threads::Class;

/// Time between two checks of the held roots.
const ROUND: Duration = Duration::from_millis(10);

struct RootReaper {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    retired: Vec<Arc<DatabaseRoot>>,
    /// True while the thread sleeps until it is woken.
    asleep: bool,
    /// Times at which a database's open transactions must be checked.
    calls: Vec<(Instant, Weak<Shared>)>,
}

fn reaper() -> &'static RootReaper {
    static REAPER: OnceLock<RootReaper> = OnceLock::new();
    static THREAD: OnceLock<()> = OnceLock::new();
    let reaper = REAPER.get_or_init(|| RootReaper {
        state: Mutex::new(Rank::new(60, "engine reaper"), State::default()),
        arrived: Condvar::new(),
    });
    THREAD.get_or_init(|| {
        // A process that cannot start the thread (one at its limit) keeps the retired roots.
        let _ = Class::Interactive.spawn("pn-reaper", run);
    });
    reaper
}

/// Takes over a root that readers may still hold.
pub(crate) fn retire(root: Arc<DatabaseRoot>) {
    let reaper = reaper();
    let mut state = reaper.state.lock();
    state.retired.push(root);
    let wake = std::mem::take(&mut state.asleep);
    drop(state);
    if wake {
        reaper.arrived.notify_one();
    }
}

/// Lets a database end its expired transactions at the given time.
pub(crate) fn call_at(at: Instant, shared: Weak<Shared>) {
    let reaper = reaper();
    reaper.state.lock().calls.push((at, shared));
    reaper.arrived.notify_one();
}

/// Returns the number of retired roots that are still held, and the time at which the oldest was made, on its engine's
/// clock.
pub(crate) fn held() -> (usize, Option<Duration>) {
    let state = reaper().state.lock();
    (state.retired.len(), state.retired.iter().map(|root| root.made).min())
}

fn run() {
    let reaper = reaper();
    loop {
        let mut state = reaper.state.lock();
        let now = loop {
            let now = Instant::now();
            let next = state.calls.iter().map(|(at, _)| *at).min();
            if !state.retired.is_empty() || next.is_some_and(|at| at <= now) {
                break now;
            }
            state.asleep = true;
            match next {
                None => reaper.arrived.wait(&mut state),
                Some(at) => {
                    reaper.arrived.wait_for(&mut state, at - now);
                }
            }
            state.asleep = false;
        };
        let roots = std::mem::take(&mut state.retired);
        let due: Vec<_> = state.calls.extract_if(.., |(at, _)| *at <= now).collect();
        drop(state);
        let again = |(_, shared): (Instant, Weak<Shared>)| {
            let at = shared.upgrade()?.expire_transactions()?;
            Some((at, shared))
        };
        let calls: Vec<_> = due.into_iter().filter_map(again).collect();
        // Freed outside the lock, oldest first.
        let held: Vec<Arc<DatabaseRoot>> =
            roots.into_iter().filter(|root| Arc::strong_count(root) > 1).collect();
        let mut state = reaper.state.lock();
        state.calls.extend(calls);
        let arrived = std::mem::replace(&mut state.retired, held);
        state.retired.extend(arrived);
        // Readers do not report that they release a root, and the next commits do not wake this thread: this is the interval
        // between checks.
        reaper.arrived.wait_for(&mut state, ROUND);
    }
}
