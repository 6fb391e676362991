//! A time limit for tests that prints all stacks when it is exceeded.

#[cfg(target_os = "linux")]
mod stacks;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::Location;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::scale;

/// Limits the test to this many seconds (times [`scale`] if that is above 1) until the guard is dropped. If the test
/// takes longer, the stacks of all threads are printed to stderr and the process aborts. There is no other way to end
/// a hanging test, since a Rust thread cannot be killed.
///
/// Take it first: `let _limit = testkit::limit(30);`. A bare `_` would drop it at once.
#[track_caller]
#[must_use = "the limit ends when the guard is dropped"]
pub fn limit(seconds: u64) -> Guard {
    let allowed = Duration::from_secs(seconds).mul_f64(scale().max(1.0));
    let caller = Location::caller();
    let name = thread::current().name().unwrap_or("unnamed thread").to_owned();
    let running = RunningTest { deadline: Instant::now() + allowed, allowed, name, caller };
    let mut watch = lock();
    if !watch.started {
        watch.started = true;
        thread::Builder::new()
            .name("testkit-limit".into())
            .spawn(run_watchdog)
            .expect("a thread can be started");
    }
    watch.last_id += 1;
    let id = watch.last_id;
    watch.running.insert(id, running);
    drop(watch);
    CHANGED.notify_one();
    Guard { id }
}

/// The time limit of a running test; it ends when this is dropped.
#[derive(Debug)]
pub struct Guard {
    id: u64,
}

impl Drop for Guard {
    fn drop(&mut self) {
        lock().running.remove(&self.id);
    }
}

struct RunningTest {
    deadline: Instant,
    allowed: Duration,
    name: String,
    caller: &'static Location<'static>,
}

struct Watchdog {
    running: BTreeMap<u64, RunningTest>,
    last_id: u64,
    started: bool,
}

static WATCHDOG: Mutex<Watchdog> =
    Mutex::new(Watchdog { running: BTreeMap::new(), last_id: 0, started: false });
static CHANGED: Condvar = Condvar::new();

/// Takes the lock even if it is poisoned: nothing here panics between two changes that belong together.
fn lock() -> MutexGuard<'static, Watchdog> {
    WATCHDOG.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run_watchdog() {
    let mut watch = lock();
    loop {
        let now = Instant::now();
        if let Some(late) = watch.running.values().find(|running| running.deadline <= now) {
            give_up(late);
        }
        let wait = watch.running.values().map(|running| running.deadline - now).min();
        // A removed deadline can make this wait end too early, never too late.
        watch = match wait {
            Some(wait) => CHANGED.wait_timeout(watch, wait).unwrap_or_else(PoisonError::into_inner).0,
            None => CHANGED.wait(watch).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

fn give_up(late: &RunningTest) -> ! {
    // The test harness would capture the output of `eprintln`, and lose it with the process.
    let mut out = std::io::stderr();
    let _ = writeln!(
        out,
        "\n=== {} exceeded its limit of {:.0} s, set at {}; all threads:",
        late.name,
        late.allowed.as_secs_f64(),
        late.caller
    );
    #[cfg(target_os = "linux")]
    stacks::print_all(&mut out);
    #[cfg(not(target_os = "linux"))]
    let _ = writeln!(out, "(stacks of other threads are printed on Linux only)");
    let _ = out.flush();
    std::process::abort();
}
